"""The progress of a warehouse: eleven nodes, each graded against the world in exact fractions.

A table is graded by rows: c = max(0, right - wrong) / n, where a row is right when it is an expected one that was not
yet counted, and wrong when it is anything else; so c = 1 exactly when the rows are the expected ones, and spraying
guesses earns nothing. In the dimensions, rows that need no repair are not counted as right (copying the input is no
work) but are missed when they are not there.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from ...world import Files, Grade, Node, Sealed
from .world import Sale, Warehouse

NODES = (
    Node("profile", 2, "profile-sources"),
    Node("customers", 3, "normalize-dimensions", ("profile",)),
    Node("products", 2, "normalize-dimensions", ("profile",)),
    Node("duplicates", 2, "reconcile-facts", ("profile",)),
    Node("restored", 2, "reconcile-facts", ("profile",)),
    Node("repriced", 2, "reconcile-facts", ("profile",)),
    Node("voided", 1, "reconcile-facts", ("profile",)),
    Node("facts", 4, "load-facts", ("customers", "products", "duplicates", "restored", "repriced", "voided")),
    Node("monthly", 3, "aggregate-validate", ("facts",)),
    Node("margins", 2, "aggregate-validate", ("facts",)),
    Node("manifest", 1, "package-sidecars", ("monthly", "margins")),
)
Row = tuple[str, ...]
_KINDS = {"duplicates": "duplicate", "restored": "restored", "repriced": "repriced", "voided": "voided"}
_HEADERS = {
    "profile.csv": "partition,layout,rows,distinct_ids",
    "customers.csv": "customer_id,name,region,segment,joined",
    "products.csv": "product_id,name,category,cost_cents",
    "repairs.csv": "kind,transaction_id",
    "transactions.csv": "transaction_id,date,customer_id,product_id,quantity,unit_price_cents,channel",
    "monthly_revenue.tsv": "month,region,category,quantity,revenue_cents",
}


def scorer(sealed: Sealed) -> Grade:
    """Return the scorer of one world."""
    truth = _Truth(sealed)

    def grade(outputs: Files) -> dict[str, Fraction]:
        tables = {
            name: _read(outputs.get(f"output/{name}"), name, header) for name, header in _HEADERS.items()
        }
        repairs = tables["repairs.csv"]
        scores = {
            "profile": _rows_score(tables["profile.csv"], truth.profile),
            "customers": _rows_score(tables["customers.csv"], truth.customers, truth.customers_as_delivered),
            "products": _rows_score(tables["products.csv"], truth.products, truth.products_as_delivered),
            "facts": _rows_score(tables["transactions.csv"], truth.facts),
            "monthly": _rows_score(tables["monthly_revenue.tsv"], truth.monthly),
            "margins": _margins_score(_load(outputs.get("output/segment_margin.json")), truth.margins),
            "manifest": _manifest_score(_load(outputs.get("output/manifest.json")), truth.manifest, outputs),
        }
        for node, kind in _KINDS.items():
            scores[node] = _repairs_score(repairs, kind, truth.repairs[kind])
        return scores

    return grade


# --- reading what an agent wrote: None for anything that cannot be read -------------------------------------
def _read(data: bytes | None, name: str, header: str) -> list[Row] | None:
    delimiter = "\t" if name.endswith(".tsv") else ","
    try:
        text = io.StringIO((data or b"").decode(), newline=None)  # any line end counts as one
        first, *rows = csv.reader(text, delimiter=delimiter)
    except (ValueError, csv.Error):  # also: not UTF-8, and no line at all
        return None
    return [tuple(row) for row in rows] if first == header.split(",") else None


def _load(data: bytes | None) -> Any:
    try:
        return json.loads((data or b"").decode())
    except (ValueError, RecursionError):
        return None


# --- grading ------------------------------------------------------------------------------------------------
def _share(right: int, wrong: int, total: int) -> Fraction:
    return Fraction(max(0, right - wrong), total)


def _rows_score(
    rows: list[Row] | None, expected: frozenset[Row], free: frozenset[Row] = frozenset()
) -> Fraction:
    """Grade a table; `free` holds expected rows that were delivered as they should be."""
    if rows is None:
        return Fraction(0)
    found = set(rows)
    right = len(found & (expected - free))
    wrong = len(rows) - len(found & expected) + len((expected & free) - found)
    return _share(right, wrong, len(expected - free))


def _repairs_score(rows: list[Row] | None, kind: str, expected: frozenset[str]) -> Fraction:
    """Grade one kind of repair; rows that are of no kind or stand there twice count against every kind."""
    if rows is None:
        return Fraction(0)
    shaped = [row for row in rows if len(row) == 2 and row[0] in _KINDS.values()]
    stray = len(rows) - len(set(shaped))
    named = {row[1] for row in shaped if row[0] == kind}
    return _share(len(named & expected), len(named - expected) + stray, len(expected))


def _whole(value: Any, expected: int) -> bool:
    return type(value) is int and value == expected


def _margins_score(value: Any, expected: Mapping[str, Mapping[str, int]]) -> Fraction:
    if not isinstance(value, dict):
        return Fraction(0)
    right = sum(_same_entry(value.get(segment), entry) for segment, entry in expected.items())
    return _share(right, len(value.keys() - expected.keys()), len(expected))


def _same_entry(value: Any, expected: Mapping[str, int]) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == expected.keys()
        and all(_whole(value[key], number) for key, number in expected.items())
    )


def _manifest_score(value: Any, expected: Mapping[str, Any], outputs: Files) -> Fraction:
    """Grade the counts and totals; a foreign key or a foreign file in output/ spoils the package."""
    known = {*_HEADERS, "segment_margin.json", "manifest.json"}
    if any(path.removeprefix("output/") not in known for path in outputs):
        return Fraction(0)
    rows = value.get("rows") if isinstance(value, dict) else None
    if not isinstance(rows, dict) or value.keys() - expected.keys() or rows.keys() - expected["rows"].keys():
        return Fraction(0)
    right = sum(_whole(rows.get(name), count) for name, count in expected["rows"].items())
    right += sum(_whole(value.get(key), expected[key]) for key in ("transactions", "revenue_cents"))
    return _share(right, 0, len(expected["rows"]) + 2)


# --- the truth ----------------------------------------------------------------------------------------------
class _Truth:
    """What each node is graded against, from the world and the plan."""

    def __init__(self, sealed: Sealed) -> None:
        world: Warehouse = sealed.world
        self.world, self.plan = world, sealed.plan
        valid = [sale for sale in world.sales if not sale.void]
        self.customers = frozenset((c.id, c.name, c.region, c.segment, c.joined) for c in world.customers)
        self.products = frozenset((p.id, p.name, p.category, str(p.cost)) for p in world.products)
        self.customers_as_delivered = self._untouched("input/customers.csv", self.customers)
        self.products_as_delivered = self._untouched("input/products.tsv", self.products)
        self.facts = frozenset(
            (s.id, s.day, s.customer, s.product, f"{s.quantity}", f"{s.price}", s.channel) for s in valid
        )
        self.repairs, self.profile = self._repairs(), self._profile()
        region = {customer.id: customer.region for customer in world.customers}
        segment = {customer.id: customer.segment for customer in world.customers}
        product = {product.id: product for product in world.products}

        def sums(key: Callable[[Sale], Any]) -> dict[Any, list[int]]:
            totals: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
            for sale in valid:
                cost = product[sale.product].cost
                for place, amount in enumerate((1, sale.price, cost)):
                    totals[key(sale)][place] += sale.quantity * amount
            return totals

        monthly = sums(lambda sale: (sale.day[:7], region[sale.customer], product[sale.product].category))
        self.monthly = frozenset((*key, f"{total[0]}", f"{total[1]}") for key, total in monthly.items())
        self.margins = {
            name: {"revenue_cents": revenue, "cost_cents": cost, "margin_cents": revenue - cost}
            for name, (_, revenue, cost) in sums(lambda sale: segment[sale.customer]).items()
        }
        self.manifest = {
            "rows": {
                "profile.csv": len(self.profile),
                "customers.csv": len(self.customers),
                "products.csv": len(self.products),
                "repairs.csv": sum(map(len, self.repairs.values())),
                "transactions.csv": len(self.facts),
                "monthly_revenue.tsv": len(self.monthly),
            },
            "transactions": len(valid),
            "revenue_cents": sum(sale.quantity * sale.price for sale in valid),
        }

    def _cells(self, kind: str, path: str) -> Iterable[tuple[str, int]]:
        """Yield (column, row) of every replaced cell of a file, rows as they stood when it was replaced."""
        for defect in self.plan:
            if defect.kind == kind and defect.path == path and defect.operator == "replace_cells":
                for row, _, _ in defect.parameters["cells"]:
                    yield defect.parameters["column"], row

    def _inserted(self, kind: str, operator: str) -> list[tuple[str, str]]:
        """Return (path, transaction) of every row that was inserted into or deleted from a sales file."""
        return [
            (defect.path.removeprefix("input/"), cells[0])
            for defect in self.plan
            if defect.kind == kind and defect.operator == operator
            for _, cells in defect.parameters["rows"]
        ]

    def _untouched(self, path: str, expected: frozenset[Row]) -> frozenset[Row]:
        """Return the dimension rows that were delivered as they should be; rows are damaged in order of identity."""
        touched = {
            row for kind in ("missing values", "categorical drift") for _, row in self._cells(kind, path)
        }
        return frozenset(row for number, row in enumerate(sorted(expected)) if number not in touched)

    def _repairs(self) -> dict[str, frozenset[str]]:
        void = {sale.id for sale in self.world.sales if sale.void}
        lost = {identity for _, identity in self._inserted("missing rows", "delete_rows")}
        blank = set()
        for partition in self.world.partitions:
            sales = [sale.id for sale in self.world.sales if sale.day.startswith(partition.month)]
            blank |= {sales[row] for column, row in self._cells("missing values", f"input/{partition.path}")}
        return {
            "duplicate": frozenset(identity for _, identity in self._inserted("duplicates", "insert_rows"))
            - void,
            "restored": frozenset(lost - void),
            "repriced": frozenset(blank),
            "voided": frozenset(void - lost),
        }

    def _profile(self) -> frozenset[Row]:
        more, fewer = (
            self._inserted("duplicates", "insert_rows"),
            self._inserted("missing rows", "delete_rows"),
        )
        names = {
            defect.path.removeprefix("input/"): defect.parameters["names"]["date"]
            for defect in self.plan
            if defect.kind == "schema drift"
        }
        by_date_column = {layout.columns[1]: layout.name for layout in self.world.layouts}
        rows = []
        for month, path in ((partition.month, partition.path) for partition in self.world.partitions):
            own = {sale.id for sale in self.world.sales if sale.day.startswith(month)}
            added = [identity for where, identity in more if where == path]
            lost = [identity for where, identity in fewer if where == path]
            size = len(own) + len(added) - len(lost)
            distinct = len((own | set(added)) - set(lost))
            layout = by_date_column[names.get(path, "date")]
            rows.append((path.rpartition("/")[2], layout, f"{size}", f"{distinct}"))
        return frozenset(rows)
