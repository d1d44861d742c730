"""The checkpoint world: a model's weights at one step, who saved which part, and shards of other steps. Types only.

Values are integers k; a floating format stores k / 64. A tensor's values are flat, in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DENSE, EXPERT = "dense", "expert"
FIRST, LAST, EVERY = "first", "last", "every"
UNDIVIDED = -1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A row of the parameter table.

    name    dotted; "*" stands for a layer, a second one for an expert
    group   dense: divided or copied over the tensor-parallel ranks; expert: each expert lies on one rank
    dtype   the format in which it counts
    axis    along which it is divided over the ranks; UNDIVIDED where every rank holds all of it, and for experts
    stages  pipeline stages that hold it: first, last or every
    """

    name: str
    group: str
    dtype: str
    axis: int
    stages: str


@dataclass(frozen=True, slots=True)
class Writer:
    """A process that saves one shard a step: a pipeline stage, and a rank within its group."""

    id: str
    group: str
    stage: int
    rank: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A version of the key names: (segment of this version, canonical segment) wherever the two differ."""

    version: int
    segments: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A whole tensor of the model under its global name."""

    name: str
    shape: tuple[int, ...]
    values: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OldShard:
    """A shard of another step: an older one, or a newer one that was never completed.

    values   one tuple a tensor, in the order in which the writer saves them
    """

    step: int
    writer: str
    values: tuple[tuple[int, ...], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The whole truth.

    run          prefix of file names
    step         the last step that every writer completed
    vocabulary   rows of the parameters that the first and the last stage divide along axis 0
    ranks        tensor-parallel ranks
    stages       for each pipeline stage its layers, in local order
    experts      for each expert rank its experts, in local order
    writers      in the order in which they are listed: dense ones first, by stage and rank
    """

    run: str
    step: int
    vocabulary: int
    ranks: int
    stages: tuple[tuple[int, ...], ...]
    experts: tuple[tuple[int, ...], ...]
    parameters: tuple[Parameter, ...]
    schemas: tuple[Schema, ...]
    writers: tuple[Writer, ...]
    weights: tuple[Weight, ...]
    old: tuple[OldShard, ...]
