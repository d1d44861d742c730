"""The reference solver: stage by stage, standard library only, nothing of ours.

As a program in a workspace, `python3 reference.py [STAGE ...]` reads input/ and output/ there and writes what the
stages give (all of them where none is named). Each stage reads the files of the stages before it.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Files = Mapping[str, bytes]
STAGES = (
    "profile-sources",
    "normalize-dimensions",
    "reconcile-facts",
    "load-facts",
    "aggregate-validate",
    "package-sidecars",
)
FIELDS = ("transaction_id", "date", "customer_id", "product_id", "quantity", "unit_price", "channel")
FACTS = (*FIELDS[:5], "unit_price_cents", "channel")


# --- reading and writing ----------------------------------------------------------------------------------
def records(files: Files, path: str) -> list[dict[str, str]]:
    """Return the records of a CSV, TSV or JSON file as dictionaries."""
    text = files[path].decode("utf-8")
    if path.endswith(".json"):
        read: list[dict[str, str]] = json.loads(text)
        return read
    return list(csv.DictReader(io.StringIO(text), delimiter="\t" if path.endswith(".tsv") else ","))


def delimited(columns: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ",") -> bytes:
    """Return a table as bytes."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue().encode("utf-8")


def as_json(value: object) -> bytes:
    """Return a JSON file as bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("utf-8")


def sales_files(files: Files) -> Iterator[tuple[str, str, dict[str, Any], list[dict[str, str]]]]:
    """Yield (path, layout name, layout, records) of every sales file, by name."""
    layouts = json.loads(files["input/layouts.json"])
    for path in sorted(path for path in files if path.startswith("input/sales/")):
        rows = records(files, path)
        for name, layout in layouts.items():
            if set(layout["columns"].values()) == set(rows[0]):
                yield path, name, layout, rows


def ledger(files: Files) -> tuple[dict[str, tuple[Any, ...]], set[str]]:
    """Return (postings by id, void ids)."""
    base = sqlite3.connect(":memory:")
    base.deserialize(files["input/ledger.sqlite"])
    postings = {row[0]: row for row in base.execute("SELECT * FROM postings")}
    voids = {row[0] for row in base.execute("SELECT transaction_id FROM voids")}
    base.close()
    return postings, voids


def spelled(files: Files, field: str, value: str) -> str:
    """Return the proper value of a spelling."""
    codes: dict[str, dict[str, str]] = json.loads(files["input/codes.json"])
    return codes[field].get(value, value)


# --- customers --------------------------------------------------------------------------------------------
def kept_identities(files: Files) -> dict[str, str]:
    """Return for each customer id the id that is kept."""
    by_person = defaultdict(list)
    for row in records(files, "input/customers.csv"):
        by_person[row["name"], row["joined"]].append(row["customer_id"])
    return {identity: min(group) for group in by_person.values() for identity in group}


# --- sales ------------------------------------------------------------------------------------------------
def standing_sales(files: Files) -> tuple[dict[str, dict[str, str]], Counter[str]]:
    """Return (standing copies by id in base columns, how often each id occurs over all files)."""
    copies: dict[str, dict[str, str]] = {}
    counts: Counter[str] = Counter()
    for path, _, layout, rows in sales_files(files):
        month = path.rpartition(".")[0][-7:]
        for row in rows:
            sale = {field: row[layout["columns"][field]] for field in FIELDS}
            if layout["dates"] == "DD.MM.YYYY":
                day, of_month, year = sale["date"].split(".")
                sale["date"] = f"{year}-{of_month}-{day}"
            if layout["unit_price"] == "decimal" and sale["unit_price"]:
                whole, _, part = sale["unit_price"].partition(".")
                sale["unit_price"] = str(100 * int(whole) + int(part))
            counts[sale["transaction_id"]] += 1
            if sale["date"][:7] == month:
                copies.setdefault(sale["transaction_id"], sale)
    return copies, counts


def list_price(files: Files) -> Callable[[str, str], int]:
    """Return a function (product, day) -> list price in cents."""
    entries = defaultdict(list)
    for row in records(files, "input/prices.csv"):
        entries[row["product_id"]].append((row["valid_from"], int(row["price_cents"])))

    def price(product: str, day: str) -> int:
        return max(entry for entry in entries[product] if entry[0] <= day)[1]

    return price


# --- stages -----------------------------------------------------------------------------------------------
def profile_sources(files: Files) -> dict[str, bytes]:
    rows = []
    for path, name, layout, found in sales_files(files):
        key = layout["columns"]["transaction_id"]
        rows.append((path.rpartition("/")[2], name, len(found), len({row[key] for row in found})))
    return {"output/profile.csv": delimited(("partition", "layout", "rows", "distinct_ids"), rows)}


def normalize_dimensions(files: Files) -> dict[str, bytes]:
    kept = kept_identities(files)
    contacts = {row["customer_id"]: row for row in records(files, "input/contacts.json")}
    customers = []
    for row in records(files, "input/customers.csv"):
        if kept[row["customer_id"]] == row["customer_id"]:
            noted = contacts.get(row["customer_id"], {})
            region, segment = (spelled(files, key, row[key] or noted[key]) for key in ("region", "segment"))
            customers.append((row["customer_id"], row["name"], region, segment, row["joined"]))
    products = [
        (row["product_id"], row["name"], spelled(files, "category", row["category"]), row["cost_cents"])
        for row in records(files, "input/products.tsv")
    ]
    return {
        "output/customers.csv": delimited(
            ("customer_id", "name", "region", "segment", "joined"), sorted(customers)
        ),
        "output/products.csv": delimited(("product_id", "name", "category", "cost_cents"), sorted(products)),
    }


def reconcile_facts(files: Files) -> dict[str, bytes]:
    copies, counts = standing_sales(files)
    postings, voids = ledger(files)
    repairs = [("voided", identity) for identity in counts if identity in voids]
    repairs += [("duplicate", identity) for identity, n in counts.items() if n > 1 and identity not in voids]
    repairs += [("repriced", i) for i, sale in copies.items() if not sale["unit_price"] and i not in voids]
    repairs += [
        ("restored", identity) for identity in postings if identity not in counts and identity not in voids
    ]
    return {"output/repairs.csv": delimited(("kind", "transaction_id"), sorted(repairs))}


def load_facts(files: Files) -> dict[str, bytes]:
    copies, _ = standing_sales(files)
    postings, voids = ledger(files)
    kept, price = kept_identities(files), list_price(files)
    facts = [
        (
            sale["transaction_id"],
            sale["date"],
            kept[sale["customer_id"]],
            sale["product_id"],
            int(sale["quantity"]),
            int(sale["unit_price"] or price(sale["product_id"], sale["date"])),
            spelled(files, "channel", sale["channel"]),
        )
        for sale in copies.values()
        if sale["transaction_id"] not in voids
    ]
    for repair in records(files, "output/repairs.csv"):
        if repair["kind"] == "restored":
            identity, day, customer, *rest = postings[repair["transaction_id"]]
            facts.append((identity, day, kept[customer], *rest))
    return {"output/transactions.csv": delimited(FACTS, sorted(facts))}


def aggregate_validate(files: Files) -> dict[str, bytes]:
    customers = {row["customer_id"]: row for row in records(files, "output/customers.csv")}
    products = {row["product_id"]: row for row in records(files, "output/products.csv")}
    monthly: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    segments: dict[str, dict[str, int]] = defaultdict(
        lambda: {"revenue_cents": 0, "cost_cents": 0, "margin_cents": 0}
    )
    for sale in records(files, "output/transactions.csv"):
        customer, product = customers[sale["customer_id"]], products[sale["product_id"]]
        quantity = int(sale["quantity"])
        revenue, cost = quantity * int(sale["unit_price_cents"]), quantity * int(product["cost_cents"])
        cell = monthly[sale["date"][:7], customer["region"], product["category"]]
        cell[0] += quantity
        cell[1] += revenue
        segment = segments[customer["segment"]]
        segment["revenue_cents"] += revenue
        segment["cost_cents"] += cost
        segment["margin_cents"] += revenue - cost
    rows = [(*key, *cell) for key, cell in sorted(monthly.items())]
    columns = ("month", "region", "category", "quantity", "revenue_cents")
    return {
        "output/monthly_revenue.tsv": delimited(columns, rows, "\t"),
        "output/segment_margin.json": as_json(segments),
    }


def package_sidecars(files: Files) -> dict[str, bytes]:
    names = (
        "profile.csv",
        "customers.csv",
        "products.csv",
        "repairs.csv",
        "transactions.csv",
        "monthly_revenue.tsv",
    )
    facts = records(files, "output/transactions.csv")
    manifest = {
        "rows": {name: len(records(files, f"output/{name}")) for name in names},
        "transactions": len(facts),
        "revenue_cents": sum(int(sale["quantity"]) * int(sale["unit_price_cents"]) for sale in facts),
    }
    return {"output/manifest.json": as_json(manifest)}


def run_stage(name: str, files: Files) -> dict[str, bytes]:
    """Return the files that a stage writes; `files` holds input/ and the output of the stages before it."""
    return {
        "profile-sources": profile_sources,
        "normalize-dimensions": normalize_dimensions,
        "reconcile-facts": reconcile_facts,
        "load-facts": load_facts,
        "aggregate-validate": aggregate_validate,
        "package-sidecars": package_sidecars,
    }[name](files)


def solve(files: Files) -> dict[str, bytes]:
    """Return every file under output/."""
    made: dict[str, bytes] = {}
    for name in STAGES:
        made |= run_stage(name, {**files, **made})
    return made


def main(names: list[str]) -> None:
    root = pathlib.Path()
    for name in names or STAGES:
        files = {path.as_posix(): path.read_bytes() for path in root.glob("*put/**/*") if path.is_file()}
        for path, data in run_stage(name, files).items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
