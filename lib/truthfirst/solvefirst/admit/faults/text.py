"""Faults of the text: figures, rules, priors, and what a setter says too much."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from ....types import Form, PublicView
from ... import candidates
from ... import environment as wrap
from ...environment import Environment
from ...families.base import Entity, Family, Key, Theta, entry
from ...realize import prompt
from .base import Fault, NotApplicable, Patch, Patches, around, listed_in

FAULTS: list[Fault] = []
fault = listed_in(FAULTS)


@fault
def figure_off_by_one(environment: Environment) -> Patches:
    """One figure of the text is one too high."""
    family = environment.family
    field = next(f for f in family.interface.fields if f.unit not in _kinds(family))
    wrong = family.keys(environment.theta, [field])[-1]
    return [around(prompt, "entry", lambda original, theta, key: original(theta, key) + (key == wrong))]


@fault
def rule_off_by_one(environment: Environment) -> Patches:
    """The rules state a constant one too high, while the table of constants is right."""
    scalars = environment.family.interface.scalars
    name = scalars[0].name if scalars else f"n_{environment.family.interface.entities[0].kind}"

    def values(original: Any, *args: Any) -> dict[str, Any]:
        table = original(*args)
        return table | {name: int(table[name]) + 1}

    return [around(prompt, "values", values)]


@fault
def rows_swapped_in_text(environment: Environment) -> Patches:
    """Two rows of a table in the text bear each other's names."""
    family, theta = environment.family, environment.theta
    for field in family.interface.fields:
        for i, j in itertools.combinations(range(family.counts(theta)[field.index[0]]), 2):
            if getattr(theta, field.name)[i] != getattr(theta, field.name)[j]:
                return [_renaming(field.index[0], {i: j, j: i})]
    return NotApplicable("all rows of every table are equal")


def _renaming(kind: str, swap: dict[int, int]) -> Patch:
    def member(original: Any, spec: Any, entity: Entity, index: int) -> str:
        return original(spec, entity, swap.get(index, index) if entity.kind == kind else index)

    return around(prompt, "member", member)


@fault
def table_transposed_in_text(environment: Environment) -> Patches:
    """A table with two indices is printed with its indices exchanged."""
    family, theta = environment.family, environment.theta
    for field in (f for f in family.interface.fields if len(f.index) == 2):
        rows, columns = (family.counts(theta)[kind] for kind in field.index)
        keys = family.keys(theta, [field])
        exchanged = {key: (field.name, key[2] % rows, key[1] % columns) for key in keys}
        if any(entry(theta, key) != entry(theta, other) for key, other in exchanged.items()):
            return [_reading(exchanged)]
    return NotApplicable("no table has two indices and changes when they are exchanged")


def _reading(instead: dict[Key, Key]) -> Patch:
    return around(prompt, "entry", lambda original, theta, key: original(theta, instead.get(key, key)))


@fault
def last_rule_lost(environment: Environment) -> Patches:
    """The last line of the rules, which says what counts, is cut off."""

    def cut(text: str) -> str:
        rules, rest = text.split("\n\nFigures\n", 1)
        return f"{rules[: rules.rindex(chr(10))]}\n\nFigures\n{rest}"

    return [_messages(cut)]


def _messages(change: Callable[[str], str]) -> Patch:
    """Change the text of the instructions."""

    def messages(original: Any, *args: Any) -> Any:
        system, *others = original(*args)
        return ({**system, "content": change(system["content"])}, *others)

    return around(wrap, "messages", messages)


@fault
def priors_exchanged_in_text(environment: Environment) -> Patches:
    """The text gives the typical value as the highest one and the highest as the typical one."""
    return [around(prompt, "published", _exchanged)]


def _exchanged(original: Any, theta: Theta, key: Key) -> tuple[int, int, int]:
    low, high, mean = original(theta, key)
    return low, mean, high


@fault
def figures_rounded_to_tens(environment: Environment) -> Patches:
    """Figures are printed in round tens, as for a report."""

    def display(original: Any, *args: Any) -> str:
        text = original(*args)
        return str(round(int(text), -1)) if text.lstrip("-").isdigit() else text

    return [around(prompt, "display", display)]


@fault
def informed_of_the_means(environment: Environment) -> Patches:
    """Form I shows the published typical values where it should show the true ones."""
    if environment.family.expected(environment.theta, {}) == environment.theta:
        return NotApplicable("every hidden entry is at its typical value")

    def messages(original: Any, family: Family, theta: Theta, spec: Any, form: Form, turns: int) -> Any:
        return original(
            family, family.expected(theta, {}) if form is Form.INFORMED else theta, spec, form, turns
        )

    return [around(wrap, "messages", messages)]


@fault
def budget_misquoted(environment: Environment) -> Patches:
    """The text promises one turn more than there is."""

    def messages(original: Any, family: Family, theta: Theta, spec: Any, form: Form, turns: int) -> Any:
        return original(family, theta, spec, form, turns + 1)

    return [around(wrap, "messages", messages)]


@fault
def optimum_in_the_text(environment: Environment) -> Patches:
    """A remark for the developers, with the optimum in it, stays in the instructions."""

    def view(original: Any, env: Environment, form: Form) -> PublicView:
        seen = original(env, form)
        system, *others = seen.prompt
        text = f"{system['content']}\n\nA perfect plan earns {env.solution.u_star}."
        return dataclasses.replace(seen, prompt=({**system, "content": text}, *others))

    return [around(Environment, "view", view)]


@fault
def hidden_entries_in_the_story(environment: Environment) -> Patches:
    """The setter was handed theta, and tells some of it as local colour."""

    def build(original: Any, *args: Any) -> Environment:
        built = original(*args)
        told = ", ".join(map(str, built.family.hidden(built.theta).values()))
        story = f"{built.spec.scenario} An old page of the book reads {told}."
        return dataclasses.replace(built, spec=built.spec.model_copy(update={"scenario": story}))

    return [around(candidates, "build_candidate", build)]


@fault
def number_invented_by_the_setter(environment: Environment) -> Patches:
    """The setter makes up a quantity that is none of the mechanism's."""

    def build(original: Any, *args: Any) -> Environment:
        built = original(*args)
        brief = f"{built.spec.brief} There are 7131 more in the yard."
        return dataclasses.replace(built, spec=built.spec.model_copy(update={"brief": brief}))

    return [around(candidates, "build_candidate", build)]


def _kinds(family: Family) -> list[str]:
    return [entity.kind for entity in family.interface.entities]
