"""The world of a training run: jobs that resumed from each other, their settings, what they logged. Types only.

Losses are integer micro-nats and gradient norms integer ten-thousandths, None where they are not a number; times are
seconds since 1970; settings are text, numbers in plain decimal without superfluous zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

LAYERS = ("base", "file", "flag", "hot")  # each prevails over those before it
FIELDS = ("job", "step", "wall", "loss", "grad_norm")
BLAME = ("onset_step", "onset_job", "best_step", "best_loss", "cause_step", "cause_key", "cause_layer")


@dataclass(frozen=True, slots=True)
class Setting:
    """A key with its value."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Job:
    """One launch of the training program.

    resume         "" from scratch, "auto", or the name of a checkpoint
    first, last    steps that it took
    tracked        whether it reported to the tracker, which mirrored its points
    file, flags    settings of its override file and of its command line
    """

    id: str
    launched: int
    resume: str
    first: int
    last: int
    gpus: int
    state: str
    tracked: bool
    file: tuple[Setting, ...]
    flags: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that a job wrote after a step; one that is not complete cannot be resumed from."""

    name: str
    job: str
    step: int
    written: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that was changed while a job ran: it holds from that step to the job's end."""

    job: str
    step: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Point:
    """What a job measured at a step; phase is train, or eval (which is in no log)."""

    job: str
    step: int
    phase: str
    wall: int
    loss: int | None
    norm: int | None


@dataclass(frozen=True, slots=True)
class Alias:
    """Another spelling of a key."""

    spelling: str
    key: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How a log may be laid out.

    columns     names of FIELDS in order
    first_step  number that the first step has: 1 or 0
    wall        epoch or iso
    loss        mean, or sum over the micro-batches of a step
    unit        nat or millinat
    """

    name: str
    columns: tuple[str, ...]
    first_step: int
    wall: str
    loss: str
    unit: str


@dataclass(frozen=True, slots=True)
class Run:
    """The whole truth.

    high_percent, high_points   a divergence is so many points in a row that are so much above the best loss so far
    inert        settings that cannot change a loss
    base         settings of the base configuration, in the order of its sections
    jobs         by launch
    checkpoints  by job and step; changes: likewise
    points       by job, phase and step
    blame        what an earlier report says, wrongly: the values of BLAME
    """

    name: str
    final_job: str
    high_percent: int
    high_points: int
    inert: tuple[str, ...]
    base: tuple[Setting, ...]
    aliases: tuple[Alias, ...]
    layouts: tuple[Layout, ...]
    jobs: tuple[Job, ...]
    checkpoints: tuple[Checkpoint, ...]
    changes: tuple[Change, ...]
    points: tuple[Point, ...]
    blame: tuple[str, ...]
