"""The report of a build: yield by gate, family, domain and setter, and what an environment costs, as tidy frames.

Yield is admitted over tried candidates with its Wilson interval (Wilson, "Probable inference", 1927). Of a gate it is
the share that passed among the candidates that reached it. Costs count every candidate, so that an admitted
environment pays for those that were rejected on its way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from ..sources import published
from .admit.gates import GATES
from .families import SIZES

DIMENSIONS = ("family", "size", "domain", "budget", "split", "setter")
GATE_ORDER = ("setter", "solve", *GATES, "unique")


def entropy(labels: Iterable[Any]) -> float:
    """Return the entropy of the labels' shares over log K, K the number of different ones; 1.0 where K is 1."""
    counts = pd.Series(list(labels)).value_counts()
    if len(counts) < 2:
        return 1.0
    shares = counts / counts.sum()
    return float(-(shares * shares.map(math.log)).sum() / math.log(len(counts)))


def candidate_frame(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return one row a candidate: its recipe, whether it was admitted, the gate that rejected it, what it cost."""
    columns = (
        *DIMENSIONS,
        "seed",
        "index",
        "admitted",
        "gate",
        "passed",
        "seconds",
        "cpu_seconds",
        "dollars",
        "tokens",
    )
    rows = [
        {
            **{name: record["recipe"][name] for name in (*DIMENSIONS, "seed", "index")},
            "admitted": record["gate"] is None,
            "gate": record["gate"],
            "passed": len(record["passed"]),
            **{name: record[name] for name in ("seconds", "cpu_seconds", "dollars", "tokens")},
        }
        for record in records
    ]
    return pd.DataFrame(rows, columns=list(columns))


def yields(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return one row for every value of every dimension, gates included.

    Columns: setter ("all" or a name), dimension, value, candidates (tried, or for a gate: that reached it), admitted
    (or passed), yield, low, high (95%).
    """
    rows = []
    groups = [("all", candidates), *(candidates.groupby("setter", sort=True))]
    for setter, frame in groups if candidates["setter"].nunique() > 1 else groups[:1]:
        name = setter if isinstance(setter, str) else setter[0]
        for dimension in DIMENSIONS:
            for value, group in sorted(frame.groupby(dimension), key=lambda pair: _rank(pair[0])):
                share = _share(group["admitted"])
                rows.append({"setter": name, "dimension": dimension, "value": value} | share)
        left = frame
        for gate in GATE_ORDER:
            if left.empty:
                break
            rows.append({"setter": name, "dimension": "gate", "value": gate} | _share(left["gate"] != gate))
            left = left[left["gate"] != gate]
    return pd.DataFrame(rows)


def _rank(value: Any) -> tuple[int, str]:
    """Sizes from small to large, everything else by name."""
    return (SIZES.index(value) if value in SIZES else 0, str(value))


def _share(passed: pd.Series) -> dict[str, Any]:
    n, k = len(passed), int(passed.sum())
    interval = binomtest(k, n).proportion_ci(method="wilson")
    return {"candidates": n, "admitted": k, "yield": k / n, "low": interval.low, "high": interval.high}


def costs(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return seconds (CPU) and dollars per admitted environment by setter, and the published figures beside them.

    Columns: builder, measure ("seconds" or "dollars"), statistic, value, low, high, n (environments).
    """
    rows: list[dict[str, Any]] = []
    for setter, group in candidates.groupby("setter", sort=True):
        n = int(group["admitted"].sum())
        for measure, column in (("seconds", "cpu_seconds"), ("dollars", "dollars")):
            value = float(group[column].sum()) / n if n else None
            rows.append({"builder": setter, "measure": measure, "statistic": "mean", "value": value, "n": n})
    frame = pd.DataFrame(
        [*rows, *_published_costs()], columns=["builder", "measure", "statistic", "value", "low", "high", "n"]
    )
    return frame.astype({"value": float, "low": float, "high": float, "n": "Int64"})


def _published_costs() -> list[dict[str, Any]]:
    """Return what VHD-Play and Tev-Gym state for an environment; the latter's `high` is the 90th percentile."""
    low, high = published("vhd_play", "dollars")
    tev = published("tev_gym")
    return [
        {
            "builder": "VHD-Play",
            "measure": "dollars",
            "statistic": "a few cents",
            "low": low,
            "high": high,
        },
        {
            "builder": "Tev-Gym",
            "measure": "seconds",
            "statistic": "median",
            "value": tev["seconds_median"],
            "high": tev["seconds_p90"],
        },
    ]


def rejections(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return how many candidates each gate rejected, by family, size and setter; only cells that lost some."""
    lost = candidates[~candidates["admitted"]]
    counted = lost.groupby(["setter", "family", "size", "gate"], sort=True).size()
    return counted.rename("rejected").reset_index()


def tables(candidates: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of the report by name."""
    return {"yield": yields(candidates), "costs": costs(candidates), "rejections": rejections(candidates)}


def text(summary: dict[str, Any], candidates: pd.DataFrame) -> str:
    """Return the report as text."""
    found = yields(candidates)
    overall = found[found["setter"] == "all"]
    parts = [
        f"{summary['name']}: {summary['environments']:,} environments of {summary['candidates']:,} candidates, "
        f"{summary['families']} families, {summary['domains']} domains",
        f"entropy (normalised): domains {summary['domain_entropy']:.4f}, families {summary['family_entropy']:.4f}; "
        f"mean turns {summary['mean_turns']:.1f}; splits {summary['splits']}",
    ]
    for dimension in ("gate", "family", "setter"):
        rows = overall[overall["dimension"] == dimension]
        shown = rows[["value", "candidates", "admitted", "yield", "low", "high"]].round(3)
        parts.append(f"yield by {dimension}\n{shown.to_string(index=False)}")
    domains = overall[overall["dimension"] == "domain"]
    least = domains.sort_values("yield").iloc[0]
    parts.append(
        f"yield by domain: {domains['yield'].min():.3f} ({least['value']}) to {domains['yield'].max():.3f}, "
        f"{int(domains['admitted'].min())} to {int(domains['admitted'].max())} environments a domain"
    )
    parts.append(f"cost of an environment\n{costs(candidates).to_string(index=False)}")
    parts.append(
        f"this run: {summary['seconds']} s with {summary['workers']} workers on {summary['backend']}, "
        f"{summary['jobs_done_now']} jobs; CPU time of all candidates {summary['cpu_seconds']} s; "
        f"peak memory at most {summary['peak_mib']:,} MiB"
    )
    parts.append(f"manifest hash {summary['manifest_hash']}")
    return "\n\n".join(parts)
