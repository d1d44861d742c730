"""Findings on worlds: the eight gates over seeds, sizes and costs of an instance, and what training on them gains.

See findings.py for the rules. In findings of training the resampled unit is the seed.
"""

from __future__ import annotations

import json

import pandas as pd

from ..sources import published
from ..study.stats import Estimate, bootstrap_mean
from .findings import Finding
from .stored import Frames, frame_of
from .words import ELSEWHERE, count, interval, moves, number, plural, share, signed, small


def certified(frames: Frames) -> str:
    rows = frame_of(frames, "worlds")
    clean = rows["failed"].map(json.loads).map(len) == 0  # a JSON list of gates
    made = rows[clean]
    told = published("tev_gym")
    seconds = made[["make_seconds", "reference_seconds", "alternative_seconds", "gates_seconds"]].sum(axis=1)
    return (
        f"{count(clean.sum())} of {plural(len(rows), 'world')} ({plural(rows['generator'].nunique(), 'generator')}, "
        f"{plural(rows['tier'].nunique(), 'tier')}) pass every gate ({share(clean.mean())}). The median instance has "
        f"{small(float(made['files'].median()))} files and {small(float(made['bytes'].median()))} bytes and costs "
        f"{small(float(seconds.median()))} CPU seconds with both solvers and all gates; Tev-Gym states "
        f"{small(told['files_median'])} files, {small(told['bytes_median'])} bytes and "
        f"{small(told['seconds_median'])} seconds ({ELSEWHERE})."
    )


# --- training ---------------------------------------------------------------------------------------------
def gain_over_seeds(rows: pd.DataFrame, column: str) -> tuple[float, float, Estimate]:
    """Return mean before, mean after and the gain of one arm's held-out episodes; n counts seeds."""
    means = rows.pivot_table(index="seed", columns="policy", values=column, aggfunc="mean").dropna()
    found = bootstrap_mean((means["trained"] - means["base"]).to_numpy(float))
    return float(means["base"].mean()), float(means["trained"].mean()), found


def share_over_seeds(rows: pd.DataFrame, column: str) -> Estimate:
    """Return the mean over steps of a metric of one arm's training; n counts seeds."""
    return bootstrap_mean(rows.dropna(subset=[column]).groupby("seed")[column].mean().to_numpy(float))


def credit_in_worlds(frames: Frames) -> str:
    rows = frame_of(frames, "worlds_scores").astype({"passed": float})
    said = []
    for arm, mine in rows.groupby("arm", sort=False):
        before, after, found = gain_over_seeds(mine, "phi")
        failed, passed, more = gain_over_seeds(mine, "passed")
        each = mine[mine["policy"] == "trained"].groupby("seed").size().max()
        said.append(
            f"{arm} {_moved(before, after, found)}, share that passes {_moved(failed, passed, more)} "
            f"(n = {plural(found.n, 'seed')} of {plural(each, 'episode')})"
        )
    return (
        f"Mean progress (Φ) on held-out worlds before and after training, by what it was paid for: "
        f"{'; '.join(said)}. Intervals are over seeds; one seed has none."
    )


def _moved(before: float, after: float, found: Estimate) -> str:
    """Say both ends and the gain; the verb is left out where one seed gives no interval."""
    verb = "" if found.low is None else f"{moves(found)}, "
    return f"{verb}{number(before)} to {number(after)} ({signed(found)})"


def starvation_in_worlds(frames: Frames) -> str:
    rows = frame_of(frames, "worlds_training")
    said = []
    for arm, mine in rows.groupby("arm", sort=False):
        own, verdict = share_over_seeds(mine, "frac_reward_zero_std"), share_over_seeds(mine, "same/pass")
        said.append(
            f"{arm} {interval(own)}, by the verdict alone {interval(verdict)} (n = {plural(own.n, 'seed')})"
        )
    return (
        "Share of groups that teach nothing, since all their episodes have the same reward, over the steps of "
        f"training on worlds: {'; '.join(said)}. Intervals are over seeds; one seed has none."
    )


GRID = "make study GRID=data/grids/worlds.yaml"
FINDINGS = (
    Finding(
        "certified",
        "worlds",
        "Worlds pass every gate",
        ("worlds",),
        "python -m truthfirst.worldfirst.certify",
        certified,
    ),
    Finding("credit_in_worlds", "worlds", "Credit for progress", ("worlds_scores",), GRID, credit_in_worlds),
    Finding(
        "starvation_in_worlds",
        "worlds",
        "Starved groups in training on worlds",
        ("worlds_training",),
        GRID,
        starvation_in_worlds,
    ),
)
