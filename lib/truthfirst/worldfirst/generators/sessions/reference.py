"""The reference solver: stage by stage, standard library only, nothing of ours.

As a program in a workspace, `python3 reference.py [STAGE ...]` reads input/ and output/ there and writes what the
stages give (all of them where none is named). Each stage reads the files of the stages before it.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import pathlib
import shlex
import sqlite3
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

STAGES = (
    "profile-sources",
    "align-clocks",
    "resolve-visitors",
    "clean-events",
    "sessionise",
    "attribute",
    "report",
    "package",
)
EVENTS = ("event_id", "time", "visitor", "source", "type", "page", "campaign", "amount_cents")
SESSIONS = ("session_id", "visitor", "start", "end", "events", "landing", "campaign", "revenue_cents")
TABLES = (
    *("sources.csv", "clocks.csv", "visitors.csv", "repairs.csv", "events.csv"),
    *("sessions.csv", "attribution.csv", "daily.tsv"),
)
START = datetime(1970, 1, 1, tzinfo=UTC)


# --- reading and writing ----------------------------------------------------------------------------------
def records(files, path):
    """Return the records of a CSV or TSV file as dictionaries."""
    text = io.StringIO(files[path].decode("utf-8"), newline="")
    return list(csv.DictReader(text, delimiter="\t" if path.endswith(".tsv") else ","))


def delimited(columns, rows, delimiter=","):
    """Return a table as bytes."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue().encode("utf-8")


def as_json(value):
    """Return a JSON file as bytes."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def query(files, path, statement):
    """Return the rows that a statement selects from a database."""
    base = sqlite3.connect(":memory:")
    base.deserialize(files[path])
    rows = base.execute(statement).fetchall()
    base.close()
    return rows


def read_time(text):
    """Return ISO text in milliseconds since 1970."""
    return (datetime.fromisoformat(text.replace("Z", "+00:00")) - START) // timedelta(milliseconds=1)


def tell_time(time):
    """Return milliseconds since 1970 as ISO text."""
    return (START + timedelta(milliseconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- logs -------------------------------------------------------------------------------------------------
def raw_lines(data, ending):
    """Yield for each line of a log file its fields, or None where it cannot be read."""
    lines = data.decode("utf-8").split("\n")[:-1]
    if ending == "csv":
        header, *rows = csv.reader(lines)
        for row in rows:
            yield dict(zip(header, row, strict=True)) if len(row) == len(header) else None
    for line in lines if ending != "csv" else ():
        try:
            parts = shlex.split(line) if ending == "log" else None
            yield json.loads(line) if parts is None else dict(part.split("=", 1) for part in parts)
        except ValueError:
            yield None


def log_files(files):
    """Yield (name, source, day, layout name, lines) of every log file; lines bear proper field names, or are None."""
    layouts = json.loads(files["input/layouts.json"])
    for path in sorted(path for path in files if path.startswith("input/logs/")):
        stem, _, ending = path.rpartition(".")
        raw = list(raw_lines(files[path], ending))
        for name, layout in layouts.items():
            names = layout["fields"]
            whole = [line is not None and set(names.values()) == set(line) for line in raw]
            if not any(whole):
                continue
            lines = [
                {field: line[names[field]] for field in names} if good else None
                for line, good in zip(raw, whole, strict=True)
            ]
            for line in filter(None, lines):
                line["stamp"] = stamp_of(line["stamp"], layout["stamp"])
                line["cents"] = int(line["amount"].replace(".", "") or 0)
            yield path.rpartition("/")[2], layout["source"], stem[-10:], name, lines


def stamp_of(text, form):
    """Return a stamp in milliseconds since 1970."""
    if form == "iso":
        return read_time(text)
    if form == "ms":
        return int(text)
    seconds, _, rest = text.partition(".")
    return 1000 * int(seconds) + int(rest)


def accepted_calls(files):
    return query(
        files,
        "input/gateway.sqlite",
        "SELECT event_id, at_ms, account, type, page, amount_cents FROM calls WHERE status = 'accepted'",
    )


# --- stages -----------------------------------------------------------------------------------------------
def profile_sources(files):
    rows = []
    for name, _, _, layout, lines in log_files(files):
        ids = [line["event_id"] for line in lines if line]
        rows.append((name, layout, len(lines), len(lines) - len(ids), len(set(ids))))
    return {"output/sources.csv": delimited(("file", "layout", "lines", "torn", "distinct_ids"), rows)}


def readings(files):
    """Return for each node its (reading, true time) pairs, in order."""
    found = defaultdict(list)
    for row in records(files, "input/heartbeats.tsv"):
        found[row["node"]].append((read_time(row["reads"]), read_time(row["at"])))
    return {node: sorted(pairs) for node, pairs in found.items()}


def align_clocks(files):
    rows = []
    for node, pairs in sorted(readings(files).items()):
        before = 0
        for reading, true in pairs:
            if reading - true != before:
                before = reading - true
                rows.append((node, tell_time(true), before))
    return {"output/clocks.csv": delimited(("node", "since", "lead_ms"), rows)}


def resolve_visitors(files):
    links = dict(query(files, "input/identities.sqlite", "SELECT token, account FROM links"))
    merges = dict(query(files, "input/identities.sqlite", "SELECT account, merged_into FROM merges"))

    def visitor(token):
        found = links.get(token, token)
        while found in merges:
            found = merges[found]
        return found

    tokens = {line["token"] for *_, lines in log_files(files) for line in lines if line}
    tokens |= {call[2] for call in accepted_calls(files)}
    internal = {visitor(token) for token in files["input/internal.txt"].decode("utf-8").split()}
    rows = []
    for token in sorted(tokens):
        who = visitor(token)
        rows.append((token, who, "yes" if who in internal else "no"))
    return {"output/visitors.csv": delimited(("token", "visitor", "internal"), rows)}


def clean_events(files):
    standing, counts = {}, Counter()
    for _, source, day, _, lines in log_files(files):
        for line in filter(None, lines):
            identity = line["event_id"]
            counts[identity] += 1
            if identity not in standing or int(line["attempt"]) < int(standing[identity]["attempt"]):
                standing[identity] = {**line, "source": source, "day": day}
    pairs = readings(files)
    repairs = [("duplicate", identity) for identity, count in counts.items() if count > 1]
    events = []
    for identity, line in standing.items():
        reading, true = max(pair for pair in pairs[line["node"]] if pair[0] <= line["stamp"])
        time = line["stamp"] - (reading - true)
        if line["day"] > tell_time(time)[:10]:
            repairs.append(("late", identity))
        events.append(
            (identity, time, line["token"], line["source"], line["name"], line["url"], line["cents"])
        )
    for identity, time, token, kind, page, cents in accepted_calls(files):
        if identity not in counts:
            repairs.append(("restored", identity))
            events.append((identity, time, token, "api", kind, page, cents))
    names = defaultdict(list)
    for row in records(files, "input/event_types.csv"):
        names[row["source"], row["name"]].append((row["since"], row["type"]))
    who = {row["token"]: row for row in records(files, "output/visitors.csv")}
    rows = []
    for identity, time, token, source, name, url, cents in sorted(
        events, key=lambda event: (event[1], event[0])
    ):
        if who[token]["internal"] == "yes":
            continue
        told = tell_time(time)
        entries = [entry for entry in names[source, name] if entry[0] <= told[:10]]
        kind = max(entries)[1] if entries else name
        parts = urlsplit(url)
        campaign = parse_qs(parts.query).get("utm_campaign", [""])[0]
        rows.append((identity, told, who[token]["visitor"], source, kind, parts.path, campaign, cents))
    return {
        "output/repairs.csv": delimited(("kind", "event_id"), sorted(repairs)),
        "output/events.csv": delimited(EVENTS, rows),
    }


def by_visitor(files):
    """Yield (visitor, events in order with `at`, `session` and `latest`, the latest event with a campaign so far)."""
    timeout = json.loads(files["input/settings.json"])["timeout_minutes"] * 60_000
    events = records(files, "output/events.csv")
    for event in events:
        event["at"] = read_time(event["time"])
    events.sort(key=lambda event: (event["visitor"], event["at"], event["event_id"]))
    for visitor, group in itertools.groupby(events, key=lambda event: event["visitor"]):
        chain, number, latest, before = list(group), 0, None, None
        for event in chain:
            new_campaign = event["campaign"] and (latest is None or latest["campaign"] != event["campaign"])
            if before is None or event["at"] - before["at"] > timeout or new_campaign:
                number += 1
            if event["campaign"]:
                latest = event
            event["session"], event["latest"], before = f"{visitor}/{number}", latest, event
        yield visitor, chain


def sessionise(files):
    rows = []
    for visitor, chain in by_visitor(files):
        for name, group in itertools.groupby(chain, key=lambda event: event["session"]):
            events = list(group)
            campaigns = [event["campaign"] for event in events if event["campaign"]] or ["direct"]
            revenue = sum(int(event["amount_cents"]) for event in events if event["type"] == "purchase")
            first, last = events[0], events[-1]
            rows.append(
                (
                    name,
                    visitor,
                    first["time"],
                    last["time"],
                    len(events),
                    first["page"],
                    campaigns[0],
                    revenue,
                )
            )
    return {"output/sessions.csv": delimited(SESSIONS, rows)}


def attribute(files):
    lookback = json.loads(files["input/settings.json"])["lookback_hours"] * 3_600_000
    rows = []
    for _, chain in by_visitor(files):
        for event in chain:
            if event["type"] == "purchase":
                latest = event["latest"]
                credited = latest is not None and event["at"] - latest["at"] <= lookback
                campaign = latest["campaign"] if credited else "direct"
                rows.append((event["event_id"], event["session"], campaign, event["amount_cents"]))
    columns = ("event_id", "session_id", "campaign", "amount_cents")
    return {"output/attribution.csv": delimited(columns, sorted(rows))}


def report(files):
    sessions, credits = records(files, "output/sessions.csv"), records(files, "output/attribution.csv")
    orders = Counter(credit["session_id"] for credit in credits)
    days = defaultdict(list)
    for session in sessions:
        days[session["start"][:10]].append(session)
    daily = [
        (
            day,
            len({session["visitor"] for session in group}),
            len(group),
            sum(session["events"] == "1" for session in group),
            sum(orders[session["session_id"]] for session in group),
            sum(int(session["revenue_cents"]) for session in group),
        )
        for day, group in sorted(days.items())
    ]
    campaigns = records(files, "input/campaigns.csv")
    channel = {row["campaign"]: row["channel"] for row in campaigns} | {"direct": "direct"}
    sums = {
        name: {"sessions": 0, "orders": 0, "revenue_cents": 0, "spend_cents": 0} for name in channel.values()
    }
    for row in campaigns:
        sums[row["channel"]]["spend_cents"] += int(row["spend_cents"])
    for session in sessions:
        sums[channel[session["campaign"]]]["sessions"] += 1
    for credit in credits:
        sums[channel[credit["campaign"]]]["orders"] += 1
        sums[channel[credit["campaign"]]]["revenue_cents"] += int(credit["amount_cents"])
    columns = ("day", "visitors", "sessions", "bounces", "orders", "revenue_cents")
    return {"output/daily.tsv": delimited(columns, daily, "\t"), "output/channels.json": as_json(sums)}


def package(files):
    manifest = {
        "rows": {name: len(records(files, f"output/{name}")) for name in TABLES},
        "sessions": len(records(files, "output/sessions.csv")),
        "revenue_cents": sum(int(row["amount_cents"]) for row in records(files, "output/attribution.csv")),
    }
    return {"output/manifest.json": as_json(manifest)}


def run_stage(name, files):
    """Return the files that a stage writes; `files` holds input/ and the output of the stages before it."""
    return {
        "profile-sources": profile_sources,
        "align-clocks": align_clocks,
        "resolve-visitors": resolve_visitors,
        "clean-events": clean_events,
        "sessionise": sessionise,
        "attribute": attribute,
        "report": report,
        "package": package,
    }[name](files)


def solve(files):
    """Return every file under output/."""
    made = {}
    for name in STAGES:
        made |= run_stage(name, {**files, **made})
    return made


def main(names):
    root = pathlib.Path()
    for name in names or STAGES:
        files = {path.as_posix(): path.read_bytes() for path in root.glob("*put/**/*") if path.is_file()}
        for path, data in run_stage(name, files).items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
