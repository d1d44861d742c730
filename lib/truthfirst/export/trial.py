"""Oracle and no-op of an exported Harbor task, in our own sandbox instead of a container.

The start is environment/input as it was exported. The oracle runs solution/solve.sh on it, the no-op nothing; then
tests/test.sh grades. Scripts and packages stand at the paths that they have in the images, and only there:
/solution is not shown to the verifier, nor /tests to the solver. What differs from a container: the reward file goes to
a folder in the workspace, which is the only place that can be written to, and the tools are those of this machine.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from ..sandbox import WORKSPACE, Limits, Program, Result, run
from ..worldfirst.scan import pack
from ..worldfirst.world import INPUT
from . import vendor
from .grader import REWARD_FILE
from .harbor_texts import LOGS_VARIABLE, PACKAGES

_LOGS = ".verifier"
_LIMITS = Limits(
    wall_seconds=600.0,
    processor_seconds=120,
    memory_bytes=2 << 30,
    file_bytes=64 << 20,
    workspace_bytes=128 << 20,
    files=4_000,
    open_files=256,
)


class TrialError(RuntimeError):
    """A script of a task does not end as it should; the message holds what it said."""


@dataclass(frozen=True, slots=True)
class Trial:
    """reward and phi as the reward file tells them, what the verifier printed, and seconds of wall time."""

    reward: float
    phi: float
    said: str
    seconds: float


def start(task: Path) -> bytes:
    """Return the untouched workspace of a task folder, an archive."""
    root = task / "environment"
    found = sorted(path for path in (root / INPUT).rglob("*") if path.is_file())
    return pack({path.relative_to(root).as_posix(): path.read_bytes() for path in found})


def solved(task: Path) -> bytes:
    """Return the workspace after solution/solve.sh. Raises TrialError where it fails."""
    shown = {"/solution": task / "solution"}
    program = Program(
        ("/bin/bash", "/solution/solve.sh"), tree=start(task), shell=True, limits=_LIMITS, shown=shown
    )
    return _ended(run(program), task, "solution/solve.sh")


def graded(task: Path, workspace: bytes, packages: tuple[str, ...]) -> Trial:
    """Return what tests/test.sh says of a workspace. Raises TrialError where it fails or writes no reward."""
    places = {name: path for package in packages for name, path in vendor.installed(package).items()}
    shown = {"/tests": task / "tests", **{f"{PACKAGES}/{name}": path for name, path in places.items()}}
    environment = {LOGS_VARIABLE: f"{WORKSPACE}/{_LOGS}", "OPENBLAS_NUM_THREADS": "1"}
    begin = time.perf_counter()
    program = Program(("/bin/bash", "/tests/test.sh"), {}, workspace, environment, True, _LIMITS, shown)
    result = run(program)
    seconds = time.perf_counter() - begin
    left = _ended(result, task, "tests/test.sh")
    with tarfile.open(fileobj=io.BytesIO(left), mode="r:") as archive:
        try:
            source = archive.extractfile(f"{_LOGS}/{REWARD_FILE}")
        except KeyError:
            source = None
        if source is None:
            raise TrialError(f"{task.name}: tests/test.sh writes no {REWARD_FILE}")
        told = json.loads(source.read())
    return Trial(told["reward"], told["phi"], result.stdout, seconds)


def _ended(result: Result, task: Path, script: str) -> bytes:
    if result.exit_status != 0 or result.tree is None:
        said = (result.stderr or result.stdout).strip()[-500:]
        raise TrialError(
            f"{task.name}: {script} ends with {result.reason}, status {result.exit_status}: {said}"
        )
    return result.tree


def oracle(task: Path, packages: tuple[str, ...]) -> Trial:
    """Solve a task with its own solution and grade that; seconds are of both."""
    begin = time.perf_counter()
    found = graded(task, solved(task), packages)
    return Trial(found.reward, found.phi, found.said, time.perf_counter() - begin)


def no_op(task: Path, packages: tuple[str, ...]) -> Trial:
    """Grade the untouched workspace."""
    return graded(task, start(task), packages)
