"""Sampling of a traffic world, and its invariants.

People hold cookies, devices and accounts; accounts were merged, some in two steps. Each visit is a burst of events of
one person, on the web or in the app, at times with calls of the api. Gaps of exactly the timeout and of one millisecond
more occur on purpose, as do equal times, visits over midnight and changes of campaign within a visit. Around each
heartbeat nothing happens, so that a wrong clock never puts an event on the other side of it. Identities are drawn, so
that no two seeds share them. Every tier holds each case that the damage needs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

import numpy as np

from ...world import WorldError
from .world import FIELDS, SOURCES, TYPES, Campaign, Event, Layout, Link, Meaning, Merge, Report, Traffic

REVISION = 2


@dataclass(frozen=True, slots=True)
class Size:
    """How large a world is.

    visits   a day's; pages: most views, searches and carts of one
    nodes    of each source; names: other names of each of its event types
    """

    days: int
    people: int
    visits: int
    pages: int = 5
    nodes: int = 2
    names: int = 2


SIZES = {
    "nano": Size(2, 5, 4, 2, 1, 1),
    "unit": Size(3, 20, 23),
    "small": Size(4, 50, 62),
    "full": Size(7, 130, 126),
}

MINUTE, DAY = 60_000, 86_400_000
QUIET = (
    10 * MINUTE
)  # no event this close to a heartbeat; no clock is ahead or behind by as much as half of it
_T = TypeVar("_T")
_EPOCH = date(1970, 1, 1)
_BEAT = 4 * 60 * MINUTE  # heartbeats are at 04:00

_STAMPS = {"web": ("iso", "ms"), "app": ("ms", "iso"), "api": ("s", "ms")}
_COLUMN_POOLS = (
    ("event_id", "id", "eid", "uid", "evt", "event_ref"),
    ("attempt", "try", "retry", "delivery", "sent_no", "round"),
    ("stamp", "ts", "time", "at", "clock", "logged"),
    ("node", "host", "collector", "server", "edge", "machine"),
    ("token", "visitor", "who", "user", "principal", "client"),
    ("name", "event", "action", "kind", "op", "what"),
    ("url", "link", "location", "target", "resource", "address"),
    ("amount", "value", "total", "money", "sum", "price"),
)
_NAMES = "open hit look tap add basket order pay find query show buy-now scan item charge commit".split()
_CAMPAIGNS = (
    "spring sale",
    "süd aktion",
    "kids+family",
    "50% off",
    "brand=care",
    "loyal",
    "reopening",
    "garden & home",
)
_CHANNELS = ("email", "search", "social", "partner")
_WORDS = ("lamp", "red rug", "oak table", "set of 4", "tea & milk")


@dataclass(frozen=True, slots=True)
class _Person:
    cookies: tuple[str, ...]
    device: str
    accounts: tuple[str, ...]  # each went into the next one


def sample(rng: np.random.Generator, tier: str) -> Traffic:
    """Draw a world of a tier."""
    size = SIZES[tier]
    first = date(2021, 1, 1) + timedelta(days=int(rng.integers(3_000)))
    days = tuple((first + timedelta(days=number)).isoformat() for number in range(size.days))
    people = _people(rng, size.people)
    links = sorted((t, a) for person in people for t, a in _links(rng, person))
    merges = sorted(
        pair for person in people for pair in zip(person.accounts, person.accounts[1:], strict=False)
    )
    campaigns = tuple(
        Campaign(name, _CHANNELS[number % len(_CHANNELS)], int(rng.integers(1_000, 90_000)))
        for number, name in enumerate(_some(rng, _CAMPAIGNS, 5))
    )
    nodes = _identities(rng, "n", 4, size.nodes * len(SOURCES))
    timeout = int(rng.choice([20, 25, 30, 40]))
    drawn = Traffic(
        site=f"{int(rng.integers(16**4)):04x}",
        timeout=timeout,
        lookback=int(rng.choice([4, 6, 8, 12])),
        days=days,
        nodes=tuple(sorted(nodes)),
        beats=tuple(
            f"{(first + timedelta(days=number)).isoformat()}T04:00:00.000Z" for number in range(-1, size.days)
        ),
        links=tuple(Link(*pair) for pair in links),
        merges=tuple(Merge(*pair) for pair in merges),
        internal=tuple(sorted((people[3].cookies[0], people[4].device))),
        campaigns=campaigns,
        meanings=_meanings(rng, days, size.names),
        layouts=_layouts(rng),
        cache=tuple(
            Report(day, tuple(int(n) for n in rng.integers(1, (99, 99, 50, 40, 2**21)))) for day in days
        ),
        events=(),
    )
    events = _events(
        rng, size, drawn, people, {source: nodes[n :: len(SOURCES)] for n, source in enumerate(SOURCES)}
    )
    return replace(drawn, events=events)


def milliseconds(day: str) -> int:
    """Return the first millisecond of a day."""
    return (date.fromisoformat(day) - _EPOCH).days * DAY


def day_of(time: int) -> str:
    """Return the day of a time."""
    return (_EPOCH + timedelta(days=time // DAY)).isoformat()


def beat_of(world: Traffic, time: int) -> int:
    """Return the position of the latest heartbeat before a time."""
    return max(n for n, beat in enumerate(world.beats) if milliseconds(beat[:10]) + _BEAT <= time)


def _near_beat(time: int) -> bool:
    """Say whether a time is so close to a heartbeat that nothing may happen then."""
    since = (time - _BEAT) % DAY
    return min(since, DAY - since) < QUIET


def iso(time: int) -> str:
    """Return a time as ISO text with milliseconds."""
    told = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
    return told.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _some(rng: np.random.Generator, pool: tuple[_T, ...] | list[_T], count: int) -> list[_T]:
    return [pool[int(position)] for position in rng.permutation(len(pool))[:count]]


def _pick(rng: np.random.Generator, pool: tuple[_T, ...] | list[_T]) -> _T:
    return pool[int(rng.integers(len(pool)))]


def _identities(rng: np.random.Generator, prefix: str, digits: int, count: int) -> list[str]:
    return [f"{prefix}{int(n):0{digits}x}" for n in rng.choice(16**digits, size=count, replace=False)]


def _people(rng: np.random.Generator, count: int) -> list[_Person]:
    """Return people: one or two cookies, every second one a device, up to three accounts, every fifth none."""
    cookies = iter(_identities(rng, "ck", 6, 2 * count))
    devices = iter(_identities(rng, "dv", 6, count))
    accounts = iter(_identities(rng, "ac", 6, 3 * count))
    made = []
    for number in range(count):
        made.append(
            _Person(
                tuple(next(cookies) for _ in range(1 + (number % 3 == 1))),
                next(devices) if number % 2 == 0 else "",
                tuple(next(accounts) for _ in range((1, 2, 3, 1, 0)[number % 5])),
            )
        )
    return made


def _links(rng: np.random.Generator, person: _Person) -> list[tuple[str, str]]:
    """Return the links of a person's cookies and device, each to any of the accounts, if there are any."""
    tokens = [token for token in (*person.cookies, person.device) if token and person.accounts]
    return [(token, _pick(rng, person.accounts)) for token in tokens]


def _meanings(rng: np.random.Generator, days: tuple[str, ...], count: int) -> tuple[Meaning, ...]:
    """Return so many names for every type and source, and for every source one name that changes its meaning midway."""
    early, midway = (date.fromisoformat(days[0]) - timedelta(days=90)).isoformat(), days[len(days) // 2]
    made = []
    for source in SOURCES:
        names = iter(_some(rng, _NAMES, len(_NAMES)))
        made += [Meaning(source, next(names), early, type_) for type_ in TYPES for _ in range(count)]
        before, after = _some(rng, TYPES, 2)
        name = next(names)
        made += [Meaning(source, name, early, before), Meaning(source, name, midway, after)]
    return tuple(sorted(made, key=lambda meaning: (meaning.source, meaning.name, meaning.since)))


def _layouts(rng: np.random.Generator) -> tuple[Layout, ...]:
    """Return two layouts a source; all differ in every column name."""
    orders = [rng.permutation(len(pool)) for pool in _COLUMN_POOLS]
    made = []
    for number in range(2 * len(SOURCES)):
        source, late = SOURCES[number // 2], number % 2
        columns = tuple(pool[int(order[number])] for pool, order in zip(_COLUMN_POOLS, orders, strict=True))
        made.append(
            Layout(f"{source}-{late + 1}", source, columns, _STAMPS[source][late], ("cents", "decimal")[late])
        )
    return tuple(made)


def _events(
    rng: np.random.Generator, size: Size, world: Traffic, people: list[_Person], nodes: dict[str, list[str]]
) -> tuple[Event, ...]:
    """Return the events of all visits; two of the first day and every thirteenth are of internal people."""
    made: list[Event] = []
    public = [person for number, person in enumerate(people) if number not in (3, 4)]
    for day in world.days:
        for visit in range(size.visits):
            calls, app = visit % 3 == 0, visit % 2 == 1
            pool = [p for p in public if (p.device or not app) and (p.accounts or not calls)]
            staff = visit % 13 == 12 or (visit < 2 and day == world.days[0])
            person = people[3 + visit % 2] if staff else _pick(rng, pool)
            start, calls = milliseconds(day), calls and bool(person.accounts)
            made += _visit(rng, world, person, nodes, start, visit, size.pages, calls)
    numbers = _identities(rng, "e", 6, len(made))
    named = [replace(event, id=name) for event, name in zip(made, numbers, strict=True)]
    return tuple(sorted(named, key=lambda event: (event.time, event.id)))


def _visit(
    rng: np.random.Generator,
    world: Traffic,
    person: _Person,
    nodes: dict[str, list[str]],
    midnight: int,
    visit: int,
    pages: int,
    calls: bool,
) -> list[Event]:
    """Return the events of one visit, without identities, up to the end of the last day or to the next heartbeat."""
    timeout, end = world.timeout * MINUTE, milliseconds(world.days[-1]) + DAY
    app = bool(visit % 2 and person.device)
    token = person.device if app else _pick(rng, person.cookies)
    kinds = [
        "view",
        *(_pick(rng, ("view", "search", "cart")) for _ in range(int(rng.integers(2, pages + 1)))),
    ]
    plan = [("app" if app else "web", kind) for kind in kinds]
    plan += [("app", "purchase")] * (app and visit % 4 == 1) + [("api", "cart"), ("api", "purchase")] * calls
    if calls and visit % 2 == 0:
        plan.insert(1, ("api", "view"))
    if visit % 7 == 6:  # before the heartbeat; the first two never reach the end of the day
        start = rng.integers(0, _BEAT - 2 * QUIET)
    else:
        start = rng.integers(_BEAT + QUIET, DAY if visit > 1 else DAY * 3 // 4)
    time = midnight + int(start)
    made = []
    for number, (source, kind) in enumerate(plan):
        if number:
            gap = int(rng.integers(3_000, 6 * MINUTE))
            chance = rng.random()
            if chance < 0.12:
                gap = timeout + (chance < 0.06)
            elif chance < 0.16:
                gap = 0
            if number == 2 and visit % 4 >= 2:  # both sides of the limit, in every tier
                gap = timeout + visit % 4 - 2
            time += gap
        if time >= end or _near_beat(time):
            break
        campaign = _pick(rng, world.campaigns).name if rng.random() < (0.05 if number else 0.35) else ""
        made.append(
            Event(
                id="",
                source=source,
                node=_pick(rng, nodes[source]),
                token=_pick(rng, person.accounts) if source == "api" else token,
                time=time,
                type=kind,
                page=_page(rng, kind),
                campaign=campaign if source != "api" else "",
                cents=int(rng.integers(300, 40_000)) if kind == "purchase" else 0,
                refused=source == "api" and visit % 5 == 3,
            )
        )
    return made


def _page(rng: np.random.Generator, kind: str) -> str:
    if kind == "search":
        return "/search?q=" + _pick(rng, _WORDS).replace("&", "%26").replace(" ", "+")
    return {"view": f"/p/{int(rng.integers(100, 1_000))}", "cart": "/cart", "purchase": "/pay"}[kind]


def check(world: Traffic) -> None:
    """Raise WorldError unless identities are unique, references resolve and times keep clear of the heartbeats."""
    identities: dict[str, list[Any]] = {
        "event": [event.id for event in world.events],
        "link": [link.token for link in world.links],
        "merge": [merge.account for merge in world.merges],
        "campaign": [campaign.name for campaign in world.campaigns],
        "meaning": [(entry.source, entry.name, entry.since) for entry in world.meanings],
        "column": [column for layout in world.layouts for column in layout.columns],
    }
    for what, keys in identities.items():
        if repeated := [key for key, count in Counter(keys).items() if count > 1]:
            raise WorldError(f"{what} {repeated[0]!r} occurs more than once: it must be unique")
    campaigns = {campaign.name for campaign in world.campaigns} | {""}
    for event in world.events:
        if (
            event.node not in world.nodes
            or event.campaign not in campaigns
            or day_of(event.time) not in world.days
        ):
            raise WorldError(f"event {event.id} names a node, campaign or day that does not exist: {event}")
        if _near_beat(event.time):
            raise WorldError(f"event {event.id} is too close to a heartbeat: {event}")
        if (event.cents > 0) != (event.type == "purchase") or (event.refused and event.source != "api"):
            raise WorldError(
                f"event {event.id} has an amount without a purchase or is refused outside the api: {event}"
            )
    into = {merge.account: merge.into for merge in world.merges}
    for account in into:
        seen = {account}
        while (account := into.get(account, "")) and account not in seen:
            seen.add(account)
        if account:
            raise WorldError(f"account {account!r} was merged into itself")
    cells = {(source, day) for source in SOURCES for day in world.days}
    held = {(event.source, day_of(event.time)) for event in world.events if not event.refused}
    if empty := sorted(cells - held):
        raise WorldError(f"no event of {empty[0][0]} on {empty[0][1]}: every log file needs some")
    if any(len(layout.columns) != len(FIELDS) for layout in world.layouts):
        raise WorldError(f"every layout needs {len(FIELDS)} columns")
