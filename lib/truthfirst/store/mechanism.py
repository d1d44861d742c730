"""The dynamics of a store, exact and deterministic: states and cents in, states and cents out.

A day t has two halves. First the manager decides, as often as it likes: order, set a price, set the staff, borrow,
repay, survey, close. Then the day ends (`end_day`), in this order:

    1. goods are sold, dearest first: min(demand at the price, stock, what staff can still handle); oldest units first
    2. rent, wages, holding of what stays and interest are paid; what cash lacks is drawn from the credit line
    3. a loan above the limit is bankruptcy: the creditors take everything and the store ends
    4. units whose shelf life is over are thrown away; deliveries of day t + 1 arrive; after day H - 1 the store ends

Orders and hiring are paid at once and need cash. At the end goods in the store bring their salvage value and goods on
the way are lost, so the net worth cash + salvage - loan is what u is once the store has ended; after bankruptcy u is
minus the limit of the loan, below any solvent end. All rounding is against the manager.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from .theta import Terms, Theta

MILLION = 1_000_000
_T = TypeVar("_T")


class Refusal(Exception):
    """A decision that is not possible; the message says why, in terms of what the manager can see."""


@dataclass(frozen=True, slots=True)
class State:
    """A store at one moment; money in cents.

    day       0-based; equal to the horizon when the last day has ended
    price     index into each good's price grid
    stock     for each good its batches (last day on which it can be sold, units), oldest first
    coming    for each good its orders on the way (day of delivery, units), earliest first
    ended     no decision is left; bankrupt: and nothing is left of the store
    """

    day: int
    cash: int
    loan: int
    staff: int
    price: tuple[int, ...]
    stock: tuple[tuple[tuple[int, int], ...], ...]
    coming: tuple[tuple[tuple[int, int], ...], ...]
    ended: bool = False
    bankrupt: bool = False

    def on_hand(self, good: int) -> int:
        """Return the units of a good in the store."""
        return sum(units for _, units in self.stock[good])

    def on_the_way(self, good: int) -> int:
        """Return the units of a good that are ordered and not delivered."""
        return sum(units for _, units in self.coming[good])


@dataclass(frozen=True, slots=True)
class Day:
    """What one day came to, as the manager sees it; lists have one entry a good, money is in cents.

    short     whether more would have been sold had there been stock or staff; how much more is hidden
    sales     money taken; bills: money paid at the day's end; drawn: of these, from the credit line
    spoiled   units thrown away overnight; delivered: units that arrived for the next day
    """

    day: int
    price: tuple[int, ...]
    sold: tuple[int, ...]
    short: tuple[bool, ...]
    sales: int
    bills: int
    drawn: int
    spoiled: tuple[int, ...]
    delivered: tuple[int, ...]


def start(terms: Terms) -> State:
    """Return the first morning: an empty store, every price in the middle of its grid."""
    empty: tuple[tuple[tuple[int, int], ...], ...] = tuple(() for _ in terms.goods)
    middle = tuple(len(good.prices) // 2 for good in terms.goods)
    return State(0, terms.cash, 0, terms.staff, middle, empty, empty)


def net_worth(terms: Terms, state: State) -> int:
    """Return cash and salvage of what is in the store, less the loan; minus the limit after bankruptcy."""
    if state.bankrupt:
        return -terms.limit
    salvage = sum(good.salvage * state.on_hand(g) for g, good in enumerate(terms.goods))
    return state.cash + salvage - state.loan


# --- decisions --------------------------------------------------------------------------------------------
def order(terms: Terms, state: State, good: int, units: int) -> State:
    """Pay for an order; it arrives after the good's lead time."""
    _open(state)
    price = terms.goods[good].cost * units + terms.order_fee
    if units < 1:
        raise Refusal(f"an order needs at least 1 unit, got {units}")
    _covered(state, price, "this order")
    arrives = state.day + terms.goods[good].lead
    coming = _put(state.coming, good, (*state.coming[good], (arrives, units)))
    return replace(state, cash=state.cash - price, coming=coming)


def set_price(terms: Terms, state: State, good: int, price: int) -> State:
    """Set a good's price, one of its grid, from this day on."""
    _open(state)
    grid = terms.goods[good].prices
    if price not in grid:
        raise Refusal(f"{terms.goods[good].name} can cost {', '.join(map(str, grid))} cents, not {price}")
    return replace(state, price=_put(state.price, good, grid.index(price)))


def set_staff(terms: Terms, state: State, number: int) -> State:
    """Hire or dismiss until there are `number`; each who is hired costs the fee, dismissal is free."""
    _open(state)
    if not 0 <= number <= terms.staff_limit:
        raise Refusal(f"staff must number 0 to {terms.staff_limit}, got {number}")
    fee = terms.hire_fee * max(0, number - state.staff)
    _covered(state, fee, "the hiring fees")
    return replace(state, staff=number, cash=state.cash - fee)


def borrow(terms: Terms, state: State, amount: int) -> State:
    """Draw cash from the credit line."""
    _open(state)
    if not 1 <= amount <= terms.limit - state.loan:
        raise Refusal(f"1 to {terms.limit - state.loan} cents can be borrowed, not {amount}")
    return replace(state, cash=state.cash + amount, loan=state.loan + amount)


def repay(terms: Terms, state: State, amount: int) -> State:
    """Pay back a part of the loan."""
    _open(state)
    most = min(state.loan, state.cash)
    if not 1 <= amount <= most:
        raise Refusal(
            f"at most {most} cents can be repaid (loan {state.loan}, cash {state.cash}), not {amount}"
        )
    return replace(state, cash=state.cash - amount, loan=state.loan - amount)


def pay_survey(terms: Terms, state: State) -> State:
    """Pay for a survey."""
    _open(state)
    if state.day == 0:
        raise Refusal("a survey looks back, and no day has ended yet")
    _covered(state, terms.survey_fee, "a survey")
    return replace(state, cash=state.cash - terms.survey_fee)


def surveyed(theta: Theta, day: int, good: int, days: int = 7) -> tuple[int, ...]:
    """Return what a survey on `day` finds: units that would have been wanted at each price over the last days."""
    past = theta.demand[max(0, day - days) : day]
    return tuple(sum(units) for units in zip(*(row[good] for row in past), strict=True))


def close(terms: Terms, state: State) -> State:
    """End the store for good, today."""
    _open(state)
    return replace(state, ended=True)


def _open(state: State) -> None:
    if state.ended:
        raise Refusal("the store has ended")


def _covered(state: State, price: int, what: str) -> None:
    if price > state.cash:
        raise Refusal(f"cash of {state.cash} cents does not cover {what}, {price} cents")


def _put(row: tuple[_T, ...], at: int, value: _T) -> tuple[_T, ...]:
    return (*row[:at], value, *row[at + 1 :])


# --- the end of a day -------------------------------------------------------------------------------------
def end_day(theta: Theta, state: State) -> tuple[State, Day]:
    """Sell, pay, and go to the next morning; see the module docstring."""
    _open(state)
    terms, today = theta.terms, state.day
    sold, short = _sold(theta, state)
    stock = [_taken(batches, units) for batches, units in zip(state.stock, sold, strict=True)]
    sales = sum(good.prices[k] * units for good, k, units in zip(terms.goods, state.price, sold, strict=True))
    kept = sum(
        good.holding * sum(units for _, units in batches)
        for good, batches in zip(terms.goods, stock, strict=True)
    )
    interest = -(-state.loan * terms.interest // MILLION)
    bills = terms.rent + terms.wage * state.staff + kept + interest
    cash = state.cash + sales - bills
    drawn = max(0, -cash)
    loan = state.loan + drawn
    bankrupt = loan > terms.limit
    spoiled = tuple(sum(units for last, units in batches if last <= today) for batches in stock)
    fresh = [tuple(batch for batch in batches if batch[0] > today) for batches in stock]
    arrived = [tuple(lot for lot in lots if lot[0] <= today + 1) for lots in state.coming]
    delivered = tuple(sum(units for _, units in lots) for lots in arrived)
    last_day = [today + good.shelf for good in terms.goods]
    after = State(
        today + 1,
        cash + drawn,
        loan,
        state.staff,
        state.price,
        tuple(
            (*batches, (last, units)) if units else batches
            for batches, last, units in zip(fresh, last_day, delivered, strict=True)
        ),
        tuple(tuple(lot for lot in lots if lot[0] > today + 1) for lots in state.coming),
        ended=bankrupt or today + 1 == terms.days,
        bankrupt=bankrupt,
    )
    return after, Day(today, state.price, sold, short, sales, bills, drawn, spoiled, delivered)


def _sold(theta: Theta, state: State) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return units sold of each good, and whether more were wanted."""
    goods = theta.terms.goods
    sold, short = [0] * len(goods), [False] * len(goods)
    hands = theta.terms.handling * state.staff
    for g in sorted(range(len(goods)), key=lambda g: (-goods[g].prices[state.price[g]], g)):
        wanted = theta.demand[state.day][g][state.price[g]]
        sold[g] = min(wanted, state.on_hand(g), hands)
        short[g] = sold[g] < wanted
        hands -= sold[g]
    return tuple(sold), tuple(short)


def _taken(batches: tuple[tuple[int, int], ...], units: int) -> tuple[tuple[int, int], ...]:
    """Return batches less `units`, oldest first."""
    left = []
    for last, held in batches:
        used = min(held, units)
        units -= used
        if held > used:
            left.append((last, held - used))
    return tuple(left)
