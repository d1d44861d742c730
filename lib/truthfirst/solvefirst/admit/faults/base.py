"""What a planted fault is: patches of the code that builds and plays an environment.

A fault is written as a function of a healthy environment that returns its patches, or says why there is nothing to
patch; its docstring is the story of what happened to the builder.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ... import score
from ...candidates import rebuild
from ...environment import Environment
from ...families import FAMILIES


@dataclass(frozen=True, slots=True)
class Patch:
    """A replacement: attribute `name` of `owner`, or its item `name` when `owner` is a dict."""

    owner: Any
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why a fault cannot be planted in an environment."""

    reason: str


Patches = Sequence[Patch] | NotApplicable


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a builder goes wrong.

    story     what happened to the builder
    patches   what to replace for this environment, or why there is nothing to replace
    """

    name: str
    story: str
    patches: Callable[[Environment], Patches]

    @contextlib.contextmanager
    def planted(self, environment: Environment) -> Iterator[Environment | NotApplicable]:
        """Build the environment again with the fault in place, and keep it in place meanwhile."""
        patches = self.patches(environment)
        if isinstance(patches, NotApplicable):
            yield patches
            return
        with contextlib.ExitStack() as stack:
            stack.callback(_forget)
            for patch in patches:
                stack.callback(_put, patch.owner, patch.name, _put(patch.owner, patch.name, patch.value))
            _forget()
            yield rebuild(environment.recipe)


def _put(owner: Any, name: str, value: Any) -> Any:
    """Replace an attribute or item and return what was there."""
    if isinstance(owner, dict):
        before, owner[name] = owner[name], value
    else:
        before = getattr(owner, name)
        setattr(owner, name, value)
    return before


def _forget() -> None:
    """Drop solver results that were remembered under another table of families."""
    score._first_action.cache_clear()
    score._value_to_go.cache_clear()


def listed_in(
    faults: list[Fault],
) -> Callable[[Callable[[Environment], Patches]], Callable[[Environment], Patches]]:
    """Return a decorator that enters a fault in a list, under its function's name."""

    def enter(patches: Callable[[Environment], Patches]) -> Callable[[Environment], Patches]:
        story = " ".join((patches.__doc__ or "").split())
        faults.append(Fault(patches.__name__.replace("_", "-"), story, patches))
        return patches

    return enter


def around(owner: Any, name: str, change: Callable[..., Any]) -> Patch:
    """Replace a function or method by change(original, *arguments)."""
    original = getattr(owner, name)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    return Patch(owner, name, replacement)


def of_family(environment: Environment, **changes: Any) -> list[Patch]:
    """Replace functions of the family itself, for everybody who asks the table of families."""
    changed = dataclasses.replace(environment.family, **changes)
    return [Patch(FAMILIES, environment.family_name, changed)]
