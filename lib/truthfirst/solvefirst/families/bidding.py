"""Bidding: a series of sealed first-price auctions, bid for out of one budget.

Sets        auctions t = 1..T, rivals i = 1..n
Parameters  worth w[t] >= 0 of lot t, bid r[t,i] >= 0 that rival i hands in for it (hidden), budget B >= 0
Decision    x[t], our bid, 0 <= x[t] <= budget left
Dynamics    we win if x[t] > r[t,i] for every rival i (equal bids lose). A win earns w[t] - x[t] and lowers
            the budget left by x[t]; a lost auction earns and costs nothing. Then all bids are laid open.
Objective   maximise the total gain; unspent budget is worth nothing

Since rivals do not react, the least winning bid b[t] = 1 + max r[t,i] is the only one worth making, and the
choice of the auctions to win is a 0/1 knapsack problem: dynamic programming over (auction, budget left) here,
the frontier of undominated (spending, gain) pairs as the certificate.

Source: Vickrey, "Counterspeculation, auctions, and competitive sealed tenders", Journal of Finance 16, 1961;
Rothkopf, "Bidding in simultaneous auctions with a constraint on exposure", Operations Research 25, 1977; the
frontier: Nemhauser and Ullmann, "Discrete dynamic programming and capital allocation", Management Science 15,
1969.
"""

from __future__ import annotations

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
    published,
    require,
    require_prior,
    require_table,
    skewed_table,
)


@dataclass(frozen=True, slots=True)
class Bidding:
    """Parameters; `rival_bid` has shape (T, n), in money; its prior is one triple a rival or a common one."""

    budget: int
    worth: tuple[int, ...]
    rival_bid: tuple[tuple[int, ...], ...]
    rival_bid_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]


class State(NamedTuple):
    period: int
    budget: int


def draw(rng: np.random.Generator, periods: int, items: int, high: int, fill: int) -> Bidding:
    """Draw one strong rival, who mostly decides what a lot costs, and weaker ones who surprise now and then.

    high   most that the strongest rival bids
    fill   budget as a percentage of what the strong rival usually bids, over all auctions
    """
    prior = [(high // 3, high, high // 2)]
    for i in range(1, items):
        top = max(2, high // 2 - high * i // (3 * items))
        prior.append((0, top, max(1, top // 4)))
    columns = [skewed_table(rng, triple, periods) for triple in prior]
    worth = rng.integers(high * 3 // 5, high * 8 // 5 + 1, periods).tolist()
    budget = max(high, prior[0][2] * periods * fill // 100)
    return Bidding(budget, tuple(worth), tuple(zip(*columns, strict=True)), tuple(prior))


def check(theta: Bidding) -> None:
    require(
        1 <= theta.budget <= 10_000,
        "budget",
        theta.budget,
        "must lie between 1 and 10000 (it spans the states)",
    )
    require(len(theta.worth) >= 1, "worth", theta.worth, "needs at least one auction")
    require(len(theta.rival_bid) >= 1, "rival_bid", theta.rival_bid, "needs at least one auction")
    require(len(theta.rival_bid[0]) >= 1, "rival_bid", theta.rival_bid, "needs at least one rival")
    items = len(theta.rival_bid[0])
    require_table("worth", theta.worth, len(theta.worth), low=0)
    require_table("rival_bid", theta.rival_bid, len(theta.worth), items, low=0)
    require_prior("rival_bid_prior", theta.rival_bid_prior)
    if isinstance(theta.rival_bid_prior[0], tuple):
        found = len(theta.rival_bid_prior)
        require(found == items, "rival_bid_prior", found, f"expected one triple for each of {items} rivals")


def counts(theta: Bidding) -> dict[str, int]:
    return {"period": len(theta.worth), "item": len(theta.rival_bid[0]) if theta.rival_bid else 0}


def start(theta: Bidding) -> State:
    return State(0, theta.budget)


def legal(theta: Bidding, state: State) -> tuple[Move, ...]:
    if state.period == len(theta.worth):
        return ()
    return (Move("bid", (range(state.budget + 1),)),)


def step(theta: Bidding, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """The rivals' bids are laid open after the auction, whoever wins."""
    (amount,) = action.args
    t = state.period
    shown: dict[Key, int] = {("rival_bid", t, i): rival for i, rival in enumerate(theta.rival_bid[t])}
    if amount > max(theta.rival_bid[t]):
        return State(t + 1, state.budget - amount), theta.worth[t] - amount, shown
    return State(t + 1, state.budget), 0, shown


def default(theta: Bidding, state: State) -> Action:
    """Play safe: bid above all that any rival can bid, but at most three quarters of the worth."""
    t = state.period
    safe = 1 + max(published(theta, ("rival_bid", t, i))[1] for i in range(counts(theta)["item"]))
    return Action("bid", (min(safe, theta.worth[t] * 3 // 4, state.budget),))


def abandon(theta: Bidding, state: State) -> int:
    return 0


def residual(theta: Bidding, state: State) -> Bidding:
    return Bidding(
        budget=state.budget,
        worth=theta.worth[state.period :],
        rival_bid=theta.rival_bid[state.period :],
        rival_bid_prior=theta.rival_bid_prior,
    )


def observe(theta: Bidding, state: State) -> dict[str, int]:
    total = len(theta.worth)
    return {"now": min(state.period + 1, total), "left": state.budget, "periods_left": total - state.period}


def optimum(theta: Bidding) -> Optimum:
    """Dynamic programme over (auction, budget left), O(T B); ties do not bid."""
    prices = [max(row) + 1 for row in theta.rival_bid]
    after = np.zeros(theta.budget + 1, dtype=np.int64)
    wins = []
    for price, worth in zip(reversed(prices), reversed(theta.worth), strict=True):
        win = np.zeros(theta.budget + 1, dtype=bool)
        best = after.copy()
        if price <= theta.budget:
            won = worth - price + after[: theta.budget + 1 - price]
            win[price:] = won > after[price:]
            best[price:] = np.maximum(won, after[price:])
        after = best
        wins.append(win)
    plan, left = [], theta.budget
    for price, win in zip(prices, reversed(wins), strict=True):
        amount = price if win[left] else 0
        plan.append(Action("bid", (amount,)))
        left -= amount
    return Optimum(int(after[theta.budget]), tuple(plan))


def bound(theta: Bidding) -> int:
    """Last point of the frontier of undominated (spending, gain) pairs; no table over the budget is kept."""
    frontier = [(0, 0)]
    for row, worth in zip(theta.rival_bid, theta.worth, strict=True):
        price = 1 + sorted(row)[-1]
        grown = [(spent + price, gain + worth - price) for spent, gain in frontier]
        merged = sorted([*frontier, *grown], key=lambda pair: (pair[0], -pair[1]))
        frontier = []
        for spent, gain in merged:
            if spent <= theta.budget and (not frontier or gain > frontier[-1][1]):
                frontier.append((spent, gain))
    return frontier[-1][1]


def model(theta: Bidding) -> pulp.LpProblem:
    """One binary variable an auction: win it at the least winning bid, or not."""
    problem = pulp.LpProblem("bidding", pulp.LpMaximize)
    wins = [
        (max(row) + 1, worth, problem.add_variable(f"win_{t}", cat="Binary"))
        for t, (row, worth) in enumerate(zip(theta.rival_bid, theta.worth, strict=True))
    ]
    problem += pulp.lpSum((worth - price) * win for price, worth, win in wins)
    problem += pulp.lpSum(price * win for price, _, win in wins) <= theta.budget, "budget"
    return problem


FAMILY = Family(
    name="bidding",
    title="Bidding: sealed auctions out of one purse",
    coupling="budget",
    solver="dynamic programming",
    certificate="frontier of undominated pairs of spending and gain",
    interface=Interface(
        entities=(Entity("period", ordinal=True), Entity("item")),
        scalars=(Quantity("budget", "money"),),
        fields=(
            Field("worth", ("period",), "money"),
            Field("rival_bid", ("period", "item"), "money", hidden=True),
        ),
        facts=(Quantity("now", "period"), Quantity("left", "money"), Quantity("periods_left", "period")),
        verbs=(Verb("bid", (Slot("amount", unit="money"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "Each {period}, from 1 to {n_period} in turn, is one sealed auction. Call {tool_bid} once "
                "in it, with any whole amount from 0 up to the {money} you have left; you start with "
                "{budget}.",
                "{n_period} auctions follow one another, one for each {period}, and in every one {tool_bid} "
                "hands in your only bid. Your {budget} {money} serve for them all: no bid may be higher "
                "than what is left, and 0 is a permitted bid.",
                "With {budget} {money} in hand you go through the {n_period} {periods} in order. One call "
                "of {tool_bid} decides one of them, the bid being a whole number, not below 0 and not above "
                "the {money} still in hand.",
            ),
            (
                'Your rivals, {n_item} in number, bid in every {period} too, and what they bid ("{label_rival_bid}") '
                "does not depend on you. You win only if your bid is higher than the bid of each {item}; with an "
                "equal bid you lose.",
                'To win, your bid must lie above the highest "{label_rival_bid}" of that {period}; '
                "the {items} are {n_item} in number. To match it is to lose. No other bid is changed by "
                "anything you do.",
                'Besides your bid there is one from each {item} ("{label_rival_bid}"), {n_item} in all, fixed '
                "beforehand for every {period}. Should even one of them be as high as yours or higher, the {period} is "
                "lost to you; otherwise it is won.",
            ),
            (
                'If you win, you pay your own bid out of the {money} left, and gain the "{label_worth}" of '
                "the {period} minus that bid (less than 0, if you bid more than the worth). If you lose, "
                "you pay nothing and gain nothing. Either way you then see what all {items} bid.",
                'Once the bids are in, they are all laid open. The winner gains the "{label_worth}" less '
                "the bid, be that positive or negative, and the bid is taken from the {money} left; what is "
                "gained cannot be bid again later. Whoever loses gains and pays 0.",
                'Winning brings the "{label_worth}" and costs exactly your bid: the difference is your '
                "gain, even below zero, and the bid leaves your purse, which no gain ever refills. Losing "
                "leaves everything as it was. In both cases the bids of the {items} in that {period} become "
                "known.",
            ),
            (
                "What is left of the {budget} {money} at the end is worth nothing, and each {period} in "
                "which you make no bid counts as lost.",
                "Stopping early costs nothing: the {periods} that remain are simply lost, at a gain of 0. "
                "What you have not spent does not count.",
                "No {period} without your bid can be won, so any that you leave out bring 0. Nothing is "
                "paid for the part of the {budget} {money} that you keep.",
            ),
        ),
        goal=(
            "Gain as much as you can, in {money}: worth minus payment, added up over every {period} you win.",
            "Your result is the sum of your gains in {money} over all {n_period} {periods}; the larger, the "
            "better.",
            "What counts at the end is the {money} by which the worth of all you won exceeds all you paid.",
        ),
        status="current {period}: {now}; {money} left: {left}; {periods} left: {periods_left}.",
        outcomes={"bid": "bid made: {amount}; {money} gained: {gain}."},
    ),
    sizes={
        "nano": {"periods": 4, "items": 1, "high": 9, "fill": 80},
        "small": {"periods": 5, "items": 6, "high": 20, "fill": 70},
        "medium": {"periods": 7, "items": 8, "high": 20, "fill": 70},
        "large": {"periods": 9, "items": 9, "high": 24, "fill": 70},
        "huge": {"periods": 11, "items": 11, "high": 24, "fill": 70},
        "long": {"periods": 12, "items": 4, "high": 20, "fill": 70},
    },
    theta_type=Bidding,
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
    horizon=lambda theta: len(theta.worth),
    model=model,
)
