"""Rendering: a training run as clean files, a pure function with an exact inverse.

    input/run.json                            name, final job, what counts as a divergence, inert settings
    input/configs/base.toml  <job>.json       base configuration, override files of the jobs that have one
    input/keys.json  layouts.json             other spellings of keys; names of fields and formats of logs
    input/launches.jsonl  changes.tsv         command lines; settings changed while a job ran
    input/scheduler.sqlite                    jobs and checkpoints
    input/tracker.sqlite                      points of the jobs that reported to the tracker
    input/logs/<run>-<job>.<csv|tsv|jsonl|log>  points of a job, plain layout
    input/cache/divergence.json               an earlier report

`recover` reads the world back from these files; what stands in two places must agree.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import replace

from ...tables import Cell, Table, decode, decode_sqlite, encode, encode_sqlite
from ...world import INPUT, Files, WorldError
from .lineage import origin
from .sample import SECTIONS
from .world import BLAME, FIELDS, Alias, Change, Checkpoint, Job, Layout, Point, Run, Setting

FORMATS = ("csv", "jsonl", "log", "tsv")
_JOBS = ("job", "launched", "gpus", "last_step", "state")
_CHECKPOINTS = ("name", "job", "step", "written", "status")
_POINTS = ("id", "job", "step", "phase", "wall", "loss_micronats", "grad_norm_e4")
_PAGE = 512  # bytes of a page of a database, so that small ones are small


def log_path(world: Run, job: Job) -> str:
    """Return the path of a job's log; formats take turns."""
    position = world.jobs.index(job)
    return f"{INPUT}logs/{world.name}-{job.id}.{FORMATS[position % len(FORMATS)]}"


def override_path(job: Job) -> str:
    """Return the path of a job's override file."""
    return f"{INPUT}configs/{job.id}.json"


def render(world: Run) -> dict[str, bytes]:
    """Return the clean files."""
    files = {f"{INPUT}configs/base.toml": _toml(world.base)}
    train: dict[str, list[Point]] = {job.id: [] for job in world.jobs}
    for point in world.points:
        if point.phase == "train":
            train[point.job].append(point)
    for job in world.jobs:
        rows = tuple(_line(point) for point in train[job.id])
        files[log_path(world, job)] = encode(Table(world.layouts[0].columns, rows), log_path(world, job))
        if job.file:
            files[override_path(job)] = override(job.file)
    commands = Table(("job", "command"), tuple((job.id, _command(job)) for job in world.jobs))
    changes = Table(
        ("job", "step", "key", "value"), tuple((c.job, str(c.step), c.key, c.value) for c in world.changes)
    )
    for name, table in (("launches.jsonl", commands), ("changes.tsv", changes)):
        files[INPUT + name] = encode(table, name)
    for name, value in {
        "run.json": {
            "run": world.name,
            "final_job": world.final_job,
            "high_percent": world.high_percent,
            "high_points": world.high_points,
            "inert": list(world.inert),
        },
        "keys.json": {alias.spelling: alias.key for alias in world.aliases},
        "layouts.json": {layout.name: _layout(layout) for layout in world.layouts},
        "cache/divergence.json": dict(zip(BLAME, world.blame, strict=True)),
    }.items():
        files[INPUT + name] = (json.dumps(value, indent=1) + "\n").encode()
    jobs = [(job.id, job.launched, job.gpus, job.last, job.state) for job in world.jobs]
    written = [
        (one.name, one.job, one.step, one.written, "complete" if one.complete else "partial")
        for one in world.checkpoints
    ]
    files[f"{INPUT}scheduler.sqlite"] = encode_sqlite(
        {
            "jobs": Table(_JOBS, tuple(sorted(jobs))),
            "checkpoints": Table(_CHECKPOINTS, tuple(sorted(written))),
        },
        {
            "jobs": ("TEXT", *("INTEGER",) * 3, "TEXT"),
            "checkpoints": ("TEXT", "TEXT", "INTEGER", "INTEGER", "TEXT"),
        },
        page_size=_PAGE,
    )
    tracked = {job.id for job in world.jobs if job.tracked}
    points = [(p.job, p.step, p.phase, p.wall, p.loss, p.norm) for p in world.points if p.job in tracked]
    files[f"{INPUT}tracker.sqlite"] = encode_sqlite(
        {"points": Table(_POINTS, tuple((number, *point) for number, point in enumerate(points, 1)))},
        {"points": ("INTEGER", "TEXT", "INTEGER", "TEXT", *("INTEGER",) * 3)},
        page_size=_PAGE,
    )
    return files


def decimal(value: int | None, digits: int) -> str:
    """Return an integer as decimal text with so many places, "nan" for None."""
    return "nan" if value is None else f"{value // 10**digits}.{value % 10**digits:0{digits}d}"


def undecimal(text: str) -> int | None:
    """Return the integer that decimal text tells, without the point."""
    return None if text == "nan" else int(text.replace(".", ""))


def numeric(value: str) -> bool:
    """Say whether a setting's value is a number."""
    return re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", value) is not None


def override(settings: Sequence[Setting]) -> bytes:
    """Return an override file: one setting a line."""
    lines = [
        f' "{one.key}": {one.value if numeric(one.value) else json.dumps(one.value)}' for one in settings
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _toml(base: Sequence[Setting]) -> bytes:
    values = {one.key: one.value if numeric(one.value) else json.dumps(one.value) for one in base}
    sections = [
        f"[{name}]\n" + "".join(f"{key} = {values[key]}\n" for key in keys) for name, keys in SECTIONS.items()
    ]
    return "\n".join(sections).encode()


def _command(job: Job) -> str:
    parts = ["python", "train.py", "--config", "configs/base.toml"]
    parts += ["--override", f"configs/{job.id}.json"] * bool(job.file)
    parts += ["--resume", job.resume] * bool(job.resume)
    parts += ["--track"] * job.tracked
    return " ".join([*parts, *(f"--{one.key} {one.value}" for one in job.flags)])


def _layout(layout: Layout) -> dict[str, object]:
    told = {
        "first_step": layout.first_step,
        "wall": layout.wall,
        "loss": layout.loss,
        "loss_unit": layout.unit,
    }
    return {"fields": dict(zip(FIELDS, layout.columns, strict=True)), **told}


def _line(point: Point) -> tuple[str, ...]:
    return (point.job, str(point.step), str(point.wall), decimal(point.loss, 6), decimal(point.norm, 4))


# --- the way back -----------------------------------------------------------------------------------------------
def recover(files: Files) -> Run:
    """Return the world whose clean files these are. Raises WorldError where they disagree with each other."""

    def value(name: str) -> dict:
        return json.loads(files[INPUT + name])

    told, scheduler = value("run.json"), decode_sqlite(files[f"{INPUT}scheduler.sqlite"])
    commands = {
        str(job): str(command)
        for job, command in decode(files[f"{INPUT}launches.jsonl"], "launches.jsonl").rows
    }
    jobs = [_job(files, row, commands[str(row[0])]) for row in scheduler["jobs"].rows]
    jobs.sort(key=lambda job: job.launched)
    order = {job.id: number for number, job in enumerate(jobs)}
    checkpoints = [
        Checkpoint(str(name), str(job), int(str(step)), int(str(written)), status == "complete")
        for name, job, step, written, status in scheduler["checkpoints"].rows
    ]
    checkpoints.sort(key=lambda one: (order[one.job], one.step))
    logged = [
        _point(row)
        for path in files
        if path.startswith(f"{INPUT}logs/")
        for row in decode(files[path], path).rows
    ]
    mirror = [_mirrored(row) for row in decode_sqlite(files[f"{INPUT}tracker.sqlite"])["points"].rows]
    tracked = {job.id for job in jobs if job.tracked}
    if {p for p in mirror if p.phase == "train"} != {p for p in logged if p.job in tracked}:
        raise WorldError("the clean logs do not agree with the tracker")
    points = [*logged, *(point for point in mirror if point.phase == "eval")]
    points.sort(key=lambda point: (order[point.job], point.phase, point.step))
    changes = decode(files[f"{INPUT}changes.tsv"], "changes.tsv").rows
    toml = tomllib.loads(files[f"{INPUT}configs/base.toml"].decode(), parse_float=str)
    return Run(
        told["run"],
        told["final_job"],
        told["high_percent"],
        told["high_points"],
        tuple(told["inert"]),
        tuple(Setting(key, str(setting)) for section in toml.values() for key, setting in section.items()),
        tuple(Alias(*pair) for pair in value("keys.json").items()),
        tuple(
            Layout(
                name,
                tuple(one["fields"].values()),
                one["first_step"],
                one["wall"],
                one["loss"],
                one["loss_unit"],
            )
            for name, one in value("layouts.json").items()
        ),
        tuple(_started(job, checkpoints) for job in jobs),
        tuple(checkpoints),
        tuple(Change(str(row[0]), int(str(row[1])), str(row[2]), str(row[3])) for row in changes),
        tuple(points),
        tuple(value("cache/divergence.json").values()),
    )


def _job(files: Files, row: tuple[Cell, ...], command: str) -> Job:
    """Return a job without its first step, which its checkpoint tells."""
    identity, launched, gpus, last, state = map(str, row)
    resume, tracked, flags, file = "", False, [], {}
    parts = iter(shlex.split(command)[2:])
    for part in parts:
        if part == "--track":
            tracked = True
        elif part == "--resume":
            resume = next(parts)
        elif part == "--override":
            file = json.loads(files[INPUT + next(parts)], parse_float=str, parse_int=str)
        elif part == "--config":
            next(parts)
        else:
            flags.append(Setting(part.removeprefix("--"), next(parts)))
    filed = tuple(Setting(key, str(value)) for key, value in file.items())
    return Job(identity, int(launched), resume, 0, int(last), int(gpus), state, tracked, filed, tuple(flags))


def _started(job: Job, checkpoints: list[Checkpoint]) -> Job:
    source = origin(job, tuple(checkpoints))
    return replace(job, first=source.step + 1 if source else 1)


def _point(row: tuple[Cell, ...]) -> Point:
    job, step, wall, loss, norm = map(str, row)
    return Point(job, int(step), "train", int(wall), undecimal(loss), undecimal(norm))


def _mirrored(row: tuple[Cell, ...]) -> Point:
    _, job, step, phase, wall, *measured = row
    loss, norm = (None if one is None else int(str(one)) for one in measured)
    return Point(str(job), int(str(step)), str(phase), int(str(wall)), loss, norm)
