"""Presets: how much work a notebook does, chosen by one word that is recorded with the run.

A notebook declares `preset = "cpu"` in its parameters cell and resolves it once, in the next cell::

    size = presets.resolve(preset)

and then reads numbers (`size.instances`, `size.workers`, ...) instead of branching on the word. `smoke` proves that
every cell runs, in seconds; `cpu` is what `make study` runs on a laptop with two cores; `gpu` is for a workstation or
a node. A preset promises amounts of work, not a runtime.
"""

from __future__ import annotations

from dataclasses import dataclass


class UnknownPreset(ValueError):
    """A preset does not exist; the message lists those that do."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The numbers behind one word.

    name       of the preset
    instances  of a mechanism for each cell of a design, such as family × size × budget
    sizes      names of mechanism sizes, smallest first
    seeds      independent repetitions of whatever is random beside the instances (training, policies)
    workers    processes that one notebook may use
    """

    name: str
    instances: int
    sizes: tuple[str, ...]
    seeds: int
    workers: int


_EVERY_SIZE = ("nano", "small", "medium", "large", "huge", "long")

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("smoke", instances=2, sizes=("nano", "small"), seeds=1, workers=1),
        Preset("cpu", instances=20, sizes=_EVERY_SIZE, seeds=3, workers=2),
        Preset("gpu", instances=200, sizes=_EVERY_SIZE, seeds=5, workers=8),
    )
}


def resolve(preset: str) -> Preset:
    """Return the numbers of a preset; raise UnknownPreset that lists the presets."""
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UnknownPreset(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]
