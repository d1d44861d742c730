"""The alternative solver: set-wise in pandas and networkx, written apart from the reference, from the prompt alone."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from urllib.parse import unquote_plus

import networkx as nx
import pandas as pd

from ...world import Files

_FIELDS = ["event_id", "attempt", "stamp", "node", "token", "name", "url", "amount"]
_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s|$)')


def solve(files: Files) -> dict[str, bytes]:
    """Return every file under output/."""
    settings = json.loads(files["input/settings.json"])
    raw = _raw_lines(files)
    whole = raw[~raw["torn"]].copy()
    whole["lead"] = _leads(files, whole)
    whole["at"] = whole["stamp"] - whole["lead"]
    calls = _select(files, "gateway.sqlite", "calls").query("status == 'accepted'")
    visitors = _visitors(files, set(whole["token"]) | set(calls["account"]))
    standing = whole.loc[whole.groupby("event_id")["attempt"].idxmin()]
    restored = calls[~calls["event_id"].isin(whole["event_id"])]
    events = _events(files, standing, restored, visitors)
    chains = _chains(events, settings["timeout_minutes"] * 60_000)
    sessions = _sessions(chains)
    credits = _credits(chains, settings["lookback_hours"] * 3_600_000)
    tables = {
        "sources.csv": _sources(raw),
        "clocks.csv": _clocks(files),
        "visitors.csv": visitors,
        "repairs.csv": _repairs(whole, standing, restored),
        "events.csv": events.drop(columns="at"),
        "sessions.csv": sessions.drop(columns=["day", "orders"]),
        "attribution.csv": credits,
        "daily.tsv": _daily(sessions),
    }
    manifest = {
        "rows": {name: len(table) for name, table in sorted(tables.items())},
        "sessions": len(sessions),
        "revenue_cents": int(credits["amount_cents"].sum()),
    }
    written = {
        f"output/{name}": table.to_csv(
            index=False, sep="\t" if name.endswith("tsv") else ",", lineterminator="\n"
        ).encode()
        for name, table in tables.items()
    }
    written["output/channels.json"] = _json(_channels(files, sessions, credits))
    written["output/manifest.json"] = _json(manifest)
    return written


def _json(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _frame(files: Files, name: str) -> pd.DataFrame:
    """Return an input table as a frame of strings; blanks stay blanks."""
    separator = "\t" if name.endswith(".tsv") else ","
    return pd.read_csv(io.BytesIO(files[f"input/{name}"]), sep=separator, dtype=str, na_filter=False)


def _select(files: Files, name: str, table: str) -> pd.DataFrame:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(files[f"input/{name}"])
    found = pd.read_sql(f"SELECT * FROM {table}", connection)
    connection.close()
    return found


def _milliseconds(texts: pd.Series) -> pd.Series:
    """Return ISO times as milliseconds since 1970."""
    times = pd.to_datetime(texts, format="%Y-%m-%dT%H:%M:%S.%fZ")
    return (times - pd.Timestamp(0)) // pd.Timedelta(milliseconds=1)


def _iso(times: pd.Series) -> pd.Series:
    """Return milliseconds since 1970 as ISO text."""
    return pd.to_datetime(times, unit="ms").dt.strftime("%Y-%m-%dT%H:%M:%S.%f").str[:-3] + "Z"


# --- logs -------------------------------------------------------------------------------------------------
def _raw_lines(files: Files) -> pd.DataFrame:
    """Return all lines of all logs with proper field names, stamps in milliseconds, and file, source, day, torn."""
    layouts = json.loads(files["input/layouts.json"])
    known = {frozenset(layout["fields"].values()): name for name, layout in layouts.items()}
    parts = []
    for path in sorted(filter(lambda path: path.startswith("input/logs/"), files)):
        where = PurePosixPath(path)
        lines = list(_parsed(files[path].decode(), where.suffix))
        names = [known.get(frozenset(line)) for line in lines]
        name = next(filter(None, names))
        layout = layouts[name]
        told = [layout["fields"][field] for field in _FIELDS]
        frame = pd.DataFrame(
            [
                [line[key] for key in told] if found else [""] * 8
                for line, found in zip(lines, names, strict=True)
            ],
            columns=_FIELDS,
        )
        frame["torn"] = [found is None for found in names]
        good = ~frame["torn"]
        if layout["stamp"] == "iso":
            frame.loc[good, "stamp"] = _milliseconds(frame.loc[good, "stamp"]).astype(str)
        frame["stamp"] = pd.to_numeric(frame["stamp"].str.replace(".", "").where(good, "0"))
        frame["attempt"] = pd.to_numeric(frame["attempt"].where(good, "0"))
        cents = frame["amount"].str.replace(".", "")
        frame["amount_cents"] = pd.to_numeric(cents.where(cents != "", "0"))
        parts.append(
            frame.assign(file=where.name, source=layout["source"], day=where.stem[-10:], layout=name)
        )
    return pd.concat(parts, ignore_index=True)


def _parsed(text: str, ending: str) -> Iterable[dict[str, str]]:
    """Yield the fields of each line, an empty dictionary where a line is no whole line."""
    lines = text.removesuffix("\n").split("\n")
    if ending == ".csv":
        header, *rows = csv.reader(lines)
        yield from (dict(zip(header, row, strict=True)) if len(row) == len(header) else {} for row in rows)
    elif ending == ".log":
        for line in lines:
            yield {key: json.loads(told) if told[:1] == '"' else told for key, told in _PAIR.findall(line)}
    else:
        yield from (json.loads(line) if line.endswith("}") else {} for line in lines)


def _sources(raw: pd.DataFrame) -> pd.DataFrame:
    grouped = raw.assign(event_id=raw["event_id"].mask(raw["torn"])).groupby(["file", "layout"])
    found = grouped.agg(lines=("torn", "size"), torn=("torn", "sum"), distinct_ids=("event_id", "nunique"))
    return found.reset_index()


# --- clocks -----------------------------------------------------------------------------------------------
def _beats(files: Files) -> pd.DataFrame:
    beats = _frame(files, "heartbeats.tsv")
    beats["reading"] = _milliseconds(beats["reads"])
    beats["lead_ms"] = beats["reading"] - _milliseconds(beats["at"])
    return beats.rename(columns={"at": "since"}).sort_values(["node", "since"], ignore_index=True)


def _leads(files: Files, whole: pd.DataFrame) -> pd.Series:
    """Return the lead at each line, by an as-of join on what the clock read."""
    lines = whole[["node", "stamp"]].reset_index().sort_values("stamp", kind="stable")
    beats = _beats(files).sort_values("reading")[["node", "reading", "lead_ms"]]
    joined = pd.merge_asof(lines, beats, left_on="stamp", right_on="reading", by="node")
    return joined.set_index("index")["lead_ms"].astype("int64")


def _clocks(files: Files) -> pd.DataFrame:
    beats = _beats(files)
    before = beats.groupby("node")["lead_ms"].shift(fill_value=0)
    return beats.loc[beats["lead_ms"] != before, ["node", "since", "lead_ms"]]


# --- visitors ---------------------------------------------------------------------------------------------
def _visitors(files: Files, tokens: set[str]) -> pd.DataFrame:
    """Return every token with its visitor: the only one in its component that leads nowhere else."""
    graph: nx.DiGraph = nx.DiGraph()
    internal = files["input/internal.txt"].decode().splitlines()
    graph.add_nodes_from([*tokens, *internal])
    for table in ("links", "merges"):
        graph.add_edges_from(_select(files, "identities.sqlite", table).itertuples(index=False, name=None))
    rows = []
    for component in nx.weakly_connected_components(graph):
        (visitor,) = (node for node in component if graph.out_degree(node) == 0)
        told = "yes" if component & set(internal) else "no"
        rows += [(token, visitor, told) for token in component & tokens]
    return pd.DataFrame(sorted(rows), columns=["token", "visitor", "internal"])


# --- events -----------------------------------------------------------------------------------------------
def _repairs(whole: pd.DataFrame, standing: pd.DataFrame, restored: pd.DataFrame) -> pd.DataFrame:
    late = standing["day"] > _iso(standing["at"]).str[:10]
    kinds = {
        "duplicate": whole.loc[whole["event_id"].duplicated(), "event_id"].unique(),
        "late": standing.loc[late, "event_id"],
        "restored": restored["event_id"],
    }
    rows = [(kind, identity) for kind, found in kinds.items() for identity in sorted(found)]  # type: ignore[call-overload]
    return pd.DataFrame(rows, columns=["kind", "event_id"])


def _events(
    files: Files, standing: pd.DataFrame, restored: pd.DataFrame, visitors: pd.DataFrame
) -> pd.DataFrame:
    """Return the events that are not internal, in order, with `at` in milliseconds."""
    calls = restored.rename(columns={"at_ms": "at", "account": "token", "page": "url"}).assign(source="api")
    logged = standing.assign(type=_types(files, standing))
    events = pd.concat([logged, calls], ignore_index=True).merge(visitors, on="token")
    events = events[events["internal"] == "no"].sort_values(["at", "event_id"], ignore_index=True)
    path, _, rest = (part for _, part in events["url"].str.partition("?").items())
    campaign = rest.str.extract(r"(?:^|&)utm_campaign=([^&]*)", expand=False).fillna("")
    events = events.assign(page=path, campaign=campaign.map(unquote_plus), time=_iso(events["at"]))
    columns = ["event_id", "time", "visitor", "source", "type", "page", "campaign", "amount_cents", "at"]
    return events[columns].astype({"amount_cents": "int64", "at": "int64"})


def _types(files: Files, standing: pd.DataFrame) -> pd.Series:
    """Return the proper type of each line, by an as-of join on the day."""
    entries = _frame(files, "event_types.csv")
    entries["since"] = pd.to_datetime(entries["since"]).astype("datetime64[ms]")
    lines = standing[["source", "name"]].reset_index()
    lines["moment"] = pd.to_datetime(standing["at"].to_numpy(), unit="ms").astype("datetime64[ms]")
    joined = pd.merge_asof(
        lines.sort_values("moment"),
        entries.sort_values("since"),
        left_on="moment",
        right_on="since",
        by=["source", "name"],
    ).set_index("index")
    return joined["type"].fillna(joined["name"])


# --- sessions ---------------------------------------------------------------------------------------------
def _chains(events: pd.DataFrame, timeout: int) -> pd.DataFrame:
    """Return the events by visitor and time with number and name of their session, and the campaign in force."""
    chains = events.sort_values(["visitor", "at", "event_id"], ignore_index=True)
    chains["borne"] = chains["campaign"].mask(chains["campaign"] == "")
    chains["borne_at"] = chains["at"].astype("Int64").mask(chains["campaign"] == "")
    by = chains["visitor"]
    for column in ("borne", "borne_at"):
        chains[f"latest_{column}"] = chains.groupby(by)[column].ffill()
    earlier = chains.groupby(by)["latest_borne"].shift()
    gap = chains.groupby(by)["at"].diff()
    turned = chains["borne"].notna() & (chains["borne"] != earlier.fillna(""))
    chains["number"] = (gap.isna() | (gap > timeout) | turned).astype("int64").groupby(by).cumsum()
    chains["session_id"] = by + "/" + chains["number"].astype(str)
    chains["bought"] = (chains["type"] == "purchase").astype("int64")
    return chains


def _sessions(chains: pd.DataFrame) -> pd.DataFrame:
    sessions = (
        chains.groupby(["visitor", "number", "session_id"])
        .agg(
            start=("time", "first"),
            end=("time", "last"),
            events=("time", "size"),
            landing=("page", "first"),
            campaign=("borne", "first"),
            revenue_cents=("amount_cents", "sum"),
            orders=("bought", "sum"),
        )
        .reset_index()
    )
    sessions["campaign"] = sessions["campaign"].fillna("direct")
    columns = [
        "session_id",
        "visitor",
        "start",
        "end",
        "events",
        "landing",
        "campaign",
        "revenue_cents",
        "orders",
    ]
    return sessions[columns].assign(day=sessions["start"].str[:10])


def _credits(chains: pd.DataFrame, lookback: int) -> pd.DataFrame:
    bought = chains[chains["bought"] == 1]
    recent = (bought["at"] - bought["latest_borne_at"] <= lookback).fillna(False).astype(bool)
    credits = bought.assign(campaign=bought["latest_borne"].where(recent, "direct"))
    return credits.sort_values("event_id")[["event_id", "session_id", "campaign", "amount_cents"]]


def _daily(sessions: pd.DataFrame) -> pd.DataFrame:
    alone = sessions.assign(bounced=(sessions["events"] == 1).astype("int64"))
    return (
        alone.groupby("day")
        .agg(
            visitors=("visitor", "nunique"),
            sessions=("day", "size"),
            bounces=("bounced", "sum"),
            orders=("orders", "sum"),
            revenue_cents=("revenue_cents", "sum"),
        )
        .reset_index()
    )


def _channels(files: Files, sessions: pd.DataFrame, credits: pd.DataFrame) -> dict[str, dict[str, int]]:
    campaigns = _frame(files, "campaigns.csv").astype({"spend_cents": "int64"}).set_index("campaign")
    channel = pd.concat([campaigns["channel"], pd.Series({"direct": "direct"})])
    sums = pd.DataFrame(
        {
            "sessions": sessions["campaign"].map(channel).value_counts(),
            "orders": credits["campaign"].map(channel).value_counts(),
            "revenue_cents": credits.groupby(credits["campaign"].map(channel))["amount_cents"].sum(),
            "spend_cents": campaigns.groupby("channel")["spend_cents"].sum(),
        },
        index=sorted(set(channel)),
    )
    return {str(name): {str(k): int(v) for k, v in row.items()} for name, row in sums.fillna(0).iterrows()}
