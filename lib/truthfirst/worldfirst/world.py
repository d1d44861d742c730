"""The types that the roles of a generator share. Nothing here computes anything.

A generator makes, in this order::

    world W -> workflow -> clean files -> defect plan -> damaged files s0 + prompt
            -> verifier, progress (both anchored in W) | reference, alternative (both see s0 only)

The verifier, the progress scorer and the two solvers may share this module's types (and those of their own generator's
`world.py`) and nothing else of ours: `closure.py` audits that, and that these modules hold types only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

Files = Mapping[str, bytes]  # relative path with "/" -> content
TIERS = ("nano", "unit", "small", "full")
INPUT, OUTPUT = "input/", "output/"
Format = Literal["csv", "tsv", "json", "jsonl", "safetensors"]


class WorldError(ValueError):
    """A generator is at fault: its world, its plan or its files are not what it declares."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the workflow.

    after    names of the stages it needs
    work     semantic work in units of decisions that somebody has to get right, computed from the scale of W
    """

    name: str
    after: tuple[str, ...]
    work: int


@dataclass(frozen=True, slots=True)
class Defect:
    """One declared act of damage: an operator applied to the file at `path`.

    kind         the corruption class, in words a reader of the coverage table understands
    parameters   JSON; together with the damaged file they suffice for the exact inverse
    """

    kind: str
    operator: str
    path: str
    parameters: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deliverable:
    """One file that the agent must write, as the public contract states it.

    path     starts with output/
    columns  of a table in order, or the top-level keys of a JSON object (empty: the keys are data)
    rule     one line: what stands in it and how rows or keys are ordered
    ordered  whether the order of rows is part of the answer; if not, graders accept any
    """

    path: str
    format: Format
    columns: tuple[str, ...]
    rule: str
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A checkable state of the output: weight w_v > 0 (integer), direct prerequisites, and the stage it belongs to."""

    name: str
    weight: int
    stage: str
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the strict verifier says: every component by name, and why the first ones failed."""

    components: dict[str, bool]
    reasons: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return all(self.components.values())


@dataclass(frozen=True, slots=True)
class Sealed:
    """What only graders see: the world (a frozen dataclass of the generator) and the defect plan."""

    world: Any
    plan: tuple[Defect, ...]


Verify = Callable[[Files], Verdict]  # files under output/ -> verdict
Grade = Callable[
    [Files], dict[str, Fraction]
]  # files under output/ -> partial score c_v of every node, in [0, 1]
