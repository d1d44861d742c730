"""Pricing: a finite stock sold under one posted tariff a period.

Sets        periods t = 1..T, tariffs i = 1..n on the menu
Parameters  price p[i] of one unit under tariff i, demand d[t,i] >= 0 in period t under tariff i (hidden),
            stock s >= 0 at the start, salvage value v with 0 <= v <= p[i] for every unit never sold
Decision    i[t], the tariff posted in period t, as long as there is stock
Dynamics    min(s, d[t,i]) units are sold at p[i] each (the seller cannot hold any back); s falls by them
Objective   maximise the total of the sales plus v times the stock at the end

An episode ends after the last period or when nothing is left to sell. Stock that is never offered, because
nobody posts a tariff any more, is salvaged too.

Source: Gallego and van Ryzin, "Optimal dynamic pricing of inventories with stochastic demand over finite
horizons", Management Science 40, 1994, and "A multiproduct dynamic pricing problem", Operations Research 45,
1997 (a finite menu); here the demand of every pair of period and tariff is drawn beforehand.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp
from scipy import sparse
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
class Pricing:
    """Parameters; `demand` has shape (T, n), in goods; its prior is one triple for all, or one a tariff."""

    price: tuple[int, ...]
    demand: tuple[tuple[int, ...], ...]
    demand_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    stock: int
    salvage: int


class State(NamedTuple):
    period: int
    stock: int


def draw(
    rng: np.random.Generator,
    periods: int,
    items: int,
    high: int,
    cheap: int,
    fall: int,
    wobble: int,
    share: int,
) -> Pricing:
    """Draw a menu from cheap to dear, where dear tariffs usually sell less, and a stock that is short.

    high    most goods that the cheapest tariff can sell in a period; the mean is half of it
    cheap   price of the cheapest tariff; the dearest costs about twice that
    fall    percentage by which the dearest tariff sells less than the cheapest
    wobble  percentage by which a tariff may depart from that line
    share   usual stock, as a percentage of what the tariffs sell over all periods on average
    """
    steps = np.arange(items) / max(1, items - 1)
    price = (cheap * (1 + steps)).round().astype(int) + rng.integers(0, max(1, cheap // 4), items)
    line = high * (1 - fall / 100 * steps) * rng.uniform(1 - wobble / 100, 1 + wobble / 100, items)
    tops = np.maximum(2, line.round()).astype(int).tolist()
    prior = tuple((0, top, top // 2) for top in tops)
    demand = tuple(zip(*(skewed_table(rng, triple, periods) for triple in prior), strict=True))
    usual = periods * sum(mean for _, _, mean in prior) / items
    stock = max(2, round(usual * share / 100 * rng.uniform(0.8, 1.2)))
    return Pricing(tuple(price.tolist()), demand, prior, stock, int(rng.integers(0, cheap // 3 + 1)))


def check(theta: Pricing) -> None:
    require(len(theta.price) >= 1, "price", theta.price, "needs at least one tariff")
    require(len(theta.demand) >= 1, "demand", theta.demand, "needs at least one period")
    items = len(theta.price)
    require_table("demand", theta.demand, len(theta.demand), items, low=0)
    require_prior("demand_prior", theta.demand_prior)
    if isinstance(theta.demand_prior[0], tuple):
        found = len(theta.demand_prior)
        require(found == items, "demand_prior", found, f"expected one triple for each of {items} tariffs")
    require(theta.stock >= 1, "stock", theta.stock, "must be at least 1")
    require(theta.salvage >= 0, "salvage", theta.salvage, "must be at least 0")
    require_table("price", theta.price, items, low=theta.salvage)


def counts(theta: Pricing) -> dict[str, int]:
    return {"period": len(theta.demand), "item": len(theta.price)}


def start(theta: Pricing) -> State:
    return State(0, theta.stock)


def legal(theta: Pricing, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.demand) or state.stock == 0:
        return ()
    return (Move("post", (range(len(theta.price)),)),)


def step(theta: Pricing, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """All who ask are counted, those who come too late as well."""
    (item,) = action.args
    wanted = theta.demand[state.period][item]
    sold = min(wanted, state.stock)
    after = State(state.period + 1, state.stock - sold)
    return after, theta.price[item] * sold, {("demand", state.period, item): wanted}


def default(theta: Pricing, state: State) -> Action:
    """Post the tariff that usually earns most in this period; the dearest of equals."""

    def usual(item: int) -> int:
        wanted = published(theta, ("demand", state.period, item))[2]
        return (theta.price[item] - theta.salvage) * min(state.stock, wanted)

    return Action("post", (max(range(len(theta.price)), key=lambda i: (usual(i), theta.price[i], -i)),))


def abandon(theta: Pricing, state: State) -> int:
    return theta.salvage * state.stock


def residual(theta: Pricing, state: State) -> Pricing:
    return dataclasses.replace(theta, demand=theta.demand[state.period :], stock=state.stock)


def observe(theta: Pricing, state: State) -> dict[str, int]:
    total = len(theta.demand)
    return {"now": min(state.period + 1, total), "left": state.stock, "periods_left": total - state.period}


def optimum(theta: Pricing) -> Optimum:
    """Dynamic programme over (period, stock), O(T S n); of equally good tariffs the last on the menu."""
    stocks = np.arange(theta.stock + 1)
    price = np.array(theta.price)[:, None]
    after = theta.salvage * stocks
    choices = []
    for row in reversed(theta.demand):
        sold = np.minimum(stocks, np.array(row)[:, None])  # (n, S)
        worth = price * sold + after[stocks - sold]
        choice = len(row) - 1 - worth[::-1].argmax(axis=0)
        after = worth[choice, stocks]
        choices.append(choice)
    plan, left = [], theta.stock
    for row, choice in zip(theta.demand, reversed(choices), strict=True):
        if left == 0:
            break
        plan.append(Action("post", (int(choice[left]),)))
        left -= min(left, row[choice[left]])
    return Optimum(int(after[theta.stock]), tuple(plan))


def bound(theta: Pricing) -> int:
    """LP dual of the flow through the states that can be reached: potentials, checked in integers.

    A potential w with w(t, s) >= p[i] k + w(t + 1, s - k) for every tariff and w(T, s) >= v s bounds what any
    plan earns from (t, s); the LP looks for the least one.
    """
    nodes, arcs = {(0, theta.stock): 0}, []
    for t, row in enumerate(theta.demand):
        for tail in [stock for period, stock in nodes if period == t]:
            for price, wanted in zip(theta.price, row, strict=True):
                sold = min(tail, wanted)
                head = nodes.setdefault((t + 1, tail - sold), len(nodes))
                arcs.append((nodes[t, tail], head, price * sold))
    least = [theta.salvage * stock if t == len(theta.demand) else 0 for t, stock in nodes]
    if not arcs:
        return least[0]
    tails, heads, gains = (np.array(column) for column in zip(*arcs, strict=True))
    lines = np.arange(len(arcs))
    cells = (np.tile(lines, 2), np.concatenate((tails, heads)))
    drops = sparse.coo_array((np.repeat([1.0, -1.0], len(arcs)), cells)).tocsr()
    found = milp(
        np.ones(len(nodes)), bounds=Bounds(least, np.inf), constraints=LinearConstraint(drops, gains, np.inf)
    )
    if found.status != 0:
        raise RuntimeError(f"pricing: the LP bound ended with {found.message!r}")
    potential = np.rint(found.x).astype(np.int64)
    if np.any(potential[tails] < gains + potential[heads]) or np.any(potential < least):
        raise RuntimeError("pricing: the rounded potentials are no bound")
    return int(potential[0])


def model(theta: Pricing) -> pulp.LpProblem:
    """MILP: less than the demand is sold only in or after the period in which the stock runs out."""
    problem = pulp.LpProblem("pricing", pulp.LpMaximize)
    left, terms = pulp.LpAffineExpression(constant=theta.stock), []
    for t, row in enumerate(theta.demand):
        out = problem.add_variable(f"out_{t}", cat="Binary")
        posted = [problem.add_variable(f"posted_{t}_{i}", cat="Binary") for i in range(len(row))]
        sold = [problem.add_variable(f"sold_{t}_{i}", lowBound=0) for i in range(len(row))]
        problem += pulp.lpSum(posted) == 1, f"one_tariff_{t}"
        for i, wanted in enumerate(row):
            problem += sold[i] <= wanted * posted[i], f"demand_{t}_{i}"
        left = left - pulp.lpSum(sold)
        problem += left >= 0, f"stock_{t}"
        problem += left + theta.stock * out <= theta.stock, f"sold_out_{t}"
        unmet = pulp.lpSum(wanted * p - q for wanted, p, q in zip(row, posted, sold, strict=True))
        problem += unmet <= max(row) * out, f"forced_sale_{t}"
        terms += [price * q for price, q in zip(theta.price, sold, strict=True)]
    problem += pulp.lpSum(terms) + theta.salvage * left
    return problem


FAMILY = Family(
    name="pricing",
    title="Pricing: a finite stock under one posted tariff a period",
    coupling="stock",
    solver="dynamic programming",
    certificate="LP dual of the flow through the states",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(Quantity("stock", "goods"), Quantity("salvage", "money")),
        fields=(
            Field("price", ("item",), "money"),
            Field("demand", ("period", "item"), "goods", hidden=True),
        ),
        facts=(Quantity("now", "period"), Quantity("left", "goods"), Quantity("periods_left", "period")),
        verbs=(Verb("post", (Slot("item", "item"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "In each of the {n_period} {periods}, in their order, one of the {n_item} {items} is posted "
                "with {tool_post} and holds for that whole {period}. Any {item} may be posted again later.",
                "{tool_post} puts up one {item} for one {period}; then the next {period} comes, {n_period} "
                "in all. You are free to repeat {items} or to leave some unused.",
                "A sequence of {n_period} choices is asked for: one {item} out of {n_item} for the first "
                "{period}, then one for the second, and so on. {tool_post} makes the next choice, for good, "
                "and the same {item} may come up more than once.",
            ),
            (
                "You have {stock} {goods} in all. While one {item} is posted, as many are sold as that "
                '{period} wants under that {item} ("{label_demand}"), or all you have left if that is less; '
                'none can be held back. Each one sold earns the {item}\'s "{label_price}".',
                'What one {period} asks for depends on the {item} posted ("{label_demand}") and must be '
                "served as far as your {stock} {goods} still reach. The earnings are the number sold times "
                'the "{label_price}" of the {item} posted.',
                'Sales of one {period}: the lesser of two numbers, the "{label_demand}" for the {item} '
                "posted in that {period} and what is still there of the {stock} {goods} you began with. "
                'Multiply by the "{label_price}" of that {item} to get the {money} earned. Refusing a sale '
                "is impossible.",
            ),
            (
                "Afterwards you learn how many were wanted under the posted {item}, sold or not, and "
                "nothing about the other {items}. Demand that finds nothing left is lost.",
                "Only the posted {item} shows its demand, and it does so in full once the {period} is over, "
                "even where there was too little to sell. Nobody comes back in a later {period}.",
                "The other {items} tell you nothing; of the posted one you find out the whole number "
                "wanted, including buyers who went away with nothing, and these do not return.",
            ),
            (
                "It is over after the last {period}, or as soon as nothing is left. Each unit never sold "
                "then brings {salvage} {money}, and the same holds if you stop early.",
                "With no stock left no more {periods} are played. Otherwise the remainder is cleared at "
                "{salvage} {money} a unit when the {periods} are used up or when you stop before that.",
                "Whenever you end, after {period} {n_period} or earlier, every unit still on hand is turned "
                "into {salvage} {money}. An empty stock ends things at once.",
            ),
        ),
        goal=(
            "Make the {money} from all sales and from the remainder as many as you can.",
            "Your result is everything earned over the {n_period} {periods}, plus what unsold {goods} bring "
            "at the end; aim high.",
            "Get the most {money} out of {stock} {goods}, sales and final clearance taken together.",
        ),
        status="current {period}: {now}; {goods} left: {left}; {periods} left: {periods_left}.",
        outcomes={"post": "posted: {item}; {money} earned: {gain}."},
    ),
    sizes={
        "nano": {"periods": 2, "items": 4, "high": 9, "cheap": 5, "fall": 50, "wobble": 0, "share": 80},
        "small": {"periods": 5, "items": 6, "high": 20, "cheap": 10, "fall": 60, "wobble": 15, "share": 65},
        "medium": {"periods": 7, "items": 8, "high": 20, "cheap": 10, "fall": 60, "wobble": 15, "share": 65},
        "large": {"periods": 9, "items": 9, "high": 20, "cheap": 10, "fall": 60, "wobble": 15, "share": 65},
        "huge": {"periods": 11, "items": 11, "high": 20, "cheap": 12, "fall": 60, "wobble": 15, "share": 65},
        "long": {"periods": 16, "items": 4, "high": 12, "cheap": 10, "fall": 60, "wobble": 15, "share": 65},
    },
    theta_type=Pricing,
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
