"""Replacement: one machine is in service at a time; each period it is kept or exchanged for a new one.

Sets        periods t = 1..T, models i = 1..n, ages a = 1..A
Parameters  price p[i] >= 0 of a new machine, resale value r[i] >= 0 it loses in each period of service,
            upkeep c[i,a] >= 0 of keeping a machine that has a periods of service behind it (hidden)
State       model i and age a of the machine in service: the first model, of age 1, at the start
Decision    keep(), or replace(j) by a new machine of any model j
Dynamics    keep costs c[i, min(a, A)], and the machine is one period older afterwards;
            replace costs p[j] - max(0, p[i] - r[i] a), no upkeep; afterwards model j of age 1 is in service
Objective   maximise minus the total cost; the machine left after period T is worth nothing

Undecided periods are kept periods. Dynamic programming over (period, model, age) here; the certificate is the
shortest path over moments of replacement, where one arc is the whole service of one machine.

Source: Bellman, "Equipment replacement policy", Journal of SIAM 3, 1955; the network: Wagner, "Principles of
Operations Research", 1969.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
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
class Replacement:
    """Parameters; `upkeep` has shape (n, A), in money; its prior is one triple an age. `model` (0-based) and
    `age` of the machine in service differ from the first model and 1 in residuals alone."""

    periods: int
    price: tuple[int, ...]
    resale: tuple[int, ...]
    upkeep: tuple[tuple[int, ...], ...]
    upkeep_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    model: int = 0
    age: int = 1


class State(NamedTuple):
    period: int
    model: int
    age: int


def draw(rng: np.random.Generator, periods: int, items: int, ages: int, price: int, high: int) -> Replacement:
    """Draw upkeep that grows with age, from about high / 4 to high; the cheapest model is listed first.

    price   typical price
    high    most that upkeep can come to at the highest age
    """
    prices = np.sort(rng.choice(np.arange(price * 2 // 3, price * 4 // 3 + items + 1), items, replace=False))
    tops = [max(3, high * (a + 2) // (ages + 1)) for a in range(ages)]
    prior = tuple((top // 6, top, max(1, top * 2 // 5)) for top in tops)
    columns = [skewed_table(rng, triple, items) for triple in prior]
    falls = [int(rng.integers(max(1, p // 3), max(1, p * 2 // 3) + 1)) for p in prices.tolist()]
    return Replacement(
        periods=periods,
        price=tuple(prices.tolist()),
        resale=tuple(falls),
        upkeep=tuple(zip(*columns, strict=True)),
        upkeep_prior=prior,
    )


def check(theta: Replacement) -> None:
    require(theta.periods >= 1, "periods", theta.periods, "must be at least 1")
    require(len(theta.price) >= 1, "price", theta.price, "needs at least one model")
    require(len(theta.upkeep) >= 1, "upkeep", theta.upkeep, "needs at least one model")
    require(len(theta.upkeep[0]) >= 1, "upkeep", theta.upkeep, "needs at least one age")
    items, ages = len(theta.price), len(theta.upkeep[0])
    require_table("price", theta.price, items, low=0)
    require_table("resale", theta.resale, items, low=0)
    require_table("upkeep", theta.upkeep, items, ages, low=0)
    require_prior("upkeep_prior", theta.upkeep_prior)
    if isinstance(theta.upkeep_prior[0], tuple):
        found = len(theta.upkeep_prior)
        require(found == ages, "upkeep_prior", found, f"expected one triple for each of {ages} ages")
    require(theta.model in range(items), "model", theta.model, f"must be a model 0..{items - 1}")
    require(
        isinstance(theta.age, int) and theta.age >= 1, "age", theta.age, "must be an integer of at least 1"
    )


def counts(theta: Replacement) -> dict[str, int]:
    return {"age": len(theta.upkeep[0]), "item": len(theta.price)}


def start(theta: Replacement) -> State:
    return State(0, theta.model, theta.age)


def legal(theta: Replacement, state: State) -> tuple[Move, ...]:
    if state.period == theta.periods:
        return ()
    return (Move("keep"), Move("replace", (range(len(theta.price)),)))


def fetches(theta: Replacement, model: int, age: int) -> int:
    """Return the resale value of a machine."""
    return max(0, theta.price[model] - theta.resale[model] * age)


def step(theta: Replacement, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """Keeping shows the upkeep that was paid; replacing shows nothing."""
    period, model, age = state
    if action.verb == "replace":
        (new,) = action.args
        return State(period + 1, new, 1), fetches(theta, model, age) - theta.price[new], {}
    column = min(age, len(theta.upkeep[0])) - 1
    cost = theta.upkeep[model][column]
    return State(period + 1, model, age + 1), -cost, {("upkeep", model, column): cost}


def default(theta: Replacement, state: State) -> Action:
    """Run a machine through all ages with a figure of their own, then buy the model with the lowest price."""
    if state.age <= len(theta.upkeep[0]):
        return Action("keep")
    return Action("replace", (theta.price.index(min(theta.price)),))


def abandon(theta: Replacement, state: State) -> int:
    """The machine in service stays, and its upkeep falls due in every period that is left."""
    row = theta.upkeep[state.model]
    left = theta.periods - state.period
    return -sum(row[min(state.age + k, len(row)) - 1] for k in range(left))


def residual(theta: Replacement, state: State) -> Replacement:
    return dataclasses.replace(theta, periods=theta.periods - state.period, model=state.model, age=state.age)


def observe(theta: Replacement, state: State) -> dict[str, int]:
    return {"in_service": state.model, "served": state.age, "periods_left": theta.periods - state.period}


def optimum(theta: Replacement) -> Optimum:
    """Dynamic programme over (period, model, age), O(T n (a + T)); ties keep, then take the first model."""
    price, resale = np.array(theta.price), np.array(theta.resale)
    top = theta.age + theta.periods  # no machine gets older
    ages = np.arange(1, top + 1)
    upkeep = np.array(theta.upkeep)[:, np.minimum(ages, len(theta.upkeep[0])) - 1]
    credit = np.maximum(0, price[:, None] - resale[:, None] * ages)
    after = np.zeros((len(price), top + 1), dtype=np.int64)  # least cost from the next period on, by age - 1
    choices: list[tuple[np.ndarray, int]] = []
    for _ in range(theta.periods):
        renewed = price + after[:, 0]
        new = int(renewed.argmin())
        kept = upkeep + after[:, 1:]
        change = renewed[new] - credit
        choices.append((kept <= change, new))
        after = np.pad(np.minimum(kept, change), ((0, 0), (0, 1)))  # the last column is never reached
    plan, model, age = [], theta.model, theta.age
    for keeps, new in reversed(choices):
        if keeps[model, age - 1]:
            plan.append(Action("keep"))
            age += 1
        else:
            plan.append(Action("replace", (new,)))
            model, age = new, 1
    return Optimum(-int(after[theta.model, theta.age - 1]), tuple(plan))


def services(theta: Replacement) -> list[tuple[int, int, int]]:
    """Return arcs (from, to, cost) between moments of replacement: a machine's price, upkeep and resale.

    Moment -1 is the start, with the given machine in service; moment T is the end, without resale.
    """
    arcs: dict[tuple[int, int], int] = {}
    for model, row in enumerate(theta.upkeep):
        sources = [*range(theta.periods), *([-1] if model == theta.model else [])]
        for source in sources:
            age = 1 if source >= 0 else theta.age
            now = source + 1 if source >= 0 else 0  # the first period in which it can be kept
            cost = theta.price[model] if source >= 0 else 0
            for moment in range(now, theta.periods + 1):
                sold = max(0, theta.price[model] - theta.resale[model] * age) if moment < theta.periods else 0
                arc = (source, moment)
                arcs[arc] = min(arcs.get(arc, cost - sold), cost - sold)
                cost += row[min(age, len(row)) - 1]
                age += 1
    return [(*arc, cost) for arc, cost in sorted(arcs.items())]


def bound(theta: Replacement) -> int:
    """Minus the shortest path over moments of replacement, by Bellman and Ford's method."""
    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_weighted_edges_from(services(theta))
    return -int(nx.bellman_ford_path_length(network, -1, theta.periods))


def model(theta: Replacement) -> pulp.LpProblem:
    """One unit of flow through the moments of replacement: an LP with integral corners."""
    problem = pulp.LpProblem("replacement", pulp.LpMaximize)
    arcs = [
        (source, moment, cost, problem.add_variable(f"serve_{source + 1}_{moment + 1}", lowBound=0))
        for source, moment, cost in services(theta)
    ]
    problem += -pulp.lpSum(cost * flow for _, _, cost, flow in arcs)
    for node in range(-1, theta.periods + 1):
        leaving = pulp.lpSum(flow for source, _, _, flow in arcs if source == node)
        arriving = pulp.lpSum(flow for _, moment, _, flow in arcs if moment == node)
        balance = (node == -1) - (node == theta.periods)
        problem += leaving - arriving == balance, f"moment_{node + 1}"
    return problem


FAMILY = Family(
    name="replacement",
    title="Replacement: keep the old machine or buy a new one",
    coupling="position",
    solver="dynamic programming",
    certificate="shortest path over the moments of replacement",
    interface=Interface(
        entities=(Entity("age", ordinal=True), Entity("item")),
        scalars=(Quantity("periods", "count"),),
        fields=(
            Field("price", ("item",), "money"),
            Field("resale", ("item",), "money"),
            Field("upkeep", ("item", "age"), "money", hidden=True),
        ),
        facts=(Quantity("in_service", "item"), Quantity("served", "age"), Quantity("periods_left", "count")),
        verbs=(Verb("keep"), Verb("replace", (Slot("item", "item"),))),
    ),
    texts=Texts(
        rules=(
            (
                "The time to be covered is cut into {periods} periods, each as long as one {age}. In every "
                "period, in order, call either {tool_keep} or {tool_replace}, once. To begin with, the "
                "{item} that is listed first is in service and is of age 1.",
                "You make {periods} decisions, one for each period of one {age}: {tool_keep} or "
                "{tool_replace}. Exactly one is in service at any time; at the start it is one of the "
                "{item} listed first, with one {age} of service behind it (age 1).",
                "One call settles one period, be it {tool_keep} or {tool_replace}; a period lasts one {age} "
                "and there are {periods}. When the first opens you find the first {item} of the list in "
                "service, its age being 1.",
            ),
            (
                '{tool_keep} costs the "{label_upkeep}" of the {item} in service, taken at its present age. '
                "Then the age rises by 1. Above age {n_age} the figure for age {n_age} goes on applying.",
                'What you keep you maintain: the "{label_upkeep}" that belongs to the {item} in service and '
                "to its age is charged (from age {n_age} on, always that of age {n_age}), after which it is "
                "one {age} older.",
                'Look up the {item} in service under its current age: that "{label_upkeep}" is the price of '
                "{tool_keep}, and by the next period the age has grown by 1. Ages beyond {n_age} are "
                "charged like age {n_age}.",
            ),
            (
                '{tool_replace} costs the "{label_price}" of the {item} you name, any of the {n_item}, the '
                "present one included, and no upkeep in this period. What it replaces is sold: you are "
                'credited with its own "{label_price}" minus its "{label_resale}" times its age, but never '
                "less than 0. When the next period opens, the new one is in service at age 1.",
                "In a period with {tool_replace} no upkeep is due. Instead you pay for the new one (the "
                '"{label_price}" of the chosen {item}, which may be the same as before) and receive for the '
                'old one its "{label_price}", lowered by its "{label_resale}" for each unit of age, with 0 '
                "as the floor. The newcomer stands at age 1 in the following period.",
                'Exchanging means two sums and nothing else in that period. Out goes the "{label_price}" of '
                "whichever of the {n_item} {items} you call for, the same one again if you like. In comes "
                'the worth of the old: its "{label_price}", less age times "{label_resale}", or 0 if that '
                "is negative. From the next period on you have the new one, then of age 1.",
            ),
            (
                "What is in service after the last period brings nothing. Periods that you leave undecided "
                "are treated as if you had called {tool_keep} in them.",
                "If you stop early, the {item} in service is kept to the end and every charge for that "
                "falls due. After the last period nothing is sold and nothing credited.",
                "There is no sale at the end. Nor is there a way around the remaining periods: undecided, "
                "they count as {tool_keep}, at the charges stated above.",
            ),
        ),
        goal=(
            "All charges count as a gain below zero, credits as a gain above it: bring the total in {money} "
            "as high as you can.",
            "Cover the {periods} periods at the least total cost. Your result is minus that cost, in "
            "{money}.",
            "What counts is {money} spent, less {money} credited, with a minus sign: the closer to zero (or "
            "the further above it), the better.",
        ),
        status="in service: {in_service}; its age: {served}; periods left: {periods_left}.",
        outcomes={
            "keep": "kept for one more period; {money} gained: {gain}.",
            "replace": "new in service: {item}; {money} gained: {gain}.",
        },
    ),
    sizes={
        "nano": {"periods": 4, "items": 2, "ages": 2, "price": 6, "high": 9},
        "small": {"periods": 10, "items": 6, "ages": 5, "price": 30, "high": 40},
        "medium": {"periods": 14, "items": 8, "ages": 7, "price": 40, "high": 50},
        "large": {"periods": 18, "items": 9, "ages": 9, "price": 50, "high": 60},
        "huge": {"periods": 22, "items": 11, "ages": 11, "price": 60, "high": 80},
        "long": {"periods": 24, "items": 8, "ages": 5, "price": 30, "high": 40},
    },
    theta_type=Replacement,
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
    horizon=lambda theta: theta.periods,
    model=model,
)
