"""What studies of training share: a cell's folder while it is worked on, and the stored tables that it adds rows to.

A cell is one trained policy, stated by a frozen dataclass with study, arm, seed, plan and an `id`. Its folder under
WORK keeps checkpoints, so that a broken run goes on; its rows in data/results/ are found again by the column `run`.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from filelock import FileLock

from .. import paths
from ..records import RecordError, write_atomic, write_parquet
from ..train.plan import Plan

CHECKPOINTS = paths.HOME / "data" / "checkpoints"
WORK = paths.OUTPUT / "data" / "training"  # of finished and unfinished cells; not in the repository
FINISHED = "finished.json"


class Cell(Protocol):
    """What every cell states."""

    @property
    def id(self) -> str: ...
    @property
    def study(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def base(self) -> str: ...
    @property
    def plan(self) -> Plan: ...


def check(arm: str, arms: Iterable[str], *given: tuple[Mapping[str, Any], type]) -> None:
    """Raise ValueError that names an arm, or a field of one of the dataclasses given, that does not exist."""
    if arm not in arms:
        raise ValueError(f"unknown arm {arm!r}: choose one of {', '.join(arms)}")
    for names, known in given:
        fields = {field.name for field in dataclasses.fields(known)}
        if unknown := sorted(set(names) - fields):
            raise ValueError(
                f"there is no {unknown[0]!r} in {known.__name__}: choose among {', '.join(sorted(fields))}"
            )


# --- a cell's folder --------------------------------------------------------------------------------------
def begin(cell: Any, folder: Path) -> bool:
    """State the cell in its folder; return whether it has yet to be run."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "cell.json", json.dumps(dataclasses.asdict(cell), indent=2, default=dict))
    return not (folder / FINISHED).exists()


def train(trainer: Any, folder: Path) -> float:
    """Train, or go on from the last checkpoint, and keep the policy under `folder`; return the seconds it took."""
    from ..train import run  # TRL loads slowly

    began = time.perf_counter()
    run.train(trainer, resume=True)
    seconds = time.perf_counter() - began
    trainer.model.save_pretrained(folder / "policy")
    trainer.processing_class.save_pretrained(folder / "policy")
    return seconds


def finish(folder: Path, seconds: float, **tables: pd.DataFrame) -> None:
    """Keep what a cell has measured; from now on it is finished."""
    for name, table in tables.items():
        write_parquet(folder / f"{name}.parquet", table)
    write_atomic(folder / FINISHED, json.dumps({"seconds": seconds}))


def finished(folder: Path, *tables: str) -> tuple[float, dict[str, pd.DataFrame]]:
    """Return the seconds of training and the tables of a finished cell."""
    seconds = json.loads((folder / FINISHED).read_text(encoding="utf-8"))["seconds"]
    return seconds, {name: pd.read_parquet(folder / f"{name}.parquet") for name in tables}


def obtain(cell: Cell, table: str, run: Callable[[Path], None], *, again: bool = False) -> bool:
    """Run a cell in its folder, unless `table` holds it; return whether it was run. `again` forgets what was begun."""
    folder = WORK / cell.id
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    elif cell.id in set(stored(table).get("run", ())):
        return False
    run(folder)
    return True


# --- stored tables ----------------------------------------------------------------------------------------
def stored(name: str) -> pd.DataFrame:
    """Return a stored table; empty, with no columns, where nothing has been stored. RecordError where it is damaged."""
    path = paths.STORED / f"{name}.parquet"
    if not path.exists():
        return pd.DataFrame()
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path.name} is damaged ({' '.join(str(error).split())[:80]}): restore it from the repository, or remove "
            "it and run its study again"
        ) from error


def add_rows(name: str, fresh: pd.DataFrame, folder: Path | None = None) -> None:
    """Add rows to a stored table, in the place of those of the same runs."""
    path = (folder or paths.RESULTS) / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # cells of a grid finish side by side
        if path.exists():
            old = pd.read_parquet(path)
            fresh = pd.concat([old[~old["run"].isin(set(fresh["run"]))], fresh], ignore_index=True)
        write_parquet(path, fresh)


def rows_of(cell: Cell, name: str) -> pd.DataFrame:
    """Return the rows of one cell in a stored table."""
    table = stored(name)
    return table[table["run"] == cell.id] if len(table) else table


def labels(cell: Cell) -> dict[str, Any]:
    """Return the columns that say which run a stored row belongs to, and those of its plan that arms differ in."""
    return {
        "run": cell.id,
        "study": cell.study,
        "arm": cell.arm,
        "seed": cell.seed,
        "base": cell.base,
        "loss_kind": cell.plan.loss,
        "credit": cell.plan.credit,
        "baseline": cell.plan.baseline,
    }


def with_samples(history: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Return the metrics of a run with the column samples: episodes that were drawn by each step."""
    return history.assign(samples=-(-history["step"] // plan.updates) * plan.rollouts)
