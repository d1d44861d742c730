"""Scaling: what grows with the size of an instance, and what training does at each size.

Sizes small, medium, large and huge are the source's 6x5 (items by periods) to 11x11. Scripted policies, solver times,
turns and the setter's yield are read from stored studies at these sizes. A policy trained at each size is measured at
the sizes that its base can play: the source's on GPUs, those with 4 to 16 decisions for the tiny policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .stats import paired_difference, summarise

SIZES = ("small", "medium", "large", "huge")
FAMILIES = ("timed_selection", "rationing", "lot_sizing")
POLICIES = {"random": "random", "myopic": "myopic", "probe-all": "asks all it can", "reach": "best script"}
PANELS = ("score", "turns", "solver", "yield")
COLUMNS = ("panel", "family", "series", "size", "mean", "low", "high", "n")


def by_size(
    references: pd.DataFrame,
    certified: pd.DataFrame,
    yields: pd.DataFrame,
    families: Sequence[str] = FAMILIES,
    sizes: Sequence[str] = SIZES,
) -> pd.DataFrame:
    """Return one tidy table of everything that does not need a trained policy.

    references   references.parquet: scores of scripted policies with a tight budget
    certified    certify.parquet: seconds of each solve
    yields       corpus_yield.parquet: share of the setter's candidates that every gate admitted

    Columns: panel (score, turns, solver in milliseconds, yield), family, series, size, mean, low, high, n.
    """
    kept = references[references["family"].isin(families) & references["size"].isin(sizes)]
    kept = kept[kept["clears_margin"]]
    parts = []
    for name, label in POLICIES.items():
        found = summarise(kept, ("family", "size"), f"score_{name}")
        parts.append(found.assign(panel="score", series=label))
    turns = kept.assign(turns=kept["decisions"] + kept["probes"])
    parts.append(
        summarise(turns, ("family", "size"), "turns").assign(panel="turns", series="decisions and figures")
    )
    solved = certified[certified["family"].isin(families) & certified["size"].isin(sizes)]
    milliseconds = solved.assign(milliseconds=1e3 * solved["solve_seconds"])
    parts.append(
        summarise(milliseconds, ("family", "size"), "milliseconds").assign(panel="solver", series="solver")
    )
    admitted = yields[(yields["dimension"] == "size") & yields["value"].isin(sizes)]
    parts.append(
        admitted.rename(columns={"value": "size", "yield": "mean", "candidates": "n"}).assign(
            panel="yield", series="template setter", family="all"
        )
    )
    table = pd.concat(parts, ignore_index=True)[list(COLUMNS)]
    place = {size: number for number, size in enumerate(sizes)}
    order = table["panel"].map(PANELS.index) * 100 + table["size"].map(place)
    return (
        table.assign(order=order).sort_values("order", kind="stable", ignore_index=True).drop(columns="order")
    )


def trained_by_size(scores: pd.DataFrame, decisions: dict[str, int], form: str = "A") -> pd.DataFrame:
    """Return base and trained score, and the paired gain, of every run of the study of scaling.

    scores      rows of training_scores.parquet of that study
    decisions   decisions an episode, by size

    Columns: size, decisions, growing (the sizes a curriculum went through, else empty), base, trained, gain, low, high,
    n (pairs), seeds.
    """
    own = scores[scores["form"] == form]
    rows = []
    for (size, growing), part in own.groupby(["size", "growing"], sort=False):
        found = paired_difference(part, "policy", "base", "trained", pair=("environment", "seed"))
        means = part.groupby("policy")["reward"].mean()
        rows.append(
            {"size": size, "decisions": decisions[str(size)], "growing": growing}
            | {"base": means["base"], "trained": means["trained"]}
            | {"gain": found.mean, "low": found.low, "high": found.high, "n": found.n}
            | {"seeds": part["seed"].nunique()}
        )
    columns = ["size", "decisions", "growing", "base", "trained", "gain", "low", "high", "n", "seeds"]
    return pd.DataFrame(rows, columns=columns).sort_values(["decisions", "growing"], ignore_index=True)


def curriculum_against_fixed(scores: pd.DataFrame, form: str = "A") -> pd.DataFrame:
    """Return the trained score of the curriculum less that of the fixed size, at equal samples, paired on instances."""
    own = scores[(scores["form"] == form) & (scores["policy"] == "trained")]
    own = own.assign(way=own["growing"].map(lambda sizes: "curriculum" if sizes else "fixed"))
    rows = []
    for size, part in own.groupby("size", sort=False):
        if part["way"].nunique() == 2:
            found = paired_difference(part, "way", "fixed", "curriculum", pair=("environment", "seed"))
            means = part.groupby("way")["reward"].mean()
            values = {"difference": found.mean, "low": found.low, "high": found.high, "n": found.n}
            rows.append({"size": size, "fixed": means["fixed"], "curriculum": means["curriculum"]} | values)
    return pd.DataFrame(rows, columns=["size", "fixed", "curriculum", "difference", "low", "high", "n"])
