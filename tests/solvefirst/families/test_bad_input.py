"""Parameters that break an assumption: refused in `sample` and in `build`, naming the field; solvers that time out."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from truthfirst.solvefirst import certificates
from truthfirst.solvefirst.certify import prove, summary
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import ThetaError
from truthfirst.solvefirst.solve import SolverTimeout, solve_model
from truthfirst.streams import stream

NEGATIVE = {  # a field of each family that must not be negative, and an entry of a table in each
    "rationing": ("value", "decline"),
    "lot_sizing": ("demand", "holding", "stock", "setup"),
    "pricing": ("demand", "salvage", "price"),
    "storage": ("buy_price", "sell_price", "loss", "level"),
    "scheduling": ("duration", "clock", "weight", "due"),
    "orienteering": ("prize", "base_time", "travel_time"),
    "timed_selection": ("value", "switching", "fee"),
    "replacement": ("upkeep", "price", "resale"),
    "search": ("prize", "fee"),
    "knapsack": ("value", "need", "capacity"),
    "assignment": ("value",),
    "transport": ("cost", "supply", "need", "shortage"),
    "harvest": ("price", "effort", "growth", "salvage"),
    "project_selection": ("cash", "cost", "fund"),
    "bidding": ("rival_bid", "worth", "budget"),
    "facility": ("service", "opening"),
    "advertising": ("strength", "budget"),
}
EMPTY = {  # the table whose outer index is the horizon, or what is chosen from
    "rationing": "value",
    "lot_sizing": "demand",
    "pricing": "demand",
    "storage": "buy_price",
    "scheduling": "duration",
    "orienteering": "prize",
    "timed_selection": "value",
    "replacement": "periods",
    "search": "prize",
    "knapsack": "value",
    "assignment": "value",
    "transport": "cost",
    "harvest": "price",
    "project_selection": "cash",
    "bidding": "rival_bid",
    "facility": "service",
    "advertising": "strength",
}
INFEASIBLE = {  # no decision would be possible, or none of use
    "rationing": ("budget", 0),
    "lot_sizing": ("capacity", [0, 0, 0, 0]),
    "pricing": ("stock", 0),
    "storage": ("capacity", 0),
    "orienteering": ("limit", 0),
    "timed_selection": ("budget", 0),
    "knapsack": ("capacity", [9]),  # one resource where there are two
    "transport": ("supply", [0, 0, 0]),
    "harvest": ("stock", 10**6),
    "bidding": ("budget", 0),
    "advertising": ("budget", 0),
}
TWICE = {
    "assignment": ("busy", [1, 1]),
    "facility": ("opened", [0, 0]),
    "project_selection": ("running", [1, 1]),
} | {
    "search": ("opened", [2, 2]),
    "scheduling": ("done", [0, 0]),
    "orienteering": ("visited", [3, 3]),
}


def data_of(name: str) -> dict[str, Any]:
    """Return a sound instance as plain data, mutable throughout."""
    theta = FAMILIES[name].sample(stream(0, "bad-input", name), "nano")
    return json.loads(json.dumps(FAMILIES[name].to_json(theta)))


def first_entry(table: Any, change: Callable[[int], Any]) -> Any:
    """Return the table with its first entry changed, or the number itself changed."""
    return [first_entry(table[0], change), *table[1:]] if isinstance(table, list) else change(table)


def cases() -> Iterator[tuple[str, str, Any]]:
    for name in FAMILIES:
        data = data_of(name)
        for field in NEGATIVE[name]:
            yield name, field, first_entry(data[field], lambda value: -1 - abs(value))
            yield name, field, first_entry(data[field], lambda value: value + 0.5)
            yield name, field, first_entry(data[field], float)
        yield name, EMPTY[name], 0 if isinstance(data[EMPTY[name]], int) else []
        if name in INFEASIBLE:
            yield name, *INFEASIBLE[name]
        if name in TWICE:
            yield name, *TWICE[name]


CASES = list(cases())
every_case = pytest.mark.parametrize(
    ("name", "field", "value"), CASES, ids=[f"{name}-{field}-{k}" for k, (name, field, _) in enumerate(CASES)]
)


def test_every_family_is_tried() -> None:
    assert set(NEGATIVE) == set(EMPTY) == set(FAMILIES)
    assert len({(name, field) for name, field, _ in CASES}) >= 3 * len(FAMILIES)


@every_case
def test_a_published_instance_with_bad_input_names_the_field(name: str, field: str, value: Any) -> None:
    with pytest.raises(ThetaError) as caught:
        FAMILIES[name].build(data_of(name) | {field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} = ")


@every_case
def test_a_sampler_that_draws_bad_input_is_caught(name: str, field: str, value: Any) -> None:
    """`sample` validates what `draw` made: a sampler with a defect raises, and names the field."""
    member = FAMILIES[name]
    sound = member.build(data_of(name))
    broken = dataclasses.replace(sound, **{field: _tuples(value)})
    careless = dataclasses.replace(member, draw=lambda rng, **_: broken)
    with pytest.raises(ThetaError) as caught:
        careless.sample(stream(0, "x"), "nano")
    assert caught.value.field == field


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", FAMILIES)
def test_residual_problems_may_be_empty_or_short(name: str) -> None:
    """What `build` refuses is sound as the rest of a problem: played out, it is worth what the dynamics then give."""
    member = FAMILIES[name]
    theta = member.sample(stream(0, "bad-input", name), "nano")
    state = member.start(theta)
    while member.legal(theta, state):
        state, _, _ = member.play(theta, state, member.default(theta, state))
    assert member.value_to_go(theta, state) == member.abandon(theta, state)


# --- solvers that time out --------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_solver_that_runs_out_of_time_raises(solver: Any) -> None:
    member = FAMILIES["scheduling"]
    problem = member.model(member.sample(stream(0, "timeout"), "large"))  # type: ignore[misc]
    with pytest.raises(SolverTimeout, match=r"time limit of 0\.05 s") as caught:
        solve_model(problem, solver, time_limit=0.05)
    assert (caught.value.problem, caught.value.solver) == ("scheduling", solver)


def test_a_proof_that_times_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never dropped, never called proven: a row of its own, and a column of the summary."""
    import pandas as pd

    monkeypatch.setattr(certificates, "solve_model", functools.partial(solve_model, time_limit=1e-3))
    row = prove("scheduling", "small", 0)
    assert row["verdict"] == "timeout"
    assert "time limit" in str(row["evidence"])
    table = summary(pd.DataFrame([row | {"clears_margin": None}]))
    assert table.loc["scheduling", ["instances", "proven", "failed", "timeout"]].tolist() == [1, 0, 0, 1]
