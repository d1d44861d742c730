"""Runs: one folder a run, under papermill_runs/, that says what was run, with what, and what came of it.

    claim.json       who works on it: process, host, attempt; touched every few seconds while the run lives
    run.json         notebook, its source's hash, the code's hash, seed
    parameters.json  every parameter of the notebook, the given ones and the defaults
    versions.json    Python, platform, packages, git commit and whether the tree was clean
    log.txt          what the cells printed, with times
    partial.ipynb    the notebook while it runs, or as far as a broken run came
    executed.ipynb   the notebook with its outputs
    figures/         what it drew, and results/ the frames; a finished run publishes them (`runs_publish`)
    metrics.json     what the notebook reported through `record_metrics`; null where a number is missing
    timing.json      start, end, seconds, seconds of each code cell
    status.json      written last: finished, with the hashes of the files above, or broken, with the reason

A run is finished when status.json says so and every hash agrees; it is running when it has no status.json and its
claim is alive; anything else is broken and is done again, the remains kept under papermill_runs/aside/. A claim is
alive while it is touched and, on this host, its process exists. Folders appear and disappear by one rename, so
processes that start the same run at once never write into one folder.

Start runs with `python -m truthfirst.runs` (see `runs_cli`). POSIX only: a claim asks whether a process lives.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from . import paths
from .records import content_hash, write_atomic

RUN_VARIABLE = "TRUTHFIRST_RUN"  # the run's folder, in the environment of the notebook's kernel
ATTEMPT_VARIABLE = "TRUTHFIRST_ATTEMPT"
ASIDE = "aside"
BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
RESULT_FILES = (
    "run.json",
    "parameters.json",
    "versions.json",
    "executed.ipynb",
    "metrics.json",
    "timing.json",
)

RunState = Literal["absent", "running", "finished", "broken"]


class RunError(ValueError):
    """A run cannot be started, recorded or read; the message names what and the remedy."""


# --- in a notebook ----------------------------------------------------------------------------------------
def record_metrics(**metrics: Any) -> dict[str, Any]:
    """Store what a notebook found in its run's metrics.json and return it as plain JSON values.

    Values are numbers, strings, booleans, None, or lists and dicts of them; numpy and pandas values become plain
    ones, and NaN becomes None. A later call adds to an earlier one. Outside a run (a notebook opened by hand) the
    values are only returned. Raises RunError for an infinite number or a value that JSON cannot hold.
    """
    cleaned = {name: _plain(name, value) for name, value in metrics.items()}
    folder = os.environ.get(RUN_VARIABLE)
    if not folder:
        return cleaned
    attempt = os.environ.get(ATTEMPT_VARIABLE)
    if attempt:
        Claim(Path(folder), attempt).check()
    file = Path(folder) / "metrics.json"
    write_json(file, (read_json(file) if file.exists() else {}) | cleaned)
    return cleaned


def current_run() -> str | None:
    """Return the id of the run that this notebook belongs to, None when it was opened by hand."""
    folder = os.environ.get(RUN_VARIABLE)
    return Path(folder).name if folder else None


def _plain(name: str, value: Any) -> Any:
    """Return `value` as plain JSON data; see `record_metrics`."""
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(f"{name}[{index}]", item) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isinf(number):
            raise RunError(
                f"metric {name} = {number}: not a finite number; record None where there is no value"
            )
        return None if math.isnan(number) else number
    if hasattr(value, "tolist"):
        return _plain(name, value.tolist())
    raise RunError(f"metric {name} is a {type(value).__name__}: give numbers, strings, None, lists or dicts")


# --- files ------------------------------------------------------------------------------------------------
def write_json(path: Path, value: Any) -> None:
    """Write a JSON document for people, atomically; keys stay in their order."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise RunError that names the file."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path.name} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise RunError(f"{path.name} is damaged ({error})") from error
    if not isinstance(value, dict):
        raise RunError(f"{path.name} is damaged (a {type(value).__name__}, not an object)")
    return value


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- reading runs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RunRecord:
    """A run as its folder shows it.

    reason   why it is broken, or who runs it
    started  ISO time in UTC, None where unknown
    seconds  of a finished run
    metrics  of a finished run
    figures  names of the figures that a finished run published
    kept     why others stay in its folder
    library_changed  the code was edited while the run went on: its results are not reused
    """

    run_id: str
    folder: Path
    state: RunState
    reason: str = ""
    started: str | None = None
    seconds: float | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    figures: tuple[str, ...] = ()
    kept: str = ""
    library_changed: bool = False


def read_run(folder: Path) -> RunRecord:
    """Read one run folder and judge its state; never raises for a damaged one: that is a broken run."""
    if not os.path.lexists(folder):
        return RunRecord(folder.name, folder, "absent")
    if not folder.is_dir():
        return RunRecord(folder.name, folder, "broken", "not a folder")
    claim: dict[str, Any] = {}
    with suppress(RunError):
        claim = read_json(folder / "claim.json")
    started = claim.get("started")
    try:
        if not (folder / "status.json").exists():
            alive, reason = _alive(folder / "claim.json", claim)
            return RunRecord(folder.name, folder, "running" if alive else "broken", reason, started)
        status = read_json(folder / "status.json")
        if status.get("state") != "finished":
            return RunRecord(folder.name, folder, "broken", str(status.get("reason")), started)
        _check_files(folder, status)
        timing = read_json(folder / "timing.json")
        return RunRecord(
            folder.name,
            folder,
            "finished",
            started=started,
            seconds=timing.get("seconds"),
            metrics=read_json(folder / "metrics.json"),
            figures=tuple(status.get("figures") or ()),
            kept=str(status.get("kept") or ""),
            library_changed=bool(status.get("library_changed")),
        )
    except RunError as error:
        return RunRecord(folder.name, folder, "broken", str(error), started)


def list_runs(root: Path | None = None) -> list[RunRecord]:
    """Return every run under papermill_runs/ (or `root`), oldest first."""
    root = root or paths.RUNS
    folders = [] if not root.is_dir() else [f for f in root.iterdir() if f.is_dir()]
    found = [read_run(f) for f in folders if f.name != ASIDE and not f.name.startswith(".")]
    return sorted(found, key=lambda run: (run.started or "", run.run_id))


def _check_files(folder: Path, status: Mapping[str, Any]) -> None:
    """Raise RunError unless the result files are those whose hashes the status holds."""
    hashes = status.get("files")
    if not isinstance(hashes, dict) or set(hashes) != set(RESULT_FILES):
        raise RunError("status.json is damaged (it does not hold the hashes of the run's files)")
    for name, expected in hashes.items():
        try:
            actual = content_hash((folder / name).read_bytes())
        except OSError as error:
            raise RunError(f"{name} cannot be read ({error.strerror})") from error
        if actual != expected:
            raise RunError(f"{name} is not the file that the run wrote (hash {actual}, not {expected})")


def _alive(file: Path, claim: Mapping[str, Any]) -> tuple[bool, str]:
    """Say whether a claim is alive, and who holds it or how it ended."""
    pid, host = claim.get("pid"), claim.get("host")
    if not isinstance(pid, int) or pid <= 0 or not isinstance(host, str):
        return False, "no final status and no readable claim"
    who = f"process {pid} on {host}"
    try:
        silent = time.time() - file.stat().st_mtime
    except OSError:
        return False, "no final status and no readable claim"
    if host == socket.gethostname():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False, f"{who} ended without a final status"
        except PermissionError:
            pass  # it exists and belongs to someone else
    if silent > STALE_SECONDS:
        return False, f"{who} gave no sign of life for {silent:.0f} s and left no final status"
    return True, who


# --- claiming and ending a run ----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one process to write one run; `attempt` tells it from every other try at the same run."""

    folder: Path
    attempt: str

    def check(self) -> None:
        """Raise RunError when the run has been taken over (its process slept, say, and seemed dead)."""
        found = read_json(self.folder / "claim.json").get("attempt")
        if found != self.attempt:
            raise RunError(f"run {self.folder.name} was taken over by another process; nothing is written")

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Touch the claim every few seconds, so that other processes and hosts see that the run lives."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(BEAT_SECONDS):
                with suppress(OSError, RunError):
                    self.check()
                    os.utime(self.folder / "claim.json")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def finish(
        self, timing: Mapping[str, Any], figures: tuple[str, ...], library_changed: bool, kept: str = ""
    ) -> None:
        """Write timing, metrics if there are none, and last the final status. Raises OSError and RunError."""
        self.check()
        if not (self.folder / "metrics.json").exists():
            write_json(self.folder / "metrics.json", {})
        write_json(self.folder / "timing.json", timing)
        status = {
            "state": "finished",
            "attempt": self.attempt,
            "files": {name: content_hash((self.folder / name).read_bytes()) for name in RESULT_FILES},
            "figures": list(figures),
            "kept": kept,
            "library_changed": library_changed,
        }
        write_json(self.folder / "status.json", status)

    def fail(self, reason: str) -> None:
        """Mark the run as broken, even on a full disk: then the claim is removed, which needs no space."""
        try:
            self.check()
            write_json(
                self.folder / "status.json", {"state": "broken", "attempt": self.attempt, "reason": reason}
            )
        except RunError:
            return
        except OSError:
            (self.folder / "claim.json").unlink(missing_ok=True)


def claim(folder: Path, documents: Callable[[], Mapping[str, Any]], redo: bool = False) -> Claim | RunRecord:
    """Claim the run `folder` for this process, or return the record of the finished or running run that is there.

    documents  called when there is something to do: JSON documents by file name, with which the folder appears
    redo       set a finished run aside and do it again

    A broken run is set aside first. Raises OSError as the file system does; then no folder is left.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(100):
        seen = None
        with suppress(FileNotFoundError):
            seen = folder.lstat().st_ino  # before the folder is judged: see _set_aside
        found = read_run(folder)
        if found.state == "running" or (found.state == "finished" and not redo and not found.library_changed):
            return found
        if found.state != "absent" and seen is not None:
            _set_aside(found, seen)
        attempt = secrets.token_hex(6)
        if _install(folder, documents(), attempt):
            return Claim(folder, attempt)
        time.sleep(0.02)  # another process was faster: look again
    raise RunError(f"{folder} cannot be claimed: remove it and its namesakes under {folder.parent / ASIDE}")


def _set_aside(found: RunRecord, inode: int) -> None:
    """Move a run to aside/ and mark it there; nothing happens when another process has moved it already.

    The target bears the inode of the folder that was judged. A second process that judged the same folder and
    comes late finds the target taken, and so cannot move away the new run that stands in its place by then.
    """
    target = found.folder.parent / ASIDE / f"{found.run_id}~{inode:x}"
    target.parent.mkdir(exist_ok=True)
    try:
        os.rename(found.folder, target)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
            return
        raise
    if not (target / "status.json").exists():
        with suppress(OSError):
            write_json(target / "status.json", {"state": "broken", "reason": found.reason})


def _install(folder: Path, documents: Mapping[str, Any], attempt: str) -> bool:
    """Make the run's folder appear, complete with its claim; False when there is one already."""
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".claim-"))
    holder = {"attempt": attempt, "pid": os.getpid(), "host": socket.gethostname(), "started": now()}
    try:
        for name, document in documents.items():
            write_json(temporary / name, document)
        write_json(temporary / "claim.json", holder)
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        taken = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        if isinstance(error, OSError) and error.errno in taken:
            return False
        raise
    return True


if __name__ == "__main__":
    from truthfirst.runs_cli import main

    raise SystemExit(main())
