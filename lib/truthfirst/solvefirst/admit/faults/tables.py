"""Faults of the database: its public tables, its references, and the records that it keeps of an episode."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from ...environment import Environment
from ...families.base import Key, Theta
from ...realize import database
from ...realize.database import Ledger, Table
from .base import Fault, NotApplicable, Patch, Patches, around, listed_in

FAULTS: list[Fault] = []
fault = listed_in(FAULTS)


def _tables(environment: Environment) -> list[Table]:
    return database.public_tables(environment.family, environment.theta, environment.spec)


def _with_rows(number: int, change: Any) -> Patch:
    """Change the rows of one public table."""

    def public_tables(original: Any, *args: Any) -> list[Table]:
        tables = original(*args)
        tables[number] = dataclasses.replace(tables[number], rows=tuple(change(list(tables[number].rows))))
        return tables

    return around(database, "public_tables", public_tables)


@fault
def rows_swapped_in_table(environment: Environment) -> Patches:
    """Two rows of a table were loaded with each other's values."""
    for number, table in enumerate(_tables(environment)):
        width = len(table.key.split(",")) + (table.key == "id")  # an id goes with its name
        for i, j in itertools.combinations(range(len(table.rows)), 2):
            one, two = table.rows[i][width:], table.rows[j][width:]
            if one != two:

                def swap(rows: list[Any], i: int = i, j: int = j, width: int = width) -> list[Any]:
                    rows[i], rows[j] = rows[i][:width] + rows[j][width:], rows[j][:width] + rows[i][width:]
                    return rows

                return [_with_rows(number, swap)]
    return NotApplicable("no table has two rows that differ in their values")


@fault
def last_row_missing(environment: Environment) -> Patches:
    """The loader stops one row early in the first table."""
    return [_with_rows(0, lambda rows: rows[:-1])]


@fault
def stale_reference(environment: Environment) -> Patches:
    """A row refers to a member that was deleted since."""
    for number, table in enumerate(_tables(environment)):
        for position, column in enumerate(table.columns):
            if column.references and table.rows:

                def point(rows: list[Any], position: int = position) -> list[Any]:
                    rows[0] = (*rows[0][:position], 1_000, *rows[0][position + 1 :])
                    return rows

                return [_with_rows(number, point)]
    return NotApplicable("no public table refers to another one")


@fault
def term_off_by_one(environment: Environment) -> Patches:
    """The first constant in the table of terms is one too high."""
    if not list(database._terms(environment.family, environment.theta, environment.spec)):
        return NotApplicable("the table of terms is empty")

    def terms(original: Any, *args: Any) -> Any:
        (name, value), *rest = original(*args)
        return iter([(name, value + 1), *rest])

    return [around(database, "_terms", terms)]


@fault
def priors_exchanged_in_tables(environment: Environment) -> Patches:
    """The database gives the lowest value as the typical one and the typical as the lowest."""

    def published(original: Any, theta: Theta, key: Key) -> tuple[int, int, int]:
        low, high, mean = original(theta, key)
        return mean, high, low

    return [around(database, "published", published)]


@fault
def hidden_entries_in_database(environment: Environment) -> Patches:
    """The table of readings is published with every reading in it."""
    family, spec = environment.family, environment.spec
    number = next(n for n, t in enumerate(_tables(environment)) if t.name == spec.tables["readings"])
    kinds = list(dict.fromkeys(kind for field in family.interface.hidden_fields for kind in field.index))

    def public_tables(original: Any, fam: Any, theta: Theta, words: Any) -> list[Table]:
        tables = original(fam, theta, words)
        rows = []
        for (name, *index), value in fam.hidden(theta).items():
            field = next(f for f in fam.interface.hidden_fields if f.name == name)
            where = dict(zip(field.index, index, strict=True))
            ids = [where[kind] + 1 if kind in where else None for kind in kinds]
            rows.append((0, words.fields[name].label, *ids, value))
        tables[number] = dataclasses.replace(tables[number], rows=tuple(rows))
        return tables

    return [around(database, "public_tables", public_tables)]


@fault
def readings_counted_from_zero(environment: Environment) -> Patches:
    """Readings are recorded under the internal number of a member, which starts at 0, not under its id."""

    def insert(original: Any, ledger: Ledger, role: str, values: dict[str, Any]) -> None:
        ends = {name: value - 1 for name, value in values.items() if name.endswith("_id")}
        original(ledger, role, values | ends if role == "readings" else values)

    return [around(Ledger, "_insert", insert)]


@fault
def costs_booked_as_gains(environment: Environment) -> Patches:
    """The ledger books every gain with the opposite sign."""

    def record(original: Any, ledger: Ledger, turn: int, action: Any, gain: int) -> None:
        original(ledger, turn, action, -gain)

    return [around(Ledger, "record_decision", record)]


@fault
def query_loses_the_last_row(environment: Environment) -> Patches:
    """The query tool fetches one row too few and says nothing."""

    def query(original: Any, ledger: Ledger, sql: str) -> str:
        lines = original(ledger, sql).split("\n")
        return "\n".join(lines[:-1] if len(lines) > 2 else lines)

    return [around(Ledger, "query", query)]
