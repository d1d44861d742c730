"""Figures: one function a figure, a tidy frame in and a matplotlib Figure out.

`publish` stores the frame, draws it and writes PNG, SVG and a JSON sidecar, so that every figure can be redrawn from
stored results without a model and without a GPU: `python -m truthfirst.figures`. Files are byte-stable.
Figures of environments are drawn here, the others in figures_*.py; FIGURES_BY_NAME holds them all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from . import (
    __version__,
    figures_ablations,
    figures_admission,
    figures_comparison,
    figures_corpus,
    figures_generation,
    figures_mechanisms,
    figures_setters,
    figures_solvers,
    figures_store,
    figures_strata,
    figures_training,
    figures_worlds,
    figures_worlds_training,
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
    sizes_in,
)
from .paths import FIGURES, RESULTS
from .records import canonical_json, content_hash, write_atomic, write_parquet
from .runs import RUN_VARIABLE, current_run
from .runs_publish import FIGURE_FOLDER, FRAME_FOLDER, obstacle, preset_of, read_sidecar


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
    figures_mechanisms.FIGURES,
    {"environment_card": environment_card, "admission": admission},
    figures_ablations.FIGURES,
    figures_admission.FIGURES,
    figures_comparison.FIGURES,
    figures_corpus.CORPUS_FIGURES,
    figures_generation.FIGURES,
    figures_setters.FIGURES,
    figures_solvers.FIGURES,
    figures_store.FIGURES,
    figures_strata.FIGURES,
    figures_training.FIGURES,
    figures_worlds.FIGURES,
    figures_worlds_training.FIGURES,
)
FIGURES_BY_NAME: dict[str, Callable[[pd.DataFrame], Figure]] = {
    name: function for table in _OF_EACH_FILE for name, function in table.items()
}


# --- storing ----------------------------------------------------------------------------------------------
def _known(name: str) -> None:
    if name not in FIGURES_BY_NAME:
        raise ValueError(f"unknown figure {name!r}: choose one of {', '.join(FIGURES_BY_NAME)}")


def draw(name: str, frame: pd.DataFrame) -> Figure:
    """Draw the figure `name` from its frame, in the house style."""
    _known(name)
    if frame.empty:
        raise ValueError(f"figure {name!r} needs at least one row")
    with mpl.rc_context(STYLE):
        return FIGURES_BY_NAME[name](frame)


def publish(name: str, frame: pd.DataFrame, parameters: Mapping[str, Any] | None = None) -> Figure:
    """Store the frame, draw it, and write NAME.png, .svg and .json; return the Figure.

    parameters   of the study that made the frame; they stand in the sidecar with the run's id.

    In a run all goes to the run's own folder, from where the run publishes it when it has finished
    (`runs_publish.py` has the rules). By hand it goes to figures/ and data/results/ at once, unless a figure of another
    preset is stored there: then it is drawn and returned, and one line says that it was not stored.
    """
    figure = draw(name, frame)
    origin = {"parameters": dict(parameters or {}), "run": current_run()}
    run = os.environ.get(RUN_VARIABLE)
    results, figures = RESULTS, FIGURES
    if run:
        results, figures = Path(run) / FRAME_FOLDER, Path(run) / FIGURE_FOLDER
    elif reason := obstacle(FIGURES, name, preset_of(origin)):
        print(f"{name} is not stored: {reason}")
        return figure
    write_parquet(results / f"{name}.parquet", frame)
    # As a redraw will read it: parquet has its own view of columns that hold nothing, and the sidecar names content.
    stored = pd.read_parquet(results / f"{name}.parquet")
    _write(name, figure, stored, origin, figures)
    return figure


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
        "content": frame_hash(frame),
        "truthfirst": __version__,
        "matplotlib": mpl.__version__,
        **origin,
    }
    write_atomic(folder / f"{name}.json", json.dumps(sidecar, indent=2, sort_keys=True) + "\n")


def frame_hash(frame: pd.DataFrame) -> str:
    """Return the content hash of a frame, as sidecars hold it: columns, rows and values, floats to 12 decimals."""
    return content_hash(canonical_json(json.loads(frame.to_json(orient="split", double_precision=12))))


def redraw(names: Sequence[str] | None = None) -> dict[str, str]:
    """Redraw figures from stored frames; return what was done for each name: drawn, no stored data, or not drawn.

    A frame that is damaged or lacks a column stops its own figure only. Raises ValueError for an unknown name.
    """
    for name in names or ():
        _known(name)
    return {name: _redraw(name) for name in names or FIGURES_BY_NAME}


def _redraw(name: str) -> str:
    file = RESULTS / f"{name}.parquet"
    if not file.exists():
        return f"no stored data ({file.name} is missing): run make study"
    try:
        frame = pd.read_parquet(file)
    except (OSError, ValueError) as error:  # pyarrow's errors of a damaged file are ValueErrors
        return f"{FAILED}: {file.name} cannot be read ({_line(error)}); run its study again"
    known = read_sidecar(FIGURES / f"{name}.json") or {}
    origin = {"parameters": known.get("parameters", {}), "run": known.get("run")}
    try:
        figure = draw(name, frame)
    except (KeyError, TypeError, ValueError) as error:
        return f"{FAILED}: {file.name} does not fit this figure ({_line(error)}); run its study again"
    _write(name, figure, frame, origin)
    return "drawn"


FAILED = "not drawn"


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]


def main(arguments: Sequence[str] | None = None) -> int:
    """Redraw the figures named on the command line, or all; return 1 where a stored frame gave no figure."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.figures",
        description="Redraw figures from the frames in data/results/, without a model and without a GPU.",
        epilog="Exit codes: 0 all that is stored is drawn, 1 a figure could not be drawn, 2 the request is wrong.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all by default; {', '.join(FIGURES_BY_NAME)}"
    )
    options = parser.parse_args(arguments)
    try:
        done = redraw(options.names or None)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {_line(error)}", file=sys.stderr)
        return 1
    for name, what in done.items():
        print(f"{name:24s} {what}")
    return 1 if any(what.startswith(FAILED) for what in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
