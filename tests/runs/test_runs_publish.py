"""What runs publish: finished studies at the preset of the stored figures; nothing else touches what is stored."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import nbformat
import pytest
from tiny import notebook

from truthfirst import paths, runs_publish
from truthfirst.runs import list_runs, read_run
from truthfirst.runs_cli import main
from truthfirst.runs_execute import execute
from truthfirst.runs_plan import plan_run
from truthfirst.runs_publish import Publication, obstacle, plan_publication, preset_of

NAMES = ("curve.png", "curve.svg", "curve.json")


@pytest.fixture
def quick(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a notebook of any run draw `curve` into the run's folder, without a kernel; cell 2 says how it ends."""
    monkeypatch.setenv("COLUMNS", "300")  # the table wraps nothing
    notebook(home, "01_small", "preset = 'cpu'\nseed = 0\ncorpus = None", "finish")

    def without_kernel(path: str, output: str, parameters: dict, **_: object) -> nbformat.NotebookNode:
        node = nbformat.read(path, as_version=4)
        node.metadata["papermill"] = {}
        for cell in node.cells:
            cell.metadata["papermill"] = {"status": "completed", "duration": 0.1}
        folder = Path(os.environ["TRUTHFIRST_RUN"])
        given = {"preset": "cpu", **parameters}
        draw(folder / "figures", folder / "results", given, folder.name)
        if (home / "break").exists():
            raise RuntimeError("the cell after the figure breaks")
        return node

    monkeypatch.setattr("papermill.execute_notebook", without_kernel)
    return home


def draw(figures: Path, results: Path, parameters: dict, run: str | None) -> None:
    for folder in (figures, results):
        folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES[:2]:
        (figures / name).write_text(f"{name} of {run}")
    (figures / NAMES[2]).write_text(json.dumps({"parameters": parameters, "run": run}))
    (results / "curve.parquet").write_text(f"frame of {run}")


def stored() -> dict[str, str]:
    files = [*paths.FIGURES.glob("*"), *paths.RESULTS.glob("*")] if paths.FIGURES.exists() else []
    return {path.name: path.read_text() for path in files}


def run_of(sidecar: str) -> str:
    return json.loads(sidecar)["run"]


def test_a_finished_study_publishes_and_another_preset_keeps_its_figures(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["01_small"]) == 0
    out = capsys.readouterr().out
    (study,) = list_runs()
    assert "figures/curve.png" in out
    assert run_of(stored()["curve.json"]) == study.run_id
    assert stored()["curve.parquet"] == f"frame of {study.run_id}"
    before = stored()
    assert main(["01_small", "-p", "preset=smoke"]) == 0
    out = capsys.readouterr().out
    assert "the stored curve is of preset cpu, this one is of preset smoke" in out
    assert "there: figures/curve.png" in out
    assert stored() == before
    smoke = next(run for run in list_runs() if "smoke" in run.run_id)
    assert (smoke.figures, smoke.state) == ((), "finished")
    assert (smoke.folder / "figures" / "curve.png").exists()


def test_a_smoke_run_fills_no_empty_place(quick: Path) -> None:
    run = execute(plan_run("01_small", {"preset": "smoke"})).plan
    assert "curve.json" not in stored()
    assert (run.folder / "figures" / "curve.png").exists()


def test_the_first_figure_may_be_of_any_preset_and_the_same_preset_replaces_it(quick: Path) -> None:
    first = execute(plan_run("01_small", {"preset": "gpu"})).plan
    assert run_of(stored()["curve.json"]) == first.run_id
    (quick / "lib" / "truthfirst" / "new.py").write_text("x = 1")  # newer code, another run
    again = execute(plan_run("01_small", {"preset": "gpu"})).plan
    assert again.run_id != first.run_id
    assert run_of(stored()["curve.json"]) == again.run_id


def test_an_exploration_keeps_its_figures_even_at_the_same_preset(
    quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["01_small"]) == 0
    before = stored()
    capsys.readouterr()
    assert main(["01_small", "-p", "seed=9"]) == 0
    assert "an exploration (seed): its figures stay in its folder" in capsys.readouterr().out
    assert stored() == before
    assert main(["01_small", "-p", "seed=0"]) == 0  # the default: the study itself
    assert stored() == before


def test_a_broken_run_publishes_nothing(quick: Path) -> None:
    assert main(["01_small"]) == 0
    before = stored()
    (quick / "break").write_text("")
    outcome = execute(plan_run("01_small", {}), redo=True)
    assert (outcome.state, read_run(outcome.plan.folder).state) == ("broken", "broken")
    assert (outcome.plan.folder / "figures" / "curve.png").exists()  # as far as it came
    assert stored() == before
    (quick / "break").unlink()
    assert execute(plan_run("01_small", {})).state == "finished"
    assert run_of(stored()["curve.json"]) == outcome.plan.run_id


def test_a_disk_that_is_full_at_the_end_breaks_the_run_and_keeps_whole_files(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["01_small"]) == 0
    before = stored()

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(runs_publish, "write_atomic", full)
        outcome = execute(plan_run("01_small", {}), redo=True)
    assert (outcome.state, outcome.reason) == ("broken", "No space left on device")
    assert stored() == before
    assert execute(plan_run("01_small", {})).state == "finished"


@pytest.mark.parametrize(
    ("sidecar", "preset"),
    [
        ({"parameters": {"preset": "gpu"}, "run": None}, "gpu"),
        ({"parameters": {"stored": "x"}, "run": "02_environments-preset=cpu-6e6784cf6b56"}, "cpu"),
        ({"parameters": {"command": "make bench"}, "run": None}, None),
        ({"parameters": None}, None),
    ],
)
def test_the_preset_of_a_figure(sidecar: dict, preset: str | None, tmp_path: Path) -> None:
    assert preset_of(sidecar) == preset
    (tmp_path / "curve.json").write_text(json.dumps(sidecar))
    assert (obstacle(tmp_path, "curve", "cpu") is None) == (preset == "cpu")
    assert obstacle(tmp_path, "curve", preset) is None
    (tmp_path / "curve.json").write_text("{")  # damaged: drawing it again mends it
    assert obstacle(tmp_path, "curve", "smoke") is None


def test_a_run_without_figures_has_nothing_to_keep(tmp_path: Path) -> None:
    assert plan_publication(tmp_path, ("seed",), "cpu") == Publication()


# --- a corpus of the caller's own ----------------------------------------------------------------------------
def test_a_relative_corpus_is_the_callers_and_home_is_known(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "elsewhere"
    (here / "texts").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here))
    plans = [
        plan_run("01_small", {"corpus": name})
        for name in ("texts", "./texts", "~/texts", str(here / "texts"))
    ]
    assert {plan.given["corpus"] for plan in plans} == {str(here / "texts")}
    assert len({plan.run_id for plan in plans}) == 1
    assert plans[0].run_id.startswith("01_small-preset=cpu-corpus=texts-")
    assert plans[0].varied == ("corpus",)
    assert plan_run("01_small", {"corpus": None}).varied == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere", "parameter corpus = 'nowhere': there is no folder /"),
        ("text.txt", "parameter corpus = 'text.txt' is a file, not a folder"),
        ("5", "parameter corpus = 5: give the path of a folder"),
        ("''", "parameter corpus = '': give the path of a folder"),
        ("~nobody-of-this-name/texts", "parameter corpus = '~nobody-of-this-name/texts': "),
    ],
)
def test_a_corpus_that_is_none_is_refused_before_anything_starts(
    quick: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: str,
    message: str,
) -> None:
    monkeypatch.chdir(quick)
    (quick / "text.txt").write_text("a text")
    assert main(["01_small", "-p", f"corpus={value}"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not paths.RUNS.exists()
