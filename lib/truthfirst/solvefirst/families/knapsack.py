"""Knapsack: requests arrive one by one and are accepted or declined for good; two resources are scarce.

Sets        requests i = 1..n in order of arrival, resources k = 1, 2
Parameters  capacity C[k] >= 0, need a[i,k] >= 0 of request i, value v[i] >= 0 of accepting it (hidden)
Decision    accept() or decline() the request that is next; accept only if its needs fit in what is left
Dynamics    accepting earns v[i], shows it and lowers every C[k] by a[i,k]; declining shows and earns nothing
Objective   maximise the total value accepted; capacity left over is worth nothing

With all values known this is the 0/1 knapsack problem in two dimensions: dynamic programming over what is
left of both resources here, a 0/1 programme solved by branch and bound as the certificate.

Source: Kleywegt and Papastavrou, "The dynamic and stochastic knapsack problem", Operations Research 46, 1998;
Weingartner and Ness, "Methods for the solution of the multidimensional 0/1 knapsack problem", Operations
Research 15, 1967.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp
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
    Texts,
    Verb,
    require,
    require_prior,
    require_table,
    skewed_table,
)

LARGEST_TABLE = 4_000_000  # entries of one layer of the dynamic programme


@dataclass(frozen=True, slots=True)
class Knapsack:
    """Parameters; `need` has shape (n, 2), in goods; `value` has shape (n,), in money, with one prior triple
    a request or a common one."""

    capacity: tuple[int, ...]
    need: tuple[tuple[int, ...], ...]
    value: tuple[int, ...]
    value_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]


class State(NamedTuple):
    item: int
    left: tuple[int, ...]


def draw(rng: np.random.Generator, items: int, need: int, rate: int, fill: int) -> Knapsack:
    """Draw needs, and values from a quarter to twice the usual; later requests usually pay better for a unit.

    need   most that one request takes of one resource
    rate   usual money for a unit of either resource halfway through is about rate + 3 / 4
    fill   capacity as a percentage of all needs together
    """
    table = tuple(tuple(row) for row in rng.integers(1, need + 1, (items, 2)).tolist())
    prior = []
    for i, row in enumerate(table):
        usual = rng.uniform(0.5, 1 + rate / 2) + rate * i / max(1, items - 1)
        mean = max(2, int(usual * sum(row)))
        prior.append((mean // 4, 2 * mean, mean))
    value = tuple(int(skewed_table(rng, triple, 1)[0]) for triple in prior)
    totals = [sum(column) for column in zip(*table, strict=True)]
    capacity = tuple(max(need, total * fill // 100) for total in totals)
    return Knapsack(capacity, table, value, tuple(prior))


def check(theta: Knapsack) -> None:
    require(len(theta.value) >= 1, "value", theta.value, "needs at least one request")
    items = len(theta.value)
    require(len(theta.capacity) == 2, "capacity", theta.capacity, "needs exactly two resources")
    require_table("capacity", theta.capacity, 2, low=0)
    require_table("need", theta.need, items, 2, low=0)
    require_table("value", theta.value, items, low=0)
    require_prior("value_prior", theta.value_prior)
    if isinstance(theta.value_prior[0], tuple):
        found = len(theta.value_prior)
        require(found == items, "value_prior", found, f"expected one triple for each of {items} requests")
    size = math.prod(room + 1 for room in useful(theta))
    limit = f"the product of capacities + 1 must be at most {LARGEST_TABLE}"
    require(size <= LARGEST_TABLE, "capacity", theta.capacity, limit)


def counts(theta: Knapsack) -> dict[str, int]:
    return {"item": len(theta.value), "resource": len(theta.capacity)}


def start(theta: Knapsack) -> State:
    return State(0, theta.capacity)


def legal(theta: Knapsack, state: State) -> tuple[Move, ...]:
    if state.item == len(theta.value):
        return ()
    if all(need <= left for need, left in zip(theta.need[state.item], state.left, strict=True)):
        return (Move("accept"), Move("decline"))
    return (Move("decline"),)


def step(theta: Knapsack, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    i = state.item
    if action.verb == "decline":
        return State(i + 1, state.left), 0, {}
    left = tuple(have - need for have, need in zip(state.left, theta.need[i], strict=True))
    return State(i + 1, left), theta.value[i], {("value", i): theta.value[i]}


def default(theta: Knapsack, state: State) -> Action:
    """First come, first served."""
    return Action(legal(theta, state)[0].verb)


def abandon(theta: Knapsack, state: State) -> int:
    return 0


def residual(theta: Knapsack, state: State) -> Knapsack:
    prior = theta.value_prior
    each = bool(prior) and isinstance(prior[0], tuple)
    return Knapsack(
        capacity=state.left,
        need=theta.need[state.item :],
        value=theta.value[state.item :],
        value_prior=prior[state.item :] if each else prior,  # type: ignore[arg-type]
    )


def observe(theta: Knapsack, state: State) -> dict[str, int]:
    total = len(theta.value)
    return {
        "now": min(state.item + 1, total),
        "first_resource": 0,
        "first_left": state.left[0],
        "second_resource": 1,
        "second_left": state.left[1],
        "items_left": total - state.item,
    }


def useful(theta: Knapsack) -> tuple[int, ...]:
    """Return the capacities, lowered to what all requests together could take."""
    return tuple(min(room, sum(row[k] for row in theta.need)) for k, room in enumerate(theta.capacity))


def optimum(theta: Knapsack) -> Optimum:
    """Dynamic programme over (request, left of both resources), O(n C1 C2); ties decline."""
    rooms = useful(theta)
    after = np.zeros([room + 1 for room in rooms], dtype=np.int64)
    takes: list[np.ndarray] = []
    for need, value in zip(reversed(theta.need), reversed(theta.value), strict=True):
        take = np.zeros(after.shape, dtype=bool)
        if all(a <= room for a, room in zip(need, rooms, strict=True)):
            enough = tuple(slice(a, None) for a in need)
            taken = value + after[tuple(slice(0, room + 1 - a) for a, room in zip(need, rooms, strict=True))]
            take[enough] = taken > after[enough]
            best = after.copy()
            best[enough] = np.maximum(taken, after[enough])
            after = best
        takes.append(take)
    plan, left = [], rooms
    for need, take in zip(theta.need, reversed(takes), strict=True):
        accepts = bool(take[left])
        plan.append(Action("accept" if accepts else "decline"))
        if accepts:
            left = tuple(have - a for have, a in zip(left, need, strict=True))
    return Optimum(int(after[rooms]), tuple(plan))


def bound(theta: Knapsack) -> int:
    """Proven dual bound of the 0/1 programme, by HiGHS through scipy."""
    if not theta.value:
        return 0
    found = milp(
        -np.array(theta.value, dtype=float),
        integrality=np.ones(len(theta.value), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.array(theta.need, dtype=float).T, -np.inf, theta.capacity),
        options={"mip_rel_gap": 0.0},
    )
    if found.status != 0:
        raise RuntimeError(f"knapsack: the 0/1 programme ended with {found.message!r}")
    return math.floor(1e-6 - found.mip_dual_bound)


def model(theta: Knapsack) -> pulp.LpProblem:
    """One binary variable a request."""
    problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
    accepted = [problem.add_variable(f"accept_{i}", cat="Binary") for i in range(len(theta.value))]
    problem += pulp.lpSum(value * yes for value, yes in zip(theta.value, accepted, strict=True))
    for k, room in enumerate(theta.capacity):
        used = pulp.lpSum(row[k] * yes for row, yes in zip(theta.need, accepted, strict=True))
        problem += used <= room, f"capacity_{k}"
    return problem


FAMILY = Family(
    name="knapsack",
    title="Knapsack: which of the arriving requests to accept",
    coupling="budget",
    solver="dynamic programming",
    certificate="dual bound of the 0/1 programme",
    interface=Interface(
        entities=(Entity("item", ordinal=True), Entity("resource")),
        scalars=(),
        fields=(
            Field("capacity", ("resource",), "goods"),
            Field("need", ("item", "resource"), "goods"),
            Field("value", ("item",), "money", hidden=True),
        ),
        facts=(
            Quantity("now", "item"),
            Quantity("first_resource", "resource"),
            Quantity("first_left", "goods"),
            Quantity("second_resource", "resource"),
            Quantity("second_left", "goods"),
            Quantity("items_left", "count"),
        ),
        verbs=(Verb("accept"), Verb("decline")),
    ),
    texts=Texts(
        rules=(
            (
                "The {n_item} {items} come up one at a time, in the order of their numbers. Answer each "
                "with {tool_accept} or {tool_decline}; the answer is final, and only then does the next one "
                "come up.",
                "Number by number you settle {n_item} {items}: {tool_accept} says yes to the one that is "
                "now up, {tool_decline} says no. Neither can be undone, and none of the {items} returns.",
                "Whichever {item} is up next must be answered before you get to any later one, by "
                "{tool_accept} or by {tool_decline}, once and for all, from number 1 to number {n_item}.",
            ),
            (
                'Accepting uses up the "{label_need}" of that {item}, of all {n_resource} {resources} at '
                'once, and nothing used is ever given back. At the outset there is the "{label_capacity}" '
                "of each.",
                "{n_resource} {resources} are limited, and no supply is renewed: you begin with the "
                '"{label_capacity}" listed for each, and every {item} you accept takes its "{label_need}" '
                "off each of them for good.",
                'What is left of the {n_resource} {resources} is at first their "{label_capacity}" and '
                'shrinks with each {item} accepted, by the "{label_need}" stated for that {item}. It never '
                "grows again.",
            ),
            (
                "{tool_accept} is possible only if enough is left of every one of the {resources}; to use "
                'one up exactly is fine. It earns the "{label_value}" of the {item}, which you then see. '
                "{tool_decline} is always possible; it earns nothing, uses nothing and shows nothing.",
                'With {tool_accept} you gain the "{label_value}" and are told it. With {tool_decline} you '
                "gain 0, keep all you have, and learn nothing. The latter is always open to you, the former "
                'only where each "{label_need}" is at most what is left.',
                "A no is free of charge, brings 0 and is permitted in any case. A yes demands that none of "
                "the {resources} has less left than this {item} needs; it brings in, and reveals, the "
                '"{label_value}".',
            ),
            (
                "Anything left of the {resources} when all is answered is worth nothing. {Items} that you "
                "leave unanswered count as declined.",
                "If you stop early, what you have earned is yours and each remaining {item} is treated as "
                "declined. Unused {goods} earn nothing.",
                "There is no reward for {goods} saved, and no penalty for stopping: whatever is not "
                "answered counts as a no.",
            ),
        ),
        goal=(
            'Accept the {items} whose "{label_value}", added up, gives the most {money}.',
            "The total {money} of everything accepted is your result; make it as large as possible.",
            "Your success is measured in {money}: the sum over all accepted {items}, the higher the better.",
        ),
        status=(
            "next {item}: {now}; {goods} left of {first_resource}: {first_left}; {goods} left of "
            "{second_resource}: {second_left}; {items} still to answer: {items_left}."
        ),
        outcomes={
            "accept": "answer: accepted; {money} earned: {gain}.",
            "decline": "answer: declined; {money} earned: {gain}.",
        },
    ),
    sizes={
        "nano": {"items": 5, "need": 2, "rate": 4, "fill": 45},
        "small": {"items": 10, "need": 6, "rate": 2, "fill": 45},
        "medium": {"items": 14, "need": 6, "rate": 2, "fill": 45},
        "large": {"items": 18, "need": 6, "rate": 2, "fill": 45},
        "huge": {"items": 22, "need": 7, "rate": 2, "fill": 45},
        "long": {"items": 32, "need": 5, "rate": 2, "fill": 45},
    },
    theta_type=Knapsack,
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
