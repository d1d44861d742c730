"""What is run in the sandbox, and how bubblewrap is told to build the walls around it.

The root is read-only and holds what a program needs and nobody's data: the system's libraries, this interpreter's own
Python at /python without its packages, a few devices, /proc of the new namespace, and an empty /workspace (with /tmp
as another name for it) that the inner side (`confine.py`) mounts. As root, bubblewrap needs no user namespace: the
inner side mounts and then becomes a user that nobody else is, one a run, so that the limit on processes is its own.
Without root it is the only user of a new user namespace.

Source: bwrap(1), 0.4 or newer; user_namespaces(7); getrlimit(2).
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from . import confine

PYTHON = "/python/bin/python3"
WORKSPACE = confine.WORKSPACE
REMEDY = "run `make setup` as root on a system with apt, or install bubblewrap (apt-get install bubblewrap)"

_FIRST_USER, _USERS = 61_184, 4_000  # ids that no account has; each run as root takes the next one
_INNER_USER = 1_000


class SandboxError(RuntimeError):
    """The sandbox itself failed, not the program in it."""


class SandboxUnavailable(SandboxError):
    """There is no sandbox here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one program and all that it starts.

    wall_seconds        from its start to its end; processor_seconds: of each process
    memory_bytes        address space of each process, and resident memory of all together
    processes           processes and threads at any time
    file_bytes          of one file; workspace_bytes and files: of all together (directories count as files)
    output_bytes        kept of each of standard output and standard error
    """

    wall_seconds: float = 10.0
    processor_seconds: int = 10
    memory_bytes: int = 512 << 20
    processes: int = 32
    file_bytes: int = 16 << 20
    workspace_bytes: int = 32 << 20
    files: int = 1_000
    open_files: int = 64
    output_bytes: int = 16_384

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 < value < 2**40:
                raise ValueError(f"{one.name} must be positive and finite, got {value!r}")


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    argv         absolute path of the executable inside the sandbox, then its arguments
    files        relative name -> content, written into the workspace before the start
    tree         tar archive of a workspace, unpacked before the start; where there is one, the workspace as the program
                 leaves it comes back in `Result.tree`
    environment  of the program, beside PATH, HOME, TMPDIR, LANG and PYTHON's own settings
    shell        whether /usr/bin with its shells and tools is visible
    shown        absolute path inside -> file or folder of this machine that the program may read there
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    tree: bytes | None = field(default=None, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict)
    shell: bool = False
    limits: Limits = Limits()
    shown: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0].startswith("/"):
            raise ValueError(f"argv must start with an absolute path inside the sandbox, got {self.argv!r}")
        for name in self.files:
            parts = name.split("/")
            if "\0" in name or not all(parts) or not {".", ".."}.isdisjoint(parts):
                raise ValueError(f"file name {name!r} must be relative, without empty, '.' or '..' parts")
        for place in self.shown:
            if (
                "\0" in place
                or not place.startswith("/")
                or not {"", ".", ".."}.isdisjoint(place.split("/")[1:])
            ):
                raise ValueError(f"place {place!r} must be absolute, without empty, '.' or '..' parts")


def python_program(code: str, limits: Limits | None = None) -> Program:
    """Return the program that runs Python code as main.py, with the standard library and nothing else."""
    source = code.encode("utf-8", "surrogatepass")  # Python itself says what is wrong with such a file
    return Program((PYTHON, "main.py"), {"main.py": source}, limits=limits or Limits())


# --- the walls --------------------------------------------------------------------------------------------
def _root_arguments(program: Program) -> list[str]:
    """Return bubblewrap's arguments for the file system: read-only, and no more than the program needs."""
    arguments = ["--dir", "/dev", "--dir", WORKSPACE]
    folders = ["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/lib32", "/etc/ld.so.cache"]
    if program.shell:
        folders += ["/bin", "/usr/bin", "/usr/share/zoneinfo", "/etc/alternatives"]
    for folder in folders:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        elif os.path.exists(folder):
            arguments += _shown(folder, folder)
    arguments += [*_python_arguments(), "--proc", "/proc"]
    for device in ("null", "zero", "full", "random", "urandom"):
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        arguments += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    arguments += ["--symlink", "/proc/self/fd", "/dev/fd", "--symlink", WORKSPACE, "/tmp"]
    for place, source in program.shown.items():
        arguments += _shown(str(source), place)
    return [*arguments, "--remount-ro", "/"]


def _python_arguments() -> list[str]:
    """Return the arguments that show this interpreter's own Python at /python, without its packages."""
    prefix, version = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    binary = prefix / "bin" / version
    if not binary.exists():
        raise SandboxUnavailable(f"there is no {binary} to run inside the sandbox")
    arguments = [*_shown(str(binary.resolve()), PYTHON), "--symlink", "python3", "/python/bin/python"]
    for name in dict.fromkeys(("lib", sys.platlibdir)):
        arguments += ["--ro-bind-try", str(prefix / name), f"/python/{name}"]
        for packages in ("site-packages", "dist-packages"):
            if (prefix / name / version / packages).is_dir():
                masked = f"/python/{name}/{version}/{packages}"
                arguments += ["--tmpfs", masked, "--remount-ro", masked]
    if prefix != Path("/usr"):  # the binary looks for its shared library where it was installed
        for library in sorted((prefix / "lib").glob("libpython3*.so*")):
            arguments += _shown(str(library), str(library))
    return arguments


def _shown(source: str, place: str) -> list[str]:
    """Return the arguments that show `source` at `place`, in folders that everybody inside may enter."""
    folders = [str(folder) for folder in reversed(Path(place).parents)][1:]
    made = itertools.chain.from_iterable(("--dir", folder) for folder in folders)  # its own are root's alone
    return [*made, "--ro-bind", source, place]


def command_line(program: Program, information: int, status: int, tree: int = -1) -> list[str]:
    """Return bubblewrap's whole command line.

    information, status   descriptors that it and its inner side write to
    tree                  the descriptor that the workspace is written to at the end, or -1
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable(f"bubblewrap (bwrap) is not installed; {REMEDY}")
    arguments = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--hostname", "sandbox", "--as-pid-1", "--die-with-parent"]
    arguments += ["--new-session", "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    if os.geteuid() == 0:  # root mounts, then becomes nobody in particular
        arguments += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        arguments += ["--unshare-user", "--uid", str(_INNER_USER), "--gid", str(_INNER_USER)]
    arguments += [*_root_arguments(program), "--chdir", "/", "--info-fd", str(information)]
    limits = program.limits
    user = _FIRST_USER + (31 * os.getpid() + next(_runs)) % _USERS if os.geteuid() == 0 else _INNER_USER
    inner = map(str, (status, user, limits.workspace_bytes, limits.files, tree))
    return [*arguments, "--", PYTHON, "-I", "-S", "-B", "-c", _inner_source(), *inner]


_runs = itertools.count()


@functools.cache
def _inner_source() -> str:
    return Path(confine.__file__).read_text(encoding="utf-8")


def job(program: Program) -> bytes:
    """Return what the inner side is told, as JSON."""
    limits = program.limits
    processes = limits.processes + (os.geteuid() != 0)  # without root, process 1 is the same user's
    bounds = [
        ("CPU", limits.processor_seconds, limits.processor_seconds + 1),  # SIGXCPU, then SIGKILL
        ("AS", limits.memory_bytes, limits.memory_bytes),
        ("NPROC", processes, processes),
        ("FSIZE", limits.file_bytes, limits.file_bytes),
        ("NOFILE", limits.open_files, limits.open_files),
        ("CORE", 0, 0),
    ]
    environment = {
        "PATH": "/python/bin:/usr/bin:/bin",
        "HOME": WORKSPACE,
        "TMPDIR": WORKSPACE,
        "LANG": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",  # what was printed before a kill is seen
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    told = {
        "files": {name: base64.b64encode(data).decode() for name, data in program.files.items()},
        "tree": None if program.tree is None else base64.b64encode(program.tree).decode(),
        "limits": bounds,
        "argv": program.argv,
        "environment": environment | dict(program.environment),
    }
    return json.dumps(told).encode()
