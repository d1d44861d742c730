"""The public contract of a warehouse: what an agent reads, made from public files only."""

from __future__ import annotations

from ...world import Deliverable, Files

DELIVERABLES = (
    Deliverable(
        "output/profile.csv",
        "csv",
        ("partition", "layout", "rows", "distinct_ids"),
        "one row a sales file as delivered: file name without folder, layout name, data rows, different ids; by name",
    ),
    Deliverable(
        "output/customers.csv",
        "csv",
        ("customer_id", "name", "region", "segment", "joined"),
        "one row a real customer, by id",
    ),
    Deliverable(
        "output/products.csv",
        "csv",
        ("product_id", "name", "category", "cost_cents"),
        "one row a product, by id",
    ),
    Deliverable(
        "output/repairs.csv",
        "csv",
        ("kind", "transaction_id"),
        "one row for each of: duplicate, repriced, restored, voided (rule 5); by kind, then id",
    ),
    Deliverable(
        "output/transactions.csv",
        "csv",
        ("transaction_id", "date", "customer_id", "product_id", "quantity", "unit_price_cents", "channel"),
        "one row a valid sale, by id",
    ),
    Deliverable(
        "output/monthly_revenue.tsv",
        "tsv",
        ("month", "region", "category", "quantity", "revenue_cents"),
        "sums over valid sales, one row a combination that occurs, by the first three columns",
    ),
    Deliverable(
        "output/segment_margin.json",
        "json",
        (),
        "segment -> object with revenue_cents, cost_cents (quantity times product cost) and margin_cents",
    ),
    Deliverable(
        "output/manifest.json",
        "json",
        ("rows", "transactions", "revenue_cents"),
        "rows: name of each of the six tables above -> data rows; count and revenue of all valid sales",
    ),
)

_TEXT = """\
The branch warehouse {store} must reconcile its sales of {months} months, {first} to {last}. Everything lies under
input/. Write the deliverables below to output/ and then submit. Only output/ is graded, and it must hold exactly these
files.

Inputs
- customers.csv, contacts.json: customers; what the contact system once noted of some of them (it may be out of date)
- products.tsv, prices.csv: products with cost; list prices, each valid from a day until the product's next entry
- codes.json: other spellings of regions, segments, categories and channels -> the proper value
- layouts.json: layouts of sales files: column names, date format, unit of unit_price (cents, or decimal: two places)
- sales/: one file a month (CSV, TSV or JSON), in any of the layouts
- ledger.sqlite: postings (every web sale, prices in cents) and voids (ids of sales that were taken back)
- cache/: a report of an earlier run; not an authority for anything

Deliverables
{deliverables}

Rules, in order
1. Bring spellings to the proper value by codes.json.
2. Customers with equal name and joined date are one: keep the smallest id, and put it wherever another is used. A
   region or segment that customers.csv leaves blank comes from contacts.json; otherwise customers.csv prevails.
3. A sale belongs to the month of its date. Of several copies of an id, the one in its own month's file stands.
4. Voided sales count nowhere but in profile.csv (raw files) and under voided. A web sale that is posted, not voided
   and in no file is restored from the ledger. A blank unit price is the list price valid on the day of the sale.
5. In repairs.csv, voided: ids in voids that occur in a file. Of the other sales, duplicate: ids that occur more than
   once over all files; repriced: ids whose standing copy has a blank price; restored: ids taken from the ledger.

Formats: UTF-8, a header line, comma or tab, no spaces added, line feed at line ends; dates YYYY-MM-DD, months YYYY-MM,
money in whole cents, integers plain. JSON: integers only, keys sorted, indented by one space, line feed at the end.
Tools: bash, coreutils, python3 with its standard library (csv, json, sqlite3). No network.
"""


def prompt(files: Files) -> str:
    """Return the task text; `files` is the public tree."""
    names = sorted(path.rpartition("/")[2] for path in files if path.startswith("input/sales/"))
    store, months = names[0][1:5], [name.rpartition(".")[0][6:] for name in names]
    lines = []
    for one in DELIVERABLES:
        told = f" ({', '.join(one.columns)})" if one.columns else ""
        lines.append(f"- {one.path.removeprefix('output/')}{told}: {one.rule}")
    return _TEXT.format(
        store=store, months=len(months), first=months[0], last=months[-1], deliverables="\n".join(lines)
    )
