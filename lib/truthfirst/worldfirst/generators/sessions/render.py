"""Rendering: a traffic world as clean files, a pure function with an exact inverse.

    input/logs/<source>-<site>-<day>.<jsonl|csv|log>        what was logged of a source's events of a day, base layout
    input/layouts.json  event_types.csv  campaigns.csv      fields and formats; names of event types; channels
    input/heartbeats.tsv                                    what each node's clock read at each heartbeat
    input/identities.sqlite  internal.txt                   links and merges; tokens of staff and monitoring
    input/gateway.sqlite                                    every call of the api, refused ones too
    input/settings.json                                     site, timeout, lookback
    input/cache/daily.tsv                                   what an earlier run reported, of old data

`recover` reads the world back from these files; what stands in two places must agree.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote, unquote

from ...tables import Cell, Table, decode, decode_sqlite, encode, encode_sqlite
from ...world import INPUT, Files, WorldError
from .sample import day_of, iso, milliseconds
from .world import FIELDS, SOURCES, Campaign, Event, Layout, Link, Meaning, Merge, Report, Traffic

ENDINGS = {"web": "jsonl", "app": "csv", "api": "log"}
_DAILY = ("day", "visitors", "sessions", "bounces", "orders", "revenue_cents")
_CALLS = ("event_id", "at_ms", "node", "account", "type", "page", "amount_cents", "status")
_CALL_TYPES = ("TEXT", "INTEGER", "TEXT", "TEXT", "TEXT", "TEXT", "INTEGER", "TEXT")
_CAMPAIGN = "utm_campaign="
_PAGE = 512  # bytes of a page of a database, so that small ones are small


def log_path(world: Traffic, source: str, day: str) -> str:
    """Return the path of the log file of a source and day."""
    return f"{INPUT}logs/{source}-{world.site}-{day}.{ENDINGS[source]}"


def render(world: Traffic) -> dict[str, bytes]:
    """Return the clean files."""
    files: dict[str, bytes] = {}
    by_file: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in world.events:
        if not event.refused:
            by_file[event.source, day_of(event.time)].append(event)
    for source in SOURCES:
        layout = base_layout(world, source)
        for day in world.days:
            path = log_path(world, source, day)
            rows = tuple(_line(event, layout.stamps) for event in by_file[source, day])
            files[path] = encode(Table(layout.columns, rows), path)
    beats = [(node, beat, beat) for node in world.nodes for beat in world.beats]
    for name, columns, rows_ in (
        ("heartbeats.tsv", ("node", "at", "reads"), beats),
        ("event_types.csv", ("source", "name", "since", "type"), [_told(m) for m in world.meanings]),
        ("campaigns.csv", ("campaign", "channel", "spend_cents"), [_told(c) for c in world.campaigns]),
        ("cache/daily.tsv", _DAILY, [(report.day, *map(str, report.figures)) for report in world.cache]),
    ):
        files[INPUT + name] = encode(Table(columns, tuple(rows_)), name)
    layouts = {layout.name: _layout(layout) for layout in world.layouts}
    settings = {"site": world.site, "timeout_minutes": world.timeout, "lookback_hours": world.lookback}
    told = ",\n".join(f'"{name}": {json.dumps(layout)}' for name, layout in layouts.items())
    files[f"{INPUT}layouts.json"] = ("{\n" + told + "\n}\n").encode()
    files[f"{INPUT}settings.json"] = (json.dumps(settings, indent=1) + "\n").encode()
    files[f"{INPUT}internal.txt"] = "".join(f"{token}\n" for token in world.internal).encode()
    files[f"{INPUT}identities.sqlite"] = encode_sqlite(
        {
            "links": Table(("token", "account"), tuple((link.token, link.account) for link in world.links)),
            "merges": Table(("account", "merged_into"), tuple((m.account, m.into) for m in world.merges)),
        },
        {"links": ("TEXT", "TEXT"), "merges": ("TEXT", "TEXT")},
        page_size=_PAGE,
    )
    calls = sorted(_call(event) for event in world.events if event.source == "api")
    files[f"{INPUT}gateway.sqlite"] = encode_sqlite(
        {"calls": Table(_CALLS, tuple(calls))}, {"calls": _CALL_TYPES}, page_size=_PAGE
    )
    return files


def base_layout(world: Traffic, source: str) -> Layout:
    """Return the layout that clean files of a source are in."""
    return next(layout for layout in world.layouts if layout.source == source)


def stamp(time: int, told: str) -> str:
    """Return a time as a stamp: iso, ms or s (seconds with three decimals)."""
    if told == "iso":
        return iso(time)
    return str(time) if told == "ms" else f"{time // 1000}.{time % 1000:03d}"


def unstamp(text: str, told: str) -> int:
    """Return the time that a stamp tells."""
    if told != "iso":
        return int(text.replace(".", ""))
    day, _, clock = text.removesuffix("Z").partition("T")
    hours, minutes, seconds = clock.split(":")
    return milliseconds(day) + (int(hours) * 60 + int(minutes)) * 60_000 + int(seconds.replace(".", ""))


def _told(entry: Meaning | Campaign) -> tuple[str, ...]:
    return tuple(str(getattr(entry, name)) for name in entry.__slots__)


def _layout(layout: Layout) -> dict[str, object]:
    fields = dict(zip(FIELDS, layout.columns, strict=True))
    return {"source": layout.source, "fields": fields, "stamp": layout.stamps, "amount": layout.amounts}


def _line(event: Event, stamps: str) -> tuple[str, ...]:
    url = event.page
    if event.campaign:
        url += ("&" if "?" in url else "?") + _CAMPAIGN + quote(event.campaign, safe="")
    amount = str(event.cents) if event.type == "purchase" else ""
    return (event.id, "1", stamp(event.time, stamps), event.node, event.token, event.type, url, amount)


def _call(event: Event) -> tuple[Cell, ...]:
    status = "refused" if event.refused else "accepted"
    return (event.id, event.time, event.node, event.token, event.type, event.page, event.cents, status)


def recover(files: Files) -> Traffic:
    """Return the world whose clean files these are. Raises WorldError where they disagree with each other."""

    def rows(name: str) -> Sequence[tuple[str, ...]]:
        return [tuple(map(str, row)) for row in decode(files[INPUT + name], name).rows]

    settings, layouts = (json.loads(files[f"{INPUT}{name}.json"]) for name in ("settings", "layouts"))
    logs = sorted(path for path in files if path.startswith(f"{INPUT}logs/"))
    stamps = {
        source: next(told["stamp"] for told in layouts.values() if told["source"] == source)
        for source in SOURCES
    }
    events = []
    for path in logs:
        source = path.removeprefix(f"{INPUT}logs/")[:3]
        events += [
            _event(source, tuple(map(str, row)), stamps[source]) for row in decode(files[path], path).rows
        ]
    calls = [_called(row) for row in decode_sqlite(files[f"{INPUT}gateway.sqlite"])["calls"].rows]
    accepted = sorted((event for event in calls if not event.refused), key=_place)
    if accepted != sorted((event for event in events if event.source == "api"), key=_place):
        raise WorldError("the clean logs of the api do not agree with the gateway")
    identities = decode_sqlite(files[f"{INPUT}identities.sqlite"])
    beats = rows("heartbeats.tsv")
    world = Traffic(
        settings["site"],
        settings["timeout_minutes"],
        settings["lookback_hours"],
        tuple(sorted({path.rpartition(".")[0][-10:] for path in logs})),
        tuple(dict.fromkeys(row[0] for row in beats)),
        tuple(dict.fromkeys(row[1] for row in beats)),
        tuple(Link(*map(str, row)) for row in identities["links"].rows),
        tuple(Merge(*map(str, row)) for row in identities["merges"].rows),
        tuple(files[f"{INPUT}internal.txt"].decode().split()),
        tuple(Campaign(name, channel, int(spend)) for name, channel, spend in rows("campaigns.csv")),
        tuple(Meaning(*row) for row in rows("event_types.csv")),
        tuple(
            Layout(name, told["source"], tuple(told["fields"].values()), told["stamp"], told["amount"])
            for name, told in layouts.items()
        ),
        tuple(Report(day, tuple(map(int, figures))) for day, *figures in rows("cache/daily.tsv")),
        tuple(sorted([*events, *(event for event in calls if event.refused)], key=_place)),
    )
    if any(row[1] != row[2] for row in beats):
        raise WorldError("a clock is wrong in the clean heartbeats")
    return world


def _place(event: Event) -> tuple[int, str]:
    return event.time, event.id


def _event(source: str, row: tuple[str, ...], stamps: str) -> Event:
    identity, _, when, node, token, name, url, amount = row
    page, mark, campaign = url.partition(_CAMPAIGN)
    page = page[:-1] if mark else page
    cents = int(amount) if amount else 0
    return Event(
        identity, source, node, token, unstamp(when, stamps), name, page, unquote(campaign), cents, False
    )


def _called(row: tuple[Cell, ...]) -> Event:
    identity, time, node, token, name, page, cents, status = map(str, row)
    return Event(identity, "api", node, token, int(time), name, page, "", int(cents), status == "refused")
