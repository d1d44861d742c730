"""Findings of the deeper studies: what a gain is made of, size, what of the training matters, credit in worlds.

See findings.py for the rules.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..study import ablations as ablation_study
from ..study import scaling as scaling_study
from ..study.stats import Estimate, bootstrap_mean
from .findings import Finding
from .findings_policies import AGENTIC, gain
from .stored import Frames, frame_of, sources
from .words import ELSEWHERE, count, interval, listed, moves, number, plural, signed

SCALING, ABLATIONS = "scaling", "ablations"


def strata(frames: Frames) -> str:
    rows = frame_of(frames, "strata")
    told = sources()["vhd_play"]["strata"]
    said = []
    for name, mine in rows.groupby("stratifier", sort=False):
        terms = mine.set_index("term")
        parts = [
            f"{signed(_estimate(terms.loc[term]))} {term}"
            for term in ("composition", "within", "interaction")
        ]
        said.append(f"by {str(name).replace('_', ' ')} {listed(parts)}")
    total = rows[rows["term"] == "total"].iloc[0]
    source = (
        f"{told['total']:+.2f}, of which {told['composition']:+.2f} by more use of the code tool and "
        f"{told['within']:+.2f} within strata ({ELSEWHERE})"
    )
    return (
        f"The agentic gain of {signed(_estimate(total))} (n = {count(total['n'])} instances) is made up as follows: "
        f"{'; '.join(said)}. The source: {source}."
    )


def _estimate(row: Any, column: str = "value") -> Estimate:
    """Return a row's estimate; its interval is missing where one end is null."""
    low, high = (None if pd.isna(row[end]) else float(row[end]) for end in ("low", "high"))
    return Estimate(float(row[column]), low, high, int(row["n"]))


def scaling(frames: Frames) -> str | None:
    scores = frame_of(frames, "training_scores")
    mine = scores[scores["study"] == SCALING]
    if mine.empty:
        return None
    sizes = {str(size): place for place, size in enumerate(dict.fromkeys(mine["size"]))}
    said = []
    for row in scaling_study.trained_by_size(mine, sizes, AGENTIC).to_dict("records"):
        way = " through growing sizes" if row["growing"] else ""
        found = _estimate(row, "gain")
        said.append(
            f"{row['size']}{way} {moves(found)}, {number(row['base'])} to {number(row['trained'])} ({signed(found)}, "
            f"n = {count(found.n)}, {plural(row['seeds'], 'seed')})"
        )
    told = sources()["vhd_play"]["scaling"]
    theirs = [f"{size} {number(base)} to {number(trained)}" for size, (base, trained) in told.items()]
    return (
        f"A policy trained at each size, agentic score: {'; '.join(said)}. The source's ends: {listed(theirs)} "
        f"({ELSEWHERE})."
    )


def ablations(frames: Frames) -> str | None:
    scores = frame_of(frames, "training_scores")
    mine = scores[scores["study"] == ABLATIONS]
    if mine.empty:
        return None
    table = ablation_study.table(mine)
    acted = table[table["form"] == AGENTIC]
    reference = acted[acted["variant"] == ablation_study.REFERENCE].iloc[0]
    said = []
    for row in acted[acted["variant"] != ablation_study.REFERENCE].to_dict("records"):
        found = _estimate(row, "difference")
        verb = moves(found, "is better", "is worse", "does not differ measurably")
        said.append(
            f"{row['variant']} {verb} ({signed(found)}, n = {count(found.n)}, {plural(row['seeds'], 'seed')})"
        )
    return (
        f"Against the reference run, which reaches {number(reference['trained'])} in form {AGENTIC} "
        f"(n = {count(reference['n'])}), one thing changed at a time: {'; '.join(said)}."
    )


def credit_in_worlds(frames: Frames) -> str:
    rows = frame_of(frames, "worlds_scores")
    base, trained = (rows[rows["policy"] == name] for name in ("base", "trained"))
    said = [f"before {_both(base)}"]
    for arm, mine in trained.groupby("arm", sort=False):
        said.append(f"{arm} {_both(mine)}, {plural(mine['seed'].nunique(), 'seed')}")
    return f"Held-out worlds, mean progress and share that passes, by what training was paid for: {'; '.join(said)}."


def _both(rows: pd.DataFrame) -> str:
    seeds = [str(seed) for seed in rows["seed"]]
    phi, passed = (bootstrap_mean(rows[column].to_numpy(float), seeds) for column in ("phi", "passed"))
    return f"{interval(phi)} and {interval(passed)} (n = {count(phi.n)})"


def other_studies(frames: Frames) -> str | None:
    known = ("learning", "credit", SCALING, ABLATIONS)
    scores = frame_of(frames, "training_scores")
    mine = scores[~scores["study"].isin(known)]
    if mine.empty:
        return None
    said = []
    for key, cells in mine.groupby(["study", "arm", "size"], sort=False):
        form = AGENTIC if AGENTIC in set(cells["form"]) else str(cells["form"].iloc[0])
        before, after, found = gain(cells, form)
        said.append(
            f"{', '.join(map(str, key))}: {form} {moves(found)}, {number(before)} to {number(after)} "
            f"({signed(found)}, {plural(cells['seed'].nunique(), 'seed')}, n = {count(found.n)})"
        )
    return f"Further stored training cells: {'; '.join(said)}."


FINDINGS = (
    Finding("strata", "strata", "What a gain is made of", ("strata",), "make study", strata),
    Finding(
        "scaling",
        "scaling",
        "What training does at each size",
        ("training_scores",),
        "make study GRID=data/grids/scaling.yaml",
        scaling,
    ),
    Finding(
        "ablations",
        "ablations",
        "What of the training matters",
        ("training_scores",),
        "make study GRID=data/grids/ablations.yaml",
        ablations,
    ),
    Finding(
        "other_studies",
        "grids",
        "Your own training cells",
        ("training_scores",),
        "make study GRID=FILE, with a study name of your own",
        other_studies,
    ),
)
IN_WORLDS = (
    Finding(
        "credit_in_worlds",
        "worlds",
        "Credit for progress",
        ("worlds_scores",),
        "python -m truthfirst.study.world_learning data/grids/worlds.yaml",
        credit_in_worlds,
    ),
)
