"""The house style of figures: one palette, one canvas, names in one order.

Colours: Okabe and Ito, "Color universal design", 2008, and a grey; they stay apart for colour-blind readers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.core.pylabtools import select_figure_formats
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY = "#8A8A8A"
FORM_COLOURS = {"F": BLUE, "I": ORANGE, "A": GREEN}
FORM_NAMES = {"F": "F written out", "I": "I informed", "A": "A agentic"}
LOSS_COLOURS = {"score": GREEN, "information": SKY, "planning": ORANGE, "execution": BLACK}
SIZE_ORDER = ("nano", "small", "medium", "large", "huge", "long", "source")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.dpi": 120,
    "svg.hashsalt": "truthfirst",
    "svg.fonttype": "none",
}


def show_in_notebooks(shell: Any) -> None:
    """Let an IPython shell show a Figure that a cell ends with; nothing happens without one (`shell` is None).

    IPython does so by itself only once pyplot is imported, which figures here do without.
    """
    if shell is not None:
        select_figure_formats(shell, {"png"}, bbox_inches=None)


def canvas(rows: int, columns: int, width: float, height: float, **kwargs: Any) -> tuple[Figure, np.ndarray]:
    """Return a figure of width by height inches and its axes, an array of shape (rows, columns)."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **kwargs)


LETTERS_AN_INCH = 13  # of a headline


def headline(figure: Figure, text: str) -> None:
    """Set the title over a whole figure, wrapped to its width."""
    width = int(LETTERS_AN_INCH * figure.get_figwidth())
    lines = [piece for line in text.split("\n") for piece in textwrap.wrap(line, width)]
    figure.suptitle("\n".join(lines), fontsize=10)


def sizes_in(frame: pd.DataFrame) -> list[str]:
    """List the sizes of a frame, smallest first."""
    return [size for size in SIZE_ORDER if size in set(frame["size"])]


def families_in(frame: pd.DataFrame) -> list[str]:
    """List the families of a frame in its own order."""
    return list(dict.fromkeys(frame["family"]))


def family_grid(families: Sequence[str], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with one titled panel a family, at most four a row; spare panels are blank."""
    columns = min(4, len(families))
    rows = -(-len(families) // columns)
    figure, axes = canvas(rows, columns, width * columns, height * rows + 0.6)
    panels = list(axes.flat)
    for axis, family in zip(panels, families, strict=False):
        axis.set_title(family.replace("_", " "))
    for axis in panels[len(families) :]:
        axis.axis("off")
    return figure, panels[: len(families)]


show_in_notebooks(get_ipython())
