"""Harvest: a stock that renews itself, taken in part when it pays and left to grow when it does not.

Sets        periods t = 1..T, stock levels 1..K
Parameters  growth g[k] >= 0 of a stock of k units, k + g[k] <= K and g[0] = 0; price a[t] >= 0 and effort
            e[t] >= 0 of one unit in period t (both hidden); stock s at the start, 1 <= s <= K; salvage value
            v >= 0 of every unit left at the end
Decision    x[t], units taken in period t, 0 <= x[t] <= s
Dynamics    taking x[t] units earns (a[t] - e[t]) x[t], which may be negative; k = s - x[t] units are left
            and grow to k + g[k], the stock of the next period
Objective   maximise the total of the gains plus v times the stock after the growth of the last period

Stock that nobody takes any more goes on growing to the end and is then salvaged, so that stopping early is
the same as taking nothing.

Source: Clark, "Mathematical Bioeconomics", 1976; Reed, "Optimal escapement levels in stochastic and
deterministic harvesting models", Journal of Environmental Economics and Management 6, 1979. The growth drawn
here is logistic: Verhulst, 1838.
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

Prior = tuple[tuple[int, int, int], ...] | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Harvest:
    """Parameters; `growth[k - 1]` belongs to stock k; price and effort have shape (T,), in money, and their
    priors are one triple for all, or one a period.
    """

    growth: tuple[int, ...]
    price: tuple[int, ...]
    price_prior: Prior
    effort: tuple[int, ...]
    effort_prior: Prior
    stock: int
    salvage: int


class State(NamedTuple):
    period: int
    stock: int


def draw(rng: np.random.Generator, periods: int, levels: int, speed: int, high: int, swing: int) -> Harvest:
    """Draw logistic growth, usual prices that swing over the periods, and true ones up to twice the usual.

    levels  the most that can stand
    speed   usual growth of a very small stock, as a percentage of that stock
    high    about the highest price; usual prices lie near its half, usual efforts near its quarter
    swing   percentage by which the usual price or effort of a period may differ from that
    """
    rate, stand = speed / 100 * rng.uniform(0.8, 1.25), np.arange(1, levels + 1)
    growth = np.minimum(np.maximum(1, (rate * stand * (1 - stand / levels)).round()), levels - stand)

    def money(level: float) -> tuple[tuple[int, ...], Prior]:
        usual = level * (1 + swing / 100 * rng.uniform(-1, 1, periods))
        means = np.maximum(1, usual.round()).astype(int).tolist()
        prior = tuple((0, 2 * mean, mean) for mean in means)
        return tuple(skewed_table(rng, triple, 1)[0] for triple in prior), prior

    price, price_prior = money(high / 2)
    effort, effort_prior = money(high / 4)
    stock = int(rng.integers(max(1, levels // 2), levels + 1))
    growing = tuple(growth.astype(int).tolist())
    return Harvest(growing, price, price_prior, effort, effort_prior, stock, max(1, high // 12))


def check(theta: Harvest) -> None:
    levels, periods = len(theta.growth), len(theta.price)
    require(levels >= 1, "growth", theta.growth, "needs at least one stock level")
    require_table("growth", theta.growth, levels, low=0)
    for k, grown in enumerate(theta.growth, start=1):
        require(k + grown <= levels, "growth", theta.growth, f"a stock of {k} may not grow beyond {levels}")
    require(periods >= 1, "price", theta.price, "needs at least one period")
    for name in ("price", "effort"):
        require_table(name, getattr(theta, name), periods, low=0)
        prior = getattr(theta, f"{name}_prior")
        require_prior(f"{name}_prior", prior)
        if isinstance(prior[0], tuple):
            require(
                len(prior) == periods, f"{name}_prior", prior, f"expected {periods} triples, one a period"
            )
    require(1 <= theta.stock <= levels, "stock", theta.stock, f"must lie in 1..{levels}")
    require(theta.salvage >= 0, "salvage", theta.salvage, "must be at least 0")


def counts(theta: Harvest) -> dict[str, int]:
    return {"period": len(theta.price), "level": len(theta.growth)}


def grown(theta: Harvest, left: int) -> int:
    """Return what `left` units are after one period of growth."""
    return left + theta.growth[left - 1] if left else 0


def start(theta: Harvest) -> State:
    return State(0, theta.stock)


def legal(theta: Harvest, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.price) or state.stock == 0:
        return ()
    return (Move("take", (range(state.stock + 1),)),)


def step(theta: Harvest, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """Whoever takes something learns price and effort; whoever takes nothing learns neither."""
    (amount,) = action.args
    t = state.period
    shown: dict[Key, int] = {}
    if amount:
        shown = {("price", t): theta.price[t], ("effort", t): theta.effort[t]}
    after = State(t + 1, grown(theta, state.stock - amount))
    return after, (theta.price[t] - theta.effort[t]) * amount, shown


def default(theta: Harvest, state: State) -> Action:
    """Keep the stock that grows most: take the rest where that usually pays, and all of it in the end."""
    usual = (published(theta, (name, state.period))[2] for name in ("price", "effort"))
    margin = next(usual) - next(usual)
    if state.period == len(theta.price) - 1:
        return Action("take", (state.stock if margin > theta.salvage else 0,))
    kept = 1 + max(range(len(theta.growth)), key=lambda k: (theta.growth[k], -k))
    return Action("take", (max(0, state.stock - kept) if margin > 0 else 0,))


def abandon(theta: Harvest, state: State) -> int:
    stock = state.stock
    for _ in range(state.period, len(theta.price)):
        stock = grown(theta, stock)
    return theta.salvage * stock


def residual(theta: Harvest, state: State) -> Harvest:
    tables = {}
    for name in ("price", "effort"):
        prior = getattr(theta, f"{name}_prior")
        tables[name] = getattr(theta, name)[state.period :]
        tables[f"{name}_prior"] = prior[state.period :] if isinstance(prior[0], tuple) else prior
    return dataclasses.replace(theta, stock=state.stock, **tables)


def observe(theta: Harvest, state: State) -> dict[str, int]:
    total = len(theta.price)
    return {"now": min(state.period + 1, total), "on_hand": state.stock, "periods_left": total - state.period}


def optimum(theta: Harvest) -> Optimum:
    """Dynamic programme over (period, stock): a running maximum over what is left, O(T K)."""
    levels = np.arange(len(theta.growth) + 1)
    later = levels + np.array((0, *theta.growth))
    after = theta.salvage * levels
    choices = []
    for price, effort in zip(reversed(theta.price), reversed(theta.effort), strict=True):
        margin = price - effort
        worth = after[later] - margin * levels  # of leaving so much, all of it not taken
        best = np.maximum.accumulate(worth)
        choices.append(np.maximum.accumulate(np.where(worth == best, levels, 0)))  # leave the most
        after = best + margin * levels
    plan, stock = [], theta.stock
    for choice in reversed(choices):
        if stock == 0:
            break
        plan.append(Action("take", (stock - int(choice[stock]),)))
        stock = int(later[choice[stock]])
    return Optimum(int(after[theta.stock]), tuple(plan))


def bound(theta: Harvest) -> int:
    """LP dual of a flow that takes unit by unit: potentials w(t, s) of the stock s, checked in integers.

    w(t, s) >= a[t] - e[t] + w(t, s - 1), w(t, s) >= w(t + 1, s + g[s]) and w(T, s) >= v s bound every plan.
    """
    periods, width = len(theta.price), len(theta.growth) + 1
    arcs = []
    for t, (price, effort) in enumerate(zip(theta.price, theta.effort, strict=True)):
        here = t * width
        arcs += [(here + s, here + s - 1, price - effort) for s in range(1, width)]
        arcs += [(here + s, here + width + grown(theta, s), 0) for s in range(width)]
    least = np.full((periods + 1) * width, -np.inf)
    least[periods * width :] = theta.salvage * np.arange(width)
    if not arcs:
        return int(least[theta.stock])
    tails, heads, gains = (np.array(column) for column in zip(*arcs, strict=True))
    lines = np.arange(len(arcs))
    cells = (np.tile(lines, 2), np.concatenate((tails, heads)))
    drops = sparse.coo_array((np.repeat([1.0, -1.0], len(arcs)), cells)).tocsr()
    found = milp(
        np.ones(len(least)), bounds=Bounds(least, np.inf), constraints=LinearConstraint(drops, gains, np.inf)
    )
    if found.status != 0:
        raise RuntimeError(f"harvest: the LP bound ended with {found.message!r}")
    potential = np.rint(found.x).astype(np.int64)
    if np.any(potential[tails] < gains + potential[heads]) or np.any(potential < least):
        raise RuntimeError("harvest: the rounded potentials are no bound")
    return int(potential[theta.stock])


def model(theta: Harvest) -> pulp.LpProblem:
    """MILP: a binary for every number of units that a period can leave."""
    problem = pulp.LpProblem("harvest", pulp.LpMaximize)
    terms, stock = [], pulp.LpAffineExpression(constant=theta.stock)
    levels = range(len(theta.growth) + 1)
    for t, (price, effort) in enumerate(zip(theta.price, theta.effort, strict=True)):
        leave = [problem.add_variable(f"leave_{t}_{k}", cat="Binary") for k in levels]
        taken = problem.add_variable(f"taken_{t}", lowBound=0)
        problem += pulp.lpSum(leave) == 1, f"one_level_{t}"
        problem += stock - taken == pulp.lpSum(k * leave[k] for k in levels), f"balance_{t}"
        terms.append((price - effort) * taken)
        stock = pulp.lpSum(grown(theta, k) * leave[k] for k in levels)
    problem += pulp.lpSum(terms) + theta.salvage * stock
    return problem


FAMILY = Family(
    name="harvest",
    title="Harvest: a stock that renews itself",
    coupling="stock",
    solver="dynamic programming",
    certificate="LP dual of the flow unit by unit",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("level", ordinal=True)),
        scalars=(Quantity("stock", "goods"), Quantity("salvage", "money")),
        fields=(
            Field("growth", ("level",), "goods"),
            Field("price", ("period",), "money", hidden=True),
            Field("effort", ("period",), "money", hidden=True),
        ),
        facts=(Quantity("now", "period"), Quantity("on_hand", "goods"), Quantity("periods_left", "period")),
        verbs=(Verb("take", (Slot("amount"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "For {n_period} {periods}, one after another, you say with {tool_take} how many {goods} are "
                "taken: none, all that are there, or any whole number between. You begin with {stock}.",
                "The stock is {stock} {goods} to begin with. Once in each of the {n_period} {periods}, "
                "{tool_take} removes a whole number of them, from 0 to everything present.",
                "{tool_take} is used once in every {period} and closes it. Its amount may be 0 and may be "
                "as large as the stock of the moment, which is {stock} {goods} in the first of {n_period} "
                "{periods}.",
            ),
            (
                'Each unit taken brings the "{label_price}" of that {period} and costs its '
                '"{label_effort}"; the difference is your gain or, if negative, your loss. Taking anything '
                "shows you both figures, taking none shows neither.",
                'The gain of one {period} is its amount times ("{label_price}" minus "{label_effort}"), '
                "which can fall below zero. You see these two numbers of the {period} as soon as you take "
                "at least one unit, not otherwise.",
                'Two figures of the {period} settle the result: what one unit yields ("{label_price}") and '
                'what getting it costs ("{label_effort}"). Subtract the second from the first and multiply '
                "by the amount; the outcome may lie below zero. Both become known through taking, never "
                "through waiting.",
            ),
            (
                "What you leave then grows before the next {period}: look up the number left in "
                '"{label_growth}" and add the figure found there. Nothing grows from an empty stock, and no '
                "stock exceeds {n_level} {goods}.",
                "Growth follows every {period}, the last one too, and depends on the number left after "
                'taking: "{label_growth}" lists the units added for 1, 2 and so on up to {n_level}, the '
                "most there can be. With 0 left it stays 0.",
                "Between {periods} the remainder is increased according to its own size. The table "
                '"{label_growth}" says by how many units, for each remainder from 1 to {n_level}; a '
                "remainder of 0 never recovers.",
            ),
            (
                "After the growth of the last {period} every unit present is worth {salvage} {money} to "
                "you. If you stop early, nothing more is taken, the stock grows on until then and is valued "
                "in the same way; with an empty stock all is over.",
                "At the very end, all units are counted once more after growing, and each adds {salvage} "
                "{money}. The {periods} you leave out pass without taking, but with growth. Once the stock "
                "is empty there is nothing left to decide.",
                "Unused {periods} are {periods} in which nothing is taken while the stock keeps growing. "
                "Whatever exists after {period} {n_period} and its growth is credited at {salvage} {money} "
                "a unit. An empty stock ends the matter at once.",
            ),
        ),
        goal=(
            "Let the {money} of all {periods}, and of what remains, add up to as much as possible.",
            "You are judged by the total of {money}: gains less losses over {n_period} {periods}, and the "
            "value of the final stock.",
            "As many {money} as possible, all {periods} and the final stock counted together, is the aim.",
        ),
        status="current {period}: {now}; {goods} present: {on_hand}; {periods} left: {periods_left}.",
        outcomes={"take": "{goods} taken: {amount}; {money} gained: {gain}."},
    ),
    sizes={
        "nano": {"periods": 3, "levels": 8, "speed": 100, "high": 10, "swing": 25},
        "small": {"periods": 10, "levels": 16, "speed": 65, "high": 24, "swing": 50},
        "medium": {"periods": 14, "levels": 20, "speed": 65, "high": 24, "swing": 50},
        "large": {"periods": 18, "levels": 24, "speed": 65, "high": 30, "swing": 50},
        "huge": {"periods": 22, "levels": 30, "speed": 65, "high": 30, "swing": 50},
        "long": {"periods": 24, "levels": 16, "speed": 65, "high": 24, "swing": 50},
    },
    theta_type=Harvest,
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
    horizon=lambda theta: len(theta.price),
    model=model,
)
