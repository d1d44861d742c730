"""Search: several closed boxes in every round, each with a fee; open some, then take the best prize seen.

Sets        rounds t = 1..T, boxes i = 1..n
Parameters  fee f[i] >= 0 of opening box i, prize p[t,i] >= 0 that lies in it in round t (hidden; the prior of
            box i is the same in every round)
Decision    open(i), for a box not yet opened in this round, or take()
Dynamics    opening costs f[i] and shows p[t,i]; taking earns the largest prize among the boxes opened in this
            round (0 if there is none) and begins the next round, in which every box is closed and refilled
Objective   maximise the prizes taken minus the fees paid

Rounds are independent, and with all prizes known a second box in one round only adds its fee. With b the best
prize already seen, the rest of a round is therefore worth max(b, max of p[t,i] - f[i] over the closed boxes).
Who does not know the prizes meets Weitzman's problem in every round; with independent prizes his reservation
values are then the best policy. There are no probes: a prize is seen by opening alone.

Source: Weitzman, "Optimal search for the best alternative", Econometrica 47, 1979.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp
from scipy.optimize import linprog

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
class Search:
    """Parameters; `prize` has shape (T, n), in money; its prior is one triple a box. `opened` lists the
    boxes that are open already in the first round, which happens in residuals alone."""

    fee: tuple[int, ...]
    prize: tuple[tuple[int, ...], ...]
    prize_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    opened: tuple[int, ...] = ()


class State(NamedTuple):
    period: int
    opened: tuple[int, ...]  # boxes opened in this round, ascending


def draw(rng: np.random.Generator, periods: int, items: int, high: int, spread: int) -> Search:
    """Draw boxes whose usual prize is about a third of `high`; fees follow the usual prize.

    high    most that a prize can be
    spread  how far usual prizes lie apart: 0 makes all boxes alike
    """
    prior = []
    for i in range(items):
        mean = high // 3 + int(rng.integers(-spread, spread + 1))
        top = max(high - 4 * spread * i // items, mean + 2)
        prior.append((mean // 4, top, mean))
    fee = tuple(int(rng.integers(1, max(1, mean // 3) + 1)) for _, _, mean in prior)
    columns = [skewed_table(rng, triple, periods) for triple in prior]
    return Search(fee, tuple(zip(*columns, strict=True)), tuple(prior))


def check(theta: Search) -> None:
    require(len(theta.fee) >= 1, "fee", theta.fee, "needs at least one box")
    require(len(theta.prize) >= 1, "prize", theta.prize, "needs at least one round")
    items = len(theta.fee)
    require_table("fee", theta.fee, items, low=0)
    require_table("prize", theta.prize, len(theta.prize), items, low=0)
    require_prior("prize_prior", theta.prize_prior)
    if isinstance(theta.prize_prior[0], tuple):
        found = len(theta.prize_prior)
        require(found == items, "prize_prior", found, f"expected one triple for each of {items} boxes")
    known = tuple(i for i in range(items) if isinstance(theta.opened, tuple) and i in theta.opened)
    require(theta.opened == known, "opened", theta.opened, f"expected boxes 0..{items - 1}, ascending")


def counts(theta: Search) -> dict[str, int]:
    return {"period": len(theta.prize), "item": len(theta.fee)}


def start(theta: Search) -> State:
    return State(0, theta.opened)


def legal(theta: Search, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.prize):
        return ()
    closed = tuple(i for i in range(len(theta.fee)) if i not in state.opened)
    return (Move("open", (closed,)), Move("take")) if closed else (Move("take"),)


def best_seen(theta: Search, state: State) -> int:
    """Return the largest prize seen in this round, 0 if no box is open."""
    return max((theta.prize[state.period][i] for i in state.opened), default=0)


def step(theta: Search, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    if action.verb == "take":
        return State(state.period + 1, ()), best_seen(theta, state), {}
    (i,) = action.args
    shown: dict[Key, int] = {("prize", state.period, i): theta.prize[state.period][i]}
    return State(state.period, tuple(sorted((*state.opened, i)))), -theta.fee[i], shown


def default(theta: Search, state: State) -> Action:
    """Always compare two: open the two boxes that are usually best after their fees, take the better one."""
    usual = [published(theta, ("prize", state.period, i))[2] - fee for i, fee in enumerate(theta.fee)]
    favourites = sorted(range(len(usual)), key=lambda i: (-usual[i], i))[:2]
    for i in favourites:
        if usual[i] > 0 and i not in state.opened:
            return Action("open", (i,))
    return Action("take")


def abandon(theta: Search, state: State) -> int:
    """A prize that is not taken is lost."""
    return 0


def residual(theta: Search, state: State) -> Search:
    return dataclasses.replace(theta, prize=theta.prize[state.period :], opened=state.opened)


def observe(theta: Search, state: State) -> dict[str, int]:
    total = len(theta.prize)
    running = state.period < total
    return {
        "now": min(state.period + 1, total),
        "opened_now": len(state.opened),
        "best": best_seen(theta, state) if running else 0,
        "periods_left": total - state.period,
    }


def optimum(theta: Search) -> Optimum:
    """In each round take the best prize seen, or first open the box whose prize exceeds its fee by most."""
    total, plan = 0, []
    for period, prizes in enumerate(theta.prize):
        opened = theta.opened if period == 0 else ()
        worth, choice = max((prizes[i] for i in opened), default=0), -1
        for i, fee in enumerate(theta.fee):
            if i not in opened and prizes[i] - fee > worth:
                worth, choice = prizes[i] - fee, i
        if choice >= 0:
            plan.append(Action("open", (choice,)))
        plan.append(Action("take"))
        total += worth
    return Optimum(total, tuple(plan))


def bound(theta: Search) -> int:
    """Least dual value of the LP of `model`, found by HiGHS through scipy.

    With m[t] the price of the one take of a round and q[t,i] that of having box i open, any m, q >= 0 with
    m[t] + q[t,i] >= p[t,i], and q[t,i] <= f[i] for a closed box, bounds u by the sum of all m[t] and of the
    q[t,i] of the boxes that are open from the start.
    """
    rounds, items = len(theta.prize), len(theta.fee)
    if rounds == 0:
        return 0
    prizes = np.array(theta.prize, dtype=float)
    limits = np.tile(np.array(theta.fee, dtype=float), (rounds, 1))
    costs = np.concatenate((np.ones(rounds), np.zeros(rounds * items)))
    rows = np.zeros((rounds * items, rounds + rounds * items))
    for i in theta.opened:
        limits[0, i], costs[rounds + i] = np.inf, 1
    pairs = np.arange(rounds * items)
    rows[pairs, pairs // items] = -1
    rows[pairs, rounds + pairs] = -1
    bounds = [(0.0, np.inf)] * rounds + [(0.0, limit) for limit in limits.ravel()]
    found = linprog(costs, A_ub=rows, b_ub=-prizes.ravel(), bounds=bounds, method="highs")
    if found.status != 0:
        raise RuntimeError(f"search: the dual LP ended with {found.message!r}")
    return math.floor(float(found.fun or 0.0) + 1e-6)


def model(theta: Search) -> pulp.LpProblem:
    """LP that is integral by itself: a box is taken only if it is open, and one in a round at most."""
    problem = pulp.LpProblem("search", pulp.LpMaximize)
    terms = []
    for t, prizes in enumerate(theta.prize):
        taken = [problem.add_variable(f"take_{t}_{i}", lowBound=0) for i in range(len(prizes))]
        for i, prize in enumerate(prizes):
            free = t == 0 and i in theta.opened
            opened = problem.add_variable(f"open_{t}_{i}", lowBound=1 if free else 0, upBound=1)
            problem += taken[i] <= opened, f"closed_{t}_{i}"
            terms += [prize * taken[i], (0 if free else -theta.fee[i]) * opened]
        problem += pulp.lpSum(taken) <= 1, f"one_{t}"
    problem += pulp.lpSum(terms)
    return problem


FAMILY = Family(
    name="search",
    title="Search: which boxes to open, and when to be content",
    coupling="order",
    solver="closed form",
    certificate="dual of the linear programme",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(),
        fields=(
            Field("fee", ("item",), "money"),
            Field("prize", ("period", "item"), "money", hidden=True, probe=False),
        ),
        facts=(
            Quantity("now", "period"),
            Quantity("opened_now", "count"),
            Quantity("best", "money"),
            Quantity("periods_left", "period"),
        ),
        verbs=(Verb("open", (Slot("item", "item"),)), Verb("take")),
    ),
    texts=Texts(
        rules=(
            (
                "The {n_period} {periods} come in order. In each one you may call {tool_open} as often as "
                "you like, for a different {item} every time, and you close it with {tool_take}.",
                "Any number of calls of {tool_open} (none is allowed too), then one call of {tool_take}: "
                "that is how each of the {n_period} {periods} runs, one after another. No {item} can be "
                "opened twice in the same {period}.",
                "{tool_take} ends the current {period} and brings on the next, until all {n_period} are "
                "over. Before that, {tool_open} is at your disposal, at most once for each of the {n_item} "
                "{items} in one {period}.",
            ),
            (
                'Opening costs the "{label_fee}" of that {item}, at once and for good, and tells you its '
                '"{label_prize}" in the current {period}. There is no other way to learn it.',
                'To see the "{label_prize}" of any {item} in the current {period} you have to open it and '
                'pay its "{label_fee}", whether you take it afterwards or not.',
                'Each call of {tool_open} does two things: the "{label_fee}" of the {item} is subtracted '
                'from your gain, never to be paid back, and its "{label_prize}" for this {period} comes to '
                "light.",
            ),
            (
                '{tool_take} earns the largest "{label_prize}" among the {items} that you opened in this '
                "very {period}: that one alone, and 0 if you opened none. The next {period} starts with all "
                '{n_item} {items} closed and with new contents; the "{label_fee}" of each stays as it was.',
                "Of everything opened in one {period} only the best counts, and {tool_take} pays it out (or "
                "0, when nothing was opened). Earlier finds cannot be called on: with every new {period} "
                'all {n_item} {items} are closed again and filled anew, while the "{label_fee}" of each is '
                "unchanged.",
                "What you saw in one {period} is of use in that {period} only. {tool_take} turns the "
                'highest "{label_prize}" opened there into gain, nothing opened meaning 0; afterwards all '
                'contents change and every {item} is shut, at the same "{label_fee}" as before.',
            ),
            (
                "If you stop early, nothing paid for {tool_open} is returned, what you saw but did not take "
                "is lost, and the {periods} that you did not reach bring 0.",
                "Whatever has not been taken with {tool_take} when you stop does not count; {periods} left "
                "out neither earn nor cost anything, while all that was charged stays charged.",
                "Nobody calls {tool_take} in your stead. Stopping before the end means 0 for the current "
                "{period} and for each later one, with every past {tool_open} still charged.",
            ),
        ),
        goal=(
            "Make what {tool_take} brings in, less all that {tool_open} costs, as large as possible in "
            "{money} over the {n_period} {periods}.",
            "Your result is counted in {money}: the sum of what {tool_take} paid minus the sum of what "
            "{tool_open} cost. More is better.",
            "What is wanted is the highest total of {money}, everything taken being added and every opening "
            "deducted.",
        ),
        status=(
            "current {period}: {now}; {items} opened in it: {opened_now}; best seen in it, in {money}: "
            "{best}; {periods} left: {periods_left}."
        ),
        outcomes={
            "open": "opened: {item}; {money} gained: {gain}.",
            "take": "taken, in {money}: {gain}.",
        },
    ),
    sizes={
        "nano": {"periods": 2, "items": 4, "high": 9, "spread": 0},
        "small": {"periods": 5, "items": 6, "high": 30, "spread": 4},
        "medium": {"periods": 7, "items": 8, "high": 30, "spread": 4},
        "large": {"periods": 9, "items": 9, "high": 40, "spread": 5},
        "huge": {"periods": 11, "items": 11, "high": 40, "spread": 5},
        "long": {"periods": 12, "items": 5, "high": 30, "spread": 4},
    },
    theta_type=Search,
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
    horizon=lambda theta: len(theta.prize) * (len(theta.fee) + 1),
    model=model,
)
