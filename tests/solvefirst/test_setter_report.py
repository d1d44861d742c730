"""Setters compared: what a trial counts, what the log tells, and that the figure shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from truthfirst.figures_setters import FIGURES, setters
from truthfirst.solvefirst.candidates import Recipe
from truthfirst.solvefirst.realize.asking import ASKED
from truthfirst.solvefirst.realize.language_setter import LanguageSetter, Limits, Prices
from truthfirst.solvefirst.realize.setter import Setter, SetterTask, TemplateSetter
from truthfirst.solvefirst.realize.transports import LocalTransport
from truthfirst.solvefirst.setter_report import ANSWERS, CANDIDATES, COLUMNS, answers, setter_frame, trial
from truthfirst.streams import stream

RECIPES = [Recipe("rationing", "nano", index=index, domain="brewing") for index in range(20, 24)]


class Parrot(LanguageSetter):
    """A model that hands in the template's words, less the epigraph and after `spoil` has changed them."""

    def __init__(self, name: str, log: Path, spoil: Callable[[dict[str, Any]], object]) -> None:
        super().__init__(
            LocalTransport(name, lambda *_: self._said),
            prices=Prices(1.0, 2.0),
            log=log,
            limits=Limits(answers=2),
        )
        self._spoil, self._said = spoil, ""

    def write(self, task: SetterTask, rng: Any) -> Any:
        words = TemplateSetter().write(task, stream(0, "parrot", task.passage.id)).model_dump(mode="json")
        answer = {key: words[key] for key in ASKED}
        self._spoil(answer)
        self._said = json.dumps(answer)
        return super().write(task, rng)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    log = tmp_path_factory.mktemp("setters") / "log.jsonl"
    makers: dict[str, Callable[[], Setter]] = {
        "template": TemplateSetter,
        "language:good": lambda: Parrot("good", log, lambda answer: None),
        "language:leaky": lambda: Parrot("leaky", log, lambda answer: answer.update(title="Malt for 9 days")),
    }
    return trial(makers, RECIPES), answers([log])


def test_a_trial_judges_every_setter_on_the_same_instances(tried: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    candidates, _ = tried
    assert list(candidates.columns) == list(CANDIDATES)
    assert candidates.groupby("setter")["index"].apply(list).tolist() == [[20, 21, 22, 23]] * 3
    of = {str(name): group for name, group in candidates.groupby("setter")}
    assert of["template"]["admitted"].tolist() == of["language:good"]["admitted"].tolist()
    assert of["template"]["admitted"].any()
    assert not of["language:leaky"]["admitted"].any()
    assert set(of["language:leaky"]["gate"]) == {"setter"}
    assert of["language:leaky"]["evidence"].str.contains("digits: title").all()
    assert (of["template"][["dollars", "tokens"]] == 0).all(axis=None)
    assert (of["language:good"]["tokens"] > 1_000).all()
    assert of["language:leaky"]["dollars"].min() > of["language:good"]["dollars"].max()


def test_seconds_are_those_of_the_clock_that_is_named() -> None:
    ticks = iter(range(100))
    candidates = trial({"template": TemplateSetter}, RECIPES[:3], clock=lambda: 5.0 * next(ticks))
    assert candidates["seconds"].tolist() == [5.0, 5.0, 5.0]


def test_answers_are_counted_by_what_became_of_them(tried: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, answered = tried
    assert list(answered.columns) == list(ANSWERS)
    counts = answered.groupby(["setter", "outcome", "check"]).size().to_dict()
    assert counts == {
        ("language:good", "accepted", "accepted"): 4,
        ("language:leaky", "vetting", "digits"): 8,  # two answers each
    }
    assert answered["dollars"].sum() == pytest.approx(
        (answered["prompt"].sum() + 2 * answered["completion"].sum()) / 1e6
    )


def test_the_frame_and_its_figure(tried: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    candidates, answered = tried
    frame = setter_frame(candidates, answered)
    assert list(frame.columns) == list(COLUMNS)
    cells = frame.set_index(["setter", "measure"])
    assert cells.loc[("language:leaky", "yield"), "value"].item() == 0
    assert 0 < cells.loc[("language:leaky", "yield"), "high"].item() < 1
    assert pd.isna(cells.loc[("language:leaky", "dollars"), "value"].item())
    good = candidates[candidates["setter"] == "language:good"]
    cost = cells.loc[("language:good", "dollars"), "value"].item()
    assert cost == pytest.approx(good["dollars"].sum() / good["admitted"].sum())
    figure = FIGURES["setters"](frame)
    told = " ".join(text.get_text() for axis in figure.axes for text in axis.texts)
    assert "none admitted" in told
    assert "8" in told
    labels = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert labels[:2] == ["accepted", "digits"]
    assert "gate setter" in labels
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == sorted(
        set(candidates["setter"])
    )


def test_a_frame_without_answers_can_be_drawn(tried: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    candidates, _ = tried
    frame = setter_frame(candidates[candidates["setter"] == "template"])
    assert set(frame["measure"]) >= {"yield", "seconds", "dollars", "tokens"}
    assert setters(frame).axes
