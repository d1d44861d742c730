"""Facility location: which sites to open, and which of them serves whom.

Sets        sites i = 1..n, customers k = 1..m in a fixed order
Parameters  opening charge f[i] >= 0, serving cost c[i,k] >= 0 (hidden)
Decision    the site i that serves the next customer
Dynamics    customer k served from i costs c[i,k], and f[i] as well if i serves for the first time; an open
            site stays open. Customers left undecided are served from the site with the highest f (ties: the
            first)
Objective   maximise minus the total of opening charges and serving costs

For a given set of open sites every customer takes the cheapest of them, so the sets are enumerated; a mixed
integer programme is the certificate.

Source: Balinski, "Integer programming: methods, uses, computation", Management Science 12, 1965; Erlenkotter,
"A dual-based procedure for uncapacitated facility location", Operations Research 26, 1978.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

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

MOST_SITES = 16  # 2^n sets are enumerated


@dataclass(frozen=True, slots=True)
class Facility:
    """Parameters; `service` has shape (n, m), in money; its prior is one triple for all, or one a customer.

    opened   sites that are open already, in rising order: residuals only
    """

    service: tuple[tuple[int, ...], ...]
    service_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    opening: tuple[int, ...]
    opened: tuple[int, ...] = ()


class State(NamedTuple):
    customer: int
    opened: tuple[int, ...]


def draw(rng: np.random.Generator, items: int, customers: int, high: int, charge: int) -> Facility:
    """Draw serving costs of which few are low, and opening charges around `charge`.

    Where the baseline happens to come close to the optimum, draw again (at most five times).
    """
    tops = [high - high * k // (3 * customers) for k in range(customers)]
    prior = tuple((0, top, max(1, top * 3 // 5)) for top in tops)
    for _ in range(6):
        columns = [skewed_table(rng, triple, items) for triple in prior]
        opening = rng.integers(-(-charge // 2), charge * 3 // 2 + 1, items)
        theta = Facility(tuple(zip(*columns, strict=True)), prior, tuple(opening.tolist()))
        solution = FAMILY.solve(theta)
        if solution.span >= solution.required_margin:
            break
    return theta


def check(theta: Facility) -> None:
    items = len(theta.service)
    require(1 <= items <= MOST_SITES, "service", items, f"needs 1 to {MOST_SITES} sites")
    require(len(theta.service[0]) >= 1, "service", theta.service, "needs at least one customer")
    customers = len(theta.service[0])
    require_table("service", theta.service, items, customers, low=0)
    require_prior("service_prior", theta.service_prior)
    if isinstance(theta.service_prior[0], tuple):
        found = len(theta.service_prior)
        require(found == customers, "service_prior", found, f"expected one triple for each of {customers}")
    require_table("opening", theta.opening, items, low=0)
    rising = list(theta.opened) == sorted(set(theta.opened)) and all(0 <= i < items for i in theta.opened)
    require(rising, "opened", theta.opened, f"expected rising indices below {items}")


def counts(theta: Facility) -> dict[str, int]:
    return {"customer": len(theta.service[0]), "item": len(theta.service)}


def start(theta: Facility) -> State:
    return State(0, theta.opened)


def legal(theta: Facility, state: State) -> tuple[Move, ...]:
    if state.customer == len(theta.service[0]):
        return ()
    return (Move("serve", (range(len(theta.service)),)),)


def step(theta: Facility, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    (i,) = action.args
    cost = theta.service[i][state.customer]
    shown: dict[Key, int] = {("service", i, state.customer): cost}
    if i in state.opened:
        return State(state.customer + 1, state.opened), -cost, shown
    opened = tuple(sorted((*state.opened, i)))
    return State(state.customer + 1, opened), -cost - theta.opening[i], shown


def default(theta: Facility, state: State) -> Action:
    """One site serves all: the one that is open, or else the one that is cheapest to open."""
    if state.opened:
        return Action("serve", (state.opened[0],))
    return Action("serve", (theta.opening.index(min(theta.opening)),))


def abandon(theta: Facility, state: State) -> int:
    """Whoever is left is served from the site that is dearest to open."""
    total, dearest = 0, Action("serve", (theta.opening.index(max(theta.opening)),))
    while legal(theta, state):
        state, gain, _ = step(theta, state, dearest)
        total += gain
    return total


def residual(theta: Facility, state: State) -> Facility:
    k, prior = state.customer, theta.service_prior
    return dataclasses.replace(
        theta,
        service=tuple(row[k:] for row in theta.service),
        service_prior=prior[k:] if prior and isinstance(prior[0], tuple) else prior,
        opened=state.opened,
    )


def observe(theta: Facility, state: State) -> dict[str, int]:
    total = len(theta.service[0])
    return {
        "now": min(state.customer + 1, total),
        "customers_left": total - state.customer,
        "sites_open": len(state.opened),
    }


def optimum(theta: Facility) -> Optimum:
    """Try every set of open sites at once: 2^n rows of least serving costs, built by doubling; O(2^n m)."""
    items, customers = len(theta.service), len(theta.service[0])
    if customers == 0:
        return Optimum(0, ())
    charges = np.array([0 if i in theta.opened else f for i, f in enumerate(theta.opening)])
    service = np.array(theta.service)
    nobody = int(service.sum() + charges.sum()) + 1  # stands for "no site": never optimal
    least = np.full((1 << items, customers), nobody)
    opening = np.zeros(1 << items, dtype=np.int64)
    for i in range(items):
        half = 1 << i  # the sets with i as their last site
        np.minimum(least[:half], service[i], out=least[half : 2 * half])
        opening[half : 2 * half] = opening[:half] + charges[i]
    costs = opening + least.sum(axis=1)
    best = int(costs.argmin())
    sites = [i for i in range(items) if best >> i & 1]
    servers = service[sites].argmin(axis=0).tolist()
    return Optimum(-int(costs[best]), tuple(Action("serve", (sites[server],)) for server in servers))


def bound(theta: Facility) -> int:
    """The mixed integer programme of `model`, solved to proven optimality."""
    return round(solve_model(model(theta))) if theta.service[0] else 0


def model(theta: Facility) -> pulp.LpProblem:
    """MILP in open sites and shares of customers; nobody is served from a closed site."""
    problem = pulp.LpProblem("facility", pulp.LpMaximize)
    costs = []
    served: list[list[pulp.LpVariable]] = [[] for _ in theta.service[0]]
    for i, row in enumerate(theta.service):
        runs = problem.add_variable(f"open_{i}", lowBound=0, upBound=1, cat="Integer")
        costs.append((0 if i in theta.opened else theta.opening[i]) * runs)
        for k, cost in enumerate(row):
            share = problem.add_variable(f"share_{i}_{k}", lowBound=0)
            problem += share <= runs, f"only_if_open_{i}_{k}"
            costs.append(cost * share)
            served[k].append(share)
    problem += -pulp.lpSum(costs)
    for k, shares in enumerate(served):
        problem += pulp.lpSum(shares) == 1, f"customer_{k}"
    return problem


FAMILY = Family(
    name="facility",
    title="Facility location: which sites to open, and which of them serves whom",
    coupling="graph",
    solver="enumeration",
    certificate="mixed integer programme with closed-site constraints for each pair",
    interface=Interface(
        entities=(Entity("customer", ordinal=True), Entity("item")),
        scalars=(),
        fields=(
            Field("opening", ("item",), "money"),
            Field("service", ("item", "customer"), "money", hidden=True),
        ),
        facts=(
            Quantity("now", "customer"),
            Quantity("customers_left", "customer"),
            Quantity("sites_open", "count"),
        ),
        verbs=(Verb("serve", (Slot("item", "item"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "{n_customer} {customers} come in the order of their numbers, and each is served from one "
                "of the {n_item} {items}. {tool_serve} names the {item} for the {customer} whose turn it "
                "is; then the next has its turn.",
                "Take the {n_customer} {customers} one after another, from number 1 on. For the current one "
                "you choose with {tool_serve} which of the {n_item} {items} serves it, and that is final.",
                "One call of {tool_serve} settles one {customer}, always the next in number. Any of the "
                "{n_item} {items} may be chosen, as often as you like; none can ever be full.",
            ),
            (
                'The first time you use one of the {items}, its "{label_opening}" is due. From then on it '
                "is open and never charges this again.",
                "Whichever {item} has not served anybody yet must be opened and costs its "
                '"{label_opening}", once and for all. Keeping it open is free.',
                'An opening is paid once for each {item} that is used at all: the "{label_opening}", charged '
                "together with its first service and never later.",
            ),
            (
                'Each service costs the "{label_service}" of the chosen {item} for this very {customer}, '
                "whether the {item} was open before or not. The figure is seen when the service is done, "
                "and only this one.",
                'On top of that you pay for the service itself: the "{label_service}", which is different '
                "for every combination of {item} and {customer}. Serving shows the figure of the "
                "combination chosen.",
                "What the service costs depends on who is served from where: for each {item} and each "
                '{customer} there is its own "{label_service}". It is added at every service, and you learn '
                "it by serving.",
            ),
            (
                "Nobody goes unserved. If you stop before the last {customer}, all that are left are served "
                'from the one {item} with the highest "{label_opening}" (of several, the one listed first), '
                "on the terms above.",
                "Stopping early hands the remaining {customers} over to a single {item}, the one whose "
                '"{label_opening}" is highest, listed first if several tie. Its opening, unless already '
                "paid, and every service are charged as usual.",
                "The {customers} for which you make no choice are charged as well: all of them get the "
                '{item} that is dearest to open by its "{label_opening}" (ties go to the first in the '
                "list), which is opened at your expense if it was not open.",
            ),
        ),
        goal=(
            "Everything counts as a cost in {money}, a gain below zero: bring the total of openings and "
            "services as close to zero as you can.",
            "Your result is minus the {money} paid for opening {items} and for serving all {n_customer} "
            "{customers}; the higher (the less negative), the better.",
            "Get everybody served for as few {money} as possible. Openings and services are added up, and "
            "the sum counts with a minus sign.",
        ),
        status="current {customer}: {now}; {customers} left: {customers_left}; {items} open: {sites_open}.",
        outcomes={"serve": "served from: {item}; {money} gained: {gain}."},
    ),
    sizes={
        "nano": {"items": 2, "customers": 3, "high": 9, "charge": 2},
        "small": {"items": 6, "customers": 5, "high": 40, "charge": 16},
        "medium": {"items": 8, "customers": 7, "high": 40, "charge": 20},
        "large": {"items": 9, "customers": 9, "high": 40, "charge": 25},
        "huge": {"items": 11, "customers": 11, "high": 40, "charge": 30},
        "long": {"items": 5, "customers": 14, "high": 40, "charge": 30},
    },
    theta_type=Facility,
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
    horizon=lambda theta: len(theta.service[0]),
    model=model,
)
