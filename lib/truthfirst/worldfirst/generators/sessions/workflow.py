"""The workflow: profile, then clocks beside visitors, clean, cut into sessions, attribute, report, package.

Semantic work counts what somebody has to get right: a file's layout, a clock's lead, an identity, an event, a total.
"""

from __future__ import annotations

from ...world import Stage
from .world import SOURCES, Traffic


def stages(world: Traffic) -> tuple[Stage, ...]:
    """Return the stages with their work from the scale of the world."""
    files, events = len(SOURCES) * len(world.days), sum(not event.refused for event in world.events)
    tokens = {event.token for event in world.events}
    purchases = sum(event.type == "purchase" for event in world.events)
    return (
        Stage("profile-sources", (), 2 * files),
        Stage("align-clocks", ("profile-sources",), len(world.nodes) * len(world.beats)),
        Stage(
            "resolve-visitors",
            ("profile-sources",),
            len(tokens) + len(world.merges),
        ),
        Stage("clean-events", ("align-clocks", "resolve-visitors"), 2 * events),
        Stage("sessionise", ("clean-events",), events),
        Stage("attribute", ("sessionise",), 2 * purchases),
        Stage("report", ("attribute",), 4 * len(world.days) + 4 * len(world.campaigns)),
        Stage("package", ("report",), 8),
    )
