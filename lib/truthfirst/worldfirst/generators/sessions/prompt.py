"""The public contract of traffic logs: what an agent reads, made from public files only."""

from __future__ import annotations

import json

from ...world import Deliverable, Files

DELIVERABLES = (
    Deliverable(
        "output/sources.csv",
        "csv",
        ("file", "layout", "lines", "torn", "distinct_ids"),
        "one row a log file as delivered: name without folder, layout, lines without a CSV header, torn ones among "
        "them, different ids in whole lines; by file",
    ),
    Deliverable(
        "output/clocks.csv",
        "csv",
        ("node", "since", "lead_ms"),
        "one row a heartbeat at which a node's lead differs from that at its heartbeat before (at first: from 0); "
        "since is the true time; by node, since",
    ),
    Deliverable(
        "output/visitors.csv",
        "csv",
        ("token", "visitor", "internal"),
        "one row a token of a whole line or an accepted call; internal: yes or no; by token",
    ),
    Deliverable(
        "output/repairs.csv",
        "csv",
        ("kind", "event_id"),
        "one row for each of: duplicate (more than one whole line), late (standing line in the file of a later day "
        "than that of the event's time), restored (rule 2); by kind, id",
    ),
    Deliverable(
        "output/events.csv",
        "csv",
        ("event_id", "time", "visitor", "source", "type", "page", "campaign", "amount_cents"),
        "one row an event that is not internal; campaign blank and amount 0 where there is none; by time, id",
    ),
    Deliverable(
        "output/sessions.csv",
        "csv",
        ("session_id", "visitor", "start", "end", "events", "landing", "campaign", "revenue_cents"),
        "one row a session; landing: page of its first event; revenue: of its purchases; by visitor, then number",
    ),
    Deliverable(
        "output/attribution.csv",
        "csv",
        ("event_id", "session_id", "campaign", "amount_cents"),
        "one row a purchase with the campaign that is credited (rule 8); by id",
    ),
    Deliverable(
        "output/daily.tsv",
        "tsv",
        ("day", "visitors", "sessions", "bounces", "orders", "revenue_cents"),
        "sums over the sessions that start on a day: different visitors, sessions, those with one event, their "
        "purchases and revenue; by day",
    ),
    Deliverable(
        "output/channels.json",
        "json",
        (),
        "channel, also direct (spend 0) -> object with sessions (by campaign of the session), orders and revenue_cents "
        "(by credited campaign), spend_cents (sum over campaigns)",
    ),
    Deliverable(
        "output/manifest.json",
        "json",
        ("rows", "sessions", "revenue_cents"),
        "rows: name of each of the eight tables above -> data rows; count of sessions, revenue of all purchases",
    ),
)

_TEXT = """\
The shop {site} logs what its visitors do; these are {days} days from {first} on (UTC). Everything lies under \
input/. Write the deliverables below to output/ and then submit. Only output/ is graded, and it must hold exactly \
these files.

Inputs
- logs/: one file a source and day (web: JSON lines, app: CSV, api: key=value, a value in JSON quotes where it needs \
them), each in some layout of its source; some files of the api are lost
- layouts.json: layouts of log files: field -> name in the file, stamp (iso, ms since 1970, or s since 1970 with \
three decimals), amount (cents, or decimal with two places). The names in a file tell its layout
- heartbeats.tsv: what the clock of a node read at a true time
- identities.sqlite: links (cookie or device -> account), merges (account -> account that it went into, perhaps \
repeatedly)
- internal.txt: tokens of staff and monitoring
- event_types.csv: other names of event types by source, each valid from a day on until the name's next entry
- gateway.sqlite: every call of the api in full, at true times; refused calls never happened
- campaigns.csv, settings.json: channels and spend; timeout and lookback
- cache/: an old report; not an authority for anything

Deliverables
{deliverables}

Rules, in order
1. A line that lacks a field of its layout was torn while written; it counts in sources.csv and nowhere else.
2. Of several lines with one id the one with the lowest attempt stands (equal attempts are equal lines). An accepted \
call that is in no whole line is restored from the gateway, as an event of the api.
3. A clock's lead is what it read minus the true time, at the node's latest heartbeat whose reading is not after the \
stamp. The event's time is stamp minus lead.
4. A name means what event_types.csv says for its source on the day of the event's time; a name without an entry is \
proper.
5. The visitor is the account that the token is linked to, else the token itself, followed through all merges. A \
visitor is internal when any token or account of theirs stands in internal.txt. Internal events count in sources, \
clocks, visitors and repairs, and nowhere else.
6. page is the url without its query, campaign the decoded value of its parameter utm_campaign.
7. Take a visitor's events by time, then id. An event opens a session when it is the first, when it comes more than \
{timeout} minutes after the one before, or when it has a campaign and the visitor's latest earlier event with a \
campaign has another one or does not exist. session_id is visitor/1, visitor/2, ... A session's campaign is that of \
its events, or direct.
8. A purchase is credited to the campaign of the visitor's latest event with a campaign, itself included, in the \
order of rule 7, unless that lies more than {lookback} hours back; then, or without any, to direct.

Formats: UTF-8, a header line, comma or tab, quotes only where needed, line feed at line ends; times as \
2024-05-06T07:08:09.123Z, days YYYY-MM-DD, money in whole cents, integers plain. JSON: integers only, keys sorted, \
indented by one space, letters beyond ASCII as they are, line feed at the end.
Tools: bash, coreutils, python3 with its standard library (csv, json, sqlite3). No network.
"""


def prompt(files: Files) -> str:
    """Return the task text; `files` is the public tree."""
    settings = json.loads(files["input/settings.json"])
    days = sorted({path.rpartition(".")[0][-10:] for path in files if path.startswith("input/logs/")})
    lines = []
    for one in DELIVERABLES:
        told = f" ({', '.join(one.columns)})" if one.columns else ""
        lines.append(f"- {one.path.removeprefix('output/')}{told}: {one.rule}")
    return _TEXT.format(
        site=settings["site"],
        days=len(days),
        first=days[0],
        timeout=settings["timeout_minutes"],
        lookback=settings["lookback_hours"],
        deliverables="\n".join(lines),
    )
