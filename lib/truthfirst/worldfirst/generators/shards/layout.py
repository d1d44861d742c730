"""Who saves what: the tensors of each writer's shard, by local name, and where they lie in the whole tensor.

For sampling, rendering and damage only; the graders and the solvers work it out for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .world import DENSE, EVERY, FIRST, UNDIVIDED, Checkpoint, Parameter, Weight, Writer


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of a shard.

    local    its name there: the first number counts the stage's layers, the second the rank's experts
    name     its global name
    rank     which part of the whole it is; 0 of 1 for tensors that are not divided
    """

    local: str
    name: str
    parameter: Parameter
    rank: int
    ranks: int


def fill(pattern: str, *numbers: int) -> str:
    """Return a parameter's name with its stars replaced in order."""
    for number in numbers:
        pattern = pattern.replace("*", str(number), 1)
    return pattern


def slots(world: Checkpoint, writer: Writer) -> tuple[Slot, ...]:
    """Return the tensors that a writer saves, in order: by parameter, layer, expert."""
    found = []
    for parameter in world.parameters:
        if parameter.group == writer.group:
            divided = parameter.group == DENSE and parameter.axis != UNDIVIDED
            place = (writer.rank, world.ranks) if divided else (0, 1)
            found += [Slot(*pair, parameter, *place) for pair in _pairs(world, writer, parameter)]
    return tuple(found)


def _pairs(world: Checkpoint, writer: Writer, parameter: Parameter) -> Iterator[tuple[str, str]]:
    """Yield (local name, global name) of what a writer holds of a parameter."""
    if parameter.stages != EVERY:
        if writer.stage == (0 if parameter.stages == FIRST else len(world.stages) - 1):
            yield parameter.name, parameter.name
        return
    for place, layer in enumerate(world.stages[writer.stage]):
        if parameter.group == DENSE:
            yield fill(parameter.name, place), fill(parameter.name, layer)
        else:
            for number, expert in enumerate(world.experts[writer.rank]):
                yield fill(parameter.name, place, number), fill(parameter.name, layer, expert)


def names(world: Checkpoint) -> tuple[tuple[str, Parameter], ...]:
    """Return every global name with its parameter: by parameter, layer, expert."""
    layers, experts = range(sum(map(len, world.stages))), range(sum(map(len, world.experts)))
    found = []
    for parameter in world.parameters:
        if parameter.stages != EVERY:
            found.append((parameter.name, parameter))
        elif parameter.group == DENSE:
            found += [(fill(parameter.name, layer), parameter) for layer in layers]
        else:
            found += [
                (fill(parameter.name, layer, expert), parameter) for layer in layers for expert in experts
            ]
    return tuple(found)


def whole(weight: Weight) -> np.ndarray:
    """Return a weight as an array of its shape."""
    return np.array(weight.values, dtype=np.int64).reshape(weight.shape)


def part(array: np.ndarray, slot: Slot) -> np.ndarray:
    """Return a slot's part of the whole; the last part is padded with zeros where the ranks do not divide the axis."""
    axis = max(slot.parameter.axis, 0)
    size = -(-array.shape[axis] // slot.ranks)
    cut = np.take(array, range(slot.rank * size, min((slot.rank + 1) * size, array.shape[axis])), axis=axis)
    if short := size - cut.shape[axis]:
        cut = np.pad(cut, [(0, short if place == axis else 0) for place in range(cut.ndim)])
    return cut


def join(parts: Sequence[np.ndarray], parameter: Parameter, vocabulary: int) -> np.ndarray:
    """Return the whole tensor of its parts in order of rank: the inverse of `part`."""
    if parameter.axis == UNDIVIDED or parameter.group != DENSE:
        return parts[0]
    joined = np.concatenate(parts, axis=parameter.axis)
    return joined if parameter.stages == EVERY else joined[:vocabulary]
