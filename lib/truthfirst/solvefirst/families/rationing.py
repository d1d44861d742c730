"""Rationing: a budget spread over periods with diminishing returns.

Sets        periods t = 1..T, claimants i = 1..n
Parameters  value v[t,i] >= 0 of the first unit to claimant i in period t (hidden), decline d >= 0 of each
            further unit in the same period, limit c >= 1 units a claimant can take in a period, budget B >= 0
Decision    x[t], units released in period t, 0 <= x[t] <= min(n c, budget left)
Dynamics    the units of a period serve its best claims first: the gain of x units is the sum of the x largest
            of max(0, v[t,i] - d k), k = 0..c-1. The budget left falls by x[t]; then the next period opens.
Objective   maximise the total gain; unspent budget is worth nothing.

The gain of a period is concave in x[t], so this is separable concave resource allocation: dynamic programming
here, the Lagrangian dual (whose gap is zero) as the certificate.

Source: Gross, "A class of discrete type minimization problems", 1956; Ibaraki and Katoh, "Resource Allocation
Problems", 1988. The preset `source` has the 7 periods and 29 units of the VHD-Play trajectory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp

from .base import (
    Action,
    Entity,
    Family,
    Field,
    Interface,
    Key,
    Move,
    Optimum,
    Quantity,
    Slot,
    Texts,
    Verb,
    require,
    require_prior,
    require_table,
    skewed_table,
)


@dataclass(frozen=True, slots=True)
class Rationing:
    """Parameters; `value` has shape (T, n), in money; its prior is one triple a claimant."""

    value: tuple[tuple[int, ...], ...]
    value_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    budget: int
    limit: int
    decline: int


class State(NamedTuple):
    period: int
    budget: int


def draw(rng: np.random.Generator, periods: int, items: int, budget: int, limit: int, high: int) -> Rationing:
    """Claims are skewed: most are worth little, a few a lot. The first claimants are the weightier ones."""
    tops = [high - high * i // (2 * items) for i in range(items)]
    prior = tuple((0, top, top // 3) for top in tops)
    columns = [skewed_table(rng, triple, periods) for triple in prior]
    decline = int(rng.integers(1, max(1, high // (4 * limit)) + 1))
    return Rationing(tuple(zip(*columns, strict=True)), prior, budget, limit, decline)


def check(theta: Rationing) -> None:
    require(len(theta.value) >= 1, "value", theta.value, "needs at least one period")
    require(len(theta.value[0]) >= 1, "value", theta.value, "needs at least one claimant")
    require_table("value", theta.value, len(theta.value), len(theta.value[0]), low=0)
    require_prior("value_prior", theta.value_prior)
    require(theta.budget >= 1, "budget", theta.budget, "must be at least 1")
    require(theta.limit >= 1, "limit", theta.limit, "must be at least 1")
    require(theta.decline >= 0, "decline", theta.decline, "must be at least 0")


def counts(theta: Rationing) -> dict[str, int]:
    return {"period": len(theta.value), "item": len(theta.value[0]) if theta.value else 0}


def claims(theta: Rationing, period: int) -> list[int]:
    """Return the worth of every unit that period `period` can absorb, best first."""
    return sorted(
        (max(0, v - theta.decline * k) for v in theta.value[period] for k in range(theta.limit)), reverse=True
    )


def start(theta: Rationing) -> State:
    return State(0, theta.budget)


def legal(theta: Rationing, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.value):
        return ()
    most = min(state.budget, theta.limit * len(theta.value[0]))
    return (Move("spend", (range(most + 1),)),)


def step(theta: Rationing, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    (amount,) = action.args
    gain = sum(claims(theta, state.period)[:amount])
    shown: dict[Key, int] = {("value", state.period, i): v for i, v in enumerate(theta.value[state.period])}
    return State(state.period + 1, state.budget - amount), gain, shown


def default(theta: Rationing, state: State) -> Action:
    """Spread what is left evenly over the periods that are left."""
    share = state.budget // (len(theta.value) - state.period)
    return Action("spend", (min(share, theta.limit * len(theta.value[0])),))


def abandon(theta: Rationing, state: State) -> int:
    return 0


def residual(theta: Rationing, state: State) -> Rationing:
    return Rationing(theta.value[state.period :], theta.value_prior, state.budget, theta.limit, theta.decline)


def observe(theta: Rationing, state: State) -> dict[str, int]:
    return {"left": state.budget, "periods_left": len(theta.value) - state.period}


def optimum(theta: Rationing) -> Optimum:
    """Dynamic programme over (period, budget left), O(T B n c)."""
    after = np.zeros(theta.budget + 1, dtype=np.int64)
    choices = []
    for period in reversed(range(len(theta.value))):
        earned = np.concatenate(([0], np.cumsum(claims(theta, period))))
        best, choice = after.copy(), np.zeros(theta.budget + 1, dtype=np.int64)
        for amount in range(1, min(len(earned) - 1, theta.budget) + 1):
            candidate = earned[amount] + after[: theta.budget + 1 - amount]
            better = candidate > best[amount:]
            best[amount:][better] = candidate[better]
            choice[amount:][better] = amount
        after = best
        choices.append(choice)
    plan, left = [], theta.budget
    for choice in reversed(choices):
        plan.append(Action("spend", (int(choice[left]),)))
        left -= plan[-1].args[0]
    return Optimum(int(after[theta.budget]), tuple(plan))


def bound(theta: Rationing) -> int:
    """Weak duality at the price of the last unit: budget * price + what each claim is worth above it."""
    worths = sorted((w for t in range(len(theta.value)) for w in claims(theta, t)), reverse=True)
    price = worths[theta.budget - 1] if 0 < theta.budget <= len(worths) else 0
    if theta.budget == 0:
        return 0
    return theta.budget * price + sum(max(0, w - price) for w in worths)


def model(theta: Rationing) -> pulp.LpProblem:
    """LP with one variable in [0, 1] for every unit that could be released."""
    problem = pulp.LpProblem("rationing", pulp.LpMaximize)
    units = [
        (problem.add_variable(f"unit_{t}_{i}_{k}", lowBound=0, upBound=1), max(0, value - theta.decline * k))
        for t, row in enumerate(theta.value)
        for i, value in enumerate(row)
        for k in range(theta.limit)
    ]
    problem += pulp.lpSum(worth * unit for unit, worth in units)
    problem += pulp.lpSum(unit for unit, _ in units) <= theta.budget, "budget"
    return problem


FAMILY = Family(
    name="rationing",
    title="Rationing: a budget over periods with diminishing returns",
    coupling="budget",
    solver="dynamic programming",
    certificate="Lagrangian dual at the marginal unit's price",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(Quantity("budget", "goods"), Quantity("limit", "goods"), Quantity("decline", "money")),
        fields=(Field("value", ("period", "item"), "money", hidden=True),),
        facts=(Quantity("left", "goods"), Quantity("periods_left", "period")),
        verbs=(Verb("spend", (Slot("amount", unit="goods"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "There are {n_period} {periods}, taken in order. In each of them call {tool_spend} once; nothing "
                "released earlier comes back, and every {period} ends with that call.",
                "One call of {tool_spend} settles one {period}, {n_period} in all and in their order; a settled "
                "{period} is never reopened.",
                "Work through the {n_period} {periods} one after another: each is settled by a single "
                "{tool_spend}, for good.",
            ),
            (
                "You hold {budget} {goods} for all {n_period} {periods} together. Zero is a permitted amount.",
                "The whole stock for the {n_period} {periods} is {budget} {goods}; releasing none in some {period} "
                "is allowed.",
                "{budget} {goods} must last through every {period}; an amount of 0 is fine.",
            ),
            (
                "Within one {period} the {n_item} {items} are served in order of worth: whatever you release goes "
                "to the claim worth most, then to the next. One {item} takes at most {limit} {goods} in one "
                "{period}; a first unit is worth its {label_value}, and each further unit to the same {item} in "
                "the same {period} is worth {decline} {money} less than the unit before, never below 0.",
                "What you release in one {period} finds its own way to the best use among the {n_item} {items}. "
                "The first unit that any {item} gets is worth the {label_value} of that {item} in that {period}; every "
                "further one loses {decline} {money} of worth (never below 0), and no {item} takes more than "
                "{limit} {goods} in one {period}.",
                "The best claims come first, always: of the {n_item} {items}, each can take up to {limit} {goods} "
                "in one {period}. The {label_value} prices the first unit; unit by unit the worth to the same "
                "{item} drops by {decline} {money} within the {period}, with 0 as its floor.",
            ),
        ),
        goal=(
            "Earn as many {money} as you can over all {periods}; what is left at the end is worth nothing.",
            "What counts is the sum of {money} over every {period}. Unused {goods} are lost at the end.",
            "Success is measured in {money}, added up over the {n_period} {periods}; left-over {goods} count for "
            "nothing.",
        ),
        status="{goods} left: {left}; {periods} left: {periods_left}.",
        outcomes={"spend": "{goods} released: {amount}; {money} earned: {gain}."},
    ),
    sizes={
        "nano": {"periods": 4, "items": 1, "budget": 4, "limit": 3, "high": 9},
        "small": {"periods": 5, "items": 6, "budget": 12, "limit": 4, "high": 30},
        "medium": {"periods": 7, "items": 8, "budget": 16, "limit": 4, "high": 30},
        "large": {"periods": 9, "items": 9, "budget": 20, "limit": 4, "high": 40},
        "huge": {"periods": 11, "items": 11, "budget": 24, "limit": 4, "high": 40},
        "long": {"periods": 11, "items": 5, "budget": 24, "limit": 4, "high": 30},
        # as nano with more periods, for studies of horizon and of growing instances
        "nano5": {"periods": 5, "items": 1, "budget": 5, "limit": 3, "high": 9},
        "nano6": {"periods": 6, "items": 1, "budget": 6, "limit": 3, "high": 9},
        "nano8": {"periods": 8, "items": 1, "budget": 8, "limit": 3, "high": 9},
        "nano12": {"periods": 12, "items": 1, "budget": 12, "limit": 3, "high": 9},
        "nano16": {"periods": 16, "items": 1, "budget": 16, "limit": 3, "high": 9},
        "source": {"periods": 7, "items": 2, "budget": 29, "limit": 6, "high": 40},
    },
    theta_type=Rationing,
    draw=draw,
    check=check,
    optimum=optimum,
    bound=bound,
    start=start,
    legal=legal,
    step=step,
    default=default,
    abandon=abandon,
    residual=residual,
    counts=counts,
    observe=observe,
    horizon=lambda theta: len(theta.value),
    model=model,
)
