"""Timed selection: at most one item a period, each at its time, out of one budget and with a price on change.

Sets        periods t = 1..T, items i = 1..n
Parameters  value v[t,i] >= 0 of item i in period t (hidden), fee f[i] >= 0 of each pick, budget B >= 0,
            switching charge c >= 0
Decision    a[t], the item picked in period t if its fee is within the budget left, or none; an item may be
            picked in as many periods as one likes
Dynamics    picking i takes f[i] off the budget, gains v[t,i], less c if another item was picked last (however
            long ago), and makes i the last item picked. The first pick is never a change. Skipping gains
            nothing and leaves budget and last item as they are; either way the next period opens
Objective   maximise the total gain; unspent budget is worth nothing

The state (period, budget left, last item) is small: dynamic programming. In sampled instances the value of
each item rises to a peak and then falls.

Source: multiple-choice knapsack, Sinha and Zoltners, Operations Research 27, 1979, with sequence-dependent
set-ups as in the changeover lot-sizing of Karmarkar and Schrage, Operations Research 33, 1985.
"""

from __future__ import annotations

import dataclasses
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

NONE = -1
SKIP = Action("skip")


@dataclass(frozen=True, slots=True)
class TimedSelection:
    """Parameters; `value` has shape (T, n), in money; its prior is one triple for all, or one an item.

    last   item picked last, or NONE (residual problems only)
    """

    budget: int
    switching: int
    fee: tuple[int, ...]
    value: tuple[tuple[int, ...], ...]
    value_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    last: int = NONE


class State(NamedTuple):
    period: int
    budget: int
    last: int


def draw(
    rng: np.random.Generator, items: int, periods: int, high: int, dearest: int, share: int, change: int
) -> TimedSelection:
    """Draw skewed values that ripen and fall, fees that rise with the usual value, and a scarce budget.

    high     highest value of the best item; the others are lesser
    dearest  highest fee
    share    budget, in percent of the usual fees of all periods
    change   switching charge, in percent of `high`
    """
    order = rng.permutation(items)
    tops = [max(3, high - high * int(k) // (2 * items)) for k in order]
    prior = tuple((0, top, top // 3) for top in tops)
    columns = [ripening(rng, skewed_table(rng, triple, periods)) for triple in prior]
    fee = np.sort(rng.integers(1, dearest + 1, items))[::-1][order]
    usual = periods * (1 + dearest) // 2
    return TimedSelection(
        budget=max(int(fee.min()), usual * share // 100),
        switching=max(1, high * change // 100),
        fee=tuple(fee.tolist()),
        value=tuple(zip(*columns, strict=True)),
        value_prior=prior,
    )


def ripening(rng: np.random.Generator, values: tuple[int, ...]) -> list[int]:
    """Reorder values so that they rise to their highest, in a random place, and fall after it."""
    ordered = sorted(values)
    rest = rng.permutation(ordered[:-1]).tolist()
    cut = int(rng.integers(0, len(values)))
    return [*sorted(rest[:cut]), ordered[-1], *sorted(rest[cut:], reverse=True)]


def check(theta: TimedSelection) -> None:
    require(len(theta.value) >= 1, "value", theta.value, "needs at least one period")
    require(len(theta.value[0]) >= 1, "value", theta.value, "needs at least one item")
    periods, items = len(theta.value), len(theta.value[0])
    require_table("value", theta.value, periods, items, low=0)
    require_prior("value_prior", theta.value_prior)
    if isinstance(theta.value_prior[0], tuple):
        found = len(theta.value_prior)
        require(found == items, "value_prior", found, f"expected one triple for each of {items} items")
    require_table("fee", theta.fee, items, low=0)
    cheapest = min(theta.fee)
    require(theta.budget >= cheapest, "budget", theta.budget, f"must allow a pick: at least {cheapest}")
    require(theta.switching >= 0, "switching", theta.switching, "must be at least 0")
    require(theta.last == NONE, "last", theta.last, f"must be {NONE}: nothing is picked yet")


def counts(theta: TimedSelection) -> dict[str, int]:
    return {"period": len(theta.value), "item": len(theta.fee)}


def start(theta: TimedSelection) -> State:
    return State(0, theta.budget, theta.last)


def legal(theta: TimedSelection, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.value):
        return ()
    affordable = tuple(i for i, fee in enumerate(theta.fee) if fee <= state.budget)
    return (Move("pick", (affordable,)), Move("skip")) if affordable else (Move("skip"),)


def step(theta: TimedSelection, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """A pick shows what the item was worth in this period."""
    if action == SKIP:
        return State(state.period + 1, state.budget, state.last), 0, {}
    (item,) = action.args
    value = theta.value[state.period][item]
    change = theta.switching * (state.last not in (NONE, item))
    after = State(state.period + 1, state.budget - theta.fee[item], item)
    return after, value - change, {("value", state.period, item): value}


def default(theta: TimedSelection, state: State) -> Action:
    """Give each item its turn: the next one on the list after the last pick whose fee can be paid."""
    items = len(theta.fee)
    for offset in range(1, items + 1):
        item = (state.last + offset) % items  # NONE + 1 is the first
        if theta.fee[item] <= state.budget:
            return Action("pick", (item,))
    return SKIP


def abandon(theta: TimedSelection, state: State) -> int:
    return 0


def residual(theta: TimedSelection, state: State) -> TimedSelection:
    return dataclasses.replace(theta, value=theta.value[state.period :], budget=state.budget, last=state.last)


def observe(theta: TimedSelection, state: State) -> dict[str, int]:
    periods = len(theta.value)
    return {
        "now": min(state.period + 1, periods),
        "periods_left": periods - state.period,
        "left": state.budget,
        "previous": state.last,
    }


def optimum(theta: TimedSelection) -> Optimum:
    """Dynamic programme backwards over (period, last item, budget left), O(T n B)."""
    items, top = len(theta.fee), theta.budget
    never = np.iinfo(np.int64).min // 4
    after = np.zeros((items + 1, top + 1), dtype=np.int64)  # row `items`: nothing picked yet
    choices = []
    for row in reversed(theta.value):
        picked = np.full((items, top + 1), never)
        for i, fee in enumerate(theta.fee):
            if fee <= top:
                picked[i, fee:] = row[i] + after[i, : top + 1 - fee]
        best, choice = after.copy(), np.full((items + 1, top + 1), NONE)
        charges = np.where(np.arange(items + 1) == items, 0, theta.switching)[:, None]
        leader = picked.argmax(axis=0)
        for candidate, item in (
            (np.vstack((picked, np.full(top + 1, never))), np.arange(items + 1)[:, None]),  # the same again
            (picked.max(axis=0) - charges, leader[None, :]),  # the best of all, as a change
        ):
            better = candidate > best
            best = np.where(better, candidate, best)
            choice = np.where(better, item, choice)
        after = best
        choices.append(choice)
    plan: list[Action] = []
    budget, last = theta.budget, theta.last
    for choice in reversed(choices):
        item = int(choice[last, budget])  # NONE is the last row
        plan.append(SKIP if item == NONE else Action("pick", (item,)))
        if item != NONE:
            budget, last = budget - theta.fee[item], item
    return Optimum(int(after[theta.last, theta.budget]), tuple(plan))


def bound(theta: TimedSelection) -> int:
    """Labels forwards: per last item the pairs (spent, gained) that no other pair beats in both."""
    fronts: dict[int, list[tuple[int, int]]] = {theta.last: [(0, 0)]}
    for row in theta.value:
        reached: dict[int, list[tuple[int, int]]] = {last: list(labels) for last, labels in fronts.items()}
        for last, labels in fronts.items():
            for i, fee in enumerate(theta.fee):
                gain = row[i] if last in (i, NONE) else row[i] - theta.switching
                more = [(spent + fee, total + gain) for spent, total in labels if spent + fee <= theta.budget]
                reached.setdefault(i, []).extend(more)
        fronts = {}
        for last, labels in reached.items():
            kept: list[tuple[int, int]] = []
            for spent, total in sorted(labels, key=lambda label: (label[0], -label[1])):
                if not kept or total > kept[-1][1]:
                    kept.append((spent, total))
            fronts[last] = kept
    return max(total for labels in fronts.values() for _, total in labels)


def model(theta: TimedSelection) -> pulp.LpProblem:
    """MILP: pick[t,i], the item `held` as the last one picked, and a charge where a pick changes it."""
    problem = pulp.LpProblem("timed_selection", pulp.LpMaximize)
    items = range(len(theta.fee))
    gains, fees = [], []
    held = [pulp.LpAffineExpression(constant=int(i == theta.last)) for i in items]
    for t, row in enumerate(theta.value):
        pick = [problem.add_variable(f"pick_{t}_{i}", cat="Binary") for i in items]
        now = [problem.add_variable(f"held_{t}_{i}", lowBound=0, upBound=1) for i in items]
        change = problem.add_variable(f"change_{t}", lowBound=0)
        problem += pulp.lpSum(pick) <= 1, f"one_{t}"
        problem += pulp.lpSum(now) <= 1, f"one_held_{t}"
        for i in items:
            problem += now[i] >= pick[i], f"holds_pick_{t}_{i}"
            problem += now[i] >= held[i] - (pulp.lpSum(pick) - pick[i]), f"keeps_{t}_{i}"
            problem += change >= pick[i] + (pulp.lpSum(held) - held[i]) - 1, f"change_{t}_{i}"
        gains.append(pulp.lpSum(row[i] * pick[i] for i in items) - theta.switching * change)
        fees += [theta.fee[i] * pick[i] for i in items]
        held = [1 * variable for variable in now]
    problem += pulp.lpSum(gains)
    problem += pulp.lpSum(fees) <= theta.budget, "budget"
    return problem


FAMILY = Family(
    name="timed_selection",
    title="Timed selection: what to pick when, with a price on change",
    coupling="budget",
    solver="dynamic programming",
    certificate="forward label setting with dominance",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(Quantity("budget", "goods"), Quantity("switching", "money")),
        fields=(
            Field("fee", ("item",), "goods"),
            Field("value", ("period", "item"), "money", hidden=True),
        ),
        facts=(
            Quantity("now", "period"),
            Quantity("periods_left", "period"),
            Quantity("left", "goods"),
            Quantity("previous", "item"),
        ),
        verbs=(Verb("pick", (Slot("item", entity="item"),)), Verb("skip")),
    ),
    texts=Texts(
        rules=(
            (
                "The {n_period} {periods} come one after another, and each is settled by one call: "
                "{tool_pick} with the {item} you choose, or {tool_skip} to choose none. The same {item} "
                "may be chosen in several {periods}.",
                "For every {period}, from the first to number {n_period}, you either take exactly one "
                "{item} with {tool_pick} or let the {period} go by with {tool_skip}. Having been taken "
                "before does not bar any {item} from being taken again.",
                "One decision for every {period}, {n_period} in all, none of them revocable. Either a "
                "single {item} is named ({tool_pick}), as often over the {periods} as you please, or "
                "none is ({tool_skip}).",
            ),
            (
                'A pick earns the "{label_value}" that the chosen {item} has in the current {period}; '
                "this figure then becomes known. It differs from {period} to {period}, and what the "
                "other {items} would have earned stays unseen. A skipped {period} earns nothing.",
                'What you gain, in {money}, is the "{label_value}" of that {item} in that very {period}, '
                "no other: timing matters. You see the figure when you have picked. Skipping gains "
                "nothing and shows nothing.",
                'Every {item} has its own "{label_value}" for each of the {n_period} {periods}. Picking '
                "it pays the figure of the {period} you are in and reveals it, that one only; with "
                "{tool_skip} you are paid and told nothing.",
            ),
            (
                "All fees come out of {budget} {goods}, which are never refilled: each pick uses up the "
                '"{label_fee}" of its {item}, every time anew. Picks that cost more than is left are '
                "refused; skipping is free.",
                'There are {budget} {goods} for the whole run. Whenever you pick, the "{label_fee}" of '
                "the {item} is taken from them, for repeated picks too, so only those {items} can be "
                "picked whose fee does not exceed the rest. {tool_skip} takes nothing.",
                'Your {budget} {goods} must last for all {periods}. The "{label_fee}" is due at every '
                "single pick of that {item}, and without enough {goods} left for it the pick is not "
                "possible. No {goods} are due where you skip.",
            ),
            (
                "If the {item} you pick is not the one you picked last, {switching} {money} are taken "
                "off your gain. The very first pick is free of this, and so is returning to the same "
                "{item} after skipped {periods}.",
                "Changing costs {switching} {money}: that much is deducted from every pick whose {item} "
                "differs from that of the pick before it, with skipped {periods} left out of account. "
                "Nothing is deducted from your first pick.",
                "Compare each pick with the previous pick, no matter how many {periods} were skipped "
                "between them. Same {item}: no charge. Another {item}: {switching} {money} less. No "
                "previous pick: no charge either.",
            ),
        ),
        goal=(
            "Gather as many {money} as you can over all {n_period} {periods}, charges for changes "
            "deducted. {Periods} you leave undecided count as skipped, and left-over {goods} are worth "
            "nothing.",
            "The sum of all gains in {money}, after deductions, is your result. Nothing is paid for "
            "{goods} not spent, and stopping early is the same as skipping whatever {periods} remain.",
            "Your score is what the picks earned minus what the changes cost, in {money}. It gains "
            "nothing from unspent {goods}, nor from {periods} that you never came to decide.",
        ),
        status=(
            "current {period}: {now}; {periods} left: {periods_left}; {goods} left: {left}; {item} "
            "picked last: {previous}."
        ),
        outcomes={
            "pick": "{Item} picked: {item}; {money} gained, after any charge for the change: {gain}.",
            "skip": "{Item} picked: none; {money} gained: {gain}.",
        },
    ),
    sizes={
        "nano": {"items": 2, "periods": 3, "high": 9, "dearest": 3, "share": 100, "change": 30},
        "small": {"items": 6, "periods": 5, "high": 30, "dearest": 5, "share": 70, "change": 20},
        "medium": {"items": 8, "periods": 7, "high": 30, "dearest": 5, "share": 70, "change": 20},
        "large": {"items": 9, "periods": 9, "high": 30, "dearest": 5, "share": 70, "change": 20},
        "huge": {"items": 11, "periods": 11, "high": 30, "dearest": 5, "share": 70, "change": 20},
        "long": {"items": 6, "periods": 10, "high": 30, "dearest": 5, "share": 70, "change": 20},
        # as nano with more periods, for the study of scaling with a tiny policy
        "nano5": {"items": 2, "periods": 5, "high": 9, "dearest": 3, "share": 100, "change": 30},
        "nano6": {"items": 2, "periods": 6, "high": 9, "dearest": 3, "share": 100, "change": 30},
        "nano8": {"items": 2, "periods": 8, "high": 9, "dearest": 3, "share": 100, "change": 30},
    },
    theta_type=TimedSelection,
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
