"""Scores: the reward, the regret ledger that sums exactly, the loss split, and damaged traces that are named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.episode import read_trace, trace_record
from truthfirst.records import RecordError, canonical_json
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Action, Solution
from truthfirst.solvefirst.realize.tools import Probe
from truthfirst.solvefirst.references import POLICIES, play, policy
from truthfirst.solvefirst.score import (
    REWARD_KINDS,
    call_rewards,
    planned,
    planner_earnings,
    regret_ledger,
    reward,
    score_trace,
)
from truthfirst.types import Form, StopReason, Trace

Candidate = Callable[..., Environment]
PLAYED = ["optimal", "default", "random", "myopic", "plan", "probe-all", "probe-as-you-go", "probe-2"]


# --- the reward -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("u", "wanted"), [(10, 0.0), (30, 1.0), (20, 0.5), (-7, 0.0), (31, 1.0), (25, 0.75)])
def test_the_reward_runs_from_the_baseline_to_the_optimum(u: int, wanted: float) -> None:
    assert reward(u, u_star=30, u_zero=10) == wanted


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_the_reward_is_within_bounds_and_grows_with_u(u: int, u_zero: int, span: int) -> None:
    r = reward(u, u_zero + span, u_zero)
    assert 0 <= r <= 1
    assert r <= reward(u + 1, u_zero + span, u_zero)


@pytest.mark.parametrize(("u_star", "u_zero"), [(5, 5), (4, 5)])
def test_an_instance_without_a_span_has_no_reward(u_star: int, u_zero: int, candidate: Candidate) -> None:
    with pytest.raises(ValueError, match=f"u_star = {u_star} does not exceed u_zero = {u_zero}"):
        reward(5, u_star, u_zero)
    env = candidate("rationing")
    flat = dataclasses.replace(env, solution=Solution(u_star, u_zero, env.solution.plan))
    with pytest.raises(ValueError, match="no reward scale"):
        flat.episode("A").score()


# --- the ledger -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize("budget", ["ample", "tight"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_ledger_sums_exactly(family: str, budget: str, name: str, candidate: Candidate) -> None:
    env = candidate(family, "nano", budget)
    epsilon = env.family.epsilon
    trace = play(policy(name), env, Form.AGENTIC, 1)
    score, ledger = score_trace(trace), regret_ledger(trace)
    if epsilon == 0:
        ledger.check()
        unclipped = Fraction(score.detail["u"] - env.solution.u_zero, env.solution.span)
        regrets = sum(Fraction(row.regret or 0, ledger.span) for row in ledger.rows)
        assert regrets + Fraction(ledger.end, ledger.span) == 1 - unclipped
    assert sum(ledger.losses().values()) == 1
    assert (ledger.u, ledger.u_star, ledger.u_zero) == (
        score.detail["u"],
        env.solution.u_star,
        env.solution.u_zero,
    )
    assert ledger.end >= -epsilon
    for row, turn in zip(ledger.rows, trace.turns, strict=True):
        assert (row.regret is not None) == (row.kind == "decision") == (turn.kind == "decision")
        assert (row.credit is not None) == (row.kind == "probe")
        if row.kind == "decision":
            assert row.regret is not None
            assert row.information is not None
            assert row.regret >= -epsilon
            assert row.information >= -epsilon
            assert row.regret == row.information + (row.planning or 0)
            assert row.value_before - row.gain - row.value_after == row.regret
        else:
            assert row.value_before == row.value_after
    if name == "optimal":
        assert (score.reward, sum(row.regret or 0 for row in ledger.rows) + ledger.end) == (1.0, 0)
    if name == "default":
        assert score.reward == 0.0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["random", "myopic", "optimal"])
def test_who_knows_everything_loses_nothing_to_information(
    family: str, name: str, candidate: Candidate
) -> None:
    env = candidate(family, "small", index=1)
    losses = regret_ledger(play(POLICIES[name], env, Form.INFORMED, 2)).losses()
    epsilon = Fraction(env.family.epsilon, env.solution.span)
    assert abs(losses["information"]) <= epsilon
    assert abs(sum(losses.values()) - 1) == 0
    if name == "optimal":
        assert abs(losses["planning"]) <= epsilon
        assert abs(losses["execution"]) <= epsilon


@pytest.mark.parametrize("family", FAMILIES)
def test_a_planner_without_probes_loses_to_information_alone(family: str, candidate: Candidate) -> None:
    env = candidate(family, "small")
    losses = regret_ledger(play(POLICIES["plan"], env, Form.AGENTIC, 0)).losses()
    assert losses["planning"] == 0
    assert losses["information"] + losses["execution"] == 1 - losses["score"]


@pytest.mark.parametrize("family", FAMILIES)
def test_probe_credits_add_up_to_what_the_planner_gains(family: str, candidate: Candidate) -> None:
    """Before the first decision, credits telescope: w(s, all) - w(s, none), which is u_star - w(s, none)."""
    env = candidate(family, "nano")
    keys = env.family.probe_keys(env.theta)
    episode = env.episode("A")
    for key in keys:
        episode.call(*episode.write(Probe(key)))
    if keys:
        episode.call(*episode.write(Probe(keys[0])))
    ledger = regret_ledger(episode.trace(), information=False)
    start = env.family.start(env.theta)
    before = planner_earnings(env.family, env.theta, start, {})
    after = planner_earnings(
        env.family, env.theta, start, {key: env.family.hidden(env.theta)[key] for key in keys}
    )
    assert sum(row.credit or 0 for row in ledger.rows) == after - before
    if len(keys) == len(env.family.keys(env.theta)):
        assert env.solution.u_star - env.family.epsilon <= after <= env.solution.u_star
    if keys:
        assert ledger.rows[-1].credit == 0  # a second probe of the same entry teaches nothing
    assert all(row.credit is None for row in regret_ledger(episode.trace(), credit=False).rows)


def test_a_ledger_by_hand(candidate: Candidate) -> None:
    """Worths 9, 7, 5, 3 and 8, 6, 1, 0 in two periods, 3 units: the optimum 9 + 8 + 7 = 24 releases 2, then 1."""
    env = candidate("rationing", "small", "ample")
    family = env.family
    theta = family.build({"value": [[9, 5], [8, 1]], "budget": 3, "limit": 2, "decline": 2})
    hand = dataclasses.replace(env, theta=theta, solution=family.solve(theta))
    assert (hand.solution.u_star, hand.solution.u_zero) == (24, 23)
    episode = hand.episode("A")
    for call in (Probe(("value", 0, 0)), Action("spend", (3,)), Action("spend", (0,))):
        episode.call(*episode.write(call))
    ledger = regret_ledger(episode.trace())
    # Releasing 3 at once earns 9 + 7 + 5 = 21, and nothing is left for the 8: a regret of 24 - 21 - 0.
    assert [row.regret for row in ledger.rows] == [None, 3, 0]
    assert [(row.value_before, row.gain, row.value_after) for row in ledger.rows] == [
        (24, 0, 24),
        (24, 21, 0),
        (0, 0, 0),
    ]
    assert (ledger.end, ledger.u) == (0, 21)
    assert ledger.losses()["score"] == -2
    stopped = hand.episode("A")
    stopped.call(*stopped.write(Action("spend", (0,))))
    stopped.stop()
    # Nothing released in the first period leaves 8 + 6 + 1 = 15; stopping then forgoes them all.
    ledger = regret_ledger(stopped.trace())
    assert ([row.regret for row in ledger.rows], ledger.end, ledger.u) == ([24 - 15], 15, 0)


def test_the_planner_stops_where_nothing_is_left(environment: Environment) -> None:
    family, theta = environment.family, environment.theta
    state = family.start(theta)
    for action in environment.solution.plan:
        state = family.play(theta, state, action)[0]
    if not family.legal(theta, state):
        assert planned(family, theta, state) is None
    assert planner_earnings(family, theta, state, family.hidden(theta)) == family.value_to_go(theta, state)


# --- one number a call ------------------------------------------------------------------------------------
@pytest.mark.parametrize("stops", [None, 1, 3])
@pytest.mark.parametrize("name", ["random", "probe-2", "optimal"])
def test_rewards_of_the_calls_sum_to_what_they_share_out(
    environment: Environment, name: str, stops: int | None
) -> None:
    env = environment
    trace = play(policy(name), env, Form.AGENTIC, 3)
    left = bool(stops)
    if left:
        trace = dataclasses.replace(
            trace, turns=trace.turns[: stops if len(trace.turns) > stops else 1], stop=StopReason.STOPPED
        )
    score, ledger = score_trace(trace), regret_ledger(trace)
    shares = {kind: call_rewards(trace, kind) for kind in REWARD_KINDS}
    assert len(shares["outcome"]) == len(trace.turns)
    further = {len(share) - len(trace.turns) for kind, share in shares.items() if kind != "outcome"}
    assert further == {int(left)}  # leaving is owed to what was said in the place of a call
    assert shares["outcome"][:-1] == [0.0] * (len(trace.turns) - 1)
    assert sum(shares["outcome"]) == score.reward
    assert sum(shares["progress"]) == pytest.approx(score.detail["u"] / env.solution.span)
    if env.family.epsilon == 0:
        assert sum(shares["regret"]) == pytest.approx(score.detail["unclipped"] - 1)
    credit = sum(row.credit or 0 for row in ledger.rows) / ledger.span
    assert sum(shares["regret+credit"]) == pytest.approx(sum(shares["regret"]) + credit)
    quiet = [
        r for r, turn in zip(shares["regret"][:-1], trace.turns, strict=False) if turn.kind != "decision"
    ]
    assert quiet == [0.0] * len(quiet)


def test_leaving_costs_what_is_still_to_be_had_and_the_call_before_nothing() -> None:
    """The optimal plan (2, 0, 2, 0) left after one decision: no regret in the call, all of it in the end."""
    env = build_candidate(Recipe("rationing", "nano", index=0, split="test", setter="terse"))
    episode = env.episode("I")
    for action in env.solution.plan[:1]:
        episode.call(*episode.write(action))
    episode.stop()
    *calls, leaving = episode.rewards("regret")
    assert calls == [0.0]
    assert leaving == pytest.approx(episode.score().detail["unclipped"] - 1)
    assert leaving < 0


def test_an_unknown_reward_kind_is_named_and_no_calls_get_no_rewards(environment: Environment) -> None:
    trace = environment.episode("A").trace()
    assert [call_rewards(trace, kind) for kind in REWARD_KINDS] == [[]] * len(REWARD_KINDS)
    with pytest.raises(ValueError, match="unknown reward kind 'dense': choose one of outcome, progress"):
        call_rewards(trace, "dense")


# --- scoring from a record --------------------------------------------------------------------------------
def recorded(trace: Trace) -> dict[str, Any]:
    return json.loads(canonical_json(trace_record(trace)))


@pytest.mark.parametrize("form", Form)
def test_a_record_scores_to_the_same_number_without_a_model(environment: Environment, form: Form) -> None:
    for name in ("random", "myopic"):
        trace = play(POLICIES[name], environment, form, 5)
        again = read_trace(recorded(trace))
        assert recorded(again) == recorded(trace)
        assert score_trace(again) == score_trace(trace)
        assert regret_ledger(again) == regret_ledger(trace)


def test_the_score_counts_calls_by_kind(candidate: Candidate) -> None:
    env = candidate("rationing")
    episode = env.episode("A")
    first = Probe(env.family.probe_keys(env.theta)[0])
    query = (env.spec.tools["query"].name, {"sql": "SELECT 1"})
    for call in (
        episode.write(first),
        episode.write(first),
        query,
        ("x", {}),
        episode.write(Action("spend", (1,))),
    ):
        episode.call(*call)
    detail = episode.score().detail
    counts = {
        kind: detail[kind] for kind in ("turns", "probes", "probes_new", "queries", "refused", "decisions")
    }
    assert counts == {"turns": 5, "probes": 2, "probes_new": 1, "queries": 1, "refused": 1, "decisions": 1}
    assert detail["probes_possible"] == len(env.family.probe_keys(env.theta))
    assert detail["stop"] == "stopped"


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gain": lambda r: r["turns"][1]["detail"].update(gain=10**6),
    "gain is no number": lambda r: r["turns"][1]["detail"].update(gain="many"),
    "no gain": lambda r: r["turns"][1]["detail"].pop("gain"),
    "illegal action": lambda r: r["turns"][1]["detail"].update(action=["spend", 10**6]),
    "unknown action": lambda r: r["turns"][1]["detail"].update(action=["grab", 1]),
    "no action": lambda r: r["turns"][1]["detail"].pop("action"),
    "empty action": lambda r: r["turns"][1]["detail"].update(action=[]),
    "action is no list": lambda r: r["turns"][1]["detail"].update(action=7),
    "action of text": lambda r: r["turns"][1]["detail"].update(action=["spend", "1"]),
    "a decision is lost": lambda r: r["turns"][1].update(kind="query"),
    "told value": lambda r: r["turns"][0]["detail"].update(value=10**6),
    "no told value": lambda r: r["turns"][0]["detail"].pop("value"),
    "unknown entry": lambda r: r["turns"][0]["detail"].update(key=["value", 99, 0]),
    "entry of lists": lambda r: r["turns"][0]["detail"].update(key=[["value"], 0, 0]),
    "no entry": lambda r: r["turns"][0]["detail"].update(key=None),
    "unknown family": lambda r: r["header"].update(family="nothing"),
    "family is a list": lambda r: r["header"].update(family=[]),
    "no theta": lambda r: r["header"].pop("theta"),
    "theta is text": lambda r: r["header"].update(theta="text"),
    "theta is null": lambda r: r["header"].update(theta=None),
    "theta is cut": lambda r: r["header"]["theta"].update(value=r["header"]["theta"]["value"][:-1]),
    "theta is ragged": lambda r: r["header"]["theta"]["value"][0].pop(),
    "theta is negative": lambda r: r["header"]["theta"].update(budget=-5),
    "theta holds a float": lambda r: r["header"]["theta"].update(budget=2.5),
    "no u_star": lambda r: r["header"].pop("u_star"),
    "u_star is text": lambda r: r["header"].update(u_star="high"),
    "u_star is endless": lambda r: r["header"].update(u_star=float("inf")),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_trace_is_named_and_never_scored(kind: str, candidate: Candidate) -> None:
    env = candidate("rationing")
    episode = env.episode("A")
    for call in (Probe(("value", 0, 0)), *(Action("spend", (1,)) for _ in range(4))):
        episode.call(*episode.write(call))
    record = recorded(episode.trace())
    score_trace(read_trace(record))
    DAMAGE[kind](record)
    trace = read_trace(record)
    for use in (score_trace, regret_ledger, lambda trace: call_rewards(trace, "progress")):
        with pytest.raises(RecordError):
            use(trace)


def test_rewards_differ_between_policies_as_they_should(candidate: Candidate) -> None:
    """Means over instances, in the order that the theory gives them: default, plan blindly, probe all, optimal."""
    instances = [candidate("rationing", "small", index=3 * i) for i in range(6)]
    means = {}
    for name in ("default", "plan", "probe-all", "optimal"):
        scores = [
            score_trace(play(policy(name), env, Form.AGENTIC, 0)).detail["unclipped"] for env in instances
        ]
        means[name] = np.mean(scores)
    assert means["default"] == 0
    assert means["default"] < means["plan"] < means["probe-all"] == means["optimal"] == 1
