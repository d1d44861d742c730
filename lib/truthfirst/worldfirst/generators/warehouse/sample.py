"""Sampling of a warehouse world, and its invariants.

Prices are list prices as of the day of the sale; half of the web sales carry a tenth off. A share of the contacts is
out of date. Identities are drawn, so that no two seeds share them. Every tier holds each case that the damage needs:
void sales on the web and elsewhere, sales at list price, contacts that are up to date.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np

from ...world import WorldError
from .world import (
    CATEGORIES,
    CHANNELS,
    REGIONS,
    SEGMENTS,
    Alias,
    Contact,
    Customer,
    Layout,
    Partition,
    Price,
    Product,
    Sale,
    Warehouse,
)

REVISION = 1


@dataclass(frozen=True, slots=True)
class Size:
    """How large a world is; sales are a month's."""

    months: int
    customers: int
    products: int
    sales: int


SIZES = {
    "nano": Size(2, 6, 4, 12),
    "unit": Size(9, 36, 16, 46),
    "small": Size(12, 90, 30, 120),
    "full": Size(20, 260, 60, 285),
}

BASE_COLUMNS = ("transaction_id", "date", "customer_id", "product_id", "quantity", "unit_price", "channel")
_COLUMN_POOLS = (
    ("txn", "receipt_line", "tid", "doc_no"),
    ("sold_on", "booked", "day", "posting_date"),
    ("cust", "client", "buyer", "account"),
    ("sku", "article", "item", "prod"),
    ("qty", "units", "pieces", "count"),
    ("price", "each", "rate", "amount_per_unit"),
    ("via", "source", "sales_channel", "origin"),
)
_SPELLINGS = {
    ("region", "north"): ("N", "North", "Nord", "nth"),
    ("region", "south"): ("S", "South", "Süd", "sth"),
    ("region", "east"): ("E", "East", "Ost", "est"),
    ("region", "west"): ("W", "West", "Ouest", "wst"),
    ("segment", "retail"): ("Retail", "RTL", "consumer", "private"),
    ("segment", "trade"): ("Trade", "TRD", "pro", "craft"),
    ("segment", "public"): ("Public", "PUB", "municipal", "state"),
    ("category", "tools"): ("Tools", "TL-1", "hand tools", "Werkzeug"),
    ("category", "garden"): ("Garden", "GD-2", "outdoor", "Garten"),
    ("category", "paint"): ("Paint", "PT-3", "coatings", "Farbe"),
    ("category", "lighting"): ("Lighting", "LT-4", "lamps", "Licht"),
    ("category", "plumbing"): ("Plumbing", "PB-5", "pipes", "Rohre"),
    ("channel", "store"): ("Store", "POS", "till", "Laden"),
    ("channel", "phone"): ("Phone", "TEL", "call centre", "hotline"),
    ("channel", "web"): ("Web", "WWW", "online", "e-shop"),
}
_FIRST = """Ada Bruno Carla Dmitri Elif Farid Greta Hana Ivo Jonas Kira Luca Mina Nils Oona Pavel Rosa Sven Tariq
Uma""".split()
_LAST = """Abel Brandt Costa Duval Eriksen Fischer Grant Holm Ito Jensen Klein Lund Moreau Novak Okafor Petrov
Quist""".split()
_THINGS = """hammer rake brush lamp valve saw hose roller bulb pipe drill spade primer sconce tap level shears
varnish""".split()
_KINDS = "compact heavy classic steel folding pro eco wide narrow twin long short".split()
_FORMATS = ("csv", "tsv", "json")


def sample(rng: np.random.Generator, tier: str) -> Warehouse:
    """Draw a world of a tier."""
    size = SIZES[tier]
    store = f"{int(rng.integers(16**4)):04x}"
    months = _months(rng, size.months)
    customers = _customers(rng, size.customers, months[0])
    products = _products(rng, size.products)
    prices = _prices(rng, products, months)
    offset = int(rng.integers(3))
    paths = [
        f"sales/s{store}-{month}.{_FORMATS[(offset + number) % 3]}" for number, month in enumerate(months)
    ]
    partitions = tuple(Partition(month, path) for month, path in zip(months, paths, strict=True))
    return Warehouse(
        store,
        customers,
        _contacts(rng, customers),
        products,
        prices,
        _sales(rng, size, months, customers, products, prices),
        _aliases(rng),
        _layouts(rng),
        partitions,
    )


def _pick(rng: np.random.Generator, pool: tuple[str, ...] | list[str]) -> str:
    return pool[int(rng.integers(len(pool)))]


def _identities(rng: np.random.Generator, prefix: str, digits: int, count: int) -> list[str]:
    """Return `count` distinct identities, sorted; the upper tenth of the numbers stays free for damage."""
    numbers = rng.choice(9 * 10 ** (digits - 1), size=count, replace=False)
    return sorted(f"{prefix}{int(number):0{digits}d}" for number in numbers)


def _day(rng: np.random.Generator, first: date, days: int) -> str:
    return (first + timedelta(days=int(rng.integers(days)))).isoformat()


def _months(rng: np.random.Generator, count: int) -> list[str]:
    start = 12 * int(rng.integers(2019, 2033)) + int(rng.integers(12))
    return [f"{month // 12}-{month % 12 + 1:02d}" for month in range(start, start + count)]


def _customers(rng: np.random.Generator, count: int, first_month: str) -> tuple[Customer, ...]:
    start = date.fromisoformat(f"{first_month}-01") - timedelta(days=2_000)
    seen: set[tuple[str, str]] = set()
    made = []
    for identity in _identities(rng, "C", 5, count):
        while (key := (f"{_pick(rng, _FIRST)} {_pick(rng, _LAST)}", _day(rng, start, 1_990))) in seen:
            pass
        seen.add(key)
        made.append(Customer(identity, key[0], _pick(rng, REGIONS), _pick(rng, SEGMENTS), key[1]))
    return tuple(made)


def _contacts(rng: np.random.Generator, customers: tuple[Customer, ...]) -> tuple[Contact, ...]:
    """Return the contacts of half the customers; every third is out of date in its region, the first is not."""
    chosen = sorted(int(n) for n in rng.choice(len(customers), size=(len(customers) + 1) // 2, replace=False))
    made = []
    for number, position in enumerate(chosen):
        customer = customers[position]
        others = [region for region in REGIONS if region != customer.region]
        region = _pick(rng, others) if number % 3 == 2 else customer.region
        made.append(Contact(customer.id, region, customer.segment))
    return tuple(made)


def _products(rng: np.random.Generator, count: int) -> tuple[Product, ...]:
    return tuple(
        Product(
            identity,
            f"{_pick(rng, _KINDS)} {_pick(rng, _THINGS)}",
            CATEGORIES[number % len(CATEGORIES)],
            int(rng.integers(200, 9_000)),
        )
        for number, identity in enumerate(_identities(rng, "P", 4, count))
    )


def _prices(rng: np.random.Generator, products: tuple[Product, ...], months: list[str]) -> tuple[Price, ...]:
    """Return one to three list prices a product; the first holds before the first month."""
    start = date.fromisoformat(f"{months[0]}-01")
    span = 30 * len(months)
    made = []
    for product in products:
        later = sorted({_day(rng, start, span) for _ in range(int(rng.integers(3)))})
        cents = product.cost
        for since in [(start - timedelta(days=30)).isoformat(), *later]:
            cents = cents * int(rng.integers(110, 160)) // 100 + 10
            made.append(Price(product.id, since, cents))
    return tuple(made)


def _sales(
    rng: np.random.Generator,
    size: Size,
    months: list[str],
    customers: tuple[Customer, ...],
    products: tuple[Product, ...],
    prices: tuple[Price, ...],
) -> tuple[Sale, ...]:
    """Return the sales, sorted by (day, id); channels in turn, every 23rd and every 24th sale void."""
    numbers = iter(rng.choice(16**6, size=len(months) * size.sales, replace=False))
    made: list[Sale] = []
    for month in months:
        first = date.fromisoformat(f"{month}-01")
        days = ((first + timedelta(days=31)).replace(day=1) - first).days
        for _ in range(size.sales):
            position = len(made)
            day = _day(rng, first, days)
            product = products[int(rng.integers(len(products)))]
            listed = max(
                (p for p in prices if p.product == product.id and p.since <= day), key=lambda p: p.since
            )
            channel = CHANNELS[position % 3]
            discount = channel == "web" and position % 2 == 1
            sale = Sale(
                f"T{int(next(numbers)):06x}",
                day,
                customers[int(rng.integers(len(customers)))].id,
                product.id,
                int(rng.integers(1, 13)),
                listed.cents * 9 // 10 if discount else listed.cents,
                channel,
                position % 23 in (0, 2),
            )
            made.append(sale)
    return tuple(sorted(made, key=lambda sale: (sale.day, sale.id)))


def _aliases(rng: np.random.Generator) -> tuple[Alias, ...]:
    made = []
    for (field, value), pool in _SPELLINGS.items():
        for number in sorted(rng.choice(len(pool), size=2, replace=False)):
            made.append(Alias(field, pool[int(number)], value))
    return tuple(made)


def _layouts(rng: np.random.Generator) -> tuple[Layout, ...]:
    """Return the base layout and two others, whose column names differ in every place."""
    orders = [rng.permutation(len(pool)) for pool in _COLUMN_POOLS]
    names = [
        tuple(pool[int(order[turn])] for pool, order in zip(_COLUMN_POOLS, orders, strict=True))
        for turn in (0, 1)
    ]
    return (
        Layout("base", BASE_COLUMNS, "YYYY-MM-DD", "cents"),
        Layout("branch", names[0], "DD.MM.YYYY", "cents"),
        Layout("legacy", names[1], "DD.MM.YYYY", "decimal"),
    )


def check(world: Warehouse) -> None:
    """Raise WorldError unless identities are unique, references resolve and every measure is finite and positive."""
    identities: dict[str, list[Any]] = {
        "customer": [customer.id for customer in world.customers],
        "customer (name, joined)": [(customer.name, customer.joined) for customer in world.customers],
        "contact": [contact.customer for contact in world.contacts],
        "product": [product.id for product in world.products],
        "price": [(price.product, price.since) for price in world.prices],
        "sale": [sale.id for sale in world.sales],
        "alias": [(alias.field, alias.spelling) for alias in world.aliases],
        "partition": [partition.month for partition in world.partitions],
    }
    for what, keys in identities.items():
        if repeated := [key for key, count in Counter(keys).items() if count > 1]:
            raise WorldError(f"{what} {repeated[0]!r} occurs more than once: identities must be unique")
    customers = {customer.id for customer in world.customers}
    products = {product.id for product in world.products}
    months = {partition.month for partition in world.partitions}
    starts = {product: min(p.since for p in world.prices if p.product == product) for product in products}
    if lost := [contact.customer for contact in world.contacts if contact.customer not in customers]:
        raise WorldError(f"contact {lost[0]!r} is no customer")
    for sale in world.sales:
        if sale.customer not in customers or sale.product not in products or sale.day[:7] not in months:
            raise WorldError(f"sale {sale.id} names a customer, product or month that does not exist: {sale}")
        if sale.quantity < 1 or sale.price < 1 or starts[sale.product] > sale.day:
            raise WorldError(
                f"sale {sale.id} has no positive quantity or price, or predates its list price: {sale}"
            )
    if any(product.cost < 1 for product in world.products) or any(price.cents < 1 for price in world.prices):
        raise WorldError("costs and prices must be positive")
