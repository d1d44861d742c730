"""The progress of training-run forensics: eleven nodes, each graded against the world in exact fractions.

A table is graded by its rows: c = max(0, right - wrong) / n, where n rows are expected, each of them is right once, and
all else that stands there is wrong. So c = 1 exactly when the rows are the expected ones, and guessing at large earns
nothing. The divergence has two nodes, when and why; a key that should not be there spoils both. Every node needs
`profile`, which takes counts of the very logs that were delivered.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

from ...world import Files, Grade, Node, Sealed
from .world import LAYERS, Checkpoint, Job, Point, Run

NODES = (
    Node("profile", 2, "profile-logs"),
    Node("lineage", 3, "trace-lineage", ("profile",)),
    Node("duplicates", 1, "repair-metrics", ("profile",)),
    Node("restored", 2, "repair-metrics", ("profile",)),
    Node("settings", 4, "resolve-settings", ("lineage",)),
    Node("waste", 1, "account-waste", ("lineage",)),
    Node("curve", 4, "stitch-curve", ("duplicates", "restored", "settings")),
    Node("onset", 3, "find-divergence", ("curve",)),
    Node("cause", 3, "find-divergence", ("onset",)),
    Node("phases", 2, "report-phases", ("curve",)),
    Node("manifest", 1, "package", ("cause", "phases", "waste")),
)
_HEADERS = {
    "logs.csv": ["file", "layout", "lines", "noise", "jobs", "points"],
    "lineage.csv": ["position", "job", "first_step", "last_step", "checkpoint"],
    "repairs.csv": ["kind", "job", "step"],
    "settings.csv": ["key", "first_step", "last_step", "value", "layer"],
    "curve.csv": ["step", "job", "tokens", "loss", "grad_norm"],
    "waste.tsv": ["job", "ran", "kept", "wasted_gpu_steps"],
    "phases.tsv": ["first_step", "last_step", "points", "lowest_loss", "highest_grad_norm", "tokens"],
}
_BY_ROWS = {
    "profile": "logs.csv",
    "lineage": "lineage.csv",
    "settings": "settings.csv",
    "waste": "waste.tsv",
    "curve": "curve.csv",
    "phases": "phases.tsv",
}
_WHEN = ("onset_step", "onset_job", "best_step", "best_loss")
_WHY = ("cause_step", "cause_key", "cause_before", "cause_after", "cause_layer")
Row = tuple[str, ...]


def scorer(sealed: Sealed) -> Grade:
    """Return the scorer of one world."""
    truth = _Truth(sealed)
    expected = {
        name: frozenset(tuple(map(str, row)) for row in make()) for name, make in truth.tables.items()
    }
    kinds = {
        kind: frozenset(row for row in expected["repairs.csv"] if row[0] == kind) for kind in truth.repairs
    }
    divergence = truth.divergence()
    manifest = {f"rows/{name}": len(rows) for name, rows in expected.items()}
    manifest |= {"last_step": truth.spans[-1][2], "tokens": truth.tokens_to(truth.spans[-1][2])}

    def grade(outputs: Files) -> dict[str, Fraction]:
        found = {node: _precision(_table(outputs, name), expected[name]) for node, name in _BY_ROWS.items()}
        repairs = _table(outputs, "repairs.csv")
        for node, kind in (("duplicates", "duplicate"), ("restored", "restored")):
            found[node] = _precision(_of_kind(repairs, kind, kinds), kinds[kind])
        told = _object(outputs, "divergence.json")
        known = told is not None and told.keys() <= divergence.keys()
        for node, keys in (("onset", _WHEN), ("cause", _WHY)):
            right = (
                sum(_same(told.get(key), divergence[key]) for key in keys)
                if told is not None and known
                else 0
            )
            found[node] = Fraction(right, len(keys))
        found["manifest"] = _manifest(outputs, manifest)
        return found

    return grade


# --- what an agent wrote ------------------------------------------------------------------------------------
def _table(outputs: Files, name: str) -> list[Row] | None:
    """Return the rows below the header, None for anything else."""
    data = outputs.get(f"output/{name}", b"")
    try:
        lines = [
            *csv.reader(io.StringIO(data.decode(), newline=""), delimiter="\t" if name[-3:] == "tsv" else ",")
        ]
    except (ValueError, csv.Error):
        return None
    return [tuple(line) for line in lines[1:]] if lines[:1] == [_HEADERS[name]] else None


def _object(outputs: Files, name: str) -> dict[str, Any] | None:
    try:
        value = json.loads(outputs.get(f"output/{name}", b"").decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _precision(rows: Iterable[Row] | None, expected: frozenset[Row]) -> Fraction:
    """Return max(0, right - wrong) / n."""
    counts = Counter(rows or ())
    right = len(expected & counts.keys())
    return Fraction(max(0, right - (counts.total() - right)), len(expected))


def _of_kind(rows: list[Row] | None, kind: str, kinds: Mapping[str, frozenset[Row]]) -> Iterable[Row]:
    """Yield the rows of a kind, and what is out of place for every kind: unknown kinds, odd widths, repetitions."""
    for row, count in Counter(rows or ()).items():
        other = len(row) == 3 and row[0] in kinds and row[0] != kind
        yield from itertools.repeat(row, count - other)


def _same(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and value == expected


def _manifest(outputs: Files, expected: Mapping[str, int]) -> Fraction:
    """Grade counts and totals; a foreign key, and a foreign file in output/, spoil the package."""
    names = {f"output/{name}" for name in (*_HEADERS, "divergence.json", "manifest.json")}
    told = _object(outputs, "manifest.json") or {}
    rows = told.pop("rows", None)
    if outputs.keys() - names or not isinstance(rows, dict):
        return Fraction(0)
    if rows.keys() - _HEADERS.keys() or told.keys() - {"last_step", "tokens"}:
        return Fraction(0)
    flat = told | {f"rows/{name}": count for name, count in rows.items()}
    return Fraction(sum(_same(flat.get(name), value) for name, value in expected.items()), len(expected))


# --- the truth ----------------------------------------------------------------------------------------------
class _Truth:
    """What each node is graded against, from the world and the plan.

    spans   (job, first step, last step, checkpoint) of what counts, from the end to the start and turned round
    """

    def __init__(self, sealed: Sealed) -> None:
        self.run: Run = sealed.world
        self.plan = sealed.plan
        self.spans = self._spans()
        self.last = {job.id: last for job, _, last, _ in self.spans}
        self.repairs = self._repairs()
        self.tables: dict[str, Callable[[], Iterable[tuple[Any, ...]]]] = {
            "logs.csv": self._logs,
            "lineage.csv": self._lineage,
            "repairs.csv": lambda: ((kind, *key) for kind, keys in self.repairs.items() for key in keys),
            "settings.csv": lambda: itertools.chain.from_iterable(map(self._stretches, self._base)),
            "curve.csv": lambda: (
                (p.step, p.job, self.tokens_to(p.step), _told(p.loss, 6), _told(p.norm, 4))
                for p in self.curve
            ),
            "waste.tsv": self._waste,
            "phases.tsv": self._phases,
        }

    def _source(self, job: Job) -> Checkpoint | None:
        written = sorted(self.run.checkpoints, key=lambda one: -one.written)
        if job.resume == "auto":
            return next(one for one in written if one.complete and one.written < job.launched)
        return next((one for one in written if one.name == job.resume), None)

    def _spans(self) -> tuple[tuple[Job, int, int, Checkpoint | None], ...]:
        by_id = {job.id: job for job in self.run.jobs}

        def back(job: Job, last: int) -> list[tuple[Job, int, int, Checkpoint | None]]:
            source = self._source(job)
            earlier = back(by_id[source.job], source.step) if source else []
            return [*earlier, (job, source.step + 1 if source else 1, last, source)]

        return tuple(back(by_id[self.run.final_job], by_id[self.run.final_job].last))

    def _lineage(self) -> Iterable[tuple[Any, ...]]:
        for position, (job, first, last, source) in enumerate(self.spans):
            yield (position + 1, job.id, first, last, source.name if source else "")

    def _waste(self) -> Iterable[tuple[Any, ...]]:
        kept = {job.id: last - first + 1 for job, first, last, _ in self.spans}
        for job in self.run.jobs:
            wasted = job.last - job.first + 1 - kept.get(job.id, 0)
            yield (job.id, wasted + kept.get(job.id, 0), kept.get(job.id, 0), wasted * job.gpus)

    # --- settings ---------------------------------------------------------------------------------------------
    @cached_property
    def _base(self) -> dict[str, str]:
        return {one.key: one.value for one in self.run.base}

    @cached_property
    def _turns(self) -> dict[str, list[tuple[int, str, str]]]:
        """Return for each key (step, value, layer) wherever its value becomes another one, step 1 included."""
        found: dict[str, list[tuple[int, str, str]]] = {}
        for key in self._base:
            told: list[tuple[int, str, str]] = []
            for job, first, last, _ in self.spans:
                given = [(first, self._base[key], LAYERS[0])]
                for layer, settings in zip(LAYERS[1:3], (job.file, job.flags), strict=True):
                    given = [(first, one.value, layer) for one in settings if one.key == key] or given
                mine = [
                    one
                    for one in self.run.changes
                    if one.job == job.id and one.key == key and one.step <= last
                ]
                told += given + [(one.step, one.value, LAYERS[3]) for one in mine]
            found[key] = told[:1] + [b for a, b in itertools.pairwise(told) if a[1] != b[1]]
        return found

    def _value(self, key: str, step: int) -> str:
        return [value for begin, value, _ in self._turns[key] if begin <= step][-1]

    def _stretches(self, key: str) -> Iterable[tuple[Any, ...]]:
        turns = self._turns[key]
        ends = [turn[0] - 1 for turn in turns[1:]] + [self.spans[-1][2]]
        for (first, value, layer), last in zip(turns, ends, strict=True):
            yield (key, first, last, value, layer)

    @cached_property
    def _paces(self) -> list[tuple[int, int, int]]:
        """Return (first step, tokens of a step, tokens before it), a new entry wherever a step's tokens may change."""
        keys = ("batch_size", "seq_len", "grad_accum")
        steps = sorted({turn[0] for key in keys for turn in self._turns[key]})
        found: list[tuple[int, int, int]] = []
        for step in steps:
            batch, length, parts = (int(self._value(key, step)) for key in keys)
            before = found[-1][2] + found[-1][1] * (step - found[-1][0]) if found else 0
            found.append((step, batch * length * parts, before))
        return found

    def tokens_to(self, step: int) -> int:
        """Return the tokens of all steps that count up to this one."""
        first, each, before = [pace for pace in self._paces if pace[0] <= step][-1]
        return before + each * (step - first + 1)

    # --- the curve --------------------------------------------------------------------------------------------
    @cached_property
    def curve(self) -> list[Point]:
        firsts = {job.id: first for job, first, _, _ in self.spans}
        mine = (p for p in self.run.points if p.phase == "train" and p.job in self.last)
        return sorted((p for p in mine if firsts[p.job] <= p.step <= self.last[p.job]), key=lambda p: p.step)

    def divergence(self) -> dict[str, Any]:
        best: Point | None = None
        lowest: int | None = None
        runs = 0
        for number, point in enumerate(self.curve):
            loss = point.loss
            high = loss is None or (
                lowest is not None and 100 * (loss - lowest) > self.run.high_percent * lowest
            )
            runs = runs + 1 if high else 0
            if runs == self.run.high_points:
                onset = self.curve[number + 1 - runs]
                break
            if not high and loss is not None and (lowest is None or loss < lowest):
                best, lowest = point, loss
        assert best is not None
        active = [key for key in self._base if key not in self.run.inert]
        turns = [(turn, key) for key in active for turn in self._turns[key][1:] if turn[0] <= onset.step]
        (step, value, layer), key = max(turns)
        return {
            "onset_step": onset.step,
            "onset_job": onset.job,
            "best_step": best.step,
            "best_loss": _told(best.loss, 6),
            "cause_step": step,
            "cause_key": key,
            "cause_before": self._value(key, step - 1),
            "cause_after": value,
            "cause_layer": layer,
        }

    def _phases(self) -> Iterable[tuple[Any, ...]]:
        active = (key for key in self._base if key not in self.run.inert)
        starts = sorted({turn[0] for key in active for turn in self._turns[key]})
        for first, after in itertools.pairwise([*starts, self.spans[-1][2] + 1]):
            mine = [p for p in self.curve if first <= p.step < after]
            lowest = min((p.loss for p in mine if p.loss is not None), default=None)
            highest = max((p.norm for p in mine if p.norm is not None), default=None)
            tokens = self.tokens_to(after - 1) - (self.tokens_to(first - 1) if first > 1 else 0)
            ends = ["" if one is None else _told(one, places) for one, places in ((lowest, 6), (highest, 4))]
            yield (first, after - 1, len(mine), *ends, tokens)

    # --- the damage -------------------------------------------------------------------------------------------
    def _moved(self, kind: str) -> list[tuple[str, int]]:
        """Return (job, step) of every row that acts of a kind inserted or deleted."""
        return [
            (cells[0], int(cells[1]))
            for defect in self.plan
            if defect.kind == kind
            for _, cells in defect.parameters["rows"]
        ]

    def _gone(self, operator: str) -> dict[str, str]:
        """Return job -> job of the logs that ended up in another one (or "" where they were lost)."""

        def job(path: str) -> str:
            return path.rpartition(".")[0].rpartition("-")[2]

        acts = [defect for defect in self.plan if defect.operator == operator]
        if operator == "lose_file":
            return {job(defect.path): "" for defect in acts}
        return {job(defect.parameters["other"]): job(defect.path) for defect in acts}

    def _repairs(self) -> dict[str, set[tuple[str, int]]]:
        lost = self._gone("lose_file")
        gone = {(p.job, p.step) for p in self.run.points if p.phase == "train" and p.job in lost}
        return {
            "duplicate": set(self._moved("duplicates")),
            "restored": gone | set(self._moved("missing rows")),
        }

    def _logs(self) -> Iterable[tuple[Any, ...]]:
        merged, lost = self._gone("merge_file"), self._gone("lose_file")
        more, fewer = self._moved("duplicates"), set(self._moved("missing rows"))
        second = {layout.columns[1]: layout.name for layout in self.run.layouts}
        for number, job in enumerate(self.run.jobs):
            if job.id in merged or job.id in lost:
                continue
            writers = {job.id} | {other for other, host in merged.items() if host == job.id}
            own = [(p.job, p.step) for p in self.run.points if p.phase == "train" and p.job in writers]
            held = [key for key in own if key not in fewer]
            name = f"{self.run.name}-{job.id}.{('csv', 'jsonl', 'log', 'tsv')[number % 4]}"
            layout, noise = self.run.layouts[0].name, 0
            for defect in self.plan:
                if defect.path.endswith(f"/{name}"):
                    if defect.operator == "rename_columns":
                        layout = second[[*defect.parameters["names"].values()][1]]
                    elif defect.operator == "insert_lines":
                        noise += len(defect.parameters["lines"])
            lines = len(held) + sum(key[0] in writers for key in more) + noise
            yield (name, layout, lines, noise, len({key[0] for key in held}), len(held))


def _told(value: int | None, places: int) -> str:
    if value is None:
        return "nan"
    digits = f"{value:0{places + 1}}"
    return f"{digits[:-places]}.{digits[-places:]}"
