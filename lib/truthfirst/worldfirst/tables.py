"""Tables on the wire: CSV, TSV, JSON records, JSON lines, logfmt and SQLite, each with one canonical encoding.

`decode(encode(table)) == table` and `encode(decode(data)) == data` for everything encoded here; that is what makes
damage to a file exactly invertible. Cells of delimited text and of logfmt (`.log`, lines of key=value, values quoted as
in JSON where they need it) are strings; JSON and SQLite keep integers and null too.
For rendering and damage only: the graders and the solvers read files with means of their own.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from .world import WorldError

Cell = str | int | float | None
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_PAIR = re.compile(r'([^\s=]+)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; every row has one cell a column."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        width = len(self.columns)
        if bad := next((row for row in self.rows if len(row) != width), None):
            raise WorldError(f"row {bad} does not have {width} cells as the columns {self.columns} ask for")

    def column(self, name: str) -> int:
        """Return the position of a column; raise WorldError that lists the columns."""
        if name not in self.columns:
            raise WorldError(f"no column {name!r}: the table has {', '.join(self.columns)}")
        return self.columns.index(name)


def table_format(path: str) -> str:
    """Return the wire format that a file's ending names: csv, tsv, json, jsonl or log."""
    ending = PurePosixPath(path).suffix[1:]
    if ending not in {*_DELIMITERS, "json", "jsonl", "log"}:
        raise WorldError(f"{path} is no table: its ending must be .csv, .tsv, .json, .jsonl or .log")
    return ending


def encode(table: Table, path: str) -> bytes:
    """Return the canonical bytes of a table in the format of `path`. JSON needs at least one row (it has no header)."""
    kind = table_format(path)
    if kind in _DELIMITERS:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=_DELIMITERS[kind], lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
        return out.getvalue().encode()
    if not table.rows:
        raise WorldError(f"{path}: a table without rows in this format would lose its columns")
    if kind == "log":
        told = [" ".join(map("{}={}".format, table.columns, map(_quoted, row))) for row in table.rows]
        return "".join(line + "\n" for line in told).encode()
    lines = [json.dumps(dict(zip(table.columns, row, strict=True)), ensure_ascii=False) for row in table.rows]
    text = "[\n" + ",\n".join(lines) + "\n]\n" if kind == "json" else "\n".join(lines) + "\n"
    return text.encode()


@functools.lru_cache(
    maxsize=16
)  # damage is drawn and done in small steps, each of which reads the same bytes twice
def decode(data: bytes, path: str) -> Table:
    """Return the table that `encode` wrote; raises WorldError when records differ in their keys."""
    kind, text = table_format(path), data.decode()
    if kind in _DELIMITERS:
        header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=_DELIMITERS[kind])
        return Table(tuple(header), tuple(map(tuple, rows)))
    if kind == "log":
        records = [
            {key: _unquoted(told) for key, told in _PAIR.findall(line)} for line in text.split("\n")[:-1]
        ]
    else:
        records = json.loads(text) if kind == "json" else [json.loads(line) for line in text.split("\n")[:-1]]
    columns = tuple(records[0])
    if any(tuple(record) != columns for record in records):
        raise WorldError(f"{path}: records differ in their keys")
    return Table(columns, tuple(tuple(record.values()) for record in records))


def _quoted(cell: Cell) -> str:
    """Return a string cell as logfmt tells it: plain, or as a JSON string."""
    return str(cell) if re.fullmatch(r'[^\s"=]*', str(cell)) else json.dumps(cell, ensure_ascii=False)


def _unquoted(told: str) -> str:
    return json.loads(told) if told.startswith('"') else told


def encode_sqlite(
    tables: Mapping[str, Table], types: Mapping[str, Sequence[str]], page_size: int = 1_024
) -> bytes:
    """Return a SQLite database; `types` names each column's type (TEXT or INTEGER), the first column is the key.

    The bytes are those of this SQLite library; another version writes its own number into the header.
    """
    with sqlite3.connect(":memory:") as base:
        base.execute(f"PRAGMA page_size = {page_size}")
        for name, table in tables.items():
            told = [f'"{column}" {kind}' for column, kind in zip(table.columns, types[name], strict=True)]
            base.execute(
                f'CREATE TABLE "{name}" ({told[0]} PRIMARY KEY, {", ".join(told[1:])}) WITHOUT ROWID'
            )
            marks = ", ".join("?" * len(table.columns))
            base.executemany(f'INSERT INTO "{name}" VALUES ({marks})', table.rows)
        base.commit()
        data = base.serialize()
    base.close()
    return data


def decode_sqlite(data: bytes) -> dict[str, Table]:
    """Return every table of a database, rows in the order of their first column."""
    base = sqlite3.connect(":memory:")
    base.deserialize(data)
    found = {}
    for (name,) in base.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
    ).fetchall():
        cursor = base.execute(f'SELECT * FROM "{name}" ORDER BY 1')
        columns = tuple(entry[0] for entry in cursor.description)
        found[name] = Table(columns, tuple(cursor.fetchall()))
    base.close()
    return found
