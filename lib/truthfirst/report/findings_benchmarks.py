"""Findings on the store of a year and on external benchmarks. See findings.py for the rules."""

from __future__ import annotations

import pandas as pd

from ..external.benchmark import NOT_RUN, RUN
from ..sources import published
from ..store.managers import REFERENCE
from ..study.stats import bootstrap_mean
from ..study.store import by_manager, finished, tightness
from .findings import Finding
from .stored import Frames, frame_of
from .words import ELSEWHERE, count, interval, listed, plural, share, span

RECKLESS = "over-expander"


def store(frames: Frames) -> str:
    rows = frame_of(frames, "store")
    reached = tightness(rows)["planner"]
    blind = by_manager(rows[rows["policy"] != REFERENCE])
    best = blind.sort_values("reward", ascending=False, kind="stable")["manager"].iloc[0]
    scored = bootstrap_mean(rows.loc[rows["policy"] == best, "reward"].to_numpy(float))
    reckless = rows[rows["policy"] == RECKLESS]
    return (
        f"In {plural(len(reached), 'store')} of {plural(rows['horizon'].max(), 'day')} the {REFERENCE}, which sees "
        f"hidden demand, reaches {span(reached)} of the way from closing at once to the proven bound (mean "
        f"{interval(bootstrap_mean(reached.to_numpy(float)))}). Of the managers that do not see it, the {best} scores "
        f"most, {interval(scored)} (n = {plural(scored.n, 'seed')}); the {RECKLESS} goes bankrupt in "
        f"{count(reckless['bankrupt'].sum())} of {plural(len(reckless), 'store')}. {_commerce()}"
    )


def _commerce() -> str:
    said = []
    for who, told in published("ecommerce_bench").items():
        ends = finished(told)
        said.append(f"{count(told['balance'])} ({who}{f', finished {ends}' if ends else ''})")
    return f"E-Commerce Bench, another store in another currency ({ELSEWHERE}), states final balances: {listed(said)}."


def external(frames: Frames) -> str | None:
    rows = frame_of(frames, "external")
    ran = rows[rows["status"] == RUN]
    if ran.empty:
        return None
    said = []
    for (suite, version), mine in ran.groupby(["benchmark", "version"], sort=False):
        players = [f"{model} {_by_group(cells)}" for model, cells in mine.groupby("model", sort=False)]
        said.append(f"Cases of {suite} ({version}) that are right, by group: {'; '.join(players)}.")
    return f"{' '.join(said)} {_open(rows, set(ran['benchmark']))}"


def _by_group(rows: pd.DataFrame) -> str:
    sums = rows.groupby("group", sort=False)[["correct", "cases"]].sum()
    return listed(
        [
            f"{str(group).replace('_', ' ')} {count(row['correct'])} of {count(row['cases'])} "
            f"({share(row['correct'] / row['cases'])})"
            for group, row in sums.iterrows()
        ]
    )


def _open(rows: pd.DataFrame, begun: set[str]) -> str:
    """Say which categories of a suite that was run were left out, and which suites have not been run at all."""
    left = rows[rows["status"] == NOT_RUN]
    here = left["benchmark"].isin(begun)
    parts = [str(name).replace("_", " ") for name in left.loc[here, "category"].unique()]
    return (
        f"Categories that were left out: {listed(parts)}.{_not_given(rows, begun)} "
        f"Suites that were not run: {listed(list(left.loc[~here, 'benchmark'].unique()))}."
    )


def _not_given(rows: pd.DataFrame, begun: set[str]) -> str:
    """Name the categories of a suite that one player has played and another has no row of."""
    said = []
    for _, mine in rows[rows["benchmark"].isin(begun)].groupby("benchmark", sort=False):
        asked = list(dict.fromkeys(mine.loc[mine["status"] == RUN, "category"]))
        for model, own in mine.groupby("model", sort=False):
            if missing := [str(name).replace("_", " ") for name in asked if name not in set(own["category"])]:
                said.append(f"{model} was not given {listed(missing)}")
    return f" {'; '.join(said)}." if said else ""


FINDINGS = (
    Finding("store", "store", "A store for a year", ("store",), "python -m truthfirst.study.store", store),
    Finding("external", "external", "External benchmarks", ("external",), "make bfcl", external),
)
