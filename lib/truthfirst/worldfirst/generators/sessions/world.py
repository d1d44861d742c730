"""The traffic world: what visitors of a shop did, and everything around it that the files show. Types only.

Times are milliseconds since 1970 in UTC, days and heartbeats ISO text, money integer cents, identities text.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = ("web", "app", "api")
TYPES = ("view", "search", "cart", "purchase")
FIELDS = ("event_id", "attempt", "stamp", "node", "token", "name", "url", "amount")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a visitor did.

    token     cookie, device or account that it was done with
    page      path and query, without the campaign
    campaign  name, or "" where the visitor came by none
    cents     of a purchase, otherwise 0
    refused   the gateway refused this call of the api: it never happened and no log holds it
    """

    id: str
    source: str
    node: str
    token: str
    time: int
    type: str
    page: str
    campaign: str
    cents: int
    refused: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A cookie or device that belongs to an account."""

    token: str
    account: str


@dataclass(frozen=True, slots=True)
class Merge:
    """An account that went into another one, which may have gone into a third one later."""

    account: str
    into: str


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign with its channel and what was spent on it, in cents."""

    name: str
    channel: str
    spend: int


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a source means by a name from a day on, until the next entry for the same source and name."""

    source: str
    name: str
    since: str
    type: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How a log file of a source may be laid out: names of FIELDS in order, format of stamps, unit of amounts."""

    name: str
    source: str
    columns: tuple[str, ...]
    stamps: str
    amounts: str


@dataclass(frozen=True, slots=True)
class Report:
    """A day of a report that an earlier run left: visitors, sessions, bounces, orders, revenue, all out of date."""

    day: str
    figures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The whole truth.

    timeout    minutes without an event that end a session when they are exceeded
    lookback   hours over which a campaign is credited with a purchase
    beats      times at which every node noted what its clock read
    internal   tokens and accounts of staff and monitoring
    layouts    two a source: the one that clean files are in, and a later one
    events     sorted by (time, id)
    """

    site: str
    timeout: int
    lookback: int
    days: tuple[str, ...]
    nodes: tuple[str, ...]
    beats: tuple[str, ...]
    links: tuple[Link, ...]
    merges: tuple[Merge, ...]
    internal: tuple[str, ...]
    campaigns: tuple[Campaign, ...]
    meanings: tuple[Meaning, ...]
    layouts: tuple[Layout, ...]
    cache: tuple[Report, ...]
    events: tuple[Event, ...]
