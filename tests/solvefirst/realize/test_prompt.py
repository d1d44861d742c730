"""The instructions: complete in every form, exact in every number, and silent about what is hidden."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Field, entry, published
from truthfirst.solvefirst.realize.prompt import instructions, messages
from truthfirst.types import Form


def text(environment: Environment, form: Form, theta: Any = None, turns: int = 30) -> str:
    return instructions(
        environment.family, environment.theta if theta is None else theta, environment.spec, form, turns
    )


def block(prompt: str, opening: str) -> list[list[str]]:
    """Return the cells of the pipe table below the line that starts with `opening`; [] when there is none."""
    found = re.search(rf"(?m)^{re.escape(opening)} .*\n((?:.*\|.*(?:\n|\Z))+)", prompt)
    return [[cell.strip() for cell in row.split("|")] for row in found.group(1).splitlines()] if found else []


def spoken(environment: Environment, field: Field, value: int) -> str:
    """Return a value as the text should state it: a member's name where the unit is a named kind."""
    named = {e.kind for e in environment.family.interface.entities if not e.ordinal}
    if field.unit not in named:
        return str(value)
    return "none" if value < 0 else environment.spec.entities[field.unit].names[value]


def test_every_number_stands_in_its_form_and_no_other(environment: Environment) -> None:
    family, theta, spec = environment.family, environment.theta, environment.spec
    counts = family.counts(theta)
    prompts = {form: text(environment, form) for form in Form}
    for field in family.interface.fields:
        shape = [range(counts[kind]) for kind in field.index]
        wanted = {
            index: spoken(environment, field, entry(theta, (field.name, *index)))
            for index in itertools.product(*shape)
        }
        for form, prompt in prompts.items():
            rows = block(prompt, f"[{spec.fields[field.name].column}]")
            if field.hidden and form is Form.AGENTIC:
                assert rows == []
                continue
            cells = rows if len(shape) == 1 else rows[1:]
            stated = {index: cells[index[0]][1 + index[1] if len(index) > 1 else 1] for index in wanted}
            assert stated == wanted, (field.name, form)
    for prompt in prompts.values():
        constants = dict(block(prompt, "[constants]"))
        for scalar in family.interface.scalars:
            assert constants[spec.fields[scalar.name].column] == str(getattr(theta, scalar.name))


def test_form_a_publishes_the_prior_of_every_hidden_entry(environment: Environment) -> None:
    family, theta, spec = environment.family, environment.theta, environment.spec
    for field in family.interface.hidden_fields:
        rows = block(text(environment, Form.AGENTIC), f"({spec.fields[field.name].column})")[1:]
        for key in family.keys(theta, [field]):
            row = rows[0] if len(rows) == 1 else rows[key[-1]]
            assert tuple(map(int, row[1:])) == published(theta, key)


def test_form_a_does_not_depend_on_hidden_entries(environment: Environment) -> None:
    for seed in range(3):
        twin = environment.family.redraw(environment.theta, np.random.default_rng(seed))
        assert twin != environment.theta
        assert text(environment, Form.AGENTIC, twin) == text(environment, Form.AGENTIC)
        for form in (Form.WRITTEN, Form.INFORMED):
            assert text(environment, form, twin) != text(environment, form)


def test_what_each_form_says_about_acting(environment: Environment) -> None:
    written, informed, agentic = (text(environment, form) for form in Form)
    for prompt in (informed, agentic):
        assert "You have 30 turns" in prompt
        for tool in environment.toolbox.schemas():
            assert f"- {tool.name}({', '.join(tool.parameters['properties'])}): {tool.description}" in prompt
        for table in environment.spec.tables.values():
            assert re.search(rf"(?m)^{table}\(", prompt)
    assert "turns" not in written.split("Your answer\n")[1].split("\n")[0]
    assert "one JSON list" in written
    for tool in environment.toolbox.schemas():
        assert (f'["{tool.name}"' in written) == (tool.kind == "decision")


def test_the_setters_words_frame_the_text(environment: Environment) -> None:
    spec = environment.spec
    for form in Form:
        prompt = text(environment, form)
        assert prompt.startswith(f"{spec.title}\n\n{spec.scenario}\n\n")
        assert prompt.endswith(spec.closing)
        assert "{" not in prompt
        assert "}" not in prompt


def test_messages_are_a_chat(environment: Environment) -> None:
    for form in Form:
        system, user = messages(environment.family, environment.theta, environment.spec, form, 30)
        assert system == {"role": "system", "content": text(environment, form)}
        assert user["role"] == "user"
        assert ("plan" in user["content"]) == (form is Form.WRITTEN)


def test_counts_and_public_constants_are_told_in_words_too(candidate: Callable[..., Environment]) -> None:
    environment = candidate("rationing")
    rules = text(environment, Form.AGENTIC).split("Rules\n")[1].split("\n\n")[0]
    theta, spec = environment.theta, environment.spec
    for words in (
        f"{theta.budget} {spec.goods}",
        f"{theta.decline} {spec.money}",
        f"{theta.limit} {spec.goods}",
    ):
        assert words in rules


@pytest.mark.parametrize("name", FAMILIES)
def test_every_phrasing_of_every_rule_is_used(name: str, candidate: Callable[..., Environment]) -> None:
    environment = candidate(name)
    rules = [
        instructions(
            environment.family,
            environment.theta,
            environment.spec.model_copy(update={"phrasing": phrasing}),
            Form.WRITTEN,
            0,
        )
        .split("Rules\n")[1]
        .split("\n\n")[0]
        .splitlines()
        for phrasing in range(0, 3_000, 97)
    ]
    texts = environment.family.texts
    for position, options in enumerate((*texts.rules, texts.goal)):
        assert len(options) >= 2
        assert len({rule[position] for rule in rules}) == len(options), position
    assert len({tuple(rule) for rule in rules}) >= 4
