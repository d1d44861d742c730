"""Damage by a declared plan: operators with exact inverses.

A defect names an operator, a file and parameters; `corrupt` applies a plan in order, `restore` undoes it in reverse
and gives the clean files back byte for byte. Each operator checks, both ways, that it finds what the parameters say,
so that a wrong plan raises and never damages silently.

The operators here act on tables (`tables.py`) and on whole files. A generator of other artifacts adds operators of its
own in the same form; see `worldfirst/README.md`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from .tables import Cell, Table, decode, encode
from .world import Defect, Files, WorldError

Act = Callable[[dict[str, bytes], str, dict[str, Any]], dict[str, bytes]]
TableAct = Callable[[Table, dict[str, Any]], Table]


@dataclass(frozen=True, slots=True)
class Operator:
    """An act on files (files, path, parameters) -> files, and its inverse."""

    apply: Act
    invert: Act


class CorruptionError(WorldError):
    """A plan does not fit the files it is applied to."""


def corrupt(files: Files, plan: Sequence[Defect], operators: Mapping[str, Operator]) -> dict[str, bytes]:
    """Return the files with every defect of the plan in them."""
    damaged = dict(files)
    for defect in plan:
        damaged = _operator(defect, operators).apply(damaged, defect.path, defect.parameters)
    return damaged


def restore(files: Files, plan: Sequence[Defect], operators: Mapping[str, Operator]) -> dict[str, bytes]:
    """Return the clean files: the exact inverse of `corrupt` under the same plan."""
    clean = dict(files)
    for defect in reversed(plan):
        clean = _operator(defect, operators).invert(clean, defect.path, defect.parameters)
    return clean


def _operator(defect: Defect, operators: Mapping[str, Operator]) -> Operator:
    if defect.operator not in operators:
        raise CorruptionError(f"no operator {defect.operator!r}: there are {', '.join(sorted(operators))}")
    return operators[defect.operator]


class Draft:
    """A plan in the making: each defect is applied as it is added, so that the next one sees what it will meet."""

    def __init__(self, files: Files, operators: Mapping[str, Operator]) -> None:
        self.files = dict(files)
        self.operators = operators
        self.plan: list[Defect] = []

    def add(self, kind: str, operator: str, path: str, **parameters: Any) -> None:
        defect = Defect(kind, operator, path, parameters)
        damaged = corrupt(self.files, [defect], self.operators)
        if damaged != self.files:  # an act that leaves no trace, as on a column of blanks, is no damage
            self.plan.append(defect)
        self.files = damaged

    def table(self, path: str) -> Table:
        """Return the table at `path` as the defects so far have left it."""
        return decode(self.files[path], path)


# --- acts on tables --------------------------------------------------------------------------------------
def on_table(apply: TableAct, invert: TableAct) -> Operator:
    """Lift an act on a table to an act on the file that holds it."""

    def lift(act: TableAct) -> Act:
        def on_files(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
            if path not in files:
                raise CorruptionError(f"no file {path} to damage or restore")
            return files | {path: encode(act(decode(files[path], path), parameters), path)}

        return on_files

    return Operator(lift(apply), lift(invert))


def _renamed(table: Table, names: Mapping[str, str]) -> Table:
    if missing := [name for name in names if name not in table.columns]:
        raise CorruptionError(f"no column {missing[0]!r} to rename in {table.columns}")
    columns = tuple(names.get(name, name) for name in table.columns)
    if len(set(columns)) != len(columns):
        raise CorruptionError(f"renaming {table.columns} by {dict(names)} would give two columns one name")
    return Table(columns, table.rows)


def rename_columns(table: Table, parameters: dict[str, Any]) -> Table:
    """Schema drift. names: {old: new}."""
    return _renamed(table, parameters["names"])


def rename_columns_back(table: Table, parameters: dict[str, Any]) -> Table:
    return _renamed(table, {new: old for old, new in parameters["names"].items()})


def _replaced(table: Table, cells: Sequence[Sequence[Any]], column: str) -> Table:
    position, rows = table.column(column), [list(row) for row in table.rows]
    for row, old, new in cells:
        if not 0 <= row < len(rows) or rows[row][position] != old:
            raise CorruptionError(f"row {row} of column {column!r} does not hold {old!r}")
        rows[row][position] = new
    return Table(table.columns, tuple(map(tuple, rows)))


def replace_cells(table: Table, parameters: dict[str, Any]) -> Table:
    """Categorical drift, blanks, stale values. column; cells: [[row, old, new], ...]."""
    return _replaced(table, parameters["cells"], parameters["column"])


def replace_cells_back(table: Table, parameters: dict[str, Any]) -> Table:
    return _replaced(table, [(row, new, old) for row, old, new in parameters["cells"]], parameters["column"])


def insert_rows(table: Table, parameters: dict[str, Any]) -> Table:
    """Duplicates and foreign rows. rows: [[position in the result, cells], ...], ascending."""
    rows = list(table.rows)
    for position, cells in parameters["rows"]:
        if not 0 <= position <= len(rows):
            raise CorruptionError(f"no position {position} in a table of {len(rows)} rows")
        rows.insert(position, tuple(cells))
    return Table(table.columns, tuple(rows))


def delete_rows(table: Table, parameters: dict[str, Any]) -> Table:
    """Missing rows. rows: [[position before, cells], ...], ascending."""
    rows = list(table.rows)
    for position, cells in reversed(parameters["rows"]):
        if not 0 <= position < len(rows) or list(rows[position]) != list(cells):
            raise CorruptionError(f"row {position} is not {cells}")
        del rows[position]
    return Table(table.columns, tuple(rows))


def _permuted(table: Table, order: Sequence[int]) -> Table:
    if sorted(order) != list(range(len(table.rows))):
        raise CorruptionError(f"order is no permutation of {len(table.rows)} rows")
    return Table(table.columns, tuple(table.rows[position] for position in order))


def permute_rows(table: Table, parameters: dict[str, Any]) -> Table:
    """Lost order. order: the rows of the result by their positions before."""
    return _permuted(table, parameters["order"])


def permute_rows_back(table: Table, parameters: dict[str, Any]) -> Table:
    order = parameters["order"]
    return _permuted(table, sorted(range(len(order)), key=order.__getitem__))


def _dotted(value: Cell) -> Cell:
    return date.fromisoformat(str(value)).strftime("%d.%m.%Y")


def _undotted(value: Cell) -> Cell:
    day, month, year = str(value).split(".")
    return f"{year}-{month}-{day}"


def _decimal(value: Cell) -> Cell:
    return f"{int(value) // 100}.{int(value) % 100:02d}" if value not in ("", None) else value


def _cents(value: Cell) -> Cell:
    return str(value).replace(".", "").lstrip("0") or "0" if value not in ("", None) else value


CODECS: dict[str, tuple[Callable[[Cell], Cell], Callable[[Cell], Cell]]] = {
    "iso date -> dd.mm.yyyy": (_dotted, _undotted),
    "cents -> decimal": (_decimal, _cents),
}


def _recoded(table: Table, column: str, there: Callable[[Cell], Cell], back: Callable[[Cell], Cell]) -> Table:
    position = table.column(column)
    rows = []
    for row in table.rows:
        new = there(row[position])
        if back(new) != row[position]:
            raise CorruptionError(
                f"{row[position]!r} of column {column!r} does not survive recoding: {new!r}"
            )
        rows.append((*row[:position], new, *row[position + 1 :]))
    return Table(table.columns, tuple(rows))


def recode_column(table: Table, parameters: dict[str, Any]) -> Table:
    """Unit and format drift of a column of strings. column; codec: a key of CODECS."""
    there, back = CODECS[parameters["codec"]]
    return _recoded(table, parameters["column"], there, back)


def recode_column_back(table: Table, parameters: dict[str, Any]) -> Table:
    there, back = CODECS[parameters["codec"]]
    return _recoded(table, parameters["column"], back, there)


# --- acts on files ---------------------------------------------------------------------------------------
def _moved(files: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    if old not in files or new in files:
        raise CorruptionError(f"cannot move {old} to {new}: the first must exist and the second must not")
    return {new if path == old else path: data for path, data in files.items()}


def _exchanged(files: dict[str, bytes], path: str, old: str, new: str) -> dict[str, bytes]:
    if files.get(path) != base64.b64decode(old):
        raise CorruptionError(f"{path} does not hold what the plan says")
    return files | {path: base64.b64decode(new)}


def _lost(files: dict[str, bytes], path: str, content: str) -> dict[str, bytes]:
    if files.get(path) != base64.b64decode(content):
        raise CorruptionError(f"{path} does not hold what the plan says")
    return {name: data for name, data in files.items() if name != path}


def _found(files: dict[str, bytes], path: str, content: str) -> dict[str, bytes]:
    if path in files:
        raise CorruptionError(f"{path} should be lost, but it is there")
    return files | {path: base64.b64decode(content)}


def insert_lines(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
    """Torn or foreign lines of text. lines: [[position in the result, text without line end], ...], ascending."""
    lines = files[path].decode().split("\n")
    for position, text in parameters["lines"]:
        if not 0 <= position < len(lines):
            raise CorruptionError(f"no position {position} in {path}, which has {len(lines) - 1} lines")
        lines.insert(position, text)
    return files | {path: "\n".join(lines).encode()}


def delete_lines(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
    lines = files[path].decode().split("\n")
    for position, text in reversed(parameters["lines"]):
        if not 0 <= position < len(lines) - 1 or lines[position] != text:
            raise CorruptionError(f"line {position} of {path} is not {text!r}")
        del lines[position]
    return files | {path: "\n".join(lines).encode()}


def text64(data: bytes) -> str:
    """Return bytes as the base64 text that parameters hold."""
    return base64.b64encode(data).decode()


TABLE_OPERATORS: dict[str, Operator] = {
    "rename_columns": on_table(rename_columns, rename_columns_back),
    "replace_cells": on_table(replace_cells, replace_cells_back),
    "insert_rows": on_table(insert_rows, delete_rows),
    "delete_rows": on_table(delete_rows, insert_rows),
    "permute_rows": on_table(permute_rows, permute_rows_back),
    "recode_column": on_table(recode_column, recode_column_back),
}
FILE_OPERATORS: dict[str, Operator] = {
    "move_file": Operator(  # a misplaced file. to: its new path
        lambda files, path, parameters: _moved(files, path, parameters["to"]),
        lambda files, path, parameters: _moved(files, parameters["to"], path),
    ),
    "replace_file": Operator(  # a stale or foreign file. old, new: base64
        lambda files, path, parameters: _exchanged(files, path, parameters["old"], parameters["new"]),
        lambda files, path, parameters: _exchanged(files, path, parameters["new"], parameters["old"]),
    ),
    "lose_file": Operator(  # a lost file. content: base64
        lambda files, path, parameters: _lost(files, path, parameters["content"]),
        lambda files, path, parameters: _found(files, path, parameters["content"]),
    ),
    "insert_lines": Operator(insert_lines, delete_lines),
}
OPERATORS = TABLE_OPERATORS | FILE_OPERATORS
