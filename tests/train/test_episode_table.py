"""What a table of held-out episodes says about their beginnings, and what an episode earns in training."""

from __future__ import annotations

import pytest

from truthfirst.train.environments import Rollout
from truthfirst.train.evaluate import planned, probes_before_deciding
from truthfirst.types import Score, StopReason, Trace, Turn


def turn(index: int, kind: str, new: bool | None = None) -> Turn:
    return Turn(index, kind, {}, "", kind, "ok", {} if new is None else {"new": new})


def trace(messages: list[tuple[str, int, int]], *turns: Turn) -> Trace:
    told = [{"text": text, "turns": [first, count]} for text, first, count in messages]
    header = {"rollout": {"kind": "language", "messages": told, "counts": {}, "tokens": {}}}
    return Trace(header, turns, StopReason.COMPLETED)


CALL = "<tool_call>...</tool_call>"
PLAYED = (turn(0, "probe", True), turn(1, "probe", False), turn(2, "decision"), turn(3, "probe", True))


def test_only_new_figures_before_the_first_decision_count() -> None:
    assert probes_before_deciding(trace([], *PLAYED)) == 1
    assert probes_before_deciding(trace([], *PLAYED[:2])) == 1  # no decision at all


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([CALL, CALL, f"A plan. {CALL}", CALL], True),
        ([f"First thoughts. {CALL}", CALL, CALL, CALL], True),
        ([CALL, CALL, CALL, f"Too late. {CALL}"], False),
        ([CALL, CALL, f" \n{CALL}", CALL], False),
    ],
)
def test_a_plan_stands_before_the_first_decision(texts, expected) -> None:
    messages = [(text, index, 1) for index, text in enumerate(texts)]
    assert planned(trace(messages, *PLAYED)) is expected


@pytest.mark.parametrize(
    ("detail", "score", "unclipped", "utility"),
    [
        ({"u": -7, "u_zero": -5, "unclipped": -0.5}, 0.0, -0.5, -7.0),
        ({"u": None, "u_zero": -5, "unclipped": None}, 0.0, 0.0, -5.0),  # a malformed answer is no gain
        ({"phi": 0.5}, 0.125, 0.125, 0.125),  # a wing without utilities
    ],
)
def test_what_an_episode_earns(detail, score, unclipped, utility) -> None:
    rollout = Rollout.__new__(Rollout)
    rollout._score = Score(score, detail)
    assert [rollout.earned(kind) for kind in ("score", "unclipped", "utility")] == [score, unclipped, utility]
