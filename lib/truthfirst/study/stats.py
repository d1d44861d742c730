"""Statistics of studies: seeded bootstrap within strata, paired differences, gaps closed.

Every number carries n and an interval. Resampling is over instances (never over turns), within strata, so that the
composition of the sample stays what the design made it. Percentile intervals: Efron and Tibshirani, "An Introduction
to the Bootstrap", 1993.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..streams import stream

REPLICATES = 2_000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its bootstrap interval; mean, low and high are None when n is 0, low and high when n is 1."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


def bootstrap_mean(
    values: Sequence[float] | np.ndarray,
    strata: Sequence[object] | None = None,
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Estimate:
    """Return the mean of `values` (shape (n,)) with a percentile interval, resampled within strata."""
    data = np.asarray(values, dtype=float)
    if data.ndim != 1 or not np.isfinite(data).all():
        raise ValueError(
            "values must be a flat sequence of finite numbers; drop or impute missing ones first"
        )
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    if len(data) == 0:
        return Estimate(None, None, None, 0)
    mean = float(data.mean())
    if len(data) == 1:
        return Estimate(mean, None, None, 1)
    rng = stream(seed, "bootstrap")
    sums = np.zeros(replicates)
    labels = (
        np.zeros(len(data), dtype=int)
        if strata is None
        else pd.factorize(np.asarray(strata, dtype=object))[0]
    )
    for label in range(labels.max() + 1):
        group = data[labels == label]
        sums += group[rng.integers(len(group), size=(replicates, len(group)))].sum(axis=1)
    low, high = np.quantile(sums / len(data), [(1 - level) / 2, (1 + level) / 2])
    return Estimate(mean, float(low), float(high), len(data))


def summarise(
    frame: pd.DataFrame, by: Sequence[str], value: str = "reward", *, strata: str | None = None, seed: int = 0
) -> pd.DataFrame:
    """Return one row a group of `by` with columns mean, low, high, n of `value` (missing values are dropped)."""
    rows = []
    for key, group in frame.groupby(list(by), sort=False, observed=True):
        kept = group.dropna(subset=[value])
        labels = None if strata is None else kept[strata].tolist()
        estimate = bootstrap_mean(kept[value].to_numpy(float), labels, seed=seed)
        names = key if isinstance(key, tuple) else (key,)
        rows.append(
            dict(zip(by, names, strict=True))
            | {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}
        )
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n"])


def paired_difference(
    frame: pd.DataFrame,
    column: str,
    first: object,
    second: object,
    *,
    value: str = "reward",
    pair: Sequence[str] = ("environment",),
    strata: str | None = None,
    seed: int = 0,
) -> Estimate:
    """Return the mean of (value at `second`) - (value at `first`) over instances that have both.

    column   tells the arms apart, such as "form" or "policy"; several rows of an instance are averaged first
    pair     columns that identify an instance
    """
    keys = [*pair] if strata is None or strata in pair else [*pair, strata]
    means = frame.groupby([*keys, column], observed=True)[value].mean().unstack(column)
    for arm in (first, second):
        if arm not in means.columns:
            raise ValueError(f"no rows with {column} = {arm!r}: the frame has {list(means.columns)}")
    both = means[[first, second]].dropna()
    labels = None if strata is None else both.index.get_level_values(strata).tolist()
    return bootstrap_mean((both[second] - both[first]).to_numpy(float), labels, seed=seed)


def paired_table(
    frame: pd.DataFrame,
    by: str,
    column: str,
    pairs: Sequence[tuple[object, object]],
    *,
    value: str = "reward",
    strata: str | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row for each value of `by` and pair (a, b) of `column`: mean, low, high, n of value(a) - value(b)."""
    rows = []
    for key, group in frame.groupby(by, sort=False, observed=True):
        for first, second in pairs:
            found = paired_difference(group, column, second, first, value=value, strata=strata, seed=seed)
            interval = {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}
            rows.append({by: key, "difference": f"{first} - {second}"} | interval)
    return pd.DataFrame(rows, columns=[by, "difference", "mean", "low", "high", "n"])


def gap_closed(before: tuple[float, float], after: tuple[float, float], gap: Estimate) -> float | None:
    """Return the share of a gap that training closed: 1 - (F1 - A1) / (F0 - A0).

    before, after   (F, A) mean scores of the first and second checkpoint (use I for A for the stateful gap)
    gap             interval of the first checkpoint's gap; None is returned where it reaches 0

    Source of the arithmetic: VHD-Play (0.731 -> 0.117 closes 0.84, 0.758 -> 0.177 closes 0.77).
    """
    if gap.low is None or gap.high is None or gap.low <= 0 <= gap.high:
        return None
    return 1 - (after[0] - after[1]) / (before[0] - before[1])


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Return the unbiased estimate of the chance that one of k episodes passes, None when n is below k.

    1 - C(n - passed, k) / C(n, k) for `passed` of n episodes: Chen et al., "Evaluating Large Language Models Trained
    on Code", 2021.
    """
    if k < 1 or not 0 <= passed <= n:
        raise ValueError(f"pass@k needs k >= 1 and 0 <= passed <= n, got k = {k}, passed = {passed}, n = {n}")
    return None if n < k else 1 - math.comb(n - passed, k) / math.comb(n, k)
