"""The alternative solver: dense arrays over all steps, written apart from the reference, from the prompt alone.

Every setting is an array with one entry a step that counts; stretches, tokens and phases are run lengths, cumulative
sums and group-bys of these. Losses are integers of micro-nats throughout.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
import tomllib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from ...world import Files

_SETTING = re.compile(r"--([\w.-]+)(?:=|\s+(?!--))(\S+)")
_PER_STEP = ["batch_size", "seq_len", "grad_accum"]


def solve(files: Files) -> dict[str, bytes]:
    """Return every file under output/."""
    run = json.loads(files["input/run.json"])
    jobs, checkpoints = (
        _query(files, "scheduler", f"SELECT * FROM {name}") for name in ("jobs", "checkpoints")
    )
    launches = _launches(files)
    origins = _origins(jobs, checkpoints, launches)
    lineage = _lineage(run["final_job"], jobs, origins)
    settings, layers = _settings(files, launches, lineage)
    records, profile = _records(files)
    tracked = _query(files, "tracker", "SELECT * FROM points WHERE phase = 'train'")
    points, repairs = _standing(records, tracked)
    tokens = np.cumsum(np.prod([settings[key].astype("int64") for key in _PER_STEP], axis=0))
    curve = _curve(points, lineage, settings, tokens)
    phase = _starts(settings.drop(columns=run["inert"])).cumsum()
    tables = {
        "logs.csv": profile,
        "lineage.csv": lineage.drop(columns="size"),
        "repairs.csv": repairs,
        "settings.csv": _stretches(settings, layers),
        "curve.csv": curve.assign(loss=_places(curve["loss"], 6), grad_norm=_places(curve["grad_norm"], 4)),
        "waste.tsv": _waste(jobs, origins, lineage),
        "phases.tsv": _phases(curve, phase, tokens),
    }
    manifest = {
        "last_step": len(settings),
        "rows": {name: len(table) for name, table in sorted(tables.items())},
        "tokens": int(tokens[-1]),
    }
    written = {
        f"output/{name}": table.to_csv(
            index=False, sep="," if name.endswith("csv") else "\t", lineterminator="\n"
        )
        for name, table in tables.items()
    }
    written["output/divergence.json"] = _json(_divergence(run, curve, settings, layers))
    written["output/manifest.json"] = _json(manifest)
    return {path: text.encode() for path, text in written.items()}


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _query(files: Files, name: str, statement: str) -> pd.DataFrame:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(files[f"input/{name}.sqlite"])
    found = pd.read_sql(statement, connection)
    connection.close()
    return found


def _plain(value: str) -> str:
    """Return a number as a plain decimal, by way of the shortest digits that tell it apart; words as they are."""
    return (
        np.format_float_positional(float(value), trim="-")
        if re.fullmatch(r"[\d.]+(e[+-]?\d+)?", value)
        else value
    )


# --- jobs -------------------------------------------------------------------------------------------------
def _launches(files: Files) -> pd.DataFrame:
    """Return the command lines by job, with the argument of --resume (or not a number)."""
    frame = pd.read_json(io.BytesIO(files["input/launches.jsonl"]), lines=True, dtype=False).set_index("job")
    return frame.assign(resume=frame["command"].str.extract(r"--resume[ =](\S+)", expand=False))


def _origins(jobs: pd.DataFrame, checkpoints: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Return by job the checkpoint that it resumed from: name, job and step of it, all missing for a start."""
    complete = checkpoints[checkpoints["status"] == "complete"].sort_values("written")
    latest = pd.merge_asof(
        jobs[["job", "launched"]].sort_values("launched"),
        complete[["written", "name"]],
        left_on="launched",
        right_on="written",
        allow_exact_matches=False,
    ).set_index("job")["name"]
    named = launches["resume"].mask(launches["resume"] == "auto", latest.reindex(launches.index))
    return (
        checkpoints.set_index("name")
        .reindex(named)[["job", "step"]]
        .assign(name=named.to_numpy())
        .set_axis(named.index)
    )


def _lineage(final: str, jobs: pd.DataFrame, origins: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs that count, in order: the path to the final job in the graph of resumes."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(origins.index)
    graph.add_edges_from((row.job, job) for job, row in origins.dropna().iterrows())
    order = [job for job in nx.topological_sort(graph) if job == final or job in nx.ancestors(graph, final)]
    mine = origins.loc[order]
    first = mine["step"].fillna(0).astype("int64") + 1
    ends = [*(first.iloc[1:] - 1), int(jobs.set_index("job").at[final, "last_step"])]  # type: ignore[arg-type]
    return pd.DataFrame(
        {
            "position": np.arange(1, len(order) + 1),
            "job": order,
            "first_step": first.to_numpy(),
            "last_step": ends,
            "checkpoint": mine["name"].fillna("").to_numpy(),
            "size": np.array(ends) - first.to_numpy() + 1,
        }
    )


def _waste(jobs: pd.DataFrame, origins: pd.DataFrame, lineage: pd.DataFrame) -> pd.DataFrame:
    frame = jobs.sort_values("job").set_index("job")
    ran = frame["last_step"] - origins["step"].reindex(frame.index).fillna(0).astype("int64")
    kept = lineage.set_index("job")["size"].reindex(frame.index, fill_value=0)
    wasted = (ran - kept) * frame["gpus"]
    return pd.DataFrame({"ran": ran, "kept": kept, "wasted_gpu_steps": wasted}).reset_index()


# --- settings ---------------------------------------------------------------------------------------------
def _settings(
    files: Files, launches: pd.DataFrame, lineage: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return values and layers of all settings (columns) at all steps that count (rows)."""
    keys = json.loads(files["input/keys.json"])
    toml = tomllib.loads(files["input/configs/base.toml"].decode(), parse_float=str)
    base = {key: _plain(str(value)) for section in toml.values() for key, value in section.items()}
    changes = pd.read_csv(io.BytesIO(files["input/changes.tsv"]), sep="\t", dtype=str, na_filter=False)
    changes = changes.assign(key=changes["key"].replace(keys), value=changes["value"].map(_plain))
    changes["step"] = changes["step"].astype("int64")
    steps = int(lineage["last_step"].iloc[-1])
    values = {key: np.full(steps, value, dtype=object) for key, value in base.items()}
    layers = {key: np.full(steps, "base", dtype=object) for key in base}
    for job, first, last in lineage[["job", "first_step", "last_step"]].itertuples(index=False):
        span = slice(first - 1, last)
        for layer, told in zip(("file", "flag"), _given(files, launches.at[job, "command"]), strict=True):  # type: ignore[arg-type]
            for key, value in told.items():
                values[keys.get(key, key)][span] = _plain(value)
                layers[keys.get(key, key)][span] = layer
        for step, key, value in (
            changes.loc[changes["job"] == job, ["step", "key", "value"]]
            .sort_values("step")
            .itertuples(index=False)
        ):
            values[key][step - 1 : last] = value
            layers[key][step - 1 : last] = "hot"
    return pd.DataFrame(values), pd.DataFrame(layers)


def _given(files: Files, command: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of a command line's override file and of the command line itself, as spelt."""
    told = dict(_SETTING.findall(command))
    file = told.pop("override", None)
    for word in ("config", "resume"):
        told.pop(word, None)
    filed = json.loads(files[f"input/{file}"], parse_int=str, parse_float=str) if file else {}
    return filed, told


def _starts(frame: pd.DataFrame) -> pd.Series:
    """Return for each row whether it differs from the one before in some column."""
    return (frame != frame.shift()).any(axis=1)


def _stretches(settings: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    parts = []
    for key in sorted(settings):  # type: ignore[type-var]
        starts = np.flatnonzero(_starts(settings[[key]]))
        parts.append(
            pd.DataFrame(
                {
                    "key": key,
                    "first_step": starts + 1,
                    "last_step": np.append(starts[1:], len(settings)),
                    "value": settings[key].to_numpy()[starts],
                    "layer": layers[key].to_numpy()[starts],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


# --- logs -------------------------------------------------------------------------------------------------
def _records(files: Files) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return all records (job, step, time, loss in micro-nats, whether summed, grad_norm), and the rows of logs.csv."""
    layouts = json.loads(files["input/layouts.json"])
    parts, rows = [], []
    for path in sorted(filter(lambda path: path.startswith("input/logs/"), files)):
        where = PurePosixPath(path)
        lines = files[path].decode().splitlines()
        delimiter = {".csv": ",", ".tsv": "\t"}.get(where.suffix)
        for name, layout in layouts.items():
            fields = layout["fields"]
            found = [_split(line, where.suffix, list(fields.values())) for line in lines]
            frame = pd.DataFrame([one for one in found if one], columns=list(fields))
            headed = delimiter is not None and lines[0] == delimiter.join(fields.values())
            if not headed and (delimiter is not None or frame.empty):
                continue
            frame = frame.iloc[int(headed) :]
            step = frame["step"].astype("int64") + 1 - layout["first_step"]
            digits = _digits(
                frame["loss"]
            )  # of micro-nats in either unit, as millinats come with three places
            if layout["wall"] == "iso":
                wall = (pd.to_datetime(frame["wall"]).dt.tz_localize(None) - pd.Timestamp(0)) // pd.Timedelta(
                    seconds=1
                )
            else:
                wall = frame["wall"].astype("int64")
            frame = frame.assign(step=step, wall=wall, loss=digits, grad_norm=_digits(frame["grad_norm"]))
            size = len(lines) - headed
            pairs = frame[["job", "step"]].drop_duplicates()
            rows.append((where.name, name, size, size - len(frame), pairs["job"].nunique(), len(pairs)))
            parts.append(frame.assign(summed=layout["loss"] == "sum"))
    profile = pd.DataFrame(rows, columns=["file", "layout", "lines", "noise", "jobs", "points"])
    return pd.concat(parts, ignore_index=True), profile


def _split(line: str, ending: str, names: list[str]) -> list[str] | None:
    """Return the values of a line in the order of names, or None where the line does not hold exactly these."""
    if ending in (".csv", ".tsv"):
        cells = line.split("," if ending == ".csv" else "\t")
        return cells if len(cells) == len(names) else None
    if ending == ".log":
        pairs = dict(re.findall(r"(\S+?)=(\S*)", line))
    else:
        pairs = json.loads(line) if line.startswith('{"') and line.endswith("}") else {}
    return [pairs[name] for name in names] if pairs.keys() == set(names) else None


def _digits(texts: pd.Series) -> pd.Series:
    """Return decimals as integers without the point; nan as missing."""
    return texts.str.replace(".", "").mask(texts == "nan").astype("Int64")


def _places(values: pd.Series, places: int) -> pd.Series:
    """Return integers as decimals with so many places; missing as nan."""
    digits = values.astype("string").str.zfill(places + 1)
    return (digits.str[:-places] + "." + digits.str[-places:]).fillna("nan")


def _standing(records: pd.DataFrame, tracked: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the record that stands for every job and step, restored ones too, and the rows of repairs.csv."""
    by = ["job", "step"]
    last = records.sort_values("wall", kind="stable").drop_duplicates(by, keep="last")
    mirror = tracked.rename(columns={"loss_micronats": "loss", "grad_norm_e4": "grad_norm"})[
        [*by, "loss", "grad_norm"]
    ]
    mirror = mirror.astype({"loss": "Int64", "grad_norm": "Int64"})
    unseen = mirror.merge(last[by], on=by, how="left", indicator="seen")
    restored = unseen[unseen["seen"] == "left_only"].drop(columns="seen").assign(summed=False)
    repairs = pd.concat(
        [
            records.loc[records.duplicated(by), by].drop_duplicates().assign(kind="duplicate"),
            restored[by].assign(kind="restored"),
        ]
    )
    repairs = repairs.sort_values(["kind", *by])[["kind", *by]]
    return pd.concat([last, restored], ignore_index=True), repairs


# --- the curve --------------------------------------------------------------------------------------------
def _curve(
    points: pd.DataFrame, lineage: pd.DataFrame, settings: pd.DataFrame, tokens: np.ndarray
) -> pd.DataFrame:
    """Return the points that count, losses in micro-nats and norms in ten-thousandths."""
    mine = points.merge(lineage[["job", "first_step", "last_step"]], on="job")
    mine = mine[mine["step"].between(mine["first_step"], mine["last_step"])].sort_values(
        "step", ignore_index=True
    )
    place = mine["step"].to_numpy() - 1
    parts = np.where(mine["summed"], settings["grad_accum"].to_numpy()[place].astype("int64"), 1)
    mine = mine.assign(tokens=tokens[place], loss=mine["loss"] // parts)
    return mine[["step", "job", "tokens", "loss", "grad_norm"]]


def _divergence(
    run: Mapping[str, Any], curve: pd.DataFrame, settings: pd.DataFrame, layers: pd.DataFrame
) -> dict[str, object]:
    loss = curve["loss"]
    lowest = loss.astype("float64").cummin().ffill().shift()  # integers below 2^53 are exact
    high = loss.isna() | (100 * loss > (100 + run["high_percent"]) * lowest).fillna(False)
    run_id = (~high).cumsum()
    length = high.groupby(run_id).transform("sum")
    onset = int(np.flatnonzero(high & (length >= run["high_points"]))[0])
    best = int(loss.iloc[:onset].astype("float64").idxmin())  # type: ignore[call-overload]
    step = int(curve["step"].iloc[onset])
    active = settings.drop(columns=run["inert"])
    changed = active.ne(active.shift()).iloc[1:step]
    cause = int(np.flatnonzero(changed.any(axis=1))[-1]) + 1
    key = str(changed.columns[changed.iloc[cause - 1].to_numpy()][0])
    return {
        "onset_step": step,
        "onset_job": str(curve["job"].iloc[onset]),
        "best_step": int(curve["step"].iloc[best]),
        "best_loss": str(_places(loss.iloc[[best]], 6).iloc[0]),
        "cause_step": cause + 1,
        "cause_key": key,
        "cause_before": str(settings[key].iloc[cause - 1]),
        "cause_after": str(settings[key].iloc[cause]),
        "cause_layer": str(layers[key].iloc[cause]),
    }


def _phases(curve: pd.DataFrame, phase: pd.Series, tokens: np.ndarray) -> pd.DataFrame:
    spans = phase.index.to_series().groupby(phase).agg(["min", "max"])
    ends = tokens[spans["max"].to_numpy()]
    grouped = curve.groupby(phase.to_numpy()[curve["step"].to_numpy() - 1])
    found = grouped.agg(points=("step", "size"), low=("loss", "min"), high=("grad_norm", "max")).reindex(
        spans.index
    )
    return pd.DataFrame(
        {
            "first_step": spans["min"] + 1,
            "last_step": spans["max"] + 1,
            "points": found["points"].fillna(0).astype("int64"),
            "lowest_loss": _places(found["low"], 6).replace("nan", ""),
            "highest_grad_norm": _places(found["high"], 4).replace("nan", ""),
            "tokens": np.diff(ends, prepend=0),
        }
    )
