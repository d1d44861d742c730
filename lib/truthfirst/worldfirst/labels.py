"""Labels of an environment on the nineteen coverage axes, each derived from the environment itself.

Nothing is declared by hand: a label follows from the recipe, the workflow, the public tree, the defect plan, the code
of the reference solver, the verifier's components, or from grading. The last three axes are observed: on a panel of
states that needs no model (the untouched tree, the reference after each stage, the counterfactuals of the hidden
suite), or on the gradings of real rollouts where these are given.

Horizons: semantic, decisions that somebody has to get right (the workflow's work); action, files to read, files to
write and stages; operational, bytes to read and to write; verification, facts that are compared (rows, values, tensors
of the right answer). Each is told as a band [2^k, 2^(k+1)).

Source: the axes of Tev (2026), appendix A.3, which names them; how they are measured here is ours.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import metadata
from pathlib import PurePosixPath
from typing import Any

from .contract import PACKAGE
from .grading import Grading, grade
from .instances import Instance, instance
from .scan import Scan
from .tables import decode, decode_sqlite
from .world import OUTPUT, Files, WorldError

Labels = Mapping[str, frozenset[str]]
_PLUMBING = frozenset(
    {*("__future__", "collections", "functools", "io"), *("itertools", "pathlib", "sys", "typing")}
)
_TABULAR = (".csv", ".tsv", ".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class Observed:
    """A state of the output that was graded."""

    files: Files = field(repr=False)
    grading: Grading


@dataclass(frozen=True)
class Evidence:
    """What labels are derived from.

    rollouts   graded final states of real rollouts; empty: the panel stands for them
    """

    instance: Instance
    rollouts: tuple[Observed, ...] = ()

    @cached_property
    def answer(self) -> dict[str, bytes]:
        """The right output."""
        return self.instance.generator.reference(self.instance.files)

    @cached_property
    def observed(self) -> tuple[Observed, ...]:
        return self.rollouts or panel(self.instance, self.answer)

    @cached_property
    def tables(self) -> dict[str, list[dict[str, list[Any]]]]:
        """Columns of everything tabular in the public tree, by folder; a database is a folder of its own."""
        found: dict[str, list[dict[str, list[Any]]]] = defaultdict(list)
        for path, data in self.instance.files.items():
            folder = str(PurePosixPath(path).parent)
            if path.endswith(".sqlite"):
                for table in decode_sqlite(data).values():
                    found[path].append(_columns(table.columns, table.rows))
            elif path.endswith(_TABULAR) and (columns := _delimited(data, path)):
                found[folder].append(columns)
        return dict(found)


def panel(made: Instance, answer: Files) -> tuple[Observed, ...]:
    """Return graded states that need no model: nothing done, the reference after each stage, every counterfactual."""
    states: list[dict[str, bytes]] = [{}]
    for stage in made.generator.reference_stages:
        states.append(states[-1] | made.generator.run_stage(stage, {**made.files, **states[-1]}))
    states += made.generator.counterfactuals(made.sealed, made.files, answer).values()
    return tuple(Observed(files, grade(made, Scan(files))) for files in states)


# --- measuring --------------------------------------------------------------------------------------------
def band(amount: int) -> str:
    """Return the band [2^k, 2^(k+1)) of a whole number, 0 by itself."""
    if amount < 1:
        return "0"
    low = 1 << (amount.bit_length() - 1)
    return f"{low}-{2 * low - 1}"


def facts(outputs: Files) -> int:
    """Return how many facts an output states: data rows, JSON values, lines, tensors."""
    total = 0
    for path, data in outputs.items():
        if path.endswith((".csv", ".tsv")):
            total += len(data.splitlines()) - 1
        elif path.endswith(".jsonl"):
            total += len(data.splitlines())
        elif path.endswith(".json"):
            total += _leaves(json.loads(data))
        elif path.endswith(".safetensors"):
            total += len(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]))
        else:
            total += 1
    return total


def _leaves(value: Any) -> int:
    if isinstance(value, dict | list):
        return sum(map(_leaves, value.values() if isinstance(value, dict) else value))
    return 1


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _delimited(data: bytes, path: str) -> dict[str, list[Any]] | None:
    """Return the columns of a table, None for a file that holds none."""
    try:
        table = decode(data, path)
    except (ValueError, KeyError, TypeError, AttributeError):  # JSON that is no list of records
        return None
    return _columns(table.columns, table.rows)


def _relations(tables: Mapping[str, list[dict[str, list[Any]]]]) -> frozenset[str]:
    """Return how tables relate: parts of one table in a folder, and by columns that two tables have in common."""
    found = set()
    every: list[dict[str, list[Any]]] = []
    for group in tables.values():
        shapes = Counter(tuple(sorted(columns)) for columns in group)
        if any(count > 1 for count in shapes.values()):
            found.add("parts of one table")
        every += [next(one for one in group if tuple(sorted(one)) == shape) for shape in shapes]
    for left, right in itertools.combinations(every, 2):
        for name in left.keys() & right.keys():
            one, other = left[name], right[name]
            keys = [set(map(str, values)) for values in (one, other)]
            if keys[0] & keys[1]:
                single = (len(keys[0]) == len(one)) + (len(keys[1]) == len(other))
                found.add(("many to many", "one to many", "one to one")[single])
    return frozenset(found) or frozenset({"none"})


@cache
def _capabilities(name: str) -> frozenset[str]:
    """Return the standard modules that the reference solver needs beyond plumbing."""
    tree = ast.parse(inspect.getsource(importlib.import_module(f"{PACKAGE}.{name}.reference")))
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {
        (node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    return frozenset((names & sys.stdlib_module_names) - _PLUMBING)


def _roles(evidence: Evidence) -> frozenset[str]:
    """Return what files are for, with their format: damaged or sound input, deliverable."""
    made = evidence.instance
    touched = set()
    for defect in made.sealed.plan:
        touched |= {defect.path, *defect.parameters.get("names", ()), str(defect.parameters.get("to", ""))}
    roles = {
        f"{'damaged' if path in touched else 'sound'} {PurePosixPath(path).suffix[1:] or 'file'}"
        for path in made.files
    }
    return frozenset(roles | {f"deliverable {one.format}" for one in made.generator.deliverables})


def _source(made: Instance) -> str:
    """Say whether the recipe alone gives the public tree again."""
    again = instance(made.recipe["generator"], made.recipe["seed"], made.recipe["tier"])
    return "seeded program" if again.tree_hash == made.tree_hash else "not reproducible"


@cache
def _license() -> str:
    """Return the licence that the installed package states."""
    told = metadata(__package__.split(".")[0])
    return told["License-Expression"] or told["License"] or "none stated"


def _reward_band(one: Observed) -> str:
    phi = one.grading.potential
    return "0" if phi == 0 else "1" if phi == 1 else f"quarter {int(4 * phi) + 1}"


def _outcome(one: Observed) -> str:
    if one.grading.passed:
        return "passed"
    return "part of the way" if one.grading.potential else "nothing of worth"


def _failure(one: Observed, made: Instance) -> str | None:
    """Return why a state fails, None where it passes."""
    if one.grading.passed:
        return None
    if not one.grading.components:
        return "unreadable"
    asked = {deliverable.path for deliverable in made.generator.deliverables}
    given = {path for path in one.files if path.startswith(OUTPUT)}
    if asked - given:
        return "incomplete" if given else "nothing written"
    if given - asked:
        return "foreign files"
    return "one fault" if sum(not held for held in one.grading.components.values()) == 1 else "several faults"


# --- the axes ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its name, what a value says, and how values are derived from the evidence."""

    name: str
    told: str
    derive: Callable[[Evidence], frozenset[str]] = field(repr=False)


def _one(value: object) -> frozenset[str]:
    return frozenset({str(value)})


def _all(values: Any) -> frozenset[str]:
    return frozenset(value for value in values if value is not None)


def _bytes(files: Files) -> int:
    return sum(map(len, files.values()))


AXES = (
    Axis(
        "curriculum layer", "stages on the critical path", lambda e: _one(len(e.instance.workflow.critical))
    ),
    Axis("subdomain", "the generator", lambda e: _one(e.instance.generator.name)),
    Axis("generator revision", "count of changes", lambda e: _one(f"r{e.instance.generator.revision}")),
    Axis("scale tier", "size of the world", lambda e: _one(e.instance.tier)),
    Axis("semantic horizon", "decisions", lambda e: _one(band(e.instance.workflow.work))),
    Axis(
        "action horizon",
        "files to read and to write, and stages",
        lambda e: _one(band(len(e.instance.files) + len(e.answer) + len(e.instance.workflow.stages))),
    ),
    Axis(
        "operational horizon",
        "bytes in and out",
        lambda e: _one(band(_bytes(e.instance.files) + _bytes(e.answer))),
    ),
    Axis("verification horizon", "facts compared", lambda e: _one(band(facts(e.answer)))),
    Axis(
        "workflow stage",
        "what a stage does",
        lambda e: _all(stage.name.split("-")[0] for stage in e.instance.workflow.stages),
    ),
    Axis(
        "tool capability", "modules that a solver needs", lambda e: _capabilities(e.instance.generator.name)
    ),
    Axis("artifact role", "what a file is for, and its format", _roles),
    Axis("relation type", "how tables relate", lambda e: _relations(e.tables)),
    Axis(
        "corruption class",
        "kinds of damage",
        lambda e: _all(defect.kind for defect in e.instance.sealed.plan),
    ),
    Axis("source kind", "where the data come from", lambda e: _one(_source(e.instance))),
    Axis("license class", "licence of the data", lambda e: _one(_license())),
    Axis("reward component", "what the verifier checks", lambda e: _all(e.instance.generator.components)),
    Axis("observed reward band", "where Phi has been seen", lambda e: _all(map(_reward_band, e.observed))),
    Axis("outcome category", "how attempts end", lambda e: _all(map(_outcome, e.observed))),
    Axis(
        "failure category", "why they fail", lambda e: _all(_failure(one, e.instance) for one in e.observed)
    ),
)


def labels(made: Instance, rollouts: Sequence[Observed] = ()) -> dict[str, frozenset[str]]:
    """Return the values of every axis. Raises WorldError where an axis gets none and nothing was left to observe."""
    evidence = Evidence(made, tuple(rollouts))
    found = {axis.name: axis.derive(evidence) for axis in AXES}
    if empty := [name for name, values in found.items() if not values and name != "failure category"]:
        raise WorldError(f"{made.id} has no value on the axis {empty[0]!r}")
    return found
