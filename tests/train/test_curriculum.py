"""The curriculum: when the level rises, what is drawn, and that a broken run comes back to its level."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lamps import lamp_tasks

from truthfirst.train.curriculum import WINDOW, level_after
from truthfirst.train.history import read_history
from truthfirst.train.plan import PlanError
from truthfirst.train.run import train


def test_the_level_rises_when_the_mean_of_the_window_reaches_the_threshold() -> None:
    assert level_after([0.9, 0.9], 0.8, 2) == 0  # too few
    assert level_after([0.9, 0.9, 0.5], 0.8, 2) == 0  # mean 0.77
    assert level_after([0.9, 0.9, 0.7], 0.8, 2) == 1
    assert level_after([0.9, 0.9, 0.7, 0.9, 0.9], 0.8, 2) == 1  # scores of the level before do not count
    assert level_after([0.9] * 6, 0.8, 2) == 2
    assert level_after([0.9] * 60, 0.8, 2) == 2  # the highest


@given(st.lists(st.floats(0, 1), max_size=40), st.floats(0.1, 0.9))
def test_levels_never_fall_and_need_a_window_each(scores: list[float], threshold: float) -> None:
    levels = [level_after(scores[:n], threshold, 3) for n in range(len(scores) + 1)]
    assert levels == sorted(levels)
    assert levels[-1] <= len(scores) // WINDOW


def levelled():
    """Lamps of which two are of level 0 and two of level 1."""
    tasks = lamp_tasks("ABCD")
    rows = [row | {"level": int(row["instance"] in ("C", "D"))} for row in tasks.rows]
    return dataclasses.replace(tasks, rows=rows)


def test_a_run_climbs_and_a_broken_one_comes_back_to_its_level(trainer) -> None:
    fields = {"curriculum": 1e-9, "steps": 8, "save_every": 1}
    whole = trainer(levelled(), folder="whole", **fields)
    whole._curriculum.threshold = -1.0  # every window is enough
    train(whole)
    levels = read_history(whole.args.output_dir)["curriculum/level"].tolist()
    assert levels == [0, 0, 0, 1, 1, 1, 1, 1]

    broken = trainer(levelled(), folder="broken", **(fields | {"steps": 5}))
    broken._curriculum.threshold = -1.0
    train(broken)
    resumed = trainer(levelled(), folder="broken", **fields)
    resumed._curriculum.threshold = -1.0
    train(resumed, resume=True)
    again, first = read_history(resumed.args.output_dir), read_history(whole.args.output_dir)
    assert again["curriculum/level"].tolist() == levels
    assert again["curriculum/score"].tolist() == pytest.approx(first["curriculum/score"].tolist())


def test_what_is_drawn_is_of_the_level(trainer) -> None:
    made = trainer(levelled(), curriculum=0.5)._curriculum
    rows = made.draw(6, 4, (0, 0))
    assert len(rows) == 24
    assert {row["level"] for row in rows} == {0}
    assert all(len({row["instance"] for row in rows[i : i + 4]}) == 1 for i in range(0, 24, 4))
    made.scores = [1.0] * WINDOW
    assert {row["level"] for row in made.draw(6, 4, (1, 0))} == {1}


def test_rows_without_levels_and_wrong_thresholds_are_refused(trainer) -> None:
    with pytest.raises(PlanError, match="rows need a level"):
        trainer(curriculum=0.5)
    with pytest.raises(PlanError, match=r"curriculum = 1\.5"):
        trainer(levelled(), curriculum=1.5)
    with pytest.raises(PlanError, match="exclude each other"):
        trainer(levelled(), curriculum=0.5, refills=1)
