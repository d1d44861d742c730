"""The sealed truth of a world as JSON, and back: what a grader that travels with its task reads.

A dataclass becomes an object with its class name under "class"; tuples become arrays. Read back, an array is a tuple,
except in the parameters of a defect, which are JSON as they stand. Text and integers are exact, and so are finite
floats, since JSON holds their shortest repr. The order of keys belongs to the truth: what stores this JSON must keep
it. Standard library only: this module travels.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

from ..worldfirst.world import Defect, Sealed, WorldError

CLASS = "class"


def encode(value: Any) -> Any:
    """Return a sealed truth, or any part of one, as JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = {one.name: encode(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {CLASS: type(value).__name__, **told}
    if isinstance(value, tuple | list):
        return [encode(one) for one in value]
    return value


def decode(told: Any, world: ModuleType) -> Sealed:
    """Return the sealed truth that `encode` told; `world` is the generator's module of types.

    Raises WorldError where a class is named that the module does not define.
    """
    kinds = {name: kind for name, kind in vars(world).items() if dataclasses.is_dataclass(kind)}
    sealed = _value(told, kinds | {"Sealed": Sealed})
    if not isinstance(sealed, Sealed):
        raise WorldError(f"a {type(sealed).__name__} is stored where a sealed world should be")
    return sealed


def _value(told: Any, kinds: dict[str, Any]) -> Any:
    if isinstance(told, list):
        return tuple(_value(one, kinds) for one in told)
    if not isinstance(told, dict):
        return told
    if told[CLASS] == "Defect":
        return Defect(**{name: part for name, part in told.items() if name != CLASS})
    if told[CLASS] not in kinds:
        raise WorldError(
            f"the sealed world names a class {told[CLASS]!r}; known are {', '.join(sorted(kinds))}"
        )
    return kinds[told[CLASS]](**{name: _value(part, kinds) for name, part in told.items() if name != CLASS})
