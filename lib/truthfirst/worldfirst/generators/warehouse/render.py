"""Rendering: a warehouse world as clean files, a pure function with an exact inverse.

    input/customers.csv  contacts.json  products.tsv  prices.csv       dimensions
    input/codes.json     layouts.json                                  spellings; column names, date and money formats
    input/ledger.sqlite                                                web postings in full, void transactions by id
    input/sales/s<store>-<month>.<csv|tsv|json>                        one partition a month, base layout
    input/cache/monthly_revenue.csv                                    what an earlier run found

`recover` reads the world back from these files; the cache is derived and must agree with it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from ...tables import Cell, Table, decode, decode_sqlite, encode, encode_sqlite
from ...world import INPUT, Files, WorldError
from .sample import BASE_COLUMNS
from .world import Alias, Contact, Customer, Layout, Partition, Price, Product, Sale, Warehouse

_POSTINGS = (
    "transaction_id",
    "posted_on",
    "customer_id",
    "product_id",
    "quantity",
    "unit_price_cents",
    "channel",
)
_REVENUE = ("month", "region", "category", "quantity", "revenue_cents")
_POSTING_TYPES = ("TEXT", "TEXT", "TEXT", "TEXT", "INTEGER", "INTEGER", "TEXT")


def render(world: Warehouse) -> dict[str, bytes]:
    """Return the clean files."""
    named = {
        "customers.csv": _table(
            ("customer_id", "name", "region", "segment", "joined"),
            [(c.id, c.name, c.region, c.segment, c.joined) for c in world.customers],
        ),
        "contacts.json": _table(
            ("customer_id", "region", "segment"), [(c.customer, c.region, c.segment) for c in world.contacts]
        ),
        "products.tsv": _table(
            ("product_id", "name", "category", "cost_cents"),
            [(p.id, p.name, p.category, str(p.cost)) for p in world.products],
        ),
        "prices.csv": _table(
            ("product_id", "valid_from", "price_cents"),
            [(p.product, p.since, str(p.cents)) for p in world.prices],
        ),
        "cache/monthly_revenue.csv": _table(_REVENUE, _revenue(world)),
    }
    for partition in world.partitions:
        rows = [_row(sale) for sale in world.sales if sale.day[:7] == partition.month]
        named[partition.path] = _table(BASE_COLUMNS, rows)
    files = {INPUT + path: encode(table, path) for path, table in named.items()}
    files[f"{INPUT}codes.json"] = _json(_codes(world.aliases))
    files[f"{INPUT}layouts.json"] = _json({layout.name: _layout(layout) for layout in world.layouts})
    files[f"{INPUT}ledger.sqlite"] = encode_sqlite(
        {
            "postings": _table(
                _POSTINGS, sorted(_posting(sale) for sale in world.sales if sale.channel == "web")
            ),
            "voids": _table(
                ("transaction_id", "month"), sorted((s.id, s.day[:7]) for s in world.sales if s.void)
            ),
        },
        {"postings": _POSTING_TYPES, "voids": ("TEXT", "TEXT")},
    )
    return files


def _table(columns: tuple[str, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(columns, tuple(rows))


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _row(sale: Sale) -> tuple[str, ...]:
    return (sale.id, sale.day, sale.customer, sale.product, str(sale.quantity), str(sale.price), sale.channel)


def _posting(sale: Sale) -> tuple[Cell, ...]:
    return (sale.id, sale.day, sale.customer, sale.product, sale.quantity, sale.price, sale.channel)


def _codes(aliases: tuple[Alias, ...]) -> dict[str, dict[str, str]]:
    codes: dict[str, dict[str, str]] = {}
    for alias in aliases:
        codes.setdefault(alias.field, {})[alias.spelling] = alias.value
    return codes


def _layout(layout: Layout) -> dict[str, object]:
    return {
        "columns": dict(zip(BASE_COLUMNS, layout.columns, strict=True)),
        "dates": layout.dates,
        "unit_price": layout.money,
    }


def _revenue(world: Warehouse) -> list[tuple[str, ...]]:
    regions = {customer.id: customer.region for customer in world.customers}
    categories = {product.id: product.category for product in world.products}
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for sale in world.sales:
        if not sale.void:
            entry = sums[sale.day[:7], regions[sale.customer], categories[sale.product]]
            entry[0] += sale.quantity
            entry[1] += sale.quantity * sale.price
    return [(*key, str(quantity), str(revenue)) for key, (quantity, revenue) in sorted(sums.items())]


def recover(files: Files) -> Warehouse:
    """Return the world whose clean files these are. Raises WorldError where the cache does not agree with it."""

    def rows(path: str) -> tuple[tuple[Cell, ...], ...]:
        return decode(files[INPUT + path], path).rows

    ledger = decode_sqlite(files[f"{INPUT}ledger.sqlite"])
    voids = {str(identity) for identity, _ in ledger["voids"].rows}
    paths = [path.removeprefix(INPUT) for path in files if path.startswith(f"{INPUT}sales/")]
    partitions = tuple(Partition(_month(path), path) for path in sorted(paths, key=_month))
    sales = [
        Sale(
            str(identity),
            str(day),
            str(customer),
            str(product),
            int(str(quantity)),
            int(str(price)),
            str(channel),
            identity in voids,
        )
        for partition in partitions
        for identity, day, customer, product, quantity, price, channel in rows(partition.path)
    ]
    layouts = json.loads(files[f"{INPUT}layouts.json"])
    codes = json.loads(files[f"{INPUT}codes.json"])
    world = Warehouse(
        partitions[0].path.removeprefix("sales/s")[:4],
        tuple(Customer(*map(str, row)) for row in rows("customers.csv")),
        tuple(Contact(*map(str, row)) for row in rows("contacts.json")),
        tuple(
            Product(str(i), str(name), str(kind), int(str(cost)))
            for i, name, kind, cost in rows("products.tsv")
        ),
        tuple(Price(str(i), str(since), int(str(cents))) for i, since, cents in rows("prices.csv")),
        tuple(sales),
        tuple(
            Alias(field, text, value)
            for field, spellings in codes.items()
            for text, value in spellings.items()
        ),
        tuple(
            Layout(name, tuple(told["columns"].values()), told["dates"], told["unit_price"])
            for name, told in layouts.items()
        ),
        partitions,
    )
    if [tuple(map(str, row)) for row in rows("cache/monthly_revenue.csv")] != _revenue(world):
        raise WorldError("the clean cache does not agree with the sales")
    return world


def _month(path: str) -> str:
    return path.rpartition(".")[0][-7:]
