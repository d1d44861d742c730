"""Figures of setters: yield, why words were refused, and what an environment costs by who wrote its words.

One function a figure, a tidy frame in and a matplotlib Figure out, like `figures.py`, which publishes them.
FIGURES names them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import BLUE, GREY
from .sources import published

UNITS = {"seconds": "CPU seconds per environment", "dollars": "US dollars per environment"}


def setters(frame: pd.DataFrame) -> Figure:
    """Yield by setter with 95% Wilson intervals; what became of answers and candidates; seconds and dollars.

    frame: solvefirst.setter_report.setter_frame. Columns setter, measure ("yield", "gates", "answers", "seconds",
    "dollars", "tokens"), reason, count, n, value, low, high. Shares of answers are of all answers of a setter, shares
    of gates of all its candidates. A setter without an admitted environment has no cost of one. Seconds of a model that
    runs elsewhere are by the clock (study.setters).
    """
    names = list(dict.fromkeys(frame["setter"]))
    reasons = frame[frame["measure"].isin(("answers", "gates"))]
    columns = _columns(reasons)
    height = 1.9 + 0.36 * max(len(names), 2)
    figure = Figure(figsize=(6.4 + 0.42 * max(len(columns), 4) + 3.2, height), layout="constrained")
    ratios = (3.2, 0.62 * max(len(columns), 4), 2.2, 2.2)
    axes = figure.subplots(1, 4, squeeze=False, width_ratios=ratios)[0]
    _yield(axes[0], frame[frame["measure"] == "yield"], names)
    _reasons(axes[1], reasons, names, columns)
    for axis, measure in zip(axes[2:], ("seconds", "dollars"), strict=True):
        _cost(axis, frame[frame["measure"] == measure], names, measure)
    for axis in axes:
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names), fontsize=8)
    total = int(frame.loc[frame["measure"] == "yield", "n"].sum())
    figure.suptitle(
        f"Who writes the words: yield, refusals and cost ({total:,} candidates; grey: as published elsewhere)"
    )
    return figure


def _columns(reasons: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (measure, reason) in the order of the columns: answers first, accepted before refusals by frequency."""
    found = []
    for measure in ("answers", "gates"):
        counts = reasons[reasons["measure"] == measure].groupby("reason")["count"].sum()
        order = sorted(counts.index, key=lambda reason: (reason != "accepted", -counts[reason], reason))
        found += [(measure, reason) for reason in order]
    return found


def _yield(axis: Axes, cells: pd.DataFrame, names: list[str]) -> None:
    for row in cells.to_dict("records"):
        y, error = names.index(row["setter"]), [[row["value"] - row["low"]], [row["high"] - row["value"]]]
        axis.errorbar(row["value"], y, xerr=np.maximum(0, error), fmt="o", color=BLUE, capsize=2)
        axis.text(1.06, y, f"{row['count']:,}/{row['n']:,}", fontsize=7, va="center", color=GREY)
    axis.set_xlim(-0.04, 1.42)
    axis.set_xticks((0, 0.5, 1))
    axis.set_xlabel("share admitted (95%)")
    axis.set_title("Yield")


def _reasons(axis: Axes, cells: pd.DataFrame, names: list[str], columns: list[tuple[str, str]]) -> None:
    shares = np.zeros((len(names), max(len(columns), 1)))
    for row in cells.to_dict("records"):
        x, y = columns.index((row["measure"], row["reason"])), names.index(row["setter"])
        shares[y, x] = row["value"]
        colour = "white" if row["value"] > 0.55 else "black"
        axis.text(x, y, f"{row['count']:,}", ha="center", va="center", fontsize=7, color=colour)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    labels = [reason if measure == "answers" else f"gate {reason}" for measure, reason in columns]
    axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    edge = sum(measure == "answers" for measure, _ in columns)
    if 0 < edge < len(columns):
        axis.axvline(edge - 0.5, color=GREY, lw=1)
    axis.set_title("Answers, and candidates by gate")


def _elsewhere(measure: str) -> tuple[float, float]:
    """Return what an environment costs elsewhere, lowest and highest."""
    if measure == "dollars":
        low, high = published("vhd_play", "dollars")
        return low, high
    seconds = published("tev_gym", "seconds_median")
    return seconds, seconds


def _cost(axis: Axes, cells: pd.DataFrame, names: list[str], measure: str) -> None:
    low, high = _elsewhere(measure)
    axis.axvspan(low, high, color=GREY, alpha=0.35, lw=1.5)
    axis.set_xscale("log")
    axis.set_xlim(low / 3_000, high * 300)
    for row in cells.to_dict("records"):
        y = names.index(row["setter"])
        if pd.isna(row["value"]):
            axis.text(0.04, y, "none admitted", transform=axis.get_yaxis_transform(), fontsize=7, va="center")
        elif row["value"] <= 0:
            axis.text(0.04, y, "0", transform=axis.get_yaxis_transform(), fontsize=8, va="center")
        else:
            axis.plot(row["value"], y, "o", color=BLUE)
            axis.set_xlim(
                min(axis.get_xlim()[0], row["value"] / 3), max(axis.get_xlim()[1], row["value"] * 3)
            )
    axis.set_xlabel(UNITS[measure])
    axis.set_title("Time" if measure == "seconds" else "Money")


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {"setters": setters}
