"""Training in the world-first wing as an experiment: what credit for progress adds to a verdict at the end.

One cell is the tiny policy of `train/world_base.py` trained on some instances of one generator, and measured on others
before and after. The trainer is that of wing one. Reward of a rollout and credit, by arm:

    terminal         1[pass], one advantage for the whole rollout
    return           R = 1[pass] + Phi(s_T) / 4, one advantage for the whole rollout
    progress         the same R told turn by turn: return-to-go of Phi(s_t) - Phi(s_(t-1)), mean over the group by turn
    pooled           as progress, with one mean over all turns of the group (ablation)
    direct-additive  as return, plus what has been achieved by the end of each turn (ablation)

A study is a grid of cells, each a run of notebooks/worlds_cell.ipynb: `make study GRID=data/grids/worlds.yaml`.
All arms draw equally many episodes of the same instances. The metrics of a run have phi, passed and shares of groups
without variance by step (`train/world_trainer.py`); `frac_reward_zero_std` is for the reward that the arm trains on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..records import content_hash
from ..train.checks import load_policy
from ..train.environments import TaskSet, task_set
from ..train.evaluate import policy
from ..train.history import read_history
from ..train.kept_shell import KeptShell
from ..train.plan import Plan
from ..train.world_base import HELD_OUT, KIND, NAME, STEPS_FILE, evaluate
from ..train.world_lines import CALLS, GENERATOR, TIER, LineEnvironment, line_environment
from . import cells
from .cells import CHECKPOINTS, add_rows

ARMS: dict[str, tuple[dict[str, Any], Any]] = {  # arm -> fields of the plan, what an episode's score is
    "terminal": ({"credit": "outcome"}, "pass"),
    "return": ({"credit": "outcome"}, "return"),
    "progress": ({"credit": "progress"}, "return"),
    "pooled": ({"credit": "progress", "baseline": "pooled"}, "return"),
    "direct-additive": ({"credit": "direct-additive"}, "return"),
}
TRAINING, SCORES = "worlds_training", "worlds_scores"


@dataclass(frozen=True, slots=True)
class WorldCell:
    """One training run of a study.

    study, arm   names under which the run is stored and drawn; the arm is one of ARMS
    base         name of the checkpoint it starts from
    instances    training instances, seeds 0, 1, ...
    held_out     test instances; episodes: of each of them, before and after
    calls        budget of an episode
    plan         how to train; its seed is the cell's
    """

    study: str = "worlds"
    arm: str = "progress"
    seed: int = 0
    base: str = NAME
    instances: int = 24
    held_out: int = 16
    episodes: int = 4
    calls: int = CALLS
    plan: Plan = dataclasses.field(default_factory=Plan)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", dataclasses.replace(self.plan, seed=self.seed))

    @property
    def id(self) -> str:
        """Readable name with a hash of everything that the run depends on."""
        usual = asdict(Plan())
        plan = {name: value for name, value in asdict(self.plan).items() if value != usual[name]}
        return f"{self.study}-{self.arm}-{self.seed}-{content_hash(asdict(self) | {'plan': plan}, 8)}"


@dataclass(frozen=True)
class Result:
    """What a finished cell leaves behind: metrics by step, held-out episodes, seconds of training."""

    cell: WorldCell
    history: pd.DataFrame
    scores: pd.DataFrame
    seconds: float


def world_cell(
    arm: str = "progress", *, seed: int = 0, plan: Mapping[str, Any] | None = None, **options: Any
) -> WorldCell:
    """Return the cell that a grid names: an arm, fields of `WorldCell`, and fields of the plan beside its credit.

    Raises ValueError that names what does not exist.
    """
    cells.check(arm, ARMS, (plan or {}, Plan), (options, WorldCell))
    return WorldCell(arm=arm, seed=seed, plan=Plan(**{**ARMS[arm][0], **(plan or {})}), **options)


def environments(cell: WorldCell, shell: KeptShell) -> tuple[TaskSet, list[LineEnvironment]]:
    """Return what a cell trains on, and the held-out environments."""
    opened = functools.partial(line_environment, shell=shell, scoring=ARMS[cell.arm][1], calls=cell.calls)
    tasks = task_set(
        [(str(seed), GENERATOR) for seed in range(cell.instances)],
        [KIND],
        lambda key: opened(int(key)),
        cache=cell.instances,
    )
    return tasks, [opened(HELD_OUT + number) for number in range(cell.held_out)]


def run_cell(
    cell: WorldCell, folder: Path, *, checkpoints: Path = CHECKPOINTS, steps_file: Path = STEPS_FILE
) -> Result:
    """Train and measure one cell; a broken run goes on from its last checkpoint, a finished one is read back."""
    if cells.begin(cell, folder):
        from ..train.world_trainer import WorldTrainer  # TRL loads slowly

        model, tokenizer = load_policy(str(checkpoints / cell.base))
        shell = KeptShell(steps_file)
        tasks, worlds = environments(cell, shell)
        before = evaluate(policy(model, tokenizer, "base", seed=cell.seed), worlds, cell.episodes)
        trainer = WorldTrainer(model, tokenizer, tasks, cell.plan, folder / "steps", shell=shell)
        seconds = cells.train(trainer, folder)
        player = policy(model.eval(), tokenizer, "trained", seed=cell.seed)
        after = evaluate(player, worlds, cell.episodes)
        cells.finish(folder, seconds, scores=pd.concat([before, after], ignore_index=True))
    seconds, tables = cells.finished(folder, "scores")
    return Result(cell, read_history(folder / "steps"), **tables, seconds=seconds)


# --- stored results ---------------------------------------------------------------------------------------
def labels(cell: WorldCell) -> dict[str, Any]:
    """Return the columns that say which run a stored row belongs to."""
    return cells.labels(cell) | {
        "generator": GENERATOR,
        "tier": TIER,
        "instances": cell.instances,
        "group_size": cell.plan.group_size,
        "scoring": ARMS[cell.arm][1],
    }


def store(result: Result, folder: Path | None = None) -> None:
    """Add the rows of a finished run to the stored results, in the place of earlier rows of the same run.

    The metrics get the column samples: episodes that were drawn by then.
    """
    cell = result.cell
    history = cells.with_samples(result.history, cell.plan)
    add_rows(TRAINING, history.assign(**labels(cell), seconds_total=result.seconds), folder)
    add_rows(SCORES, result.scores.assign(**labels(cell)), folder)


def obtain(cell: WorldCell, *, again: bool = False, steps_file: Path = STEPS_FILE) -> bool:
    """Train, measure and store a cell; return False where it is stored already. `again` forgets what was begun."""
    return cells.obtain(
        cell, TRAINING, lambda folder: store(run_cell(cell, folder, steps_file=steps_file)), again=again
    )


def before_and_after(scores: pd.DataFrame) -> pd.DataFrame:
    """Return mean Phi, pass rate and share of episodes that looked first, by arm, seed and policy."""
    found = scores.groupby(["arm", "seed", "policy"], sort=False).agg(
        phi=("phi", "mean"), passed=("passed", "mean"), looked=("looked", "mean"), episodes=("phi", "size")
    )
    return found.reset_index()
