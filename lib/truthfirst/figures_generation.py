"""Figures of generation speed: what multi-turn episodes cost with and without a kept cache."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.figure import Figure

from .figure_style import BLUE, ORANGE, canvas

LOOPS = {
    "engine": ("ours: the cache is kept", BLUE, "o"),
    "trl": ("TRL's loop: all is read again", ORANGE, "s"),
}


def generation(frame: pd.DataFrame) -> Figure:
    """Cost of multi-turn generation against the turns of an episode, and the ratio of the two loops.

    frame: rows of bench/generation.py (engine, turns, cpu_seconds, episodes, parameters, sampled_tokens).
    """
    figure, axes = canvas(1, 2, 8.4, 3.4)
    cost, ratio = axes[0]
    best = frame.groupby(["turns", "engine"])["cpu_seconds"].min().unstack()
    for engine, (label, colour, marker) in LOOPS.items():
        cost.plot(best.index, best[engine], color=colour, marker=marker, ms=4, label=label)
    cost.set_xlabel("turns an episode")
    cost.set_ylabel("CPU seconds")
    cost.set_title(
        f"{int(frame['episodes'].iloc[0])} episodes, {frame['parameters'].iloc[0] / 1e6:.2f} M parameters"
    )
    cost.legend(fontsize=8)
    times = best["trl"] / best["engine"]
    ratio.plot(times.index, times, color=BLUE, marker="o", ms=4)
    for turns, value in times.items():
        ratio.annotate(
            f"{value:.1f}",
            (float(str(turns)), value),
            textcoords="offset points",
            xytext=(4, -10),
            fontsize=8,
        )
    ratio.set_ylim(0, None)
    ratio.set_xlabel("turns an episode")
    ratio.set_ylabel("times faster than TRL's loop")
    ratio.set_title("same model, same tokens, one run")
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {"generation": generation}
