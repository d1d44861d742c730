"""Lot sizing: one plant, several customers, a charge for every period in which it runs.

Sets        periods t = 1..T, customers i = 1..n
Parameters  demand d[t,i] >= 0 of customer i in period t (hidden), setup charge K[t] >= 0, unit cost
            c[t] >= 0, capacity Q[t] >= 0, stock s >= 0 at the start, holding cost h >= 0 for each unit left
            at the end of a period, penalty p >= 0 for each unit of demand that is not met
Decision    x[t], units made at the beginning of period t, 0 <= x[t] <= Q[t]
Dynamics    with y = s + x[t] and D = d[t,1] + ... + d[t,n], min(y, D) units are delivered, max(0, D - y) are
            lost for good and s becomes max(0, y - D); units are alike, so it does not matter who goes short
Objective   maximise minus the total of K[t] [x[t] > 0] + c[t] x[t] + h max(0, y - D) + p max(0, D - y)

Nothing is won by stock beyond the demand that is still to come, which bounds the state. Since one penalty p
holds for all, a unit kept back from today's customers cannot save more than p later: the mixed integer models
below may let it be kept back and have the same optimum.

Source: Wagner and Whitin, "Dynamic version of the economic lot size model", Management Science 5, 1958 (no
capacity, no shortage); Florian and Klein, "Deterministic production planning with concave costs and capacity
constraints", Management Science 18, 1971; the disaggregated model of `bound`: Krarup and Bilde, "Plant
location, set covering and economic lot size", 1977.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp
from numpy.lib.stride_tricks import sliding_window_view
from scipy.optimize import Bounds, LinearConstraint, milp

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
    published,
    require,
    require_prior,
    require_table,
    skewed_table,
)


@dataclass(frozen=True, slots=True)
class LotSizing:
    """Parameters; `demand` has shape (T, n), in goods; its prior is one triple for all, or one a customer."""

    demand: tuple[tuple[int, ...], ...]
    demand_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    setup: tuple[int, ...]
    unit_cost: tuple[int, ...]
    capacity: tuple[int, ...]
    stock: int
    holding: int
    shortage: int


class State(NamedTuple):
    period: int
    stock: int


def draw(
    rng: np.random.Generator, periods: int, items: int, high: int, holding: int, shortage: int, setup: int
) -> LotSizing:
    """Draw skewed orders, `setup` periods' worth of holding as the usual charge, and room for two periods.

    high   most goods that the weightiest customer can want in a period
    setup  typical setup charge, in holding costs of one period's expected demand
    """
    tops = [max(2, high - high * i // (2 * items)) for i in range(items)]
    prior = tuple((0, top, max(1, top // 3)) for top in tops)
    demand = tuple(zip(*(skewed_table(rng, triple, periods) for triple in prior), strict=True))
    usual = sum(mean for _, _, mean in prior)
    charge = max(2, setup * holding * usual)
    return LotSizing(
        demand=demand,
        demand_prior=prior,
        setup=tuple(rng.integers(-(-charge // 2), charge * 3 // 2 + 1, periods).tolist()),
        unit_cost=tuple(rng.integers(1, max(2, shortage // 4) + 1, periods).tolist()),
        capacity=tuple(rng.integers(2 * usual + 1, 3 * usual + 2, periods).tolist()),
        stock=int(rng.integers(0, usual + 1)),
        holding=holding,
        shortage=shortage,
    )


def check(theta: LotSizing) -> None:
    require(len(theta.demand) >= 1, "demand", theta.demand, "needs at least one period")
    require(len(theta.demand[0]) >= 1, "demand", theta.demand, "needs at least one customer")
    periods, items = len(theta.demand), len(theta.demand[0])
    require_table("demand", theta.demand, periods, items, low=0)
    require_prior("demand_prior", theta.demand_prior)
    if isinstance(theta.demand_prior[0], tuple):
        found = len(theta.demand_prior)
        require(found == items, "demand_prior", found, f"expected one triple for each of {items} customers")
    for name in ("setup", "unit_cost", "capacity"):
        require_table(name, getattr(theta, name), periods, low=0)
    require(max(theta.capacity) >= 1, "capacity", theta.capacity, "must allow something to be made")
    for name in ("stock", "holding", "shortage"):
        require(getattr(theta, name) >= 0, name, getattr(theta, name), "must be at least 0")


def counts(theta: LotSizing) -> dict[str, int]:
    return {"period": len(theta.demand), "item": len(theta.demand[0]) if theta.demand else 0}


def start(theta: LotSizing) -> State:
    return State(0, theta.stock)


def legal(theta: LotSizing, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.demand):
        return ()
    return (Move("make", (range(theta.capacity[state.period] + 1),)),)


def step(theta: LotSizing, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """Every order of the period is seen, the lost ones too."""
    (amount,) = action.args
    t = state.period
    balance = state.stock + amount - sum(theta.demand[t])
    left, missing = max(0, balance), max(0, -balance)
    cost = theta.setup[t] * (amount > 0) + theta.unit_cost[t] * amount
    cost += theta.holding * left + theta.shortage * missing
    shown: dict[Key, int] = {("demand", t, i): wanted for i, wanted in enumerate(theta.demand[t])}
    return State(t + 1, left), -cost, shown


def default(theta: LotSizing, state: State) -> Action:
    """Lot for lot: make what this period's orders usually come to, less the stock."""
    usual = sum(published(theta, ("demand", state.period, i))[2] for i in range(counts(theta)["item"]))
    return Action("make", (min(theta.capacity[state.period], max(0, usual - state.stock)),))


def abandon(theta: LotSizing, state: State) -> int:
    """The orders still come in: serve them from stock, pay for what is kept and what is missing."""
    total = 0
    while state.period < len(theta.demand):
        state, gain, _ = step(theta, state, Action("make", (0,)))
        total += gain
    return total


def residual(theta: LotSizing, state: State) -> LotSizing:
    tables = ("demand", "setup", "unit_cost", "capacity")
    left = {name: getattr(theta, name)[state.period :] for name in tables}
    return dataclasses.replace(theta, stock=state.stock, **left)


def observe(theta: LotSizing, state: State) -> dict[str, int]:
    total = len(theta.demand)
    return {"now": min(state.period + 1, total), "on_hand": state.stock, "periods_left": total - state.period}


def optimum(theta: LotSizing) -> Optimum:
    """Dynamic programme over (period, stock): sliding minima over the stock after making; O(T S Q)."""
    totals = [sum(row) for row in theta.demand]
    top = max(theta.stock, sum(totals))  # more than this is never worth having
    levels = np.arange(top + 1)
    after = np.zeros(top + 1, dtype=np.int64)  # least cost from the next period on, by stock
    choices = []
    for t in reversed(range(len(totals))):
        balance = levels - totals[t]
        idle = theta.holding * np.maximum(balance, 0) + theta.shortage * np.maximum(-balance, 0)
        idle += after[np.maximum(balance, 0)]  # cost of the period by stock after making
        best, choice = idle.copy(), np.zeros(top + 1, dtype=np.int64)
        reach = min(theta.capacity[t], top)
        if reach:
            beyond = np.full(reach, np.iinfo(np.int64).max)
            filled = np.concatenate((idle + theta.unit_cost[t] * levels, beyond))
            windows = sliding_window_view(filled[1:], reach)  # row s: stock s + 1 .. s + reach after making
            amount = windows.argmin(axis=1)
            made = windows[levels, amount]
            made[:-1] += theta.setup[t] - theta.unit_cost[t] * levels[:-1]
            better = made < best
            best[better], choice[better] = made[better], amount[better] + 1
        after = best
        choices.append(choice)
    plan, stock = [], theta.stock
    for total, choice in zip(totals, reversed(choices), strict=True):
        plan.append(Action("make", (int(choice[stock]),)))
        stock = max(0, stock + int(choice[stock]) - total)
    return Optimum(-int(after[theta.stock]), tuple(plan))


def bound(theta: LotSizing) -> int:
    """Proven dual bound of the disaggregated MILP: z[r,t] goods from r (-1: old stock) serve t."""
    totals = np.array([sum(row) for row in theta.demand])
    n = len(totals)
    if n == 0:
        return 0
    pairs = [(r, t) for t in range(n) for r in range(-1, t + 1)]
    costs = [
        # an old unit is spared the holding from t on, every unit is spared a penalty
        (theta.unit_cost[r] + theta.holding * (t - r) if r >= 0 else theta.holding * (t - n)) - theta.shortage
        for r, t in pairs
    ]
    rows = np.zeros((2 * n + 1 + len(pairs), n + len(pairs)))
    for k, (r, t) in enumerate(pairs):
        rows[t, n + k] = 1  # served <= demand
        rows[n + r if r >= 0 else 2 * n, n + k] = 1  # made <= capacity, or used <= old stock
        if r >= 0:
            rows[n + r, r] = -theta.capacity[r]
            rows[2 * n + 1 + k, [n + k, r]] = 1, -totals[t]  # nothing serves t unless its source runs
    limits = np.concatenate((totals, np.zeros(n), [theta.stock], np.zeros(len(pairs))))
    found = milp(
        np.concatenate((theta.setup, costs)),
        integrality=np.array([1] * n + [0] * len(pairs)),
        bounds=Bounds(0, [1] * n + [np.inf] * len(pairs)),
        constraints=LinearConstraint(rows, -np.inf, limits),
        options={"mip_rel_gap": 0.0},
    )
    if found.status != 0:
        raise RuntimeError(f"lot_sizing: the MILP bound ended with {found.message!r}")
    forced = theta.shortage * int(totals.sum()) + theta.holding * n * theta.stock
    return -(forced + math.ceil(found.mip_dual_bound - 1e-6))


def model(theta: LotSizing) -> pulp.LpProblem:
    """MILP in amounts made, stocks and shortages."""
    problem = pulp.LpProblem("lot_sizing", pulp.LpMaximize)
    costs, before = [], pulp.LpAffineExpression(constant=theta.stock)
    for t, row in enumerate(theta.demand):
        run = problem.add_variable(f"run_{t}", cat="Binary")
        made = problem.add_variable(f"made_{t}", lowBound=0)
        left = problem.add_variable(f"left_{t}", lowBound=0)
        missing = problem.add_variable(f"missing_{t}", lowBound=0)
        useful = min(theta.capacity[t], sum(map(sum, theta.demand[t:])))
        problem += made <= useful * run, f"capacity_{t}"
        problem += before + made + missing - left == sum(row), f"balance_{t}"
        costs += [theta.setup[t] * run, theta.unit_cost[t] * made]
        costs += [theta.holding * left, theta.shortage * missing]
        before = 1 * left
    problem += -pulp.lpSum(costs)
    return problem


FAMILY = Family(
    name="lot_sizing",
    title="Lot sizing: when to run the plant, and for how much",
    coupling="stock",
    solver="dynamic programming",
    certificate="dual bound of the disaggregated MILP",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(Quantity("stock", "goods"), Quantity("holding", "money"), Quantity("shortage", "money")),
        fields=(
            Field("demand", ("period", "item"), "goods", hidden=True),
            Field("setup", ("period",), "money"),
            Field("unit_cost", ("period",), "money"),
            Field("capacity", ("period",), "goods"),
        ),
        facts=(Quantity("now", "period"), Quantity("on_hand", "goods"), Quantity("periods_left", "period")),
        verbs=(Verb("make", (Slot("amount", unit="goods"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "{n_period} {periods} follow one another. In each of them you decide once, with "
                "{tool_make}, how many {goods} to make: any whole number from 0 up to the limit of that "
                '{period} ("{label_capacity}"). That settles the {period}.',
                "Decide with {tool_make}, exactly once for each {period} and in their order from 1 to "
                "{n_period}. The amount may be 0 and must not pass what the {period} allows "
                '("{label_capacity}"); a decision cannot be taken back.',
                "Only one choice is yours: the number of {goods} made at the opening of each {period}, at "
                'least 0 and at most its "{label_capacity}". {tool_make} fixes it and closes the {period}, '
                "and so on through all {n_period}.",
            ),
            (
                'Making is paid for twice: the "{label_setup}" of the {period}, due once and in full if '
                'anything is made and not at all otherwise, and its "{label_unit_cost}" for every unit made.',
                "With an amount of 0, making costs nothing. With any other the {period} charges its "
                '"{label_setup}" once, however large the amount, plus its "{label_unit_cost}" times the '
                "amount.",
                "A fixed sum and a running one are owed in every {period} in which the amount is above 0: "
                'that {period}\'s "{label_setup}", and that {period}\'s "{label_unit_cost}" multiplied by '
                "the amount.",
            ),
            (
                'What is made can be used at once. Then the {n_item} {items} order ("{label_demand}"); '
                "their orders of the {period} are added up and served from all that is on hand ({stock} "
                "{goods} before the first {period}). Each unit left over costs {holding} {money} and stays "
                "for the next {period}. Each unit wanted but lacking costs {shortage} {money}, and that order is lost. "
                "The orders are known afterwards.",
                "Stock before the first {period}: {stock} {goods}. New units join the stock before the "
                'orders of the {n_item} {items} ("{label_demand}") are met together, as far as it '
                "reaches. No order waits: whatever cannot be met is gone and costs {shortage} {money} per "
                "unit. Whatever remains "
                "moves on to the next {period} and costs {holding} {money} per unit. Afterwards you see "
                "what each {item} wanted.",
                'When all orders of the {period} ("{label_demand}"), from {n_item} {items}, are set against '
                "the stock (at first {stock} {goods}) plus what was just made, one of two charges follows. Too much: "
                "every unit that is carried over costs {holding} {money}. Too little: every missing unit "
                "costs {shortage} {money} and is never asked for again. Either way the single orders come "
                "to light.",
            ),
            (
                "The last {period} charges for left-over units like any other, and then they are worth "
                "nothing. {Periods} that you leave undecided still run, with nothing made: the stock serves "
                "the orders, and left-over and missing units are charged.",
                "Stopping early is no way out: every {period} you did not decide is played with an amount "
                "of 0 and charged by the same rules. Goods left after the last {period} cost their keeping "
                "once more and bring nothing.",
                "Nothing is paid for stock when all is over, and keeping it through the last {period} is "
                "charged too. If you stop before that, the orders keep coming in and nobody makes anything: "
                "the charges for carried and missing units fall due all the same.",
            ),
        ),
        goal=(
            "Everything counts as a cost in {money}, a gain below zero: bring the total over all {periods} "
            "as close to zero as you can.",
            "Your result is minus all {money} charged from the first {period} to the last; the higher (the "
            "less negative), the better.",
            "Spend as few {money} as possible in all: making, keeping and falling short together, over "
            "{n_period} {periods}. What was spent is your score, with a minus sign.",
        ),
        status="current {period}: {now}; {goods} on hand: {on_hand}; {periods} left: {periods_left}.",
        outcomes={"make": "{goods} made: {amount}; {money} gained: {gain}."},
    ),
    sizes={
        "nano": {"periods": 4, "items": 1, "high": 4, "holding": 1, "shortage": 7, "setup": 2},
        "small": {"periods": 5, "items": 6, "high": 12, "holding": 1, "shortage": 12, "setup": 2},
        "medium": {"periods": 7, "items": 8, "high": 12, "holding": 1, "shortage": 12, "setup": 2},
        "large": {"periods": 9, "items": 9, "high": 12, "holding": 1, "shortage": 12, "setup": 2},
        "huge": {"periods": 11, "items": 11, "high": 12, "holding": 1, "shortage": 12, "setup": 2},
        "long": {"periods": 16, "items": 4, "high": 12, "holding": 1, "shortage": 12, "setup": 2},
        # as nano with more periods, for the study of scaling with a tiny policy
        "nano5": {"periods": 5, "items": 1, "high": 4, "holding": 1, "shortage": 7, "setup": 2},
        "nano6": {"periods": 6, "items": 1, "high": 4, "holding": 1, "shortage": 7, "setup": 2},
        "nano8": {"periods": 8, "items": 1, "high": 4, "holding": 1, "shortage": 7, "setup": 2},
    },
    theta_type=LotSizing,
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
    horizon=lambda theta: len(theta.demand),
    model=model,
)
