"""The workflow: profile, then lineage beside repairs, settings, the curve, its divergence and phases, package.

Semantic work counts what somebody has to get right: a log's layout, a resume, a setting, a point, a cause.
"""

from __future__ import annotations

from ...world import Stage
from .world import Run


def stages(world: Run) -> tuple[Stage, ...]:
    """Return the stages with their work from the scale of the world."""
    jobs, points = len(world.jobs), sum(point.phase == "train" for point in world.points)
    settings = (
        sum(len(job.file) + len(job.flags) for job in world.jobs) + len(world.base) + len(world.changes)
    )
    return (
        Stage("profile-logs", (), 2 * jobs),
        Stage("trace-lineage", ("profile-logs",), len(world.checkpoints) + jobs),
        Stage("repair-metrics", ("profile-logs",), points),
        Stage("resolve-settings", ("trace-lineage",), settings),
        Stage("account-waste", ("trace-lineage",), 2 * jobs),
        Stage("stitch-curve", ("repair-metrics", "resolve-settings"), 2 * points),
        Stage("find-divergence", ("stitch-curve",), 9),
        Stage("report-phases", ("stitch-curve",), 4 * jobs),
        Stage("package", ("find-divergence", "report-phases", "account-waste"), 8),
    )
