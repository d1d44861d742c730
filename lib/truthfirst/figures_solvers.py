"""Figures of solve times: against size, and beside peers.

One function a figure, a tidy frame in and a matplotlib Figure out, like `figures.py`, which publishes them. The frames
are the studies `scaling` and `peers` of bench/solvers.py: one row a solved instance with columns family, solver, kind,
n, index, seconds (CPU), verdict. FIGURES names them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, RED

PEER_STYLES = {
    "ours": (BLUE, "o"),
    "PuLP + HiGHS": (ORANGE, "s"),
    "PuLP + CBC": (GREEN, "^"),
    "OR-Tools CP-SAT": (RED, "D"),
}
KIND_COLOURS = {
    "dynamic programming": BLUE,
    "closed form": BLACK,
    "enumeration": ORANGE,
    "LP": GREEN,
    "MILP": RED,
    "numerical optimisation": GREY,
}


def solver_scaling(frame: pd.DataFrame) -> Figure:
    """Milliseconds of each family's own solver against n: median, and the range over instances.

    frame: study `scaling`; n items and n periods where the mechanism has both. The dotted line is the figure to reach
    at huge: 5 ms for dynamic programmes, 50 ms for every other solver.
    """
    families = list(dict.fromkeys(frame["family"]))
    columns = min(5, len(families))
    rows = -(-len(families) // columns)
    figure = Figure(figsize=(2.5 * columns, 1.9 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axis, family in zip(axes.flat, families, strict=False):
        cells = frame[frame["family"] == family]
        kind = str(cells["kind"].iloc[0])
        times = cells.assign(ms=1000 * cells["seconds"], n=cells["n"].astype(int)).groupby("n")["ms"]
        n = np.array(sorted(times.groups), dtype=float)
        colour = KIND_COLOURS.get(kind, BLACK)
        axis.plot(n, times.median().to_numpy(float), "o-", color=colour, ms=3.5, lw=1.3)
        axis.fill_between(
            n, times.min().to_numpy(float), times.max().to_numpy(float), color=colour, alpha=0.2
        )
        axis.axhline(5 if kind == "dynamic programming" else 50, color=GREY, lw=0.8, ls=":")
        axis.set_yscale("log")
        axis.set_xticks(n)
        axis.set_title(f"{family.replace('_', ' ')}\n{kind}", fontsize=8)
    for axis in list(axes.flat)[len(families) :]:
        axis.axis("off")
    for row in axes:
        row[0].set_ylabel("CPU ms")
    figure.supxlabel("size n", fontsize=9)
    each = int(frame.groupby(["family", "n"]).size().min())
    figure.suptitle(
        f"Solve time against size (median and range of {each} instances each; dotted: the figure to reach at huge)",
        fontsize=10,
    )
    return figure


def solver_peers(frame: pd.DataFrame) -> Figure:
    """Milliseconds of every solver on the same instances, one line a family; hollow: stopped at the time limit.

    frame: study `peers`.
    """
    families = list(dict.fromkeys(frame["family"]))[::-1]
    figure = Figure(figsize=(8.4, 0.32 * len(families) + 1.6), layout="constrained")
    axis = figure.subplots()
    solvers = [solver for solver in PEER_STYLES if solver in set(frame["solver"])]
    for offset, solver in enumerate(solvers):
        colour, marker = PEER_STYLES[solver]
        cells = frame[frame["solver"] == solver]
        done = cells[cells["verdict"] == "optimal"]
        late = cells[cells["verdict"] != "optimal"]
        shift = 0.14 * ((len(solvers) - 1) / 2 - offset)
        for part, filled in ((done, True), (late, False)):
            y = np.array([families.index(family) for family in part["family"]], dtype=float) + shift
            axis.plot(
                1000 * part["seconds"].to_numpy(float),
                y,
                marker,
                color=colour,
                mfc=colour if filled else "none",
                ms=4.5,
                alpha=0.85,
                label=solver if filled else None,
            )
    axis.set_xscale("log")
    axis.set_yticks(range(len(families)), [family.replace("_", " ") for family in families])
    axis.set_xlabel("CPU ms on one thread, building the model included (hollow: time limit)")
    axis.grid(axis="x", color=GREY, alpha=0.25)
    figure.legend(loc="outside lower center", ncols=len(solvers), fontsize=8)
    each = int(frame[frame["solver"] == "ours"].groupby("family").size().min())
    axis.set_title(f"Ours beside peers on the same {each} instances a family, size huge")
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "solver_scaling": solver_scaling,
    "solver_peers": solver_peers,
}
