"""The alternative solver: set-wise in pandas, written apart from the reference and from the prompt alone."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Mapping
from pathlib import PurePosixPath

import pandas as pd

from ...world import Files

_SALES = "input/sales/"


def solve(files: Files) -> dict[str, bytes]:
    """Return every file under output/."""
    codes = json.loads(files["input/codes.json"])
    postings, voids = _ledger(files["input/ledger.sqlite"])
    raw = _raw_sales(files, json.loads(files["input/layouts.json"]))
    customers, merged = _customers(files, codes)
    products = _frame(files, "input/products.tsv").assign(
        category=lambda frame: frame["category"].replace(codes["category"])
    )
    standing = raw[raw["date"].str[:7] == raw["month"]].drop_duplicates("transaction_id")
    repairs = _repairs(raw, standing, postings, voids)
    facts = _facts(files, standing, postings, voids, repairs, merged, codes)
    monthly, margins = _sums(facts, customers, products)
    tables = {
        "profile.csv": _profile(raw),
        "customers.csv": customers.sort_values("customer_id"),
        "products.csv": products.sort_values("product_id"),
        "repairs.csv": repairs,
        "transactions.csv": facts,
        "monthly_revenue.tsv": monthly,
    }
    manifest = {
        "revenue_cents": int((facts["quantity"] * facts["unit_price_cents"]).sum()),
        "rows": {name: len(table) for name, table in sorted(tables.items())},
        "transactions": len(facts),
    }
    written = {f"output/{name}": _text(name, table) for name, table in tables.items()}
    written["output/segment_margin.json"] = (json.dumps(margins, indent=1) + "\n").encode()
    written["output/manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    return written


def _frame(files: Files, path: str) -> pd.DataFrame:
    """Return a file as a frame of strings; blanks stay blanks."""
    if path.endswith(".json"):
        return pd.DataFrame(json.loads(files[path]), dtype=str)
    separator = "\t" if path.endswith(".tsv") else ","
    return pd.read_csv(
        io.BytesIO(files[path]), sep=separator, dtype=str, keep_default_na=False, na_filter=False
    )


def _text(name: str, table: pd.DataFrame) -> bytes:
    separator = "\t" if name.endswith(".tsv") else ","
    return table.to_csv(index=False, sep=separator, lineterminator="\n").encode()


def _ledger(data: bytes) -> tuple[pd.DataFrame, set[str]]:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    postings = pd.read_sql("SELECT * FROM postings", connection)
    voids = pd.read_sql("SELECT * FROM voids", connection)
    connection.close()
    return postings, set(voids["transaction_id"])


def _raw_sales(files: Files, layouts: Mapping[str, Mapping[str, object]]) -> pd.DataFrame:
    """Return all rows of all sales files under the base names, with the columns partition, month and layout."""
    known = {}
    for name, layout in layouts.items():
        columns = layout["columns"]
        assert isinstance(columns, dict)
        known[frozenset(columns.values())] = (
            name,
            {told: proper for proper, told in columns.items()},
            layout,
        )
    parts = []
    for path in filter(lambda path: path.startswith(_SALES), files):
        frame = _frame(files, path)
        name, proper, layout = known[frozenset(frame.columns)]
        frame = frame.rename(columns=proper)
        if layout["dates"] == "DD.MM.YYYY":
            frame["date"] = pd.to_datetime(frame["date"], format="%d.%m.%Y").dt.strftime("%Y-%m-%d")
        if layout["unit_price"] == "decimal":
            frame["unit_price"] = frame["unit_price"].str.replace(r"^0*(\d+)\.(\d\d)$", r"\1\2", regex=True)
        where = PurePosixPath(path)
        parts.append(frame.assign(partition=where.name, month=where.stem[-7:], layout=name))
    return pd.concat(parts, ignore_index=True).sort_values("partition", kind="stable", ignore_index=True)


def _profile(raw: pd.DataFrame) -> pd.DataFrame:
    grouped = raw.groupby(["partition", "layout"], sort=True)["transaction_id"]
    return grouped.agg(rows="size", distinct_ids="nunique").reset_index()


def _customers(files: Files, codes: Mapping[str, Mapping[str, str]]) -> tuple[pd.DataFrame, pd.Series]:
    """Return the real customers, and for every identity the one that is kept."""
    frame = _frame(files, "input/customers.csv")
    frame["kept"] = frame.groupby(["name", "joined"])["customer_id"].transform("min")
    merged = frame.set_index("customer_id")["kept"]
    frame = frame[frame["customer_id"] == frame["kept"]].drop(columns="kept").set_index("customer_id")
    contacts = _frame(files, "input/contacts.json").set_index("customer_id").reindex(frame.index)
    for field in ("region", "segment"):
        frame[field] = frame[field].mask(frame[field] == "", contacts[field]).replace(codes[field])
    return frame.reset_index()[["customer_id", "name", "region", "segment", "joined"]], merged


def _repairs(
    raw: pd.DataFrame, standing: pd.DataFrame, postings: pd.DataFrame, voids: set[str]
) -> pd.DataFrame:
    present = set(raw["transaction_id"])
    valid = ~raw["transaction_id"].isin(voids)
    kinds = {
        "duplicate": set(raw.loc[valid & raw["transaction_id"].duplicated(), "transaction_id"]),
        "repriced": set(standing.loc[standing["unit_price"] == "", "transaction_id"]) - voids,
        "restored": set(postings["transaction_id"]) - present - voids,
        "voided": present & voids,
    }
    pairs = [(kind, identity) for kind, found in kinds.items() for identity in found]
    frame = pd.DataFrame(pairs, columns=["kind", "transaction_id"])
    return frame.sort_values(["kind", "transaction_id"], ignore_index=True)


def _facts(
    files: Files,
    standing: pd.DataFrame,
    postings: pd.DataFrame,
    voids: set[str],
    repairs: pd.DataFrame,
    merged: pd.Series,
    codes: Mapping[str, Mapping[str, str]],
) -> pd.DataFrame:
    restored = repairs.loc[repairs["kind"] == "restored", "transaction_id"]
    posted = postings[postings["transaction_id"].isin(restored)].rename(columns={"posted_on": "date"})
    priced = _priced(files, standing[~standing["transaction_id"].isin(voids)])
    facts = pd.concat([priced, posted], ignore_index=True)
    facts["customer_id"] = facts["customer_id"].map(merged)
    facts["channel"] = facts["channel"].replace(codes["channel"])
    facts = facts.astype({"quantity": "int64", "unit_price_cents": "int64"})
    columns = [
        "transaction_id",
        "date",
        "customer_id",
        "product_id",
        "quantity",
        "unit_price_cents",
        "channel",
    ]
    return facts.sort_values("transaction_id", ignore_index=True)[columns]


def _priced(files: Files, sales: pd.DataFrame) -> pd.DataFrame:
    """Return sales with unit_price_cents; a blank takes the latest list price not after the day (an as-of join)."""
    prices = _frame(files, "input/prices.csv")
    prices = prices.assign(day=pd.to_datetime(prices["valid_from"]), listed=prices["price_cents"])
    dated = sales.assign(day=pd.to_datetime(sales["date"])).sort_values("day", kind="stable")
    joined = pd.merge_asof(
        dated, prices.sort_values("day")[["day", "product_id", "listed"]], on="day", by="product_id"
    )
    return joined.assign(
        unit_price_cents=joined["unit_price"].mask(joined["unit_price"] == "", joined["listed"])
    )


def _sums(
    facts: pd.DataFrame, customers: pd.DataFrame, products: pd.DataFrame
) -> tuple[pd.DataFrame, dict[str, dict[str, int]]]:
    wide = facts.merge(customers[["customer_id", "region", "segment"]]).merge(
        products[["product_id", "category", "cost_cents"]]
    )
    wide["month"] = wide["date"].str[:7]
    wide["revenue_cents"] = wide["quantity"] * wide["unit_price_cents"]
    wide["cost"] = wide["quantity"] * wide["cost_cents"].astype("int64")
    cells = wide.groupby(["month", "region", "category"], as_index=False, sort=True)
    monthly = cells[["quantity", "revenue_cents"]].sum()
    margins = {}
    for segment, row in wide.groupby("segment", sort=True)[["revenue_cents", "cost"]].sum().iterrows():
        revenue, cost = int(row["revenue_cents"]), int(row["cost"])
        margins[str(segment)] = {"cost_cents": cost, "margin_cents": revenue - cost, "revenue_cents": revenue}
    return monthly, margins
