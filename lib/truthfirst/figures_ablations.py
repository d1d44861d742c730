"""Figures of ablations and of scaling: tidy tables of `study/` in, a matplotlib Figure out. FIGURES names them all."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.figure import Figure

from .figure_style import BLACK, FORM_COLOURS, FORM_NAMES, GREY, canvas
from .study.ablations import REFERENCE


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
            axis.text(1.10, y, part, transform=_beside(axis), va="center", fontsize=8, weight="bold")
    axis.set_yticks(range(len(names)), [name for _, name in names])
    axis.invert_yaxis()
    axis.set_xlabel("trained score less the reference's, held-out instances, 95% interval")
    axis.legend(ncols=2, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    seeds = (
        f"{frame['seeds'].min()}"
        if frame["seeds"].nunique() == 1
        else f"{frame['seeds'].min()} to {frame['seeds'].max()}"
    )
    figure.suptitle(f"One thing changed at a time ({int(rows['n'].max())} pairs, {seeds} seeds)")
    return figure


def _label(form: str, y: int, reference: pd.Series) -> str | None:
    return f"{FORM_NAMES[form]} (reference {reference[form]:.2f})" if y == 0 else None


def _beside(axis):  # type: ignore[no-untyped-def]
    """Coordinates with x in parts of the axis and y in data."""
    return axis.get_yaxis_transform()


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {"ablations": ablations}
