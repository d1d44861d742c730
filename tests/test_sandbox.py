"""The sandbox, attacked: every test runs hostile code for real and looks at what came of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import truthfirst
from truthfirst import sandbox
from truthfirst.confine import AUDIT_ARCH, ConfinementError, filter_program
from truthfirst.sandbox import Limits, Program, Result, SandboxUnavailable, available, python_program, run

needs_sandbox = pytest.mark.skipif(not available(), reason=available().reason or "there is a sandbox")
SMALL = Limits(wall_seconds=20.0, processor_seconds=5, output_bytes=4_000)
HOME = Path(truthfirst.__file__).resolve().parents[2]


def attack(code: str, **bounds: Any) -> Result:
    return run(python_program(textwrap.dedent(code), replace(SMALL, **bounds)))


def told(code: str, **bounds: Any) -> Any:
    """Return what hostile code reports as JSON on its last line; it must end well."""
    result = attack(code, **bounds)
    assert result.exit_status == 0, result
    return json.loads(result.stdout.splitlines()[-1])


TRY = """
    import ctypes, errno, json, os, socket, sys
    def attempt(action, *arguments):
        try:
            action(*arguments)
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
        return "done"
"""


def processes_with(mark: str) -> list[int]:
    """Return the processes of this machine whose command line holds `mark`."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    bound = time.monotonic() + seconds
    while not condition() and time.monotonic() < bound:
        time.sleep(0.02)
    return condition()


def children() -> set[int]:
    """Return the children of this process, zombies included."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(
            FileNotFoundError, ProcessLookupError
        ):  # a thread may end between the two looks
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


# --- what works -----------------------------------------------------------------------------------------
@needs_sandbox
def test_a_program_runs_and_is_told_apart_by_its_end() -> None:
    assert attack("import fractions; print(fractions.Fraction(1, 3) * 2)").stdout == "2/3\n"
    failed = attack("print('so far'); raise SystemExit(7)")
    assert (failed.exit_status, failed.reason, failed.stdout) == (7, "exited", "so far\n")
    crashed = attack("import ctypes; ctypes.string_at(0)")
    assert (crashed.exit_status, crashed.reason) == (128 + signal.SIGSEGV, "signal")
    wrong = attack("print(1 +")
    assert 'File "/workspace/main.py", line 1' in wrong.stderr
    absent = run(Program(("/no/such/program",)))
    assert (absent.exit_status, absent.stderr) == (127, "/no/such/program: No such file or directory\n")


@needs_sandbox
def test_equal_programs_tell_equal_things() -> None:
    code = "import os, random\nprint(hash('x'), sorted(os.environ), os.listdir('.'), os.getpid())\n1 / 0"
    first, second = attack(code), attack(code)
    assert replace(first, seconds=0) == replace(second, seconds=0)
    assert "ZeroDivisionError" in first.stderr


@needs_sandbox
def test_files_go_in_and_a_shell_can_be_had() -> None:
    files = {"a/b.txt": b"\xff\x00", "c": b"see"}
    listing = run(Program(("/bin/sh", "-c", "cat c; wc -c < a/b.txt; echo $0"), files, shell=True))
    assert listing.stdout.split() == ["see", "2", "/bin/sh"] or listing.stdout.startswith("see2\n")
    hidden = run(Program(("/bin/sh", "-c", "echo hi")))
    assert hidden.exit_status == 127


@needs_sandbox
def test_several_run_at_once_without_sharing_anything() -> None:
    results: list[Result] = []
    code = "import os, time; open(str(os.getpid()), 'x'); time.sleep(0.2); print(os.listdir('/tmp'))"
    threads = [threading.Thread(target=lambda: results.append(attack(code))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert {one.stdout for one in results} == {results[0].stdout}
    assert all(one.exit_status == 0 for one in results)


def test_limits_and_programs_are_checked() -> None:
    for bounds in (
        {"wall_seconds": 0},
        {"memory_bytes": -1},
        {"files": 2**40},
        {"wall_seconds": float("nan")},
    ):
        with pytest.raises(ValueError, match="must be positive and finite"):
            Limits(**bounds)
    for name in ("../x", "/x", "a//b", ".", "", "a\0b"):
        with pytest.raises(ValueError, match="must be relative"):
            Program(("/x",), {name: b""})
    with pytest.raises(ValueError, match="absolute path"):
        Program(("python3",))


# --- network -------------------------------------------------------------------------------------------
@needs_sandbox
def test_no_network_not_even_the_parents_loopback_or_the_machines_host() -> None:
    name = f"\0truthfirst-{os.getpid()}"
    server, local = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    local.bind(name)
    local.listen()
    port = server.getsockname()[1]
    socket.create_connection(("127.0.0.1", port), 5).close()  # it can be reached from here
    answers = told(f"""
    {TRY}
    unix = socket.socket(socket.AF_UNIX)
    print(json.dumps([
        attempt(socket.create_connection, ("192.0.2.1", 80), 3),
        attempt(socket.create_connection, ("127.0.0.1", {port}), 3),
        attempt(socket.getaddrinfo, "example.org", 80),
        attempt(unix.connect, {name!r}),
        [attempt(socket.socket, family, socket.SOCK_STREAM) for family in (16, 38, 40)],
        attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
        [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]],
    ]))""")
    server.close()
    local.close()
    outside, loopback, lookup, unix, families, raw, devices = answers
    assert outside in ("ENETUNREACH", "EHOSTUNREACH")
    assert (loopback, unix) == ("ECONNREFUSED", "ECONNREFUSED")
    assert lookup != "done"
    assert families == ["EAFNOSUPPORT"] * 3  # netlink, kernel crypto, and vsock to a virtual machine's host
    assert raw == "EPERM"
    assert devices == ["lo"]


# --- files ----------------------------------------------------------------------------------------------
@needs_sandbox
def test_nobodys_files_are_seen_and_links_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("sealed")
    places = [str(secret), str(HOME / "pyproject.toml"), str(Path(truthfirst.__file__)), "/etc/passwd"]
    places += ["/etc/shadow", "/var/log", "/sys/kernel", "/run", str(Path.home() / ".bashrc"), "/dev/mem"]
    seen = told(f"""
    {TRY}
    found = []
    for place in {places!r}:
        os.symlink(place, "link")
        ways = [place, "link", "/proc/1/root" + place, "/proc/self/cwd/../.." + place, "../../.." + place]
        found += [way for way in ways if os.path.exists(way)]
        found += [way for way in ways if way != "link" and attempt(os.link, way, "hard") == "done"]
        os.unlink("link")
    try:
        import truthfirst, numpy
        found.append("packages")
    except ImportError:
        pass
    print(json.dumps(found))""")
    assert seen == []


@needs_sandbox
def test_only_the_workspace_can_be_written() -> None:
    writable, others = told(f"""
    {TRY}
    writable = []
    for folder, _, _ in os.walk("/"):
        if not folder.startswith("/proc/") and os.access(folder, os.W_OK):
            try:
                open(folder + "/new", "w").close()
            except OSError:
                continue
            writable.append(folder)
    others = [attempt(open, place, "w") for place in ("/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
              sys.executable, os.__file__, "/dev/../new", "/etc/ld.so.cache")]
    others += [attempt(os.rename, "/etc", "/workspace/etc"), attempt(os.mkdir, "/dev/shm")]
    print(json.dumps([writable, others]))""")
    assert writable == ["/workspace"]
    assert set(others) <= {"EROFS", "EACCES", "EPERM", "ENOENT", "EXDEV"}


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20))", "File too large"),
        ("open('x', 'wb').truncate(10 << 30)", "File too large"),
        ("for n in range(99): open(f'{n}', 'wb').write(bytes(1 << 20))", "No space left"),
        ("for n in range(10**6): open(f'{n}', 'w')", "No space left on device: '49'"),
        ("import os\nwhile True: os.mkdir('d'); os.chdir('d')", "No space left"),
        ("import os\nfor n in range(10**6): os.symlink('/', f'{n}')", "No space left"),
        ("kept = [open('main.py') for _ in range(99)]", "Too many open files"),
    ],
    ids=["huge", "sparse", "full", "many", "deep", "links", "open"],
)
def test_files_are_bounded_in_size_and_number(code: str, says: str) -> None:
    result = attack(code, file_bytes=4 << 20, workspace_bytes=8 << 20, files=50)
    assert (result.exit_status, result.reason) == (1, "exited")
    assert says in result.stderr


# --- memory, processes, time, output ----------------------------------------------------------------------
@needs_sandbox
def test_ten_gigabytes_are_refused_however_they_are_asked_for() -> None:
    assert "MemoryError" in attack("x = bytearray(10 << 30)").stderr
    assert "MemoryError" in attack("x = []\nwhile True: x.append(bytearray(1 << 24))").stderr
    assert "Cannot allocate memory" in attack("import mmap; mmap.mmap(-1, 10 << 30)").stderr
    hidden = told(f"""
    {TRY}
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmget(0, 10 << 30, 0o1600)
    print(json.dumps([attempt(os.memfd_create, "x"), errno.errorcode[ctypes.get_errno()]]))""")
    assert hidden == ["EPERM", "EPERM"]


@needs_sandbox
def test_memory_is_bounded_over_all_processes() -> None:
    code = """
    import os, time
    for _ in range(6):
        if os.fork() == 0:
            kept = b"x" * (100 << 20)
            time.sleep(60)
    time.sleep(60)"""
    result = attack(code, memory_bytes=200 << 20)
    assert (result.reason, result.exit_status) == ("memory", None)


@needs_sandbox
def test_a_fork_bomb_stays_small_and_ends() -> None:
    made = told(
        """
    import os, time
    made = 0
    while True:
        try:
            if os.fork() == 0:
                time.sleep(60)
        except BlockingIOError:
            break
        made += 1
    print(made)""",
        processes=12,
    )
    assert made == 11
    mark = f"bomb{os.getpid()}"
    code = f"import os  # {mark}\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    bomb = run(Program((sandbox.PYTHON, "-c", code), limits=replace(SMALL, wall_seconds=0.7, processes=12)))
    assert (bomb.reason, bomb.exit_status) == ("wall", None)
    assert processes_with(mark) == []
    threads = (
        "import threading, time\nfor _ in range(99): threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    assert "can't start new thread" in attack(threads, processes=12, wall_seconds=2.0).stderr


@needs_sandbox
def test_long_sleeps_and_long_sums_are_cut_off() -> None:
    slept = attack("import time; print('before'); time.sleep(1e6)", wall_seconds=0.5)
    assert (slept.reason, slept.exit_status, slept.stdout) == ("wall", None, "before\n")
    assert 0.5 <= slept.seconds < 15
    deaf = attack("import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(99)",
                  wall_seconds=0.5)  # fmt: skip
    assert deaf.reason == "wall"
    busy = attack("while True: pass", processor_seconds=1, wall_seconds=60.0)
    assert (busy.reason, busy.exit_status) == ("processor", None)


@needs_sandbox
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_cut_while_it_streams(stream: str) -> None:
    result = attack(f"import sys\nwhile True: sys.{stream}.write('y' * 5000)", output_bytes=1_000)
    assert result.reason == "output"
    assert getattr(result, stream) == "y" * 1_000
    assert getattr(result, f"{stream}_cut")
    assert not getattr(result, "stderr_cut" if stream == "stdout" else "stdout_cut")


@needs_sandbox
def test_output_past_the_limit_is_dropped_and_the_program_goes_on() -> None:
    code = "import sys; print('x' * 10**5); sys.stdout.buffer.write(b'\\xff'); print('end', file=sys.stderr)"
    result = attack(code, output_bytes=10)
    assert (result.stdout, result.stdout_cut, result.stderr, result.stderr_cut) == (
        "x" * 10,
        True,
        "end\n",
        False,
    )
    assert (result.exit_status, result.reason) == (0, "exited")
    assert attack("import sys; sys.stdout.buffer.write(b'a\\xffb')").stdout == "a\N{REPLACEMENT CHARACTER}b"


@needs_sandbox
def test_standard_input_is_empty() -> None:
    assert "EOFError" in attack("input()").stderr


# --- processes ---------------------------------------------------------------------------------------------
@needs_sandbox
def test_the_parent_is_out_of_sight_and_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUTHFIRST_SECRET", "sealed-in-the-environment")
    seen = told(f"""
    {TRY}
    libc = ctypes.CDLL(None, use_errno=True)
    def failed(name, *arguments):
        return errno.errorcode[ctypes.get_errno()] if getattr(libc, name)(*arguments) == -1 else "done"
    everything = ""
    for name in ("environ", "cmdline", "maps", "mountinfo"):
        for pid in [pid for pid in os.listdir("/proc") if pid.isdigit()]:
            try:
                everything += open(f"/proc/{{pid}}/{{name}}", errors="replace").read()
            except OSError:
                everything += "closed "
    print(json.dumps({{
        "processes": [pid for pid in os.listdir("/proc") if pid.isdigit()],
        "parent": os.getppid(),
        "memory": attempt(open, "/proc/1/mem", "r+b"),
        "kill": attempt(os.kill, {os.getpid()}, 9),
        "sealed": "sealed-in" in everything or "sealed-in" in str(os.environ),
        "calls": [failed("ptrace", 16, 1, 0, 0), failed("unshare", 0x10000000), failed("setns", 0, 0),
                  failed("mount", b"x", b"/workspace", b"tmpfs", 0, None), failed("chroot", b"/workspace"),
                  failed("setuid", 0)],
        "device": attempt(os.mknod, "disk", 0o60600, os.makedev(8, 0)),
        "root": os.getuid() == 0,
        "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapPrm",
                         "CapEff", "CapAmb"))],
        "descriptors": [fd for fd in range(3, 999) if attempt(os.fstat, fd) == "done"],
        "host": os.uname().nodename,
    }}))""")
    assert seen["processes"] == ["1", "2"]
    assert (seen["parent"], seen["kill"], seen["sealed"], seen["root"]) == (1, "ESRCH", False, False)
    assert seen["memory"] in ("EACCES", "EPERM")
    assert set(seen["calls"][:-1]) == {"EPERM"}
    assert seen["calls"][-1] in ("EPERM", "EINVAL")
    assert seen["device"] == "EPERM"
    assert {int(value, 16) for value in seen["capabilities"]} == {0}
    assert seen["descriptors"] == []
    assert seen["host"] == "sandbox"


@needs_sandbox
def test_what_a_program_leaves_behind_ends_with_it() -> None:
    mark = f"orphan{os.getpid()}"
    orphan = f"""
    import os, subprocess, sys
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # {mark}"], start_new_session=True)
    print("left")
    """
    result = attack(orphan)
    assert (result.stdout, result.reason) == ("left\n", "exited")
    assert processes_with(mark) == []
    assert attack(orphan + "\n    import time; time.sleep(600)", wall_seconds=1.0).reason == "wall"
    assert processes_with(mark) == []


@needs_sandbox
def test_the_program_dies_with_a_parent_that_is_killed() -> None:
    mark = f"widow{os.getpid()}"
    inner = f"import ctypes, time; ctypes.CDLL(None).prctl(1, 0); time.sleep(600)  # {mark}"
    script = (
        f"from truthfirst.sandbox import *; run(Program((PYTHON, '-c', {inner!r}), limits=Limits(600.0)))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        assert until(lambda: any(Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"/python/bin")
                                 for pid in processes_with(mark)))  # fmt: skip
        parent.kill()
    assert until(lambda: processes_with(mark) == [])


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="already runs without root")
def test_without_root_the_same_walls_stand(tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    lib = Path(truthfirst.__file__).parents[1]
    check = f"import sys; sys.exit(sys.version_info < (3, 11)); sys.path.insert(0, {str(lib)!r})"
    nobody = {"user": 65_534, "group": 65_534, "extra_groups": ()}
    if not Path(python).exists() or subprocess.run([python, "-c", check], **nobody).returncode:
        pytest.skip("no Python 3.11 or newer that other users may run")
    code = "import os, time\nfor n in range(99):\n    if os.fork() == 0: time.sleep(60)"
    script = f"""
from truthfirst.sandbox import *
found = available()
print(found.reason or "works")
if found:
    print(run(python_program({code!r}, Limits(processes=8))).stderr[-60:])
    print(run(python_program("open('/etc/x', 'w')")).stderr[-60:])
"""
    environment = {"PYTHONPATH": str(lib), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-c", script], env=environment, capture_output=True, text=True, **nobody)
    if "Permission" in done.stderr or "No module named 'truthfirst" in done.stderr:
        pytest.skip("other users may not read this repository")
    if not done.stdout.startswith("works"):
        pytest.skip(f"no unprivileged user namespaces here: {done.stdout.strip()}")
    assert "Resource temporarily unavailable" in done.stdout
    assert "No such file or directory" in done.stdout or "Read-only" in done.stdout


# --- the filter ---------------------------------------------------------------------------------------------
def verdict(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """Run a filter as the kernel would: return 0 where the call is allowed, else the errno."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, argument, *[0] * 5)
    steps = list(struct.iter_unpack("HBBI", program))
    position = value = 0
    while True:
        code, yes, no, k = steps[position]
        position += 1
        if code == 0x20:
            value = int.from_bytes(data[k : k + 4], "little")
        elif code == 0x06:
            return 0 if k == 0x7FFF0000 else k & 0xFFFF
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            position += yes if holds else no


@pytest.mark.parametrize(
    ("machine", "read", "unshare", "memfd", "clone", "clone3", "socket_"),
    [("x86_64", 0, 272, 319, 56, 435, 41), ("aarch64", 63, 97, 279, 220, 435, 198)],
)
def test_the_filter_refuses_by_number_and_argument(
    machine: str, read: int, unshare: int, memfd: int, clone: int, clone3: int, socket_: int
) -> None:
    program, here = filter_program(machine), AUDIT_ARCH[machine]
    assert verdict(program, here, read) == 0
    assert verdict(program, 0x40000003, read) == errno.ENOSYS  # i386
    assert verdict(program, here, 0x40000000 + read) == errno.ENOSYS  # x32
    assert {verdict(program, here, number) for number in (unshare, memfd)} == {errno.EPERM}
    assert verdict(program, here, clone3) == errno.ENOSYS
    assert verdict(program, here, clone, 0x01200011) == 0  # fork, as the C library does it
    assert verdict(program, here, clone, 0x003D0F00) == 0  # a thread
    assert verdict(program, here, clone, 0x10000011) == errno.EPERM  # CLONE_NEWUSER
    assert [verdict(program, here, socket_, family) for family in (1, 2, 10)] == [0, 0, 0]
    assert {verdict(program, here, socket_, family) for family in (0, 3, 16, 17, 38, 40)} == {
        errno.EAFNOSUPPORT
    }


def test_a_machine_without_a_filter_is_refused() -> None:
    with pytest.raises(ConfinementError, match="no system-call filter for 'riscv64'"):
        filter_program("riscv64")


# --- where there is none --------------------------------------------------------------------------------------
@pytest.fixture
def forgotten() -> Iterator[None]:
    available.cache_clear()
    yield
    available.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = available()
    assert not found
    assert "make setup" in found.reason or sys.platform != "linux"
    with pytest.raises(SandboxUnavailable, match="running a program needs the sandbox"):
        run(python_program("print(1)"))


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")
@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo 'No permissions to create new namespace' >&2; exit 1",
            "No permissions to create new namespace",
        ),
        ("exit 0", "no reason given"),
        ('while [ "$1" != -- ]; do shift; done; shift; cat >/dev/null; echo hello', "no reason given"),
    ],
    ids=["refused", "silent", "no-walls"],
)
def test_a_bubblewrap_that_does_not_work_is_no_sandbox(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, says: str
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = available()
    assert not found
    assert says in found.reason
