"""Scripted policies: what each earns, that none sees what an agent may not see, and the reachable reference."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import pytest

from truthfirst.solvefirst import references
from truthfirst.solvefirst.environment import Environment, Position
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Action, UnknownName, entry
from truthfirst.solvefirst.realize.tools import Probe
from truthfirst.solvefirst.references import (
    CANDIDATES,
    POLICIES,
    calibrate,
    candidates,
    play,
    policy,
    reachable_policy,
    simulate,
    u_reach,
)
from truthfirst.solvefirst.score import score_trace
from truthfirst.streams import SeedError
from truthfirst.types import Form, StopReason, Trace

Candidate = Callable[..., Environment]
DETERMINISTIC = [name for name in POLICIES if name != "random"]


def probes(trace: Trace) -> int:
    return sum(turn.kind == "probe" for turn in trace.turns)


def told(trace: Trace) -> set[tuple[Any, ...]]:
    """Return the entries that a trace reveals, by probes and by decisions."""
    shown = [key for turn in trace.turns for key, _ in turn.detail.get("shown", [])]
    return {tuple(key) for key in shown} | {tuple(t.detail["key"]) for t in trace.turns if t.kind == "probe"}


# --- names ------------------------------------------------------------------------------------------------
def test_the_policies_of_the_issue_exist() -> None:
    assert {"optimal", "default", "random", "myopic", "plan"} <= set(POLICIES)
    assert all(name == scripted.name for name, scripted in POLICIES.items())
    assert [name for name, scripted in POLICIES.items() if scripted.oracle] == ["optimal"]
    assert [policy(f"probe-{k}").name for k in (0, 3, 1234)] == ["probe-0", "probe-3", "probe-1234"]


@pytest.mark.parametrize("name", ["", "probe-", "probe--1", "probe-1.5", "probe-99999", "Optimal", None, 3])
def test_an_unknown_policy_is_answered_with_those_there_are(name: Any) -> None:
    with pytest.raises(UnknownName, match=r"unknown policy .*: choose one of optimal, default, .*, probe-K"):
        policy(name)


# --- what they earn ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("budget", ["ample", "tight"])
@pytest.mark.parametrize("family", FAMILIES)
def test_optimal_scores_one_default_zero_and_nobody_more(
    family: str, budget: str, form: Form, candidate: Candidate
) -> None:
    env = candidate(family, "nano", budget)
    for name in (*POLICIES, "probe-1"):
        trace = play(policy(name), env, form, 4)
        score = score_trace(trace)
        assert 0 <= score.reward <= 1
        assert score.detail["u"] <= env.solution.u_star + env.family.epsilon
        assert score.detail["refused"] == 0, trace.turns
        assert trace.header["policy"] == name
        if name == "optimal":
            assert score.detail["u"] == env.solution.u_star
        if name == "default":
            assert score.detail["u"] == env.solution.u_zero


@pytest.mark.parametrize("budget", ["ample", "tight"])
@pytest.mark.parametrize("family", FAMILIES)
def test_simulation_earns_what_play_earns(family: str, budget: str, candidate: Candidate) -> None:
    env = candidate(family, "small", budget)
    for name in (*DETERMINISTIC, "probe-2"):
        told = score_trace(play(policy(name), env, Form.AGENTIC, 0)).detail["u"]
        assert simulate(policy(name), env.family, env.theta, budget, 9) == told, name


def test_probing_everything_first_earns_the_optimum_under_an_ample_budget(environment: Environment) -> None:
    env = environment
    u = simulate(POLICIES["probe-all"], env.family, env.theta, "ample", 0)
    if len(env.family.probe_keys(env.theta)) == len(env.family.keys(env.theta)):
        assert env.solution.u_star - env.family.epsilon <= u <= env.solution.u_star
    else:
        assert u <= env.solution.u_star


@pytest.mark.parametrize("family", FAMILIES)
def test_probing_leaves_room_for_every_decision(family: str, candidate: Candidate) -> None:
    env = candidate(family, "small", "tight")
    for name in ("probe-all", "probe-wide", "probe-high", "probe-as-you-go", "probe-9999"):
        trace = play(policy(name), env, Form.AGENTIC, 0)
        assert trace.stop in (StopReason.COMPLETED, StopReason.STOPPED), name
        assert score_trace(trace).detail["probes_new"] == probes(trace)  # none is wasted on what is known
        if (
            env.family.interface.probes and name != "probe-as-you-go"
        ):  # deciding tells that one some entries too
            assert probes(trace) >= len(env.family.probe_keys(env.theta)) // 2
        assert 3 * len(told(trace)) >= len(env.family.probe_keys(env.theta))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_probe_k_probes_k_entries_and_then_plans(environment: Environment, limit: int) -> None:
    trace = play(policy(f"probe-{limit}"), environment, Form.AGENTIC, 0)
    most = len(environment.family.probe_keys(environment.theta))
    kinds = [turn.kind for turn in trace.turns]
    assert kinds[: min(limit, most)] == ["probe"] * min(limit, most)
    assert "probe" not in kinds[min(limit, most) :]


def test_the_order_of_probes_is_what_it_is_called(candidate: Candidate) -> None:
    env = candidate("rationing", "small")
    prior = env.family.prior(env.theta)
    for name, rank in (
        ("probe-wide", lambda k: prior[k][1] - prior[k][0]),
        ("probe-high", lambda k: prior[k][2]),
    ):
        told = [
            tuple(t.detail["key"])
            for t in play(POLICIES[name], env, Form.AGENTIC, 0).turns
            if t.kind == "probe"
        ]
        ranks = [rank(key) for key in told]
        assert ranks == sorted(ranks, reverse=True)
        assert ranks[0] > ranks[-1]


def test_a_seed_fixes_the_random_policy_and_seeds_differ(candidate: Candidate) -> None:
    env = candidate("rationing", "small")
    one, same, other = (play(POLICIES["random"], env, Form.AGENTIC, seed) for seed in (1, 1, 2))
    assert one == same
    assert one.turns != other.turns
    assert probes(one) > 0
    with pytest.raises(SeedError, match="at least 0, got -1"):
        play(POLICIES["random"], env, Form.AGENTIC, -1)
    with pytest.raises(SeedError):
        simulate(POLICIES["random"], env.family, env.theta, "ample", -1)
    with pytest.raises(UnknownName, match="unknown budget"):
        simulate(POLICIES["plan"], env.family, env.theta, "plenty", 0)


def test_random_play_reaches_every_verb(candidate: Candidate) -> None:
    for family in FAMILIES:
        env = candidate(family, "nano")
        verbs = {verb.name for verb in env.family.interface.verbs}
        done: set[str] = set()
        for seed in range(12):
            trace = play(POLICIES["random"], env, Form.AGENTIC, seed)
            done |= {turn.detail["action"][0] for turn in trace.turns if turn.kind == "decision"}
        assert done == verbs, family


def test_myopic_takes_the_largest_expected_gain(candidate: Candidate) -> None:
    env = candidate("rationing", "small")
    position = env.episode("A").position()
    choice = POLICIES["myopic"].decide(position, np.random.default_rng(0))
    gains = {
        action: env.family.step(position.believed, position.state, action)[1]
        for move in env.family.legal(position.public, position.state)
        for action in move
    }
    assert isinstance(choice, Action)
    assert gains[choice] == max(gains.values())
    assert choice.args[0] == min(
        action.args[0] for action, gain in gains.items() if gain == max(gains.values())
    )


# --- what they see ----------------------------------------------------------------------------------------
def test_a_position_holds_nothing_hidden() -> None:
    fields = [field.name for field in dataclasses.fields(Position)]
    assert fields == ["family", "public", "state", "known", "turn_budget", "turns_left"]


@pytest.mark.parametrize("name", [*(name for name in POLICIES if not POLICIES[name].oracle), "probe-2"])
def test_choices_do_not_depend_on_what_has_not_been_revealed(environment: Environment, name: str) -> None:
    env, scripted = environment, policy(name)
    episode, rng = env.episode("A"), np.random.default_rng(0)
    while not episode.done:
        choice = scripted.decide(episode.position(), rng)
        if choice is None:
            break
        episode.call(*episode.write(choice))
    for seed in range(2):
        theta = env.family.redraw(env.theta, np.random.default_rng(seed), keep=episode.known)
        twin, rng = dataclasses.replace(env, theta=theta).episode("A"), np.random.default_rng(0)
        for turn in episode.turns:
            choice = scripted.decide(twin.position(), rng)
            assert choice is not None
            assert twin.write(choice) == (turn.tool, turn.arguments)
            twin.call(*twin.write(choice))


def test_known_entries_and_prior_means_make_the_belief(environment: Environment) -> None:
    env, episode = environment, environment.episode("A")
    for key in env.family.probe_keys(env.theta)[:2]:
        episode.call(*episode.write(Probe(key)))
    believed = episode.position().believed
    for key, (_, _, mean) in env.family.prior(env.theta).items():
        assert entry(believed, key) == (entry(env.theta, key) if key in episode.known else mean)


# --- the reachable reference ------------------------------------------------------------------------------
def test_candidates_for_u_reach_see_only_what_an_agent_may_see() -> None:
    assert not any(POLICIES[name].oracle for name in CANDIDATES)
    assert set(CANDIDATES) <= set(POLICIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_u_reach_is_u_star_under_an_ample_budget_where_all_can_be_probed(
    family: str, candidate: Candidate
) -> None:
    env = candidate(family, "small")
    if len(env.family.interface.probes) < len(env.family.interface.hidden_fields):
        assert family == "search"
        return
    u = u_reach(env.family, env.theta, "small", "ample")
    assert env.solution.u_star - env.family.epsilon <= u <= env.solution.u_star


def test_a_tight_budget_reaches_no_more_than_the_optimum_and_more_than_the_baseline(
    monkeypatch: pytest.MonkeyPatch, candidate: Candidate
) -> None:
    monkeypatch.setattr(references, "REACH_DRAWS", 8)
    shares = []
    for index in range(8):
        env = candidate("rationing", "small", "tight", index * 2)
        u = u_reach(env.family, env.theta, "small", "tight")
        assert u <= env.solution.u_star
        shares.append((u - env.solution.u_zero) / env.solution.span)
    assert 0.3 < np.mean(shares) < 1


def test_calibration_finds_the_best_on_average() -> None:
    best = calibrate("rationing", "nano", "ample", draws=6)
    assert best == "probe-all"
    assert best == calibrate("rationing", "nano", "ample", draws=6)
    assert calibrate("rationing", "small", "tight", draws=4) in set(CANDIDATES) - {
        "default",
        "myopic",
        "plan",
    }


def test_unknown_names_reach_no_reference() -> None:
    with pytest.raises(UnknownName, match="unknown family"):
        reachable_policy("nothing", "small", "ample")
    with pytest.raises(UnknownName, match="unknown size of rationing"):
        calibrate("rationing", "tiny", "tight", draws=1)
    with pytest.raises(UnknownName, match="unknown budget"):
        calibrate("rationing", "nano", "plenty", draws=1)


def test_the_stored_table_names_candidates_of_known_families() -> None:
    file = resources.files("truthfirst.solvefirst").joinpath("reachable.json")
    table = references.reach_table()
    assert bool(table) == file.is_file()
    if file.is_file():
        assert json.loads(file.read_text())["policies"] == table
    for key, name in table.items():
        family, size, budget = key.split("/")
        assert size in FAMILIES[family].sizes
        assert budget in ("ample", "tight")
        assert name in candidates(family)
