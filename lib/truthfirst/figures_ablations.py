"""Figures of ablations and of scaling: tidy tables of `study/` in, a matplotlib Figure out. FIGURES names them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Transform

from .figure_style import BLACK, BLUE, FORM_COLOURS, FORM_NAMES, GREEN, GREY, ORANGE, canvas
from .sources import published
from .study.ablations import REFERENCE
from .study.scaling import ALL


def ablations(frame: pd.DataFrame) -> Figure:
    """Held-out score of every variant less the reference's, forms A and I, with 95% intervals paired on instances.

    frame: the table of study/ablations.py.
    """
    reference = frame[frame["variant"] == REFERENCE].set_index("form")["trained"]
    rows = frame[frame["variant"] != REFERENCE]
    names = list(dict.fromkeys(zip(rows["axis"], rows["variant"], strict=True)))
    figure, axes = canvas(1, 1, 7.4, 0.36 * len(names) + 1.5)
    axis = axes[0][0]
    axis.axvline(0, color=BLACK, lw=0.8)
    for y, (part, name) in enumerate(names):
        mine = rows[rows["variant"] == name].set_index("form")
        for form, shift in (("A", -0.14), ("I", 0.14)):
            row = mine.loc[form]
            colour = FORM_COLOURS[form]
            axis.hlines(y + shift, row["low"], row["high"], color=colour, lw=1.6)
            axis.plot(row["difference"], y + shift, "o", ms=5, color=colour, label=_label(form, y, reference))
        axis.text(
            1.01, y, f"F {mine.loc['F', 'difference']:+.2f}", transform=_beside(axis), va="center", fontsize=8
        )
        if part != (names[y - 1][0] if y else None):
            axis.axhline(y - 0.5, color=GREY, lw=0.5)
            axis.text(1.13, y, part, transform=_beside(axis), va="center", fontsize=8, weight="bold")
    axis.set_yticks(range(len(names)), [name for _, name in names])
    axis.invert_yaxis()
    axis.set_xlabel("trained score less the reference's, held-out instances, 95% interval")
    axis.legend(ncols=2, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    runs = sorted({int(number) for number in frame["seeds"]})
    seeds = " to ".join(map(str, dict.fromkeys((runs[0], runs[-1]))))
    figure.suptitle(
        f"One thing changed at a time ({int(rows['n'].max())} pairs, {seeds} seed{'s' if runs[-1] > 1 else ''})"
    )
    return figure


def _label(form: str, y: int, reference: pd.Series) -> str | None:
    return f"{FORM_NAMES[form]} (reference {reference[form]:.2f})" if y == 0 else None


def _beside(axis: Axes) -> Transform:
    """Coordinates with x in parts of the axis and y in data."""
    return axis.get_yaxis_transform()


PANEL_TITLES = {
    "score": "(u − u0) / (u* − u0), tight budget; below −0.5 not drawn",
    "turns": "turns: decisions plus hidden figures",
    "solver": "solver, milliseconds",
    "yield": "candidates admitted",
}
# Of families, where a full line is all of them together.
DASHES: tuple[Any, ...] = ("--", ":", (0, (3, 1, 1, 1)), (0, (6, 2)))
ASIDE = 0.12  # that the curriculum stands beside the fixed size
SERIES_COLOURS = {"random": GREY, "myopic": ORANGE, "asks all it can": BLUE, "best script": GREEN}
SHAPES = {"small": "small\n6×5", "huge": "huge\n11×11"}


def _styles(families: pd.Series) -> dict[str, Any]:
    """Return how the line of each family is dashed, the same in every figure of the same families."""
    names = sorted(set(families) - {ALL})
    return {name: DASHES[number % len(DASHES)] for number, name in enumerate(names)}


def scaling(frame: pd.DataFrame) -> Figure:
    """What grows with size: scores of scripted policies, turns, solver time and the setter's yield.

    frame: the table `by_size` of study/scaling.py.
    """
    sizes = list(dict.fromkeys(frame["size"]))
    styles = _styles(frame["family"])
    figure, axes = canvas(2, 2, 8.4, 5.6)
    for axis, (panel, title) in zip(axes.flat, PANEL_TITLES.items(), strict=True):
        own = frame[frame["panel"] == panel]
        for (family, series), rows in own.groupby(["family", "series"], sort=False):
            by = rows.set_index("size").reindex(sizes)
            colour = SERIES_COLOURS.get(str(series), BLACK)
            style = styles.get(str(family), "-")
            axis.plot(sizes, by["mean"], ls=style, color=colour, marker="o", ms=3.5, lw=1.4)
            axis.fill_between(
                sizes, by["low"].astype(float), by["high"].astype(float), color=colour, alpha=0.12, lw=0
            )
        axis.set_title(title, fontsize=9)
        if panel == "score":
            axis.axhline(0, color=BLACK, lw=0.8)
        axis.set_ylim(*{"score": (-0.5, 1.02), "yield": (0.9, 1.005)}.get(panel, (0, None)))
        axis.set_xticks(range(len(sizes)), [SHAPES.get(size, size) for size in sizes])
    handles = [
        Line2D([], [], color=colour, marker="o", ms=3.5, label=name)
        for name, colour in SERIES_COLOURS.items()
    ]
    handles += [
        Line2D([], [], color=BLACK, ls=style, label=name.replace("_", " ")) for name, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    return figure


def scaling_policies(frame: pd.DataFrame) -> Figure:
    """Base and trained policy at each size, the gain, and the curriculum beside the fixed size.

    frame: the table `trained_by_size` of study/scaling.py. Thick lines are all families together.
    """
    figure, axes = canvas(1, 2, 8.4, 4.0)
    score, gain = axes[0]
    fixed, grown = frame[frame["growing"] == ""], frame[(frame["growing"] != "") & (frame["family"] == ALL)]
    together = frame[frame["family"] == ALL].drop_duplicates("size").set_index("size")["decisions"]
    place = {size: x for x, size in enumerate(together.index)}
    styles = _styles(frame["family"])
    for name, rows in fixed.groupby("family", sort=False):
        x = rows["size"].map(place)
        whole = name == ALL
        look: dict[str, Any] = {"ls": styles.get(str(name), "-"), "lw": 1.0}
        if whole:
            look |= {"lw": 2.2, "marker": "o", "ms": 5}
        for policy, colour in (("base", GREY), ("trained", GREEN)):
            score.plot(x, rows[policy], color=colour, **look)
        gain.plot(x, rows["gain"], color=GREEN, **look)
        if whole:
            gain.vlines(x, rows["low"], rows["high"], color=GREEN, lw=2)
    if len(grown):
        x = grown["size"].map(place) + ASIDE
        score.plot(x, grown["trained"], "D", color=ORANGE, ms=7)
        gain.vlines(x, grown["low"], grown["high"], color=ORANGE, lw=2)
        gain.plot(x, grown["gain"], "D", color=ORANGE, ms=7)
    source = published("vhd_play", "scaling_gains")
    beside = len(source) == len(place)
    if beside:
        gain.plot(range(len(source)), source, "D", mfc="none", mec=BLACK, ms=6, ls="none")
    score.set_ylabel("score, form A")
    score.set_ylim(0, 1.02)
    gain.set_ylabel("gain by training, 95% interval")
    gain.axhline(0, color=BLACK, lw=0.8)
    ticks = [f"{size}\n{decisions:.1f}".removesuffix(".0") for size, decisions in together.items()]
    for axis in (score, gain):
        axis.set_xlabel("size; mean decisions an episode")
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set_xlim(-0.3, len(ticks) - 0.6)
    handles = [
        Line2D([], [], color=colour, marker=marker, ls=style, label=label)
        for colour, marker, style, label in (
            (GREY, "o", "-", "base"),
            (GREEN, "o", "-", "trained at this size"),
            *([(ORANGE, "D", "", "trained through the sizes")] if len(grown) else []),
        )
    ]
    if beside:
        label = "source, 6×5 to 11×11\n(another experiment)"
        handles.append(Line2D([], [], color=BLACK, mfc="none", marker="D", ls="", label=label))
    handles += [
        Line2D([], [], color=BLACK, lw=1, ls=style, label=name.replace("_", " "))
        for name, style in styles.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "ablations": ablations,
    "scaling": scaling,
    "scaling_policies": scaling_policies,
}
