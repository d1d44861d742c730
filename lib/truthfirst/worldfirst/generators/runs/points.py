"""What the jobs of a run measure: losses and gradient norms, in integers, so that they are the same everywhere.

Along what counts the loss falls like 1 / (1 + step) with a noise of one and a half percent; at the onset, one or two
points after the harmful change, it jumps by a third, grows, and in the end is no number. Decoys: spikes shorter than
what counts as a divergence, and thrown-away tails that are high.
"""

from __future__ import annotations

import numpy as np

from ...world import WorldError
from .lineage import effective, kept
from .world import Job, Point, Run


def measure(rng: np.random.Generator, world: Run, cause: int) -> tuple[Point, ...]:
    """Return what every job measured; see the module docstring for what the losses show."""
    spans = {job.id: (first, last) for job, first, last in kept(world)}
    steps = world.jobs[0].last
    curve = [step for job, first, last in kept(world) for step in logged(world, job) if first <= step <= last]
    start = next(n for n, step in enumerate(curve) if step >= cause) + int(rng.integers(1, 3))  # the onset
    spikes = _spikes(rng, world, curve[: start - world.high_points - 1])
    end = curve[-max(1, (len(curve) - start - world.high_points) // 3)]  # from here on no numbers
    made = []
    for job in world.jobs:
        first, last = spans.get(job.id, (job.first, job.first - 1))
        pace = max(2, _pace(world, job))
        tail = rng.random() < 0.6  # what is thrown away goes wrong
        for step in logged(world, job):
            calm = (
                (1_800_000 + 7_000_000 * steps // (steps + step))
                * (1_000 + int(rng.integers(-15, 16)))
                // 1_000
            )
            norm = (4_000 + 20_000 * steps // (steps + step)) * int(rng.integers(70, 140)) // 100
            wall = job.launched + 60 + pace * (step - job.first + 1)
            on = first <= step <= last
            loss: int | None = calm
            if on and step >= curve[start]:
                loss, norm = calm * (13 + min(40, (step - curve[start]) // 8)) // 10, norm * 9
                loss = None if step >= end else loss
            elif (on and step in spikes) or (not on and tail and step > last + (job.last - last) // 3):
                loss, norm = calm * int(rng.integers(140, 190)) // 100, norm * 4
            made.append(Point(job.id, step, "train", wall, loss, None if loss is None else norm))
        if job.tracked:
            made += _evals(rng, [point for point in made if point.job == job.id])
    return tuple(
        sorted(
            made, key=lambda point: ([job.id for job in world.jobs].index(point.job), point.phase, point.step)
        )
    )


def logged(world: Run, job: Job) -> range:
    """Return the steps at which a job logs."""
    every = int(effective(world.base, job, (), job.first)["log_every"][0])
    return range(-(-job.first // every) * every, job.last + 1, every)


def _pace(world: Run, job: Job) -> int:
    """Return the seconds that a job takes for a step, from its first checkpoint."""
    one = next(one for one in world.checkpoints if one.job == job.id)
    return (one.written - job.launched - 60) // (one.step - job.first + 1)


def _spikes(rng: np.random.Generator, world: Run, curve: list[int]) -> set[int]:
    """Return the steps of some short spikes, each shorter than what counts as a divergence and apart from the next."""
    found: set[int] = set()
    width, position = world.high_points - 1, world.high_points + 1
    while position + width < len(curve):
        found.update(curve[position : position + width])
        position += width + 2 + int(rng.integers(len(curve) // 4 + 1))
    return found


def _evals(rng: np.random.Generator, points: list[Point]) -> list[Point]:
    """Return evaluations at every fourth point: a little above the loss in training."""
    return [
        Point(
            one.job,
            one.step,
            "eval",
            one.wall + 1,
            None if one.loss is None else one.loss + int(rng.integers(9_999)),
            None,
        )
        for one in points[::4]
    ]


def onset(world: Run) -> int:
    """Return the step of the first of enough high points in a row."""
    losses = {(point.job, point.step): point.loss for point in world.points if point.phase == "train"}
    best: int | None = None
    run: list[int] = []
    for job, first, last in kept(world):
        for step in (step for step in logged(world, job) if first <= step <= last):
            loss = losses[job.id, step]
            high = loss is None or (best is not None and 100 * loss > (100 + world.high_percent) * best)
            run = [*run, step] if high else []
            if len(run) == world.high_points:
                return run[0]
            best = loss if loss is not None and (best is None or loss < best) else best
    raise WorldError("the run does not diverge")
