"""The contract of an external benchmark, and the one table of what was run and what was not.

A benchmark takes an OpenAI-compatible endpoint and gives tidy rows, one a category, in the columns of COLUMNS:

    benchmark, version    whose suite, and which release of it
    group, category       the suite's own names
    metric                what `score` is; accuracy is a share in [0, 1]
    model, weights        the model's label, and the hash of a local checkpoint's weights (None at an endpoint)
    status                "run" or "not run"
    cases, of             cases that were scored, and cases that the category has
    score, low, high      the suite's own score and its 95 % interval; None where nothing was run
    correct, errors       cases right, and cases that ended in an error of the client or server (scored all the same)
    note                  why something was not run and what it needs, or what a reader of the score must know

Intervals of an accuracy are Wilson's (scipy), which stay honest at 0 and 1, where a bootstrap's interval is a point.

Two suites of the literature have no package that could be installed and pinned. `Unpackaged` holds their place: the
same interface, whose rows say that they have not been run and what a run would need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from scipy.stats import binomtest

from .. import paths
from ..records import write_parquet
from ..study.stats import LEVEL

RUN, NOT_RUN = "run", "not run"
COLUMNS = {
    "benchmark": "string",
    "version": "string",
    "group": "string",
    "category": "string",
    "metric": "string",
    "model": "string",
    "weights": "string",
    "status": "string",
    "cases": "Int64",
    "of": "Int64",
    "score": "Float64",
    "low": "Float64",
    "high": "Float64",
    "correct": "Int64",
    "errors": "Int64",
    "note": "string",
}


class BenchmarkError(ValueError):
    """A benchmark cannot run as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who is evaluated.

    url       up to and with /v1
    model     the name that the endpoint knows
    label     the name in the table
    weights   hash of a local checkpoint's weights, else None
    scripted  True for a player that answers from a script, and is told which case it plays
    """

    url: str
    model: str
    label: str
    weights: str | None = None
    scripted: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a benchmark can run here; `remedy` says what is missing and what to do."""

    ready: bool
    remedy: str = ""


class Benchmark(Protocol):
    """Whatever evaluates an endpoint with a suite of its own."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> tuple[str, ...]: ...

    def availability(self) -> Availability:
        """Say whether the suite is here, and how to get it."""
        ...

    def run(
        self, endpoint: Endpoint, out: Path, *, groups: Sequence[str] = (), limit: int | None = None
    ) -> pd.DataFrame:
        """Evaluate `endpoint` on `groups` (default: all) and return rows as the module docstring says.

        out    folder of the suite's own files; what is finished there is not run again
        limit  cases a category, evenly spaced over it; None runs all
        """
        ...


@dataclass(frozen=True, slots=True)
class Unpackaged:
    """A suite that cannot be installed: every row says so."""

    name: str
    groups: tuple[str, ...]
    metric: str
    needs: str

    def availability(self) -> Availability:
        return Availability(False, self.needs)

    def run(
        self, endpoint: Endpoint, out: Path, *, groups: Sequence[str] = (), limit: int | None = None
    ) -> pd.DataFrame:
        known_groups(self, groups)
        return frame(self.row(group, endpoint) for group in groups or self.groups)

    def row(self, group: str, endpoint: Endpoint | None = None) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "group": group,
            "category": group,
            "metric": self.metric,
            "model": endpoint.label if endpoint else None,
            "weights": endpoint.weights if endpoint else None,
            "status": NOT_RUN,
            "note": self.needs,
        }


TRAVELBENCH = Unpackaged(
    "TravelBench",
    ("plan_quality",),
    "plan quality",
    "the suite is not packaged: needs its authors' tasks, travel database and judge, behind Benchmark.run",
)
ECOMMERCE = Unpackaged(
    "E-Commerce Bench",
    ("store_365_days",),
    "final balance",
    "the suite is not packaged: needs its authors' simulator of a 365-day store, behind Benchmark.run",
)
UNPACKAGED = (TRAVELBENCH, ECOMMERCE)


def known_groups(benchmark: Benchmark, groups: Sequence[str]) -> None:
    """Raise BenchmarkError for the first group that the benchmark does not have."""
    for group in groups:
        if group not in benchmark.groups:
            raise BenchmarkError(
                f"{benchmark.name} has no group {group!r}: choose from {', '.join(benchmark.groups)}"
            )


def accuracy(correct: int, cases: int) -> dict[str, Any]:
    """Return the columns score, low, high, correct and cases of `correct` cases out of `cases`."""
    if not 0 <= correct <= cases:
        raise BenchmarkError(f"{correct} of {cases} cases cannot be right: the score file is damaged")
    found: dict[str, Any] = {"correct": correct, "cases": cases, "score": None, "low": None, "high": None}
    if cases:
        low, high = binomtest(correct, cases).proportion_ci(LEVEL, method="wilson")
        found |= {"score": correct / cases, "low": float(low), "high": float(high)}
    return found


def frame(rows: Any) -> pd.DataFrame:
    """Return rows as a frame with the columns and types of COLUMNS; what a row lacks is missing."""
    return pd.DataFrame(list(rows), columns=list(COLUMNS)).astype(COLUMNS)


def store(rows: pd.DataFrame, path: Path | None = None) -> pd.DataFrame:
    """Add rows to the stored table and return it whole.

    A row replaces the stored one of its benchmark, category and model, unless the stored one has more cases, or the new
    one says "not run" where the stored one was run. Suites that are not packaged have one row a group without a model,
    so that no reader takes a missing row for a forgotten one.
    """
    path = path or paths.RESULTS / "external.parquet"
    known = pd.read_parquet(path).astype(COLUMNS) if path.exists() else frame([])
    absent = frame(suite.row(group) for suite in UNPACKAGED for group in suite.groups)
    whole = pd.concat([part for part in (known, rows, absent) if len(part)], ignore_index=True)
    key = ["benchmark", "category", "model"]
    ran = whole["status"] == RUN
    kept = whole[ran].sort_values("cases", kind="stable").drop_duplicates(key, keep="last")
    whole = pd.concat([kept, whole[~ran].drop_duplicates(key, keep="last")])
    whole = whole.drop_duplicates(key, keep="first").sort_index(ignore_index=True)
    write_parquet(path, whole)
    return whole
