"""Runs: real papermill executions of tiny notebooks, damage, full disks, kills and rivals."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import nbformat
import numpy as np
import pytest

from truthfirst import paths, presets, runs, runs_execute, runs_plan
from truthfirst.runs import RunError, claim, list_runs, read_run, record_metrics
from truthfirst.runs_cli import main
from truthfirst.runs_execute import execute
from truthfirst.runs_grid import load_yaml, parse_assignments, read_grid
from truthfirst.runs_plan import Plan, plan_run

LIBRARY = Path(runs.__file__).parent
NEEDED = ("__init__.py", "paths.py", "presets.py", "records.py", "streams.py")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of its own: notebooks/, and the library's part that runs need, under lib/."""
    package = tmp_path / "lib" / "truthfirst"
    package.mkdir(parents=True)
    (tmp_path / "notebooks").mkdir()
    for name in (*NEEDED, *(module.name for module in LIBRARY.glob("runs*.py"))):
        shutil.copy(LIBRARY / name, package / name)
    for name, place in {
        "HOME": tmp_path,
        "NOTEBOOKS": tmp_path / "notebooks",
        "RUNS": tmp_path / "papermill_runs",
        "FIGURES": tmp_path / "figures",
        "CORPUS": tmp_path / "data" / "corpus",
    }.items():
        monkeypatch.setattr(paths, name, place)
    monkeypatch.setattr(runs_plan, "PACKAGE", package)
    monkeypatch.delenv("TRUTHFIRST_RUN", raising=False)
    monkeypatch.delenv("TRUTHFIRST_ATTEMPT", raising=False)
    return tmp_path


def notebook(home: Path, name: str, parameters: str | None, *cells: str) -> Path:
    node = nbformat.v4.new_notebook()
    if parameters is not None:
        node.cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    node.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = home / "notebooks" / f"{name}.ipynb"
    nbformat.write(node, path)
    return path


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return what starts `python -m truthfirst.runs` in a process of its own, on the copy of the library."""
    started: list[subprocess.Popen[str]] = []
    environment = os.environ | {
        "TRUTHFIRST_HOME": str(home),
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


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def finished(home: Path, library_changed: bool = False) -> Plan:
    """Make a finished run without a kernel."""
    plan = plan_run(notebook(home, "01_small", "seed = 0", "seed"), {})
    mine = claim(plan.folder, plan.documents)
    assert isinstance(mine, runs.Claim)
    runs.write_json(plan.folder / "metrics.json", {"score": 0.5})
    (plan.folder / "executed.ipynb").write_text(plan.source)
    mine.finish({"seconds": 1.0}, (), library_changed)
    return plan


# --- metrics ----------------------------------------------------------------------------------------------
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


# --- presets, parameters, plans ---------------------------------------------------------------------------
def test_presets_grow_and_an_unknown_one_lists_them() -> None:
    smoke, cpu, gpu = (presets.resolve(name) for name in ("smoke", "cpu", "gpu"))
    assert smoke.instances < cpu.instances < gpu.instances
    assert set(smoke.sizes) < set(cpu.sizes) <= set(gpu.sizes)
    with pytest.raises(presets.UnknownPreset, match="'laptop': choose one of smoke, cpu, gpu"):
        presets.resolve("laptop")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cpu", "cpu"),
        ("3", 3),
        ("010", 10),
        ("0x10", 16),
        ("1e-3", 0.001),
        ("-.5", -0.5),
        ("true", True),
        ("no", "no"),
        ("2020-01-01", "2020-01-01"),
        ("1:30", "1:30"),
        ("[a, 1]", ["a", 1]),
        ("", None),
        ("'7'", "7"),
        ("a=b", "a=b"),
    ],
)
def test_assignments_are_yaml_core_scalars(text: str, value: object) -> None:
    got = parse_assignments([f"x={text}"])["x"]
    assert got == value
    assert type(got) is type(value)


def test_the_id_follows_parameters_source_and_code_but_not_outputs(home: Path) -> None:
    path = notebook(home, "01_small", "preset = 'smoke'\nseed = 0\nrate: float = 1", "x = 1")
    plan = plan_run("01_small", {"seed": 7})
    assert plan.run_id.startswith("01_small-preset=smoke-seed=7-")
    assert plan.parameters == {"preset": "smoke", "seed": 7, "rate": 1}
    assert plan_run(path, {"seed": 7, "preset": "smoke"}).run_id == plan.run_id
    assert plan_run(path, {"seed": 8}).run_id != plan.run_id
    node = nbformat.read(path, as_version=4)
    node.cells[1].outputs = [nbformat.v4.new_output("stream", text="seen")]
    node.cells[1].execution_count = 3
    nbformat.write(node, path)
    assert plan_run(path, {"seed": 7}).run_id == plan.run_id
    node.cells[1].source = "x = 2"
    nbformat.write(node, path)
    edited = plan_run(path, {"seed": 7}).run_id
    assert edited != plan.run_id
    (runs_plan.PACKAGE / "new_module.py").write_text("x = 1\n")
    recoded = plan_run(path, {"seed": 7}).run_id
    assert recoded not in (edited, plan.run_id)
    (home / "data" / "corpus").mkdir(parents=True)
    (home / "data" / "corpus" / "tea.md").write_text("Tea grows on hills.")
    assert plan_run(path, {"seed": 7}).run_id not in (recoded, edited, plan.run_id)


def test_a_label_stays_short_and_safe(home: Path) -> None:
    notebook(home, "a ü{b}", "text = ''\nnames = []", "text")
    plan = plan_run("a ü{b}", {"text": "../é/" * 40, "names": ["x", "y"] * 40})
    assert len(plan.run_id) < 100
    assert plan.folder.parent == home / "papermill_runs"
    assert set(plan.run_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.=+-")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("import os", "line 1: 'import os' does not assign a literal"),
        ("a = 1\nb = a + 1", "line 2: 'b = a \\+ 1' does not assign a literal"),
        ("a = float('nan')", "does not assign a literal"),
        ("a = 1e999", "does not assign a literal"),
        ("a, b = 1, 2", "does not assign a literal"),
        ("a = {1, 2}", "does not assign a literal"),
        ("a = (", "parameters cell, line 1"),
    ],
)
def test_a_parameters_cell_of_anything_but_literals_is_refused(home: Path, cell: str, message: str) -> None:
    notebook(home, "01_small", cell)
    with pytest.raises(RunError, match=message):
        plan_run("01_small", {})


def test_git_state_is_the_commit_of_the_repository_itself(tmp_path: Path) -> None:
    assert runs_plan.git_state(tmp_path) is None
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    state = runs_plan.git_state(tmp_path)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "inner").mkdir()
    (tmp_path / "new.txt").write_text("new")
    assert runs_plan.git_state(tmp_path) == {"commit": state["commit"], "dirty": True}
    assert runs_plan.git_state(tmp_path / "inner") is None


# --- bad requests -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["01_small", "-p", "sed=1"],
            "01_small.ipynb declares no parameter sed; it declares preset, seed, rate",
        ),
        (["02_none", "-p", "seed=1"], "it declares none"),
        (["03_absent"], "no notebook '03_absent' here or in notebooks/; there: 01_small, 02_none"),
        (["01_small", "-p", "preset=laptop"], "unknown preset 'laptop': choose one of smoke, cpu, gpu"),
        (["study", "--preset", "laptop"], "unknown preset 'laptop'"),
        (["study"], "02_none.ipynb declares no parameter preset"),
        (["01_small", "-p", "seed=-1"], "seed must be at least 0, got -1"),
        (["01_small", "-p", "seed=1.5"], "parameter seed = 1.5: expected an integer"),
        (["01_small", "-p", "seed=true"], "parameter seed = True: expected an integer"),
        (["01_small", "-p", "rate=fast"], "parameter rate = 'fast': expected a number"),
        (["01_small", "-p", "rate=.nan"], "parameter rate = nan: give finite JSON values"),
        (["01_small", "-p", "seed"], "-p seed: write it as name=value"),
        (["01_small", "-p", "seed=1", "-p", "seed=2"], "-p seed is given twice"),
        (["01_small", "-p", "rate=[1"], "-p rate, line 1: not YAML"),
        (["grid", "absent.yaml"], "absent.yaml cannot be read"),
        (["grid", "grid.yaml", "--workers", "0"], "--workers 0: expected an integer of at least 1"),
        (["study", "--speed", "9"], "unrecognized arguments: --speed 9"),
        ([], "the following arguments are required"),
        (["04_json"], "04_json.ipynb is not a notebook that can be read"),
        (["05_binary"], "05_binary.ipynb is not a notebook that can be read"),
    ],
)
def test_a_bad_request_is_one_line_and_leaves_nothing(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    notebook(home, "01_small", "preset = 'smoke'\nseed = 0\nrate = 0.1", "seed")
    notebook(home, "02_none", None, "1")
    if words and words[0].startswith("0"):
        (home / "notebooks" / "04_json.ipynb").write_text('{"cells": [')
        (home / "notebooks" / "05_binary.ipynb").write_bytes(b"\x80\x00\xff")
    (home / "grid.yaml").write_text("notebook: 01_small\nproduct: {seed: [1]}\n")
    monkeypatch.chdir(home)
    if words == ["03_absent"]:
        (home / "notebooks" / "04_json.ipynb").unlink()
        (home / "notebooks" / "05_binary.ipynb").unlink()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not paths.RUNS.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("notebook: a\nproduct: {seed: [1}", "grid.yaml, line 2: not YAML"),
        ("notebook: a\nproduct: {seed: [1], seed: [2]}", "line 2: not YAML .the key 'seed' stands twice"),
        ("notebook: !!python/name:os.system a", "not YAML"),
        ("- 1", "expected a mapping"),
        ("", "expected a mapping"),
        ("notebok: a", "unknown key notebok; the keys are notebook, workers"),
        ("product: {seed: [1]}", "notebook = None"),
        ("notebook: a", "names no cell"),
        ("notebook: a\nproduct: {seed: 3}", "product.seed = 3: expected a list"),
        ("notebook: a\nproduct: {seed: []}", "product.seed = \\[\\]: expected a list"),
        ("notebook: a\ncells: [3]", "cells\\[0\\] = 3: expected a mapping"),
        ("notebook: a\ncells: [{1: 2}]", "cells\\[0\\]: 1 is not a parameter"),
        ("notebook: a\nworkers: 0\ncells: [{}]", "workers = 0"),
        ("notebook: a\nfixed: {seed: 1}\nproduct: {seed: [1]}", "seed stands both under fixed and in a cell"),
        (b"notebook: \xff\xfe", "not UTF-8"),
    ],
)
def test_a_malformed_grid_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(RunError, match=message) as caught:
        read_grid(path)
    assert "\n" not in str(caught.value)


def test_a_grid_is_a_product_and_further_cells(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "notebook: a\nworkers: 2\nfixed: {preset: cpu}\nproduct: {rate: [1e-3, 2], on: [no, true]}\n"
        "cells:\n  - {rate: 5}\n"
    )
    grid = read_grid(tmp_path / "grid.yaml")
    assert (grid.notebook, grid.workers) == ("a", 2)
    assert list(grid.cells) == [
        {"preset": "cpu", "rate": 0.001, "on": "no"},
        {"preset": "cpu", "rate": 0.001, "on": True},
        {"preset": "cpu", "rate": 2, "on": "no"},
        {"preset": "cpu", "rate": 2, "on": True},
        {"preset": "cpu", "rate": 5},
    ]
    assert load_yaml("a: &x 1\nb: *x", "text") == {"a": 1, "b": 1}


# --- states and claims ------------------------------------------------------------------------------------
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


# --- a full disk ------------------------------------------------------------------------------------------
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


# --- real executions --------------------------------------------------------------------------------------
@pytest.mark.notebook
def test_a_run_holds_all_that_the_contract_names_and_is_not_repeated(home: Path) -> None:
    path = notebook(
        home,
        "01_small",
        "seed = 3\nrate = 1.0\nnames = ['a']",
        "import os\ntotal = seed * rate\nprint('working in', os.getcwd())",
        "from truthfirst.runs import current_run, record_metrics\n"
        "record_metrics(total=total, missing=float('nan'), names=names, run=current_run())",
    )
    plan = plan_run(path, {"rate": 2, "names": ["b", "c"]})
    assert execute(plan) == runs_execute.Outcome(plan, "finished")
    assert execute(plan) == runs_execute.Outcome(plan, "skipped")
    names = {file.name for file in plan.folder.iterdir()}
    assert names == {*runs.RESULT_FILES, "claim.json", "status.json", "log.txt"}
    run = read_run(plan.folder)
    assert run.metrics == {"total": 6.0, "missing": None, "names": ["b", "c"], "run": plan.run_id}
    parameters = json.loads((plan.folder / "parameters.json").read_text())
    assert parameters == {"seed": 3, "rate": 2.0, "names": ["b", "c"]}
    assert json.loads((plan.folder / "run.json").read_text())["seed"] == 3
    versions = json.loads((plan.folder / "versions.json").read_text())
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["packages"]["numpy"] == np.__version__
    assert versions["git"] is None
    assert f"working in {path.parent}" in (plan.folder / "log.txt").read_text()
    executed = nbformat.read(plan.folder / "executed.ipynb", as_version=4)
    assert [cell.metadata.tags for cell in executed.cells[:2]] == [["parameters"], ["injected-parameters"]]
    assert str(home) not in json.dumps(executed.metadata)
    timing = json.loads((plan.folder / "timing.json").read_text())
    assert len(timing["cells"]) == 4
    assert timing["seconds"] >= sum(timing["cells"]) > 0
    assert "TRUTHFIRST_RUN" not in os.environ


@pytest.mark.notebook
def test_a_study_ends_with_a_table_and_mends_only_what_is_broken(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(
        home,
        "01_good",
        "preset = 'cpu'",
        "import json\nfrom pathlib import Path\nfrom truthfirst.runs import current_run, record_metrics\n"
        "Path('../figures').mkdir()\n"
        "Path('../figures/curve.json').write_text(json.dumps({'run': current_run()}))\n"
        "record_metrics(finding='all well', gap=1 / 3, missing=None)",
    )
    notebook(home, "02_bad", "preset = 'cpu'", "open('needed.txt').read()")
    notebook(home, "draft", None, "raise AssertionError('a draft is no part of the study')")
    assert main(["study", "--preset", "smoke"]) == 1
    captured = capsys.readouterr()
    good, bad = list_runs()
    assert "cell [3]: FileNotFoundError: [Errno 2] No such file or directory: 'needed.txt'" in bad.reason
    assert bad.reason in " ".join(captured.out.split()) or bad.reason in captured.err
    for expected in ("finding = all well", "gap = 0.3333", "missing = -", good.run_id, "figures/curve.png"):
        assert expected in captured.out
    assert (
        "FileNotFoundError"
        in (bad.folder / "log.txt").read_text() + (bad.folder / "partial.ipynb").read_text()
    )
    assert "Traceback" not in captured.err
    (home / "notebooks" / "needed.txt").write_text("here")
    assert main(["study", "--preset", "smoke"]) == 0
    out = capsys.readouterr().out
    assert "finished before" in out
    assert [run.state for run in list_runs()] == ["finished", "finished"]
    assert [read_run(f).reason for f in (paths.RUNS / "aside").iterdir()] == [bad.reason]
    assert main(["status"]) == 0
    assert good.run_id in capsys.readouterr().out


@pytest.mark.notebook
def test_a_notebook_that_exits_early_or_loses_its_kernel_is_broken(home: Path) -> None:
    early = plan_run(notebook(home, "01_early", None, "import sys; sys.exit(0)", "raise ValueError"), {})
    assert "stopped early: cell 1 of 2" in execute(early).reason
    dead = plan_run(notebook(home, "02_dead", None, "import os; os.kill(os.getpid(), 9)"), {})
    assert "the kernel died" in execute(dead).reason
    assert [run.state for run in list_runs()] == ["broken", "broken"]


@pytest.mark.notebook
def test_a_killed_run_is_done_again_and_a_code_change_meanwhile_is_noted(
    home: Path, start: Callable[..., subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(
        home,
        "01_slow",
        "seed = 0",
        "import os, pathlib, time\n"
        "before = pathlib.Path('../started.txt').exists()\n"
        "with open('../started.txt', 'a') as out: out.write(f'{os.getpid()}\\n')\n"
        "time.sleep(0 if before else 600)",
        "pathlib.Path('../lib/truthfirst/edited.py').write_text('x = 1')",
    )
    started = home / "started.txt"
    first = start("01_slow", "-p", "seed=5")
    wait_for(lambda: lines(started))
    (run,) = list_runs()
    assert (run.state, run.reason) == ("running", f"process {first.pid} on {socket.gethostname()}")
    first.kill()
    first.communicate()
    (killed,) = list_runs()
    assert (killed.state, killed.reason) == ("broken", f"{run.reason} ended without a final status")
    assert main(["01_slow", "-p", "seed=5"]) == 0
    assert "the code was edited meanwhile" in " ".join(capsys.readouterr().out.split())
    (done,) = list_runs()
    assert (done.run_id, done.state, done.library_changed) == (run.run_id, "finished", True)
    (aside,) = (paths.RUNS / "aside").iterdir()
    assert json.loads((aside / "status.json").read_text()) == {"state": "broken", "reason": killed.reason}
    wait_for(lambda: not alive(int(lines(started)[0])), 10)  # the orphaned kernel has gone


@pytest.mark.notebook
def test_an_interrupted_grid_goes_on_and_rivals_share_it(
    home: Path, start: Callable[..., subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(
        home,
        "01_cell",
        "seed = 0\nkind = ''",
        "import os, pathlib, time\nfrom truthfirst.runs import record_metrics\n"
        "with open('../started.txt', 'a') as out: out.write(f'{seed}\\n')\n"
        "while seed > 1 and not pathlib.Path(f'../go{seed}').exists(): time.sleep(0.05)",
        "record_metrics(threads=os.environ['OMP_NUM_THREADS'])",
    )
    (home / "grid.yaml").write_text(
        "notebook: 01_cell\nworkers: 2\nproduct: {seed: [1, 2, 3]}\ncells: [{seed: 1, kind: ''}]\n"
    )
    first = start("grid", "grid.yaml")
    wait_for(lambda: sorted(lines(home / "started.txt")) == ["1", "2", "3"])
    wait_for(lambda: any(run.state == "finished" for run in list_runs()))
    first.send_signal(signal.SIGINT)
    out, err = first.communicate()
    assert (first.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped; the same command goes on where this one ended"
    wait_for(lambda: [run.state for run in list_runs()].count("broken") == 2)
    rival = start("grid", "grid.yaml", "--workers", "1")
    wait_for(lambda: len(lines(home / "started.txt")) == 4)  # it waits in the cell of seed 2
    (home / "go3").write_text("")
    capsys.readouterr()
    assert main(["grid", str(home / "grid.yaml"), "--workers", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "finished before" in out
    assert f"process {rival.pid} on" in out
    (home / "go2").write_text("")
    out, err = rival.communicate()
    assert (rival.returncode, "Traceback" in err) == (0, False)
    assert sorted(lines(home / "started.txt")) == ["1", "2", "2", "3", "3"]
    assert [run.state for run in list_runs()] == ["finished"] * 3
    threads = {json.loads((f / "metrics.json").read_text())["threads"] for f in paths.RUNS.glob("*seed=1-*")}
    assert threads == {"1"}
