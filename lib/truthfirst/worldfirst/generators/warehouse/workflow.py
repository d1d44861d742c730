"""The workflow: profile, then reconcile facts beside dimensions, load, aggregate, package.

Semantic work counts what somebody has to get right: a file's layout, a record's identity, a repair, a total.
"""

from __future__ import annotations

from ...world import Stage
from .world import Warehouse


def stages(world: Warehouse) -> tuple[Stage, ...]:
    """Return the stages with their work from the scale of the world."""
    files, sales = len(world.partitions), len(world.sales)
    dimensions = len(world.customers) + len(world.contacts) + len(world.products)
    return (
        Stage("profile-sources", (), 2 * files),
        Stage("reconcile-facts", ("profile-sources",), sales),
        Stage("normalize-dimensions", ("profile-sources",), dimensions),
        Stage("load-facts", ("reconcile-facts", "normalize-dimensions"), sales + len(world.prices)),
        Stage("aggregate-validate", ("load-facts",), 20 * files),
        Stage("package-sidecars", ("aggregate-validate",), 8),
    )
