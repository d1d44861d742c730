"""A full-information plan: the relaxation's solution made whole, and carried out in the true mechanism.

It shows from below how tight the bound is: u_plan <= u* <= u_bar for the unknown optimum u*. From the relaxation it
takes how much to sell of each good on each day and how many staff that needs. Then

    prices   the dearest price at which the day's units are still demanded
    lots     for every day of delivery the number of days that one order shall cover, by Wagner and Whitin's
             recursion (Management Science 5, 1958) on the planned sales, with shelf lives and a charge for tied-up cash
    repair   orders are placed when stock and orders on the way do not cover the day of delivery; where cash and credit
             do not suffice for a whole lot, for as many days as they do; bills until the first delivery are kept back

Several roundings are tried, and the best counts. All of it sees hidden demand: it is a reference, no manager.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from . import mechanism
from .bound import Bound
from .mechanism import State
from .theta import Theta

STAFF_ROUNDINGS = (0.0, 0.35, 0.65)  # added before rounding down, on top of a tenth
CHARGES = (0, 2, 6)  # parts per thousand of the cost of a unit for each day that it lies


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do on each day; shapes (days, goods) and (days,).

    sales   units planned to be sold; price: index into the good's grid
    cover   days that an order delivered on this day shall cover
    """

    sales: tuple[tuple[int, ...], ...]
    price: tuple[tuple[int, ...], ...]
    cover: tuple[tuple[int, ...], ...]
    staff: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One decision: the name of a function of `mechanism` and its arguments; `end_day` has none."""

    verb: str
    arguments: tuple[int, ...] = ()


def plan_store(theta: Theta, bound: Bound) -> tuple[int, tuple[Move, ...]]:
    """Return (u, moves) of the best rounding; u is what the moves earn in the mechanism, cents."""
    best: tuple[int, tuple[Move, ...]] = (theta.terms.cash, (Move("close"),))
    for rounding, charge in itertools.product(STAFF_ROUNDINGS, CHARGES):
        steps = list(
            _carry_out(theta, _rounded(theta, bound, rounding, charge), mechanism.start(theta.terms))
        )
        earned = mechanism.net_worth(theta.terms, steps[-1][1])
        best = max(best, (earned, tuple(move for move, _ in steps)), key=lambda pair: pair[0])
    return best


# --- rounding ---------------------------------------------------------------------------------------------
def _rounded(theta: Theta, bound: Bound, rounding: float, charge: int) -> Plan:
    terms = theta.terms
    staff = tuple(
        min(terms.staff_limit, int(number + 0.1 + rounding)) if part > 0.01 else 0
        for number, part in zip(bound.staff, bound.open, strict=True)
    )
    sales, price = [], []
    for day, (wanted, hands) in enumerate(zip(bound.sales, staff, strict=True)):
        chosen = [_price(theta, day, g, wanted[g]) for g in range(len(terms.goods))]
        sales.append(_served(theta, day, chosen, hands * terms.handling))
        price.append(tuple(k for k, _ in chosen))
    columns = [
        _covers(
            [row[g] for row in sales], good.shelf, terms.order_fee, good.holding + charge * good.cost / 1_000
        )
        for g, good in enumerate(terms.goods)
    ]
    return Plan(tuple(sales), tuple(price), tuple(zip(*columns, strict=True)), staff)


def _price(theta: Theta, day: int, g: int, units: float) -> tuple[int, int]:
    """Return (price index, units that are demanded): the dearest price that sells what is planned."""
    demand = theta.demand[day][g]
    if units < 0.5:
        return len(demand) - 1, 0
    k = max((k for k, wanted in enumerate(demand) if wanted >= math.floor(units + 1e-6)), default=0)
    return k, min(demand[k], math.ceil(units - 1e-6))


def _served(theta: Theta, day: int, chosen: list[tuple[int, int]], hands: int) -> tuple[int, ...]:
    """Return what of the planned units staff can handle, dearest first."""
    goods = theta.terms.goods
    sold = [0] * len(goods)
    for g in sorted(range(len(goods)), key=lambda g: (-goods[g].prices[chosen[g][0]], g)):
        sold[g] = min(chosen[g][1], hands)
        hands -= sold[g]
    return tuple(sold)


def _covers(sales: list[int], shelf: int, fee: int, holding: float) -> list[int]:
    """Return for each day of delivery the cheapest number of days to cover, by backward recursion."""
    days = len(sales)
    best, cover = [0.0] * (days + 1), [1] * days
    for first in reversed(range(days)):
        if not sales[first]:
            best[first] = best[first + 1]
            continue
        cost, least = float(fee), math.inf
        for length in range(1, min(shelf, days - first) + 1):
            cost += holding * (length - 1) * sales[first + length - 1]
            if cost >= least:
                break
            if cost + best[first + length] < least:
                least, cover[first] = cost + best[first + length], length
        best[first] = least
    return cover


# --- carrying out -----------------------------------------------------------------------------------------
def _carry_out(theta: Theta, plan: Plan, state: State) -> Iterator[tuple[Move, State]]:
    """Yield each move with the state after it, until the store has ended."""
    terms = theta.terms
    sold_until = [
        list(itertools.accumulate((row[g] for row in plan.sales), initial=0)) for g in range(len(terms.goods))
    ]
    while not state.ended:
        for move in _morning(theta, plan, state):
            state = _apply(theta, state, move)
            yield move, state
        if state.loan and state.cash:
            move = Move("repay", (min(state.loan, state.cash),))
            state = _apply(theta, state, move)
            yield move, state
        for move in _orders(theta, plan, state, sold_until):
            state = _apply(theta, state, move)
            yield move, state
        state, _ = mechanism.end_day(theta, state)
        yield Move("end_day"), state


def _apply(theta: Theta, state: State, move: Move) -> State:
    decide = getattr(mechanism, move.verb)
    after: State = decide(theta.terms, state, *move.arguments)
    return after


def _morning(theta: Theta, plan: Plan, state: State) -> Iterator[Move]:
    """Set staff, for what is there to sell, and prices."""
    terms, day = theta.terms, state.day
    for g, k in enumerate(plan.price[day]):
        if k != state.price[g] and state.on_hand(g):
            yield Move("set_price", (g, terms.goods[g].prices[k]))
    units = sum(min(state.on_hand(g), plan.sales[day][g]) for g in range(len(terms.goods)))
    needed = min(plan.staff[day], -(-units // terms.handling))
    affordable = (state.cash + terms.limit - state.loan) // terms.hire_fee if terms.hire_fee else needed
    needed = min(needed, state.staff + affordable)
    if needed > state.staff:
        fees = (needed - state.staff) * terms.hire_fee
        if fees > state.cash:
            yield Move("borrow", (fees - state.cash,))
        yield Move("set_staff", (needed,))
    elif plan.staff[day] < state.staff or not units:
        yield Move("set_staff", (needed,))


def _orders(theta: Theta, plan: Plan, state: State, sold_until: list[list[int]]) -> Iterator[Move]:
    """Order what the day of delivery lacks, best return on cash first."""
    terms, day = theta.terms, state.day
    cash, credit = state.cash, terms.limit - state.loan
    keep = _bills(theta, plan, state) if not any(state.stock) else 0
    for g in sorted(
        range(len(terms.goods)),
        key=lambda g: -terms.goods[g].prices[plan.price[day][g]] / terms.goods[g].cost,
    ):
        good, arrives = terms.goods[g], day + terms.goods[g].lead
        if arrives >= terms.days or not plan.sales[arrives][g]:
            continue
        held = _left(theta, plan, state, g, arrives)
        if held >= plan.sales[arrives][g]:
            continue
        length = plan.cover[arrives][g]
        while length > 0:
            units = sold_until[g][min(arrives + length, terms.days)] - sold_until[g][arrives] - held
            price = units * good.cost + terms.order_fee
            if units > 0 and price <= cash + credit - keep:
                break
            length -= 1
        else:
            units = (cash + credit - keep - terms.order_fee) // good.cost
            price = units * good.cost + terms.order_fee
            if units < plan.sales[arrives][g] // 3 + 1:
                continue
        if price > cash:
            yield Move("borrow", (price - cash,))
            credit -= price - cash
            cash = price
        cash -= price
        yield Move("order", (g, units))


def _bills(theta: Theta, plan: Plan, state: State) -> int:
    """Return the bills from today until the first delivery that can be sold."""
    terms = theta.terms
    first = min(
        (lots[0][0] for lots in state.coming if lots), default=state.day + max(g.lead for g in terms.goods)
    )
    days = max(1, first - state.day)
    return days * (terms.rent + terms.limit * terms.interest // mechanism.MILLION + 1) + plan.staff[
        min(first, terms.days - 1)
    ] * (terms.wage + terms.hire_fee)


def _left(theta: Theta, plan: Plan, state: State, g: int, until: int) -> int:
    """Return the units of a good that will be in the store on the morning of `until`, if sales go as planned."""
    lots = [[last, units] for last, units in state.stock[g]]
    shelf = theta.terms.goods[g].shelf
    lots += [[day + shelf - 1, units] for day, units in state.coming[g]]
    arrival = {id(lot): lot[0] - shelf + 1 for lot in lots}
    for day in range(state.day, until):
        wanted = plan.sales[day][g]
        for lot in lots:
            if arrival[id(lot)] <= day <= lot[0]:
                used = min(lot[1], wanted)
                lot[1] -= used
                wanted -= used
    return sum(units for last, units in lots if last >= until)
