"""Training as an experiment: a cell is trained, measured, stored once, and read back; gap arithmetic by hand."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from truthfirst.runs_grid import read_grid
from truthfirst.runs_plan import plan_run
from truthfirst.study import cells, learning
from truthfirst.train import tiny
from truthfirst.train.base import BaseRecipe, make_tokenizer
from truthfirst.train.plan import Plan


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A base checkpoint that knows nothing."""
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    folder = checkpoints / "tiny-base"
    tokenizer = make_tokenizer(BaseRecipe(families=("rationing",), others=(), instances=6))
    tiny.build_model(tokenizer, tiny.Shape(layers=1, hidden=16, heads=2), seed=0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return checkpoints


@pytest.fixture(scope="module")
def cell():
    plan = Plan(
        steps=2, group_size=2, groups=2, updates=1, report_to="none", message_tokens=8, answer_tokens=8
    )
    return learning.Cell(
        study="test", arm="outcome", families=("rationing",), held_out=2, forms=("A",), plan=plan
    )


@pytest.fixture(scope="module")
def result(base, cell, tmp_path_factory):
    return learning.run_cell(cell, tmp_path_factory.mktemp("cell"), checkpoints=base)


def test_a_cell_is_measured_before_and_after_on_the_same_instances(result) -> None:
    scores = result.scores
    assert set(scores["policy"]) == {"base", "trained"}
    ids = [set(scores[scores["policy"] == name]["environment"]) for name in ("base", "trained")]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2
    assert set(scores["form"]) == {"F", "I", "A"}
    assert list(result.history["step"]) == [1, 2]


def test_training_instances_are_not_those_held_out(cell, result) -> None:
    trained_on = {row["instance"] for row in learning.tasks_of(cell).rows}
    assert all('"split":"train"' in key for key in trained_on)
    assert all(f'"index":{learning.UNTOUCHED // 1000}' in key for key in trained_on)  # beyond the base's


def test_a_finished_cell_is_read_back(base, cell, result, tmp_path_factory, monkeypatch) -> None:
    from truthfirst.train import run

    folder = next(path.parent for path in tmp_path_factory.getbasetemp().rglob("finished.json"))
    monkeypatch.setattr(run, "train", lambda *a, **k: pytest.fail("trained again"))
    again = learning.run_cell(cell, folder, checkpoints=base)
    pd.testing.assert_frame_equal(again.scores, result.scores)


def test_a_result_is_stored_once(result, tmp_path) -> None:
    learning.store(result, tmp_path)
    first = pd.read_parquet(tmp_path / "training_scores.parquet")
    learning.store(result, tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "training_scores.parquet"), first)
    assert set(first["role"]) == {"trained"}
    history = pd.read_parquet(tmp_path / "training.parquet")
    assert list(history["samples"]) == [4, 8]


def rows(policy: str, form: str, reward: float) -> dict[str, object]:
    return {
        "study": "s", "arm": "a", "seed": 0, "policy": policy, "form": form, "reward": reward, "probes": 0
    }  # fmt: skip


def test_gaps_closed_are_the_sources() -> None:
    """The arithmetic of the source, on its own numbers: 84% of the stateful gap and 77% of the whole one."""
    table = [("base", 0.962, 0.231, 0.204), ("trained", 0.992, 0.875, 0.815)]
    frame = pd.DataFrame(
        [
            rows(name, form, value)
            for name, *values in table
            for form, value in zip("FIA", values, strict=True)
        ]
    )
    found = learning.gaps(frame).iloc[0]
    assert found["closed_FI"] == pytest.approx(0.84, abs=0.005)
    assert found["closed_FA"] == pytest.approx(0.77, abs=0.005)
    assert found["gain_A"] == pytest.approx(0.611)


def test_samples_to_reach_is_null_where_it_never_was() -> None:
    frame = pd.DataFrame(
        {
            "arm": ["x"] * 4 + ["y"] * 4, "seed": 0, "trained_forms": "I", "size": "nano",
            "families_trained": "rationing",
            "step": [1, 2, 3, 4] * 2, "samples": [10, 20, 30, 40] * 2, "score/I": [0.5, 0.9, 0.9, 0.9] + [0.1] * 4,
        }
    )  # fmt: skip
    found = learning.samples_to_reach(learning.with_decisions(frame), 0.85, window=2).set_index("arm")
    assert found.loc["x", "samples"] == 30
    assert pd.isna(found.loc["y", "samples"])


GRIDS = sorted(
    path
    for path in (cells.paths.HOME / "data" / "grids").glob("*.yaml")
    if read_grid(path).notebook == "training_cell"
)


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_cell_of_a_stored_grid_is_a_cell_of_its_own(path) -> None:
    wanted = read_grid(path).cells
    plans = [plan_run("training_cell", given) for given in wanted]  # every parameter exists and fits
    fields = {field.name for field in dataclasses.fields(learning.Cell)}
    cells = [learning.cell_of(**{k: v for k, v in p.parameters.items() if k in fields}) for p in plans]
    assert len({cell.id for cell in cells}) == len(wanted)
    assert all(cell.plan.seed == cell.seed for cell in cells)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"arm": "magic"}, "unknown arm 'magic'"),
        ({"arm": "outcome", "seeds": 3}, "no 'seeds' in Cell"),
        ({"arm": "outcome", "plan": {"step": 3}}, "no 'step' in Plan"),
    ],
)
def test_a_wrong_cell_names_what_is_wrong(given, named) -> None:
    with pytest.raises(ValueError, match=named):
        learning.cell_of(study="s", seed=0, **given)


def test_a_plan_begins_with_a_preset_for_gpus() -> None:
    plan = {"preset": "qwen3-0.6b", "steps": 7, "options": {"vllm_max_model_length": 9}}
    cell = learning.cell_of(study="s", arm="regret", seed=3, base="Qwen/Qwen3-0.6B", plan=plan)
    assert (cell.plan.steps, cell.plan.seed, cell.plan.credit, cell.plan.cpu) == (7, 3, "regret", False)
    assert cell.plan.learning_rate == 1e-6
    assert (cell.plan.options["use_vllm"], cell.plan.options["vllm_max_model_length"]) == (True, 9)


@pytest.mark.parametrize(
    ("preset", "named"), [("qwen3-1.7b", "several cards"), ("qwen3-4b-lora", "adapters"), ("huge", "unknown")]
)
def test_a_preset_that_a_cell_cannot_follow_is_refused(preset, named) -> None:
    with pytest.raises(ValueError, match=named):
        learning.cell_of(study="s", arm="outcome", seed=0, plan={"preset": preset})


def test_a_base_is_a_checkpoint_or_a_model_of_the_hub(tmp_path) -> None:
    (tmp_path / "own").mkdir()
    for name, where in (
        ("own", str(tmp_path / "own")),
        ("nobody/has-it", "nobody/has-it"),
        ("typo", str(tmp_path / "typo")),
    ):
        cell = learning.cell_of(study="s", arm="outcome", seed=0, base=name)
        assert learning.base_path(cell, tmp_path) == where


def test_a_cell_is_obtained_once(base, cell, result, tmp_path, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(learning, "run_cell", lambda *a, **k: calls.append(a) or result)
    monkeypatch.setattr(cells, "WORK", tmp_path / "work")
    monkeypatch.setattr(cells.paths, "STORED", tmp_path)
    monkeypatch.setattr(cells.paths, "RESULTS", tmp_path)
    assert learning.obtain(cell)
    assert not learning.obtain(cell)
    assert len(calls) == 1
    assert set(cells.rows_of(cell, "training_scores")["form"]) == {"F", "I", "A"}
    assert learning.obtain(cell, again=True)
    assert len(calls) == 2
