"""An adaptive curriculum: instances grow when the policy has learned the present ones.

Rows of the data carry a level, 0 the smallest size. Every generation draws its groups among the rows of the present
level; when the mean score of the last `WINDOW` generations there reaches the threshold, the level rises by one. The
substrate of the source evolves in the same way: what is solved makes room for what is not.

The level is a function of the scores so far, which stand in the metrics of the run: a resumed run is at the level at
which an unbroken one would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ..streams import stream
from .history import read_history
from .plan import PlanError

WINDOW = 3  # generations whose mean score is compared with the threshold
COLUMN = "curriculum/score"


def level_after(scores: Sequence[float], threshold: float, top: int) -> int:
    """Return the level that a run has reached after generations with these mean scores; `top` is the highest."""
    level, here = 0, list[float]()
    for score in scores:
        here.append(score)
        if level < top and len(here) >= WINDOW and sum(here[-WINDOW:]) / WINDOW >= threshold:
            level, here = level + 1, []
    return level


class Curriculum(TrainerCallback):
    """Which rows a generation plays; a callback, since a resumed run takes its scores from the metrics in `folder`."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], threshold: float, seed: int, folder: Path) -> None:
        levels = sorted({row.get("level", -1) for row in rows})
        if levels != list(range(len(levels))):
            raise PlanError(
                f"curriculum = {threshold}: rows need a level, 0 to the number of sizes less one, and have {levels}; "
                "make the tasks of several sizes, or set curriculum to 0"
            )
        self.rows = [[dict(row) for row in rows if row["level"] == level] for level in levels]
        self.threshold, self.seed, self.folder = threshold, seed, folder
        self.scores: list[float] = []

    @property
    def level(self) -> int:
        return level_after(self.scores, self.threshold, len(self.rows) - 1)

    def draw(self, groups: int, group_size: int, address: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows of a generation, each `group_size` times; the draw depends on seed, address and level."""
        rows = self.rows[self.level]
        chosen = stream(self.seed, "curriculum", *address).integers(0, len(rows), groups)
        return [dict(rows[int(i)]) for i in chosen for _ in range(group_size)]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take up the scores of the steps that a resumed run has behind it."""
        kept = read_history(self.folder)
        known = COLUMN in kept and state.global_step
        self.scores = kept[kept["step"] <= state.global_step][COLUMN].dropna().tolist() if known else []
