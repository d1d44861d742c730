"""Transport: what goes from which source to which sink.

Sets        sources i = 1..n, sinks j = 1..m
Parameters  supply s[i] >= 0, need b[j] >= 0, cost c[i,j] >= 0 of each unit on the route i to j (hidden),
            penalty p >= 0 for each unit of need that is never delivered
Decision    the next shipment (i, j, x): 1 <= x <= min(supply left at i, need left at j)
Dynamics    x units leave i for j at once and cost c[i,j] x; supply left and need left fall by x
Objective   maximise minus the total of shipping costs and p times the need left undelivered at the end

The order of the shipments is free and does not matter. A linear programme with integer vertices, solved
through PuLP; a vertex uses at most n + m - 1 routes. Proved by a min-cost flow of another library.

Source: Hitchcock, "The distribution of a product from several sources to numerous localities", Journal of
Mathematics and Physics 20, 1941; Dantzig, "Application of the simplex method to a transportation problem",
1951.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
import pulp

from ..solve import solve_model
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
class Transport:
    """Parameters; `cost` has shape (n, m), in money; its prior is one triple for all, or one a sink."""

    cost: tuple[tuple[int, ...], ...]
    cost_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    supply: tuple[int, ...]
    need: tuple[int, ...]
    shortage: int


class State(NamedTuple):
    supply: tuple[int, ...]
    need: tuple[int, ...]


def draw(rng: np.random.Generator, items: int, sinks: int, high: int, units: int, shortage: int) -> Transport:
    """Draw costs of which few are low, and supplies that usually fall a little short of the needs.

    units   most units that one sink can need

    Where the baseline happens to come close to the optimum, draw again (at most five times).
    """
    tops = [high - high * j // (3 * sinks) for j in range(sinks)]
    prior = tuple((1, top, max(1, top * 3 // 5)) for top in tops)
    for _ in range(6):
        columns = [skewed_table(rng, triple, items) for triple in prior]
        need = rng.integers((units + 1) // 2, units + 1, sinks)
        total = max(items, int(need.sum() * rng.uniform(0.85, 1.05)))
        supply = rng.multinomial(total - items, rng.dirichlet(np.full(items, 4.0))) + 1
        amounts = tuple(supply.tolist()), tuple(need.tolist())
        theta = Transport(tuple(zip(*columns, strict=True)), prior, *amounts, shortage)
        solution = FAMILY.solve(theta)
        if solution.span >= max(solution.required_margin, -solution.u_star // 5):
            break
    return theta


def check(theta: Transport) -> None:
    require(len(theta.cost) >= 1, "cost", theta.cost, "needs at least one source")
    require(len(theta.cost[0]) >= 1, "cost", theta.cost, "needs at least one sink")
    items, sinks = len(theta.cost), len(theta.cost[0])
    require_table("cost", theta.cost, items, sinks, low=0)
    require_prior("cost_prior", theta.cost_prior)
    if isinstance(theta.cost_prior[0], tuple):
        found = len(theta.cost_prior)
        require(found == sinks, "cost_prior", found, f"expected one triple for each of {sinks} sinks")
    require_table("supply", theta.supply, items, low=0)
    require_table("need", theta.need, sinks, low=0)
    require(sum(theta.supply) >= 1, "supply", theta.supply, "must hold at least one unit")
    require(sum(theta.need) >= 1, "need", theta.need, "must ask for at least one unit")
    require(theta.shortage >= 0, "shortage", theta.shortage, "must be at least 0")


def counts(theta: Transport) -> dict[str, int]:
    return {"item": len(theta.cost), "sink": len(theta.cost[0])}


def start(theta: Transport) -> State:
    return State(theta.supply, theta.need)


def legal(theta: Transport, state: State) -> tuple[Move, ...]:
    return tuple(
        Move("ship", ((i,), (j,), range(1, min(stock, wanted) + 1)))
        for i, stock in enumerate(state.supply)
        for j, wanted in enumerate(state.need)
        if stock and wanted
    )


def step(theta: Transport, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    i, j, amount = action.args
    supply, need = list(state.supply), list(state.need)
    supply[i] -= amount
    need[j] -= amount
    cost = theta.cost[i][j]
    return State(tuple(supply), tuple(need)), -cost * amount, {("cost", i, j): cost}


def default(theta: Transport, state: State) -> Action:
    """Down both lists: the first source with supply fills the first sink in need (north-west corner rule)."""
    i = next(i for i, stock in enumerate(state.supply) if stock)
    j = next(j for j, wanted in enumerate(state.need) if wanted)
    return Action("ship", (i, j, min(state.supply[i], state.need[j])))


def abandon(theta: Transport, state: State) -> int:
    return -theta.shortage * sum(state.need)


def residual(theta: Transport, state: State) -> Transport:
    return dataclasses.replace(theta, supply=state.supply, need=state.need)


def observe(theta: Transport, state: State) -> dict[str, int]:
    return {"supply_left": sum(state.supply), "need_left": sum(state.need)}


def horizon(theta: Transport) -> int:
    """A plan at a vertex of the LP uses no cycle of routes: at most sources + sinks - 1 among those still open."""
    sources, sinks = sum(map(bool, theta.supply)), sum(map(bool, theta.need))
    return sources + sinks - 1 if sources and sinks else 0


def build(theta: Transport) -> tuple[pulp.LpProblem, list[tuple[int, int, pulp.LpVariable]]]:
    """Return the LP and its routes (source, sink, units); routes dearer than the penalty are left out."""
    problem = pulp.LpProblem("transport", pulp.LpMaximize)
    routes = [
        (i, j, problem.add_variable(f"units_{i}_{j}", lowBound=0))
        for i, row in enumerate(theta.cost)
        for j, cost in enumerate(row)
        if cost < theta.shortage and theta.supply[i] and theta.need[j]
    ]
    saved = pulp.lpSum((theta.shortage - theta.cost[i][j]) * units for i, j, units in routes)
    problem += saved - theta.shortage * sum(theta.need)
    for k, stock in enumerate(theta.supply):
        leaving = [units for i, _, units in routes if i == k]
        if leaving:
            problem += pulp.lpSum(leaving) <= stock, f"supply_{k}"
    for k, wanted in enumerate(theta.need):
        arriving = [units for _, j, units in routes if j == k]
        if arriving:
            problem += pulp.lpSum(arriving) <= wanted, f"need_{k}"
    return problem, routes


def model(theta: Transport) -> pulp.LpProblem:
    """LP in units shipped on every route."""
    return build(theta)[0]


def optimum(theta: Transport) -> Optimum:
    """The LP through PuLP; its vertices are integer. Shipments are listed by source, then by sink."""
    problem, routes = build(theta)
    if not routes:
        return Optimum(abandon(theta, start(theta)), ())
    value = round(solve_model(problem))
    amounts = [(i, j, round(pulp.value(units))) for i, j, units in routes]
    return Optimum(value, tuple(Action("ship", (i, j, amount)) for i, j, amount in amounts if amount))


def bound(theta: Transport) -> int:
    """Network simplex: all need flows from one pool, through the sources or, at the penalty, past them."""
    network: nx.DiGraph = nx.DiGraph()
    network.add_node("pool", demand=-sum(theta.need))
    for i, stock in enumerate(theta.supply):
        network.add_edge("pool", ("source", i), capacity=stock, weight=0)
    for j, wanted in enumerate(theta.need):
        network.add_node(("sink", j), demand=wanted)
        network.add_edge("pool", ("sink", j), weight=theta.shortage)
        for i, row in enumerate(theta.cost):
            network.add_edge(("source", i), ("sink", j), weight=row[j])
    cost, _ = nx.network_simplex(network)
    return -int(cost)


FAMILY = Family(
    name="transport",
    title="Transport: what goes from which source to which sink",
    coupling="graph",
    solver="LP",
    certificate="network simplex",
    interface=Interface(
        entities=(Entity("item"), Entity("sink")),
        scalars=(Quantity("shortage", "money"),),
        fields=(
            Field("supply", ("item",), "goods"),
            Field("need", ("sink",), "goods"),
            Field("cost", ("item", "sink"), "money", hidden=True),
        ),
        facts=(Quantity("supply_left", "goods"), Quantity("need_left", "goods")),
        verbs=(Verb("ship", (Slot("item", "item"), Slot("sink", "sink"), Slot("amount", unit="goods"))),),
    ),
    texts=Texts(
        rules=(
            (
                'Each of the {n_item} {items} holds its "{label_supply}" of {goods}, and each of the '
                '{n_sink} {sinks} asks for its "{label_need}". {tool_ship} moves an amount from one {item} '
                "to one {sink}.",
                "{n_item} {items} can give {goods} and {n_sink} {sinks} want them. How many the one can "
                'give stands under "{label_supply}", how many the other wants under "{label_need}"; with '
                "{tool_ship} you send some from one {item} to one {sink}.",
                "You settle with {tool_ship} which {item} delivers how many {goods} to which {sink}, one "
                'shipment at a time. No {item} has more to give in all than its "{label_supply}"; no {sink} '
                'takes more in all than its "{label_need}".',
            ),
            (
                "A shipment is a whole number of {goods}, at least 1 and at most what the {item} has left "
                "and the {sink} still lacks. The same route may be used again, shipments may come in any "
                "order, and none can be called back.",
                "Send any whole number from 1 up to the smaller of two figures: what is left at the {item}, "
                "what is still wanted at the {sink}. Order does not matter, repeated use of one route is "
                "allowed, and what is sent stays sent.",
                "Amounts are whole and never 0. They can exceed neither the rest at the {item} nor the open "
                "need of the {sink}. You are free in the order and may split a delivery, but nothing is "
                "ever taken back.",
            ),
            (
                'Every unit pays the "{label_cost}" of its route, that is, of this {item} with this {sink}; '
                "there is no charge for the shipment as such. Shipping on a route shows its figure.",
                'The charge for a shipment is its amount times the "{label_cost}" that holds between the '
                "{item} and the {sink}, neither more nor less. You see this figure once you have shipped "
                "that way.",
                'Between each {item} and each {sink} a unit costs the "{label_cost}" of just that '
                "combination. The charge grows in step with the amount, and the first shipment reveals the "
                "rate.",
            ),
            (
                "At the end, each unit that some {sink} asked for and did not get costs {shortage} {money}. "
                "The {goods} left at the {items} are worth nothing and cost nothing. You may stop whenever "
                "you like; all is over when no {item} has anything left or no {sink} lacks anything.",
                "Whatever is still wanting when you stop, or when nothing more can be shipped, is charged at "
                "{shortage} {money} a unit, the same for all {sinks}. What the {items} keep does not count.",
                "Delivering is not compulsory: need that stays open is settled in the end with {shortage} "
                "{money} for every unit, be it that you stopped or that supplies ran out. Unused supplies "
                "are free of charge and without value.",
            ),
        ),
        goal=(
            "Everything counts as a cost in {money}, a gain below zero: bring the total of shipping and "
            "unmet need as close to zero as you can.",
            "Your result is minus the {money} paid for all shipments and for all need left open; the higher "
            "(the less negative), the better.",
            "Pay as few {money} as possible, routes and undelivered units taken together. The sum, with a "
            "minus sign, is your result.",
        ),
        status="{goods} left at the {items}: {supply_left}; {goods} wanted by the {sinks}: {need_left}.",
        outcomes={"ship": "from: {item}; to: {sink}; {goods} shipped: {amount}; {money} gained: {gain}."},
    ),
    sizes={
        "nano": {"items": 3, "sinks": 2, "high": 9, "units": 3, "shortage": 9},
        "small": {"items": 6, "sinks": 5, "high": 30, "units": 20, "shortage": 30},
        "medium": {"items": 8, "sinks": 7, "high": 30, "units": 20, "shortage": 30},
        "large": {"items": 9, "sinks": 9, "high": 40, "units": 20, "shortage": 40},
        "huge": {"items": 11, "sinks": 11, "high": 40, "units": 20, "shortage": 40},
        "long": {"items": 5, "sinks": 11, "high": 30, "units": 20, "shortage": 30},
    },
    theta_type=Transport,
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
    horizon=horizon,
    model=model,
)
