"""Faults of the building itself: what is not reproducible, not checked, or filed under the wrong name."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from ... import candidates
from ... import environment as wrap
from ...environment import Environment
from ...realize import setter
from .base import Fault, NotApplicable, Patch, Patches, around, listed_in

FAULTS: list[Fault] = []
fault = listed_in(FAULTS)


@fault
def stamp_in_the_text(environment: Environment) -> Patches:
    """Every build puts a fresh reference number under the instructions."""

    def messages(original: Any, *args: Any) -> Any:
        system, *others = original(*args)
        return ({**system, "content": f"{system['content']}\n\nReference {uuid.uuid4()}"}, *others)

    return [around(wrap, "messages", messages)]


@fault
def recipe_of_the_neighbour(environment: Environment) -> Patches:
    """The environment is filed under the recipe of the next one."""

    def build(original: Any, recipe: candidates.Recipe, *args: Any) -> Environment:
        built = original(recipe, *args)
        return dataclasses.replace(built, recipe=built.recipe | {"index": recipe.index + 1})

    return [around(candidates, "build_candidate", build)]


@fault
def name_used_twice(environment: Environment) -> Patches:
    """The setter gives two members one name, in another case, and its own check was switched off."""
    if not any(len(words.names) > 1 for words in environment.spec.entities.values()):
        return NotApplicable("no entity kind has two names")

    def names(original: Any, *args: Any) -> tuple[str, ...]:
        chosen = original(*args)
        return (*chosen[:-1], chosen[0].upper()) if len(chosen) > 1 else chosen

    return [around(setter, "_names", names), Patch(setter, "check_spec", lambda *args: None)]
