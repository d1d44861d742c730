"""Findings of the deeper studies: what a gain is made of, size, what of the training matters.

See findings.py for the rules.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..sources import published
from ..study import ablations as ablation_study
from ..study import scaling as scaling_study
from ..study.stats import Estimate
from .findings import Finding
from .findings_policies import AGENTIC, gain
from .stored import Frames, frame_of
from .words import ELSEWHERE, count, listed, moves, number, plural, signed

SCALING, ABLATIONS = "scaling", "ablations"


def strata(frames: Frames) -> str:
    rows = frame_of(frames, "strata")
    told = published("vhd_play", "strata")
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
    table = scaling_study.trained_by_size(mine, AGENTIC)
    together = table["family"] == scaling_study.ALL
    said = []
    for row in table[together].to_dict("records"):
        way = " through growing sizes" if row["growing"] else ""
        found = _estimate(row, "gain")
        said.append(
            f"{row['size']}{way} {moves(found)}, {number(row['base'])} to {number(row['trained'])} ({signed(found)}, "
            f"n = {count(found.n)}, {plural(row['seeds'], 'seed')})"
        )
    alone = table[~together & (table["growing"] == "")]
    each = [
        f"{str(name).replace('_', ' ')} {listed([f'{gain:+.2f}' for gain in rows['gain']])}"
        for name, rows in alone.groupby("family", sort=False)
    ]
    told = published("vhd_play", "scaling")
    theirs = [f"{size} {number(base)} to {number(trained)}" for size, (base, trained) in told.items()]
    return (
        f"A policy trained at each size, agentic score of {plural(len(each), 'family', 'families')}: "
        f"{'; '.join(said)}. Gains at fixed sizes, smallest first: {'; '.join(each)}."
        f"{_growth(mine)}{_curriculum(mine)} The source's ends: {listed(theirs)} ({ELSEWHERE})."
    )


def _growth(rows: pd.DataFrame) -> str:
    said = [
        f"{str(row['family']).replace('_', ' ')} {signed(_estimate(row, 'difference'))}"
        for row in scaling_study.growth(rows, AGENTIC).to_dict("records")
    ]
    return f" The gain at the largest size less that at the smallest: {listed(said)}." if said else ""


def _curriculum(rows: pd.DataFrame) -> str:
    said = []
    table = scaling_study.curriculum_against_fixed(rows, AGENTIC)
    for row in table[table["family"] == scaling_study.ALL].to_dict("records"):
        found = _estimate(row, "difference")
        verb = moves(found, "scores more", "scores less", "does not score measurably otherwise")
        said.append(
            f"at {row['size']} it {verb}, {number(row['curriculum'])} beside {number(row['fixed'])} ({signed(found)}, "
            f"n = {count(found.n)})"
        )
    return f" The curriculum against the fixed size, at equal samples: {listed(said)}." if said else ""


def ablations(frames: Frames) -> str | None:
    scores = frame_of(frames, "training_scores")
    mine = scores[scores["study"] == ABLATIONS]
    if mine.empty:
        return None
    table = ablation_study.table(mine)
    acted = table[table["form"] == AGENTIC]
    reference = acted[acted["variant"] == ablation_study.REFERENCE].iloc[0]
    others = acted[acted["variant"] != ablation_study.REFERENCE]
    said = []
    for row in others.to_dict("records"):
        found = _estimate(row, "difference")
        verb = moves(found, "is better", "is worse", "does not differ measurably")
        said.append(
            f"{row['variant']} {verb} ({signed(found)}, n = {count(found.n)}, {plural(row['seeds'], 'seed')})"
        )
    return (
        f"Against the reference run, which reaches {number(reference['trained'])} in form {AGENTIC} "
        f"(n = {count(reference['n'])}), one thing changed at a time: {'; '.join(said)}.{_extremes(others)}"
    )


def _extremes(rows: pd.DataFrame) -> str:
    """Name the variants with the largest loss and the largest gain; none where nothing is below or above zero."""
    order = rows.dropna(subset=["difference"]).sort_values("difference", kind="stable").to_dict("records")
    if not order:
        return ""
    ends = {"loss": order[0] if order[0]["difference"] < 0 else None}
    ends["gain"] = order[-1] if order[-1]["difference"] > 0 else None
    said = [
        f"the largest {word} is that of {row['variant']} ({signed(_estimate(row, 'difference'))})"
        if row
        else f"no variant has a {word}"
        for word, row in ends.items()
    ]
    return f" In the mean {listed(said)}."


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
