"""The hidden suite of sessionised traffic: what must cost each component, and plausible answers that must fail."""

from __future__ import annotations

import json
from collections.abc import Callable

from ...tables import Table, decode, encode
from ...world import INPUT, OUTPUT, Files, Sealed
from .reference import solve
from .world import Traffic

_DIGITS = str.maketrans("0123456789", "1234567890")
Record = dict[str, str]


def causes(outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return for each component the outputs with its cause spoilt."""
    return {
        "sources": _edited(outputs, "sources.csv", _last("distinct_ids")),
        "clocks": _edited(outputs, "clocks.csv", _last("lead_ms")),
        "identity": _edited(outputs, "visitors.csv", _last("internal")),
        "repairs": _edited(outputs, "repairs.csv", _last("event_id")),
        "events": _edited(outputs, "events.csv", _last("time")),
        "sessions": _edited(outputs, "sessions.csv", _last("events")),
        "attribution": _edited(outputs, "attribution.csv", _last("campaign")),
        "reports": _edited(outputs, "daily.tsv", _last("bounces")),
        "package": {**outputs, f"{OUTPUT}readme.md": b"done\n"},
    }


def _edited(outputs: Files, name: str, edit: Callable[[Table], Table]) -> dict[str, bytes]:
    path = OUTPUT + name
    return {**outputs, path: encode(edit(decode(outputs[path], path)), path)}


def _last(column: str) -> Callable[[Table], Table]:
    """Return an edit that changes the last cell of a column."""

    def edit(table: Table) -> Table:
        position, last = table.column(column), [str(cell) for cell in table.rows[-1]]
        changed = last[position].translate(_DIGITS)
        last[position] = changed if changed != last[position] else changed + "x"
        return Table(table.columns, (*table.rows[:-1], tuple(last)))

    return edit


def _mapped(change: Callable[[Record], Record | None]) -> Callable[[Table], Table]:
    """Return an edit that changes each row, told as a dictionary, or drops it."""

    def edit(table: Table) -> Table:
        told = [change(dict(zip(table.columns, map(str, row), strict=True))) for row in table.rows]
        return Table(table.columns, tuple(tuple(row.values()) for row in told if row is not None))

    return edit


def counterfactuals(sealed: Sealed, files: Files, outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return answers of somebody who skipped one rule; each must fail.

    The first ones are whole answers to inputs that are as that person takes them to be, the others single wrong tables.
    """
    world: Traffic = sealed.world
    kinds = {str(row[1]): str(row[0]) for row in decode(outputs[f"{OUTPUT}repairs.csv"], "repairs.csv").rows}
    into = {merge.account: merge.into for merge in world.merges}
    links = {link.token: link.account for link in world.links}
    refused = tuple(("restored", event.id) for event in world.events if event.refused)

    def one_step(row: Record) -> Record:
        token = row["token"]
        return row | {"visitor": links.get(token, into.get(token, token))}

    def without(kind: str) -> Callable[[Table], Table]:
        return _mapped(lambda row: None if kinds.get(row["event_id"]) == kind else row)

    inclusive = json.loads(files[f"{INPUT}settings.json"])
    inclusive["timeout_minutes"] -= 1e-5  # a gap of exactly the timeout now exceeds it
    found = {
        "clocks trusted": _answer(files, "heartbeats.tsv", _mapped(lambda row: row | {"reads": row["at"]})),
        "latest meaning for all days": _answer(files, "event_types.csv", _latest_meanings),
        "timeout inclusive": solve({**files, f"{INPUT}settings.json": json.dumps(inclusive).encode()}),
        "merges not followed": _edited(outputs, "visitors.csv", _mapped(one_step)),
        "all traffic public": _edited(outputs, "visitors.csv", _mapped(lambda row: row | {"internal": "no"})),
        "lost calls not restored": _edited(outputs, "events.csv", without("restored")),
        "late events dropped": _edited(outputs, "events.csv", without("late")),
        "refused calls restored": _edited(
            outputs, "repairs.csv", lambda table: Table(table.columns, (*table.rows, *refused))
        ),
        "old report": _edited(
            outputs, "daily.tsv", lambda _: decode(files[f"{INPUT}cache/daily.tsv"], "daily.tsv")
        ),
    }
    return {name: changed for name, changed in found.items() if changed != outputs}


def _answer(files: Files, name: str, edit: Callable[[Table], Table]) -> dict[str, bytes]:
    """Return the answer to inputs of which one table is another one."""
    path = INPUT + name
    return solve({**files, path: encode(edit(decode(files[path], path)), path)})


def _latest_meanings(table: Table) -> Table:
    """Keep of every name the last meaning, as if it had always had it."""
    last = {row[:2]: row for row in table.rows}
    first = min(str(row[2]) for row in table.rows)
    return Table(table.columns, tuple((*row[:2], first, row[3]) for row in last.values()))
