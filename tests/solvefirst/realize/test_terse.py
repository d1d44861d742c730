"""The terse setter: few words, every gate."""

from __future__ import annotations

import pytest

from truthfirst.solvefirst.admit.gates import admit
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.types import Form


def candidate(family: str, size: str, setter: str = "terse") -> Environment:
    for index in range(40):
        found = build_candidate(Recipe(family, size, index=index, setter=setter))
        if found.solution.span >= found.solution.required_margin:
            return found
    raise AssertionError(f"no {family} at {size} has a margin")


@pytest.mark.parametrize("size", ["nano", "small"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_admitted_in_few_words(family: str, size: str) -> None:
    environment = candidate(family, size)
    verdict = admit(environment)
    assert verdict.admitted, (verdict.gate, verdict.evidence)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mechanism_is_that_of_the_other_setters(family: str) -> None:
    terse, told = (candidate(family, "nano", setter) for setter in ("terse", "template"))
    assert terse.theta == told.theta
    assert terse.solution == told.solution
    assert terse.turn_budget == told.turn_budget
    kinds = [[tool.kind for tool in one.view(Form.AGENTIC).tools] for one in (terse, told)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_family_has_one_casting(family: str) -> None:
    specs = [
        build_candidate(Recipe(family, "nano", index=index, setter="terse")).spec.model_copy(
            update={"domain": "x", "passage": "x"}
        )
        for index in range(6)
    ]
    assert len({spec.model_dump_json() for spec in specs}) == 1


def test_names_of_different_kinds_never_meet() -> None:
    for family in FAMILIES:
        spec = candidate(family, "huge" if family == "transport" else "nano").spec
        names = [name for words in spec.entities.values() for name in words.names]
        assert len(set(names)) == len(names)
