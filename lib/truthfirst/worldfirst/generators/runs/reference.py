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
import re
import shlex
import sqlite3
import sys
import tomllib
from collections import Counter
from datetime import datetime
from decimal import Decimal, InvalidOperation
from math import prod

STAGES = (
    "profile-logs",
    "trace-lineage",
    "repair-metrics",
    "resolve-settings",
    "account-waste",
    "stitch-curve",
    "find-divergence",
    "report-phases",
    "package",
)
TOKENS = ("batch_size", "seq_len", "grad_accum")


# --- reading and writing ----------------------------------------------------------------------------------
def read_json(files, name):
    """Return a JSON file of the inputs; numbers stay the text that they are."""
    return json.loads(files["input/" + name], parse_int=str, parse_float=str)


def read_table(files, path):
    """Return a table as a list of dictionaries of text."""
    text = io.StringIO(files[path].decode("utf-8"), newline="")
    return list(csv.DictReader(text, delimiter="\t" if path.endswith(".tsv") else ","))


def select(files, name, statement):
    """Return the rows that a statement selects from a database of the inputs."""
    base = sqlite3.connect(":memory:")
    base.deserialize(files["input/" + name])
    rows = base.execute(statement).fetchall()
    base.close()
    return rows


def write_table(name, columns, rows):
    """Return {path: bytes} of a table in output/."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t" if name.endswith(".tsv") else ",", lineterminator="\n")
    writer.writerow(columns.split())
    writer.writerows(rows)
    return {"output/" + name: out.getvalue().encode("utf-8")}


def write_json(name, value):
    """Return {path: bytes} of a JSON file in output/."""
    return {"output/" + name: (json.dumps(value, indent=1, sort_keys=True) + "\n").encode("utf-8")}


# --- logs -------------------------------------------------------------------------------------------------
def raw_records(text, ending):
    """Yield the fields of each line of a log, or None where a line is no record at all."""
    lines = text.split("\n")[:-1]
    if ending in ("csv", "tsv"):
        header, *rows = csv.reader(lines, delimiter="," if ending == "csv" else "\t")
        yield from (dict(zip(header, row, strict=True)) if len(row) == len(header) else None for row in rows)
        return
    for line in lines:
        if ending == "log":
            parts = [part.partition("=") for part in line.split()]
            yield {key: value for key, _, value in parts} if all(part[1] for part in parts) else None
        else:
            try:
                yield json.loads(line)
            except ValueError:
                yield None


def logs(files):
    """Yield (file name, layout name, layout, records) of every log; records bear proper field names, noise is None."""
    layouts = json.loads(files["input/layouts.json"])
    for path in sorted(path for path in files if path.startswith("input/logs/")):
        raw = list(raw_records(files[path].decode("utf-8"), path.rpartition(".")[2]))
        for name, layout in layouts.items():
            fields = layout["fields"]
            fitting = [record is not None and set(record) == set(fields.values()) for record in raw]
            if any(fitting):
                proper = [
                    {field: record[told] for field, told in fields.items()} if fits else None
                    for record, fits in zip(raw, fitting, strict=True)
                ]
                for record in filter(None, proper):
                    record["step"] = int(record["step"]) + 1 - layout["first_step"]
                yield path.rpartition("/")[2], name, layout, proper


def seconds(text, form):
    """Return a time in seconds since 1970."""
    return (
        int(text) if form == "epoch" else int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    )


# --- jobs and settings ------------------------------------------------------------------------------------
def proper_value(value):
    """Return a setting's value, numbers as plain decimals."""
    try:
        return format(Decimal(value).normalize(), "f")
    except InvalidOperation:
        return value


def commands(files):
    """Return for each job (what it resumes from or None, settings of its file, settings of its command line)."""
    keys = read_json(files, "keys.json")
    found = {}
    for line in files["input/launches.jsonl"].decode("utf-8").splitlines():
        launch = json.loads(line)
        resume, file, flags = None, {}, {}
        parts = re.sub(r"(--\S+?)=", r"\1 ", launch["command"])
        words = shlex.split(parts)
        for place, word in enumerate(words):
            if word == "--resume":
                resume = words[place + 1]
            elif word == "--override":
                file = read_json(files, words[place + 1])
            elif word.startswith("--") and word not in ("--config", "--track"):
                flags[word[2:]] = words[place + 1]
        found[launch["job"]] = (
            resume,
            *({keys.get(k, k): proper_value(v) for k, v in told.items()} for told in (file, flags)),
        )
    return found


def origins(files):
    """Return for each job the checkpoint it resumed from as (name, job, step), or None."""
    checkpoints = select(
        files, "scheduler.sqlite", "SELECT written, name, job, step, status FROM checkpoints"
    )
    launched = dict(select(files, "scheduler.sqlite", "SELECT job, launched FROM jobs"))
    found = {}
    for job, (resume, _, _) in commands(files).items():
        if resume == "auto":
            ready = [one for one in checkpoints if one[4] == "complete" and one[0] < launched[job]]
            found[job] = max(ready)[1:4]
        else:
            found[job] = next((one[1:4] for one in checkpoints if one[1] == resume), None)
    return found


def hot_changes(files):
    """Return the changes as (job, step, key, value)."""
    keys = read_json(files, "keys.json")
    rows = read_table(files, "input/changes.tsv")
    return [(r["job"], int(r["step"]), keys.get(r["key"], r["key"]), proper_value(r["value"])) for r in rows]


def base_settings(files):
    """Return the base configuration without its sections."""
    sections = tomllib.loads(files["input/configs/base.toml"].decode("utf-8"), parse_float=str)
    return {key: proper_value(str(value)) for section in sections.values() for key, value in section.items()}


def stretches(files):
    """Yield (first step, last step, job, {key: (value, layer)}) of what counts, cut wherever a setting may change."""
    base, launches, changes = base_settings(files), commands(files), hot_changes(files)
    for row in read_table(files, "output/lineage.csv"):
        job, first, last = row["job"], int(row["first_step"]), int(row["last_step"])
        _, file, flags = launches[job]
        held = {key: (value, "base") for key, value in base.items()}
        held |= {key: (value, "file") for key, value in file.items()}
        held |= {key: (value, "flag") for key, value in flags.items()}
        mine = sorted(change[1:] for change in changes if change[0] == job)
        cuts = sorted({first} | {step for step, _, _ in mine if first < step <= last})
        for start, after in zip(cuts, [*cuts[1:], last + 1], strict=True):
            held = held | {key: (value, "hot") for step, key, value in mine if step <= start}
            yield start, after - 1, job, held


# --- stages -----------------------------------------------------------------------------------------------
def profile_logs(files):
    rows = []
    for name, layout, _, records in logs(files):
        held = [record for record in records if record]
        jobs = {record["job"] for record in held}
        points = {(record["job"], record["step"]) for record in held}
        rows.append((name, layout, len(records), len(records) - len(held), len(jobs), len(points)))
    return write_table("logs.csv", "file layout lines noise jobs points", rows)


def trace_lineage(files):
    source = origins(files)
    job = read_json(files, "run.json")["final_job"]
    last = dict(select(files, "scheduler.sqlite", "SELECT job, last_step FROM jobs"))[job]
    rows = []
    while job:
        name, parent, step = source[job] or ("", None, 0)
        rows.append((job, step + 1, last, name))
        job, last = parent, step
    rows = [(position, *row) for position, row in enumerate(reversed(rows), 1)]
    return write_table("lineage.csv", "position job first_step last_step checkpoint", rows)


def repair_metrics(files):
    counts = Counter((r["job"], r["step"]) for *_, records in logs(files) for r in records if r)
    tracked = set(select(files, "tracker.sqlite", "SELECT job, step FROM points WHERE phase = 'train'"))
    rows = [("duplicate", *point) for point, count in counts.items() if count > 1]
    rows += [("restored", *point) for point in tracked - counts.keys()]
    return write_table("repairs.csv", "kind job step", sorted(rows))


def resolve_settings(files):
    rows = {}
    for first, last, _, held in stretches(files):
        for key, (value, layer) in held.items():
            mine = rows.setdefault(key, [])
            if mine and mine[-1][3] == value:
                mine[-1][2] = last
            else:
                mine.append([key, first, last, value, layer])
    table = [row for key in sorted(rows) for row in rows[key]]
    return write_table("settings.csv", "key first_step last_step value layer", table)


def account_waste(files):
    kept = {row["job"]: row for row in read_table(files, "output/lineage.csv")}
    source = origins(files)
    rows = []
    for job, last, gpus in select(
        files, "scheduler.sqlite", "SELECT job, last_step, gpus FROM jobs ORDER BY job"
    ):
        ran = last - (source[job][2] if source[job] else 0)
        mine = int(kept[job]["last_step"]) - int(kept[job]["first_step"]) + 1 if job in kept else 0
        rows.append((job, ran, mine, (ran - mine) * gpus))
    return write_table("waste.tsv", "job ran kept wasted_gpu_steps", rows)


def stitch_curve(files):
    standing = {}
    for _, _, layout, records in logs(files):
        for record in filter(None, records):
            point, time = (record["job"], record["step"]), seconds(record["wall"], layout["wall"])
            if point not in standing or standing[point][0] < time:
                standing[point] = (time, record["loss"], record["grad_norm"], layout)
    restored = {
        (r["job"], int(r["step"])) for r in read_table(files, "output/repairs.csv") if r["kind"] == "restored"
    }
    query = "SELECT job, step, loss_micronats, grad_norm_e4 FROM points WHERE phase = 'train'"
    for job, step, loss, norm in select(files, "tracker.sqlite", query):
        if (job, step) in restored:
            told = [
                "nan" if value is None else str(Decimal(value).scaleb(-places))
                for value, places in ((loss, 6), (norm, 4))
            ]
            standing[job, step] = (0, *told, {"loss": "mean", "loss_unit": "nat"})
    rows, before = [], 0
    by_job = {}
    for job, step in standing:
        by_job.setdefault(job, []).append(step)
    for first, last, job, held in stretches(files):
        each = prod(int(held[key][0]) for key in TOKENS)
        for step in sorted(step for step in by_job[job] if first <= step <= last):
            _, loss, norm, layout = standing[job, step]
            if loss != "nan":
                parts = int(held["grad_accum"][0]) if layout["loss"] == "sum" else 1
                mean = Decimal(loss) / parts / (1000 if layout["loss_unit"] == "millinat" else 1)
                loss = format(mean, ".6f")
            norm = norm if norm == "nan" else format(Decimal(norm), ".4f")
            rows.append((step, job, before + each * (step - first + 1), loss, norm))
        before += each * (last - first + 1)
    return write_table("curve.csv", "step job tokens loss grad_norm", rows)


def find_divergence(files):
    run = json.loads(files["input/run.json"])
    limit = 1 + Decimal(run["high_percent"]) / 100
    best, high = None, []
    for row in read_table(files, "output/curve.csv"):
        loss = None if row["loss"] == "nan" else Decimal(row["loss"])
        if loss is None or (best is not None and loss > Decimal(best["loss"]) * limit):
            high.append(row)
            if len(high) == run["high_points"]:
                break
            continue
        high = []
        if best is None or loss < Decimal(best["loss"]):
            best = row
    onset = high[0]
    changes = []
    settings = read_table(files, "output/settings.csv")
    for before, row in itertools.pairwise(settings):
        if row["key"] == before["key"] and row["key"] not in run["inert"]:
            changes.append((int(row["first_step"]), row["key"], before["value"], row["value"], row["layer"]))
    step, key, old, new, layer = max(change for change in changes if change[0] <= int(onset["step"]))
    found = {
        "onset_step": int(onset["step"]),
        "onset_job": onset["job"],
        "best_step": int(best["step"]),
        "best_loss": best["loss"],
        "cause_step": step,
        "cause_key": key,
        "cause_before": old,
        "cause_after": new,
        "cause_layer": layer,
    }
    return write_json("divergence.json", found)


def report_phases(files):
    inert = set(read_json(files, "run.json")["inert"])
    phases = []
    for first, last, _, held in stretches(files):
        values = {key: value for key, (value, _) in held.items() if key not in inert}
        tokens = prod(int(values[key]) for key in TOKENS) * (last - first + 1)
        if phases and phases[-1][2] == values:
            phases[-1][1] = last
            phases[-1][3] += tokens
        else:
            phases.append([first, last, values, tokens])
    curve = read_table(files, "output/curve.csv")
    rows = []
    for first, last, _, tokens in phases:
        points = [row for row in curve if first <= int(row["step"]) <= last]
        losses = [row["loss"] for row in points if row["loss"] != "nan"]
        norms = [row["grad_norm"] for row in points if row["grad_norm"] != "nan"]
        lowest, highest = min(losses, key=Decimal, default=""), max(norms, key=Decimal, default="")
        rows.append((first, last, len(points), lowest, highest, tokens))
    return write_table("phases.tsv", "first_step last_step points lowest_loss highest_grad_norm tokens", rows)


def package(files):
    names = ("logs.csv", "lineage.csv", "repairs.csv", "settings.csv", "curve.csv", "waste.tsv", "phases.tsv")
    tables = {name: read_table(files, "output/" + name) for name in names}
    manifest = {
        "rows": {name: len(rows) for name, rows in tables.items()},
        "last_step": int(tables["lineage.csv"][-1]["last_step"]),
        "tokens": sum(int(row["tokens"]) for row in tables["phases.tsv"]),
    }
    return write_json("manifest.json", manifest)


def run_stage(name, files):
    """Return the files that a stage writes; `files` holds input/ and the output of the stages before it."""
    return {
        "profile-logs": profile_logs,
        "trace-lineage": trace_lineage,
        "repair-metrics": repair_metrics,
        "resolve-settings": resolve_settings,
        "account-waste": account_waste,
        "stitch-curve": stitch_curve,
        "find-divergence": find_divergence,
        "report-phases": report_phases,
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
