"""Sampling of a training run, and its invariants.

Jobs are launched one after the other. Those of the lineage resume from each other; a branch resumes from a checkpoint,
too, but what it did was thrown away, and so was what a job did after the checkpoint that the next one took. One setting
goes wrong late in the lineage: at a restart, in the file or on the command line, or while a job ran; a few points later
the loss stays high (`points.py`). Decoys: changes that are overruled, undone by a restart, inert, thrown away, or made
after the onset. Identities are drawn, so that no two seeds share them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...world import WorldError
from .lineage import effects, origin
from .points import logged, measure, onset
from .world import Alias, Change, Checkpoint, Job, Layout, Run, Setting

REVISION = 1


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is: jobs of the lineage and branches; steps of a job, about; steps from point to point.

    names   other spellings of each key
    """

    lineage: int
    branches: int
    steps: int
    log_every: int
    names: int = 2


SIZES = {
    "nano": Size(3, 1, 64, 5, 1),
    "unit": Size(4, 2, 1_100, 10),
    "small": Size(5, 3, 2_600, 10),
    "full": Size(8, 5, 7_300, 10),
}

SECTIONS = {  # of the base configuration
    "optim": ("lr", "weight_decay", "clip_norm", "beta2", "dropout"),
    "data": ("batch_size", "seq_len", "grad_accum", "mix", "precision"),
    "system": ("num_workers", "log_every", "checkpoint_every"),
}
INERT = ("checkpoint_every", "log_every", "num_workers")
_BENIGN = {
    "lr": ("0.0002", "0.00025", "0.0003", "0.0004"),
    "weight_decay": ("0.01", "0.05", "0.1", "0.2"),
    "dropout": ("0", "0.05", "0.1"),
    "batch_size": ("8", "16", "24", "32"),
    "grad_accum": ("2", "4", "6", "8"),
    "seq_len": ("1024", "1536", "2048"),
}
_HARMFUL = {
    "lr": ("0.003", "0.006", "0.0125"),
    "clip_norm": ("25", "100"),
    "beta2": ("0.9999", "0.5"),
    "precision": ("fp16", "fp8"),
}
_SPELLINGS = {
    "lr": ("learning_rate", "learning-rate", "optim.lr", "max_lr"),
    "weight_decay": ("wd", "weight-decay", "l2"),
    "clip_norm": ("grad_clip", "clip-norm", "max_grad_norm"),
    "beta2": ("adam_beta2", "b2", "optim.beta2"),
    "dropout": ("drop", "p_drop", "dropout_rate"),
    "batch_size": ("bs", "batch-size", "micro_batch"),
    "seq_len": ("context", "seq-len", "block_size"),
    "grad_accum": ("accumulate", "grad-accum", "accum_steps"),
    "precision": ("dtype", "amp", "compute_type"),
    "num_workers": ("workers", "num-workers", "loaders"),
    "log_every": ("log-every", "log_interval", "print_every"),
    "checkpoint_every": ("save_every", "checkpoint-every", "ckpt_interval"),
}
_COLUMN_POOLS = (
    ("job", "run_id", "task", "attempt"),
    ("step", "iter", "global_step", "it"),
    ("wall", "time", "ts", "at"),
    ("loss", "train_loss", "ce", "objective"),
    ("grad_norm", "gnorm", "norm", "g2"),
)


def _pick(rng: np.random.Generator, pool: tuple[str, ...] | list[str]) -> str:
    return pool[int(rng.integers(len(pool)))]


def _identities(rng: np.random.Generator, prefix: str, digits: int, count: int) -> list[str]:
    return [f"{prefix}{int(n):0{digits}x}" for n in rng.choice(16**digits, size=count, replace=False)]


@dataclass
class _Draft:
    """A run in the making: the time it is, identities that are yet to be given, and what has been launched so far."""

    rng: np.random.Generator
    size: Size
    base: dict[str, str]
    clock: int
    ids: list[str]
    names: list[str]
    jobs: list[Job] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def launch(self, resume: str, wanted: dict[str, str]) -> Job:
        """Launch a job that ends up with the wanted settings, and let it write its checkpoints and end."""
        rng, number = self.rng, len(self.jobs)
        other = {key: value for key, value in wanted.items() if value != self.base[key]}
        has_file = number not in (1, 3, 6)
        filed = {key: value for key, value in other.items() if has_file and rng.random() < 0.6}
        flags = {key: value for key, value in other.items() if key not in filed}
        if has_file and (unfiled := sorted(set(_BENIGN) - set(filed))):  # overruled by the command line
            key = _pick(rng, unfiled)
            flags[key], filed[key] = wanted[key], _pick(rng, [v for v in _BENIGN[key] if v != wanted[key]])
        self.clock += self.between(300, 4_000)
        made = Job(
            self.ids[number],
            self.clock,
            resume,
            0,
            0,
            8 * self.between(1, 5),
            "",
            number % 2 == 0,
            _settings(filed),
            _settings(flags),
        )
        source = origin(made, tuple(self.checkpoints))
        first = source.step + 1 if source else 1
        last = first + self.between(self.size.steps * 9 // 10, self.size.steps * 11 // 10)
        made = replace(made, first=first, last=last, state=_pick(rng, ("failed", "cancelled", "timeout")))
        every, pace = int(wanted["checkpoint_every"]), self.between(2, 6)
        steps = [step for step in range(first, last + 1) if step % every == 0]
        for step in steps:
            written = self.clock + 60 + pace * (step - first + 1)
            complete = step != steps[-1] or number % 3 != 0
            self.checkpoints.append(Checkpoint(self.names.pop(), made.id, step, written, complete))
        self.jobs.append(made)
        self.clock += 60 + pace * (last - first + 2)
        return made


def _settings(told: dict[str, str]) -> tuple[Setting, ...]:
    return tuple(Setting(key, told[key]) for key in sorted(told))


def sample(rng: np.random.Generator, tier: str) -> Run:
    """Draw a run of a tier."""
    size = SIZES[tier]
    count = size.lineage + size.branches
    base = {key: _pick(rng, values) for key, values in _BENIGN.items()}
    base |= {
        "clip_norm": "1",
        "beta2": "0.95",
        "mix": f"mix-{int(rng.integers(16**4)):04x}",
        "precision": "bf16",
    }
    base |= {"num_workers": "8", "log_every": str(size.log_every), "checkpoint_every": str(size.steps // 6)}
    draft = _Draft(
        rng,
        size,
        base,
        1_600_000_000 + int(rng.integers(300_000_000)),
        _identities(rng, "j", 4, count),
        _identities(rng, "ck", 6, 9 * count),
    )
    lineage, cause = _lineage(draft)
    high_points = 3 if tier == "nano" else 4
    world = Run(
        name=f"run-{int(rng.integers(16**4)):04x}",
        final_job=lineage[-1],
        high_percent=int(rng.choice([12, 15, 20])),
        high_points=high_points,
        inert=INERT,
        base=tuple(Setting(key, base[key]) for keys in SECTIONS.values() for key in keys),
        aliases=tuple(
            Alias(pool[int(n)], key)
            for key, pool in _SPELLINGS.items()
            for n in sorted(rng.permutation(len(pool))[: size.names])
        ),
        layouts=_layouts(rng),
        jobs=tuple(draft.jobs),
        checkpoints=tuple(draft.checkpoints),
        changes=tuple(sorted(draft.changes, key=lambda one: (draft.ids.index(one.job), one.step))),
        points=(),
        blame=_blame(rng, draft, lineage),
    )
    return replace(world, points=measure(rng, world, cause))


def _lineage(draft: _Draft) -> tuple[list[str], int]:
    """Launch all jobs. Return the lineage's jobs, and the step of the harmful change."""
    rng, size = draft.rng, draft.size
    fatal = size.lineage - 1 - (size.lineage > 4 and rng.random() < 0.5)  # the job in which it goes wrong
    hot = rng.random() < 0.4
    after = {int(n) for n in rng.permutation(size.lineage - 1)[: size.branches - 1]}  # where branches start
    wanted, lineage, resume, cause = dict(draft.base), [], "", 0
    for number in range(size.lineage):
        if number == fatal and not hot:
            key = _pick(rng, list(_HARMFUL))
            wanted |= {key: _pick(rng, _HARMFUL[key]), "num_workers": _pick(rng, ("2", "4", "16"))}
        elif number:
            wanted |= _other(rng, wanted, 2) | {"log_every": str(size.log_every * (1 + number % 2))}
        job = draft.launch(resume, wanted)
        lineage.append(job.id)
        if number == fatal:
            cause = _harm(draft, job, wanted) if hot else job.first
        elif number != fatal - 1 or hot:
            _tinker(draft, job, wanted, job.first + 2, job.first + size.steps // 3)
        if number in after:
            _branch(draft, job, wanted)
            resume = _recent(draft, job)
        else:
            resume = "auto"
    _branch(draft, job, wanted)  # after the end
    return lineage, cause


def _other(rng: np.random.Generator, wanted: dict[str, str], count: int) -> dict[str, str]:
    """Return other benign values for some keys."""
    keys = [sorted(_BENIGN)[int(n)] for n in rng.permutation(len(_BENIGN))[:count]]
    return {key: _pick(rng, [value for value in _BENIGN[key] if value != wanted[key]]) for key in keys}


def _tinker(draft: _Draft, job: Job, wanted: dict[str, str], low: int, high: int) -> None:
    """Change a setting or two while a job runs, and one that is what it is anyway; the next job forgets them."""
    keys = _other(draft.rng, wanted, 2)
    for key, value in keys.items():
        draft.changes.append(Change(job.id, draft.between(low, high), key, value))
    draft.changes.append(Change(job.id, draft.between(low, high), "clip_norm", wanted["clip_norm"]))
    harmful = _pick(draft.rng, _HARMFUL["lr"])  # so late that it is thrown away, as a rule
    draft.changes.append(Change(job.id, job.last - 1, "lr", harmful))


def _harm(draft: _Draft, job: Job, wanted: dict[str, str]) -> int:
    """Change one setting for the worse while the job runs, another one well after. Return the step of the first."""
    key = _pick(draft.rng, list(_HARMFUL))
    step = job.first + draft.between(draft.size.steps // 10, draft.size.steps // 4)
    draft.changes.append(Change(job.id, step, key, _pick(draft.rng, _HARMFUL[key])))
    late = job.first + draft.size.steps * 3 // 5
    draft.changes.append(
        Change(job.id, late, "weight_decay", _other_value(draft.rng, "weight_decay", wanted))
    )
    return step


def _other_value(rng: np.random.Generator, key: str, wanted: dict[str, str]) -> str:
    return _pick(rng, [value for value in _BENIGN[key] if value != wanted[key]])


def _recent(draft: _Draft, job: Job) -> str:
    """Return the name of one of the last complete checkpoints of a job."""
    ready = [one.name for one in draft.checkpoints if one.job == job.id and one.complete]
    return _pick(draft.rng, ready[-2:])


def _branch(draft: _Draft, job: Job, wanted: dict[str, str]) -> None:
    """Launch a job that resumes from another one and is thrown away, with settings that may be harmful, too."""
    key = _pick(draft.rng, list(_HARMFUL))
    made = draft.launch(
        _recent(draft, job), wanted | _other(draft.rng, wanted, 1) | {key: _pick(draft.rng, _HARMFUL[key])}
    )
    draft.changes.append(
        Change(made.id, made.first + draft.size.steps // 3, "lr", _other_value(draft.rng, "lr", wanted))
    )


def _blame(rng: np.random.Generator, draft: _Draft, lineage: list[str]) -> tuple[str, ...]:
    """Return a report that blames a job that was thrown away."""
    job = next(job for job in draft.jobs if job.id not in lineage)
    step = job.first + draft.size.steps // 2
    best = f"{int(rng.integers(1, 4))}.{int(rng.integers(10**6)):06d}"
    return (str(step), job.id, str(job.first), best, str(job.first), _pick(rng, list(_HARMFUL)), "file")


def _layouts(rng: np.random.Generator) -> tuple[Layout, ...]:
    """Return the layout of clean logs and two others; all differ in every column name."""
    orders = [rng.permutation(len(pool)) for pool in _COLUMN_POOLS]
    names = [
        tuple(pool[int(order[turn])] for pool, order in zip(_COLUMN_POOLS, orders, strict=True))
        for turn in range(3)
    ]
    return (
        Layout("plain", names[0], 1, "epoch", "mean", "nat"),
        Layout("summed", names[1], 1, "iso", "sum", "nat"),
        Layout("milli", names[2], 0, "epoch", "mean", "millinat"),
    )


# --- invariants -----------------------------------------------------------------------------------------------
def check(world: Run) -> None:
    """Raise WorldError unless identities are unique, resumes resolve, points are where they belong, and one cause."""
    identities: dict[str, list[Any]] = {
        "job": [job.id for job in world.jobs],
        "checkpoint": [one.name for one in world.checkpoints],
        "point": [(point.job, point.step, point.phase) for point in world.points],
        "spelling": [*(alias.spelling for alias in world.aliases), *(one.key for one in world.base)],
        "column": [column for layout in world.layouts for column in layout.columns],
        "change": [(one.job, one.step, one.key) for one in world.changes],
    }
    for what, keys in identities.items():
        if repeated := [key for key, count in Counter(keys).items() if count > 1]:
            raise WorldError(f"{what} {repeated[0]!r} occurs more than once: it must be unique")
    for job in world.jobs:
        source = origin(job, world.checkpoints)
        if job.first != (source.step + 1 if source else 1) or (source and not source.complete):
            raise WorldError(
                f"job {job.id} does not start after the complete checkpoint it resumes from: {source}"
            )
        steps = [point.step for point in world.points if point.job == job.id and point.phase == "train"]
        if steps != list(logged(world, job)):
            raise WorldError(f"job {job.id} did not log at the steps that its settings say")
    first = onset(world)
    changed = [one for one in effects(world) if one[1] not in world.inert and one[0] <= first]
    last = [one for one in changed if one[0] == changed[-1][0]]
    if len(last) != 1 or last[0][3] not in _HARMFUL.get(last[0][1], ()):
        raise WorldError(f"the divergence at step {first} has no single cause: {last}")
