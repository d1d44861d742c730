"""Bounded execution of untrusted code, in bubblewrap: a `Program` in, a `Result` out.

What the program gets: namespaces of its own (processes, network with nothing but a loopback, IPC, host name, mounts,
and users where this process is not root), a read-only root that holds the system's libraries and a bare Python under
/python, an empty environment, and /workspace, a tmpfs in memory that vanishes with it. What it does not get: the
network, anybody's home, this repository, the data, packages, the parent's processes, its memory, its environment.

Every bound is the kernel's except two that are watched from outside every few milliseconds: the memory of all
processes together, and the wall clock. Output is cut while it streams. Process 1 of the
namespace waits for the program and ends with it; then the kernel ends whatever else was started, and nothing is left
behind, no zombie either. All of it dies with this process, too.

Where bubblewrap does not work, `run` raises `SandboxUnavailable`; it never runs anything on the bare host.

Source: bubblewrap (bwrap(1), 0.4 or newer), namespaces(7), seccomp(2), getrlimit(2). What it does not promise: safety
from defects of the kernel; a bound on memory between two looks of the watcher, other than `processes` times
`memory_bytes`; equal running times; and on kernels before 5.14, without root, the limit on processes counts the
user's other processes too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from .bubblewrap import (
    PYTHON,
    REMEDY,
    WORKSPACE,
    Limits,
    Program,
    SandboxError,
    SandboxUnavailable,
    command_line,
    job,
    python_program,
)

__all__ = [
    "PYTHON",
    "WORKSPACE",
    "Availability",
    "Limits",
    "Program",
    "Result",
    "SandboxError",
    "SandboxUnavailable",
    "available",
    "python_program",
    "require_sandbox",
    "run",
]

DRAIN_BYTES = 8 << 20  # a program that goes on writing past this is killed
START_SECONDS = 30.0  # for bubblewrap itself; the program's own time starts afterwards
WATCH_SECONDS = 0.02
Reason = Literal["exited", "signal", "processor", "wall", "memory", "output"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a program did.

    stdout, stderr   the first `output_bytes` of each, as text (bytes that are no UTF-8 replaced)
    exit_status      as a shell tells it: 128 + number for a signal; None where the sandbox killed the program
    reason           why it ended: by itself ("exited", "signal"), or at its bound on "processor" time, "wall" time,
                     "memory" (of all processes together) or "output"
    seconds          of wall time, to the end of its last process
    tree             tar archive of the workspace that it left (files, folders and links; modes are reset but for the
                     right to execute); None where `Program.tree` is None, where the sandbox killed the program, and
                     where the workspace, written out, exceeds `workspace_bytes`
    """

    stdout: str
    stderr: str
    exit_status: int | None
    reason: Reason
    stdout_cut: bool
    stderr_cut: bool
    seconds: float
    tree: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether the sandbox works here, and if not, why; true or false as a condition."""

    works: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.works


@functools.cache
def available() -> Availability:
    """Say whether the sandbox works here, found out once by running a program that does nothing."""
    if sys.platform != "linux":
        return Availability(False, f"bubblewrap needs Linux, this is {sys.platform}")
    if shutil.which("bwrap") is None:
        return Availability(False, f"bubblewrap (bwrap) is not installed; {REMEDY}")
    try:
        result = _run(Program((PYTHON, "-c", "")))
    except (SandboxError, OSError) as error:
        return Availability(False, f"bubblewrap is installed but does not work here: {error}")
    if result.exit_status != 0:
        said = result.stderr.strip()[-300:]
        return Availability(
            False, f"Python does not start in the sandbox (status {result.exit_status}): {said}"
        )
    return Availability(True)


def require_sandbox(what: str) -> None:
    """Raise SandboxUnavailable, which names `what`, the reason and the remedy, where the sandbox does not work."""
    if not (found := available()):
        raise SandboxUnavailable(f"{what} needs the sandbox: {found.reason}")


def run(program: Program) -> Result:
    """Run a program in the sandbox. Raises SandboxUnavailable where there is none, SandboxError where it breaks."""
    require_sandbox("running a program")
    return _run(program)


# --- running ----------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Stream:
    """One output of the program: its first bytes, and how many there were."""

    limit: int
    kept: bytearray = field(default_factory=bytearray)
    total: int = 0

    def take(self, data: bytes) -> None:
        self.kept += data[: max(0, self.limit - len(self.kept))]
        self.total += len(data)


@contextlib.contextmanager
def _started(program: Program, *writers: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start bubblewrap; whatever happens, nothing of it is left at the end."""
    with tempfile.TemporaryFile() as told:  # a file, not a pipe: nobody has to wait for its reader
        told.write(job(program))
        told.seek(0)
        process = subprocess.Popen(
            command_line(program, *writers),
            stdin=told,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=writers,
            env={},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()  # what is inside dies with it
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _run(program: Program) -> Result:
    with contextlib.ExitStack() as stack:
        pipes: dict[str, IO[bytes]] = {}
        ends = []
        for name in ("information", "status", *(("tree",) if program.tree is not None else ())):
            reader, writer = os.pipe()
            pipes[name] = stack.enter_context(open(reader, "rb", buffering=0))
            ends.append(stack.enter_context(open(writer, "wb", buffering=0)))
        process = stack.enter_context(_started(program, *(end.fileno() for end in ends)))
        for end in ends:
            end.close()
        assert process.stdout is not None
        assert process.stderr is not None
        pipes |= {"stdout": process.stdout, "stderr": process.stderr}
        return _followed(process, pipes, program.limits)


def _followed(process: subprocess.Popen[bytes], pipes: Mapping[str, IO[bytes]], limits: Limits) -> Result:
    """Read what a running sandbox writes, end it at a bound, and tell what came of it."""
    bounds = {"stdout": limits.output_bytes, "stderr": limits.output_bytes, "tree": tree_bytes(limits)}
    streams = {name: _Stream(bounds.get(name, 4_096)) for name in pipes}
    reason: Reason | None = None
    started: float | None = None
    inner: int | None = None  # a pidfd of process 1 inside
    first: int | None = None  # its number
    bound, watched = time.monotonic() + START_SECONDS, 0.0
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for name, pipe in pipes.items():
            selector.register(pipe, selectors.EVENT_READ, name)
        while (
            selector.get_map()
        ):  # until every pipe is at its end, which is when the last process inside is gone
            for key, _ in selector.select(WATCH_SECONDS):
                if data := os.read(key.fd, 1 << 16):
                    streams[key.data].take(data)
                else:
                    selector.unregister(key.fileobj)
            now = time.monotonic()
            if started is None and streams["status"].kept:
                started, bound = now, now + limits.wall_seconds
            if inner is None and (found := _inner_process(process, streams["information"].kept)):
                inner, first = found
                stack.callback(os.close, inner)
            if reason is not None:
                if now > bound:
                    raise SandboxError("bubblewrap does not end although it was killed")
                continue
            if now > bound:
                reason = "wall"
            elif max(streams["stdout"].total, streams["stderr"].total) > limits.output_bytes + DRAIN_BYTES:
                reason = "output"
            elif first is not None and now > watched + WATCH_SECONDS:
                watched = now
                reason = "memory" if _resident(first) > limits.memory_bytes else None
            if reason is not None:
                bound = now + START_SECONDS
                _kill(process, inner)
        code = process.wait(START_SECONDS)
    if started is None or streams["status"].kept != b"ready":
        said = bytes(streams["status"].kept + streams["stderr"].kept).decode(errors="replace").strip()
        raise SandboxError(f"the sandbox did not start: {said[:500] or f'no reason given, status {code}'}")
    seconds = time.monotonic() - started
    out, err = streams["stdout"], streams["stderr"]
    texts = [bytes(stream.kept).decode("utf-8", "replace") for stream in (out, err)]
    why, status = (reason, None) if reason else _why(code, seconds, limits)
    tree = _whole(streams["tree"]) if "tree" in streams and why in ("exited", "signal") else None
    return Result(
        texts[0], texts[1], status, why, out.total > out.limit, err.total > err.limit, seconds, tree
    )


def tree_bytes(limits: Limits) -> int:
    """Return the most bytes that the archive of a workspace may have: headers, padding and long names included."""
    return limits.workspace_bytes + 4_096 * limits.files + (1 << 16)


def _whole(archive: _Stream) -> bytes | None:
    """Return an archive that came to its end, which two blocks of zeros tell; None for a part of one."""
    complete = archive.total <= archive.limit and archive.kept.endswith(bytes(1_024))
    return bytes(archive.kept) if complete else None


def _why(code: int, seconds: float, limits: Limits) -> tuple[Reason, int | None]:
    """Tell an end that the sandbox did not bring about, and the exit status."""
    ignored = code == 128 + signal.SIGKILL and seconds * (os.cpu_count() or 1) >= limits.processor_seconds
    if ignored or code == 128 + signal.SIGXCPU:
        return "processor", None
    return ("signal" if 128 < code <= 128 + 64 else "exited"), code


def _inner_process(process: subprocess.Popen[bytes], note: bytes | bytearray) -> tuple[int, int] | None:
    """Return (pidfd, pid) of process 1 inside, from bubblewrap's note; None while there is none, or no more."""
    match = re.search(rb'"child-pid": *(\d+)', note)
    if match is None:
        return None
    pid = int(match.group(1))
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        if _parent(pid) == process.pid:
            return handle, pid
        os.close(handle)  # it has ended, and its number belongs to another process by now
    return None


def _parent(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _kill(process: subprocess.Popen[bytes], inner: int | None) -> None:
    """Kill process 1 inside, and with it everything there; bubblewrap then ends by itself and leaves no zombie."""
    if inner is None:
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(inner, signal.SIGKILL)


def _resident(first: int) -> int:
    """Return the resident bytes of the descendants of process 1; pages that several map count for each."""
    page, total, left = os.sysconf("SC_PAGE_SIZE"), 0, [first]
    while left:
        pid = left.pop()
        folder = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may end at any moment
            total += page * int((folder / "statm").read_text().split()[1]) if pid != first else 0
            for task in (folder / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
    return total
