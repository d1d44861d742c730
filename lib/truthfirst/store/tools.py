"""What a store says: its instructions, its tools, and every reply. Nothing here can see hidden demand.

Arguments are read here too: goods by name, everything else an integer in a stated range. Whatever else comes is refused
with a reason. All money is in whole cents, all days are counted from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..episode import as_text, is_integer, printable
from ..types import ToolKind, ToolSchema
from .mechanism import MILLION, Day, Refusal, State, net_worth
from .theta import NOTICE, Event, Terms

MAX_NUMBER = 10**9
KINDS: dict[str, ToolKind] = {
    "report": "query",
    "history": "query",
    "news": "probe",
    "survey": "probe",
    "order": "decision",
    "set_price": "decision",
    "set_staff": "decision",
    "borrow": "decision",
    "repay": "decision",
    "next_day": "decision",
    "close": "decision",
}
_RANGES: dict[str, dict[str, tuple[int, int]]] = {  # arguments beside the good, with lowest and highest value
    "history": {"days": (1, 28)},
    "order": {"units": (1, MAX_NUMBER)},
    "set_price": {"price": (1, MAX_NUMBER)},
    "set_staff": {"number": (0, MAX_NUMBER)},
    "borrow": {"amount": (1, MAX_NUMBER)},
    "repay": {"amount": (1, MAX_NUMBER)},
    "next_day": {"days": (1, 7)},
}
_OF_A_GOOD = ("history", "survey", "order", "set_price")
_TOLD = {
    "report": "Cash, loan, staff, and for every good price, stock and orders on the way.",
    "history": "Prices and sales of one good on the last days.",
    "news": f"Events that change what people want today or within {NOTICE} days. Not every event is in the news.",
    "survey": "Pay the survey fee and learn how many units people wanted of a good in the last week at each price.",
    "order": "Order units of a good; they are paid at once and arrive after its lead time.",
    "set_price": "Set the price of a good, one of its possible prices in cents, from today on.",
    "set_staff": "Hire or dismiss until this many people work here.",
    "borrow": "Borrow cents from the bank.",
    "repay": "Pay cents back to the bank.",
    "next_day": "End the day, or several days one after the other with nothing decided in between.",
    "close": "Close the store for good, today.",
}


def schemas(terms: Terms) -> tuple[ToolSchema, ...]:
    """Return the tools in a fixed order."""
    names = [good.name for good in terms.goods]
    found = []
    for name, kind in KINDS.items():
        properties: dict[str, Any] = {}
        if name in _OF_A_GOOD:
            properties["good"] = {"type": "string", "enum": names}
        for argument, (low, high) in _RANGES.get(name, {}).items():
            properties[argument] = {"type": "integer", "minimum": low, "maximum": high}
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        found.append(ToolSchema(name, _TOLD[name], parameters, kind))
    return tuple(found)


def read(terms: Terms, name: str, arguments: Any) -> dict[str, int]:
    """Return the arguments of a call as integers, the good as its index; raise Refusal for anything else."""
    ranges = _RANGES.get(name, {})
    wanted = [*(["good"] if name in _OF_A_GOOD else []), *ranges]
    given = {} if arguments in (None, "") and not wanted else arguments
    if not isinstance(given, dict) or set(given) != set(wanted):
        raise Refusal(f"{name} takes {' and '.join(wanted) if wanted else 'no arguments'}, as a JSON object")
    found: dict[str, int] = {}
    if "good" in wanted:
        names = [good.name for good in terms.goods]
        if given["good"] not in names:
            raise Refusal(f"there is no good {shown(given['good'])}, only {', '.join(names)}")
        found["good"] = names.index(given["good"])
    for argument, (low, high) in ranges.items():
        value = given[argument]
        if not is_integer(value) or not low <= value <= high:
            raise Refusal(f"{argument} must be an integer from {low} to {high}, got {shown(value)}")
        found[argument] = int(value)
    return found


def shown(value: Any) -> str:
    """Return what a model wrote, as short text."""
    return printable(repr(value) if isinstance(value, str) else as_text(value))[:60]


# --- instructions -----------------------------------------------------------------------------------------
def messages(terms: Terms, turn_budget: int) -> tuple[dict[str, str], ...]:
    """Return the instructions in chat order."""
    goods = "\n".join(
        f"- {good.name}: a unit costs {good.cost}; possible prices {', '.join(map(str, good.prices))}; delivered "
        f"after {good.lead} days; can be sold for {good.shelf} days; holding {good.holding} a unit and day; what is "
        f"left at the end brings {good.salvage} a unit"
        for good in terms.goods
    )
    told = f"""\
You manage a store for {terms.days} days. Earn as much as you can: what counts is the net worth at the end, cash plus \
what is left in the store, less the loan. All money is in whole cents.

You have {turn_budget} calls; every call costs one, a refused one too. When they are spent the store closes on that day.

Goods:
{goods}

Each day you may order, set prices, change the staff, borrow and repay, as often as you like. Then next_day sells \
what people want at your prices, as far as stock and staff last: dearest goods first, oldest units first. What people \
want is not told. It changes with the price, the day of the week, the season and events.

- Start: {terms.cash} cash, {terms.staff} staff, no stock, no loan.
- An order costs {terms.order_fee} beside the goods. Orders and hiring are paid at once, in cash. What is on the way \
at the end is lost.
- Every day costs {terms.rent} rent and {terms.wage} for each of the staff, who sell at most {terms.handling} units \
each. Hiring costs {terms.hire_fee} a person, dismissal nothing; at most {terms.staff_limit} can work here.
- The bank lends up to {terms.limit} at {terms.interest / MILLION:.3%} a day. What cash lacks for the day's bills is \
borrowed by itself. A loan above the limit is bankruptcy: everything is lost and the store ends.
- A survey costs {terms.survey_fee}."""
    return ({"role": "system", "content": told}, {"role": "user", "content": "The store is yours. Begin."})


# --- replies ----------------------------------------------------------------------------------------------
def report(terms: Terms, state: State) -> str:
    """Return everything that the manager owns and owes."""
    lines = [f"{_money(terms, state)} {_people(state.staff)}."]
    for g, good in enumerate(terms.goods):
        batches = [f"{units} until day {last + 1}" for last, units in state.stock[g]]
        lots = [f"{units} on day {day + 1}" for day, units in state.coming[g]]
        lines.append(
            f"{good.name}: price {good.prices[state.price[g]]}; in stock {_some(batches)}; coming {_some(lots)}."
        )
    return "\n".join(lines)


def _some(parts: list[str], most: int = 12) -> str:
    left = [f"{len(parts) - most} more lots"] if len(parts) > most else []
    return ", ".join(parts[:most] + left) or "none"


def _people(number: int) -> str:
    return f"{number} staff"


def _money(terms: Terms, state: State) -> str:
    left = terms.limit - state.loan
    return f"Day {state.day + 1} of {terms.days}: cash {state.cash}, loan {state.loan}, {left} more can be borrowed;"


def history(terms: Terms, days: Sequence[Day], good: int) -> str:
    """Return a good's prices and sales on some days."""
    if not days:
        return "No day has ended yet."
    parts = [
        f"day {day.day + 1}: {day.sold[good]} at {terms.goods[good].prices[day.price[good]]}{_mark(day, good)}"
        for day in days
    ]
    return f"{terms.goods[good].name}: {'; '.join(parts)}."


def _mark(day: Day, good: int) -> str:
    return " (more were wanted)" if day.short[good] else ""


def news(terms: Terms, events: Sequence[Event]) -> str:
    """Return announced events."""
    if not events:
        return "No news."
    parts = [
        f"{terms.goods[event.good].name}: days {event.first + 1} to {event.first + event.length}, about "
        f"{event.strength}% of what is usually wanted"
        for event in events
    ]
    return f"{'; '.join(parts)}."


def survey(terms: Terms, good: int, days: int, found: Sequence[int]) -> str:
    """Return what a survey found."""
    pairs = [f"{units} at {price}" for price, units in zip(terms.goods[good].prices, found, strict=True)]
    return f"{terms.goods[good].name}, wanted in the last {days} days: {', '.join(pairs)}."


def decided(terms: Terms, before: State, after: State, action: Sequence[Any]) -> str:
    """Return what a decision did."""
    verb, *rest = action
    if verb == "close":
        return f"The store is closed. Net worth {net_worth(terms, after)}."
    if verb == "set_price":
        return f"{terms.goods[rest[0]].name} costs {rest[1]} from today on."
    cash = f"Cash {after.cash}, loan {after.loan}."
    if verb == "order":
        day = before.day + terms.goods[rest[0]].lead + 1
        late = " That is after the end." if day > terms.days else ""
        return f"Ordered {rest[1]} {terms.goods[rest[0]].name} for day {day}.{late} {cash}"
    if verb == "set_staff":
        return f"{_people(after.staff)}. {cash}"
    return f"{'Borrowed' if verb == 'borrow' else 'Repaid'} {rest[0]}. {cash}"


def days_told(terms: Terms, days: Sequence[Day], state: State) -> str:
    """Return what the days that ended brought, one line each, and where things stand."""
    lines = [_day(terms, day) for day in days]
    if state.bankrupt:
        lines.append("The loan exceeds its limit: the store is bankrupt and everything is lost.")
    elif state.ended:
        lines.append(f"The last day has ended. Net worth {net_worth(terms, state)}.")
    else:
        lines.append(f"{_money(terms, state)} {_people(state.staff)}.")
    return "\n".join(lines)


def _day(terms: Terms, day: Day) -> str:
    names = [good.name for good in terms.goods]
    sold = [f"{names[g]} {units}{'+' if day.short[g] else ''}" for g, units in enumerate(day.sold)]
    text = (
        f"Day {day.day + 1}: sold {', '.join(sold)} (+: more were wanted); took {day.sales}, paid {day.bills}"
    )
    text += f", of it {day.drawn} from the bank" if day.drawn else ""
    for what, counts in (("thrown away", day.spoiled), ("delivered", day.delivered)):
        listed = [f"{names[g]} {units}" for g, units in enumerate(counts) if units]
        text += f"; {what}: {', '.join(listed)}" if listed else ""
    return f"{text}."
