"""The strict verifier of sessionised traffic: every deliverable against the world, all or nothing.

What is right follows from the world and the defect plan alone, never from a solver or from public files. Tables are
compared as multisets of rows of text, so the order of rows, quoting and line ends do not matter; JSON as values, so
spaces and the order of keys do not matter, but 1.0 and true are not 1.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ...world import Files, Sealed, Verdict, Verify
from .world import Event, Traffic

COMPONENTS = (
    "sources",
    "clocks",
    "identity",
    "repairs",
    "events",
    "sessions",
    "attribution",
    "reports",
    "package",
)
_TABLES = {  # file -> (component, header)
    "sources.csv": ("sources", "file layout lines torn distinct_ids"),
    "clocks.csv": ("clocks", "node since lead_ms"),
    "visitors.csv": ("identity", "token visitor internal"),
    "repairs.csv": ("repairs", "kind event_id"),
    "events.csv": ("events", "event_id time visitor source type page campaign amount_cents"),
    "sessions.csv": ("sessions", "session_id visitor start end events landing campaign revenue_cents"),
    "attribution.csv": ("attribution", "event_id session_id campaign amount_cents"),
    "daily.tsv": ("reports", "day visitors sessions bounces orders revenue_cents"),
}
_OBJECTS = {"channels.json": "reports", "manifest.json": "package"}
Rows = Counter[tuple[str, ...]]


def verifier(sealed: Sealed) -> Verify:
    """Return the verifier of one world."""
    truth = _Truth(sealed)
    tables, objects = truth.tables, truth.objects

    def verify(outputs: Files) -> Verdict:
        components, reasons = dict.fromkeys(COMPONENTS, True), []
        names = {path.removeprefix("output/") for path in outputs}
        found = [
            ("package", f"{name!r} is no deliverable")
            for name in sorted(names - set(_TABLES) - set(_OBJECTS))
        ]
        for name, (component, header) in _TABLES.items():
            problem = _table_problem(outputs.get(f"output/{name}"), name, header.split(), tables[name])
            found += [(component, f"{name}: {problem}")] if problem else []
        for name, component in _OBJECTS.items():
            problem = _object_problem(outputs.get(f"output/{name}"), objects[name])  # type: ignore[arg-type]
            found += [(component, f"{name}: {problem}")] if problem else []
        for component, reason in found:
            components[component] = False
            reasons.append(reason)
        return Verdict(components, tuple(reasons))

    return verify


# --- comparing --------------------------------------------------------------------------------------------
def _table_problem(data: bytes | None, name: str, header: list[str], expected: Rows) -> str | None:
    """Return what is wrong with a table, or None."""
    if data is None:
        return "missing"
    try:
        text = io.StringIO(data.decode("utf-8"), newline="")
        lines = list(csv.reader(text, delimiter="\t" if name.endswith(".tsv") else ","))
    except (UnicodeDecodeError, csv.Error) as error:
        return f"not a table ({type(error).__name__})"
    if not lines or lines[0] != header:
        return "another header"
    found = Counter(map(tuple, lines[1:]))
    if found == expected:
        return None
    return f"{(expected - found).total()} rows missing, {(found - expected).total()} rows too many"


def _object_problem(data: bytes | None, expected: dict[str, Any]) -> str | None:
    """Return what is wrong with a JSON file, or None."""
    if data is None:
        return "missing"
    try:
        found = json.dumps(json.loads(data.decode("utf-8")), sort_keys=True)
    except (ValueError, TypeError, RecursionError) as error:
        return f"not JSON ({type(error).__name__})"
    return None if found == json.dumps(expected, sort_keys=True) else "other values"


# --- what is right ----------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Session:
    """A session in the making."""

    name: str
    visitor: str
    campaign: str = ""
    events: list[Event] = field(default_factory=list)

    @property
    def revenue(self) -> int:
        return sum(event.cents for event in self.events)

    @property
    def orders(self) -> int:
        return sum(event.type == "purchase" for event in self.events)


def _iso(time: int) -> str:
    told = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
    return f"{told:%Y-%m-%dT%H:%M:%S}.{time % 1000:03d}Z"


class _Truth:
    """The expected tables and objects of a world, by file name."""

    def __init__(self, sealed: Sealed) -> None:
        world: Traffic = sealed.world
        self.world, self.plan = world, sealed.plan
        self.real = [event for event in world.events if not event.refused]
        self.visitors = self._visitors()
        staff = {self.visitors[token] for token in world.internal}
        public = [event for event in self.real if self.visitors[event.token] not in staff]
        sessions, credits = self._sessions(public)
        sources, repairs = self._damage()
        rows: dict[str, list[tuple[Any, ...]]] = {
            "sources.csv": sources,
            "clocks.csv": self._clocks(),
            "visitors.csv": [
                (token, visitor, "yes" if visitor in staff else "no")
                for token, visitor in (
                    (token, self.visitors[token]) for token in {e.token for e in self.real}
                )
            ],
            "repairs.csv": repairs,
            "events.csv": [self._event_row(event) for event in public],
            "sessions.csv": [self._session_row(session) for session in sessions],
            "attribution.csv": [(e.id, name, campaign, e.cents) for e, name, campaign in credits],
            "daily.tsv": self._daily(sessions),
        }
        self.tables = {name: Counter(tuple(map(str, row)) for row in found) for name, found in rows.items()}
        manifest = {
            "rows": {name: len(found) for name, found in rows.items()},
            "sessions": len(sessions),
            "revenue_cents": sum(event.cents for event in public),
        }
        self.objects = {"channels.json": self._channels(sessions, credits), "manifest.json": manifest}

    def _visitors(self) -> dict[str, str]:
        """Return the visitor of every token and account there is."""
        into = {merge.account: merge.into for merge in self.world.merges}
        into |= {link.token: link.account for link in self.world.links}
        found = {}
        for token in {*into, *into.values(), *self.world.internal, *(event.token for event in self.real)}:
            visitor = token
            while visitor in into:
                visitor = into[visitor]
            found[token] = visitor
        return found

    def _sessions(self, public: list[Event]) -> tuple[list[_Session], list[tuple[Event, str, str]]]:
        """Return the sessions, and for every purchase its session and the campaign that is credited."""
        timeout, lookback = self.world.timeout * 60_000, self.world.lookback * 3_600_000
        running: dict[str, _Session] = {}
        touches: dict[str, Event] = {}
        counts: Counter[str] = Counter()
        sessions, credits = [], []
        for event in public:  # in order of (time, id), as the world holds them
            visitor = self.visitors[event.token]
            session, touch = running.get(visitor), touches.get(visitor)
            new = bool(event.campaign) and (touch is None or touch.campaign != event.campaign)
            if session is None or event.time > session.events[-1].time + timeout or new:
                counts[visitor] += 1
                session = running[visitor] = _Session(f"{visitor}/{counts[visitor]}", visitor)
                sessions.append(session)
            if event.campaign:
                touch = touches[visitor] = event
                session.campaign = event.campaign
            session.events.append(event)
            if event.type == "purchase":
                recent = touch is not None and event.time <= touch.time + lookback
                credits.append((event, session.name, touch.campaign if touch and recent else "direct"))
        return sessions, credits

    def _event_row(self, event: Event) -> tuple[Any, ...]:
        told = (event.id, _iso(event.time), self.visitors[event.token], event.source, event.type)
        return (*told, event.page.split("?")[0], event.campaign, event.cents)

    def _session_row(self, session: _Session) -> tuple[Any, ...]:
        first, last = session.events[0], session.events[-1]
        told = (session.name, session.visitor, _iso(first.time), _iso(last.time), len(session.events))
        return (*told, first.page.split("?")[0], session.campaign or "direct", session.revenue)

    def _daily(self, sessions: list[_Session]) -> list[tuple[Any, ...]]:
        days: dict[str, list[_Session]] = defaultdict(list)
        for session in sessions:
            days[_iso(session.events[0].time)[:10]].append(session)
        rows = []
        for day, group in days.items():
            bounces, orders = sum(len(s.events) == 1 for s in group), sum(s.orders for s in group)
            visitors = {s.visitor for s in group}
            rows.append((day, len(visitors), len(group), bounces, orders, sum(s.revenue for s in group)))
        return rows

    def _channels(
        self, sessions: list[_Session], credits: list[tuple[Event, str, str]]
    ) -> dict[str, dict[str, int]]:
        channel = {campaign.name: campaign.channel for campaign in self.world.campaigns} | {
            "direct": "direct"
        }
        sums = {
            name: dict.fromkeys(("sessions", "orders", "revenue_cents", "spend_cents"), 0)
            for name in channel.values()
        }
        for campaign in self.world.campaigns:
            sums[campaign.channel]["spend_cents"] += campaign.spend
        for session in sessions:
            sums[channel[session.campaign or "direct"]]["sessions"] += 1
        for event, _, name in credits:
            sums[channel[name]]["orders"] += 1
            sums[channel[name]]["revenue_cents"] += event.cents
        return sums

    def _clocks(self) -> list[tuple[Any, ...]]:
        """Return the rows of clocks.csv: the heartbeats as the plan left them, node by node."""
        beats = [(node, beat) for node in self.world.nodes for beat in self.world.beats]
        leads = [0] * len(beats)
        for defect in self.plan:
            if defect.path == "input/heartbeats.tsv" and defect.operator == "replace_cells":
                for row, true, reading in defect.parameters["cells"]:
                    gap = datetime.fromisoformat(reading) - datetime.fromisoformat(true)
                    leads[row] = gap // timedelta(milliseconds=1)
        rows, first = [], self.world.beats[0]
        for number, (node, beat) in enumerate(beats):
            if leads[number] != (0 if beat == first else leads[number - 1]):
                rows.append((node, beat, leads[number]))
        return rows

    def _damage(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Return the rows of sources.csv and repairs.csv: the plan followed on the identities in each file."""
        base = {layout.source: layout.name for layout in reversed(self.world.layouts)}
        by_columns = {layout.columns: layout.name for layout in self.world.layouts}
        ending = {"web": "jsonl", "app": "csv", "api": "log"}
        held: dict[str, list[str]] = {}
        layouts: dict[str, str] = {}
        for event in self.real:
            path = (
                f"input/logs/{event.source}-{self.world.site}-{_iso(event.time)[:10]}.{ending[event.source]}"
            )
            held.setdefault(path, []).append(event.id)
            layouts[path] = base[event.source]
        torn: Counter[str] = Counter()
        late: set[str] = set()
        for defect in self.plan:
            path, told = defect.path, defect.parameters
            if defect.operator == "insert_rows":
                for position, cells in told["rows"]:
                    held[path].insert(position, cells[0])
                late |= {cells[0] for _, cells in told["rows"] if defect.kind == "late events"}
            elif defect.operator == "delete_rows":
                for position, _ in reversed(told["rows"]):
                    del held[path][position]
            elif defect.operator == "permute_rows":
                held[path] = [held[path][position] for position in told["order"]]
            elif defect.operator == "rename_columns":
                layouts[path] = by_columns[tuple(told["names"].values())]
            elif defect.operator == "lose_file":
                del held[path]
            elif defect.operator == "insert_lines":
                torn[path] += len(told["lines"])
        counts = Counter(identity for ids in held.values() for identity in ids)
        sources: list[tuple[Any, ...]] = [
            (path.split("/")[-1], layouts[path], len(ids) + torn[path], torn[path], len(set(ids)))
            for path, ids in held.items()
        ]
        repairs: list[tuple[Any, ...]] = [
            ("duplicate", identity) for identity in counts if counts[identity] > 1
        ]
        repairs += [("late", identity) for identity in late]
        repairs += [("restored", event.id) for event in self.real if not counts[event.id]]
        return sources, repairs
