"""What is true of one store, drawn from a seed before anybody plays: integers only, all money in cents.

    Terms    the public part: goods with costs, price grids, lead times and shelf lives; rent, wages, fees, credit
    Theta    terms, and what is hidden: realised demand for every day, good and price, and the events behind it

Demand of good g on day t at price p is a Poisson quantile at one uniform draw for all prices of that day,

    D(t, g, p) = F^-1( U(t, g); lambda ),   lambda = b_g (p / r_g)^(-e_g) trend season weekday events noise,

hence monotone: no price sells more than a lower one. b is the base rate at the reference price r, e the elasticity.
Events are promotions of others, feasts and droughts: a few days on which one good sells for a multiple or a fraction.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import poisson

from ..records import content_hash
from ..streams import stream

REVISION = 1  # of sampling: a recipe of another revision gives another store
YEAR = 365
GOODS = ("tea", "bread", "soap", "lamps", "paper", "honey", "rope", "cheese", "candles", "tools")
PRICE_SHARES = (70, 80, 90, 100, 115, 130, 150)  # of the reference price, per cent
NOTICE = 7  # days before its first day on which an announced event is in the news
MAX_DAYS = 3_650


class StoreError(ValueError):
    """A store cannot be made or used as asked; the message names the value and what is possible."""


@dataclass(frozen=True, slots=True)
class Good:
    """What everybody knows of one good.

    cost      cents that a unit costs when it is ordered
    prices    cents, ascending: the only prices that can be set
    lead      days from order to delivery
    shelf     days on which a delivered unit can be sold, the day of delivery included
    holding   cents a day for each unit that stays overnight
    salvage   cents that a unit in the store brings at the end, less than cost
    """

    name: str
    cost: int
    prices: tuple[int, ...]
    lead: int
    shelf: int
    holding: int
    salvage: int

    def __post_init__(self) -> None:
        if self.lead < 1 or self.shelf < 1 or self.holding < 0:
            raise StoreError(
                f"{self.name}: lead and shelf must be at least 1 day and holding at least 0 cents"
            )
        if not 0 <= self.salvage < self.cost:
            raise StoreError(
                f"{self.name}: salvage must lie in [0, cost), got {self.salvage} of {self.cost} cents"
            )
        if not self.prices or list(self.prices) != sorted(set(self.prices)) or self.prices[0] < 1:
            raise StoreError(f"{self.name}: prices must be positive and ascending, got {self.prices}")


@dataclass(frozen=True, slots=True)
class Terms:
    """The public terms of a store; money in cents.

    days         horizon H
    cash, staff  at the start; there is no stock and no loan
    rent         a day
    wage         a day for each member of staff; handling: units that each can sell a day
    hire_fee     once for each who is hired; staff_limit: most who can be employed
    order_fee    once for each order of a good
    limit        of the loan; interest: parts per million of the loan a day, rounded up to a cent
    survey_fee   for each survey
    """

    days: int
    goods: tuple[Good, ...]
    cash: int
    staff: int
    rent: int
    wage: int
    handling: int
    hire_fee: int
    staff_limit: int
    order_fee: int
    limit: int
    interest: int
    survey_fee: int


@dataclass(frozen=True, slots=True)
class Event:
    """Days first <= t < first + length on which a good's demand is `strength` per cent of what it would be."""

    good: int
    first: int
    length: int
    strength: int
    announced: bool


@dataclass(frozen=True, slots=True)
class Theta:
    """Everything that is true; sealed.

    demand   units, shape (days, goods, prices of that good)
    """

    terms: Terms
    demand: tuple[tuple[tuple[int, ...], ...], ...]
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        grids = [len(good.prices) for good in self.terms.goods]
        if len(self.demand) != self.terms.days or any(
            [len(row) for row in day] != grids for day in self.demand
        ):
            raise StoreError("demand must have one row a day, one entry a good and one number a price")

    @property
    def hash(self) -> str:
        """Sixteen hex digits that tell this store from another."""
        return content_hash(asdict(self))


def recipe(seed: int, days: int = YEAR, goods: int = 6) -> dict[str, Any]:
    """Return the JSON that `sample` makes a store of."""
    return {"seed": seed, "days": days, "goods": goods, "revision": REVISION}


def sample(seed: int, days: int = YEAR, goods: int = 6) -> Theta:
    """Draw a store. Raises StoreError for an impossible size, SeedError for a seed that is none."""
    if not isinstance(days, int) or not 1 <= days <= MAX_DAYS:
        raise StoreError(f"days must be an integer from 1 to {MAX_DAYS}, got {days!r}")
    if not isinstance(goods, int) or not 1 <= goods <= len(GOODS):
        raise StoreError(f"goods must be an integer from 1 to {len(GOODS)}, got {goods!r}")
    rng = stream(seed, "store", "terms")
    names = [GOODS[int(i)] for i in rng.permutation(len(GOODS))[:goods]]
    references = rng.integers(300, 2_000, goods)
    rates = rng.uniform(12.0, 36.0, goods)
    listed = tuple(_good(rng, name, int(price)) for name, price in zip(names, references, strict=True))
    terms = _terms(rng, days, listed, rates)
    events = _events(stream(seed, "store", "events"), days, goods)
    demand = _demand(stream(seed, "store", "demand"), days, listed, rates, events)
    return Theta(terms, demand, events)


def _good(rng: np.random.Generator, name: str, reference: int) -> Good:
    cost = reference * int(rng.integers(45, 63)) // 100
    return Good(
        name=name,
        cost=cost,
        prices=tuple(reference * share // 100 for share in PRICE_SHARES),
        lead=int(rng.integers(1, 6)),
        shelf=int(rng.integers(6, 29)),
        holding=max(1, cost // 300),
        salvage=cost * 3 // 10,
    )


def _terms(rng: np.random.Generator, days: int, goods: tuple[Good, ...], rates: np.ndarray) -> Terms:
    """Set the terms so that a store can live: rent and wages are shares of the margin at reference prices."""
    middle = PRICE_SHARES.index(100)
    bought = sum(float(rate) * good.cost for rate, good in zip(rates, goods, strict=True))
    margin = sum(
        float(rate) * (good.prices[middle] - good.cost) for rate, good in zip(rates, goods, strict=True)
    )
    handling = int(rng.integers(15, 26))
    needed = float(rates.sum()) / handling
    return Terms(
        days=days,
        goods=goods,
        cash=int(bought * rng.uniform(3.0, 5.0)),
        staff=1,
        rent=int(margin * rng.uniform(0.12, 0.2)),
        wage=int(margin * rng.uniform(0.15, 0.22) / needed),
        handling=handling,
        hire_fee=int(margin * 0.03),
        staff_limit=int(2.5 * needed) + 2,
        order_fee=int(margin * rng.uniform(0.01, 0.025)),
        limit=int(bought * rng.uniform(2.0, 4.0)),
        interest=int(rng.integers(300, 801)),
        survey_fee=int(margin * 0.15),
    )


def _events(rng: np.random.Generator, days: int, goods: int) -> tuple[Event, ...]:
    found = []
    for good in range(goods):
        first = int(rng.integers(5, 60))
        while first < days:
            strength = int(rng.integers(150, 280)) if rng.random() < 0.7 else int(rng.integers(30, 70))
            length = int(rng.integers(3, 8))
            found.append(Event(good, first, length, strength, bool(rng.random() < 0.7)))
            first += length + int(rng.integers(25, 90))
    return tuple(sorted(found, key=lambda event: (event.first, event.good)))


def _demand(
    rng: np.random.Generator,
    days: int,
    goods: tuple[Good, ...],
    rates: np.ndarray,
    events: tuple[Event, ...],
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return realised demand, shape (days, goods, prices)."""
    time = np.arange(days)
    tables = []
    for number, good in enumerate(goods):
        slope, swing, phase = rng.uniform(-0.3, 0.6), rng.uniform(0.0, 0.3), rng.uniform(0.0, 1.0)
        rate = rates[number] * (1 + slope * time / YEAR).clip(0.2)
        rate = rate * (1 + swing * np.sin(2 * np.pi * (time / YEAR + phase)))
        week = np.exp(rng.normal(0.0, 0.22, 7))
        rate = rate * (week / week.mean())[time % 7]
        for event in events:
            if event.good == number:
                rate[event.first : event.first + event.length] *= event.strength / 100
        rate = rate * np.exp(rng.normal(0.0, 0.12, days))
        prices = np.array(good.prices) / good.prices[PRICE_SHARES.index(100)]
        means = rate[:, None] * prices[None, :] ** -rng.uniform(1.4, 3.2)
        tables.append(poisson.ppf(rng.uniform(0.001, 0.999, days)[:, None], means).astype(int).tolist())
    return tuple(tuple(tuple(table[day]) for table in tables) for day in range(days))
