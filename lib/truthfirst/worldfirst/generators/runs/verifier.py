"""The strict verifier of training-run forensics: every deliverable against the world, all or nothing.

What is right follows from the world and the defect plan alone, never from a solver or from public files. Tables are
compared as multisets of rows of text, so the order of rows, quoting and line ends do not matter; JSON as values, so
spaces and the order of keys do not matter, but 1.0 and true are not 1.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...world import Defect, Files, Sealed, Verdict, Verify
from .world import Checkpoint, Job, Point, Run

_FILES = {  # file -> (component, header; none for JSON)
    "logs.csv": ("profile", "file,layout,lines,noise,jobs,points"),
    "lineage.csv": ("lineage", "position,job,first_step,last_step,checkpoint"),
    "repairs.csv": ("repairs", "kind,job,step"),
    "settings.csv": ("settings", "key,first_step,last_step,value,layer"),
    "curve.csv": ("curve", "step,job,tokens,loss,grad_norm"),
    "waste.tsv": ("waste", "job,ran,kept,wasted_gpu_steps"),
    "divergence.json": ("divergence", ""),
    "phases.tsv": ("phases", "first_step,last_step,points,lowest_loss,highest_grad_norm,tokens"),
    "manifest.json": ("package", ""),
}
COMPONENTS = (
    "profile",
    "lineage",
    "repairs",
    "settings",
    "curve",
    "waste",
    "divergence",
    "phases",
    "package",
)
Row = tuple[Any, ...]


def verifier(sealed: Sealed) -> Verify:
    """Return the verifier of one world."""
    truth = _truth(sealed.world, sealed.plan)
    expected = {
        name: rows if name.endswith(".json") else Counter(tuple(map(str, row)) for row in rows)
        for name, rows in truth.items()
    }

    def verify(outputs: Files) -> Verdict:
        problems: list[tuple[str, str]] = []
        for path in sorted(outputs):
            if path.removeprefix("output/") not in _FILES:
                problems.append(("package", f"{path!r} is no deliverable"))
        for name, (component, header) in _FILES.items():
            found = _problem(name, header, outputs.get(f"output/{name}"), expected[name])
            problems += [(component, f"{name}: {found}")] if found else []
        failed = {component for component, _ in problems}
        return Verdict(
            {one: one not in failed for one in COMPONENTS}, tuple(reason for _, reason in problems)
        )

    return verify


def _problem(name: str, header: str, data: bytes | None, expected: Any) -> str | None:
    """Return what is wrong with a deliverable, or None."""
    if data is None:
        return "missing"
    try:
        text = data.decode("utf-8")
        if not header:
            told = json.dumps(json.loads(text), sort_keys=True)
            return None if told == json.dumps(expected, sort_keys=True) else "other values"
        lines = list(
            csv.reader(io.StringIO(text, newline=""), delimiter="\t" if name.endswith("tsv") else ",")
        )
    except (ValueError, TypeError, csv.Error, RecursionError) as error:
        return f"cannot be read ({type(error).__name__})"
    if not lines or lines[0] != header.split(","):
        return "another header"
    found = Counter(map(tuple, lines[1:]))
    missing, many = (expected - found).total(), (found - expected).total()
    return f"{missing} rows missing, {many} rows too many" if missing or many else None


# --- what is right ----------------------------------------------------------------------------------------
def _decimal(value: int | None, places: int) -> str:
    return "nan" if value is None else f"{value // 10**places}.{value % 10**places:0{places}}"


def _truth(world: Run, plan: tuple[Defect, ...]) -> dict[str, Any]:
    """Return the rows of every table and the value of every JSON file, by name."""
    lineage = _lineage(world)
    segments = list(_segments(world, lineage))
    points = {(p.job, p.step): p for p in world.points if p.phase == "train"}
    curve, start = [], 0  # (point, tokens)
    for first, last, job, held in segments:
        each = int(held["batch_size"][0]) * int(held["seq_len"][0]) * int(held["grad_accum"][0])
        for step in range(first, last + 1):
            if (job, step) in points:
                curve.append((points[job, step], start + each * (step - first + 1)))
        start += each * (last - first + 1)
    logs, repairs = _damage(world, plan, set(points))
    found: dict[str, Any] = {
        "logs.csv": logs,
        "lineage.csv": [
            (number, job.id, first, last, checkpoint.name if checkpoint else "")
            for number, (job, first, last, checkpoint) in enumerate(lineage, 1)
        ],
        "repairs.csv": repairs,
        "settings.csv": list(_settings(segments)),
        "curve.csv": [
            (p.step, p.job, tokens, _decimal(p.loss, 6), _decimal(p.norm, 4)) for p, tokens in curve
        ],
        "waste.tsv": list(_waste(world, lineage)),
        "phases.tsv": list(_phases(world, segments, curve)),
    }
    rows = {name: len(table) for name, table in found.items()}
    found["divergence.json"] = _divergence(world, segments, [point for point, _ in curve])
    found["manifest.json"] = {"rows": rows, "last_step": lineage[-1][2], "tokens": start}
    return found


def _lineage(world: Run) -> list[tuple[Job, int, int, Checkpoint | None]]:
    """Return (job, first step, last step, checkpoint it resumed from) of what counts, in order."""
    by_name = {one.name: one for one in world.checkpoints}
    found: list[tuple[Job, int, int, Checkpoint | None]] = []
    wanted: str | None = world.final_job
    while wanted is not None:
        job = next(job for job in world.jobs if job.id == wanted)
        source = by_name.get(job.resume)
        if job.resume == "auto":
            for one in world.checkpoints:
                if (
                    one.complete
                    and one.written < job.launched
                    and (source is None or one.written > source.written)
                ):
                    source = one
        last = found[0][1] - 1 if found else job.last
        found.insert(0, (job, job.first, last, source))
        wanted = source.job if source else None
    return found


def _segments(
    world: Run, lineage: list[tuple[Job, int, int, Checkpoint | None]]
) -> Iterator[tuple[int, int, str, dict[str, tuple[str, str]]]]:
    """Yield (first step, last step, job, key -> (value, layer)), a new one at every restart and every change."""
    for job, first, last, _ in lineage:
        held = {one.key: (one.value, "base") for one in world.base}
        for layer, settings in (("file", job.file), ("flag", job.flags)):
            held.update((one.key, (one.value, layer)) for one in settings)
        begin = first
        for change in (one for one in world.changes if one.job == job.id and one.step <= last):
            if change.step > begin:
                yield begin, change.step - 1, job.id, dict(held)
                begin = change.step
            held[change.key] = (change.value, "hot")
        yield begin, last, job.id, dict(held)


def _settings(segments: list[tuple[int, int, str, dict[str, tuple[str, str]]]]) -> Iterator[Row]:
    for key in segments[0][3]:
        first, told = 1, segments[0][3][key]
        for begin, _, _, held in segments[1:]:
            if held[key][0] != told[0]:
                yield (key, first, begin - 1, *told)
                first, told = begin, held[key]
        yield (key, first, segments[-1][1], *told)


def _waste(world: Run, lineage: list[tuple[Job, int, int, Checkpoint | None]]) -> Iterator[Row]:
    kept = {job.id: last - first + 1 for job, first, last, _ in lineage}
    for job in world.jobs:
        ran, mine = job.last - job.first + 1, kept.get(job.id, 0)
        yield (job.id, ran, mine, job.gpus * (ran - mine))


def _divergence(
    world: Run, segments: list[tuple[int, int, str, dict[str, tuple[str, str]]]], curve: list[Point]
) -> dict[str, Any]:
    losses = [point.loss for point in curve]
    numbers = [math.inf if loss is None else loss for loss in losses]
    lowest = [math.inf, *itertools.accumulate(numbers, min)]  # before each point
    high = [
        loss is None or loss * 100 > least * (100 + world.high_percent)
        for loss, least in zip(losses, lowest, strict=False)
    ]
    width = world.high_points
    onset = next(n for n in range(len(high)) if all(high[n : n + width]) and len(high) - n >= width)
    best = numbers.index(min(numbers[:onset]))
    causes = []
    for (_, _, _, before), (step, _, _, held) in itertools.pairwise(segments):
        if step <= curve[onset].step:
            causes += [
                (step, key, before[key][0], value, layer)
                for key, (value, layer) in held.items()
                if value != before[key][0] and key not in world.inert
            ]
    step, key, old, new, layer = causes[-1]
    return {
        "onset_step": curve[onset].step,
        "onset_job": curve[onset].job,
        "best_step": curve[best].step,
        "best_loss": _decimal(losses[best], 6),
        "cause_step": step,
        "cause_key": key,
        "cause_before": old,
        "cause_after": new,
        "cause_layer": layer,
    }


def _phases(
    world: Run,
    segments: list[tuple[int, int, str, dict[str, tuple[str, str]]]],
    curve: list[tuple[Point, int]],
) -> Iterator[Row]:
    open_: list[Any] = []  # first step, last step, values of the settings that are not inert, tokens
    closed: list[list[Any]] = []
    for first, last, _, held in segments:
        values = {key: value for key, (value, _) in held.items() if key not in world.inert}
        tokens = (
            (last - first + 1)
            * int(values["batch_size"])
            * int(values["seq_len"])
            * int(values["grad_accum"])
        )
        if open_ and open_[2] == values:
            open_[1], open_[3] = last, open_[3] + tokens
        else:
            open_ = [first, last, values, tokens]
            closed.append(open_)
    for first, last, _, tokens in closed:
        mine = [point for point, _ in curve if first <= point.step <= last]
        losses, norms = (
            [p.loss for p in mine if p.loss is not None],
            [p.norm for p in mine if p.norm is not None],
        )
        lowest = _decimal(min(losses), 6) if losses else ""
        yield (first, last, len(mine), lowest, _decimal(max(norms), 4) if norms else "", tokens)


def _damage(
    world: Run, plan: tuple[Defect, ...], points: set[tuple[str, int]]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of logs.csv and repairs.csv: the plan followed on the records in each log."""
    columns = {layout.columns: layout.name for layout in world.layouts}
    held: dict[str, list[tuple[str, int]]] = {}
    for number, job in enumerate(world.jobs):
        path = f"input/logs/{world.name}-{job.id}." + ("csv", "jsonl", "log", "tsv")[number % 4]
        held[path] = sorted(point for point in points if point[0] == job.id)
    layouts, noise = dict.fromkeys(held, world.layouts[0].name), Counter[str]()
    for defect in plan:
        path, told = defect.path, defect.parameters
        if defect.operator == "insert_rows":
            for position, cells in told["rows"]:
                held[path].insert(position, (cells[0], int(cells[1])))
        elif defect.operator == "delete_rows":
            for position, _ in told["rows"][::-1]:
                held[path].pop(position)
        elif defect.operator == "permute_rows":
            held[path] = [held[path][position] for position in told["order"]]
        elif defect.operator == "merge_file":
            held[path] += held.pop(told["other"])
        elif defect.operator == "rename_columns":
            layouts[path] = columns[tuple(told["names"].values())]
        elif defect.operator == "lose_file":
            held.pop(path)
        elif defect.operator == "insert_lines":
            noise[path] += len(told["lines"])
    rows: list[Row] = [
        (
            path[11:],
            layouts[path],
            len(mine) + noise[path],
            noise[path],
            len({job for job, _ in mine}),
            len(set(mine)),
        )
        for path, mine in held.items()
    ]
    counts = Counter(point for mine in held.values() for point in mine)
    repairs: list[Row] = [("duplicate", *point) for point in points if counts[point] > 1]
    return rows, repairs + [("restored", *point) for point in points if not counts[point]]
