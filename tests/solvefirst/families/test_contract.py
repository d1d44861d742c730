"""The contract of families/base.py, held by every family at every size."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
import pytest

from truthfirst.solvefirst.families import FAMILIES, ROLES, SIZES, UnknownName, family
from truthfirst.solvefirst.families.base import (
    Action,
    Family,
    IllegalAction,
    Key,
    Solution,
    State,
    Theta,
    entry,
    enumerate_optimum,
)
from truthfirst.solvefirst.solve import solve_model
from truthfirst.streams import stream

CASES = [(name, size) for name, member in FAMILIES.items() for size in member.sizes]
MODELLED = [(name, size) for name, size in CASES if FAMILIES[name].model and size in ("nano", "small")]
every_case = pytest.mark.parametrize(("name", "size"), CASES)
every_family = pytest.mark.parametrize("name", FAMILIES)


@functools.lru_cache(maxsize=512)
def sampled(name: str, size: str, index: int = 0) -> Theta:
    return FAMILIES[name].sample(stream(0, "test-contract", name, size, index), size)


@functools.lru_cache(maxsize=512)
def solved(name: str, size: str, index: int = 0) -> Solution:
    return FAMILIES[name].solve(sampled(name, size, index))


def random_play(
    member: Family, theta: Theta, seed: int
) -> Iterator[tuple[State, Action, int, dict[Key, int], State]]:
    """Yield (state, action, gain, shown, state after) of a play in which every verb and choice is drawn at random."""
    rng = np.random.default_rng(seed)
    state = member.start(theta)
    while moves := [move for move in member.legal(theta, state) if len(move)]:
        move = moves[int(rng.integers(len(moves)))]
        action = Action(move.verb, tuple(int(rng.choice(list(allowed))) for allowed in move.choices))
        after, gain, shown = member.play(theta, state, action)
        yield state, action, gain, shown, after
        state = after


def actions(member: Family, theta: Theta, state: State, most: int = 60) -> list[Action]:
    """List legal actions: all of them, or `most` spread evenly over all."""
    every = list(itertools.islice(itertools.chain.from_iterable(member.legal(theta, state)), 5_000))
    return (
        every if len(every) <= most else [every[i] for i in np.linspace(0, len(every) - 1, most).astype(int)]
    )


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from flat(part)
    else:
        yield value


# --- the table --------------------------------------------------------------------------------------------
def test_the_table_names_every_family_once_and_gives_it_a_part() -> None:
    assert all(name == member.name for name, member in FAMILIES.items())
    assert set(ROLES.values()) <= {"trained", "near", "far", "unseen"}
    assert [name for name, part in ROLES.items() if part == "trained"] == [
        name for name in ("rationing", "lot_sizing", "pricing") if name in FAMILIES
    ]
    assert len({member.title for member in FAMILIES.values()}) == len(FAMILIES)


@pytest.mark.parametrize("name", ["", "Rationing", "nothing", None, 7, [], "rationing "])
def test_an_unknown_family_is_answered_with_those_there_are(name: Any) -> None:
    with pytest.raises(UnknownName, match=r"unknown family .*: choose one of rationing"):
        family(name)


@every_family
def test_an_unknown_size_is_answered_with_those_there_are(name: str) -> None:
    member = FAMILIES[name]
    assert set(SIZES) <= set(member.sizes)
    for size in ("tiny", "", "NANO"):
        with pytest.raises(UnknownName, match=f"unknown size of {name} {size!r}: choose one of nano, small"):
            member.sample(stream(0, "x"), size)


# --- sampling ---------------------------------------------------------------------------------------------
@every_case
def test_a_stream_fixes_theta_and_theta_is_integers_only(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    again = member.sample(stream(0, "test-contract", name, size, 0), size)
    assert again == theta
    assert hash(again) == hash(theta)
    for field in dataclasses.fields(theta):
        value = getattr(theta, field.name)
        assert isinstance(value, (tuple, int)), field.name
        assert all(type(part) is int for part in flat(value)), field.name
    assert sampled(name, size, 1) != theta
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(theta, dataclasses.fields(theta)[0].name, 0)


@every_case
def test_theta_survives_json(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    assert member.build(json.loads(json.dumps(member.to_json(theta)))) == theta


@every_case
def test_counts_name_every_entity_and_shape_every_field(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    counts = member.counts(theta)
    assert list(counts) == [entity.kind for entity in member.interface.entities]
    assert all(count >= 1 for count in counts.values())
    for field in member.interface.fields:
        table = getattr(theta, field.name)
        assert len(list(flat(table))) == np.prod([counts[kind] for kind in field.index])
        for key in member.keys(theta, [field]):
            assert isinstance(entry(theta, key), Integral)


def test_long_needs_at_least_60_turns_to_learn_and_decide() -> None:
    for name in FAMILIES:
        member, theta = FAMILIES[name], sampled(name, "long")
        turns = len(solved(name, "long").plan) + len(member.probe_keys(theta))
        if not member.interface.probes:
            turns = member.horizon(theta)  # entries are learnt by paid decisions
        assert turns >= 60, (name, turns)


def test_sizes_grow() -> None:
    for name, member in FAMILIES.items():
        hidden = [
            len(member.keys(sampled(name, size))) for size in ("nano", "small", "medium", "large", "huge")
        ]
        assert hidden == sorted(hidden), name
        assert hidden[0] < hidden[-1], name


# --- the optimum ------------------------------------------------------------------------------------------
@every_case
def test_the_plan_earns_what_the_solver_says(name: str, size: str) -> None:
    member, theta, solution = FAMILIES[name], sampled(name, size), solved(name, size)
    state, total = member.start(theta), 0
    for action in solution.plan:
        assert member.is_legal(theta, state, action)
        state, gain, _ = member.step(theta, state, action)
        assert type(gain) is int
        total += gain
    assert total + member.abandon(theta, state) == solution.u_star
    assert len(solution.plan) <= member.horizon(theta)
    assert member.solve(theta) == solution


@every_case
def test_the_baseline_plays_to_the_end_and_earns_u_zero(name: str, size: str) -> None:
    member, theta, solution = FAMILIES[name], sampled(name, size), solved(name, size)
    u_zero, plan = member.follow(theta, member.default)
    assert u_zero == solution.u_zero == member.replay(theta, plan)
    assert u_zero <= solution.u_star


@every_case
def test_an_independent_bound_certifies_the_optimum(name: str, size: str) -> None:
    member = FAMILIES[name]
    for index in range(3 if size in ("nano", "small") else 1):
        u_star = solved(name, size, index).u_star
        assert u_star <= member.bound(sampled(name, size, index)) <= u_star + member.epsilon


def test_only_numerical_optimisation_does_without_a_pulp_model() -> None:
    without = {name: member.solver for name, member in FAMILIES.items() if member.model is None}
    assert set(without.values()) <= {"numerical optimisation"}, without


@pytest.mark.parametrize(("name", "size"), MODELLED)
def test_the_pulp_model_certifies_the_optimum(name: str, size: str) -> None:
    member = FAMILIES[name]
    assert member.model is not None
    for index in range(2 if size == "nano" else 1):
        value = solve_model(member.model(sampled(name, size, index)))
        u_star = solved(name, size, index).u_star
        assert u_star - 1e-6 <= value <= u_star + member.epsilon + 1e-6


@every_family
def test_brute_force_certifies_the_optimum_at_nano_size(name: str) -> None:
    for index in range(2):
        best = enumerate_optimum(FAMILIES[name], sampled(name, "nano", index))
        u_star = solved(name, "nano", index).u_star
        assert u_star <= best <= u_star + FAMILIES[name].epsilon


@pytest.mark.parametrize(("name", "size"), [case for case in CASES if case[1] in SIZES])
def test_most_instances_have_the_margin(name: str, size: str) -> None:
    draws = {"nano": 12, "small": 8}.get(size, 3)
    kept = [solved(name, size, i).span >= solved(name, size, i).required_margin for i in range(draws)]
    assert sum(kept) >= draws / 2


def test_the_required_margin_is_2_or_5_percent() -> None:
    wanted = {0: 2, 10: 2, 40: 2, 41: 3, -41: 3, 100: 5, 101: 6, -1000: 50}
    assert {u: Solution(u, 0, ()).required_margin for u in wanted} == wanted


# --- the dynamics -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "size"), [case for case in CASES if case[1] in ("nano", "small", "long")])
def test_value_to_go_obeys_bellman(name: str, size: str) -> None:
    """V(s) >= gain + V(s') for legal actions, with equality for at least one, and V(s) >= what stopping gives."""
    member, theta = FAMILIES[name], sampled(name, size)
    most = {"nano": 60, "small": 6, "long": 2}[size]
    plays = {"nano": 3, "small": 1, "long": 1}[size]
    for seed in range(plays):
        for number, (state, action, _, _, _) in enumerate(random_play(member, theta, seed)):
            if size == "long" and number % 6:
                continue
            best = member.optimum(member.residual(theta, state))
            reached = [member.abandon(theta, state)]
            for choice in {action, *best.plan[:1], *actions(member, theta, state, most)}:
                after, gain, _ = member.play(theta, state, choice)
                reached.append(gain + member.value_to_go(theta, after))
            assert best.value - member.epsilon <= max(reached) <= best.value + member.epsilon


@every_case
def test_the_regrets_of_random_play_sum_to_what_it_misses(name: str, size: str) -> None:
    member, theta, u_star = FAMILIES[name], sampled(name, size), solved(name, size).u_star
    values, gains, state = [u_star], [], member.start(theta)
    for _, _, gain, _, after in itertools.islice(random_play(member, theta, 7), 8):
        gains.append(gain)
        values.append(member.value_to_go(theta, after))
        state = after
    regrets = [values[t] - gain - values[t + 1] for t, gain in enumerate(gains)]
    end = values[-1] - member.abandon(theta, state)
    assert min(regrets) >= -member.epsilon
    assert end >= -member.epsilon
    assert sum(regrets) + end == u_star - (sum(gains) + member.abandon(theta, state))


@every_case
def test_residuals_are_the_rest_of_the_problem(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    begin = member.start(theta)
    assert member.optimum(member.residual(theta, begin)).value == solved(name, size).u_star
    end = begin
    for number, (state, *_, after) in enumerate(random_play(member, theta, 11)):
        end = after
        if number % 3:
            continue
        rest = member.residual(theta, state)
        assert type(rest) is type(theta)
        assert member.abandon(rest, member.start(rest)) == member.abandon(theta, state)
        plan, here, total = member.optimum(rest).plan, state, 0
        for action in plan:  # a plan of the residual is a plan of the whole
            here, gain, _ = member.play(theta, here, action)
            total += gain
        assert total + member.abandon(theta, here) == member.optimum(rest).value
    assert member.legal(theta, end) == ()
    over = member.residual(theta, end)
    assert member.optimum(over) == (member.abandon(theta, end), ())
    assert member.bound(over) == member.abandon(theta, end)


@every_case
def test_every_play_ends_and_may_stop_at_any_time(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    length = 0
    for state, _, gain, _, _ in itertools.islice(random_play(member, theta, 3), 2_000):
        length += 1
        assert type(gain) is int
        assert type(member.abandon(theta, state)) is int
    assert 1 <= length < 2_000


@every_case
def test_the_horizon_falls_and_always_fits_an_optimal_plan(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    left = [member.horizon(theta)]
    for number, (*_, after) in enumerate(itertools.islice(random_play(member, theta, 4), 200)):
        rest = member.residual(theta, after)
        left.append(member.horizon(rest))
        if number % 4 == 0:
            assert len(member.optimum(rest).plan) <= left[-1]
    assert left == sorted(left, reverse=True)
    assert left[-1] < left[0]


@every_family
def test_abandon_is_consistent_with_replaying_every_prefix(name: str) -> None:
    member, theta = FAMILIES[name], sampled(name, "small")
    plan, total, state = [], 0, member.start(theta)
    assert member.replay(theta, []) == member.abandon(theta, state)
    for _, action, gain, _, after in random_play(member, theta, 5):
        plan.append(action)
        total += gain
        assert (
            member.replay(theta, plan) == total + member.abandon(theta, after) <= solved(name, "small").u_star
        )


@every_family
def test_an_illegal_action_raises(name: str) -> None:
    member, theta = FAMILIES[name], sampled(name, "nano")
    for verb in member.interface.verbs:
        for args in ((-1,) * len(verb.slots), (10**9,) * len(verb.slots), (0,) * (len(verb.slots) + 1)):
            action = Action(verb.name, args)
            if verb.slots or args:
                assert not member.is_legal(theta, member.start(theta), action)
                with pytest.raises(IllegalAction, match=name):
                    member.play(theta, member.start(theta), action)
    with pytest.raises(IllegalAction):
        member.replay(theta, [Action("no such verb")])


# --- what is hidden ---------------------------------------------------------------------------------------
@every_case
def test_redrawing_what_is_unknown_changes_nothing_an_agent_may_see(name: str, size: str) -> None:
    """Along a play, `legal`, `default` and `observe` are the same for every theta that agrees on what was shown."""
    member, theta = FAMILIES[name], sampled(name, size)
    rng = np.random.default_rng(0)
    known: dict[Key, int] = {}
    seed = next(s for s in range(9) if any(shown for *_, shown, _ in random_play(member, theta, s)))
    for state, action, gain, shown, after in itertools.islice(random_play(member, theta, seed), 10):
        twin = member.redraw(theta, rng, keep=known)
        member.validate(twin)
        assert {key: entry(twin, key) for key in known} == known
        assert member.legal(twin, state) == member.legal(theta, state)
        assert member.default(twin, state) == member.default(theta, state)
        assert member.observe(twin, state) == member.observe(theta, state)
        assert member.is_legal(theta, state, member.default(theta, state))
        known |= shown
        # whoever knows what was shown knows what the action did
        told = member.redraw(theta, rng, keep=known)
        assert member.step(told, state, action) == (after, gain, shown)
    assert {key: entry(theta, key) for key in known} == known


@every_case
def test_redrawing_changes_hidden_entries_and_nothing_else(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    keys = member.keys(theta)
    assert keys == list(member.hidden(theta)) == list(member.prior(theta))
    assert len(set(keys)) == len(keys) >= len(member.probe_keys(theta))
    twin = member.redraw(theta, np.random.default_rng(1), keep={keys[0]: entry(theta, keys[0])})
    assert twin != theta
    assert entry(twin, keys[0]) == entry(theta, keys[0])
    hidden = {field.name for field in member.interface.hidden_fields}
    for field in dataclasses.fields(theta):
        if field.name not in hidden:
            assert getattr(twin, field.name) == getattr(theta, field.name)


@every_case
def test_priors_enclose_the_truth_and_leave_something_to_learn(name: str, size: str) -> None:
    member, theta = FAMILIES[name], sampled(name, size)
    for key, (low, high, mean) in member.prior(theta).items():
        assert low <= entry(theta, key) <= high
        assert low <= mean <= high
    assert any(low < high for low, high, _ in member.prior(theta).values())
    expected = member.expected(theta, {})
    member.validate(expected)
    assert member.hidden(expected) == {key: mean for key, (_, _, mean) in member.prior(theta).items()}
    assert member.expected(theta, member.hidden(theta)) == theta


def test_prior_means_are_about_right() -> None:
    """Published means are those of the entries, so that planning with them is planning with expectations."""
    for name, member in FAMILIES.items():
        for field in member.interface.hidden_fields:
            gaps, widths = [], []
            for index in range(8):
                theta = sampled(name, "small", index)
                for key in member.keys(theta, [field]):
                    low, high, mean = member.prior(theta)[key]
                    gaps.append(entry(theta, key) - mean)
                    widths.append(high - low)
            assert abs(np.mean(gaps)) <= 0.15 * np.mean(widths), (name, field.name)


# --- the interface ----------------------------------------------------------------------------------------
@every_family
def test_texts_state_every_fact_scalar_and_verb(name: str) -> None:
    member = FAMILIES[name]
    face, texts = member.interface, member.texts
    assert all("{" + fact.name + "}" in texts.status for fact in face.facts)
    assert set(texts.outcomes) == {verb.name for verb in face.verbs}
    for verb in face.verbs:
        assert "{gain}" in texts.outcomes[verb.name]
        assert all("{" + slot.name + "}" in texts.outcomes[verb.name] for slot in verb.slots)
    for alternative in range(min(map(len, texts.rules))):
        told = " ".join(options[alternative] for options in texts.rules)
        assert all("{tool_" + verb.name + "}" in told for verb in face.verbs), alternative
        public = [field for field in face.fields if not field.hidden]
        for field in (*public, *face.scalars):
            assert "{" + field.name + "}" in told or "{label_" + field.name + "}" in told, (
                alternative,
                field.name,
            )
    assert all(len(options) >= 2 for options in (*texts.rules, texts.goal))


@every_family
def test_facts_are_observed_as_integers(name: str) -> None:
    member, theta = FAMILIES[name], sampled(name, "nano")
    wanted = [fact.name for fact in member.interface.facts]
    for *_, after in random_play(member, theta, 1):
        if member.legal(theta, after):
            facts = member.observe(theta, after)
            assert list(facts) == wanted
            assert all(type(value) is int for value in facts.values())
