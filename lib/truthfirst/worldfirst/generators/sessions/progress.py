"""The progress of sessionised traffic: twelve nodes, each graded against the world in exact fractions.

A table is graded by its rows: c = max(0, right - wrong) / n, where n rows are expected, each of them counts as right
once, and everything else that stands there is wrong. So c = 1 exactly when the rows are the expected ones, and guessing
at large earns nothing. Every node needs `profile`, which takes counts of the very files that were delivered.
"""

from __future__ import annotations

import bisect
import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from ...world import Files, Grade, Node, Sealed
from .world import Event, Traffic

NODES = (
    Node("profile", 2, "profile-sources"),
    Node("clocks", 2, "align-clocks", ("profile",)),
    Node("visitors", 2, "resolve-visitors", ("profile",)),
    Node("duplicates", 1, "clean-events", ("profile",)),
    Node("restored", 2, "clean-events", ("profile",)),
    Node("late", 1, "clean-events", ("clocks",)),
    Node("events", 4, "clean-events", ("visitors", "duplicates", "restored", "late")),
    Node("sessions", 4, "sessionise", ("events",)),
    Node("attribution", 3, "attribute", ("sessions",)),
    Node("daily", 2, "report", ("attribution",)),
    Node("channels", 2, "report", ("attribution",)),
    Node("manifest", 1, "package", ("daily", "channels")),
)
Row = tuple[str, ...]
_HEADERS: dict[str, Row] = {
    "sources.csv": ("file", "layout", "lines", "torn", "distinct_ids"),
    "clocks.csv": ("node", "since", "lead_ms"),
    "visitors.csv": ("token", "visitor", "internal"),
    "repairs.csv": ("kind", "event_id"),
    "events.csv": ("event_id", "time", "visitor", "source", "type", "page", "campaign", "amount_cents"),
    "sessions.csv": (
        *("session_id", "visitor", "start", "end", "events", "landing", "campaign", "revenue_cents"),
    ),
    "attribution.csv": ("event_id", "session_id", "campaign", "amount_cents"),
    "daily.tsv": ("day", "visitors", "sessions", "bounces", "orders", "revenue_cents"),
}
_TABLE_NODES = {
    "profile": "sources.csv",
    "clocks": "clocks.csv",
    "visitors": "visitors.csv",
    "events": "events.csv",
    "sessions": "sessions.csv",
    "attribution": "attribution.csv",
    "daily": "daily.tsv",
}
_REPAIRS = {"duplicates": "duplicate", "late": "late", "restored": "restored"}
_ENDINGS = {"web": "jsonl", "app": "csv", "api": "log"}
_NOTHING = Fraction(0)


def scorer(sealed: Sealed) -> Grade:
    """Return the scorer of one world."""
    truth = _Truth(sealed)

    def grade(outputs: Files) -> dict[str, Fraction]:
        scores = {}
        for node, name in _TABLE_NODES.items():
            scores[node] = _share(_rows(outputs, name), truth.tables[name])
        repairs = _rows(outputs, "repairs.csv")
        for node, kind in _REPAIRS.items():
            scores[node] = _share(repairs and _concerning(kind, repairs), truth.repairs[kind])
        scores["channels"] = _object_share(_value(outputs, "channels.json"), truth.channels)
        scores["manifest"] = _manifest_share(outputs, truth.manifest)
        return scores

    return grade


# --- reading what an agent wrote: None for anything that cannot be read -------------------------------------
def _rows(outputs: Files, name: str) -> list[Row] | None:
    delimiter = "\t" if name.endswith(".tsv") else ","
    try:
        text = outputs[f"output/{name}"].decode()
        header, *rows = map(tuple, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except (KeyError, ValueError, csv.Error):  # missing, not UTF-8 or without a line, no table
        return None
    return rows if header == _HEADERS[name] else None


def _value(outputs: Files, name: str) -> Any:
    try:
        return json.loads(outputs[f"output/{name}"].decode())
    except (KeyError, ValueError, RecursionError):
        return None


# --- grading ------------------------------------------------------------------------------------------------
def _share(rows: list[Row] | None, expected: frozenset[Row]) -> Fraction:
    if rows is None:
        return _NOTHING
    right = len(expected.intersection(rows))
    return Fraction(max(0, 2 * right - len(rows)), len(expected))  # right - (rows - right)


def _concerning(kind: str, repairs: list[Row]) -> list[Row]:
    """Return the repairs that concern a kind: its own rows, rows of no kind, and repeated rows of any kind."""
    seen = Counter(repairs)
    kinds = set(_REPAIRS.values()) - {kind}
    kept = []
    for row, count in seen.items():
        foreign = len(row) == 2 and row[0] in kinds
        kept += [row] * (count - 1 if foreign else count)
    return kept


def _integer(value: Any, expected: int) -> bool:
    return type(value) is int and value == expected


def _object_share(value: Any, expected: Mapping[str, Mapping[str, int]]) -> Fraction:
    """Grade an object of objects of integers by its entries."""
    if not isinstance(value, dict):
        return _NOTHING
    right = 0
    for name, entry in expected.items():
        told = value.get(name)
        if isinstance(told, dict) and told.keys() == entry.keys():
            right += all(_integer(told[key], entry[key]) for key in entry)
    return Fraction(max(0, 2 * right - len(value)), len(expected))


def _manifest_share(outputs: Files, expected: Mapping[str, Any]) -> Fraction:
    """Grade counts and totals; a foreign key, and a foreign file in output/, spoil the package."""
    names = {f"output/{name}" for name in (*_HEADERS, "channels.json", "manifest.json")}
    value = _value(outputs, "manifest.json")
    if not outputs.keys() <= names or not isinstance(value, dict) or not value.keys() <= expected.keys():
        return _NOTHING
    rows = value.get("rows")
    if not isinstance(rows, dict) or not rows.keys() <= expected["rows"].keys():
        return _NOTHING
    right = sum(_integer(rows.get(name), count) for name, count in expected["rows"].items())
    right += sum(_integer(value.get(key), expected[key]) for key in ("sessions", "revenue_cents"))
    return Fraction(right, len(expected["rows"]) + 2)


# --- the truth ----------------------------------------------------------------------------------------------
def _told(time: int) -> str:
    whole = datetime.fromtimestamp(time // 1000, UTC).replace(tzinfo=None)
    return f"{whole.isoformat()}.{time % 1000:03}Z"


class _Truth:
    """What each node is graded against, from the world and the plan."""

    def __init__(self, sealed: Sealed) -> None:
        self.world: Traffic = sealed.world
        self.plan = sealed.plan
        self.accepted = tuple(event for event in self.world.events if not event.refused)
        self.owner = self._owners()
        insiders = {self.owner.get(token, token) for token in self.world.internal}
        chains: dict[str, list[Event]] = {}
        for event in self.accepted:
            chains.setdefault(self._who(event), []).append(event)
        public = {who: chain for who, chain in chains.items() if who not in insiders}
        sessions = [row for who, chain in public.items() for row in self._cut(who, chain)]
        credits = [row for who, chain in public.items() for row in self._credit(who, chain)]
        self.repairs = self._repairs()
        tokens = {(event.token, self._who(event)) for event in self.accepted}
        tables: dict[str, Iterable[tuple[Any, ...]]] = {
            "sources.csv": self._sources(),
            "clocks.csv": self._clocks(),
            "visitors.csv": [(token, who, "yes" if who in insiders else "no") for token, who in tokens],
            "repairs.csv": itertools.chain.from_iterable(self.repairs.values()),
            "events.csv": [self._event(who, event) for who, chain in public.items() for event in chain],
            "sessions.csv": sessions,
            "attribution.csv": credits,
            "daily.tsv": self._daily(sessions, credits),
        }
        self.tables = {name: frozenset(tuple(map(str, row)) for row in rows) for name, rows in tables.items()}
        self.channels = self._channels(sessions, credits)
        self.manifest = {
            "rows": {name: len(rows) for name, rows in self.tables.items()},
            "sessions": len(sessions),
            "revenue_cents": sum(row[3] for row in credits),
        }

    def _owners(self) -> dict[str, str]:
        """Return who stands behind a token or account; merges are followed until nothing changes any more."""
        merged = {merge.account: merge.into for merge in self.world.merges}
        while any(into in merged for into in merged.values()):
            merged = {account: merged.get(into, into) for account, into in merged.items()}
        return merged | {link.token: merged.get(link.account, link.account) for link in self.world.links}

    def _who(self, event: Event) -> str:
        return self.owner.get(event.token, event.token)

    def _event(self, who: str, event: Event) -> tuple[Any, ...]:
        page = event.page.partition("?")[0]
        return (event.id, _told(event.time), who, event.source, event.type, page, event.campaign, event.cents)

    def _touch(self, chain: list[Event], position: int) -> Event | None:
        """Return the latest event with a campaign before a position of a visitor's events."""
        return next((event for event in reversed(chain[:position]) if event.campaign), None)

    def _starts(self, chain: list[Event]) -> list[int]:
        """Return the positions at which a visitor's sessions start."""
        limit = 60_000 * self.world.timeout
        gaps = {n for n in range(1, len(chain)) if chain[n].time - chain[n - 1].time > limit}
        borne = [(n, event.campaign) for n, event in enumerate(chain) if event.campaign]
        turns = {n for n, _ in borne[:1]} | {
            n for (_, one), (n, other) in itertools.pairwise(borne) if one != other
        }
        return sorted({0} | gaps | turns)

    def _cut(self, who: str, chain: list[Event]) -> Iterable[tuple[Any, ...]]:
        starts = self._starts(chain)
        for number, (first, last) in enumerate(zip(starts, [*starts[1:], len(chain)], strict=True), 1):
            part = chain[first:last]
            campaign = next((event.campaign for event in part if event.campaign), "direct")
            times = _told(part[0].time), _told(part[-1].time)
            landing, revenue = part[0].page.partition("?")[0], sum(event.cents for event in part)
            yield (f"{who}/{number}", who, *times, len(part), landing, campaign, revenue)

    def _credit(self, who: str, chain: list[Event]) -> Iterable[tuple[Any, ...]]:
        starts, limit = self._starts(chain), 3_600_000 * self.world.lookback
        for position, event in enumerate(chain):
            if event.cents:
                touch = self._touch(chain, position + 1)
                campaign = touch.campaign if touch and event.time - touch.time <= limit else "direct"
                yield (event.id, f"{who}/{bisect.bisect_right(starts, position)}", campaign, event.cents)

    def _daily(
        self, sessions: list[tuple[Any, ...]], credits: list[tuple[Any, ...]]
    ) -> Iterable[tuple[Any, ...]]:
        orders = Counter(row[1] for row in credits)
        for day in {row[2][:10] for row in sessions}:
            rows = [row for row in sessions if row[2].startswith(day)]
            alone, bought = sum(row[4] == 1 for row in rows), sum(orders[row[0]] for row in rows)
            yield (day, len({row[1] for row in rows}), len(rows), alone, bought, sum(row[7] for row in rows))

    def _channels(
        self, sessions: list[tuple[Any, ...]], credits: list[tuple[Any, ...]]
    ) -> dict[str, dict[str, int]]:
        members: dict[str, set[str]] = {"direct": {"direct"}}
        for campaign in self.world.campaigns:
            members.setdefault(campaign.channel, set()).add(campaign.name)
        return {
            channel: {
                "sessions": sum(row[6] in names for row in sessions),
                "orders": sum(row[2] in names for row in credits),
                "revenue_cents": sum(row[3] for row in credits if row[2] in names),
                "spend_cents": sum(
                    campaign.spend for campaign in self.world.campaigns if campaign.name in names
                ),
            }
            for channel, names in members.items()
        }

    # --- the damage -------------------------------------------------------------------------------------------
    def _told_rows(self, kind: str, operator: str) -> Iterable[tuple[str, str]]:
        """Yield (path, event) of every row that was inserted into or deleted from a log."""
        for defect in self.plan:
            if (defect.kind, defect.operator) == (kind, operator):
                yield from ((defect.path, cells[0]) for _, cells in defect.parameters["rows"])

    def _lost(self) -> set[tuple[str, str]]:
        """Return (source, day) of every lost file."""
        names = (defect.path.rpartition("/")[2] for defect in self.plan if defect.operator == "lose_file")
        return {(name.partition("-")[0], name.rpartition(".")[0][-10:]) for name in names}

    def _home(self, event: Event) -> tuple[str, str]:
        return event.source, _told(event.time)[:10]

    def _repairs(self) -> dict[str, frozenset[Row]]:
        lost = self._lost()
        gone = {event.id for event in self.accepted if self._home(event) in lost}
        found = {
            "duplicate": {event for _, event in self._told_rows("duplicates", "insert_rows")},
            "late": {event for _, event in self._told_rows("late events", "insert_rows")},
            "restored": gone | {event for _, event in self._told_rows("missing rows", "delete_rows")},
        }
        return {kind: frozenset((kind, event) for event in events) for kind, events in found.items()}

    def _sources(self) -> Iterable[tuple[Any, ...]]:
        own: dict[tuple[str, str], list[str]] = {}
        for event in self.accepted:
            own.setdefault(self._home(event), []).append(event.id)
        first_columns = {layout.columns[0]: layout.name for layout in self.world.layouts}
        for source, day in own.keys() - self._lost():
            name = f"{source}-{self.world.site}-{day}." + _ENDINGS[source]
            more, fewer, layout, torn = [], [], f"{source}-1", 0
            for defect in self.plan:
                if defect.path.rpartition("/")[2] != name:
                    continue
                if defect.operator == "insert_rows":
                    more += [cells[0] for _, cells in defect.parameters["rows"]]
                elif defect.operator == "delete_rows":
                    fewer += [cells[0] for _, cells in defect.parameters["rows"]]
                elif defect.operator == "rename_columns":
                    layout = first_columns[next(iter(defect.parameters["names"].values()))]
                elif defect.operator == "insert_lines":
                    torn += len(defect.parameters["lines"])
            ids = [*own[source, day], *more]
            yield (name, layout, len(ids) - len(fewer) + torn, torn, len(set(ids) - set(fewer)))

    def _clocks(self) -> Iterable[tuple[Any, ...]]:
        readings = {
            row: datetime.fromisoformat(new) - datetime.fromisoformat(old)
            for defect in self.plan
            if defect.kind == "clock skew" and defect.operator == "replace_cells"
            for row, old, new in defect.parameters["cells"]
        }
        width = len(self.world.beats)
        for place, node in enumerate(self.world.nodes):
            before = 0
            for number, beat in enumerate(self.world.beats):
                gap = readings.get(place * width + number)
                lead = round(gap.total_seconds() * 1000) if gap else 0
                if lead != before:
                    yield (node, beat, lead)
                before = lead
