"""The hidden suite of training-run forensics: what must cost each component, and plausible answers that must fail."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

from ...tables import Table, decode, encode
from ...world import INPUT, OUTPUT, Files, Sealed
from .reference import run_stage
from .world import Run

_SHIFTED = str.maketrans("0123456789", "1234567890")


def causes(outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return for each component the outputs with its cause spoilt."""
    divergence = json.loads(outputs[f"{OUTPUT}divergence.json"])
    divergence["cause_layer"] += "s"
    spoilt = {
        component: _with(outputs, name, lambda table, column=column: _last_cell(table, column))  # type: ignore[misc]
        for component, name, column in (
            ("profile", "logs.csv", "points"),
            ("lineage", "lineage.csv", "last_step"),
            ("repairs", "repairs.csv", "step"),
            ("settings", "settings.csv", "first_step"),
            ("curve", "curve.csv", "tokens"),
            ("waste", "waste.tsv", "kept"),
            ("phases", "phases.tsv", "tokens"),
        )
    }
    spoilt["divergence"] = {**outputs, f"{OUTPUT}divergence.json": json.dumps(divergence).encode()}
    spoilt["package"] = {**outputs, f"{OUTPUT}plot.svg": b"<svg/>\n"}
    return spoilt


def _with(outputs: Files, name: str, edit: Callable[[Table], Table]) -> dict[str, bytes]:
    path = OUTPUT + name
    return {**outputs, path: encode(edit(decode(outputs[path], path)), path)}


def _last_cell(table: Table, column: str) -> Table:
    """Return a table with other digits in the last cell of a column."""
    place, last = table.column(column), list(table.rows[-1])
    last[place] = str(last[place]).translate(_SHIFTED)
    return Table(table.columns, (*table.rows[:-1], tuple(last)))


def counterfactuals(sealed: Sealed, files: Files, outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return answers of somebody who skipped one rule; each must fail.

    The first ones redo a stage with an input that is as that person takes it to be, the others spoil what was found.
    """
    world: Run = sealed.world
    run = json.loads(files[f"{INPUT}run.json"])
    layouts = json.loads(files[f"{INPUT}layouts.json"])
    for layout in layouts.values():
        layout["loss"] = "mean"
    blamed = json.dumps(run | {"inert": []}).encode()
    none = Table(decode(files[f"{INPUT}changes.tsv"], "changes.tsv").columns, ())
    path = f"{OUTPUT}divergence.json"
    divergence = json.loads(outputs[path])
    repairs = decode(outputs[f"{OUTPUT}repairs.csv"], "repairs.csv")
    restored = {row[1:] for row in repairs.rows if row[0] == "restored"}
    sums = json.dumps(layouts).encode()
    ended = json.dumps(run | {"final_job": _last_launched(world)}).encode()
    found = {
        "sums read as means": _redone("stitch-curve", files, outputs, "layouts.json", sums),
        "changes not seen": _redone(
            "resolve-settings", files, outputs, "changes.tsv", encode(none, "changes.tsv")
        ),
        "inert settings blamed": _redone("find-divergence", files, outputs, "run.json", blamed),
        "last launch taken for the end": _redone("trace-lineage", files, outputs, "run.json", ended),
        "lost points left out": _with(
            outputs,
            "curve.csv",
            lambda table: Table(
                table.columns, tuple(row for row in table.rows if (row[1], row[0]) not in restored)
            ),
        ),
        "earlier report copied": {**outputs, path: files[f"{INPUT}cache/divergence.json"]},
        "first spike taken for the onset": _told(
            outputs, path, divergence | {"onset_step": _first_spike(outputs)}
        ),
        "cause put at the onset": _told(outputs, path, divergence | {"cause_step": divergence["onset_step"]}),
    }
    return {name: changed for name, changed in found.items() if changed != outputs}


def _redone(stage: str, files: Files, outputs: Files, name: str, data: bytes) -> dict[str, bytes]:
    """Return the outputs with a stage done again on inputs of which one file is another one."""
    return {**outputs, **run_stage(stage, {**files, **outputs, INPUT + name: data})}


def _told(outputs: Files, path: str, value: object) -> dict[str, bytes]:
    return {**outputs, path: (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()}


def _first_spike(outputs: Files) -> int:
    """Return the first step at which the loss is a fifth above that of the point before."""
    curve = decode(outputs[f"{OUTPUT}curve.csv"], "curve.csv").rows
    pairs = itertools.pairwise((int(str(row[0])), float(str(row[3]))) for row in curve)
    return next(step for (_, before), (step, loss) in pairs if loss > 1.2 * before)


def _last_launched(world: Run) -> str:
    return max(world.jobs, key=lambda job: job.launched).id
