"""The workflow: read the shards, bring tensors to one schema, place every shard, settle replicas, merge, index, report.

Semantic work counts what somebody has to get right: a shard's claims, a tensor's name and format, a shard's place, a
replica, a merged tensor.
"""

from __future__ import annotations

from ...world import Stage
from .layout import slots
from .world import DENSE, UNDIVIDED, Checkpoint


def stages(world: Checkpoint) -> tuple[Stage, ...]:
    """Return the stages with their work from the scale of the world."""
    shards = len(world.writers) + len(world.old)
    held = [slot for writer in world.writers for slot in slots(world, writer)]
    dense = {slot.name for slot in held if slot.parameter.group == DENSE}
    copies = [slot for slot in held if slot.parameter.group == DENSE and slot.parameter.axis == UNDIVIDED]
    return (
        Stage("inventory-shards", (), shards),
        Stage("normalize-tensors", ("inventory-shards",), len(held)),
        Stage("place-shards", ("normalize-tensors",), 2 * shards),
        Stage("settle-replicas", ("place-shards",), len(copies)),
        Stage("merge-dense", ("settle-replicas",), len(dense)),
        Stage(
            "merge-experts",
            ("place-shards",),
            len(held) - sum(slot.parameter.group == DENSE for slot in held),
        ),
        Stage("index-weights", ("merge-dense", "merge-experts"), len(world.weights)),
        Stage("package-report", ("index-weights",), 8),
    )
