"""Backends: every job done once, lost workers survived, errors passed on, a real Ray cluster of two nodes."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from truthfirst.solvefirst import backends
from truthfirst.solvefirst.backends import BackendError, WorkersLost, check_workers, run


@dataclass(frozen=True)
class Task:
    key: str
    folder: str = ""


def double(task: Task) -> dict[str, Any]:
    return {"key": task.key, "value": 2 * int(task.key)}


def die_once(task: Task) -> dict[str, Any]:
    """Kill this worker the first time that job 5 is tried."""
    flag = Path(task.folder) / "died"
    if task.key == "5" and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return double(task)


def always_die(task: Task) -> dict[str, Any]:
    if task.key == "5":
        os.kill(os.getpid(), signal.SIGKILL)
    return double(task)


def fail(task: Task) -> dict[str, Any]:
    raise KeyError(f"defect in {task.key}")


def values(results: Iterator[dict[str, Any]]) -> dict[str, int]:
    found = [(result["key"], result["value"]) for result in results]
    assert max(Counter(key for key, _ in found).values(), default=1) == 1
    return dict(found)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_job_is_done_once(workers):
    tasks = [Task(str(n)) for n in range(20)]
    assert values(run("joblib", double, tasks, workers)) == {str(n): 2 * n for n in range(20)}
    assert values(run("joblib", double, [], workers)) == {}


def test_a_worker_that_dies_loses_nothing(tmp_path):
    tasks = [Task(str(n), str(tmp_path)) for n in range(12)]
    assert values(run("joblib", die_once, tasks, 2)) == {str(n): 2 * n for n in range(12)}
    assert (tmp_path / "died").exists()


def test_a_job_that_always_kills_its_worker_is_named():
    done = []
    with pytest.raises(BackendError, match=r"1 jobs are left, the first is 5") as caught:
        done += list(run("joblib", always_die, [Task("5")], 2))
    assert isinstance(caught.value.__cause__, WorkersLost)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_defect_in_the_work_is_raised_as_it_is(workers):
    with pytest.raises(KeyError, match="defect in 3"):
        list(run("joblib", fail, [Task("3")], workers))


def test_progress_resets_the_patience(monkeypatch):
    """A backend that loses its workers after each result still finishes, however often that happens."""

    def shaky(work: Any, jobs: Any, workers: int, address: str | None) -> Iterator[dict[str, Any]]:
        yield work(jobs[0])
        raise WorkersLost("again")

    monkeypatch.setitem(backends.BACKENDS, "joblib", shaky)
    tasks = [Task(str(n)) for n in range(9)]
    assert values(run("joblib", double, tasks, 2)) == {str(n): 2 * n for n in range(9)}


def sleep(task: Task) -> dict[str, Any]:
    time.sleep(60)
    return double(task)


def test_results_that_are_not_wanted_any_more_end_their_workers(recwarn):
    """Closing the results, as an interrupt does, ends the work under way instead of waiting for it."""
    started = time.monotonic()
    results = run("joblib", functools.partial(quick_then, sleep), [Task(str(n)) for n in range(4)], 2)
    assert next(results)["value"] == 0
    results.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 50
    assert not [warning for warning in recwarn if "tasks" in str(warning.message)]


LEAK = """
import os, sys
sys.path.insert(0, {folder!r})
from test_backends import Task, double
from truthfirst.solvefirst.backends import run

if __name__ == "__main__":
    results = run("joblib", double, [Task(str(n)) for n in range(4)], 2)
    next(results)
    from joblib.externals.loky.backend import resource_tracker
    resource_tracker._resource_tracker.register({missing!r}, "file")
    results.close()
    os._exit(0)  # as a process ends that is killed: nothing is given back
"""


def test_what_killed_workers_leave_is_cleaned_up_without_a_word(tmp_path):
    """loky's helper process outlives the build and would print warnings after its last line."""
    script = tmp_path / "leak.py"
    script.write_text(LEAK.format(folder=str(Path(__file__).parent), missing=str(tmp_path / "missing")))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "PYTHONWARNINGS" not in os.environ or "resource_tracker" not in os.environ["PYTHONWARNINGS"]


def quick_then(work: Any, task: Task) -> dict[str, Any]:
    return double(task) if task.key == "0" else work(task)


@pytest.mark.parametrize(("workers", "fine"), [(1, True), (16, True), (0, False), (-1, False), (17, False)])
def test_a_number_of_workers_that_makes_no_sense_is_named(monkeypatch, workers, fine):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    if fine:
        assert check_workers(workers) == workers
    else:
        with pytest.raises(BackendError, match=rf"from 1 to 16 \(this machine has 4 CPUs\), got {workers}"):
            check_workers(workers)


def test_an_unknown_backend_and_a_missing_package_say_what_to_do(monkeypatch):
    with pytest.raises(BackendError, match="choose one of joblib, ray"):
        list(run("slurm", double, [Task("1")], 1))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BackendError, match=r"pip install 'truthfirst\[ray\]'"):
        list(run("ray", double, [Task("1")], 1))
