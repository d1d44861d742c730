"""The command line of runs.

    python -m truthfirst.runs NOTEBOOK -p name=value ...     one run
    python -m truthfirst.runs grid FILE.yaml                 many runs of one notebook
    python -m truthfirst.runs study --preset cpu             every numbered notebook, in order
    python -m truthfirst.runs status                         a table of the runs

Finished runs are skipped, broken ones done again. Everything is checked before anything starts. Exit codes: 0 all is
well, 1 a run is broken, 2 the request is wrong (one line says how, nothing is written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from . import paths
from .interrupts import INTERRUPTED, STOPPED, terminable
from .presets import PRESETS, UnknownPreset
from .runs import RunError, RunRecord, list_runs, read_run
from .runs_execute import Outcome, describe, drawn_by, execute, execute_all
from .runs_grid import parse_assignments, read_grid
from .runs_plan import Plan, code_hash, plan_run, study_notebooks
from .runs_publish import FIGURE_FOLDER
from .streams import SeedError

COMMANDS = ("run", "grid", "study", "status")
SHOWN_METRICS = 6


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        raise RunError(f"{message} (see python -m truthfirst.runs --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m truthfirst.runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{NOTEBOOK,grid,study,status}")
    run = commands.add_parser("run", help="one run; the word may be left out")
    run.add_argument("notebook", help="a path, or a name under notebooks/")
    run.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE")
    grid = commands.add_parser("grid", help="the runs of a grid file")
    grid.add_argument("file", type=Path)
    grid.add_argument("--workers", type=int, help="processes; the grid's own number when absent")
    study = commands.add_parser("study", help="every numbered notebook under notebooks/")
    study.add_argument("--preset", default="cpu", help=f"one of {', '.join(PRESETS)}")
    study.add_argument("--workers", type=int, default=1, help="notebooks at once")
    for command in (run, grid, study):
        command.add_argument("--redo", action="store_true", help="do finished runs again")
    commands.add_parser("status", help="a table of the runs")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in COMMANDS and not words[0].startswith("-"):
        words.insert(0, "run")
    try:
        with terminable():
            return _dispatch(_parser().parse_args(words))
    except (RunError, UnknownPreset, SeedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {describe(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED


def _dispatch(options: argparse.Namespace) -> int:
    if options.command == "status":
        return _status()
    code = code_hash()
    if options.command == "run":
        plan = plan_run(options.notebook, parse_assignments(options.parameter), code)
        return _report([execute(plan, redo=options.redo, progress=sys.stderr.isatty())])
    if options.command == "grid":
        grid = read_grid(options.file)
        plans = [plan_run(grid.notebook, cell, code) for cell in grid.cells]
        workers = grid.workers if options.workers is None else options.workers
    else:
        notebooks = study_notebooks()
        if not notebooks:
            raise RunError(f"no numbered notebook in {_short(paths.NOTEBOOKS)}")
        plans = [plan_run(path, {"preset": options.preset}, code) for path in notebooks]
        workers = options.workers
    if workers < 1:
        raise RunError(f"--workers {workers}: expected an integer of at least 1")
    plans = list({plan.run_id: plan for plan in plans}.values())
    return _report(_with_bar(plans, workers, options.redo))


def _with_bar(plans: Sequence[Plan], workers: int, redo: bool) -> list[Outcome]:
    """Do the runs under a progress bar and return their outcomes in the order of the plans."""
    outcomes: dict[str, Outcome] = {}
    with (
        closing(execute_all(plans, workers=workers, redo=redo)) as ended,
        tqdm(total=len(plans), unit="run") as bar,
        _ticking(bar),
    ):
        bar.set_description(plans[0].notebook.stem)
        for outcome in ended:
            outcomes[outcome.plan.run_id] = outcome
            if outcome.state == "broken":
                bar.write(f"{outcome.plan.run_id}: {outcome.reason}", file=sys.stderr)
            waiting = [plan for plan in plans if plan.run_id not in outcomes]
            bar.set_description(waiting[0].notebook.stem if waiting else "done", refresh=False)
            bar.update()
    return [outcomes[plan.run_id] for plan in plans]


@contextmanager
def _ticking(bar: tqdm[NoReturn]) -> Iterator[None]:
    """Redraw the bar every second on a terminal, so that a long notebook does not look stuck."""
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(1):
            bar.refresh()

    thread = threading.Thread(target=tick, daemon=True)
    if sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        stop.set()


# --- tables -----------------------------------------------------------------------------------------------
def _report(outcomes: Sequence[Outcome]) -> int:
    """Print what each run found and where it is; return the exit code."""
    rows = []
    same = len({outcome.plan.notebook for outcome in outcomes}) < len(
        outcomes
    )  # a grid: tell its cells apart
    for outcome in outcomes:
        run = read_run(outcome.plan.folder)
        took = "" if run.seconds is None else f"{run.seconds:.0f} s"
        state = {"skipped": "finished before", "running": "runs elsewhere"}.get(outcome.state, outcome.state)
        found = outcome.reason or _found(run.metrics)
        where = [f"{_short(run.folder)}/", *_figure_lines(run)]
        if run.kept:
            found += f"\n{run.kept}"
        if run.library_changed:
            found += "\nthe code was edited meanwhile: this run will be done again"
        given = [f"{name}={value}" for name, value in outcome.plan.given.items()] if same else []
        first = [outcome.plan.notebook.stem, *given, f"{state} {took}".strip()]
        rows.append(("\n".join(first), found, "\n".join(where)))
    print(table(("notebook", "found", "where"), rows))
    broken = sum(outcome.state == "broken" for outcome in outcomes)
    if broken:
        print(f"{broken} of {len(outcomes)} runs broken; log.txt and partial.ipynb in each folder say more")
    return 1 if broken else 0


def _status() -> int:
    rows = []
    for run in list_runs():
        took = "" if run.seconds is None else f"{run.seconds:.0f} s"
        note = run.reason or _found(run.metrics)
        if run.library_changed:
            note += "\nthe code was edited meanwhile"
        rows.append((run.run_id, run.state, (run.started or "")[:16].replace("T", " "), took, note))
    if not rows:
        print(f"no runs in {_short(paths.RUNS)}/ yet: make study")
        return 0
    print(table(("run", "state", "started, UTC", "took", "found"), rows))
    return 0


def _found(metrics: dict[str, Any]) -> str:
    """Return the first metrics as lines; numbers to four digits, `-` for a missing one."""
    lines = []
    for name, value in metrics.items():
        if value is None:
            lines.append(f"{name} = -")
        elif isinstance(value, float):
            lines.append(f"{name} = {value:.4g}")
        elif isinstance(value, (bool, int, str)):
            lines.append(f"{name} = {value}")
    more = len(metrics) - min(len(lines), SHOWN_METRICS)
    return "\n".join(lines[:SHOWN_METRICS] + ([f"and {more} more in metrics.json"] if more else []))


def _figure_lines(run: RunRecord) -> list[str]:
    """Return the figures that a run published, those that another run has published over since, and those it kept."""
    now_there = drawn_by(run.run_id)
    lines = [f"{_short(paths.FIGURES)}/{name}.png" for name in now_there]
    lines += [f"{name}.png is another run's now (--redo)" for name in run.figures if name not in now_there]
    drawn = sorted(path.stem for path in (run.folder / FIGURE_FOLDER).glob("*.png"))
    return lines + [f"there: {FIGURE_FOLDER}/{name}.png" for name in drawn if name not in run.figures]


def _short(path: Path) -> str:
    """Return a path below the working directory or the repository without that beginning."""
    for start in (Path.cwd(), paths.HOME):
        if path.is_relative_to(start):
            return path.relative_to(start).as_posix()
    return os.fspath(path)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table; cells may have several lines, and only the column `found` is wrapped to fit."""
    cells = [[cell.splitlines() or [""] for cell in row] for row in rows]
    widths = [
        max([len(header), *(len(line) for row in cells for line in row[column])])
        for column, header in enumerate(headers)
    ]
    column = headers.index("found")
    others = sum(widths) - widths[column] + 2 * (len(widths) - 1)
    widths[column] = min(widths[column], max(40, shutil.get_terminal_size((120, 24)).columns - others))
    for row in cells:
        row[column] = [piece for line in row[column] for piece in textwrap.wrap(line, widths[column]) or [""]]
    lines = [
        "  ".join(h.ljust(w) for h, w in zip(headers, widths, strict=True)).rstrip(),
        "  ".join("-" * width for width in widths),
    ]
    for row in cells:
        for index in range(max(len(cell) for cell in row)):
            pieces = [cell[index] if index < len(cell) else "" for cell in row]
            lines.append("  ".join(p.ljust(w) for p, w in zip(pieces, widths, strict=True)).rstrip())
    return "\n".join(lines)
