"""Figures of admission: the kill table of planted faults."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .figure_style import canvas

OTHER_VERDICTS = ("equivalent", "not applicable", "survived")


def kill_table(frame: pd.DataFrame) -> Figure:
    """Planted fault by gate: in how many environments the gate was the first to reject the mutant.

    frame: solvefirst.admit.mutations.kill_table; the columns on the right count mutants that changed nothing, that
    could not apply, and that survived (there must be none).
    """
    verdict = frame["gate"].where(frame["verdict"] == "killed", frame["verdict"])
    counts = pd.crosstab(frame["fault"], verdict)
    gates = [gate for gate in dict.fromkeys(frame["gate"].dropna()) if gate in counts]
    gates.sort(key=lambda gate: -int((verdict == gate).sum()))
    columns = [*gates, *OTHER_VERDICTS]
    table = counts.reindex(index=list(dict.fromkeys(frame["fault"])), columns=columns, fill_value=0)
    figure, axes = canvas(1, 1, 0.52 * len(columns) + 3.6, 0.175 * len(table) + 1.9)
    axis = axes[0][0]
    shade = table.to_numpy(float, copy=True)
    shade[:, len(gates) :] *= 0.35
    axis.imshow(
        np.ma.masked_equal(shade, 0), cmap="Blues", vmin=0, vmax=table.to_numpy().max(), aspect="auto"
    )
    for (row, column), count in np.ndenumerate(table.to_numpy()):
        if count:
            dark = shade[row, column] > 0.6 * table.to_numpy().max()
            axis.text(
                column, row, str(count), ha="center", va="center", fontsize=6, color="w" if dark else "k"
            )
    axis.axvline(len(gates) - 0.5, color="k", lw=0.8)
    axis.set_xticks(range(len(columns)), columns, rotation=50, ha="left", fontsize=8)
    axis.xaxis.tick_top()
    axis.set_yticks(
        range(len(table)), [name.replace("_", " ").replace("-", " ") for name in table.index], fontsize=6.5
    )
    killed = int((frame["verdict"] == "killed").sum())
    survived = int((frame["verdict"] == "survived").sum())
    figure.suptitle(
        f"{frame['fault'].nunique()} planted faults in {frame['environment'].nunique()} environments of "
        f"{frame['family'].nunique()} families: {killed} of {len(frame)} mutants killed, {survived} survive",
        fontsize=10,
    )
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {"kill_table": kill_table}
