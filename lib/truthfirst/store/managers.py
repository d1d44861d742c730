"""Scripted managers, from naive to skilful. They play through the wrapped tools, as a model would.

    closer        closes on the first day: u0 by definition
    idle          does nothing and pays the rent until the money is gone
    over-expander borrows all it can, hires half of whom it may, and fills the shelves at the lowest price
    base-stock    fixed staff and prices; orders up to a fixed level
    forecaster    the same prices; forecasts sales by day of the week, orders newsvendor quantities, sets staff to fit
    price-tester  tries every price for some days, then keeps the best and goes on as the forecaster
    surveyor      pays for surveys to choose prices, reads the news, and goes on as the forecaster
    planner       full information: carries out the relaxation's rounded plan (`planner.py`); a reference, no manager

All but the planner decide from a `Position`, which holds no hidden demand.

The forecaster. For every good it keeps a level of daily demand, scaled by day-of-week factors and by price,
smoothed over days; a day on which more was wanted counts as at least its sales plus a fifth. An order covers lead
time and review period, at the quantile of critical ratio (price - cost) / (price - salvage) of a normal
distribution with a variance of 1.5 times the mean, and is placed when stock and orders on the way fall below what
lead time and one day need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from scipy.stats import norm

from ..policies.base import Scripted
from .environment import Position, StoreEpisode
from .planner import Move, plan_store

GUESS = 20.0  # units a day of a good that nothing is known of
TRY_DAYS = 4
SURVEY_DAYS = 28
ARGUMENTS = {  # of each decision, in the order of `Move`
    "order": ("good", "units"),
    "set_price": ("good", "price"),
    "survey": ("good",),
    "set_staff": ("number",),
    "borrow": ("amount",),
    "repay": ("amount",),
    "end_day": (),
    "close": (),
}


# --- acting -----------------------------------------------------------------------------------------------
def call(episode: StoreEpisode, move: Move) -> str:
    """Make one decision through the tools."""
    names = ARGUMENTS[move.verb]
    arguments: dict[str, object] = dict(zip(names, move.arguments, strict=True))
    if "good" in names:
        arguments["good"] = episode.environment.terms.goods[move.arguments[0]].name
    if move.verb == "end_day":
        return episode.call("next_day", {"days": 1})
    return episode.call(move.verb, arguments)


def closer(episode: StoreEpisode) -> None:
    episode.call("close", {})


def idle(episode: StoreEpisode) -> None:
    while not episode.done:
        episode.call("next_day", {"days": 7})


def planner(episode: StoreEpisode) -> None:
    environment = episode.environment
    _, moves = plan_store(environment.theta, environment.bound)
    for move in moves:
        call(episode, move)


def over_expander(episode: StoreEpisode) -> None:
    """Spend everything on growth at once; what is left follows by itself."""
    terms = episode.environment.terms
    call(episode, Move("borrow", (terms.limit,)))
    for g, good in enumerate(terms.goods):
        call(episode, Move("set_price", (g, good.prices[0])))
    call(episode, Move("set_staff", (max(1, terms.staff_limit // 2),)))
    keep = 3 * (terms.rent + terms.wage * episode.position().state.staff)
    while not episode.done:
        state = episode.position().state
        for g, good in enumerate(terms.goods):
            cash = episode.position().state.cash - keep - terms.order_fee
            share = cash // (len(terms.goods) - g)
            if state.day % 2 == 0 and share >= 10 * good.cost:
                call(episode, Move("order", (g, share // good.cost)))
        call(episode, Move("end_day"))


def base_stock(episode: StoreEpisode) -> None:
    """Keep a fixed level of stock and orders on the way, for a guess of demand that is never revised."""
    terms = episode.environment.terms
    while not episode.done:
        state = episode.position().state
        if state.day == max(good.lead for good in terms.goods):
            hands = math.ceil(0.8 * GUESS * len(terms.goods) / terms.handling)
            call(episode, Move("set_staff", (min(hands, terms.staff_limit),)))
        for g, good in enumerate(terms.goods):
            state = episode.position().state
            level = int(GUESS * (good.lead + 3))
            held = state.on_hand(g) + state.on_the_way(g)
            if held < level - 2 * GUESS and state.day + good.lead < terms.days:
                units = min(level - held, (state.cash - terms.order_fee - _reserve(episode)) // good.cost)
                if units > 0:
                    call(episode, Move("order", (g, units)))
        call(episode, Move("end_day"))


def _reserve(episode: StoreEpisode) -> int:
    """Return cash to keep back: three days of rent and wages."""
    terms = episode.environment.terms
    return 3 * (terms.rent + terms.wage * episode.state.staff)


# --- forecasting ------------------------------------------------------------------------------------------
@dataclass
class Forecast:
    """Demand of every good at its present price, learned from sales.

    level     units on a day of average weekday factor, at price index `at`
    weekday   factors, shape (goods, 7)
    elasticity  assumed when a price is changed
    """

    goods: int
    level: list[float] = field(init=False)
    weekday: list[list[float]] = field(init=False)
    seen: int = 0
    elasticity: float = 2.0

    def __post_init__(self) -> None:
        self.level = [GUESS] * self.goods
        self.weekday = [[1.0] * 7 for _ in range(self.goods)]

    def learn(self, position: Position) -> None:
        """Take in the days that have ended since the last call."""
        for day in position.past[self.seen :]:
            for g, good in enumerate(position.terms.goods):
                if day.short[g] and day.sold[g] < 0.5 * self.level[g]:
                    continue  # hardly any stock: nothing is learned
                wanted = day.sold[g] * 1.2 + 1 if day.short[g] else float(day.sold[g])
                factor = self.weekday[g][day.day % 7] * _event(position, g, day.day)
                price = good.prices[day.price[g]] / good.prices[len(good.prices) // 2]
                now = wanted / factor / price**-self.elasticity
                now = max(now, self.level[g]) if day.short[g] else now
                self.level[g] += (0.3 if day.day < 21 else 0.12) * (now - self.level[g])
                if not day.short[g] and self.level[g] > 1:
                    seen = wanted / (_event(position, g, day.day) * price**-self.elasticity) / self.level[g]
                    self.weekday[g][day.day % 7] += 0.15 * (min(seen, 3.0) - self.weekday[g][day.day % 7])
        self.seen = len(position.past)

    def mean(self, position: Position, g: int, day: int, k: int | None = None) -> float:
        """Return expected units on a day at price index k, by default the present one."""
        good = position.terms.goods[g]
        k = position.state.price[g] if k is None else k
        price = good.prices[k] / good.prices[len(good.prices) // 2]
        return self.level[g] * self.weekday[g][day % 7] * _event(position, g, day) * price**-self.elasticity


def _event(position: Position, g: int, day: int) -> float:
    """Return the factor of the events that the manager has read of."""
    factor = 1.0
    for good, first, length, strength in position.news:
        if good == g and first <= day < first + length:
            factor *= strength / 100
    return factor


def order_moves(position: Position, forecast: Forecast, review: int = 3) -> list[Move]:
    """Return the newsvendor's orders of a day, dearest margin first, with loans where cash does not suffice."""
    terms, state = position.terms, position.state
    cash, credit = state.cash, terms.limit - state.loan
    people = max(state.staff, _people(position, forecast))
    bills = (2 + max(good.lead for good in terms.goods)) * (terms.rent + terms.wage * people)
    keep = (bills if state.day < 30 else bills // 2) + terms.hire_fee * (people - state.staff)
    moves = []
    for g in sorted(range(len(terms.goods)), key=lambda g: -_markup(position, g)):
        good = terms.goods[g]
        held = state.on_hand(g) + state.on_the_way(g)
        period = min(review, good.shelf)
        until = min(state.day + good.lead + period, terms.days)
        need = sum(forecast.mean(position, g, day) for day in range(state.day, until))
        soon = sum(
            forecast.mean(position, g, day) for day in range(state.day, min(until, state.day + good.lead + 1))
        )
        price = good.prices[state.price[g]]
        z = float(norm.ppf((price - good.cost) / (price - good.salvage)))
        safety = z * math.sqrt(1.5 * max(need, 1.0))
        if state.day + good.lead >= terms.days or held >= soon + safety:
            continue
        units = min(int(need + safety) - held, (cash + credit - keep - terms.order_fee) // good.cost)
        if units < 1:
            continue
        paid = units * good.cost + terms.order_fee
        if paid > cash:
            moves.append(Move("borrow", (paid - cash,)))
            credit, cash = credit - (paid - cash), paid
        cash -= paid
        moves.append(Move("order", (g, units)))
    return moves


def _people(position: Position, forecast: Forecast) -> int:
    """Return the staff that an average day of the coming week needs."""
    goods, day = range(len(position.terms.goods)), position.state.day
    week = sum(forecast.mean(position, g, day + ahead) for g in goods for ahead in range(7))
    return min(position.terms.staff_limit, math.ceil(week / 7 / position.terms.handling))


def _markup(position: Position, g: int) -> float:
    good = position.terms.goods[g]
    return good.prices[position.state.price[g]] / good.cost


def staff_moves(position: Position, forecast: Forecast) -> list[Move]:
    """Return the staff that today's stock and forecast need, dismissing only what the week does not need."""
    terms, state = position.terms, position.state
    units = sum(
        min(state.on_hand(g), 1.15 * forecast.mean(position, g, state.day) + 1)
        for g in range(len(terms.goods))
    )
    needed = min(terms.staff_limit, math.ceil(units / terms.handling))
    kept = _people(position, forecast) if any(state.stock) else 0
    if needed > state.staff:
        lacking = (needed - state.staff) * terms.hire_fee - state.cash
        if lacking > terms.limit - state.loan:
            return []
        return [*([Move("borrow", (lacking,))] if lacking > 0 else []), Move("set_staff", (needed,))]
    if max(needed, kept) < state.staff:
        return [Move("set_staff", (max(needed, kept),))]
    return []


def repay_moves(position: Position) -> list[Move]:
    """Return a repayment of what cash is not needed for."""
    state, terms = position.state, position.terms
    spare = min(state.loan, state.cash - 5 * (terms.rent + terms.wage * state.staff))
    return [Move("repay", (spare,))] if spare > 0 and state.loan else []


PriceRule = Callable[[StoreEpisode, Forecast], list[Move]]


def run_by_forecast(episode: StoreEpisode, prices: PriceRule) -> None:
    """Play to the end: prices by rule, then staff, orders and repayment by forecast, every day."""
    forecast = Forecast(len(episode.environment.terms.goods))
    while not episode.done:
        forecast.learn(episode.position())
        for rule in (
            lambda position: prices(episode, forecast),
            lambda position: staff_moves(position, forecast),
            lambda position: order_moves(position, forecast),
            repay_moves,
        ):
            for move in rule(episode.position()):
                call(episode, move)
        call(episode, Move("end_day"))


def forecaster(episode: StoreEpisode) -> None:
    run_by_forecast(episode, lambda episode, forecast: [])


def price_tester(episode: StoreEpisode) -> None:
    """Try the prices from the middle outwards, TRY_DAYS each, when there is stock; keep what earns most a day."""
    terms = episode.environment.terms
    grid = len(terms.goods[0].prices)
    order = sorted(range(grid), key=lambda k: abs(k - grid // 2))
    tried: list[dict[int, list[float]]] = [{} for _ in terms.goods]
    seen = [0]

    def rule(episode: StoreEpisode, forecast: Forecast) -> list[Move]:
        position = episode.position()
        for day in position.past[seen[0] :]:
            for g, good in enumerate(terms.goods):
                if day.sold[g] and not day.short[g]:
                    margin = (good.prices[day.price[g]] - good.cost) * day.sold[g]
                    tried[g].setdefault(day.price[g], []).append(margin / forecast.weekday[g][day.day % 7])
        seen[0] = len(position.past)
        moves = []
        for g, good in enumerate(terms.goods):
            open_ = [k for k in order if len(tried[g].get(k, ())) < TRY_DAYS]
            k = (
                open_[0]
                if open_
                else max(order, key=lambda k: sum(tried[g][k][-28:]) / len(tried[g][k][-28:]))
            )
            if k != position.state.price[g]:
                moves.append(Move("set_price", (g, good.prices[k])))
        return moves

    run_by_forecast(episode, rule)


def surveyor(episode: StoreEpisode) -> None:
    """Survey every good once a month and take the price that would have earned most; read the news every third day."""
    terms = episode.environment.terms

    def rule(episode: StoreEpisode, forecast: Forecast) -> list[Move]:
        state = episode.position().state
        if state.day % 3 == 0:
            episode.call("news", {})
        moves = []
        for g, good in enumerate(terms.goods):
            due = state.day >= 7 and (state.day - 7 - g) % SURVEY_DAYS == 0
            rich = episode.position().state.cash > 6 * terms.survey_fee
            if not (due and rich and state.day + SURVEY_DAYS // 2 < terms.days):
                continue
            call(episode, Move("survey", (g,)))
            _, days, wanted = episode.position().surveys[g]
            wage = terms.wage / terms.handling
            k = max(range(len(wanted)), key=lambda k: (good.prices[k] - good.cost - wage) * wanted[k])
            middle = len(good.prices) // 2
            events = (
                sum(_event(episode.position(), g, day) for day in range(state.day - days, state.day)) / days
            )
            forecast.level[g] = wanted[middle] / days / events
            if k != episode.position().state.price[g]:
                moves.append(Move("set_price", (g, good.prices[k])))
        return moves

    run_by_forecast(episode, rule)


MANAGERS: dict[str, Scripted] = {
    name: Scripted(name, act)
    for name, act in (
        ("idle", idle),
        ("over-expander", over_expander),
        ("closer", closer),
        ("base-stock", base_stock),
        ("forecaster", forecaster),
        ("price-tester", price_tester),
        ("surveyor", surveyor),
        ("planner", planner),
    )
}
REFERENCE = "planner"  # sees hidden demand


def manager(name: str) -> Scripted:
    """Return a scripted manager; raise ValueError that lists them."""
    if name not in MANAGERS:
        raise ValueError(f"unknown manager {name!r}: choose one of {', '.join(MANAGERS)}")
    return MANAGERS[name]
