"""The database an agent can query: public facts, the ledger of decisions, and the readings so far.

Built from theta and a spec; it never holds a hidden entry until a probe or a decision has revealed it. Every
query of an agent runs read-only under an authorizer, with a bound on steps (not on time, so that replies are
deterministic), on rows and on text. WITH is not read: SQLite expands nested common tables while it compiles, where
nothing bounds it; nor is EXPLAIN, which shows SQLite's own workings and no table. LIKE is our own, since SQLite's
takes one step however long its texts are.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

from ..families.base import Action, Entity, Family, Field, Key, Theta, entry, published
from .setter import slug
from .spec import WorldSpec

MAX_ROWS = 40
MAX_REPLY = 2_000
MAX_STEPS = 200_000
MAX_LENGTH = 4_000  # characters of one value; a sort may hold many of them
LETTERS_A_STEP = 5  # what LIKE compares for the price of one step
_FUNCTIONS = frozenset(
    "count sum avg min max total abs round coalesce ifnull nullif length lower upper substr like group_concat"
    " row_number rank dense_rank lag lead first_value last_value".split()
)


class QueryError(ValueError):
    """An agent's query was refused; the message says what would be accepted."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: SQL type, whether it may be null, and the table its values refer to."""

    name: str
    kind: str
    references: str | None = None

    def sql(self) -> str:
        clause = f' REFERENCES "{self.references}"("id")' if self.references else ""
        return f'"{self.name}" {self.kind}{clause}'


@dataclass(frozen=True, slots=True)
class Table:
    """One table; `key` is its primary key and `rows` its public content."""

    name: str
    columns: tuple[Column, ...]
    key: str
    rows: tuple[tuple[object, ...], ...]


def member(spec: WorldSpec, entity: Entity, index: int) -> str:
    """Return the display name of a member of an entity kind (index 0-based)."""
    words = spec.entities[entity.kind]
    return f"{words.singular.capitalize()} {index + 1}" if entity.ordinal else words.names[index]


def reference(spec: WorldSpec, kind: str) -> str:
    """Return the name of the column that refers to a member of `kind`."""
    return f"{slug(spec.entities[kind].singular)}_id"


def public_tables(family: Family, theta: Theta, spec: WorldSpec) -> list[Table]:
    """Return the tables with their public content, referenced tables first."""
    face, counts = family.interface, family.counts(theta)
    entities = {e.kind: e for e in face.entities}
    tables = []
    for entity in face.entities:
        columns = [Column("id", "INTEGER"), Column("name", "TEXT NOT NULL UNIQUE")]
        values: list[list[object]] = [[i + 1, member(spec, entity, i)] for i in range(counts[entity.kind])]
        for field in face.fields:
            if not field.hidden and field.index == (entity.kind,):
                refers = field.unit in entities and not entities[field.unit].ordinal
                target = spec.tables[field.unit] if refers else None
                columns.append(Column(spec.fields[field.name].column, "INTEGER", target))
                for i, row in enumerate(values):
                    value = entry(theta, (field.name, i))
                    row.append((None if value < 0 else value + 1) if refers else value)
            elif field.hidden and field.index[-1] == entity.kind and _varies(theta, field):
                name = spec.fields[field.name].column
                columns += [
                    Column(f"{name}_{suffix}", "INTEGER") for suffix in ("lowest", "highest", "typical")
                ]
                for i, row in enumerate(values):
                    row += published(theta, (field.name, *([0] * (len(field.index) - 1)), i))
        tables.append(Table(spec.tables[entity.kind], tuple(columns), "id", tuple(map(tuple, values))))
    for field in face.fields:
        if not field.hidden and len(field.index) > 1:
            ends = _ends(spec, field)
            columns = [
                Column(n, "INTEGER NOT NULL", spec.tables[k]) for n, k in zip(ends, field.index, strict=True)
            ]
            columns.append(Column(spec.fields[field.name].column, "INTEGER"))
            rows = tuple(
                (*[i + 1 for i in key[1:]], entry(theta, key)) for key in family.keys(theta, [field])
            )
            tables.append(
                Table(spec.tables[field.name], tuple(columns), ", ".join(f'"{e}"' for e in ends), rows)
            )
    tables.append(Table(spec.tables["terms"], _TERMS, "name", tuple(_terms(family, theta, spec))))
    slots = {s.entity: None for v in face.verbs for s in v.slots if s.entity}
    ledger = [Column("turn", "INTEGER"), Column("tool", "TEXT NOT NULL")]
    ledger += [Column(reference(spec, kind), "INTEGER", spec.tables[kind]) for kind in slots]
    ledger += [Column("amount", "INTEGER"), Column("gain", "INTEGER NOT NULL")]
    tables.append(Table(spec.tables["ledger"], tuple(ledger), "turn", ()))
    kinds = {kind: None for f in face.hidden_fields for kind in f.index}
    readings = [Column("turn", "INTEGER NOT NULL"), Column("quantity", "TEXT NOT NULL")]
    readings += [Column(reference(spec, kind), "INTEGER", spec.tables[kind]) for kind in kinds]
    readings.append(Column("value", "INTEGER NOT NULL"))
    tables.append(Table(spec.tables["readings"], tuple(readings), "", ()))
    return tables


_TERMS = (Column("name", "TEXT"), Column("value", "INTEGER NOT NULL"))


def _terms(family: Family, theta: Theta, spec: WorldSpec) -> Iterator[tuple[str, int]]:
    for scalar in family.interface.scalars:
        yield spec.fields[scalar.name].label, getattr(theta, scalar.name)
    for field in family.interface.hidden_fields:
        if not _varies(theta, field) and family.keys(theta, [field]):
            triple = published(theta, family.keys(theta, [field])[0])
            for what, value in zip(("lowest", "highest", "typical"), triple, strict=True):
                yield f"{spec.fields[field.name].label} ({what})", value


def _varies(theta: Theta, field: Field) -> bool:
    """Say whether the prior of a hidden field differs by the last index."""
    prior = getattr(theta, f"{field.name}_prior")
    return bool(prior) and isinstance(prior[0], tuple)


def _ends(spec: WorldSpec, field: Field) -> list[str]:
    names = [reference(spec, kind) for kind in field.index]
    return names if len(set(names)) == len(names) else ["from_id", "to_id", *names[2:]]


def build_database(family: Family, theta: Theta, spec: WorldSpec) -> bytes:
    """Return the database file; equal theta and spec give equal bytes."""
    connection = sqlite3.connect(":memory:")
    for table in public_tables(family, theta, spec):
        parts = [column.sql() for column in table.columns]
        if table.key:
            parts.append(f"PRIMARY KEY ({table.key})")
        connection.execute(f'CREATE TABLE "{table.name}" ({", ".join(parts)})')
        if table.rows:
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', table.rows)
    connection.commit()
    data = connection.serialize()
    connection.close()
    return data


def schema_text(tables: list[Table]) -> str:
    """Return one line a table: its name and columns."""
    return "\n".join(f"{t.name}({', '.join(c.name for c in t.columns)})" for t in tables)


class Ledger:
    """The live database of one episode: it grows with decisions and readings and answers queries."""

    def __init__(self, family: Family, spec: WorldSpec, data: bytes) -> None:
        self._family, self._spec = family, spec
        self._connection = sqlite3.connect(":memory:")
        self._connection.deserialize(data)
        self._guarded = False
        self._steps = 0
        self._connection.set_authorizer(self._authorize)
        # Held weakly: Python's collector cannot see what SQLite holds, so a cycle through it would never be freed.
        weak = weakref.WeakMethod(self._like)

        def compare(*texts: object) -> bool | None:
            method = weak()
            return None if method is None else method(*texts)

        for arguments in (2, 3):
            self._connection.create_function("like", arguments, compare, deterministic=True)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LENGTH)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2_000)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 40)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 8)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)

    def record_decision(self, turn: int, action: Action, gain: int) -> None:
        """Add one decision to the ledger table."""
        values: dict[str, object] = {
            "turn": turn + 1,
            "tool": self._spec.tools[action.verb].name,
            "gain": gain,
        }
        for slot, value in zip(self._family.interface.verb(action.verb).slots, action.args, strict=True):
            if slot.entity:
                values[reference(self._spec, slot.entity)] = value + 1
            else:
                values["amount"] = value
        self._insert("ledger", values)

    def record_reading(self, turn: int, key: Key, value: int) -> None:
        """Add one revealed entry to the readings table."""
        field = next(f for f in self._family.interface.hidden_fields if f.name == key[0])
        values: dict[str, object] = {
            "turn": turn + 1,
            "quantity": self._spec.fields[field.name].label,
            "value": value,
        }
        values |= {reference(self._spec, k): i + 1 for k, i in zip(field.index, key[1:], strict=True)}
        self._insert("readings", values)

    def _insert(self, role: str, values: dict[str, object]) -> None:
        columns = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self._connection.execute(
            f'INSERT INTO "{self._spec.tables[role]}" ({columns}) VALUES ({marks})', tuple(values.values())
        )

    def query(self, sql: str) -> str:
        """Run one SELECT and return its rows as text; raise QueryError with a short reason."""
        if word := re.search(r"\b(with|explain)\b", sql, re.IGNORECASE):
            raise QueryError(f"{word[1].upper()} is not read; send one SELECT over the published tables")
        self._guarded, self._steps = True, MAX_STEPS
        self._connection.set_progress_handler(self._tick, 1_000)
        try:
            cursor = self._connection.execute(sql)
            rows = cursor.fetchmany(MAX_ROWS + 1)
            names = [column[0] for column in cursor.description or ()]
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            reason = "it takes too many steps" if self._steps <= 0 else str(error)
            raise QueryError(f"{reason[:160]}; send one SELECT over the published tables") from error
        finally:
            self._guarded = False
            self._connection.set_progress_handler(None, 0)
        if not names:
            raise QueryError("not a SELECT statement; send one SELECT over the published tables")
        lines = [" | ".join(names)] + [
            " | ".join("-" if v is None else str(v) for v in row) for row in rows[:MAX_ROWS]
        ]
        if len(rows) > MAX_ROWS:
            lines.append(f"(only the first {MAX_ROWS} rows are shown)")
        elif not rows:
            lines.append("(no rows)")
        text = "\n".join(lines)
        return text if len(text) <= MAX_REPLY else text[:MAX_REPLY] + " (cut)"

    def _tick(self) -> int:
        self._steps -= 1_000
        return self._steps <= 0

    def _like(self, pattern: object, text: object, escape: object = "") -> bool | None:
        """LIKE as SQLite calls it; an exception here ends the query."""
        if pattern is None or text is None or escape is None:
            return None
        self._steps -= (len(str(pattern)) + 1) * (len(str(text)) + 1) // LETTERS_A_STEP
        if self._steps <= 0:
            raise QueryError("it takes too many steps")
        return like(str(pattern), str(text), str(escape))

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if not self._guarded or action in (
            sqlite3.SQLITE_SELECT,
            sqlite3.SQLITE_READ,
            sqlite3.SQLITE_RECURSIVE,
        ):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY


def like(pattern: str, text: str, escape: str = "") -> bool:
    """Say whether `text` matches an SQL LIKE pattern, case ignored, in O(len(pattern) len(text))."""
    tokens, letters = [], iter(pattern)
    for letter in letters:
        literal = letter not in "%_" or letter == escape
        tokens.append(f"={next(letters, '') if letter == escape else letter}".lower() if literal else letter)
    text = text.lower()
    token = position = begin = 0
    wildcard = -1  # the last % that was passed; `begin` is where the text after it began
    while position < len(text):
        wanted = tokens[token] if token < len(tokens) else ""
        if wanted == "%":
            wildcard, begin, token = token, position, token + 1
        elif wanted in ("_", f"={text[position]}"):
            token, position = token + 1, position + 1
        elif wildcard >= 0:
            begin += 1
            token, position = wildcard + 1, begin
        else:
            return False
    return all(rest == "%" for rest in tokens[token:])
