"""A store as an episode: hostile calls, hidden demand, rewards, replay, managers, memory over thousands of calls."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.episode import load_traces, save_trace
from truthfirst.policies import roll_out
from truthfirst.records import RecordError
from truthfirst.store import managers, tools
from truthfirst.store.environment import Environment, build_environment, rebuild
from truthfirst.store.score import call_rewards, replay, score_trace
from truthfirst.store.theta import StoreError, Theta
from truthfirst.types import StopReason


@pytest.fixture(scope="module")
def small() -> Environment:
    return build_environment(1, days=28, goods=2)


@pytest.fixture(scope="module")
def traces(small):
    return {name: roll_out(policy, [small.episode()])[0] for name, policy in managers.MANAGERS.items()}


def test_no_manager_exceeds_the_bound(traces):
    scores = {name: score_trace(trace) for name, trace in traces.items()}
    for name, score in scores.items():
        assert score.detail["u"] <= score.detail["u_bar"], name
        assert score.detail["refused"] == 0, name
    assert scores["closer"].detail["u"] == scores["closer"].detail["u_zero"]
    assert scores["planner"].reward >= 0.8


def test_skill_pays_in_a_longer_store():
    environment = build_environment(0, days=150, goods=3)
    names = ("planner", "surveyor", "idle")
    planner, surveyor, idle = (
        environment_score(environment, managers.manager(name)).reward for name in names
    )
    assert planner > surveyor > idle == 0
    with pytest.raises(ValueError, match="choose one of idle"):
        managers.manager("genius")


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_over_seeds(seed):
    environment = build_environment(seed, days=35, goods=3)
    for policy in managers.MANAGERS.values():
        score = environment_score(environment, policy)
        assert score.detail["u"] <= environment.bound.u_bar


def environment_score(environment, policy):
    return score_trace(roll_out(policy, [environment.episode()])[0])


def test_bankruptcy_ends_the_episode():
    environment = build_environment(0, days=90, goods=2)
    episode = environment.episode()
    managers.idle(episode)
    score = episode.score()
    assert episode.stop_reason is StopReason.COMPLETED
    assert score.detail["bankrupt"]
    assert score.detail["days"] < 90
    assert score.detail["u"] == -environment.terms.limit
    assert score.reward == 0
    assert "over" in episode.call("report", {})


HOSTILE = [
    ("order", {"good": "tea"}),
    ("order", {"good": "../etc", "units": 1}),
    ("order", {"good": ["tea"], "units": 1}),
    ("order", {"good": "GOOD", "units": -5}),
    ("order", {"good": "GOOD", "units": 10**30}),
    ("order", {"good": "GOOD", "units": 1.5}),
    ("order", {"good": "GOOD", "units": True}),
    ("order", {"good": "GOOD", "units": float("nan")}),
    ("order", {"good": "GOOD", "units": 10**8}),
    ("set_price", {"good": "GOOD", "price": 1}),
    ("set_staff", {"number": 10**6}),
    ("borrow", {"amount": 10**9}),
    ("repay", {"amount": 1}),
    ("next_day", {"days": 8}),
    ("next_day", {"days": 1, "more": 2}),
    ("next_day", "not json"),
    ("survey", {"good": "GOOD"}),
    ("close", {"now": True}),
    ("__init__", {}),
    ("mechanism", None),
    ("report", [1]),
]


@pytest.mark.parametrize(("name", "arguments"), HOSTILE)
def test_hostile_calls_are_refused_with_a_reason_and_change_nothing(small, name, arguments):
    if isinstance(arguments, dict) and arguments.get("good") == "GOOD":
        arguments = arguments | {"good": small.terms.goods[0].name}
    episode = small.episode()
    before = episode.state
    reply = episode.call(name, arguments)
    assert reply.startswith("Refused: ")
    assert len(reply) < 500
    assert episode.state == before
    assert episode.turns[-1].status == "refused"
    assert len(episode.turns) == 1  # it costs a turn all the same


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(calls=st.lists(st.tuples(st.sampled_from([*tools.KINDS, "x"]), ANYTHING), max_size=12))
def test_no_call_raises_and_every_call_costs_one_turn(small, calls):
    episode = small.episode()
    for name, arguments in calls:
        if not episode.done:
            made = len(episode.turns)
            assert isinstance(episode.call(name, arguments), str)
            assert len(episode.turns) == made + 1
    json.dumps(episode.trace().header)
    assert 0 <= episode.score().reward <= 1


def test_hidden_demand_changes_nothing_that_is_seen_before_the_first_day_ends(small):
    theta = small.theta
    other = Environment(
        Theta(theta.terms, tuple(tuple(tuple(u + 1 for u in g) for g in day) for day in theta.demand))
    )
    first, second = small.episode(), other.episode()
    assert first.view.prompt == second.view.prompt
    good = theta.terms.goods[0].name
    for name, arguments in (
        ("report", {}),
        ("history", {"good": good, "days": 5}),
        ("order", {"good": good, "units": 5}),
        ("set_staff", {"number": 2}),
    ):
        assert first.call(name, arguments) == second.call(name, arguments)
    assert not hasattr(first.position(), "theta")


def test_rewards_sum_to_the_score_and_regret_is_an_error(traces):
    for trace in traces.values():
        score = score_trace(trace)
        assert sum(call_rewards(trace, "progress")) == pytest.approx(score.detail["unclipped"])
        outcome = call_rewards(trace, "outcome")
        assert outcome[-1] == score.reward
        assert not any(outcome[:-1])
    with pytest.raises(ValueError, match="only bounded"):
        call_rewards(traces["idle"], "regret")
    with pytest.raises(ValueError, match="choose one of outcome, progress"):
        call_rewards(traces["idle"], "fame")


@pytest.mark.parametrize("name", ["surveyor", "over-expander"])
def test_replay_gives_the_same_trace_and_refuses_a_falsified_one(traces, name, tmp_path):
    save_trace(tmp_path / "traces.jsonl", traces[name])
    (read,) = load_traces(tmp_path / "traces.jsonl")
    assert replay(read).trace().turns == traces[name].turns
    with pytest.raises(RecordError, match="u_bar"):
        replay(replace(read, header=read.header | {"u_bar": read.header["u_bar"] - 1}))
    turn = replace(read.turns[0], reply="Sold everything.")
    with pytest.raises(RecordError, match="reply differs"):
        replay(replace(read, turns=(turn, *read.turns[1:])))


def test_a_recipe_gives_the_same_store_and_only_at_its_revision(small):
    assert rebuild(small.recipe).id == small.id
    with pytest.raises(StoreError, match="revision"):
        rebuild(small.recipe | {"revision": 0})
    with pytest.raises(ValueError, match="form A only"):
        small.episode("F")


def test_spent_turns_close_the_store_on_that_day():
    environment = build_environment(1, days=28, goods=2, calls=3)
    episode = environment.episode()
    for _ in range(3):
        episode.call("next_day", {"days": 1})
    assert episode.stop_reason is StopReason.BUDGET
    assert episode.score().detail["days"] == 3
    assert episode.score().detail["u"] == episode.state.cash


def test_thousands_of_calls_stay_within_a_few_kilobytes_each():
    """Queries with long replies and a day in between now and then: memory is bounded by the number of calls."""
    environment = build_environment(2, days=120, goods=3, calls=4_000)
    good = environment.terms.goods[0].name
    episode = environment.episode()
    tracemalloc.start()
    try:
        for number in range(4_000):
            name, arguments = (("report", {}), ("history", {"good": good, "days": 28}), ("news", {}))[
                number % 3
            ]
            if number % 100 == 99:
                name, arguments = "next_day", {"days": 1}
            episode.call(name, arguments)
            if episode.done:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(episode.turns) >= 1_000
    assert peak < 4_096 * len(episode.turns) + 4 * 2**20
