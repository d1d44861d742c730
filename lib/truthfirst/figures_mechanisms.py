"""Figures of mechanisms: how plans unfold, the optimum against the baseline, and what references score.

One function a figure, a tidy frame in and a matplotlib Figure out, like `figures.py`, which publishes them. FIGURES
names them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .figure_style import BLUE, GREEN, GREY, ORANGE, PINK, RED, families_in, family_grid, headline, sizes_in
from .study.stats import bootstrap_mean

FLOOR = -1.6  # of a reference's score in the figure
# Of the three plans: the optimum is wide and the default dashed and on top, so that all are seen where they coincide.
PLAN_STYLES = (
    {"color": BLUE, "lw": 4.5, "alpha": 0.45, "marker": "o", "ms": 9},
    {"color": RED, "lw": 1.5, "ls": "--", "marker": "s", "ms": 4, "zorder": 3},
    {"color": ORANGE, "lw": 1.5, "marker": "v", "ms": 7, "zorder": 2.5},
)


def atlas(frame: pd.DataFrame) -> Figure:
    """Each family's optimal plan against its default and myopic plan: running gain by decision.

    frame: study.atlas.plan_curves. A myopic plan that goes on long after the others is cut, and its end is written.
    """
    families = families_in(frame)
    figure, panels = family_grid(families, 3.1, 2.3)
    styles = dict(zip(dict.fromkeys(frame["policy"]), PLAN_STYLES, strict=False))
    for axis, family in zip(panels, families, strict=True):
        cells = frame[frame["family"] == family]
        lengths = cells.groupby("policy", sort=False)["step"].max()
        shown = 1.5 * lengths.iloc[:2].max()  # the optimal and the default plan are shown whole
        for policy, style in styles.items():
            line = cells[cells["policy"] == policy]
            if line.empty:
                continue
            line = line[line["step"] <= shown]
            drawn = {key: value for key, value in style.items() if key not in ("marker", "ms")}
            axis.step(line["step"], line["gain"], where="post", **drawn)
            whole = lengths[policy] <= shown
            if whole:
                dot = {key: style[key] for key in ("color", "marker", "ms")} | {
                    "alpha": style.get("alpha", 1)
                }
                axis.plot(line["step"].iloc[-1], line["gain"].iloc[-1], ls="none", mew=0, **dot)
            else:
                last = cells[cells["policy"] == policy].iloc[-1]
                note = f"goes on to {last['gain']:,.0f}\nat step {last['step']:.0f}"
                place = (line["step"].iloc[-1], line["gain"].iloc[-1])
                axis.annotate(
                    note, place, (-2, -4), textcoords="offset points", ha="right", va="top", fontsize=7
                )
            axis.plot([], [], label=policy, **style)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    panels[0].set_ylabel("running gain")
    for axis in panels[-4:]:
        axis.set_xlabel("decision")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    headline(figure, "How plans unfold: one instance a family; the last step is what the end brings")
    return figure


def optimum_and_baseline(frame: pd.DataFrame) -> Figure:
    """Optimum u*, reachable reference and baseline u0 by family and size, in each family's own units.

    frame: one row an instance (study.atlas.instance_frame). n stands under each size.
    """
    lines = (
        ("u_star", "optimum u*", BLUE, "o"),
        ("u_reach", "reachable u_reach", GREEN, "D"),
        ("u_zero", "baseline u0", RED, "s"),
    )
    figure = _by_size(frame, lines, "total gain u")
    headline(
        figure, f"Optimum against baseline ({len(frame):,} instances, {_budget(frame)}; mean, 95% interval)"
    )
    return figure


def references(frame: pd.DataFrame) -> Figure:
    """What scripted references score in form A, by family and size; the same frame as optimum_and_baseline.

    n, under each size, counts the instances that clear the margin: others have no scale for a score. A mean below
    FLOOR is a hollow mark at the bottom.
    """
    lines = (
        ("score_reach", "reachable", GREEN, "D"),
        ("score_plan", "plan, no probes", PINK, "^"),
        ("score_myopic", "myopic, no probes", ORANGE, "v"),
        ("score_random", "random", GREY, "x"),
    )
    figure = _by_size(frame, lines, "(u - u0) / (u* - u0)", floor=FLOOR)
    for axis in figure.axes:
        if axis.has_data():
            axis.axhline(1, color=BLUE, lw=0.8)
            axis.axhline(0, color=RED, lw=0.8, ls="--")
            axis.set_ylim(FLOOR - 0.08, 1.15)
    scored = int(frame["score_reach"].notna().sum())
    headline(
        figure,
        f"What references score ({scored:,} of {len(frame):,} instances clear the margin, {_budget(frame)}; mean, 95% "
        f"interval)\nsolid: u*; dashed: u0; unclipped; hollow at the bottom: a mean below {FLOOR}",
    )
    return figure


def _by_size(
    frame: pd.DataFrame,
    lines: Sequence[tuple[str, str, str, str]],
    label: str,
    floor: float | None = None,
) -> Figure:
    families, sizes = families_in(frame), sizes_in(frame)
    figure, panels = family_grid(families, 3.1, 2.3)
    x = np.arange(len(sizes))
    for axis, family in zip(panels, families, strict=True):
        rows = frame[frame["family"] == family]
        counted: list[set[int]] = [set() for _ in sizes]
        for offset, (name, legend, colour, marker) in enumerate(lines):
            groups = [rows[rows["size"] == size][name].dropna() for size in sizes]
            for number, group in zip(counted, groups, strict=True):
                number.add(len(group))
            _points(axis, x + 0.08 * (offset - 1), groups, legend, colour, marker, floor)
        axis.set_xticks(x, [_with_n(size, n) for size, n in zip(sizes, counted, strict=True)], fontsize=7)
    panels[0].set_ylabel(label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(lines))
    return figure


def _with_n(size: str, counts: set[int]) -> str:
    """Return the label of a size: how many instances each point stands for, as a range where points differ."""
    low, high = min(counts), max(counts)
    return f"{size}\nn={low}" if low == high else f"{size}\nn={low}-{high}"


def _budget(frame: pd.DataFrame) -> str:
    return f"{frame['budget'].iloc[0]} budget"


def _points(
    axis: Axes,
    x: np.ndarray,
    groups: Sequence[pd.Series],
    label: str,
    colour: str,
    marker: str,
    floor: float | None = None,
) -> None:
    """Draw means with bootstrap intervals; a mean below `floor` also as a hollow mark there."""
    estimates = [bootstrap_mean(group.to_numpy(float)) for group in groups]
    kept = [(xi, e) for xi, e in zip(x, estimates, strict=True) if e.mean is not None]
    if not kept:
        return
    mean = np.array([e.mean for _, e in kept], dtype=float)
    low = np.array([e.mean if e.low is None else e.low for _, e in kept], dtype=float)
    high = np.array([e.mean if e.high is None else e.high for _, e in kept], dtype=float)
    places = np.array([xi for xi, _ in kept])
    axis.errorbar(
        places,
        mean,
        yerr=[np.maximum(0, mean - low), np.maximum(0, high - mean)],
        label=label,
        color=colour,
        marker=marker,
        ms=4,
        lw=1.2,
        capsize=2,
    )
    if floor is not None and (mean < floor).any():
        below = places[mean < floor]
        axis.plot(below, np.full(len(below), floor), ls="none", marker="v", ms=4, mec=colour, mfc="none")


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "atlas": atlas,
    "optimum_and_baseline": optimum_and_baseline,
    "references": references,
}
