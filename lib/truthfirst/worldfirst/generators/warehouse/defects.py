"""The damage of a warehouse: which records are lost, doubled, blanked, misspelt, re-keyed or told in another layout.

Every act leaves in the public tree what undoes it, under the rules that the prompt states:

    missing rows        web sales dropped from their partitions: the ledger posts them (one void sale is dropped, too)
    duplicates          exact copies in the same partition; copies with another quantity in a foreign one, where the
                        copy in the month's own partition stands
    missing values      blank unit prices of sales at list price; blank regions and segments with an up-to-date contact
    identity drift      a customer entered twice under a higher identity, with sales booked on it
    categorical drift   spellings of codes.json in customers, products and sales
    schema drift        partitions in another layout: column names, dates, money
    lost order          rows shuffled
    stale cache         every figure of the cached report is out of date

The sets of damaged sales are disjoint where their repairs would otherwise be ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...corrupt import OPERATORS as GENERIC
from ...corrupt import Draft
from ...world import INPUT, Defect, Files
from .sample import BASE_COLUMNS
from .world import Sale, Warehouse

OPERATORS = GENERIC


def plan(world: Warehouse, files: Files, rng: np.random.Generator) -> tuple[Defect, ...]:
    """Draw the defect plan of a world."""
    draft = Draft(files, OPERATORS)
    chosen = _choose(world, rng)
    _customers(draft, world, rng)
    _spell(draft, world, rng, f"{INPUT}products.tsv", "category", 0.2)
    for partition in world.partitions:
        path = INPUT + partition.path
        _blank_prices(draft, path, chosen["blank"])
        _spell(draft, world, rng, path, "channel", 0.15)
    _copies(draft, world, rng, chosen["copied"], chosen["conflicting"])
    for partition in world.partitions:
        _drop(draft, INPUT + partition.path, chosen["dropped"])
    for path in [f"{INPUT}customers.csv", *(INPUT + partition.path for partition in world.partitions)]:
        order = [int(position) for position in rng.permutation(len(draft.table(path).rows))]
        draft.add("lost order", "permute_rows", path, order=order)
    _drift(draft, world, rng)
    _stale(draft, rng)
    return tuple(draft.plan)


def _share(rng: np.random.Generator, pool: list[str], share: float, least: int) -> list[str]:
    """Return a random share of `pool`, in its order, at least `least` of it."""
    count = min(len(pool), max(least, round(share * len(pool))))
    chosen = sorted(int(position) for position in rng.choice(len(pool), size=count, replace=False))
    return [pool[position] for position in chosen]


def _choose(world: Warehouse, rng: np.random.Generator) -> dict[str, set[str]]:
    """Return disjoint sets of sale identities: dropped, copied, conflicting, blank."""
    free = {sale.id: sale for sale in world.sales}

    def take(share: float, least: int, allowed: Iterable[Sale]) -> set[str]:
        pool = [sale.id for sale in allowed if sale.id in free]
        taken = set(_share(rng, pool, share, least))
        for identity in taken:
            del free[identity]
        return taken

    valid = [sale for sale in world.sales if not sale.void]
    void = [sale for sale in world.sales if sale.void]
    dropped = take(0.15, 2, [sale for sale in valid if sale.channel == "web"])
    dropped |= take(0.0, 1, [sale for sale in void if sale.channel == "web"])
    copied = take(0.04, 2, valid) | take(0.0, 1, void)
    conflicting = take(0.03, 1, valid)
    return {
        "dropped": dropped,
        "copied": copied,
        "conflicting": conflicting,
        "blank": take(0.06, 2, [sale for sale in valid if sale.channel != "web"]),
    }


def _customers(draft: Draft, world: Warehouse, rng: np.random.Generator) -> None:
    """Enter customers twice, book sales on the second identity, blank and misspell fields."""
    path = f"{INPUT}customers.csv"
    buyers = sorted({sale.customer for sale in world.sales})
    twice = _share(rng, buyers, 0.08, 1)
    current = [
        contact.customer
        for contact in world.contacts
        if contact.customer not in twice
        and any(c.id == contact.customer and c.region == contact.region for c in world.customers)
    ]
    blank = set(_share(rng, current, 0.3, 1))
    for column in ("region", "segment"):
        table = draft.table(path)
        position = table.column(column)
        cells = [[number, row[position], ""] for number, row in enumerate(table.rows) if row[0] in blank]
        if cells:
            draft.add("missing values", "replace_cells", path, column=column, cells=cells)
        _spell(draft, world, rng, path, column, 0.25)
    fresh = sorted(f"C{90_000 + int(n)}" for n in rng.choice(10_000, size=len(twice), replace=False))
    second = dict(zip(twice, fresh, strict=True))
    rows = draft.table(path).rows
    again = [[second[str(row[0])], *row[1:]] for row in rows if row[0] in second]
    extra = [[len(rows) + number, cells] for number, cells in enumerate(again)]
    draft.add("identity drift", "insert_rows", path, rows=extra)
    for partition in world.partitions:
        table = draft.table(INPUT + partition.path)
        position = table.column("customer_id")
        cells = [
            [number, row[position], second[str(row[position])]]
            for number, row in enumerate(table.rows)
            if row[position] in second and rng.random() < 0.6
        ]
        if cells:
            draft.add(
                "identity drift", "replace_cells", INPUT + partition.path, column="customer_id", cells=cells
            )


def _spell(
    draft: Draft, world: Warehouse, rng: np.random.Generator, path: str, column: str, share: float
) -> None:
    """Replace a share of a column's values, at least one, by other spellings of them."""
    spellings: dict[str, list[str]] = {}
    for alias in world.aliases:
        if alias.field == column:
            spellings.setdefault(alias.value, []).append(alias.spelling)
    table = draft.table(path)
    position = table.column(column)
    able = [number for number, row in enumerate(table.rows) if row[position] in spellings]
    count = min(len(able), max(1, round(share * len(able))))
    cells = []
    for number in sorted(able[int(n)] for n in rng.choice(len(able), size=count, replace=False)):
        value = str(table.rows[number][position])
        pool = spellings[value]
        cells.append([number, value, pool[int(rng.integers(len(pool)))]])
    draft.add("categorical drift", "replace_cells", path, column=column, cells=cells)


def _blank_prices(draft: Draft, path: str, blank: set[str]) -> None:
    table = draft.table(path)
    position = table.column("unit_price")
    cells = [[number, row[position], ""] for number, row in enumerate(table.rows) if row[0] in blank]
    if cells:
        draft.add("missing values", "replace_cells", path, column="unit_price", cells=cells)


def _copies(
    draft: Draft, world: Warehouse, rng: np.random.Generator, copied: set[str], conflicting: set[str]
) -> None:
    """Insert exact copies into their own partition, and copies with another quantity into a foreign one."""
    paths = [INPUT + partition.path for partition in world.partitions]
    foreign: dict[str, list[list[str]]] = {path: [] for path in paths}
    quantity = BASE_COLUMNS.index("quantity")
    for number, path in enumerate(paths):
        for row in draft.table(path).rows:
            if row[0] in conflicting:
                there = paths[(number + 1 + int(rng.integers(len(paths) - 1))) % len(paths)]
                cells = [str(cell) for cell in row]
                cells[quantity] = str(int(cells[quantity]) + 1 + int(rng.integers(4)))
                foreign[there].append(cells)
    for path in paths:
        rows = draft.table(path).rows
        more = [list(row) for row in rows if row[0] in copied] + foreign[path]
        if more:
            extra = [[len(rows) + number, cells] for number, cells in enumerate(more)]
            draft.add("duplicates", "insert_rows", path, rows=extra)


def _drop(draft: Draft, path: str, dropped: set[str]) -> None:
    lost = [[number, list(row)] for number, row in enumerate(draft.table(path).rows) if row[0] in dropped]
    if lost:
        draft.add("missing rows", "delete_rows", path, rows=lost)


def _drift(draft: Draft, world: Warehouse, rng: np.random.Generator) -> None:
    """Tell about half of the partitions, at least one, in another layout."""
    paths = [INPUT + partition.path for partition in world.partitions]
    for path in _share(rng, paths, 0.55, 1):
        layout = world.layouts[1 + int(rng.integers(len(world.layouts) - 1))]
        if layout.dates == "DD.MM.YYYY":
            draft.add("format drift", "recode_column", path, column="date", codec="iso date -> dd.mm.yyyy")
        if layout.money == "decimal":
            draft.add("unit drift", "recode_column", path, column="unit_price", codec="cents -> decimal")
        names = dict(zip(BASE_COLUMNS, layout.columns, strict=True))
        draft.add("schema drift", "rename_columns", path, names=names)


def _stale(draft: Draft, rng: np.random.Generator) -> None:
    """Put the cached report out of date: no line keeps its quantity or its revenue."""
    path = f"{INPUT}cache/monthly_revenue.csv"
    for column in ("quantity", "revenue_cents"):
        table = draft.table(path)
        position = table.column(column)
        cells = [
            [number, row[position], str(int(str(row[position])) * int(rng.integers(101, 125)) // 100 + 1)]
            for number, row in enumerate(table.rows)
        ]
        draft.add("stale cache", "replace_cells", path, column=column, cells=cells)
