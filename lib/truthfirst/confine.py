"""The inner side of the sandbox: closes the last doors from within, then becomes the program.

`sandbox.py` starts bubblewrap (`bubblewrap.py` says how), which starts this file's text (`python -I -S -c`) as process
1 of the new namespaces. That mounts the workspace, a tmpfs with a bound on bytes and on files (bubblewrap can bound
bytes only), and then waits for one child; when process 1 ends, the kernel ends whatever is left inside. Where the
workspace is wanted back, process 1 first has everything inside killed, and then a child, as the program's user, writes
it out as a tar archive. The child

1. gives up root, or whatever else was left to mount the workspace;
2. reads the job, JSON on standard input, writes its files, and puts /dev/null in place of standard input;
3. lowers the resource limits, installs the system-call filter, says "ready", and executes the program.

The filter takes away what the limits would not reach: memory that belongs to no process (memfd, System V segments,
message queues), namespaces inside this one (a tmpfs without bounds), sockets other than internet and unix ones (vsock
leads out of a virtual machine whatever the network namespace says), and looking into other processes. It is a list of
what is refused, not of what is allowed, and it is no defence against a defect of the kernel itself.

Standard library only, and nothing of this package: inside the sandbox there is none.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import errno
import io
import json
import os
import resource
import stat
import struct
import sys
from collections.abc import Callable, Sequence

WORKSPACE = "/workspace"

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {  # system call -> its number on x86_64 and on aarch64 (asm/unistd_64.h, asm-generic/unistd.h)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
}
_GUARDED = ("clone", "clone3", "socket")  # refused by their arguments, or in their own way
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 22, 38, 47
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF: ld abs, jeq, jge, jset, ret
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class ConfinementError(OSError):
    """A door cannot be closed; the program is not started."""


def filter_program(machine: str) -> bytes:
    """Return the system-call filter of a machine (as `uname -m` tells it) as an array of struct sock_filter.

    Raises ConfinementError for a machine whose system-call numbers are not listed here.
    """
    if machine not in AUDIT_ARCH:
        raise ConfinementError(
            f"no system-call filter for {machine!r}: there is one for {sorted(AUDIT_ARCH)}"
        )
    column = list(AUDIT_ARCH).index(machine)
    code: list[tuple[int, int, int, int]] = []

    def refuse(number: int) -> None:
        code.append((_RETURN, 0, 0, _ERRNO | number))

    code += [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, AUDIT_ARCH[machine])]  # offset 4: architecture
    refuse(errno.ENOSYS)  # another ABI (32 bits) would give the numbers another meaning
    code += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, 0x40000000)]  # offset 0: the number; x32 counts from there
    refuse(errno.ENOSYS)
    for name, numbers in _NUMBERS.items():
        if name not in _GUARDED:
            code.append((_EQUAL, 0, 1, numbers[column]))
            refuse(errno.EPERM)
    code.append((_EQUAL, 0, 1, _NUMBERS["clone3"][column]))
    refuse(
        errno.ENOSYS
    )  # its flags lie in memory, out of a filter's sight; the C library falls back to clone
    first = (_LOAD, 0, 0, 16)  # offset 16: low half of the first argument
    code += [(_EQUAL, 0, 3, _NUMBERS["clone"][column]), first, (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    refuse(errno.EPERM)
    code += [(_LOAD, 0, 0, 0), (_EQUAL, 0, 5, _NUMBERS["socket"][column]), first]
    code += [(_EQUAL, 3, 0, _AF_UNIX), (_EQUAL, 2, 0, _AF_INET), (_EQUAL, 1, 0, _AF_INET6)]
    refuse(errno.EAFNOSUPPORT)
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in code)


def install_filter(libc: ctypes.CDLL) -> None:
    """Install the filter for this process and all that it will start."""
    program = filter_program(os.uname().machine)
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    where = ctypes.create_string_buffer(header, len(header))
    check("seccomp", libc.prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(where), 0, 0))


def c_library() -> ctypes.CDLL:
    """Return the C library with the types of the two functions that are called."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
    return libc


def check(what: str, status: int) -> None:
    """Raise ConfinementError when a call of the C library failed."""
    if status != 0:
        number = ctypes.get_errno()
        raise ConfinementError(number, f"{what}: {os.strerror(number)}")


def mount_workspace(libc: ctypes.CDLL, size: int, files: int, user: int) -> None:
    """Mount a tmpfs of at most `size` bytes and `files` entries (its root not counted), owned by `user`."""
    options = f"size={size},nr_inodes={files + 1},mode=0700,uid={user},gid={user}"
    nosuid_nodev = 2 | 4
    mounted = libc.mount(b"tmpfs", WORKSPACE.encode(), b"tmpfs", nosuid_nodev, options.encode())
    check("workspace", mounted)


def give_up_privileges(libc: ctypes.CDLL, user: int) -> None:
    """Become `user` where this is root, and keep no capability over the next exec."""
    check("ambient capabilities", libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0))
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    check("no_new_privs", libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def lower_limits(limits: Sequence[tuple[str, int, int]]) -> None:
    """Set resource limits: (name without RLIMIT_, soft, hard)."""
    for name, soft, hard in limits:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (soft, hard))


def become(libc: ctypes.CDLL, user: int, status: int) -> None:
    """Confine this process and execute the program that standard input describes; returns only by raising."""
    give_up_privileges(libc, user)
    job = json.load(sys.stdin)
    os.chdir(WORKSPACE)
    for name, content in job["files"].items():
        os.makedirs(os.path.dirname(f"{WORKSPACE}/{name}"), exist_ok=True)
        with open(f"{WORKSPACE}/{name}", "wb") as out:
            out.write(base64.b64decode(content))
    if job["tree"] is not None:
        unpack(base64.b64decode(job["tree"]))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.umask(0o077)
    lower_limits(job["limits"])
    install_filter(libc)
    os.write(status, b"ready")  # fails, and nothing is started, when the parent is gone by now
    os.closerange(3, 1024)
    try:
        os.execve(job["argv"][0], job["argv"], job["environment"])
    except OSError as error:
        os.write(2, f"{job['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)


def unpack(archive: bytes) -> None:
    """Unpack a workspace; the archive is the program's own, and this process can write nowhere else."""
    import tarfile  # only where it is needed: it costs a third of the start

    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as source:
        source.extractall(WORKSPACE, filter="fully_trusted")


def pack(out: int, most: int) -> None:
    """Write the workspace to a descriptor as a tar archive, nothing where its files hold more than `most` bytes."""
    import tarfile

    found: list[tuple[str, os.stat_result]] = []

    def look(folder: str) -> None:
        os.chmod(folder, 0o700)
        for name in sorted(os.listdir(folder)):
            path = f"{folder}/{name}"
            told = os.lstat(path)
            found.append((path, told))
            if stat.S_ISDIR(told.st_mode):
                look(path)

    look(WORKSPACE)
    if sum(told.st_size for _, told in found if stat.S_ISREG(told.st_mode)) > most:
        return
    with open(out, "wb") as pipe, tarfile.open(fileobj=pipe, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path, told in found:
            info = tarfile.TarInfo(path[len(WORKSPACE) + 1 :])
            info.mode = 0o700 if told.st_mode & 0o100 else 0o600
            if stat.S_ISDIR(told.st_mode):
                info.type, info.mode = tarfile.DIRTYPE, 0o700
                archive.addfile(info)
            elif stat.S_ISLNK(told.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                archive.addfile(info)
            elif stat.S_ISREG(told.st_mode):  # pipes and sockets are left behind
                os.chmod(path, 0o600)
                info.size = told.st_size
                with open(path, "rb") as source:
                    archive.addfile(info, source)


def as_user(libc: ctypes.CDLL, user: int, act: Callable[[], object]) -> None:
    """Let a child that is `user` do something, and wait until it and everything else inside has ended."""
    if os.fork() == 0:
        code = 1
        try:
            give_up_privileges(libc, user)
            act()
            code = 0
        except (OSError, RecursionError) as error:  # a part of an archive is none
            os.write(2, f"workspace: {error}\n".encode())
        finally:
            os._exit(code)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def kill_all() -> None:
    """Kill every process inside but process 1 and this one."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, 9)


def main() -> None:
    """Mount, start the child, and end as it ends.

    Arguments: the status descriptor, the child's user, the bytes and files of the workspace, and the descriptor that
    the workspace is written to at the end, or -1.
    """
    status, user, size, files, tree = map(int, sys.argv[1:])
    try:
        libc = c_library()
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write("1000")  # when the machine runs short, this goes first
        mount_workspace(libc, size, files, user)
        check("death signal", libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0))
        if (child := os.fork()) == 0:
            become(libc, user, status)
    except (OSError, ValueError, KeyError) as error:
        os.write(status, f"{type(error).__name__}: {error}".encode())
        os._exit(125)
    os.close(status)
    while True:
        ended, code = os.wait()  # orphans come here too
        if ended == child:
            if tree >= 0:
                as_user(libc, user, kill_all)
                as_user(libc, user, lambda: pack(tree, size))
            code = os.waitstatus_to_exitcode(code)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
