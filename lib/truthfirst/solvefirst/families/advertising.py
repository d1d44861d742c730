"""Advertising: one divisible budget, many channels with diminishing returns.

Sets        channels i = 1..n in a fixed order
Parameters  strength s[i] >= 0 (hidden), budget B >= 0. Amounts are fixed-point: integers that count
            hundredths
Decision    x[i], the amount for the next channel, 0 <= x[i] <= budget left
Dynamics    channel i earns floor(s[i] sqrt(x[i])) = isqrt(s[i]^2 x[i]); the budget left falls by x[i]
Objective   maximise the total gain; what is not spent is worth nothing

Numerical optimisation: bisection on the price of one hundredth, then the whole steps that still fit are
bought at that price, and what remains goes into the step that does not fit.

Tolerance. The dual value at any price is an upper bound. All channels but the one with the broken step sit at
vertices of the concave hull of their gain, so the plan loses only what that one lies below its hull; the gain
lies less than 1 below a concave function, hence below its hull. So 0 <= dual - u < 1 at the exact price.
Rounding the price in floating point is allowed for by epsilon = 1.

Source: Gross, 1956, and Everett, "Generalized Lagrange multiplier method", Operations Research 11, 1963, for
the method; the square-root response of Vidale and Wolfe, "An operations-research study of sales response to
advertising", Operations Research 5, 1957, in its concave form after Little, "Models and managers", 1970.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor, isqrt
from typing import NamedTuple

import numpy as np

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

HALVINGS = 200  # of the price bracket; it ends sooner when floating point cannot halve it any more


@dataclass(frozen=True, slots=True)
class Advertising:
    """Parameters; `strength` has length n, in money; its prior is one triple for all, or one a channel."""

    strength: tuple[int, ...]
    strength_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    budget: int


class State(NamedTuple):
    channel: int
    budget: int


def draw(rng: np.random.Generator, items: int, budget: int, high: int) -> Advertising:
    """Draw skewed strengths; what is typical differs from channel to channel.

    Where the baseline happens to come close to the optimum, draw again (at most five times).
    """
    tops = rng.integers(-(-high // 4), high + 1, items).tolist()
    prior = tuple((1, top, max(1, top // 3)) for top in tops)
    for _ in range(6):
        theta = Advertising(tuple(skewed_table(rng, triple, 1)[0] for triple in prior), prior, budget)
        solution = FAMILY.solve(theta)
        if solution.span >= solution.required_margin:
            break
    return theta


def check(theta: Advertising) -> None:
    items = len(theta.strength)
    require(items >= 1, "strength", theta.strength, "needs at least one channel")
    require_table("strength", theta.strength, items, low=0)
    require(max(theta.strength) <= 1000, "strength", max(theta.strength), "must be at most 1000")
    require_prior("strength_prior", theta.strength_prior)
    if isinstance(theta.strength_prior[0], tuple):
        found = len(theta.strength_prior)
        require(found == items, "strength_prior", found, f"expected one triple for each of {items} channels")
    require(1 <= theta.budget <= 10**6, "budget", theta.budget, "must be 1 to 1000000 hundredths")


def counts(theta: Advertising) -> dict[str, int]:
    return {"item": len(theta.strength)}


def start(theta: Advertising) -> State:
    return State(0, theta.budget)


def legal(theta: Advertising, state: State) -> tuple[Move, ...]:
    if state.channel == len(theta.strength):
        return ()
    return (Move("fund", (range(state.budget + 1),)),)


def step(theta: Advertising, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """A channel that gets nothing shows nothing."""
    (amount,) = action.args
    i = state.channel
    shown: dict[Key, int] = {("strength", i): theta.strength[i]} if amount else {}
    return State(i + 1, state.budget - amount), isqrt(theta.strength[i] ** 2 * amount), shown


def default(theta: Advertising, state: State) -> Action:
    """Spread what is left evenly over the channels that are left."""
    return Action("fund", (state.budget // (len(theta.strength) - state.channel),))


def abandon(theta: Advertising, state: State) -> int:
    return 0


def residual(theta: Advertising, state: State) -> Advertising:
    i, prior = state.channel, theta.strength_prior
    left = prior[i:] if prior and isinstance(prior[0], tuple) else prior
    return Advertising(theta.strength[i:], left, state.budget)


def observe(theta: Advertising, state: State) -> dict[str, int]:
    total = len(theta.strength)
    upcoming = state.channel if state.channel < total else -1
    return {"upcoming": upcoming, "left": state.budget, "items_left": total - state.channel}


def answers(strength: np.ndarray, top: np.ndarray, price: float) -> np.ndarray:
    """Return for every channel the amount that maximises gain - price * amount.

    strength   shape (n,), at least 1
    top        shape (n,), the largest gain that the budget can buy in the channel

    Gain g needs ceil(g^2 / s^2) hundredths. Without the rounding up the best g is s^2 / (2 price); the
    rounding, worth less than one price, moves it by less than s.
    """
    square = strength**2
    centre = np.minimum(square / (2 * price), top)
    reach = int(strength.max()) + 2
    gains = np.clip(np.rint(centre)[:, None] + np.arange(-reach, reach + 1), 0, top[:, None]).astype(np.int64)
    amounts = -(-(gains**2) // square[:, None])
    best = (gains - price * amounts).argmax(axis=1)
    return amounts[np.arange(len(strength)), best]


def optimum(theta: Advertising) -> Optimum:
    """Bisection on the price of one hundredth; then the steps at that price, in order, as far as they fit."""
    live = [i for i, s in enumerate(theta.strength) if s]
    amounts = np.zeros(len(theta.strength), dtype=np.int64)
    if live and theta.budget:
        strength = np.array([theta.strength[i] for i in live], dtype=np.int64)
        top = np.array([isqrt(theta.strength[i] ** 2 * theta.budget) for i in live], dtype=np.int64)
        dear, cheap = 2.0 * float(strength.max()), 0.0
        low, high = np.zeros_like(strength), -(-(top**2) // strength**2)
        for _ in range(HALVINGS):
            price = (dear + cheap) / 2
            if not cheap < price < dear or high.sum() <= theta.budget:
                break
            middle = answers(strength, top, price)
            if middle.sum() <= theta.budget:
                dear, low = price, middle
            else:
                cheap, high = price, middle
        left = theta.budget - int(low.sum())
        for i, least, most in zip(live, low.tolist(), high.tolist(), strict=True):
            extra = max(0, min(left, most - least))
            amounts[i] = least + extra
            left -= extra
    plan = tuple(Action("fund", (int(amount),)) for amount in amounts)
    return Optimum(sum(isqrt(s**2 * a.args[0]) for s, a in zip(theta.strength, plan, strict=True)), plan)


def bound(theta: Advertising) -> int:
    """The dual value in exact fractions, rounded down: fill the steps of all hulls, the steepest first."""
    total, left = Fraction(0), theta.budget
    hulls = [_steps(s, theta.budget) for s in theta.strength]
    for slope, width in heapq.merge(*hulls, key=lambda part: -part[0]):
        used = min(width, left)
        total, left = total + slope * used, left - used
        if not left:
            break
    return floor(total)


def _steps(strength: int, budget: int) -> list[tuple[Fraction, int]]:
    """Return the concave hull of one channel's gain as (slope, width), the slopes falling."""
    corners = [(0, 0)]  # (amount, gain)
    for gain in range(1, isqrt(strength**2 * budget) + 1):
        point = (-(-(gain**2) // strength**2), gain)
        while len(corners) > 1 and _turns_left(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    widths = [(after[1] - before[1], after[0] - before[0]) for before, after in pairwise(corners)]
    return [(Fraction(rise, width), width) for rise, width in widths]


def _turns_left(first: tuple[int, int], second: tuple[int, int], third: tuple[int, int]) -> bool:
    """Say whether `second` lies on or below the line from `first` to `third`."""
    ahead = (second[0] - first[0]) * (third[1] - first[1])
    return ahead >= (second[1] - first[1]) * (third[0] - first[0])


FAMILY = Family(
    name="advertising",
    title="Advertising: one divisible budget, many channels with diminishing returns",
    coupling="budget",
    solver="numerical optimisation",
    certificate="Lagrangian dual in exact fractions, by the concave hulls of the gains",
    interface=Interface(
        entities=(Entity("item"),),
        scalars=(Quantity("budget", "goods"),),
        fields=(Field("strength", ("item",), "money", hidden=True),),
        facts=(Quantity("upcoming", "item"), Quantity("left", "goods"), Quantity("items_left", "count")),
        verbs=(Verb("fund", (Slot("amount", unit="goods"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "The {n_item} {items} are settled one after another, in the order in which they are listed. "
                "Each call of {tool_fund} gives an amount to the next {item}; zero is allowed, and nothing "
                "can be added or taken back afterwards.",
                "{tool_fund} is called once for each {item}, down the list of {n_item}. You say only how "
                "much; whose turn it is follows from the order. An amount of zero is a valid answer, and "
                "every amount is final.",
                "Go down the list of the {n_item} {items}: with {tool_fund} the current one gets its share, "
                "possibly nothing, and the turn passes to the one below. There is no second round.",
            ),
            (
                "You have {budget} {goods} for all {items} together. All amounts, this one included, are "
                "whole numbers that count hundredths, so that very fine shares are possible; no amount can "
                "exceed what is left.",
                "The whole purse holds {budget} {goods}, and you can never give more than remains in it. "
                "This and every other amount is stated in hundredths, always as a whole number.",
                "Amounts are counted in whole hundredths throughout. In this count {budget} {goods} are "
                "there to share out among the {items}; whatever you give must still be there.",
            ),
            (
                'The {money} that the {item} earns are its "{label_strength}" times the square root of the '
                "amount, rounded down to a whole number; the amount is put in as stated, as a count of "
                'hundredths. Each {item} has a "{label_strength}" of its own, which shows once it is given '
                "more than zero.",
                "Returns diminish: take the square root of the amount (the whole number you stated, not "
                'divided by anything), multiply it by the "{label_strength}" of the {item}, and drop the '
                "fraction. So many {money} are earned at once. After any amount above zero you know that "
                '"{label_strength}".',
                'Multiply two things, the "{label_strength}" of this {item} and the square root of the '
                "number of hundredths it was given, and cut the product down to a whole number: that is "
                "what it earns in {money}. Giving nothing earns nothing and tells nothing; giving something "
                'reveals the "{label_strength}".',
            ),
            (
                "What remains after the last {item} is worth nothing. You may stop at any time: the {items} "
                "not yet settled get nothing and earn nothing.",
                "{Items} you never come to earn 0, and so does whatever is left unspent; stopping early "
                "costs nothing else.",
                "There is no reward for saving. Stop before the end of the list and the rest of it simply "
                "goes without.",
            ),
        ),
        goal=(
            "Earn as many {money} as you can over all {n_item} {items}.",
            "Your result is the sum of the {money} earned by every {item}; the higher, the better.",
            "What counts is one total, the {money} of all {items} together. Share out the budget so that it "
            "gets as large as possible.",
        ),
        status="next {item}: {upcoming}; {goods} left, in hundredths: {left}; {items} left: {items_left}.",
        outcomes={"fund": "{goods} given, in hundredths: {amount}; {money} earned: {gain}."},
    ),
    sizes={
        "nano": {"items": 4, "budget": 25, "high": 9},
        "small": {"items": 10, "budget": 2000, "high": 30},
        "medium": {"items": 14, "budget": 3000, "high": 30},
        "large": {"items": 18, "budget": 4000, "high": 40},
        "huge": {"items": 22, "budget": 5000, "high": 40},
        "long": {"items": 32, "budget": 6000, "high": 30},
    },
    theta_type=Advertising,
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
    horizon=lambda theta: len(theta.strength),
    epsilon=1,
    largest=1_000_000,
)
