"""Grid cells: what a user has just run, from the stored training rows and from the papermill runs of this checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..runs import RunError, RunRecord, read_json
from .blocks import Block, Paragraph, table_of
from .findings_policies import AGENTIC
from .stored import Frames
from .words import plural, small

WORDS = 400  # letters of one cell; the run's folder has the rest


def training_cells(frames: Frames) -> pd.DataFrame:
    """Return one row a stored training run: study, arm, seed, size, episodes and score by form, base and trained."""
    history, scores = frames("training"), frames("training_scores")
    if history is None or scores is None:
        return pd.DataFrame()
    means = scores.pivot_table(index="run", columns=["form", "policy"], values="reward", aggfunc="mean")
    counts = scores[scores["policy"] == "trained"].groupby("run")["environment"].nunique()
    out = []
    for run, rows in history.groupby("run", sort=False):
        first = rows.iloc[0]
        row: dict[str, Any] = {name: first[name] for name in ("study", "arm", "size")}
        row["trained on"] = _trained_on(first)
        row |= {
            "seed": str(first["seed"]),
            "steps": int(rows["step"].max()),
            "episodes": int(rows["samples"].max()),
        }
        for form in "FIA":
            row[form] = " to ".join(_mean(means, run, form, policy) for policy in ("base", "trained"))
        out.append(row | {"n": int(counts.get(run, 0)), "run": run})
    return pd.DataFrame(out).sort_values(["study", "size", "arm", "seed"], kind="stable", ignore_index=True)


def _trained_on(run: Any) -> str:
    """Say families and forms of a run, and what else it was restricted to or led through."""
    said = f"{run['families_trained'].replace('_', ' ').replace('+', ', ')} in {run['trained_forms']}"
    if run["growing"]:
        said += f"; from {run['growing'].replace('+', ' to ')}"
    if pd.notna(run["instances"]):
        said += f"; {int(run['instances'])} instances of each"
    if pd.notna(run["domain"]):
        said += f"; domain {run['domain']}"
    return said


def _mean(means: pd.DataFrame, run: Any, form: str, policy: str) -> str:
    if run not in means.index or (form, policy) not in means.columns:
        return "-"
    value = means.loc[run, (form, policy)]
    return "-" if pd.isna(value) else f"{value:.2f}"


def notebook_runs(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return one row a finished run: notebook, the parameters that it was given, and the metrics it recorded."""
    rows = [
        {
            "notebook": _notebook(run.folder),
            "parameters": _given(run),
            "metrics": told(run.metrics),
            "run": run.run_id,
        }
        for run in records
        if run.state == "finished"
    ]
    columns = ["notebook", "parameters", "metrics", "run"]
    return pd.DataFrame(rows, columns=columns).sort_values(["notebook", "run"], ignore_index=True)


def _notebook(folder: Path) -> str:
    return folder.name.split("-")[0]


def _given(run: RunRecord) -> str:
    """Return all parameters of a run, in the notebook's order."""
    try:
        return told(read_json(run.folder / "parameters.json"))
    except RunError:
        return "-"


def told(values: dict[str, Any]) -> str:
    """Return values as `name = value`, comma separated; floats to three digits, lists as such, cut to WORDS."""
    text = ", ".join(f"{name} = {_plain(value)}" for name, value in values.items())
    return text if len(text) <= WORDS else text[: text.rindex(",", 0, WORDS)] + ", ..."


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return small(float(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_plain(part)}" for name, part in value.items()) + "}"
    return str(value)


def grid_blocks(frames: Frames, records: Sequence[RunRecord]) -> tuple[Block, ...]:
    """Return the tables of grid cells: stored training runs, finished papermill runs, and how many are unfinished."""
    blocks: list[Block] = []
    cells = training_cells(frames)
    if len(cells):
        blocks.append(
            table_of(
                f"Training runs: score by form, base to trained (form {AGENTIC} is the agentic one)", cells
            )
        )
    else:
        said = "No training run is stored yet: make study GRID=data/grids/training.yaml"
        blocks.append(Paragraph(said, missing=True))
    runs = notebook_runs(records)
    if len(runs):
        blocks.append(table_of("Finished papermill runs of this checkout", runs))
    else:
        said = "No papermill run is finished here: make study GRID=data/grids/comparisons.yaml"
        blocks.append(Paragraph(said, missing=True))
    if open_ := [run for run in records if run.state != "finished"]:
        said = f"{plural(len(open_), 'run')} running or broken: python -m truthfirst.runs status"
        blocks.append(Paragraph(said, missing=True))
    return tuple(blocks)
