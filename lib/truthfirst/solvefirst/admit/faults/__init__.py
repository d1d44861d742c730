"""The planted faults: real ways in which a builder of environments goes wrong, in the order of the pipeline.

A fault looks for something that it would change in an environment and says so where there is nothing; whether a
change that it makes is ever seen or earned is for `mutations.verdict` to find out.
"""

from __future__ import annotations

from . import building, episode, sealed, tables, text, tools
from .base import Fault, NotApplicable, Patch

FAULTS: tuple[Fault, ...] = tuple(
    fault for module in (sealed, text, tables, tools, episode, building) for fault in module.FAULTS
)

__all__ = ["FAULTS", "Fault", "NotApplicable", "Patch"]
