"""Who resumed from what, which steps count, which settings hold: what the roles that make a run have in common.

sampling and damage of a run use this; its verifier, its progress and its solvers work it out on their own
"""

from __future__ import annotations

from .world import Change, Checkpoint, Job, Run, Setting


def origin(job: Job, checkpoints: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """Return the checkpoint that a job resumed from, None for a start from scratch.

    `auto` is the complete checkpoint written last before the launch.
    """
    if not job.resume:
        return None
    if job.resume == "auto":
        ready = [one for one in checkpoints if one.complete and one.written < job.launched]
        return max(ready, key=lambda one: one.written)
    return next(one for one in checkpoints if one.name == job.resume)


def kept(world: Run) -> list[tuple[Job, int, int]]:
    """Return (job, first step, last step) of what counts, in order: the way back from the final job."""
    jobs = {job.id: job for job in world.jobs}
    job, last = jobs[world.final_job], jobs[world.final_job].last
    found = []
    while True:
        found.append((job, job.first, last))
        checkpoint = origin(job, world.checkpoints)
        if checkpoint is None:
            return found[::-1]
        job, last = jobs[checkpoint.job], checkpoint.step


def effective(
    base: tuple[Setting, ...], job: Job, changes: tuple[Change, ...], step: int
) -> dict[str, tuple[str, str]]:
    """Return key -> (value, layer) of the settings that hold in a job at a step."""
    found = {one.key: (one.value, "base") for one in base}
    found |= {one.key: (one.value, "file") for one in job.file}
    found |= {one.key: (one.value, "flag") for one in job.flags}
    return found | {one.key: (one.value, "hot") for one in changes if one.job == job.id and one.step <= step}


def effects(world: Run) -> list[tuple[int, str, str, str, str]]:
    """Return (step, key, before, after, layer) of every change of a setting's value along what counts, in order."""
    found, before = [], None
    for job, first, last in kept(world):
        steps = {first} | {
            one.step for one in world.changes if one.job == job.id and first < one.step <= last
        }
        for step in sorted(steps):
            now = effective(world.base, job, world.changes, step)
            if before is not None:
                found += [
                    (step, key, before[key][0], value, layer)
                    for key, (value, layer) in sorted(now.items())
                    if before[key][0] != value
                ]
            before = now
    return found
