"""Metrics, and the states of a run folder: damage, rivals, full disks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import nbformat
import numpy as np
import pytest
from tiny import finished, notebook, wait_for

from truthfirst import paths, runs, runs_execute
from truthfirst.runs import RunError, claim, list_runs, read_run, record_metrics
from truthfirst.runs_cli import main
from truthfirst.runs_execute import execute
from truthfirst.runs_plan import plan_run


def test_metrics_are_plain_json_with_null_for_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "count": np.int64(3),
        "mean": np.float32(0.5),
        "missing": float("nan"),
        "exact": Fraction(1, 4),
        "curve": np.array([1.0, np.nan]),
        "nested": {"a": (1, None), 2: True},
        "finding": "all well",
    }
    expected = {
        "count": 3,
        "mean": 0.5,
        "missing": None,
        "exact": 0.25,
        "curve": [1.0, None],
        "nested": {"a": [1, None], "2": True},
        "finding": "all well",
    }
    assert record_metrics(**values) == expected
    assert runs.current_run() is None
    assert not paths.RUNS.exists()
    folder = home / "papermill_runs" / "some-run"
    monkeypatch.setenv("TRUTHFIRST_RUN", str(folder))
    assert runs.current_run() == "some-run"
    record_metrics(first=1, count=0)
    record_metrics(**values)
    assert json.loads((folder / "metrics.json").read_text()) == {"first": 1, **expected}
    with pytest.raises(RunError, match=r"metric curve\[1\] = inf"):
        record_metrics(curve=[0.0, float("inf")])
    with pytest.raises(RunError, match="metric thing is a object"):
        record_metrics(thing=object())
    assert json.loads((folder / "metrics.json").read_text()) == {"first": 1, **expected}


def test_a_kernel_that_outlives_its_run_cannot_write_into_the_next(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = finished(home)
    monkeypatch.setenv("TRUTHFIRST_RUN", str(plan.folder))
    monkeypatch.setenv("TRUTHFIRST_ATTEMPT", "an older attempt")
    with pytest.raises(RunError, match="taken over"):
        record_metrics(score=0.9)
    assert read_run(plan.folder).metrics == {"score": 0.5}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            lambda f: (f / "metrics.json").write_text("{}\n"),
            "metrics.json is not the file that the run wrote",
        ),
        (lambda f: (f / "executed.ipynb").unlink(), "executed.ipynb cannot be read"),
        (lambda f: (f / "status.json").write_text('{"state": "fin'), "status.json is damaged"),
        (lambda f: (f / "status.json").write_text('{"state": "finished"}'), "does not hold the hashes"),
        (lambda f: (f / "status.json").write_text("[1]"), "status.json is damaged"),
        (lambda f: [(f / "status.json").unlink(), (f / "claim.json").write_text("x")], "no readable claim"),
        (lambda f: [shutil.rmtree(f), f.mkdir()], "no readable claim"),
        (lambda f: [shutil.rmtree(f), f.write_text("?")], "not a folder"),
    ],
)
def test_a_damaged_run_is_broken_set_aside_and_claimed_anew(
    home: Path, damage: Callable[[Path], object], reason: str
) -> None:
    plan = finished(home)
    again = claim(plan.folder, plan.documents)
    assert isinstance(again, runs.RunRecord)
    assert (again.state, again.metrics, again.seconds) == ("finished", {"score": 0.5}, 1.0)
    damage(plan.folder)
    broken = read_run(plan.folder)
    assert broken.state == "broken"
    assert reason in broken.reason
    mine = claim(plan.folder, plan.documents)
    assert isinstance(mine, runs.Claim)
    assert read_run(plan.folder).state == "running"
    assert len(list((paths.RUNS / "aside").iterdir())) == 1
    assert [run.run_id for run in list_runs()] == [plan.run_id]


def test_a_finished_run_is_done_again_on_request_or_when_its_code_is_in_doubt(home: Path) -> None:
    plan = finished(home)
    assert isinstance(claim(plan.folder, plan.documents), runs.RunRecord)
    assert isinstance(claim(plan.folder, plan.documents, redo=True), runs.Claim)
    shutil.rmtree(plan.folder)
    plan = finished(home, library_changed=True)
    assert read_run(plan.folder).state == "finished"
    assert isinstance(claim(plan.folder, plan.documents), runs.Claim)


@pytest.mark.parametrize(
    ("pid", "host", "silent", "state"),
    [
        ("living", "here", 0, "running"),
        ("living", "here", 1000, "broken"),  # its number was given to another process
        ("dead", "here", 0, "broken"),
        ("dead", "elsewhere", 0, "running"),
        ("living", "elsewhere", 1000, "broken"),
    ],
)
def test_a_claim_lives_by_its_process_and_its_beat(
    home: Path, pid: str, host: str, silent: float, state: str
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    number = os.getpid() if pid == "living" else child.pid
    folder = paths.RUNS / "some-run"
    where = socket.gethostname() if host == "here" else "elsewhere"
    runs.write_json(
        folder / "claim.json", {"attempt": "a", "pid": number, "host": where, "started": runs.now()}
    )
    os.utime(folder / "claim.json", (time.time() - silent, time.time() - silent))
    found = read_run(folder)
    assert found.state == state
    assert f"process {number} on {where}" in found.reason


def test_a_beating_claim_is_touched(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BEAT_SECONDS", 0.01)
    mine = claim(paths.RUNS / "some-run", dict)
    assert isinstance(mine, runs.Claim)
    os.utime(mine.folder / "claim.json", (0, 0))
    assert read_run(mine.folder).state == "broken"
    with mine.beating():
        wait_for(lambda: read_run(mine.folder).state == "running", 5)


def test_of_many_rivals_for_a_broken_run_one_wins(home: Path) -> None:
    folder = paths.RUNS / "some-run"
    for turn in range(10):
        if turn % 2:
            (folder / "claim.json").unlink()  # broken, as a kill or a full disk leaves it
        elif folder.exists():
            shutil.rmtree(folder)
        start = threading.Barrier(8)
        won: list[runs.Claim] = []
        others: list[runs.RunRecord] = []

        def rival(start: threading.Barrier, won: list[runs.Claim], others: list[runs.RunRecord]) -> None:
            start.wait()
            got = claim(folder, lambda: {"run.json": {}})
            if isinstance(got, runs.Claim):
                won.append(got)
            else:
                others.append(got)

        threads = [threading.Thread(target=rival, args=(start, won, others)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert [other.state for other in others] == ["running"] * 7
        won[0].check()
        assert sorted(path.name for path in paths.RUNS.iterdir()) == ["aside", "some-run"][1 - (turn > 0) :]
    assert len(list((paths.RUNS / "aside").iterdir())) == 5


def test_a_rival_that_comes_late_cannot_move_the_new_run_away(home: Path) -> None:
    plan = finished(home)
    (plan.folder / "metrics.json").write_text("{}\n")
    judged, inode = read_run(plan.folder), plan.folder.stat().st_ino
    mine = claim(plan.folder, plan.documents)
    assert isinstance(mine, runs.Claim)
    runs._set_aside(judged, inode)  # the rival judged the run before we did
    mine.check()
    assert read_run(plan.folder).state == "running"


def fill_disk(monkeypatch: pytest.MonkeyPatch, *full: str) -> None:
    """Let no file of these names be written: half of it goes to disk, then the disk is full."""
    written = runs.write_atomic

    def write(path: Path, data: bytes | str) -> None:
        if path.name not in full:
            return written(path, data)
        with monkeypatch.context() as patch:

            def fsync(_: int) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            patch.setattr(os, "fsync", fsync)
            return written(path, data)

    monkeypatch.setattr(runs, "write_atomic", write)
    monkeypatch.setattr(runs_execute, "write_atomic", write)


@pytest.mark.parametrize(
    "full",
    [
        ("partial.ipynb",),
        ("executed.ipynb",),
        ("metrics.json",),
        ("timing.json",),
        ("status.json",),
        ("executed.ipynb", "status.json"),
    ],
)
def test_a_full_disk_leaves_a_broken_run_that_is_done_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, full: tuple[str, ...]
) -> None:
    plan = plan_run(notebook(home, "01_small", "seed = 0", "seed"), {})

    def without_kernel(path: str, output: str, **_: object) -> nbformat.NotebookNode:
        node = nbformat.read(path, as_version=4)
        node.metadata["papermill"] = {}
        for cell in node.cells:
            cell.metadata["papermill"] = {"status": "completed", "duration": 0.1}
        nbformat.write(node, output)
        return node

    monkeypatch.setattr("papermill.execute_notebook", without_kernel)
    with monkeypatch.context() as patch:
        fill_disk(patch, *full)
        outcome = execute(plan)
        assert (outcome.state, outcome.reason) == ("broken", "No space left on device")
        assert read_run(plan.folder).state == "broken"
        assert not [path for path in plan.folder.iterdir() if path.suffix == ".tmp"]
        assert not {*full} & {path.name for path in plan.folder.iterdir()}
    assert execute(plan).state == "finished"
    assert execute(plan).state == "skipped"
    assert len(list((paths.RUNS / "aside").iterdir())) == 1


@pytest.mark.parametrize("full", ["run.json", "parameters.json", "versions.json", "claim.json"])
def test_a_disk_that_is_full_at_the_start_leaves_no_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], full: str
) -> None:
    notebook(home, "01_small", "seed = 0", "seed")
    fill_disk(monkeypatch, full)
    assert main(["01_small"]) == 1
    assert capsys.readouterr().err == "error: No space left on device\n"
    assert list(paths.RUNS.iterdir()) == []
