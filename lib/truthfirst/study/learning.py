"""Training as an experiment: one cell is a policy trained from the base, and measured before and after.

    cell = cell_of(study="learning", arm="outcome", seed=0, plan={"steps": 120})
    obtain(cell)                               # train, measure and store it, unless it is stored; resumable

A study is a grid of cells, each a run of notebooks/training_cell.ipynb: `make study GRID=data/grids/training.yaml`.
Everything held out comes from the test stream, everything trained on from the train stream beyond what the base has
seen. Base and trained policy play the same instances with the same draws, so that differences are paired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..records import canonical_json, content_hash
from ..solvefirst.environment import Environment
from ..solvefirst.families import FAMILIES, role
from ..train import presets
from ..train.base import TRAINED, UNTOUCHED
from ..train.environments import TaskSet, task_set
from ..train.evaluate import compare, episode_table, instances, load_player, play, policy
from ..train.history import read_history
from ..train.plan import Plan
from ..types import Form
from . import cells
from .cells import CHECKPOINTS, add_rows
from .divergence import divergence_frame
from .episodes import decisions
from .scaling import decisions_of
from .trajectories import with_parts

MAIN, TRANSFER = (
    "learning",
    "training_transfer",
)  # the main study, and the table of what it does to other families
STEPS = 220  # optimizer steps of the stored main study
ARMS: dict[str, dict[str, Any]] = {  # arm -> fields of the plan
    "outcome": {},
    "progress": {"credit": "progress"},
    "regret": {"credit": "regret"},
    "regret, solver baseline": {"credit": "regret", "baseline": "solver"},
    "regret and probe credit": {"credit": "regret+credit"},
    "active sampling": {"refills": 2},
    "dppo": {"loss": "dppo"},
    "reward not clipped": {"reward": "unclipped"},
    "reward not normalised": {"reward": "utility"},
    "advantage not scaled": {"scale": "none"},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One training run of a study.

    study, arm   names under which the run is stored and drawn
    base         name of the checkpoint it starts from, or of a model on the hub
    families     trained on, at `size` and in `forms`; every group is one instance
    growing      sizes to train on instead, smallest first, one after the other as the plan's curriculum says
    instances    different ones of each family to train on, again and again; None: a new one for every group
    setter, domain
                 who words the environments, and of which domain their passages are (None: of any)
    held_out     test instances of each family, for the scores before and after; of any domain
    plan         how to train; its seed is the cell's
    """

    study: str = MAIN
    arm: str = "outcome"
    seed: int = 0
    base: str = "tiny-base"
    families: tuple[str, ...] = TRAINED
    size: str = "nano"
    growing: tuple[str, ...] = ()
    forms: tuple[str, ...] = ("A", "I")
    instances: int | None = None
    setter: str = "terse"
    domain: str | None = None
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
    """What a finished cell leaves behind: metrics by step, held-out episodes, their decisions, divergence by token."""

    cell: Cell
    history: pd.DataFrame
    scores: pd.DataFrame
    decisions: pd.DataFrame
    divergence: pd.DataFrame
    seconds: float


def tasks_of(cell: Cell) -> TaskSet:
    """Return the rows that a cell trains on, each with the level of its size."""
    sizes = cell.growing or (cell.size,)
    wanted = -(-cell.plan.generations * cell.plan.groups // (len(cell.families) * len(cell.forms)))
    worlds: dict[str, Environment] = {}
    levels: dict[str, int] = {}
    for level, size in enumerate(sizes):
        drawn = instances(
            cell.families,
            size,
            min(wanted, cell.instances or wanted),
            split="train",
            seed=cell.seed,
            first=UNTOUCHED,
            setter=cell.setter,
            domain=cell.domain,
        )
        found = {canonical_json(world.recipe): world for world in drawn}
        worlds |= found
        levels |= dict.fromkeys(found, level)
    keys = [(key, world.family_name) for key, world in worlds.items()]
    tasks = task_set(keys, cell.forms, worlds.__getitem__, cache=len(keys))
    return dataclasses.replace(tasks, rows=[row | {"level": levels[row["instance"]]} for row in tasks.rows])


def base_path(cell: Cell, checkpoints: Path = CHECKPOINTS) -> str:
    """Return the folder of the cell's base; where there is none of that name, it is the name of a model on the hub."""
    folder = checkpoints / cell.base
    return cell.base if not folder.exists() and cell.base.count("/") == 1 else str(folder)


def run_cell(cell: Cell, folder: Path, *, checkpoints: Path = CHECKPOINTS) -> Result:
    """Train and measure one cell; a broken run goes on from its last checkpoint, a finished one is read back."""
    if cells.begin(cell, folder):
        from ..train.grpo import Trainer  # TRL loads slowly

        base = base_path(cell, checkpoints)
        model, tokenizer = load_player(base, cell.plan)
        worlds = instances(cell.families, cell.size, cell.held_out, setter=cell.setter)
        before = play(policy(model, tokenizer, "base", seed=cell.seed, plan=cell.plan), worlds)
        seconds = cells.train(Trainer(model, tokenizer, tasks_of(cell), cell.plan, folder / "steps"), folder)
        player = policy(model.eval(), tokenizer, "trained", seed=cell.seed, plan=cell.plan)
        episodes = before + play(player, worlds)
        origin, _ = load_player(base, cell.plan)
        cells.finish(
            folder,
            seconds,
            scores=episode_table(episodes),
            decisions=decisions((p.trace for p in episodes), losses=True),
            divergence=divergence_frame(player, origin.eval(), worlds[:: max(1, len(worlds) // 60)]),
        )
    seconds, tables = cells.finished(folder, "scores", "decisions", "divergence")
    return Result(cell, read_history(folder / "steps"), **tables, seconds=seconds)


# --- stored results ---------------------------------------------------------------------------------------
def labels(cell: Cell) -> dict[str, Any]:
    """Return the columns that say which run a stored row belongs to."""
    return cells.labels(cell) | {
        "size": cell.size,
        "growing": "+".join(cell.growing),
        "families_trained": "+".join(cell.families),
        "trained_forms": "".join(cell.forms),
        "instances": cell.instances,
        "setter": cell.setter,
        "domain": cell.domain,
        "trained_reward": cell.plan.reward,
        "scaled": cell.plan.scaled,
    }


def history_rows(result: Result) -> pd.DataFrame:
    """Return the metrics of a run, a row a step; `samples` counts the episodes that were drawn by then."""
    frame = cells.with_samples(result.history, result.cell.plan)
    return frame.assign(**labels(result.cell), seconds_total=result.seconds)


def score_rows(result: Result) -> pd.DataFrame:
    """Return the held-out episodes of base and trained policy with the role of each family."""
    return with_roles(result.scores.assign(**labels(result.cell)))


def divergence_rows(result: Result) -> pd.DataFrame:
    """Return the divergence by family, form, turn and part of the message: mean nats a token, tokens and episodes."""
    keys = ["family", "form", "turn", "part"]
    frame = (
        with_parts(result.divergence)
        .groupby(keys)
        .agg(kl=("kl", "mean"), tokens=("kl", "size"), episodes=("environment", "nunique"))
    )
    return frame.reset_index().assign(**labels(result.cell))


def transfer_rows(cell: Cell, folder: Path, number: int, *, checkpoints: Path = CHECKPOINTS) -> pd.DataFrame:
    """Return held-out episodes of base and trained policy of a finished cell on the families it did not train on."""
    others = [name for name in FAMILIES if name not in cell.families]
    worlds = instances(others, cell.size, number)
    forms = (Form.WRITTEN, Form.AGENTIC)
    both = (base_path(cell, checkpoints), Path(folder) / "policy")
    frame = compare(*both, worlds, forms, seed=cell.seed, plan=cell.plan)
    return with_roles(frame.assign(**labels(cell)))


def with_roles(episodes: pd.DataFrame) -> pd.DataFrame:
    """Add the role of each family."""
    return episodes.assign(role=[role(name) for name in episodes["family"]])


def decision_rows(result: Result) -> pd.DataFrame:
    """Return the decisions of the held-out episodes in the forms that are played, with their regret."""
    frame = result.decisions
    return frame[frame["form"] != str(Form.WRITTEN)].assign(**labels(result.cell))


FILES = {
    "training": history_rows,
    "training_scores": score_rows,
    "training_decisions": decision_rows,
    "training_divergence": divergence_rows,
}


def store(result: Result, folder: Path | None = None) -> None:
    """Add the rows of a finished run to the stored results, in the place of earlier rows of the same run."""
    for name, rows in FILES.items():
        add_rows(name, rows(result), folder)


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
    """Add the column decisions: how many an episode of each run's size has, the mean over its families."""
    runs = zip(history["families_trained"], history["size"], strict=True)
    return history.assign(decisions=[decisions_of(tuple(names.split("+")), size) for names, size in runs])


def samples_to_reach(history: pd.DataFrame, level: float, window: int = 5) -> pd.DataFrame:
    """Return, for each run, the episodes drawn until the running mean of the score reached `level`; null if never."""
    rows = []
    for (arm, length, seed), run in history.groupby(["arm", "decisions", "seed"], sort=False):
        form = str(run["trained_forms"].iloc[0])[0]
        played = run.dropna(subset=[f"score/{form}"]).sort_values("step")  # one row a generation
        mean = played[f"score/{form}"].rolling(window, min_periods=window).mean()
        reached = played["samples"][mean >= level]
        rows.append(
            {
                "decisions": length,
                "arm": arm,
                "seed": seed,
                "samples": int(reached.iloc[0]) if len(reached) else None,
                "last": float(mean.iloc[-1]) if len(mean) else None,
            }
        )
    table = pd.DataFrame(rows, columns=["decisions", "arm", "seed", "samples", "last"])
    return table.sort_values(["decisions", "arm", "seed"], ignore_index=True)


# --- cells of studies ------------------------------------------------------------------------------------
def example(preset: str, *, arm: str = "outcome", seed: int = 0) -> Cell:
    """Return the cell that notebook 04 trains: the stored grid's, cut to what the preset has time for."""
    short = {"smoke": (4, 8, 4, 6), "cpu": (40, 16, 16, 60), "gpu": (STEPS, 16, 16, 100)}
    if preset not in short:
        raise ValueError(f"unknown preset {preset!r}: choose one of {', '.join(short)}")
    steps, size, groups, held_out = short[preset]
    plan = {"steps": steps, "group_size": size, "groups": groups, "save_every": 10}
    return cell_of(study=f"example-{preset}", arm=arm, seed=seed, held_out=held_out, plan=plan)


def cell_of(
    *, study: str, arm: str, seed: int, plan: Mapping[str, Any] | None = None, **options: Any
) -> Cell:
    """Return the cell that a grid names: an arm of ARMS, fields of `Cell`, and fields of the plan beside its credit.

    plan   its field `preset`, a name in train/presets.py, takes everything not said here from that preset: how a real
           model is trained on GPUs. What is said in `options` is added to those of the preset.

    Raises ValueError that names what does not exist.
    """
    fields = dict(plan or {})
    start = preset_fields(fields.pop("preset")) if "preset" in fields else {}
    cells.check(arm, ARMS, (fields, Plan), (options, Cell))
    fields = (
        start | ARMS[arm] | fields | {"options": start.get("options", {}) | dict(fields.get("options", {}))}
    )
    lists: dict[str, Any] = {
        name: tuple(options[name]) for name in ("families", "forms", "growing") if name in options
    }
    return Cell(study=study, arm=arm, seed=seed, plan=Plan(**fields), **(options | lists))


def preset_fields(name: str) -> dict[str, Any]:
    """Return the fields of a GPU preset's plan; ValueError where there is none, or where it needs more than a plan."""
    preset = presets.resolve(name)
    if preset.lora or preset.cards > 1:
        raise ValueError(
            f"preset {name!r} trains {'adapters' if preset.lora else 'on several cards'}, and a cell trains whole "
            f"weights on one: start it with {preset.launch()!r}, or choose another preset"
        )
    plan = preset.plan()
    return {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}


def obtain(cell: Cell, *, others: int = 0, again: bool = False) -> bool:
    """Train, measure and store a cell; return False where it is stored already.

    others   instances of each family that it does not train on, to measure transfer; 0: none
    again    forget what is stored and what was begun
    """

    def run(folder: Path) -> None:
        result = run_cell(cell, folder)
        if others:
            add_rows(TRANSFER, transfer_rows(cell, folder, others))
        store(result)

    return cells.obtain(cell, "training", run, again=again)
