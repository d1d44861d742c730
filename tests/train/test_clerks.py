"""Clerks: the careful ones earn the optimum, the careless ones do not, and both play by the rules."""

from __future__ import annotations

import statistics

import pytest

from truthfirst.streams import stream
from truthfirst.train.base import TRAINED
from truthfirst.train.clerks import Habits, answer, clerk
from truthfirst.train.evaluate import instances
from truthfirst.types import Form


@pytest.fixture(scope="module")
def worlds():
    return instances(TRAINED, "nano", 6)


def replayed(world, form, messages) -> float:
    """Play a conversation's calls again, check every reply, and return the score."""
    episode = world.episode(form)
    calls = [call["function"] for message in messages for call in message.get("tool_calls", [])]
    replies = [message["content"] for message in messages if message["role"] == "tool"]
    for call, reply in zip(calls, replies, strict=True):
        assert episode.call(call["name"], call["arguments"]) == reply
    return episode.score().reward


@pytest.mark.parametrize("form", [Form.INFORMED, Form.AGENTIC])
def test_careful_clerks_earn_the_optimum(worlds, form) -> None:
    for number, world in enumerate(worlds):
        messages = clerk(world, form, Habits(careful=1.0), stream(0, "test", number))
        assert replayed(world, form, messages) == 1.0


@pytest.mark.parametrize("form", [Form.INFORMED, Form.AGENTIC])
def test_careless_clerks_do_not(worlds, form) -> None:
    scores = [
        replayed(world, form, clerk(world, form, Habits(careful=0.0), stream(0, "test", number, again)))
        for number, world in enumerate(worlds)
        for again in range(20)
    ]
    assert statistics.mean(scores) < 0.35


def test_the_share_of_careful_clerks_is_what_habits_say(worlds) -> None:
    scores = [
        replayed(
            world, Form.AGENTIC, clerk(world, Form.AGENTIC, Habits(careful=0.5), stream(1, number, again))
        )
        for number, world in enumerate(worlds)
        for again in range(30)
    ]
    assert (
        0.4 < statistics.mean(score == 1.0 for score in scores) < 0.75
    )  # the careless are lucky now and then


def test_answers_score_one(worlds) -> None:
    for world in worlds:
        episode = world.episode(Form.WRITTEN)
        episode.answer(answer(world)[-1]["content"])
        assert episode.score().reward == 1.0


def test_clerks_are_seeded(worlds) -> None:
    one, two, other = (
        clerk(worlds[0], Form.AGENTIC, Habits(), stream(0, label)) for label in ("a", "a", "b")
    )
    assert one == two
    assert one != other


def test_clerks_who_plan_ahead_plan_in_blocks_and_may_slip_for_a_block() -> None:
    [world] = instances(["rationing"], "nano16", 1)
    sure = clerk(world, Form.INFORMED, Habits(careful=1.0, ahead=4), stream(0, "ahead"))
    spoken = [message["content"] for message in sure if message["role"] == "assistant"]
    assert [number for number, thought in enumerate(spoken[:16]) if thought] == [0, 4, 8, 12]
    assert all(thought.count("spend") == 4 for thought in spoken[:16:4])
    assert replayed(world, Form.INFORMED, sure) == 1.0
    planned = []
    for again in range(100):
        slippery = clerk(
            world, Form.INFORMED, Habits(careful=1.0, ahead=4, slip=0.5), stream(0, "slip", again)
        )
        spoken = [message["content"] for message in slippery if message["role"] == "assistant"][:16]
        blocks = [number for number, thought in enumerate(spoken) if thought]
        assert set(blocks) <= {0, 4, 8, 12}
        planned.append(len(blocks) / 4)
    assert 0.4 < statistics.mean(planned) < 0.6
