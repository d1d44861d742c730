"""Tables of a comparison: means by form, pass@k, the gaps between forms and what closed them.

All take the frame of `compare` and treat the instance as the unit: several episodes of one instance are averaged
before anything is resampled, and intervals are resampled within families.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .stats import bootstrap_mean, gap_closed, pass_at_k, summarise

GAPS = {"stateful": ("F", "I"), "whole": ("F", "A")}


def by_instance(frame: pd.DataFrame, by: Sequence[str], value: str = "reward") -> pd.DataFrame:
    """Return the mean of `value` over the episodes of each instance: columns of `by`, family, environment, value."""
    keys = list(dict.fromkeys([*by, "family", "environment"]))
    return frame.groupby(keys, sort=False, observed=True, dropna=False)[value].mean().reset_index()


def form_table(
    frame: pd.DataFrame,
    by: Sequence[str] = ("policy", "form"),
    value: str = "reward",
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a policy and form: mean, low, high, n (instances) and episodes; missing values are left out."""
    table = summarise(by_instance(frame, by, value), by, value, strata="family", seed=seed)
    counts = frame.groupby(list(by), sort=False, observed=True)[value].count().rename("episodes")
    return table.merge(counts.reset_index(), on=list(by), how="left")


def pass_table(
    frame: pd.DataFrame,
    k: Sequence[int] = (1,),
    at: float = 1.0,
    by: Sequence[str] = ("policy", "form"),
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Return pass@k with its interval: the chance that one of k episodes of an instance earns a reward of `at`.

    n is the number of instances with at least k episodes, episodes their number in all; mean, low and high are null
    where there is no such instance.
    """
    keys = list(dict.fromkeys([*by, "family", "environment"]))
    passed = frame.assign(passed=frame["reward"] >= at - 1e-9)
    counts = passed.groupby(keys, sort=False, observed=True)["passed"].agg(["size", "sum"]).reset_index()
    rows = []
    for key, group in counts.groupby(list(by), sort=False, observed=True):
        names = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True))
        for size in k:
            enough = group[group["size"] >= size]
            rates = [
                float(pass_at_k(int(n), int(c), size) or 0.0)
                for n, c in zip(enough["size"], enough["sum"], strict=True)
            ]
            estimate = bootstrap_mean(rates, enough["family"].tolist(), seed=seed)
            interval = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}
            rows.append(names | {"k": size, "at": at, **interval, "episodes": int(enough["size"].sum())})
    return pd.DataFrame(rows, columns=[*by, "k", "at", "mean", "low", "high", "n", "episodes"])


def gap_table(
    frame: pd.DataFrame,
    first: object,
    second: object,
    *,
    column: str = "policy",
    value: str = "reward",
    seed: int = 0,
) -> pd.DataFrame:
    """Return what lies between two checkpoints: the stateful gap F - I and the whole gap F - A, and the share closed.

    first, second   values of `column`: the checkpoints. Only instances that both played in both forms count (n).
    closed          null where the interval of the first checkpoint's gap reaches 0 (`stats.gap_closed`)
    """
    cells = frame[frame[column].isin([first, second])]
    means = cells.groupby(["environment", "family", column, "form"], observed=True)[value].mean()
    table = means.unstack([column, "form"])
    rows = []
    for gap, (upper, lower) in GAPS.items():
        arms = [(checkpoint, form) for checkpoint in (first, second) for form in (upper, lower)]
        for arm in arms:
            if arm not in table.columns:
                raise ValueError(
                    f"no rows with {column} = {arm[0]!r} in form {arm[1]}: the {gap} gap needs both"
                )
        both = table[arms].dropna()
        strata = both.index.get_level_values("family").tolist()
        before, after = (
            bootstrap_mean((both[(c, upper)] - both[(c, lower)]).to_numpy(float), strata, seed=seed)
            for c in (first, second)
        )
        scores = [(float(both[(c, upper)].mean()), float(both[(c, lower)].mean())) for c in (first, second)]
        rows.append(
            {
                "gap": gap,
                "n": before.n,
                "before": before.mean,
                "before_low": before.low,
                "before_high": before.high,
                "after": after.mean,
                "after_low": after.low,
                "after_high": after.high,
                "closed": gap_closed(scores[0], scores[1], before),
            }
        )
    return pd.DataFrame(rows)
