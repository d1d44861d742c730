"""Project selection: a fund that grows by the projects it pays for.

Sets        periods t = 1..T, projects i = 1..n
Parameters  cost k[i] >= 0, predecessor p[i] (a project, or -1: none), cash c[i,a] >= 0 that a running project
            pays in the a-th period of its life, a = 1..T (hidden), fund F >= 0 at the start
Decision    in each period start one project that has not been started, with k[i] <= fund and p[i] started in
            an earlier period, or wait
Dynamics    starting takes k[i] out of the fund; at the close of the period every running project, the new one
            too, pays its cash into the fund (a = 1 for a new project); then the next period opens
Objective   maximise the growth of the fund: cash received up to the end of period T minus costs

Starts are binary variables (project, period); the fund makes every period's constraint depend on all earlier
starts. A start that could not earn its cost back, even with all that it makes possible, is left out of the
model.

Source: Weingartner, "Mathematical Programming and the Analysis of Capital Budgeting Problems", 1963 (capital
rationing over time); Lorie and Savage, "Three problems in rationing capital", Journal of Business 28, 1955.
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
    published,
    require,
    require_prior,
    require_table,
    skewed_table,
)


@dataclass(frozen=True, slots=True)
class ProjectSelection:
    """Parameters; `cash` has shape (n, T), in money; its prior is one triple for all, or one a period of
    life.

    running   projects started before the first period, in rising order: residuals only. Their rows of cash
              are what they still pay.
    """

    cash: tuple[tuple[int, ...], ...]
    cash_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    cost: tuple[int, ...]
    predecessor: tuple[int, ...]
    fund: int
    running: tuple[int, ...] = ()


class State(NamedTuple):
    """started   for every project the 0-based period of its start, -1 for none"""

    period: int
    fund: int
    started: tuple[int, ...]


def draw(rng: np.random.Generator, periods: int, items: int, high: int) -> ProjectSelection:
    """Draw skewed cash, costs that take long to earn back, and a fund for two or three starts.

    Where the baseline happens to come close to the optimum, draw again (at most five times).
    """
    tops = [max(2, high - high * a // (2 * periods)) for a in range(periods)]
    prior = tuple((0, top, max(1, top // 3)) for top in tops)
    usual = periods * max(1, high // 3)
    for _ in range(6):
        columns = [skewed_table(rng, triple, items) for triple in prior]
        cost = rng.integers(usual * 9 // 20, usual * 4 // 5 + 1, items)
        order = rng.permutation(items).tolist()
        predecessor = [-1] * items
        for place in range(1, items):
            if rng.random() < 0.5:
                predecessor[order[place]] = order[int(rng.integers(place))]
        fund = int(rng.integers(usual * 3 // 2, usual * 2 + 1))
        theta = ProjectSelection(
            tuple(zip(*columns, strict=True)), prior, tuple(cost.tolist()), tuple(predecessor), fund
        )
        solution = FAMILY.solve(theta)
        if solution.span >= max(solution.required_margin, solution.u_star // 2):
            break
    return theta


def check(theta: ProjectSelection) -> None:
    require(len(theta.cash) >= 1, "cash", theta.cash, "needs at least one project")
    require(len(theta.cash[0]) >= 1, "cash", theta.cash, "needs at least one period")
    items, periods = len(theta.cash), len(theta.cash[0])
    require_table("cash", theta.cash, items, periods, low=0)
    require_prior("cash_prior", theta.cash_prior)
    if isinstance(theta.cash_prior[0], tuple):
        found = len(theta.cash_prior)
        require(found == periods, "cash_prior", found, f"expected one triple for each of {periods} periods")
    require_table("cost", theta.cost, items, low=0)
    require_table("predecessor", theta.predecessor, items, low=-1)
    for i in range(items):
        chain, before = {i}, theta.predecessor[i]
        while before >= 0:
            require(before < items, "predecessor", before, f"must be below {items}, or -1 for none")
            require(before not in chain, "predecessor", theta.predecessor, "must not run in a circle")
            chain.add(before)
            before = theta.predecessor[before]
    require(theta.fund >= 0, "fund", theta.fund, "must be at least 0")
    rising = list(theta.running) == sorted(set(theta.running)) and all(0 <= i < items for i in theta.running)
    require(rising, "running", theta.running, f"expected rising indices below {items}")


def counts(theta: ProjectSelection) -> dict[str, int]:
    return {"period": len(theta.cash[0]), "item": len(theta.cash)}


def start(theta: ProjectSelection) -> State:
    return State(0, theta.fund, tuple(0 if i in theta.running else -1 for i in range(len(theta.cash))))


def startable(theta: ProjectSelection, state: State) -> list[int]:
    """Return the projects that may be started now."""
    return [
        i
        for i, (cost, before) in enumerate(zip(theta.cost, theta.predecessor, strict=True))
        if state.started[i] < 0 and cost <= state.fund and (before < 0 or state.started[before] >= 0)
    ]


def legal(theta: ProjectSelection, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.cash[0]):
        return ()
    possible = startable(theta, state)
    return (Move("start", (possible,)), Move("wait")) if possible else (Move("wait"),)


def step(theta: ProjectSelection, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    t, started, gain = state.period, list(state.started), 0
    if action.verb == "start":
        (i,) = action.args
        started[i] = t
        gain -= theta.cost[i]
    shown: dict[Key, int] = {
        ("cash", i, t - since): theta.cash[i][t - since] for i, since in enumerate(started) if since >= 0
    }
    gain += sum(shown.values())
    if theta.running:  # a residual: rows of running projects do not begin with their lives
        shown = {key: value for key, value in shown.items() if key[1] not in theta.running}
    return State(t + 1, state.fund + gain, tuple(started)), gain, shown


def default(theta: ProjectSelection, state: State) -> Action:
    """Start the first project on the list that would usually earn its cost back by the end."""
    left = len(theta.cash[0]) - state.period
    for i in startable(theta, state):
        if sum(published(theta, ("cash", i, age))[2] for age in range(left)) > theta.cost[i]:
            return Action("start", (i,))
    return Action("wait")


def abandon(theta: ProjectSelection, state: State) -> int:
    """What runs goes on paying to the end."""
    ages = [(i, state.period - since) for i, since in enumerate(state.started) if since >= 0]
    left = len(theta.cash[0]) - state.period
    return sum(sum(theta.cash[i][age : age + left]) for i, age in ages)


def residual(theta: ProjectSelection, state: State) -> ProjectSelection:
    left = len(theta.cash[0]) - state.period
    ages = [state.period - since if since >= 0 else 0 for since in state.started]
    prior = theta.cash_prior
    return dataclasses.replace(
        theta,
        cash=tuple(row[age : age + left] for row, age in zip(theta.cash, ages, strict=True)),
        cash_prior=prior[:left] if prior and isinstance(prior[0], tuple) else prior,
        fund=state.fund,
        running=tuple(i for i, since in enumerate(state.started) if since >= 0),
    )


def observe(theta: ProjectSelection, state: State) -> dict[str, int]:
    total = len(theta.cash[0])
    return {
        "now": min(state.period + 1, total),
        "in_fund": state.fund,
        "running_now": sum(since >= 0 for since in state.started),
        "periods_left": total - state.period,
    }


def worthwhile(theta: ProjectSelection) -> list[tuple[int, int]]:
    """List (project, period) of starts that could pay, counting all that they open up at its best."""
    items, periods = len(theta.cash), len(theta.cash[0])
    net = np.cumsum(theta.cash, axis=1)[:, ::-1] - np.array(theta.cost)[:, None]  # by period of the start
    promise: dict[tuple[int, int], int] = {}
    for t in reversed(range(periods)):
        for i in _leaves_first(theta.predecessor):
            if i not in theta.running:
                opened = [k for k in range(items) if theta.predecessor[k] == i and k not in theta.running]
                promise[i, t] = int(net[i, t]) + sum(max(0, promise.get((k, t + 1), 0)) for k in opened)
    return sorted(pair for pair, best in promise.items() if best > 0)


def _leaves_first(predecessor: tuple[int, ...]) -> list[int]:
    def depth(i: int) -> int:
        return 0 if predecessor[i] < 0 else 1 + depth(predecessor[i])

    return sorted(range(len(predecessor)), key=depth, reverse=True)


def build(theta: ProjectSelection) -> tuple[pulp.LpProblem, list[tuple[int, int, pulp.LpVariable]]]:
    """Return the MILP and its starts (project, period, binary)."""
    problem = pulp.LpProblem("project_selection", pulp.LpMaximize)
    periods = len(theta.cash[0])
    paid = [[0, *np.cumsum(row).tolist()] for row in theta.cash]  # cash of the first a periods of life
    steady = [sum(paid[i][t] for i in theta.running) for t in range(periods + 1)]
    starts = [(i, t, problem.add_variable(f"start_{i}_{t}", cat="Binary")) for i, t in worthwhile(theta)]
    problem += pulp.lpSum((paid[i][periods - t] - theta.cost[i]) * y for i, t, y in starts) + steady[periods]
    for now in range(periods):
        fresh = [(i, y) for i, t, y in starts if t == now]
        if not fresh:
            continue
        problem += pulp.lpSum(y for _, y in fresh) <= 1, f"one_start_{now}"
        spent = pulp.lpSum(theta.cost[i] * y for i, y in fresh)
        earned = pulp.lpSum((paid[i][now - t] - theta.cost[i]) * y for i, t, y in starts if t < now)
        problem += spent - earned <= theta.fund + steady[now], f"fund_{now}"
        for i, _ in fresh:
            before = theta.predecessor[i]
            if before >= 0 and before not in theta.running:
                so_far = pulp.lpSum(other for k, t, other in starts if k == i and t <= now)
                ready = pulp.lpSum(other for k, t, other in starts if k == before and t < now)
                problem += so_far - ready <= 0, f"order_{i}_{now}"
    for i in sorted({i for i, _, _ in starts}):
        problem += pulp.lpSum(y for k, _, y in starts if k == i) <= 1, f"once_{i}"
    return problem, starts


def model(theta: ProjectSelection) -> pulp.LpProblem:
    """MILP in starts (project, period)."""
    return build(theta)[0]


def optimum(theta: ProjectSelection) -> Optimum:
    """The MILP through PuLP."""
    if not theta.cash[0]:
        return Optimum(0, ())
    problem, starts = build(theta)
    if not starts:
        return Optimum(abandon(theta, start(theta)), (Action("wait"),) * len(theta.cash[0]))
    value = round(solve_model(problem))
    plan = [Action("wait")] * len(theta.cash[0])
    for i, t, y in starts:
        if pulp.value(y) > 0.5:
            plan[t] = Action("start", (i,))
    return Optimum(value, tuple(plan))


def bound(theta: ProjectSelection) -> int:
    """Label-setting dynamic programme over sets of started projects.

    A label is the course of the fund if nothing more is started: its level before every later period and at
    the end. Of two labels with the same set, one that is nowhere higher is dropped; so is one that cannot
    beat the best end found, even if it started everything else now.
    """
    items, periods = len(theta.cash), len(theta.cash[0])
    flows = np.zeros((items, periods + 1), dtype=np.int64)
    flows[:, 1:] = np.cumsum(theta.cash, axis=1) if periods else 0
    first = theta.fund + flows[list(theta.running)].sum(axis=0)
    labels = {sum(1 << i for i in theta.running): first[None, :]}  # set -> rows of levels, columns 0..T
    best = int(first[-1])
    for t in range(periods):
        nets = np.maximum(flows[:, periods - t - 1] - theta.cost, 0)  # of a start after t
        grown: dict[int, list[np.ndarray]] = {done: [rows] for done, rows in labels.items()}
        for done, rows in labels.items():
            for i in range(items):
                before = theta.predecessor[i]
                if done >> i & 1 or (before >= 0 and not done >> before & 1):
                    continue
                able = rows[rows[:, t] >= theta.cost[i]]
                if len(able):
                    after = able - theta.cost[i]
                    after[:, t:] += flows[i, : periods + 1 - t]
                    grown.setdefault(done | 1 << i, []).append(after)
                    best = max(best, int(after[:, -1].max()))
        labels = {}
        for done, groups in grown.items():
            hope = sum(sorted(int(nets[i]) for i in range(items) if not done >> i & 1)[-(periods - t) :])
            rows = np.vstack(groups)
            rows = rows[rows[:, -1] + hope > best]
            if len(rows):
                labels[done] = _undominated(rows, t + 1)
    return best - theta.fund


def _undominated(rows: np.ndarray, column: int) -> np.ndarray:
    """Keep one of every set of rows that is nowhere higher than another row, from `column` on."""
    rows = rows[np.lexsort(rows[:, column:].T[::-1])[::-1]]  # a row can only be dominated by one before it
    kept: list[np.ndarray] = []
    for row in rows:
        if not kept or not (np.array(kept)[:, column:] >= row[column:]).all(axis=1).any():
            kept.append(row)
    return np.array(kept)


FAMILY = Family(
    name="project_selection",
    title="Project selection: a fund that grows by the projects it pays for",
    coupling="budget",
    solver="MILP",
    certificate="label-setting dynamic programme over sets of started projects",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(Quantity("fund", "money"),),
        fields=(
            Field("cost", ("item",), "money"),
            Field("predecessor", ("item",), "item"),
            Field("cash", ("item", "period"), "money", hidden=True),
        ),
        facts=(
            Quantity("now", "period"),
            Quantity("in_fund", "money"),
            Quantity("running_now", "count"),
            Quantity("periods_left", "period"),
        ),
        verbs=(Verb("start", (Slot("item", "item"),)), Verb("wait")),
    ),
    texts=Texts(
        rules=(
            (
                "There are {n_period} {periods}, taken in order. In each of them you either start one of "
                "the {n_item} {items} with {tool_start} or let the {period} pass with {tool_wait}; either "
                "call closes the {period}. No {item} can be started twice.",
                "Every {period}, from the first to number {n_period}, takes exactly one decision: "
                "{tool_start} for one {item} not started before, or {tool_wait} for none. More than one "
                "start in the same {period} is impossible.",
                "One call moves you on by one {period}, {n_period} in all: {tool_wait} starts nothing, "
                "{tool_start} starts the named {item}. Each of the {n_item} {items} can be started once at "
                "most and is never stopped.",
            ),
            (
                'A start takes the "{label_cost}" of the {item} out of the fund, which holds {fund} {money} '
                "before the first {period}. It is possible only if the fund covers that sum at the opening "
                'of the {period}, and only if the {item} named under "{label_predecessor}", if there is '
                "one, was started in some earlier {period}.",
                "Two conditions for a start: what is in the fund when the {period} opens, {fund} {money} at "
                'the very first, must be no less than the "{label_cost}", which is then deducted; and where '
                'another {item} is given as "{label_predecessor}", that one must have been started in one '
                "of the {periods} before.",
                'Whoever starts one of the {items} pays its "{label_cost}" at once from the fund ({fund} '
                "{money} to begin with), and the fund may not go below zero; cash of the same {period} "
                'comes too late to help. Besides, the "{label_predecessor}" must already be running from an '
                "earlier {period}, unless there is none.",
            ),
            (
                'At the close of every {period}, each {item} that runs pays its "{label_cash}" into the '
                "fund, counted by the {periods} of its own life: number 1 at the close of the {period} in "
                "which it was started, the next one {period} later, and so on. You see what was paid.",
                "Cash comes in when the {period} closes, from all {items} started so far, the newest "
                'included. The "{label_cash}" follows the age: figure number 1 belongs to the {period} of '
                "the start, the next figure to the {period} after it, and so on in step. The payments "
                "become known when made.",
                'The "{label_cash}" of one {item} is a row of figures, used up one by one. The {period} of '
                "the start brings, at its close, figure number 1; each further {period} brings the one "
                "after. All that is paid goes into the fund, can be spent from the next {period} on, and is "
                "shown to you.",
            ),
            (
                "Payments stop with the close of {period} number {n_period}; later figures are lost. If you "
                "stop deciding earlier, nothing more is started, but whatever runs goes on paying up to "
                "that end.",
                "After the last of the {n_period} {periods} nothing is paid any more, whatever figures "
                "remain. In {periods} that you leave undecided nothing new begins, and the running {items} "
                "pay as before.",
                "The close of the last {period} is the end: what any unfinished row would still have "
                "brought does not count. Stopping before it is the same as waiting in all {periods} that "
                "are left.",
            ),
        ),
        goal=(
            "Let the fund grow: your result is all {money} received as cash minus all {money} spent on "
            "starts.",
            "What counts is the fund after the last {period} less what it held at first, in {money}. Make "
            "this growth as large as you can.",
            "Cash received counts for you, the price of every start against you. The difference in {money}, "
            "over all {n_period} {periods}, should be as large as possible.",
        ),
        status=(
            "current {period}: {now}; {money} in the fund: {in_fund}; {items} running: {running_now}; "
            "{periods} left: {periods_left}."
        ),
        outcomes={
            "start": "started: {item}; {money} gained in this {period}, cash less cost: {gain}.",
            "wait": "started: none; {money} gained in this {period}, cash less cost: {gain}.",
        },
    ),
    sizes={
        "nano": {"periods": 3, "items": 2, "high": 9},
        "small": {"periods": 5, "items": 6, "high": 30},
        "medium": {"periods": 7, "items": 8, "high": 30},
        "large": {"periods": 9, "items": 9, "high": 30},
        "huge": {"periods": 11, "items": 11, "high": 30},
        "long": {"periods": 12, "items": 5, "high": 30},
    },
    theta_type=ProjectSelection,
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
    horizon=lambda theta: len(theta.cash[0]),
    model=model,
)
