"""A repository of its own for every test of runs, and processes that end with the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from truthfirst import paths, runs, runs_plan

LIBRARY = Path(runs.__file__).parent
NEEDED = ("__init__", "core_yaml", "interrupts", "paths", "presets", "records", "streams")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of its own: notebooks/, and the library's part that runs need, under lib/."""
    package = tmp_path / "lib" / "truthfirst"
    package.mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    for name in (*(f"{name}.py" for name in NEEDED), *(module.name for module in LIBRARY.glob("runs*.py"))):
        shutil.copy(LIBRARY / name, package / name)
    for name, place in {
        "HOME": tmp_path,
        "OUTPUT": tmp_path,
        "NOTEBOOKS": tmp_path / "notebooks",
        "RUNS": tmp_path / "papermill_runs",
        "FIGURES": tmp_path / "figures",
        "RESULTS": tmp_path / "data" / "results",
        "CORPUS": tmp_path / "data" / "corpus",
    }.items():
        monkeypatch.setattr(paths, name, place)
    monkeypatch.setattr(runs_plan, "PACKAGE", package)
    monkeypatch.delenv("TRUTHFIRST_RUN", raising=False)
    monkeypatch.delenv("TRUTHFIRST_ATTEMPT", raising=False)
    return tmp_path


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return what starts `python -m truthfirst.runs` in a process of its own, on the copy of the library."""
    started: list[subprocess.Popen[str]] = []
    environment = os.environ | {
        "TRUTHFIRST_HOME": ".",
        "TRUTHFIRST_OUTPUT": "",
        "PYTHONPATH": str(home / "lib"),
        "OMP_NUM_THREADS": "2",  # of the user; workers of a grid take 1
    }

    def begin(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "truthfirst.runs", *words],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()  # one that has ended is left as it is
        process.wait()
