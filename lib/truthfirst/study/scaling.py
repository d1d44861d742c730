"""Scaling: what grows with the size of an instance, and what training does at each size.

Sizes small, medium, large and huge are the source's 6x5 (items by periods) to 11x11. Scripted policies, solver times,
turns and the setter's yield are read from stored studies at these sizes. A policy trained at each size is measured at
the sizes that its base can play: the source's on GPUs, those with 3 to 8 decisions for the tiny policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from statistics import fmean

import pandas as pd
from scipy.stats import ttest_ind

from ..solvefirst.families import family as find_family
from ..streams import stream
from .stats import paired_difference, summarise

SIZES = ("small", "medium", "large", "huge")
FAMILIES = ("timed_selection", "rationing", "lot_sizing")
POLICIES = {"random": "random", "myopic": "myopic", "probe-all": "asks all it can", "reach": "best script"}
PANELS = ("score", "turns", "solver", "yield")
ALL = "all"  # families together
TRAINED = ("family", "size", "decisions", "growing", "base", "trained", "gain", "low", "high", "n", "seeds")
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
            panel="yield", series="template setter", family=ALL
        )
    )
    table = pd.concat(parts, ignore_index=True)[list(COLUMNS)]
    place = {size: number for number, size in enumerate(sizes)}
    order = table["panel"].map(PANELS.index) * 100 + table["size"].map(place)
    return (
        table.assign(order=order).sort_values("order", kind="stable", ignore_index=True).drop(columns="order")
    )


def trained_by_size(scores: pd.DataFrame, form: str = "A") -> pd.DataFrame:
    """Return base and trained score, and the paired gain, at each size: of all families together, then of each.

    scores   rows of training_scores.parquet of that study

    Columns: family ("all" first), size, decisions (of an episode, the mean over families), growing (the sizes a
    curriculum went through, else empty), base, trained, gain, low, high, n (pairs), seeds.
    """
    own = scores[scores["form"] == form]
    rows = []
    for family, mine in _together_and_each(own):
        for size in _by_decisions(own):
            for growing, part in mine[mine["size"] == size].groupby("growing"):
                found = paired_difference(part, "policy", "base", "trained", pair=("environment", "seed"))
                means = part.groupby("policy")["reward"].mean()
                rows.append(
                    {"family": family, "size": size, "decisions": decisions_of(_families(mine), size)}
                    | {"growing": growing, "base": means["base"], "trained": means["trained"]}
                    | {"gain": found.mean, "low": found.low, "high": found.high, "n": found.n}
                    | {"seeds": part["seed"].nunique()}
                )
    return pd.DataFrame(rows, columns=list(TRAINED))


def growth(scores: pd.DataFrame, form: str = "A") -> pd.DataFrame:
    """Return the gain at the largest fixed size less that at the smallest, of all families together and of each.

    Instances of two sizes cannot be paired: 95% intervals are Welch's. Columns: family ("all" first), smallest, largest
    (the sizes), difference, low, high, n (pairs at the largest). Empty where there is but one size.
    """
    own = scores[(scores["form"] == form) & (scores["growing"] == "")]
    order = _by_decisions(own)
    columns = ["family", "smallest", "largest", "difference", "low", "high", "n"]
    if len(order) < 2:
        return pd.DataFrame(columns=columns)
    played = own.pivot_table(
        index=["family", "size", "environment", "seed"], columns="policy", values="reward", sort=False
    )
    gains = (played["trained"] - played["base"]).dropna().reset_index(name="gain")
    rows = []
    for family, mine in _together_and_each(gains):
        small, large = (mine.loc[mine["size"] == size, "gain"] for size in (order[0], order[-1]))
        interval = ttest_ind(large, small, equal_var=False).confidence_interval()
        found = {"difference": large.mean() - small.mean(), "low": interval.low, "high": interval.high}
        rows.append({"family": family, "smallest": order[0], "largest": order[-1], **found, "n": len(large)})
    return pd.DataFrame(rows, columns=columns)


def written(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the base's mean score in form F, a row a family and a column a size: how well it writes a whole plan."""
    own = scores[(scores["form"] == "F") & (scores["policy"] == "base")]
    return own.pivot_table(index="family", columns="size", values="reward", sort=False)[_by_decisions(own)]


def curriculum_against_fixed(scores: pd.DataFrame, form: str = "A") -> pd.DataFrame:
    """Return the trained score of the curriculum less that of the fixed size, at equal samples, paired on instances.

    Only episodes that both have played count, in the means too.

    Columns: family ("all" first), size, fixed, curriculum, difference, low, high, n (pairs).
    """
    own = scores[(scores["form"] == form) & (scores["policy"] == "trained")]
    own = own.assign(way=own["growing"].map(lambda sizes: "curriculum" if sizes else "fixed"))
    own = own[own.groupby(["size", "environment", "seed"])["way"].transform("nunique") == 2]
    rows = []
    for size, at_size in own.groupby("size", sort=False):
        for family, part in _together_and_each(at_size):
            found = paired_difference(part, "way", "fixed", "curriculum", pair=("environment", "seed"))
            means = part.groupby("way")["reward"].mean()
            rows.append(
                {"family": family, "size": size, "fixed": means["fixed"], "curriculum": means["curriculum"]}
                | {"difference": found.mean, "low": found.low, "high": found.high, "n": found.n}
            )
    return pd.DataFrame(
        rows, columns=["family", "size", "fixed", "curriculum", "difference", "low", "high", "n"]
    )


@cache
def decisions_of(families: tuple[str, ...], size: str) -> float:
    """Return how many decisions an instance of this size has, the mean over some families whose horizon is fixed."""
    found = [find_family(name) for name in families]
    return fmean(one.horizon(one.sample(stream(0, "decisions", one.name, size), size)) for one in found)


def _families(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rows["family"]))


def _together_and_each(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield all rows under the name ALL, then those of each family under its own."""
    yield ALL, rows
    for family in _families(rows):
        yield family, rows[rows["family"] == family]


def _by_decisions(rows: pd.DataFrame) -> list[str]:
    """Return the sizes of some rows, the one with the fewest decisions first."""
    return sorted(rows["size"].unique(), key=lambda size: decisions_of(_families(rows), size))
