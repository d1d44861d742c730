"""Ablations: what each part of the training contributes, one thing changed at a time.

Every run of the grid differs in one entry from the reference: credit outcome, forms A and I, a new instance for every
group, the clipped score as reward. Policies play the same held-out instances with the same draws, so that a difference
is paired on instance and seed.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..types import Form
from .stats import paired_difference

REFERENCE = "reference"
AXES: dict[str, str] = {  # arm of study/learning.py -> what it changes
    "progress": "credit",
    "regret": "credit",
    "regret, solver baseline": "credit",
    "regret and probe credit": "credit",
    "active sampling": "algorithm",
    "dppo": "algorithm",
    "reward not clipped": "reward",
    "reward not normalised": "reward",
    "advantage not scaled": "reward",
}
PROBES = {"A": "only with probes (form A)", "I": "without probes (form I)"}
COLUMNS = ("axis", "variant", "form", "trained", "base", "difference", "low", "high", "n", "seeds")


def variant(run: Any, setter: str = "terse") -> tuple[str, str]:
    """Return (axis, variant) of a row that has the labels of its run; `setter` wrote the reference's words."""
    if run["arm"] != "outcome":
        return AXES.get(run["arm"], "algorithm"), run["arm"]
    if run["trained_forms"] in PROBES:
        return "probes", PROBES[run["trained_forms"]]
    if pd.notna(run["instances"]):
        return "data", f"{int(run['instances'])} instances of each family"
    if pd.notna(run["domain"]):
        return "data", f"one domain ({run['domain']})"
    if run["setter"] != setter:
        return "data", f"{run['setter']} setter"
    return REFERENCE, REFERENCE


def with_variants(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the columns axis and variant to rows of any stored table of training.

    The reference's setter is the one that most runs have.
    """
    runs = frame.drop_duplicates("run").set_index("run")
    usual = runs["setter"].mode()[0]
    named = {run: variant(row, usual) for run, row in runs.iterrows()}
    return frame.assign(
        axis=[named[run][0] for run in frame["run"]], variant=[named[run][1] for run in frame["run"]]
    )


def table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return, for each variant and form, the trained score and its paired difference from the reference's.

    scores   rows of training_scores.parquet of one study

    Columns: axis, variant, form, trained, base (mean scores), difference, low, high (95% interval), n (pairs), seeds.
    The reference comes first, without a difference. Raises ValueError when there is no reference run.
    """
    frame = with_variants(scores)
    if REFERENCE not in set(frame["variant"]):
        raise ValueError("no run of the reference among these: run the first cell of the grid too")
    rows = []
    for (axis, name), mine in frame.groupby(["axis", "variant"], sort=False):
        for form in map(str, Form):
            cells = mine[mine["form"] == form]
            means = cells.groupby("policy")["reward"].mean()
            row = {"axis": axis, "variant": name, "form": form, "seeds": mine["seed"].nunique()}
            row |= {"trained": means["trained"], "base": means["base"]}
            rows.append(row | _difference(frame, str(name), form))
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    order = [REFERENCE, "credit", "algorithm", "reward", "probes", "data"]
    return found.sort_values("axis", key=lambda axis: axis.map(order.index), kind="stable", ignore_index=True)


def _difference(frame: pd.DataFrame, name: str, form: str) -> dict[str, Any]:
    trained = frame[(frame["policy"] == "trained") & (frame["form"] == form)]
    if name == REFERENCE:
        return {"difference": None, "low": None, "high": None, "n": int((trained["variant"] == name).sum())}
    found = paired_difference(
        trained, "variant", REFERENCE, name, pair=("environment", "seed"), strata="family"
    )
    return {"difference": found.mean, "low": found.low, "high": found.high, "n": found.n}


def effort(history: pd.DataFrame) -> pd.DataFrame:
    """Return for each variant what its training took: episodes, seconds, and the share of groups without variance.

    history   rows of training.parquet of one study; episodes count those that refills drew
    """
    frame = with_variants(history)
    runs = frame.groupby(["axis", "variant", "seed"], sort=False).agg(
        episodes=("samples", "max"),
        seconds=("seconds_total", "max"),
        idle_groups=("frac_reward_zero_std", "mean"),
    )
    return runs.groupby(["axis", "variant"], sort=False).mean().reset_index()
