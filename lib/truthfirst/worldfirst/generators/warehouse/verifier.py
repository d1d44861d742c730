"""The strict verifier of a warehouse: every deliverable against the world, all or nothing.

What is right follows from the world and the defect plan alone, never from a solver or from public files. Tables are
compared as multisets of rows of text, so the order of rows, quoting and line ends do not matter; JSON as values, so
spaces and the order of keys do not matter, but 1.0 and true are not 1.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from typing import Any

from ...world import Defect, Files, Sealed, Verdict, Verify
from .world import Warehouse

COMPONENTS = ("profile", "dimensions", "repairs", "facts", "aggregates", "package")
_TABLES = {  # file -> (component, header)
    "profile.csv": ("profile", ["partition", "layout", "rows", "distinct_ids"]),
    "customers.csv": ("dimensions", ["customer_id", "name", "region", "segment", "joined"]),
    "products.csv": ("dimensions", ["product_id", "name", "category", "cost_cents"]),
    "repairs.csv": ("repairs", ["kind", "transaction_id"]),
    "transactions.csv": (
        "facts",
        ["transaction_id", "date", "customer_id", "product_id", "quantity", "unit_price_cents", "channel"],
    ),
    "monthly_revenue.tsv": ("aggregates", ["month", "region", "category", "quantity", "revenue_cents"]),
}
_OBJECTS = {"segment_margin.json": "aggregates", "manifest.json": "package"}


def verifier(sealed: Sealed) -> Verify:
    """Return the verifier of one world."""
    tables = _tables(sealed.world, sealed.plan)
    objects = _objects(sealed.world, tables)

    def verify(outputs: Files) -> Verdict:
        components, reasons = dict.fromkeys(COMPONENTS, True), []

        def fail(component: str, reason: str) -> None:
            components[component] = False
            reasons.append(reason)

        if foreign := sorted(
            {path.removeprefix("output/") for path in outputs} - set(_TABLES) - set(_OBJECTS)
        ):
            fail("package", f"{foreign[0]!r} is no deliverable")
        for name, (component, header) in _TABLES.items():
            if problem := _table_problem(outputs.get(f"output/{name}"), header, tables[name], name):
                fail(component, f"{name}: {problem}")
        for name, component in _OBJECTS.items():
            if problem := _object_problem(outputs.get(f"output/{name}"), objects[name]):
                fail(component, f"{name}: {problem}")
        return Verdict(components, tuple(reasons))

    return verify


# --- comparing --------------------------------------------------------------------------------------------
def _table_problem(
    data: bytes | None, header: list[str], expected: Counter[tuple[str, ...]], name: str
) -> str | None:
    """Return what is wrong with a table, or None."""
    if data is None:
        return "missing"
    try:
        text = io.StringIO(data.decode("utf-8"), newline="")
        lines = list(csv.reader(text, delimiter="\t" if name.endswith(".tsv") else ","))
    except (UnicodeDecodeError, csv.Error) as error:
        return f"not a table ({type(error).__name__})"
    if not lines or lines[0] != header:
        return "another header"
    found = Counter(map(tuple, lines[1:]))
    if found != expected:
        return f"{(expected - found).total()} rows missing, {(found - expected).total()} rows too many"
    return None


def _object_problem(data: bytes | None, expected: dict[str, Any]) -> str | None:
    """Return what is wrong with a JSON file, or None."""
    if data is None:
        return "missing"
    try:
        found = json.dumps(json.loads(data.decode("utf-8")), sort_keys=True)
    except (ValueError, TypeError, RecursionError) as error:
        return f"not JSON ({type(error).__name__})"
    return None if found == json.dumps(expected, sort_keys=True) else "other values"


# --- what is right ----------------------------------------------------------------------------------------
def _tables(world: Warehouse, plan: tuple[Defect, ...]) -> dict[str, Counter[tuple[str, ...]]]:
    regions = {customer.id: customer.region for customer in world.customers}
    categories = {product.id: product.category for product in world.products}
    valid = [sale for sale in world.sales if not sale.void]
    quantity: Counter[tuple[str, str, str]] = Counter()
    revenue: Counter[tuple[str, str, str]] = Counter()
    for sale in valid:
        key = sale.day[:7], regions[sale.customer], categories[sale.product]
        quantity[key] += sale.quantity
        revenue[key] += sale.quantity * sale.price
    profile, repairs = _damage(world, plan)
    return {
        "profile.csv": Counter(profile),
        "customers.csv": Counter((c.id, c.name, c.region, c.segment, c.joined) for c in world.customers),
        "products.csv": Counter((p.id, p.name, p.category, str(p.cost)) for p in world.products),
        "repairs.csv": Counter(repairs),
        "transactions.csv": Counter(
            (s.id, s.day, s.customer, s.product, str(s.quantity), str(s.price), s.channel) for s in valid
        ),
        "monthly_revenue.tsv": Counter((*key, str(quantity[key]), str(revenue[key])) for key in quantity),
    }


def _damage(
    world: Warehouse, plan: tuple[Defect, ...]
) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """Return the rows of profile.csv and repairs.csv: the plan followed on the identities of each partition."""
    void = {sale.id for sale in world.sales if sale.void}
    by_columns = {layout.columns: layout.name for layout in world.layouts}
    held = {p.path: [sale.id for sale in world.sales if sale.day[:7] == p.month] for p in world.partitions}
    layouts = dict.fromkeys(held, "base")
    blank: set[str] = set()
    for defect in plan:
        path = defect.path.removeprefix("input/")
        if path not in held:
            continue
        told = defect.parameters
        if defect.operator == "replace_cells" and told["column"] == "unit_price":
            blank |= {held[path][row] for row, _, _ in told["cells"]}
        elif defect.operator == "insert_rows":
            for position, cells in told["rows"]:
                held[path].insert(position, cells[0])
        elif defect.operator == "delete_rows":
            for position, _ in reversed(told["rows"]):
                del held[path][position]
        elif defect.operator == "permute_rows":
            held[path] = [held[path][position] for position in told["order"]]
        elif defect.operator == "rename_columns":
            layouts[path] = by_columns[tuple(told["names"].values())]
    profile: list[tuple[str, ...]] = [
        (path.rpartition("/")[2], layouts[path], str(len(ids)), str(len(set(ids))))
        for path, ids in held.items()
    ]
    counts = Counter(identity for ids in held.values() for identity in ids)
    repairs = [("voided", identity) for identity in sorted(void) if counts[identity]]
    repairs += [
        ("duplicate", identity) for identity, count in counts.items() if count > 1 and identity not in void
    ]
    repairs += [("restored", s.id) for s in world.sales if not counts[s.id] and not s.void]
    repairs += [("repriced", identity) for identity in blank]
    return profile, repairs


def _objects(world: Warehouse, tables: dict[str, Counter[tuple[str, ...]]]) -> dict[str, dict[str, Any]]:
    segments = {customer.id: customer.segment for customer in world.customers}
    costs = {product.id: product.cost for product in world.products}
    margins: dict[str, dict[str, int]] = {}
    for sale in world.sales:
        if not sale.void:
            entry = margins.setdefault(
                segments[sale.customer], dict.fromkeys(("revenue_cents", "cost_cents", "margin_cents"), 0)
            )
            entry["revenue_cents"] += sale.quantity * sale.price
            entry["cost_cents"] += sale.quantity * costs[sale.product]
            entry["margin_cents"] += sale.quantity * (sale.price - costs[sale.product])
    manifest = {
        "rows": {name: rows.total() for name, rows in tables.items()},
        "transactions": tables["transactions.csv"].total(),
        "revenue_cents": sum(entry["revenue_cents"] for entry in margins.values()),
    }
    return {"segment_margin.json": margins, "manifest.json": manifest}
