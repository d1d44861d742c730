"""Figures of solve times: every family and every solver of the frame is drawn, a timeout is told from a time."""

from __future__ import annotations

import pandas as pd

from truthfirst.figures_solvers import FIGURES, solver_peers, solver_scaling

KINDS = {"rationing": "dynamic programming", "transport": "LP", "search": "closed form"}


def frame(study: str) -> pd.DataFrame:
    solvers = ["ours"] if study == "scaling" else ["ours", "PuLP + HiGHS", "PuLP + CBC"]
    return pd.DataFrame(
        {
            "study": study,
            "family": family,
            "solver": solver,
            "kind": kind,
            "n": n,
            "index": index,
            "seconds": 0.001 * n * (1 + index),
            "verdict": "timeout" if (family, solver) == ("transport", "PuLP + CBC") else "optimal",
        }
        for family, kind in KINDS.items()
        for solver in solvers
        for n in (4, 8)
        for index in range(2)
    )


def test_the_table_names_both_figures() -> None:
    assert [*FIGURES.items()] == [("solver_scaling", solver_scaling), ("solver_peers", solver_peers)]


def test_scaling_draws_a_panel_a_family_with_its_median() -> None:
    figure = solver_scaling(frame("scaling"))
    panels = {axis.get_title().split("\n")[0]: axis for axis in figure.axes if axis.has_data()}
    assert list(panels) == list(KINDS)
    line = panels["rationing"].lines[0]
    assert list(line.get_xdata()) == [4, 8]
    assert list(line.get_ydata()) == [6, 12]
    assert [panels[f].lines[1].get_ydata()[0] for f in ("rationing", "transport")] == [5, 50]


def test_peers_draw_every_row_and_leave_timeouts_hollow() -> None:
    axis = solver_peers(frame("peers")).axes[0]
    assert sum(len(line.get_xdata()) for line in axis.lines) == 3 * 3 * 2 * 2
    hollow = [line for line in axis.lines if line.get_markerfacecolor() == "none" and len(line.get_xdata())]
    assert [len(line.get_xdata()) for line in hollow] == [4]
