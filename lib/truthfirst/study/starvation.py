r"""Starvation: how many groups of rollouts teach nothing, by theory, in simulation, with Phi, and in training.

A group of G rollouts of one task whose rewards are all equal has no advantage. Where each rollout passes with
probability p, a terminal reward wastes a group with probability

    w(p, G) = (1 - p)^G + p^G

and over tasks whose p is spread by a Beta distribution with mean m and correlation rho within a group (a = m (1/rho -
1), b = (1 - m)(1/rho - 1); rho = 0: one common p) the mean of that.

With Phi. An agent works through the stages of a real world's workflow: a stage whose prerequisites it has done it gets
right with probability q, independently, otherwise never. What it leaves is a prerequisite-closed set S of stages, with

    P(S) = q^|S| (1 - q)^(number of stages outside S whose prerequisites lie in S),    p = P(all n) = q^n

Each of these sets is a real workspace, the files that the reference solver writes in those stages, graded by the strict
verifier and by Phi. Under R = 1[pass] + lambda Phi a group is wasted with probability sum_r P(R = r)^G, exactly. Only
whole stages are done here; parts of stages would tell rollouts apart more often.

Phi separates rollouts that begin. A share e of rollouts that leave nothing, whatever the task, gives P(empty) = e +
(1 - e)(1 - q)^..., with p = (1 - e) q^n, and a floor of e^G under the wasted share: `idle` below.

Source of the terminal formula and of two values of it: Tev (2026), section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta, binomtest

from .. import paths
from ..sources import published
from ..streams import stream
from ..worldfirst.instances import Instance
from ..worldfirst.progress import rollout_return

GROUP_SIZES = (4, 8, 24)
SPREADS = (0.0, 0.3)
SKILLS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95)  # pass probabilities that are simulated
GRID = np.unique(np.concatenate([np.geomspace(0.0005, 0.5, 40), 1 - np.geomspace(0.005, 0.5, 20)]))
TERMINAL, PROGRESS = "terminal", "with Phi"
REWARDS = (TERMINAL, PROGRESS)
IDLES = (0.0, 0.5, 0.8, 0.95)  # shares of rollouts that leave nothing, simulated
IDLE_GRID = np.linspace(0, 0.985, 60)
IDLE_SKILL = 0.01
TRAINING = "worlds_training.parquet"
NODES = 400  # quantiles that stand for a Beta distribution


@dataclass(frozen=True, slots=True)
class Cell:
    """Groups of one kind: mean pass probability p, group size G, spread rho of p over tasks, idle share of rollouts."""

    p: float
    group_size: int
    rho: float = 0.0
    idle: float = 0.0


def cells(skills: Iterable[float], idles: Iterable[float]) -> tuple[Cell, ...]:
    """Return the design: every skill at every spread, and every idle share at one skill, for every group size."""
    skilled = [Cell(float(p), size, rho) for rho in SPREADS for size in GROUP_SIZES for p in skills]
    idle = [Cell(IDLE_SKILL, size, 0.0, float(share)) for size in GROUP_SIZES for share in idles]
    return tuple(dict.fromkeys([*skilled, *idle]))


@dataclass(frozen=True, slots=True)
class State:
    """Partial work as a graded workspace.

    stages   done, prerequisite-closed; open: how many further stages could be done next
    """

    stages: frozenset[str]
    open: int
    passed: bool
    phi: Fraction

    def reward(self, kind: str) -> Fraction:
        """Return 1[pass] under terminal reward, 1[pass] + lambda Phi with Phi; the agent submits what it has."""
        return Fraction(int(self.passed)) if kind == TERMINAL else rollout_return(self.passed, self.phi)


def states(made: Instance) -> tuple[State, ...]:
    """Grade every prerequisite-closed part of the reference's work on an instance, the empty one first, all last."""
    written, outputs = {}, dict[str, bytes]()
    for stage in made.generator.reference_stages:
        written[stage] = made.generator.run_stage(stage, {**made.files, **outputs})
        outputs |= written[stage]
    before = {stage.name: frozenset(stage.after) for stage in made.workflow.stages}
    found = []
    for done in _closed(before):
        files = {path: data for stage in written if stage in done for path, data in written[stage].items()}
        ready = sum(stage not in done and needs <= done for stage, needs in before.items())
        found.append(State(done, ready, made.verify(files).passed, made.potential(files)))
    return tuple(found)


def _closed(before: dict[str, frozenset[str]]) -> list[frozenset[str]]:
    """Return every set that holds the prerequisites of all its members, small ones first."""
    found: list[frozenset[str]] = [frozenset()]
    for name in before:  # prerequisites stand first
        found += [done | {name} for done in found if before[name] <= done]
    return sorted(found, key=lambda done: (len(done), sorted(done)))


def probabilities(parts: Sequence[State], p: np.ndarray, idle: float = 0.0) -> np.ndarray:
    """Return P(S) of every state, shape (len(p), states), for agents whose whole work succeeds with probability p.

    idle   share of rollouts that leave nothing, below 1 - p. Raises ValueError where it is not.
    """
    done = np.array([len(one.stages) for one in parts])
    ready = np.array([one.open for one in parts])
    p = np.asarray(p, dtype=float)
    if not 0 <= idle < 1 or (p > 1 - idle).any():
        raise ValueError(
            f"idle = {idle} leaves no room for a pass probability of {p.max()}: keep it below 1 - p"
        )
    q = (p[:, None] / (1 - idle)) ** (1 / done.max())
    return (1 - idle) * q**done * (1 - q) ** ready + idle * (done == 0)


def spread(mean: float, rho: float) -> np.ndarray:
    """Return pass probabilities that stand for a Beta distribution: its midpoint quantiles; of rho = 0 the mean."""
    if rho == 0:
        return np.array([mean])
    a, b = mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)
    return beta.ppf((np.arange(NODES) + 0.5) / NODES, a, b)


def wasted(parts: Sequence[State], kind: str, p: np.ndarray, group_size: int, idle: float = 0.0) -> float:
    """Return the probability that a group is wasted, the mean over tasks with pass probabilities p: exact given p."""
    labels = _labels(parts, kind)
    chances = probabilities(parts, p, idle)
    shares = np.stack([chances[:, labels == label].sum(axis=1) for label in range(labels.max() + 1)])
    return float((shares**group_size).sum(axis=0).mean())


def _labels(parts: Sequence[State], kind: str) -> np.ndarray:
    """Number the rewards of states: equal rewards, equal numbers."""
    rewards = [one.reward(kind) for one in parts]
    return np.array([sorted(set(rewards)).index(reward) for reward in rewards])


def theory_table(parts: Sequence[State], cells: Iterable[Cell]) -> pd.DataFrame:
    """Return one row a reward and cell: the share of wasted groups."""
    rows = [
        {"kind": "theory", "reward": kind, **asdict(cell)}
        | {"wasted": wasted(parts, kind, spread(cell.p, cell.rho), cell.group_size, cell.idle)}
        for kind in REWARDS
        for cell in cells
    ]
    return pd.DataFrame(rows)


def simulated_table(parts: Sequence[State], cells: Iterable[Cell], groups: int, seed: int) -> pd.DataFrame:
    """Draw groups of rollouts and count those without variance, the same groups under both rewards.

    Each group's task draws its p from the Beta distribution, each rollout of the group a state. Columns as of the
    theory, and n groups, low and high (the exact 95% binomial interval).
    """
    rows = []
    for cell in cells:
        rng = stream(seed, "starvation", *map(str, astuple(cell)))
        drawn = _draw(parts, rng, cell, groups)
        for kind in REWARDS:
            labels = _labels(parts, kind)[drawn]
            count = int((labels == labels[:, :1]).all(axis=1).sum())
            interval = binomtest(count, groups).proportion_ci(method="exact")
            rows.append(
                {"kind": "simulated", "reward": kind, **asdict(cell), "wasted": count / groups}
                | {"low": interval.low, "high": interval.high, "n": groups}
            )
    return pd.DataFrame(rows)


def _draw(parts: Sequence[State], rng: np.random.Generator, cell: Cell, groups: int) -> np.ndarray:
    """Return numbers of states, shape (groups, G), each row a group of one task."""
    p = np.full(groups, cell.p)
    if cell.rho:
        p = rng.beta(cell.p * (1 / cell.rho - 1), (1 - cell.p) * (1 / cell.rho - 1), groups)
    bounds = probabilities(parts, p, cell.idle).cumsum(axis=1)
    draws = rng.random((groups, cell.group_size))
    found = (draws[:, :, None] >= bounds[:, None, :]).sum(axis=2)
    return np.minimum(found, len(parts) - 1)  # where rounding leaves the last bound below 1


def source_table() -> pd.DataFrame:
    """Return the source's two values of the formula."""
    rows = [
        {"kind": "source", "reward": TERMINAL, **asdict(Cell(p, size)), "wasted": share}
        for p, size, share in published("tev_gym", "starvation")
    ]
    return pd.DataFrame(rows)


def measured_table() -> pd.DataFrame:
    """Return the wasted share by arm, seed and step of stored training runs on worlds; empty where none is stored."""
    file = paths.STORED / TRAINING
    if not file.exists():
        return pd.DataFrame()
    frame = pd.read_parquet(file)
    if missing := {"arm", "seed", "step", "frac_reward_zero_std"} - set(frame.columns):
        raise ValueError(f"{file.name} lacks {', '.join(sorted(missing))}: train on worlds again")
    kept = frame.dropna(subset=["frac_reward_zero_std"])
    return pd.DataFrame({"kind": "measured", "wasted": kept["frac_reward_zero_std"]}).join(
        kept[["arm", "seed", "step"]]
    )


def study(made: Instance, groups: int, seed: int) -> pd.DataFrame:
    """Return all that figures.starvation draws: theory, simulation, the source's values, and training if stored."""
    parts = states(made)
    theory = theory_table(parts, cells(GRID, IDLE_GRID))
    simulated = simulated_table(parts, cells(SKILLS, IDLES), groups, seed)
    tables = [theory, simulated, source_table(), measured_table()]
    frame = pd.concat([table for table in tables if not table.empty], ignore_index=True)
    return frame.assign(world=made.id)


def by_world(worlds: Iterable[Instance], p: float = 0.05, group_size: int = 8) -> pd.DataFrame:
    """Return one row a world: its stages, the graded parts and their different Phi, and the wasted share either way."""
    rows: list[dict[str, Any]] = []
    for made in worlds:
        parts = states(made)
        rows.append(
            {"generator": made.generator.name, "stages": len(made.workflow.stages), "states": len(parts)}
            | {"different_phi": len({one.phi for one in parts}), "p": p, "group_size": group_size}
            | {kind: wasted(parts, kind, np.array([p]), group_size) for kind in REWARDS}
        )
    return pd.DataFrame(rows)
