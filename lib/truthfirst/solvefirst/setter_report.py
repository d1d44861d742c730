"""What a setter is worth: its yield, why its answers and candidates were refused, and what an environment costs.

`trial` lets several setters tell the same instances and judges every candidate by the gates. `answers` reads what
language setters kept of each answer. `setter_frame` makes the tidy frame of the figure `setters` of both; candidates
of a build (`build_report.candidate_frame`) serve as well as those of a trial.

Costs count every candidate and every answer, so that an admitted environment pays for those that were refused; they
are null where none was admitted. Yield carries its Wilson interval (Wilson, "Probable inference", 1927).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from ..records import read_jsonl
from .admit.gates import admit
from .candidates import Recipe, build_candidate
from .realize.setter import Setter
from .realize.spec import SpecError

CANDIDATES = tuple("setter family size domain index admitted gate evidence seconds dollars tokens".split())
ANSWERS = tuple("setter family domain attempt outcome check reason prompt completion dollars seconds".split())
COLUMNS = ("setter", "measure", "reason", "count", "n", "value", "low", "high")


def trial(
    setters: Mapping[str, Callable[[], Setter]],
    recipes: Sequence[Recipe],
    clock: Callable[[], float] = time.perf_counter,
) -> pd.DataFrame:
    """Return one row for every setter and recipe; columns CANDIDATES.

    setters   name -> maker of a fresh setter; a name may differ from the setter's own, such as "injected"
    clock     seconds are differences of it: the wall's by default, which counts the waiting for a far model;
              time.process_time for setters that work in this process, which a busy machine disturbs least

    Raises SetterUnavailable where a model cannot be asked.
    """
    rows = []
    for name, make in setters.items():
        for recipe in recipes:
            started, writer = clock(), make()
            gate: str | None = None
            evidence: str | None = None
            try:
                environment = build_candidate(recipe, writer)
            except SpecError as error:
                gate, evidence = "setter", str(error)[:2_000]
            else:
                verdict = admit(environment)
                gate, evidence = verdict.gate, verdict.evidence
            spent = {key: getattr(writer, key, 0) for key in ("dollars", "tokens")}
            row = asdict(recipe) | spent | {"setter": name, "gate": gate, "evidence": evidence}
            rows.append(row | {"admitted": gate is None, "seconds": clock() - started})
    return pd.DataFrame(rows, columns=list(CANDIDATES))


def answers(logs: Iterable[Path]) -> pd.DataFrame:
    """Return one row for every answer that language setters kept in `logs`; columns ANSWERS.

    outcome   accepted, or the stage that refused it: transport, budget, size, json, schema, spec, vetting
    check     the check of vetting that failed first, else the outcome
    prompt, completion   billed tokens, null where there was no answer
    """
    rows = []
    for log in logs:
        for record in read_jsonl(log):
            tokens: dict[str, Any] = record.get("tokens") or {}
            rows.append(
                {
                    **{
                        name: record.get(name)
                        for name in ("setter", "family", "domain", "attempt", "outcome", "seconds")
                    },
                    "seconds": record.get("seconds"),
                    "check": record.get("check") or record["outcome"],
                    "reason": next(iter(record["reasons"]), None),
                    "dollars": tokens.get("dollars"),
                    **{side: (tokens.get(side) or {}).get("billed") for side in ("prompt", "completion")},
                }
            )
    return pd.DataFrame(rows, columns=list(ANSWERS))


def setter_frame(candidates: pd.DataFrame, answered: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the tidy frame of the figure `setters`; columns COLUMNS.

    measure  yield: admitted candidates of n, with the 95% interval
             gates: candidates of n that each gate refused, `reason` names it
             answers: answers of n by what became of them, `reason` is accepted or the check that refused them
             seconds, dollars, tokens: of one admitted environment, n of them; value null where n is 0
    """
    rows: list[dict[str, Any]] = []
    for setter, group in candidates.groupby("setter", sort=True):
        n, admitted = len(group), int(group["admitted"].sum())
        interval = binomtest(admitted, n).proportion_ci(method="wilson")
        rows.append(_row(setter, "yield", "admitted", admitted, n, admitted / n, interval.low, interval.high))
        for gate, count in group["gate"].dropna().value_counts().items():
            rows.append(_row(setter, "gates", gate, int(count), n, int(count) / n))
        for measure in ("seconds", "dollars", "tokens"):
            value = float(group[measure].sum()) / admitted if admitted else None
            rows.append(_row(setter, measure, "of one environment", admitted, admitted, value))
    if answered is not None:
        for setter, group in answered.groupby("setter", sort=True):
            for check, count in group["check"].value_counts().items():
                rows.append(_row(setter, "answers", check, int(count), len(group), int(count) / len(group)))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"value": float, "low": float, "high": float})


def _row(
    setter: Any,
    measure: str,
    reason: Any,
    count: int,
    n: int,
    value: float | None,
    low: float | None = None,
    high: float | None = None,
) -> dict[str, Any]:
    return dict(zip(COLUMNS, (str(setter), measure, str(reason), count, n, value, low, high), strict=True))
