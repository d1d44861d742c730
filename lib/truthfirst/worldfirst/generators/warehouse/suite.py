"""The hidden suite of a warehouse: what must cost each component, and plausible answers that must fail."""

from __future__ import annotations

from ...tables import Table, decode, encode
from ...world import INPUT, OUTPUT, Files, Sealed
from .world import Warehouse


def causes(outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return for each component the outputs with its cause spoilt."""
    return {
        "profile": _edit(outputs, "profile.csv", "rows"),
        "dimensions": _edit(outputs, "customers.csv", "segment"),
        "repairs": _edit(outputs, "repairs.csv", "transaction_id"),
        "facts": _edit(outputs, "transactions.csv", "unit_price_cents"),
        "aggregates": _edit(outputs, "monthly_revenue.tsv", "revenue_cents"),
        "package": {**outputs, f"{OUTPUT}notes.txt": b"done\n"},
    }


def _edit(outputs: Files, name: str, column: str) -> dict[str, bytes]:
    """Return the outputs with the last cell of a column changed."""
    path = OUTPUT + name
    table = decode(outputs[path], path)
    position = table.column(column)
    last = list(table.rows[-1])
    last[position] = f"{last[position]}9"
    return {**outputs, path: encode(Table(table.columns, (*table.rows[:-1], tuple(last))), path)}


def counterfactuals(sealed: Sealed, files: Files, outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return answers of somebody who skipped one rule; each must fail."""
    world: Warehouse = sealed.world
    facts = decode(outputs[f"{OUTPUT}transactions.csv"], "transactions.csv")
    repairs = decode(outputs[f"{OUTPUT}repairs.csv"], "repairs.csv").rows
    kind = {str(identity): str(name) for name, identity in repairs}
    void = {sale.id: sale for sale in world.sales if sale.void}

    def with_facts(rows: list[tuple[object, ...]]) -> dict[str, bytes]:
        table = Table(facts.columns, tuple(tuple(map(str, row)) for row in rows))
        return {**outputs, f"{OUTPUT}transactions.csv": encode(table, "transactions.csv")}

    rows: list[tuple[object, ...]] = list(facts.rows)
    latest = {price.product: price.cents for price in world.prices}
    stale = decode(files[f"{INPUT}cache/monthly_revenue.csv"], "monthly_revenue.csv")
    customers = decode(outputs[f"{OUTPUT}customers.csv"], "customers.csv")
    noted = {contact.customer: contact.region for contact in world.contacts}
    trusting = [(row[0], row[1], noted.get(str(row[0]), row[2]), *row[3:]) for row in customers.rows]
    found = {
        "stale cache": {**outputs, f"{OUTPUT}monthly_revenue.tsv": encode(stale, "monthly_revenue.tsv")},
        "duplicates counted": with_facts(
            rows + [row for row in rows if kind.get(str(row[0])) == "duplicate"]
        ),
        "voids kept": with_facts(
            rows
            + [(s.id, s.day, s.customer, s.product, s.quantity, s.price, s.channel) for s in void.values()]
        ),
        "lost sales not restored": with_facts([row for row in rows if kind.get(str(row[0])) != "restored"]),
        "blank prices at zero": with_facts(
            [(*row[:5], 0, row[6]) if kind.get(str(row[0])) == "repriced" else row for row in rows]
        ),
        "latest price for all": with_facts([(*row[:5], latest[str(row[3])], row[6]) for row in rows]),
        "contacts before customers": {
            **outputs,
            f"{OUTPUT}customers.csv": encode(Table(customers.columns, tuple(trusting)), "customers.csv"),
        },
        "voids in manifest only": {
            **outputs,
            f"{OUTPUT}manifest.json": b'{"transactions": %d}' % len(world.sales),
        },
    }
    return {name: changed for name, changed in found.items() if changed != outputs}
