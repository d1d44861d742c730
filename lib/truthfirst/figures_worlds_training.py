"""Figures of training in the world-first wing: Phi and pass rate by episodes drawn, and held-out before and after.

One function a figure, the stored rows of `study/world_learning.py` in and a matplotlib Figure out.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, canvas
from .study.stats import bootstrap_mean

ARM_COLOURS = {
    "progress": GREEN,
    "terminal": GREY,
    "return": BLUE,
    "pooled": ORANGE,
    "direct-additive": PINK,
}
WANTED = 0.7  # mean Phi that training has to reach
WINDOW = 3  # generations in a running mean
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}


def _arms(frame: pd.DataFrame) -> list[str]:
    """Return the arms in the order of the palette."""
    return [arm for arm in ARM_COLOURS if (frame["arm"] == arm).any()]


def worlds_learning(frame: pd.DataFrame) -> Figure:
    """Mean Phi and pass rate of the training episodes by episodes drawn; bands span the seeds.

    frame: worlds_training.parquet.
    """
    figure, axes = canvas(1, 2, 8.6, 3.7)
    for axis, column, told in zip(
        axes[0], ("phi", "passed"), ("mean Φ at the end", "share that passes"), strict=True
    ):
        for arm in _arms(frame):
            _curve(axis, frame[frame["arm"] == arm], column, ARM_COLOURS[arm], arm)
        axis.set_ylim(0, 1.02)
        axis.set_ylabel(told)
        axis.set_xlabel("episodes drawn")
        axis.locator_params(axis="x", nbins=6)
    axes[0][0].axhline(WANTED, color=BLACK, lw=0.8, ls=":")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle(f"Training on worlds (running mean of {WINDOW} generations, bands span the seeds)")
    return figure


def _curve(axis: Axes, rows: pd.DataFrame, column: str, colour: str, arm: str) -> None:
    table = rows.pivot_table(index="samples", columns="seed", values=column)
    table = table.rolling(WINDOW, min_periods=1).mean().dropna()
    seeds = table.shape[1]
    label = f"{arm} ({seeds} seed{'s' if seeds > 1 else ''})"
    axis.plot(table.index, table.mean(axis=1), color=colour, lw=1.8, label=label)
    if seeds > 1:
        axis.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.18, lw=0)


def worlds_gain(frame: pd.DataFrame) -> Figure:
    """Held-out Phi and pass rate before and after training, by arm, with one dot a seed.

    frame: worlds_scores.parquet. Intervals: bootstrap over episodes within seed.
    """
    arms = _arms(frame)
    figure, axes = canvas(1, 2, 8.6, 3.6, sharey=True)
    for axis, column, told in zip(axes[0], ("phi", "passed"), ("mean Φ", "share that passes"), strict=True):
        bars = [("before", frame[frame["policy"] == "base"], BLACK)]
        trained = frame[frame["policy"] == "trained"]
        bars += [(arm, trained[trained["arm"] == arm], ARM_COLOURS[arm]) for arm in arms]
        for place, (_, rows, colour) in enumerate(bars):
            values = rows[column].to_numpy(float)
            estimate = bootstrap_mean(values, [str(seed) for seed in rows["seed"]])
            mean = estimate.mean or 0.0
            axis.bar(place, mean, 0.66, color=colour, alpha=0.35 if place == 0 else 0.75)
            if estimate.low is not None and estimate.high is not None:
                error = [[mean - estimate.low], [estimate.high - mean]]
                axis.errorbar(place, mean, yerr=error, fmt="none", ecolor=BLACK, capsize=3, lw=1)
            by_seed = rows.groupby("seed")[column].mean()
            axis.plot([place + 0.2] * len(by_seed), by_seed, "o", mfc="white", mec=BLACK, ms=4, ls="none")
            axis.text(place, 0.03, f"{mean:.2f}", ha="center", fontsize=8, bbox=LABEL)
        axis.set_xticks(range(len(bars)), [name.replace("-", "-\n") for name, _, _ in bars], fontsize=8)
        axis.set_title(told)
        axis.set_ylim(0, 1.05)
    axes[0][0].axhline(WANTED, color=BLACK, lw=0.8, ls=":")
    axes[0][0].set_ylabel("mean and 95% interval")
    each = int(frame[frame["policy"] == "trained"].groupby(["arm", "seed"]).size().max())
    figure.supxlabel(f"{each} held-out episodes a run and policy; dots: seeds", fontsize=8)
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "worlds_learning": worlds_learning,
    "worlds_gain": worlds_gain,
}
