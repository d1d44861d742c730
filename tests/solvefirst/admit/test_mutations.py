"""Admission proven: every planted fault is caught or changes nothing, and no healthy environment is rejected."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from truthfirst.solvefirst import environment as wrap
from truthfirst.solvefirst.admit.faults import FAULTS, Fault, NotApplicable, Patch
from truthfirst.solvefirst.admit.faults.base import around
from truthfirst.solvefirst.admit.gates import GATES, admit
from truthfirst.solvefirst.admit.mutations import COLUMNS, behaviour, difference, kill_table, script
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.environment import Environment, InstanceEpisode
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.realize.tools import Toolbox
from truthfirst.types import Form

Candidate = Callable[..., Environment]
VERDICTS = {"killed", "equivalent", "not applicable"}
BUDGETS = dict(zip(FAMILIES, ("ample", "tight") * len(FAMILIES), strict=False))


@pytest.fixture(scope="module")
def table_of(candidate: Candidate) -> Callable[[str], pd.DataFrame]:
    """Return the kill table of one family, made once a module."""

    @functools.cache
    def table(family: str) -> pd.DataFrame:
        return kill_table([candidate(family, "nano", BUDGETS[family])], FAULTS)

    return table


@pytest.fixture(scope="module")
def rationing(candidate: Candidate) -> Environment:
    return candidate("rationing", "nano", "ample")


# --- the table ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("family", FAMILIES)
def test_every_fault_is_caught_or_changes_nothing(
    family: str, table_of: Callable[[str], pd.DataFrame]
) -> None:
    frame = table_of(family)
    survivors = frame[~frame["verdict"].isin(VERDICTS)]
    assert survivors.empty, survivors[["fault", "evidence"]].to_string()
    assert tuple(frame.columns) == COLUMNS
    assert list(frame["fault"]) == [fault.name for fault in FAULTS]
    assert set(frame["family"]) == {family}
    assert frame["evidence"].str.len().gt(0).all()
    killed = frame["verdict"] == "killed"
    assert set(frame.loc[killed, "gate"]) <= set(GATES)
    assert frame.loc[~killed, "gate"].isna().all()
    assert killed.mean() > 0.8  # most faults find something to break in every family


def test_every_fault_is_killed_somewhere_and_every_gate_kills(
    table_of: Callable[[str], pd.DataFrame],
) -> None:
    frame = pd.concat(table_of(family) for family in FAMILIES)
    killed = frame[frame["verdict"] == "killed"]
    assert set(killed["fault"]) == {fault.name for fault in FAULTS}
    assert set(killed["gate"]) == set(GATES)


def test_faults_are_many_and_tell_their_stories() -> None:
    assert len(FAULTS) >= 14
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len({fault.story for fault in FAULTS}) == len(FAULTS)
    assert all(fault.story.endswith(".") for fault in FAULTS)


@pytest.mark.parametrize("family", FAMILIES)
def test_healthy_environments_are_admitted(family: str) -> None:
    admitted = 0
    for index in range(100, 103):
        environment = build_candidate(
            Recipe(family, "small", index=index, budget=("ample", "tight")[index % 2])
        )
        admission = admit(environment)
        lacks_margin = environment.solution.span < environment.solution.required_margin
        assert admission.gate == ("margin" if lacks_margin else None), admission
        admitted += admission.admitted
    assert admitted


# --- the method -------------------------------------------------------------------------------------------------
def in_the_text(addition: str) -> Fault:
    """A fault that adds words to the instructions."""

    def messages(original: Any, *arguments: Any) -> Any:
        system, *others = original(*arguments)
        return ({**system, "content": system["content"] + addition}, *others)

    return Fault("words", "Words are added.", lambda environment: [around(wrap, "messages", messages)])


def test_a_change_that_no_gate_sees_survives(rationing: Environment) -> None:
    frame = kill_table([rationing], [in_the_text("\n\nHave a nice day.")])
    assert list(frame["verdict"]) == ["survived"]
    assert frame["gate"].isna().all()
    assert "Have a nice day" in frame["evidence"][0]
    assert "view of form" in frame["evidence"][0]


def test_a_change_that_a_gate_sees_is_killed(rationing: Environment) -> None:
    frame = kill_table([rationing], [in_the_text("\n\nThe last agent earned 12.")])
    assert list(frame[["verdict", "gate"]].iloc[0]) == ["killed", "read-back"]
    assert "12" in frame["evidence"][0]


def test_a_change_of_nothing_is_equivalent(rationing: Environment) -> None:
    same = Fault("same", "Nothing.", lambda environment: [around(Toolbox, "label", lambda f, *a: f(*a))])
    frame = kill_table([rationing], [same])
    assert list(frame["verdict"]) == ["equivalent"]
    assert "views, replies and scores of 3 instances stay the same" in frame["evidence"][0]


def test_a_change_that_shows_only_elsewhere_is_killed_there(rationing: Environment) -> None:
    """In form I, gains are told wrongly unless the hidden entries are those of this environment."""

    def account(original: Any, episode: InstanceEpisode, action: Any, gain: int, new: Any) -> str:
        elsewhere = episode.form is Form.INFORMED and episode._theta != rationing.theta
        return original(episode, action, gain + elsewhere, new)

    patch = around(InstanceEpisode, "_account", account)
    frame = kill_table([rationing], [Fault("elsewhere", "Gains are wrong.", lambda environment: [patch])])
    assert list(frame["verdict"]) == ["equivalent"]
    assert "this instance stay the same; with other hidden entries optimal-replay" in frame["evidence"][0]


def test_what_cannot_be_planted_says_why(rationing: Environment) -> None:
    fault = Fault("none", "Nothing to plant.", lambda environment: NotApplicable("there is no reef here"))
    frame = kill_table([rationing], [fault])
    assert list(frame[["verdict", "evidence"]].iloc[0]) == ["not applicable", "there is no reef here"]


def test_patches_are_taken_back_even_after_an_error(rationing: Environment) -> None:
    before, family = InstanceEpisode._decide, FAMILIES["rationing"]
    patches = [Patch(InstanceEpisode, "_decide", None), Patch(FAMILIES, "rationing", family)]
    fault = Fault("broken", "Everything is broken.", lambda environment: patches)
    stack = contextlib.ExitStack()
    stack.enter_context(fault.planted(rationing))
    assert InstanceEpisode._decide is None
    assert not stack.__exit__(RuntimeError, RuntimeError("in the middle"), None)
    assert InstanceEpisode._decide is before
    assert FAMILIES["rationing"] is family


def test_behaviour_notices_every_part_of_a_reply(rationing: Environment) -> None:
    episodes = script(rationing)
    before = behaviour(rationing, episodes)
    assert difference(before, behaviour(rationing, episodes)) is None
    for position in (0, len(before) // 2, len(before) - 1):
        after = list(before)
        after[position] = (after[position][0], after[position][1] + " ")
        assert before[position][0] in str(difference(before, after))
