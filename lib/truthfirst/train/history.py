"""The metrics of a run as one parquet file: a row for each logged step, whole at every moment.

The file is rewritten beside itself and renamed at each log, so that a kill leaves the rows of the last log. When a run
resumes from a checkpoint, rows of later steps are dropped: those steps are taken again. A metric that a step does not
have is null.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import ProgressCallback, TrainerCallback

from ..records import RecordError, write_parquet

FILE = "metrics.parquet"


def read_history(folder: Path) -> pd.DataFrame:
    """Return the metrics of the run in `folder`, one row a logged step; empty where nothing has been logged."""
    path = Path(folder) / FILE
    if not path.exists():
        return pd.DataFrame({"step": pd.Series(dtype="int64")})
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: not a parquet file of metrics ({error}); remove it") from error


class History(TrainerCallback):
    """Keeps the file; `constants` are columns that hold the same value in every row, such as the seed."""

    def __init__(self, folder: Path, constants: dict[str, Any] | None = None) -> None:
        self.folder, self.constants = Path(folder), dict(constants or {})
        self.rows: list[dict[str, Any]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take up the rows of the steps that a resumed run has behind it."""
        kept = read_history(self.folder)
        kept = kept[kept["step"] <= state.global_step] if state.global_step else kept.iloc[:0]
        self.rows = [{str(name): value for name, value in row.items()} for row in kept.to_dict("records")]

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Add a row and write the file."""
        if not logs or "loss" not in logs or not state.is_world_process_zero:
            return
        row: dict[str, Any] = {"step": int(state.global_step), **self.constants}
        for name, value in logs.items():
            number = float(value) if isinstance(value, int | float) else math.nan
            row[name] = number if math.isfinite(number) else None
        self.rows.append(row)
        write_parquet(self.folder / FILE, pd.DataFrame(self.rows))


class Progress(ProgressCallback):
    """A progress bar that shows the mean score by form, where transformers would print every metric."""

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        scores = {name: value for name, value in (logs or {}).items() if name.startswith("score/")}
        shown = {name[6:]: f"{value:.2f}" for name, value in scores.items() if name.count("/") == 1}
        if self.training_bar is not None and shown:
            self.training_bar.set_postfix(shown)
