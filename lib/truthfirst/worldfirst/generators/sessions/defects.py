"""The damage of traffic logs: what is lost, sent twice, late, renamed, wrongly stamped, cut short or laid out anew.

Every act leaves in the public tree what undoes it, under the rules that the prompt states:

    lost files       log files of the api that are gone: the gateway has every call in full
    missing rows     single lines of the api gone
    duplicates       events sent again under a higher attempt, with another stamp and amount; exact copies
    late events      lines that stand in a later day's file than their own
    event renaming   other names of event types, by event_types.csv as of the day
    clock skew       stamps of a node between two heartbeats off by what the heartbeats show
    lost order       lines shuffled
    schema drift     files in the later layout of their source; with it format drift (stamps) and unit drift (amounts)
    torn lines       beginnings of lines whose writing was interrupted and repeated

The sets of events that are lost, sent again, copied and late are disjoint, and nothing else happens to a lost file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...corrupt import OPERATORS as GENERIC
from ...corrupt import CorruptionError, Draft, on_table, text64
from ...tables import Table, table_format
from ...world import INPUT, Defect, Files
from .render import base_layout, log_path, stamp, unstamp
from .sample import MINUTE, QUIET, beat_of, day_of, iso
from .world import FIELDS, SOURCES, Event, Layout, Traffic

_T = TypeVar("_T")


# --- operators of logs ----------------------------------------------------------------------------------------
def _shifted(table: Table, parameters: dict[str, Any], sign: int) -> Table:
    """Move stamps. column; stamps: iso, ms or s; leads: [[row, milliseconds], ...]."""
    position, told, rows = (
        table.column(parameters["column"]),
        parameters["stamps"],
        [list(r) for r in table.rows],
    )
    for row, lead in parameters["leads"]:
        rows[row][position] = stamp(unstamp(str(rows[row][position]), told) + sign * lead, told)
    return Table(table.columns, tuple(map(tuple, rows)))


def _restamped(table: Table, column: str, before: str, after: str) -> Table:
    """Tell the stamps of a column in another format. column; before, after: iso, ms or s."""
    position = table.column(column)
    rows = []
    for row in table.rows:
        new = stamp(unstamp(str(row[position]), before), after)
        if stamp(unstamp(new, after), before) != row[position]:
            raise CorruptionError(f"stamp {row[position]!r} does not survive recoding: {new!r}")
        rows.append((*row[:position], new, *row[position + 1 :]))
    return Table(table.columns, tuple(rows))


OPERATORS = GENERIC | {
    "shift_clock": on_table(lambda t, p: _shifted(t, p, 1), lambda t, p: _shifted(t, p, -1)),
    "recode_stamps": on_table(
        lambda t, p: _restamped(t, p["column"], p["before"], p["after"]),
        lambda t, p: _restamped(t, p["column"], p["after"], p["before"]),
    ),
}


# --- the plan -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Log:
    """A log file that is not lost, with the layout that it is in when it is clean."""

    path: str
    source: str
    day: str
    layout: Layout

    def column(self, field: str) -> str:
        return self.layout.columns[FIELDS.index(field)]


def plan(world: Traffic, files: Files, rng: np.random.Generator) -> tuple[Defect, ...]:
    """Draw the defect plan of a world."""
    draft = Draft(files, OPERATORS)
    gone = sorted(_some(rng, world.days[:-1], 2 if len(world.days) > 5 else 1))
    logs = [
        _Log(log_path(world, source, day), source, day, base_layout(world, source))
        for source in SOURCES
        for day in world.days
        if source != "api" or day not in gone
    ]
    chosen = _choose(world, rng, {(log.source, log.day) for log in logs})
    for log in logs:
        _rename(draft, world, rng, log)
    _again(draft, world, rng, logs, chosen)
    _delay(draft, rng, logs, chosen["late"])
    for log in logs:
        if lost := _positions(draft, log, chosen["dropped"]):
            draft.add("missing rows", "delete_rows", log.path, rows=lost)
    _skew(draft, world, rng, logs)
    for log in logs:
        order = [int(position) for position in rng.permutation(len(draft.table(log.path).rows))]
        draft.add("lost order", "permute_rows", log.path, order=order)
    for log in (
        chosen_log for source in SOURCES for chosen_log in _half(rng, [g for g in logs if g.source == source])
    ):
        _drift(draft, world, log)
    for day in gone:
        path = log_path(world, "api", day)
        draft.add("lost files", "lose_file", path, content=text64(draft.files[path]))
    for log in _half(rng, logs):
        _tear(draft, rng, log.path)
    return tuple(draft.plan)


def _some(rng: np.random.Generator, pool: Sequence[_T], count: int) -> list[_T]:
    """Return `count` of a pool, in its order; all of it where it holds no more."""
    chosen = sorted(int(n) for n in rng.choice(len(pool), size=min(count, len(pool)), replace=False))
    return [pool[position] for position in chosen]


def _half(rng: np.random.Generator, pool: Sequence[_T]) -> list[_T]:
    return _some(rng, pool, (len(pool) + 1) // 2)


def _choose(world: Traffic, rng: np.random.Generator, held: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return disjoint sets of events, by identity: dropped, late, again (sent twice with changes), copied."""
    free = {
        event.id: event
        for event in world.events
        if not event.refused and (event.source, day_of(event.time)) in held
    }
    taken: dict[str, set[str]] = {}

    def take(name: str, share: float, pool: list[Event]) -> None:
        count = max(1, round(share * len(pool)))
        chosen = _some(rng, [event.id for event in pool if event.id in free], count)
        taken.setdefault(name, set()).update(chosen)
        for identity in chosen:
            del free[identity]

    later = {source: max(day for held_source, day in held if held_source == source) for source in SOURCES}
    take("dropped", 0.12, [event for event in free.values() if event.source == "api"])
    take("again", 0.08, [event for event in free.values() if event.type == "purchase"])
    take("again", 0.03, [event for event in free.values() if event.type != "purchase"])
    take("late", 0.05, [event for event in free.values() if day_of(event.time) < later[event.source]])
    take("copied", 0.03, list(free.values()))
    return taken


def _positions(draft: Draft, log: _Log, chosen: set[str]) -> list[list[Any]]:
    """Return [position, cells] of the rows of chosen events in a file."""
    return [[number, list(row)] for number, row in enumerate(draft.table(log.path).rows) if row[0] in chosen]


def _rename(draft: Draft, world: Traffic, rng: np.random.Generator, log: _Log) -> None:
    """Give about half of the events of a file other names, as they stand on its day."""
    standing = {m.name: m.type for m in world.meanings if m.source == log.source and m.since <= log.day}
    position = FIELDS.index("name")
    cells: list[Any] = []
    for number, row in enumerate(draft.table(log.path).rows):
        names = [name for name, type_ in standing.items() if type_ == row[position]]
        if names and (not cells or rng.random() < 0.5):
            cells.append([number, row[position], names[int(rng.integers(len(names)))]])
    draft.add("event renaming", "replace_cells", log.path, column=log.column("name"), cells=cells)


def _again(
    draft: Draft, world: Traffic, rng: np.random.Generator, logs: list[_Log], chosen: dict[str, set[str]]
) -> None:
    """Insert copies into the same file, and second sendings into it or a later one of the source."""
    more: dict[str, list[list[str]]] = {log.path: [] for log in logs}
    for log in logs:
        rows = [[str(cell) for cell in row] for row in draft.table(log.path).rows]
        more[log.path] += [row for row in rows if row[0] in chosen["copied"]]
        targets = [other.path for other in logs if other.source == log.source and other.day >= log.day]
        for row in (row for row in rows if row[0] in chosen["again"]):
            sent = dict(zip(FIELDS, row, strict=True))
            time = unstamp(sent["stamp"], log.layout.stamps) + int(rng.integers(MINUTE, 200 * MINUTE))
            sent |= {"attempt": str(int(rng.integers(2, 4))), "stamp": stamp(time, log.layout.stamps)}
            if sent["amount"]:
                sent["amount"] = str(int(sent["amount"]) + int(rng.integers(1, 900)))
            more[targets[int(rng.integers(len(targets)))]].append(list(sent.values()))
    for path, rows in more.items():
        if rows:
            size = len(draft.table(path).rows)
            draft.add("duplicates", "insert_rows", path, rows=[[size + n, row] for n, row in enumerate(rows)])


def _delay(draft: Draft, rng: np.random.Generator, logs: list[_Log], late: set[str]) -> None:
    """Move the lines of late events to a later file of their source."""
    arrived: dict[str, list[list[Any]]] = {log.path: [] for log in logs}
    for log in logs:
        if moved := _positions(draft, log, late):
            targets = [other.path for other in logs if other.source == log.source and other.day > log.day]
            draft.add("late events", "delete_rows", log.path, rows=moved)
            for _, row in moved:
                arrived[targets[int(rng.integers(len(targets)))]].append(row)
    for path, rows in arrived.items():
        if rows:
            draft.add(
                "late events", "insert_rows", path, rows=[[number, row] for number, row in enumerate(rows)]
            )


def _skew(draft: Draft, world: Traffic, rng: np.random.Generator, logs: list[_Log]) -> None:
    """Set clocks wrong: half of the nodes from some heartbeat on, one of them differently after the next one."""
    leads: dict[tuple[str, int], int] = {}
    for node in _half(rng, world.nodes):
        first = int(rng.integers(len(world.beats) - 1))
        for beat in range(first, len(world.beats)):
            if beat == first or rng.random() < 0.4:
                lead = int(rng.integers(MINUTE // 4, QUIET // 2)) * (1 if rng.random() < 0.5 else -1)
            leads[node, beat] = lead
    table = draft.table(f"{INPUT}heartbeats.tsv")
    cells = []
    for number, (machine, at, reads) in enumerate(table.rows):
        if lead := leads.get((str(machine), world.beats.index(str(at))), 0):
            cells.append([number, reads, iso(unstamp(str(at), "iso") + lead)])
    draft.add("clock skew", "replace_cells", f"{INPUT}heartbeats.tsv", column="reads", cells=cells)
    node_at, stamp_at = FIELDS.index("node"), FIELDS.index("stamp")
    for log in logs:
        told = log.layout.stamps
        moved = []
        for number, row in enumerate(draft.table(log.path).rows):
            beat = beat_of(world, unstamp(str(row[stamp_at]), told))
            if lead := leads.get((str(row[node_at]), beat), 0):
                moved.append([number, lead])
        if moved:
            column = log.column("stamp")
            draft.add("clock skew", "shift_clock", log.path, column=column, stamps=told, leads=moved)


def _drift(draft: Draft, world: Traffic, log: _Log) -> None:
    """Tell a file in the later layout of its source."""
    layout = [layout for layout in world.layouts if layout.source == log.source][1]
    draft.add(
        "format drift",
        "recode_stamps",
        log.path,
        column=log.column("stamp"),
        before=log.layout.stamps,
        after=layout.stamps,
    )
    draft.add("unit drift", "recode_column", log.path, column=log.column("amount"), codec="cents -> decimal")
    names = dict(zip(log.layout.columns, layout.columns, strict=True))
    draft.add("schema drift", "rename_columns", log.path, names=names)


def _tear(draft: Draft, rng: np.random.Generator, path: str) -> None:
    """Put the beginnings of one or two lines before these lines: less than half of one, so that fields are missing."""
    lines = draft.files[path].decode().split("\n")[:-1]
    first = int(table_format(path) == "csv")  # not the header
    torn: list[list[Any]] = []
    for position in _some(rng, range(first, len(lines)), int(rng.integers(1, 3))):
        text = lines[position]
        torn.append([position + len(torn), text[: int(rng.integers(8, len(text) // 2))]])
    draft.add("torn lines", "insert_lines", path, lines=torn)
