"""Instances of the solve-first wing as keys of the data: the canonical JSON of a recipe, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from ..records import RecordError, canonical_json
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.environment import Environment


def recipe_keys(recipes: Iterable[Recipe]) -> list[tuple[str, str]]:
    """Return (key, family) of each recipe, as `environments.task_set` takes them."""
    return [(canonical_json(asdict(recipe)), recipe.family) for recipe in recipes]


def open_recipe(key: str) -> Environment:
    """Build the environment of a key again; raise RecordError for text that is no recipe."""
    try:
        recipe = Recipe(**json.loads(key))
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"instance key {key[:80]!r} is no recipe ({error}); see solvefirst.candidates"
        ) from error
    return build_candidate(recipe)
