"""Figures: one function a figure, a tidy frame in and a matplotlib Figure out.

`publish` stores the frame, draws it and writes PNG, SVG and a JSON sidecar, so that every figure can be redrawn from
stored results without a model and without a GPU: `python -m truthfirst.figures`. Files are byte-stable.
Figures of mechanisms and environments are drawn here, the others in figures_*.py; FIGURES_BY_NAME holds them all.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import (
    __version__,
    figures_admission,
    figures_comparison,
    figures_corpus,
    figures_generation,
    figures_setters,
    figures_solvers,
)
from .figure_style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    STYLE,
    YELLOW,
    canvas,
    families_in,
    family_grid,
    sizes_in,
)
from .paths import FIGURES, RESULTS
from .records import canonical_json, content_hash, write_atomic
from .runs import RUN_VARIABLE, current_run
from .study.stats import bootstrap_mean


# --- mechanisms -------------------------------------------------------------------------------------------
def optimum_and_baseline(frame: pd.DataFrame) -> Figure:
    """Optimum u*, reachable reference and baseline u0 by family and size, in each family's own units.

    frame: one row an instance (study.atlas.instance_frame).
    """
    lines = (
        ("u_star", "optimum u*", BLUE, "o"),
        ("u_reach", "reachable u_reach", GREEN, "D"),
        ("u_zero", "baseline u0", RED, "s"),
    )
    figure = _by_size(frame, lines, "total gain u")
    figure.suptitle(f"Optimum against baseline ({_n(frame)} instances, {_budget(frame)}; mean, 95% interval)")
    return figure


def references(frame: pd.DataFrame) -> Figure:
    """What scripted references score in form A, by family and size; the same frame as optimum_and_baseline."""
    lines = (
        ("score_reach", "reachable", GREEN, "D"),
        ("score_plan", "plan, no probes", PINK, "^"),
        ("score_myopic", "myopic, no probes", ORANGE, "v"),
        ("score_random", "random", GREY, "x"),
    )
    figure = _by_size(frame, lines, "(u - u0) / (u* - u0)")
    for axis in figure.axes:
        if axis.has_data():
            axis.axhline(1, color=BLUE, lw=0.8)
            axis.axhline(0, color=RED, lw=0.8, ls="--")
            axis.set_ylim(-1.6, 1.15)
    figure.suptitle(
        f"What references score ({_n(frame)} instances, {_budget(frame)}; mean, 95% interval; "
        "solid: u*, dashed: u0; unclipped, cut at -1.6)"
    )
    return figure


def _by_size(frame: pd.DataFrame, lines: Sequence[tuple[str, str, str, str]], label: str) -> Figure:
    families, sizes = families_in(frame), sizes_in(frame)
    figure, panels = family_grid(families, 3.1, 2.3)
    x = np.arange(len(sizes))
    for axis, family in zip(panels, families, strict=True):
        rows = frame[frame["family"] == family]
        for offset, (name, legend, colour, marker) in enumerate(lines):
            groups = [rows[rows["size"] == size][name].dropna() for size in sizes]
            _points(axis, x + 0.08 * (offset - 1), groups, legend, colour, marker)
        axis.set_xticks(x, sizes, rotation=30)
    panels[0].set_ylabel(label)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(lines))
    return figure


def _budget(frame: pd.DataFrame) -> str:
    return f"{frame['budget'].iloc[0]} budget"


def atlas(frame: pd.DataFrame) -> Figure:
    """Each family's optimal plan against its default and myopic plan: running gain by decision.

    frame: study.atlas.plan_curves.
    """
    families = families_in(frame)
    figure, panels = family_grid(families, 3.1, 2.3)
    colours = dict(zip(dict.fromkeys(frame["policy"]), (BLUE, RED, ORANGE), strict=False))
    for axis, family in zip(panels, families, strict=True):
        cells = frame[frame["family"] == family]
        for policy, colour in colours.items():
            line = cells[cells["policy"] == policy]
            axis.step(line["step"], line["gain"], where="post", color=colour, lw=1.4, label=policy)
            axis.plot(line["step"].iloc[-1], line["gain"].iloc[-1], "o", color=colour, ms=4)
        axis.set_title(family.replace("_", " "))
    panels[0].set_ylabel("running gain")
    figure.supxlabel("decision (the last step is what the end brings)", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _points(
    axis: Axes,
    x: np.ndarray,
    groups: Sequence[pd.Series],
    label: str,
    colour: str,
    marker: str,
) -> None:
    """Draw means with bootstrap intervals."""
    estimates = [bootstrap_mean(group.to_numpy(float)) for group in groups]
    kept = [(xi, e) for xi, e in zip(x, estimates, strict=True) if e.mean is not None]
    if not kept:
        return
    mean = np.array([e.mean for _, e in kept], dtype=float)
    low = np.array([e.mean if e.low is None else e.low for _, e in kept], dtype=float)
    high = np.array([e.mean if e.high is None else e.high for _, e in kept], dtype=float)
    axis.errorbar(
        [xi for xi, _ in kept],
        mean,
        yerr=[np.maximum(0, mean - low), np.maximum(0, high - mean)],
        label=label,
        color=colour,
        marker=marker,
        ms=4,
        lw=1.2,
        capsize=2,
    )


def _n(frame: pd.DataFrame) -> str:
    return f"n = {len(frame):,}"


# --- environments -----------------------------------------------------------------------------------------
def environment_card(frame: pd.DataFrame) -> Figure:
    """One environment as an agent meets it: prompt, tables and tools, and a transcript.

    frame: columns panel ("prompt", "tables", "tools", "transcript") and text, in order; title in column title.
    """
    texts = dict(zip(frame["panel"], frame["text"], strict=True))
    left = _wrapped(texts["prompt"], 100, 72)
    right = "\n".join(
        f"{name.upper()}\n{_wrapped(texts[name], 100, limit)}\n"
        for name, limit in (("tools", 12), ("tables", 14), ("transcript", 38))
    )
    lines = max(left.count("\n"), right.count("\n"))
    figure, axes = canvas(1, 2, 12, 0.125 * lines + 0.9)
    for axis, heading, text in (
        (axes[0][0], "What it reads", left),
        (axes[0][1], "What it can do, and did", right),
    ):
        axis.axis("off")
        axis.set_title(heading)
        axis.text(
            0,
            1,
            text.replace("$", r"\$"),
            va="top",
            fontsize=6.4,
            family="monospace",
            transform=axis.transAxes,
        )
    figure.suptitle(str(frame["title"].iloc[0]), fontsize=11)
    return figure


def _wrapped(text: str, width: int, lines: int) -> str:
    out = [part for line in text.splitlines() for part in (textwrap.wrap(line, width) or [""])]
    return "\n".join(out[:lines] + (["[...]"] if len(out) > lines else []))


def admission(frame: pd.DataFrame) -> Figure:
    """Share of candidates admitted, and the gates that rejected the others, by family and size."""
    groups = [(f, s) for f in families_in(frame) for s in sizes_in(frame) if len(_cell(frame, f, s))]
    gates = list(dict.fromkeys(frame["gate"].dropna()))
    colours = dict(zip(gates, (RED, ORANGE, PINK, YELLOW, SKY, BLUE, BLACK, GREY), strict=False))
    figure, axes = canvas(1, 1, 7.6, 0.28 * len(groups) + 1.5)
    axis = axes[0][0]
    for y, (family, size) in enumerate(groups):
        rows = _cell(frame, family, size)
        left = float(rows["admitted"].mean())
        axis.barh(y, left, color=GREEN, label="admitted" if y == 0 else None)
        for gate in gates:
            share = float((rows["gate"] == gate).mean())
            axis.barh(
                y,
                share,
                left=left,
                color=colours.get(gate, GREY),
                label=f"rejected: {gate}" if y == 0 else None,
            )
            left += share
        axis.text(1.01, y, f"{int(rows['admitted'].sum())}/{len(rows)}", va="center", fontsize=8)
    axis.set_yticks(range(len(groups)), [f"{f.replace('_', ' ')}, {s}" for f, s in groups])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.1)
    axis.set_xlabel("share of candidates")
    axis.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8)
    return figure


def _cell(frame: pd.DataFrame, family: str, size: str) -> pd.DataFrame:
    return frame[(frame["family"] == family) & (frame["size"] == size)]


_OF_EACH_FILE: tuple[Mapping[str, Callable[[pd.DataFrame], Figure]], ...] = (
    {
        "atlas": atlas,
        "optimum_and_baseline": optimum_and_baseline,
        "references": references,
        "environment_card": environment_card,
        "admission": admission,
    },
    figures_admission.FIGURES,
    figures_comparison.FIGURES,
    figures_corpus.CORPUS_FIGURES,
    figures_generation.FIGURES,
    figures_setters.FIGURES,
    figures_solvers.FIGURES,
)
FIGURES_BY_NAME: dict[str, Callable[[pd.DataFrame], Figure]] = {
    name: function for table in _OF_EACH_FILE for name, function in table.items()
}


STUDY_RUN = re.compile(
    r"\w+(-preset=\w+)?-[0-9a-f]+"
)  # a run's id names every parameter that is not the default


# --- storing ----------------------------------------------------------------------------------------------
def draw(name: str, frame: pd.DataFrame) -> Figure:
    """Draw the figure `name` from its frame, in the house style."""
    if name not in FIGURES_BY_NAME:
        raise ValueError(f"unknown figure {name!r}: choose one of {', '.join(FIGURES_BY_NAME)}")
    if frame.empty:
        raise ValueError(f"figure {name!r} needs at least one row")
    with mpl.rc_context(STYLE):
        return FIGURES_BY_NAME[name](frame)


def publish(name: str, frame: pd.DataFrame, parameters: Mapping[str, Any] | None = None) -> Figure:
    """Store the frame, draw it, and write figures/NAME.png, .svg and .json; return the Figure.

    parameters   of the study that made the frame; they stand in the sidecar with the run's id.

    A run that sets any parameter beside the preset is an exploration: its frames and figures go to its own run folder
    (results/, figures/), and the study's stay as they are.
    """
    figure = draw(name, frame)
    results, figures = _folders()
    buffer = BytesIO()
    frame.to_parquet(buffer, index=False)
    write_atomic(results / f"{name}.parquet", buffer.getvalue())
    _write(name, figure, frame, {"parameters": dict(parameters or {}), "run": current_run()}, figures)
    return figure


def _folders() -> tuple[Path, Path]:
    """Return where frames and figures go: the shared folders, or those of an exploring run."""
    folder = os.environ.get(RUN_VARIABLE)
    if folder and not STUDY_RUN.fullmatch(Path(folder).name):
        return Path(folder) / "results", Path(folder) / "figures"
    return RESULTS, FIGURES


def _write(
    name: str, figure: Figure, frame: pd.DataFrame, origin: Mapping[str, Any], folder: Path | None = None
) -> None:
    """Write PNG, SVG and sidecar without dates, so that equal frames give equal bytes."""
    folder = folder or FIGURES
    with mpl.rc_context(STYLE):
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = BytesIO()
            figure.savefig(buffer, format=suffix, dpi=160, metadata=metadata)
            write_atomic(folder / f"{name}.{suffix}", buffer.getvalue())
    sidecar = {
        "figure": name,
        "data": f"data/results/{name}.parquet",
        "rows": len(frame),
        "content": content_hash(
            canonical_json(json.loads(frame.to_json(orient="split", double_precision=12)))
        ),
        "truthfirst": __version__,
        "matplotlib": mpl.__version__,
        **origin,
    }
    write_atomic(folder / f"{name}.json", json.dumps(sidecar, indent=2, sort_keys=True) + "\n")


def redraw(names: Sequence[str] | None = None) -> dict[str, str]:
    """Redraw figures from stored frames; return what was done for each name."""
    done = {}
    for name in names or FIGURES_BY_NAME:
        file = RESULTS / f"{name}.parquet"
        if not file.exists():
            done[name] = f"no stored data ({file.name} is missing): run make study"
            continue
        frame = pd.read_parquet(file)
        old = FIGURES / f"{name}.json"
        known = json.loads(old.read_text()) if old.exists() else {}
        origin = {"parameters": known.get("parameters", {}), "run": known.get("run")}
        _write(name, draw(name, frame), frame, origin)
        done[name] = "drawn"
    return done


def main(arguments: Sequence[str]) -> int:
    """Redraw the figures named on the command line, or all."""
    try:
        done = redraw(arguments or None)
    except ValueError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    for name, what in done.items():
        print(f"{name:24s} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
