"""The damage of a training run's records: what is lost, written twice, mixed up, or told in other words and units.

Every act leaves in the public tree what undoes it, under the rules that the prompt states:

    lost files      logs of tracked jobs that are gone: the tracker has all their points
    missing rows    single points of tracked jobs gone from their logs
    duplicates      earlier lines for the same step with other values; exact copies
    merged logs     a job that went on writing into another job's log; with it lost order: the lines interleave
    schema drift    logs in another layout; with it unit drift (summed losses, millinats), format drift (times) and
                    index drift (steps from 0)
    foreign lines   warnings and remains of crashes between the records
    key drift       other spellings of keys in override files, command lines and changes; with it number drift: 6e-4

The sets of points that are lost, overwritten and copied are disjoint, and nothing else happens to a lost log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from ...corrupt import OPERATORS as GENERIC
from ...corrupt import CorruptionError, Draft, Operator, on_table, text64
from ...tables import Cell, Table, decode, encode, table_format
from ...world import INPUT, Defect, Files
from .lineage import effective
from .render import decimal, log_path, numeric, override, override_path, undecimal
from .world import FIELDS, Job, Layout, Run, Setting

_T = TypeVar("_T")
_NOISE = (
    "WARNING: gradient bucket 7 arrived late on rank 3",
    "Traceback (most recent call last):",
    "RuntimeError: CUDA error: unspecified launch failure",
    "GPU 5: 1 correctable memory error",
    "saving checkpoint ...",
    "level=warn msg=slow-batch rank=2",
    "{truncated",
)


# --- operators of logs and configurations ------------------------------------------------------------------------
def _each(table: Table, column: str, act: Any) -> Table:
    """Return a table with act(row number, cell) in place of every cell of a column."""
    place = table.column(column)
    rows = [
        (*row[:place], act(number, str(row[place])), *row[place + 1 :])
        for number, row in enumerate(table.rows)
    ]
    return Table(table.columns, tuple(rows))


def _scaled(table: Table, parameters: dict[str, Any]) -> Table:
    """Unit drift. column; factors: one a row; before, after: decimal places, the digits stay."""
    factors = parameters["factors"]

    def act(row: int, cell: str) -> Cell:
        value = undecimal(cell)
        return decimal(None if value is None else value * factors[row], parameters["after"])

    return _each(table, parameters["column"], act)


def _unscaled(table: Table, parameters: dict[str, Any]) -> Table:
    factors = parameters["factors"]

    def act(row: int, cell: str) -> Cell:
        value = undecimal(cell)
        if value is not None and value % factors[row]:
            raise CorruptionError(f"{cell} is no multiple of {factors[row]}")
        return decimal(None if value is None else value // factors[row], parameters["before"])

    return _each(table, parameters["column"], act)


def _stepped(table: Table, parameters: dict[str, Any], sign: int) -> Table:
    """Index drift. column; by: what is added."""
    return _each(table, parameters["column"], lambda _, cell: str(int(cell) + sign * parameters["by"]))


def _iso(cell: str) -> str:
    return datetime.fromtimestamp(int(cell), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _epoch(cell: str) -> str:
    return str(int(datetime.fromisoformat(cell).timestamp()))


def _merged(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
    """Merged logs: the rows of another file go to the end of this one. other: its path; rows: how many it has."""
    mine, other = decode(files[path], path), decode(files[parameters["other"]], parameters["other"])
    if mine.columns != other.columns or len(other.rows) != parameters["rows"]:
        raise CorruptionError(
            f"{parameters['other']} does not fit the end of {path}, or has other rows than the plan says"
        )
    left = {name: data for name, data in files.items() if name != parameters["other"]}
    return left | {path: encode(Table(mine.columns, mine.rows + other.rows), path)}


def _parted(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
    both, rows, other = decode(files[path], path), parameters["rows"], parameters["other"]
    if other in files or len(both.rows) < rows:
        raise CorruptionError(f"{path} does not hold {rows} rows of {other}")
    mine, theirs = both.rows[: len(both.rows) - rows], both.rows[len(both.rows) - rows :]
    return files | {
        path: encode(Table(both.columns, mine), path),
        other: encode(Table(both.columns, theirs), other),
    }


def _rewritten(
    files: dict[str, bytes], path: str, parameters: dict[str, Any], old: int, new: int
) -> dict[str, bytes]:
    """Key and number drift. lines: [[number, line before, line after], ...]."""
    lines = files[path].decode().split("\n")
    for told in parameters["lines"]:
        if lines[told[0]] != told[old]:
            raise CorruptionError(f"line {told[0]} of {path} is not {told[old]!r}")
        lines[told[0]] = told[new]
    return files | {path: "\n".join(lines).encode()}


OPERATORS = GENERIC | {
    "scale_column": on_table(_scaled, _unscaled),
    "shift_column": on_table(lambda t, p: _stepped(t, p, 1), lambda t, p: _stepped(t, p, -1)),
    "recode_times": on_table(
        lambda t, p: _each(t, p["column"], lambda _, cell: _iso(cell)),
        lambda t, p: _each(t, p["column"], lambda _, cell: _epoch(cell)),
    ),
    "merge_file": Operator(_merged, _parted),
    "replace_lines": Operator(
        lambda f, path, p: _rewritten(f, path, p, 1, 2), lambda f, path, p: _rewritten(f, path, p, 2, 1)
    ),
}


# --- the plan ----------------------------------------------------------------------------------------------------
def plan(world: Run, files: Files, rng: np.random.Generator) -> tuple[Defect, ...]:
    """Draw the defect plan of a run."""
    draft = Draft(files, OPERATORS)
    many = 2 if len(world.jobs) > 9 else 1
    lost = _some(rng, [job for job in world.jobs if job.tracked][:-1], many)
    jobs = [job for job in world.jobs if job not in lost]
    dropped, stale, copied = _choose(world, rng, jobs)
    for job in jobs:
        _again(draft, rng, log_path(world, job), stale, copied)
        path = log_path(world, job)
        if gone := [[n, list(row)] for n, row in enumerate(draft.table(path).rows) if _key(row) in dropped]:
            draft.add("missing rows", "delete_rows", path, rows=gone)
    pairs = _some(rng, list(zip(jobs[::2], jobs[1::2], strict=False)), many)
    for one, other in pairs:
        path, end = log_path(world, one), log_path(world, other)
        draft.add("merged logs", "merge_file", path, other=end, rows=len(draft.table(end).rows))
        order = [int(position) for position in rng.permutation(len(draft.table(path).rows))]
        draft.add("lost order", "permute_rows", path, order=order)
    swallowed = {other for _, other in pairs}
    left = [job for job in jobs if job not in swallowed]
    for number, place in enumerate(int(n) for n in rng.permutation(len(left))):
        _drift(draft, world, log_path(world, left[place]), world.layouts[(number + 1) % 3])
    for job in lost:
        draft.add(
            "lost files", "lose_file", log_path(world, job), content=text64(draft.files[log_path(world, job)])
        )
    for job in _some(rng, left, (2 * len(left) + 2) // 3):
        _disturb(draft, rng, log_path(world, job))
    _respell(draft, world, rng)
    return tuple(draft.plan)


def _some(rng: np.random.Generator, pool: Sequence[_T], count: int) -> list[_T]:
    """Return `count` of a pool, in its order; all of it where it holds no more."""
    chosen = sorted(int(n) for n in rng.choice(len(pool), size=min(count, len(pool)), replace=False))
    return [pool[position] for position in chosen]


def _key(row: Sequence[Cell]) -> tuple[str, int]:
    """Return job and step of a row of a clean log."""
    return str(row[0]), int(str(row[1]))


def _choose(world: Run, rng: np.random.Generator, jobs: list[Job]) -> list[set[tuple[str, int]]]:
    """Return disjoint sets of points, as (job, step): dropped, preceded by a stale line, copied."""
    left = {job.id for job in jobs}
    tracked = {job.id for job in jobs if job.tracked}
    free = [(one.job, one.step) for one in world.points if one.phase == "train" and one.job in left]
    found = []
    for share, allowed in ((0.08, tracked), (0.05, left), (0.03, left)):
        pool = [key for key in free if key[0] in allowed]
        chosen = set(_some(rng, pool, max(2, round(share * len(pool)))))
        free = [key for key in free if key not in chosen]
        found.append(chosen)
    return found


def _again(
    draft: Draft,
    rng: np.random.Generator,
    path: str,
    stale: set[tuple[str, int]],
    copied: set[tuple[str, int]],
) -> None:
    """Insert stale lines before theirs, with an earlier time and another loss, and exact copies after theirs."""
    extra: list[list[Any]] = []
    for number, row in enumerate(draft.table(path).rows):
        told = dict(zip(FIELDS, map(str, row), strict=True))
        if _key(row) in stale:
            loss = 1_700_000 + int(rng.integers(5_000_000))
            told |= {"wall": str(int(told["wall"]) - int(rng.integers(1, 60))), "loss": decimal(loss, 6)}
            extra.append([number + len(extra), list(told.values())])
        elif _key(row) in copied:
            extra.append([number + len(extra) + 1, list(told.values())])
    if extra:
        draft.add("duplicates", "insert_rows", path, rows=extra)


def _drift(draft: Draft, world: Run, path: str, layout: Layout) -> None:
    """Tell a log in another layout."""
    clean = dict(zip(FIELDS, world.layouts[0].columns, strict=True))
    if layout == world.layouts[0]:
        return
    if (layout.loss, layout.unit) != ("mean", "nat"):
        jobs = {job.id: job for job in world.jobs}
        factors = [1] * len(draft.table(path).rows)
        if layout.loss == "sum":
            for number, (job, step) in enumerate(map(_key, draft.table(path).rows)):
                factors[number] = int(effective(world.base, jobs[job], world.changes, step)["grad_accum"][0])
        after = 3 if layout.unit == "millinat" else 6
        draft.add(
            "unit drift", "scale_column", path, column=clean["loss"], factors=factors, before=6, after=after
        )
    if layout.first_step == 0:
        draft.add("index drift", "shift_column", path, column=clean["step"], by=-1)
    if layout.wall == "iso":
        draft.add("format drift", "recode_times", path, column=clean["wall"])
    names = dict(zip(world.layouts[0].columns, layout.columns, strict=True))
    draft.add("schema drift", "rename_columns", path, names=names)


def _disturb(draft: Draft, rng: np.random.Generator, path: str) -> None:
    """Put one to three foreign lines into a log, never before its header."""
    count = len(draft.files[path].decode().split("\n")) - 1
    first = int(table_format(path) in ("csv", "tsv"))
    places = sorted(int(n) for n in rng.integers(first, count + 1, size=int(rng.integers(1, 4))))
    lines = [[place + number, _NOISE[int(rng.integers(len(_NOISE)))]] for number, place in enumerate(places)]
    draft.add("foreign lines", "insert_lines", path, lines=lines)


# --- other spellings ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Speller:
    """Spells keys and numbers otherwise, about every second time."""

    world: Run
    rng: np.random.Generator

    def key(self, key: str) -> str:
        names = [alias.spelling for alias in self.world.aliases if alias.key == key]
        return names[int(self.rng.integers(len(names)))] if names and self.rng.random() < 0.6 else key

    def value(self, value: str) -> str:
        if not numeric(value) or self.rng.random() < 0.5:
            return value
        mantissa = f"{Decimal(value):e}".replace("e+", "e")
        return mantissa if self.rng.random() < 0.5 else value + ("0" if "." in value else ".0")


def _respell(draft: Draft, world: Run, rng: np.random.Generator) -> None:
    """Spell settings otherwise in override files, command lines and changes."""
    speller = _Speller(world, rng)
    for job in (job for job in world.jobs if job.file):
        told = tuple(Setting(speller.key(one.key), speller.value(one.value)) for one in job.file)
        pairs = zip(override(job.file).decode().split("\n"), override(told).decode().split("\n"), strict=True)
        if lines := [[number, old, new] for number, (old, new) in enumerate(pairs) if old != new]:
            draft.add("key drift", "replace_lines", override_path(job), lines=lines)
    path, cells = f"{INPUT}launches.jsonl", []
    jobs = {job.id: job for job in world.jobs}
    for number, (identity, command) in enumerate(draft.table(path).rows):
        new = str(command)
        for one in jobs[str(identity)].flags:
            link = " " if rng.random() < 0.5 else "="
            new = new.replace(
                f"--{one.key} {one.value}", f"--{speller.key(one.key)}{link}{speller.value(one.value)}"
            )
        if new != command:
            cells.append([number, command, new])
    if cells:
        draft.add("key drift", "replace_cells", path, column="command", cells=cells)
    path = f"{INPUT}changes.tsv"
    for kind, column, spell in (("key drift", "key", speller.key), ("number drift", "value", speller.value)):
        old = [str(row[draft.table(path).column(column)]) for row in draft.table(path).rows]
        if cells := [[n, cell, new] for n, cell in enumerate(old) if (new := spell(cell)) != cell]:
            draft.add(kind, "replace_cells", path, column=column, cells=cells)
