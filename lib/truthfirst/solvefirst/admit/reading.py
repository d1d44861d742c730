"""Reading an environment from the player's side, without the code that built it.

A gate that renders the expected text with the builder's own functions finds a fault of those functions on both
sides of its comparison, and nothing is left to see. So this file shares no code with `realize/`; it knows only the
published format: how members are called, how a call is written, and how figures stand in text and tables. Rows and
columns are found by the names they bear, never by their position.
"""

from __future__ import annotations

import functools
import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..families.base import Action, Family, Field, Key, Theta
from ..realize.spec import WorldSpec
from ..realize.tools import Probe

Triple = tuple[int, int, int]
Block = tuple[str, list[str]]  # the line that opens a block of figures, and its rows
_OPENS = re.compile(r"([\[(])(\w+)[\])] ")
_MEASURES = ("lowest", "highest", "typical")


class ReadingError(ValueError):
    """Something that an environment states cannot be understood; the message quotes it."""


@dataclass(frozen=True)
class Reader:
    """What the words of one environment mean: `spec` for the names, `counts` for the members of each kind."""

    family: Family
    spec: WorldSpec
    counts: dict[str, int]

    # --- names ------------------------------------------------------------------------------------
    @functools.cached_property
    def ordinal(self) -> dict[str, bool]:
        return {entity.kind: entity.ordinal for entity in self.family.interface.entities}

    @functools.cached_property
    def members(self) -> dict[str, list[str]]:
        """Names by entity kind, in index order; members of ordinal kinds are numbered from 1."""
        return {
            kind: [f"{self.spec.entities[kind].singular} {i + 1}" for i in range(self.counts[kind])]
            if ordinal
            else list(self.spec.entities[kind].names)
            for kind, ordinal in self.ordinal.items()
        }

    @functools.cached_property
    def _indices(self) -> dict[str, dict[str, int]]:
        return {
            kind: {name.casefold(): i for i, name in enumerate(names)} for kind, names in self.members.items()
        }

    def index(self, kind: str, name: str) -> int:
        """Return the 0-based index of a member, or raise ReadingError."""
        try:
            return self._indices[kind][name.casefold()]
        except KeyError:
            raise ReadingError(f"{name!r} is no {kind}: known are {self.members[kind]}") from None

    def label(self, key: Key) -> str:
        """Return how a reply calls a hidden entry: its label, then the members it belongs to."""
        field = next(f for f in self.family.interface.fields if f.name == key[0])
        where = [self.members[kind][i] for kind, i in zip(field.index, key[1:], strict=True)]
        return ", ".join([self.spec.fields[field.name].label, *where])

    def refers(self, unit: str) -> bool:
        """Say whether values of this unit are references to named members."""
        return unit in self.ordinal and not self.ordinal[unit]

    def shown(self, unit: str, value: int) -> str:
        """Return a value as text: references by name, -1 as none, anything else as a number."""
        if not self.refers(unit):
            return str(value)
        return "none" if value < 0 else self.members[unit][value]

    def _value(self, unit: str, cell: str) -> int:
        if self.refers(unit):
            return -1 if cell == "none" else self.index(unit, cell)
        if not re.fullmatch(r"-?\d+", cell):
            raise ReadingError(f"{cell!r} is not a whole number")
        return int(cell)

    # --- calls ------------------------------------------------------------------------------------
    def slots(self, role: str) -> list[tuple[str, str | None]]:
        """Return (argument name, entity kind or None for an amount) of a probe or verb."""
        names = self.spec.tools[role].arguments
        for field in self.family.interface.probes:
            if field.name == role:
                return [(names[kind], kind) for kind in field.index]
        return [(names[slot.name], slot.entity) for slot in self.family.interface.verb(role).slots]

    def _written(self, kind: str | None, value: int) -> Any:
        if kind is None:
            return value
        return value + 1 if self.ordinal[kind] else self.members[kind][value]

    def call(self, call: Probe | Action) -> tuple[str, dict[str, Any]]:
        """Write a call as the published schemas ask for it."""
        role, values = (call.key[0], call.key[1:]) if isinstance(call, Probe) else (call.verb, call.args)
        slots = self.slots(role)
        arguments = {name: self._written(kind, v) for (name, kind), v in zip(slots, values, strict=True)}
        return self.spec.tools[role].name, arguments

    def covering(self, role: str, amount: int = 0) -> Iterator[Probe | Action]:
        """Yield calls of a tool so that every member of every entity slot occurs; amounts are all alike."""
        slots = self.slots(role)
        probe = any(field.name == role for field in self.family.interface.probes)
        for i in range(max([self.counts[kind] for _, kind in slots if kind], default=1)):
            values = tuple(i % self.counts[kind] if kind else amount for _, kind in slots)
            yield Probe((role, *values)) if probe else Action(role, values)

    # --- sentences --------------------------------------------------------------------------------
    def vocabulary(self, theta: Theta) -> dict[str, str]:
        """Return what every placeholder of a rule, a goal or a brief stands for."""
        spec = self.spec
        table = {"money": spec.money, "goods": spec.goods, "time": spec.time}
        for kind, words in spec.entities.items():
            for name, word in ((kind, words.singular), (f"{kind}s", words.plural)):
                table |= {name: word, name.capitalize(): word[:1].upper() + word[1:]}
            table[f"n_{kind}"] = str(self.counts[kind])
        table |= {f"tool_{role}": tool.name for role, tool in spec.tools.items()}
        table |= {f"label_{name}": field.label for name, field in spec.fields.items()}
        return table | {s.name: str(getattr(theta, s.name)) for s in self.family.interface.scalars}

    def said(self, text: str) -> str:
        """Return a text as the instructions say it: a count of one takes the singular."""
        for kind, words in self.spec.entities.items():
            if self.counts[kind] == 1:
                text = re.sub(rf"\b1 {re.escape(words.plural)}\b", f"1 {words.singular}", text)
        return text

    # --- figures in the text ----------------------------------------------------------------------
    def figures(self, text: str) -> dict[Key, int]:
        """Read every constant and field entry that `text` states; keys as in theta, constants as (name,)."""
        blocks = blocks_of(text, "[")
        columns = {self.spec.fields[s.name].column: s.name for s in self.family.interface.scalars}
        found: dict[Key, int] = {}
        for row in blocks.get("constants", ("", []))[1]:
            column, cell = _cells(row, 2)
            if column not in columns:
                raise ReadingError(f"{column!r} is no constant: known are {sorted(columns)}")
            _add(found, (columns[column],), self._value("", cell))
        for field in self.family.interface.fields:
            block = blocks.get(self.spec.fields[field.name].column)
            for key, value in self._grid(field, block[1]) if block else ():
                _add(found, key, value)
        return found

    def _grid(self, field: Field, rows: list[str]) -> Iterator[tuple[Key, int]]:
        if len(field.index) == 1:
            for row in rows:
                name, cell = _cells(row, 2)
                yield (field.name, self.index(field.index[0], name)), self._value(field.unit, cell)
            return
        head = _cells(rows[0]) if rows else []
        across = [self.index(field.index[1], name) for name in head[1:]]
        for row in rows[1:]:
            name, *cells = _cells(row, len(head))
            down = self.index(field.index[0], name)
            for j, cell in zip(across, cells, strict=True):
                yield (field.name, down, j), self._value(field.unit, cell)

    def priors(self, text: str) -> dict[Key, Triple]:
        """Read the published (lowest, highest, typical) of every hidden entry that `text` states."""
        blocks = blocks_of(text, "(")
        found: dict[Key, Triple] = {}
        for field in self.family.interface.hidden_fields:
            block = blocks.get(self.spec.fields[field.name].column)
            if block is None or not block[1]:
                continue
            head = _cells(block[1][0], 4)[1:]
            if sorted(head) != sorted(_MEASURES):
                raise ReadingError(f"{block[1][0]!r} is not a heading of {', '.join(_MEASURES)}")
            triples: dict[int | None, Triple] = {}
            for row in block[1][1:]:
                name, *cells = _cells(row, 4)
                stated = {measure: self._value("", cell) for measure, cell in zip(head, cells, strict=True)}
                last = None if name == "any" else self.index(field.index[-1], name)
                _add(triples, last, tuple(stated[measure] for measure in _MEASURES))
            self._spread(found, field, triples)
        return found

    def _spread(self, found: dict[Key, Triple], field: Field, triples: Mapping[int | None, Triple]) -> None:
        """Give every entry of a field its triple: that of its last index, or the one that holds for any."""
        for index in itertools.product(*(range(self.counts[kind]) for kind in field.index)):
            triple = triples.get(index[-1], triples.get(None))
            if triple is None:
                raise ReadingError(f"nothing is published of {field.name}{list(index)}")
            _add(found, (field.name, *index), triple)

    # --- figures in the tables --------------------------------------------------------------------
    def tables(self, database: sqlite3.Connection) -> tuple[dict[Key, int], dict[Key, Triple]]:
        """Read every figure and every prior that the public tables state."""
        found: dict[Key, int] = {}
        priors: dict[str, dict[int | None, dict[str, int]]] = {}
        face, spec = self.family.interface, self.spec
        for kind in self.ordinal:
            public = {
                spec.fields[f.name].column: f for f in face.fields if not f.hidden and f.index == (kind,)
            }
            hidden = {
                f"{spec.fields[f.name].column}_{measure}": (f, measure)
                for f in face.hidden_fields
                if f.index[-1] == kind
                for measure in _MEASURES
            }
            for row in _rows(database, spec.tables[kind]):
                member = row.pop("id") - 1
                if self.index(kind, row.pop("name")) != member:
                    raise ReadingError(f"table {spec.tables[kind]} numbers its rows differently: {row}")
                for column, value in row.items():
                    if column in public:
                        _add(found, (public[column].name, member), self._stored(public[column], value))
                    elif column in hidden:
                        field, measure = hidden[column]
                        priors.setdefault(field.name, {}).setdefault(member, {})[measure] = value
                    else:
                        raise ReadingError(
                            f"table {spec.tables[kind]} has a column {column!r} that nothing explains"
                        )
        for field in face.fields:
            if not field.hidden and len(field.index) > 1:
                for row in _rows(database, spec.tables[field.name]):
                    *ends, value = row.values()
                    _add(found, (field.name, *(end - 1 for end in ends)), self._stored(field, value))
        labels = {spec.fields[s.name].label: s.name for s in face.scalars}
        general = {
            f"{spec.fields[f.name].label} ({measure})": (f.name, measure)
            for f in face.hidden_fields
            for measure in _MEASURES
        }
        for row in _rows(database, spec.tables["terms"]):
            if row["name"] in labels:
                _add(found, (labels[row["name"]],), row["value"])
            elif row["name"] in general:
                name, measure = general[row["name"]]
                priors.setdefault(name, {}).setdefault(None, {})[measure] = row["value"]
            else:
                raise ReadingError(f"table {spec.tables['terms']} has a row {row} that nothing explains")
        published: dict[Key, Triple] = {}
        for field in face.hidden_fields:
            stated = priors.get(field.name, {})
            triples = {
                last: tuple(row[m] for m in _MEASURES) for last, row in stated.items() if len(row) == 3
            }
            self._spread(published, field, triples)  # type: ignore[arg-type]
        return found, published

    def _stored(self, field: Field, value: int | None) -> int:
        if self.refers(field.unit):
            return -1 if value is None else value - 1
        if not isinstance(value, int):
            raise ReadingError(f"{field.name} is stored as {value!r}")
        return value


def render(template: str, vocabulary: Mapping[str, str]) -> str:
    """Return a template with every placeholder replaced, or raise ReadingError."""
    try:
        return re.sub(r"\{(\w+)\}", lambda match: vocabulary[match.group(1)], template)
    except KeyError as error:
        raise ReadingError(f"placeholder {error} stands for nothing") from error


def blocks_of(text: str, bracket: str) -> dict[str, Block]:
    """Return the blocks that open with `[column] ` or `(column) ` and run to the next empty line, by column."""
    found: dict[str, Block] = {}
    rows: list[str] | None = None
    for line in text.split("\n"):
        match = _OPENS.match(line)
        if match:
            rows = []
            if match.group(1) == bracket:
                _add(found, match.group(2), (line, rows))
        elif not line.strip():
            rows = None
        elif rows is not None:
            rows.append(line)
    return found


def _cells(row: str, count: int | None = None) -> list[str]:
    cells = [cell.strip() for cell in row.split("|")]
    if len(cells) < 2 or (count is not None and len(cells) != count):
        raise ReadingError(f"the row {row!r} has {len(cells)} cells" + (f", not {count}" if count else ""))
    return cells


def _add(found: dict[Any, Any], key: Any, value: Any) -> None:
    if key in found:
        raise ReadingError(f"{key} is stated twice")
    found[key] = value


def _rows(database: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    try:
        cursor = database.execute(f'SELECT * FROM "{table}"')
    except sqlite3.Error as error:
        raise ReadingError(f"table {table} cannot be read: {error}") from error
    names = [column[0] for column in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))
