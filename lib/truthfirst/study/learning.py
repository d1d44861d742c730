"""Training as an experiment: one cell is a policy trained from the base, and measured before and after.

    cell = Cell(arm="outcome", seed=0)
    result = run_cell(cell, folder)            # resumable; folder keeps checkpoints, metrics and the trained policy
    store(result)                              # adds its rows to data/results/

Everything held out comes from the test stream, everything trained on from the train stream beyond what the base has
seen. Base and trained policy play the same instances with the same draws, so that differences are paired.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .. import paths
from ..core_yaml import load_yaml
from ..records import canonical_json, content_hash, write_atomic, write_parquet
from ..solvefirst.families import FAMILIES, role
from ..train.base import TRAINED, UNTOUCHED
from ..train.checks import load_policy
from ..train.environments import TaskSet, task_set
from ..train.evaluate import evaluate, instances, policy
from ..train.history import read_history
from ..train.plan import Plan
from ..types import Form
from .divergence import divergence_frame

CHECKPOINTS = paths.HOME / "data" / "checkpoints"
WORK = (
    paths.OUTPUT / "data" / "training"
)  # checkpoints of unfinished and finished cells; not in the repository
MAIN, TRANSFER = (
    "learning",
    "training_transfer",
)  # the main study, and the table of what it does to other families
STEPS = 120  # optimizer steps of the stored main study
ARMS: dict[str, tuple[Any, Any]] = {  # arm -> credit, baseline
    "outcome": ("outcome", "turn"),
    "progress": ("progress", "turn"),
    "regret": ("regret", "turn"),
    "regret, solver baseline": ("regret", "solver"),
    "regret and probe credit": ("regret+credit", "turn"),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One training run of a study.

    study, arm   names under which the run is stored and drawn
    base         name of the checkpoint it starts from
    families     trained on, at `size` and in `forms`; every group is one instance
    held_out     test instances of each family, for the scores before and after
    plan         how to train; its seed is the cell's
    """

    study: str = MAIN
    arm: str = "outcome"
    seed: int = 0
    base: str = "tiny-base"
    families: tuple[str, ...] = TRAINED
    size: str = "nano"
    forms: tuple[str, ...] = ("A", "I")
    held_out: int = 100
    plan: Plan = dataclasses.field(default_factory=Plan)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", dataclasses.replace(self.plan, seed=self.seed))

    @property
    def id(self) -> str:
        """Readable name with a hash of everything that the run depends on."""
        stated = asdict(self) | {"plan": asdict(self.plan) | {"options": dict(self.plan.options)}}
        return f"{self.study}-{self.arm}-{self.seed}-{content_hash(stated, 8)}"


@dataclass(frozen=True)
class Result:
    """What a finished cell leaves behind: metrics by step, held-out episodes, and divergence by token."""

    cell: Cell
    history: pd.DataFrame
    scores: pd.DataFrame
    divergence: pd.DataFrame
    seconds: float


def tasks_of(cell: Cell) -> TaskSet:
    """Return the rows that a cell trains on: as many different instances as the plan has groups."""
    wanted = -(-cell.plan.generations * cell.plan.groups // (len(cell.families) * len(cell.forms)))
    worlds = {
        canonical_json(world.recipe): world
        for world in instances(
            cell.families, cell.size, wanted, split="train", seed=cell.seed, first=UNTOUCHED
        )
    }
    keys = [(key, world.family_name) for key, world in worlds.items()]
    return task_set(keys, cell.forms, worlds.__getitem__, cache=len(keys))


def run_cell(cell: Cell, folder: Path, *, checkpoints: Path = CHECKPOINTS) -> Result:
    """Train and measure one cell; a broken run goes on from its last checkpoint, a finished one is read back."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "cell.json", json.dumps(asdict(cell), indent=2, default=dict).encode())
    finished = folder / "finished.json"
    if not finished.exists():
        from ..train.grpo import Trainer  # TRL loads slowly
        from ..train.run import train

        base = str(checkpoints / cell.base)
        model, tokenizer = load_policy(base)
        worlds = instances(cell.families, cell.size, cell.held_out)
        before = evaluate(policy(model, tokenizer, "base", seed=cell.seed), worlds)
        began = time.perf_counter()
        trainer = Trainer(model, tokenizer, tasks_of(cell), cell.plan, folder / "steps")
        train(trainer, resume=True)
        seconds = time.perf_counter() - began
        model.save_pretrained(folder / "policy")
        tokenizer.save_pretrained(folder / "policy")
        player = policy(model.eval(), tokenizer, "trained", seed=cell.seed)
        after = evaluate(player, worlds)
        origin, _ = load_policy(base)
        moved = divergence_frame(player, origin.eval(), worlds[:: max(1, len(worlds) // 60)])
        write_parquet(folder / "scores.parquet", pd.concat([before, after], ignore_index=True))
        write_parquet(folder / "divergence.parquet", moved)
        write_atomic(finished, json.dumps({"seconds": seconds}).encode())
    scores, moved = (pd.read_parquet(folder / f"{name}.parquet") for name in ("scores", "divergence"))
    seconds = json.loads(finished.read_text(encoding="utf-8"))["seconds"]
    return Result(cell, read_history(folder / "steps"), scores, moved, seconds)


# --- stored results ---------------------------------------------------------------------------------------
def labels(cell: Cell) -> dict[str, Any]:
    """Return the columns that say which run a stored row belongs to."""
    plan = cell.plan
    return {
        "run": cell.id,
        "study": cell.study,
        "arm": cell.arm,
        "seed": cell.seed,
        "base": cell.base,
        "size": cell.size,
        "trained_forms": "".join(cell.forms),
        "loss_kind": plan.loss,
        "credit": plan.credit,
        "baseline": plan.baseline,
    }


def history_rows(result: Result) -> pd.DataFrame:
    """Return the metrics of a run, a row a step; `samples` counts the episodes that were drawn by then."""
    frame = result.history.copy()
    drawn = result.cell.plan.rollouts
    frame["samples"] = [(-(-int(step) // result.cell.plan.updates)) * drawn for step in frame["step"]]
    return frame.assign(**labels(result.cell), seconds_total=result.seconds)


def score_rows(result: Result) -> pd.DataFrame:
    """Return the held-out episodes of base and trained policy with the role of each family."""
    frame = result.scores.assign(**labels(result.cell))
    return frame.assign(role=[role(name) for name in frame["family"]])


def divergence_rows(result: Result) -> pd.DataFrame:
    """Return the divergence by family, form and turn: mean nats a token, tokens and episodes."""
    keys = ["family", "form", "turn"]
    frame = result.divergence.groupby(keys).agg(
        kl=("kl", "mean"), tokens=("kl", "size"), episodes=("environment", "nunique")
    )
    return frame.reset_index().assign(**labels(result.cell))


def stored(name: str) -> pd.DataFrame:
    """Return a stored table of FILES; empty, with no columns, where nothing has been stored."""
    path = paths.STORED / f"{name}.parquet"
    return pd.read_parquet(path) if path.exists() else pd.DataFrame()


def transfer(cell: Cell, folder: Path, number: int = 30, *, checkpoints: Path = CHECKPOINTS) -> pd.DataFrame:
    """Return held-out episodes of base and trained policy of a finished cell on the families it did not train on.

    number   instances of each family, played in the forms F and A with the same draws by both policies
    """
    others = [name for name in FAMILIES if name not in cell.families]
    worlds = instances(others, cell.size, number)
    parts = []
    for name, path in (("base", checkpoints / cell.base), ("trained", Path(folder) / "policy")):
        model, tokenizer = load_policy(str(path))
        player = policy(model.eval(), tokenizer, name, seed=cell.seed)
        parts.append(evaluate(player, worlds, (Form.WRITTEN, Form.AGENTIC)))
    frame = pd.concat(parts, ignore_index=True).assign(**labels(cell))
    return frame.assign(role=[role(name) for name in frame["family"]])


FILES = {"training": history_rows, "training_scores": score_rows, "training_divergence": divergence_rows}


def store(result: Result, folder: Path | None = None) -> None:
    """Add the rows of a finished run to the stored results, in the place of earlier rows of the same run."""
    for name, rows in FILES.items():
        add_rows(name, rows(result), folder)


def add_rows(name: str, fresh: pd.DataFrame, folder: Path | None = None) -> None:
    """Add rows to a stored table, in the place of those of the same runs."""
    path = (folder or paths.RESULTS) / f"{name}.parquet"
    if path.exists():
        old = pd.read_parquet(path)
        fresh = pd.concat([old[~old["run"].isin(set(fresh["run"]))], fresh], ignore_index=True)
    write_parquet(path, fresh)


# --- what a study asks of the stored rows -------------------------------------------------------------------
def before_and_after(scores: pd.DataFrame) -> pd.DataFrame:
    """Return mean score and probes by run, form and policy (base, trained), over the families trained on."""
    keys = ["study", "arm", "seed", "form", "policy"]
    found = scores.groupby(keys).agg(
        reward=("reward", "mean"), probes=("probes", "mean"), n=("reward", "size")
    )
    return found.reset_index()


def gaps(scores: pd.DataFrame) -> pd.DataFrame:
    """Return, for each run, the share of the gaps F - I and F - A that training closed, and the gains by form."""
    table = before_and_after(scores).pivot_table(
        index=["study", "arm", "seed"], columns=["policy", "form"], values="reward"
    )
    rows = []
    for (study, arm, seed), row in table.groupby(level=["study", "arm", "seed"]):
        base, trained = row["base"].iloc[0], row["trained"].iloc[0]
        rows.append(
            {"study": study, "arm": arm, "seed": seed}
            | {f"gain_{form}": trained[form] - base[form] for form in map(str, Form) if form in trained}
            | {
                f"closed_F{form}": 1 - (trained["F"] - trained[form]) / (base["F"] - base[form])
                for form in ("I", "A")
            }
        )
    return pd.DataFrame(rows)


def with_decisions(history: pd.DataFrame) -> pd.DataFrame:
    """Add the column decisions: how many an episode of each run's size has."""
    return history.assign(decisions=history["size"].map(DECISIONS))


DECISIONS = {"nano": 4, "nano16": 16}  # of rationing, on which the study of credit is run


def samples_to_reach(history: pd.DataFrame, level: float, window: int = 5) -> pd.DataFrame:
    """Return, for each run, the episodes drawn until the running mean of the score reached `level`; null if never."""
    rows = []
    for (arm, decisions, seed), run in history.groupby(["arm", "decisions", "seed"], sort=False):
        form = str(run["trained_forms"].iloc[0])[0]
        mean = run.sort_values("step")[f"score/{form}"].rolling(window, min_periods=window).mean()
        reached = run.sort_values("step")["samples"][mean >= level]
        rows.append(
            {
                "decisions": decisions,
                "arm": arm,
                "seed": seed,
                "samples": int(reached.iloc[0]) if len(reached) else None,
                "last": float(mean.iloc[-1]),
            }
        )
    table = pd.DataFrame(rows, columns=["decisions", "arm", "seed", "samples", "last"])
    return table.sort_values(["decisions", "arm", "seed"], ignore_index=True)


# --- grids ---------------------------------------------------------------------------------------------------
def example(preset: str, *, arm: str = "outcome", seed: int = 0) -> Cell:
    """Return the cell that notebook 04 trains: the stored grid's, cut to what the preset has time for."""
    short = {"smoke": (4, 8, 4, 6), "cpu": (40, 16, 16, 60), "gpu": (STEPS, 16, 16, 100)}
    if preset not in short:
        raise ValueError(f"unknown preset {preset!r}: choose one of {', '.join(short)}")
    steps, size, groups, held_out = short[preset]
    credit, baseline = ARMS[arm]
    plan = Plan(credit=credit, baseline=baseline, steps=steps, group_size=size, groups=groups, save_every=10)
    return Cell(study=f"example-{preset}", arm=arm, seed=seed, held_out=held_out, plan=plan)


def read_grid(path: Path) -> list[Cell]:
    """Return the cells of a grid file: for every study its arms, seeds and what they share; see data/grids/."""
    grid = load_yaml(path.read_text(encoding="utf-8"), str(path))
    found = []
    for study, stated in grid.items():
        unknown = sorted(
            set(stated) - {"arms", "seeds", "sizes", "base", "families", "forms", "held_out", "plan"}
        )
        if unknown:
            raise ValueError(f"{path}: study {study!r} has unknown entries {unknown}")
        for size, seed, arm in itertools.product(stated["sizes"], stated["seeds"], stated["arms"]):
            if arm not in ARMS:
                raise ValueError(f"{path}: unknown arm {arm!r}: choose one of {', '.join(ARMS)}")
            credit, baseline = ARMS[arm]
            found.append(
                Cell(
                    study=study,
                    arm=arm,
                    seed=seed,
                    base=stated.get("base", "tiny-base"),
                    families=tuple(stated.get("families", TRAINED)),
                    size=size,
                    forms=tuple(stated.get("forms", ("A", "I"))),
                    held_out=stated.get("held_out", 100),
                    plan=Plan(credit=credit, baseline=baseline, **stated.get("plan", {})),
                )
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the cells of a grid that are not stored yet, one after the other; each is stored as it finishes."""
    parser = argparse.ArgumentParser(prog="python -m truthfirst.study.learning", description=main.__doc__)
    parser.add_argument("grid", type=Path, help="a YAML file such as data/grids/training.yaml")
    parser.add_argument("--only", default="", help="cells whose name contains this text")
    parser.add_argument(
        "--part", default="1/1", help="i/n: every n-th cell, so that n processes share a grid"
    )
    parser.add_argument("--again", action="store_true", help="train stored cells again")
    given = parser.parse_args(arguments)
    part, parts = (int(text) for text in given.part.split("/"))
    wanted = [cell for cell in read_grid(given.grid) if given.only in cell.id][part - 1 :: parts]
    done = set() if given.again else set(stored("training").get("run", ()))
    for cell in wanted:
        if cell.id in done:
            print(f"{cell.id}: stored")
            continue
        print(f"{cell.id}: training", flush=True)
        try:
            store(run_cell(cell, WORK / cell.id))
            if cell.study == MAIN:
                add_rows(TRANSFER, transfer(cell, WORK / cell.id))
        except KeyboardInterrupt:
            print(f"stopped in {cell.id}; the same command goes on from its last checkpoint")
            return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
