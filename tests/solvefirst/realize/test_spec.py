"""WorldSpec: data with narrow types, complete and unique names, and texts that are filled exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.realize.spec import (
    RESERVED,
    SpecError,
    WorldSpec,
    check_spec,
    fill,
    table_roles,
    words,
)


@pytest.fixture(scope="module")
def rationing(candidate: Callable[..., Environment]) -> Environment:
    return candidate("rationing", "source", "ample")


def changed(spec: WorldSpec, path: str, value: Any) -> WorldSpec:
    """Return the spec with the part at `path` (keys joined by dots) replaced, or removed if value is None."""
    data = spec.model_dump()
    *parents, last = path.split(".")
    part = data
    for key in parents:
        part = part[key]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return WorldSpec.model_validate(data)


def check(environment: Environment, path: str, value: Any) -> None:
    check_spec(
        changed(environment.spec, path, value),
        environment.family,
        environment.family.counts(environment.theta),
    )


# --- narrow types -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tables.ledger", 'x"; DROP TABLE y; --'),
        ("tables.ledger", "Ledger"),
        ("tables.ledger", ""),
        ("tables.ledger", "a" * 41),
        ("tables.ledger", "café"),
        ("tools.spend.name", "spend units"),
        ("tools.spend.name", "__import__"),
        ("tools.spend.arguments", {"amount": "sql injection"}),
        ("fields.value.column", "1st"),
        ("fields.value.label", "<b>bold</b>"),
        ("fields.value.label", "two\nlines"),
        ("fields.value.label", "pipe | table"),
        ("entities.item.names", ["One|Two", "Three"]),
        ("entities.item.names", ["One\nTwo", "Three"]),
        ("entities.item.names", ["", "Three"]),
        ("scenario", ""),
        ("scenario", "with `code`"),
        ("scenario", "with <tag>"),
        ("scenario", "with \x00"),
        ("scenario", "x" * 4_001),
        ("brief", "bell \x07"),
        ("closing", "two\nlines"),
        ("money", "coins | notes"),
        ("phrasing", -1),
        ("phrasing", 0.5),
        ("unknown", "part"),
        ("tools.spend.code", "print(1)"),
    ],
)
def test_what_does_not_fit_is_refused(rationing: Environment, path: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        changed(rationing.spec, path, value)
    assert set(path.split(".")) & {str(part) for error in caught.value.errors() for part in error["loc"]}


def test_a_spec_is_frozen_and_round_trips(environment: Environment) -> None:
    assert WorldSpec.model_validate_json(environment.spec.model_dump_json()) == environment.spec
    with pytest.raises(ValidationError, match="frozen"):
        environment.spec.title = "new"


# --- complete and unique ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "value", "evidence"),
    [
        ("entities.item", None, "entities: missing ['item']"),
        ("fields.value", None, "fields: missing ['value']"),
        ("fields.extra", {"column": "extra", "label": "extra"}, "not known ['extra']"),
        ("tools.query", None, "tools: missing ['query']"),
        ("tables.readings", None, "tables: missing ['readings']"),
        ("tools.spend.arguments", {}, "arguments of spend: missing ['amount']"),
        ("tools.value.arguments", {"period": "same", "item": "same"}, "arguments of value must be unique"),
        ("entities.item.names", ["Only One"], "entity kind 'item' has 1 names, needs 2"),
        ("entities.period.names", ["First"], "entity kind 'period' has 1 names, needs 0"),
        ("entities.item.names", ["Twin", "TWIN"], "names of item must be unique, used twice: ['twin']"),
        ("entities.item.names", ["Old Mill", "Old  mill"], "names of item must be unique"),
        ("tables.ledger", "select", "'select' is an SQL keyword"),
        ("fields.value.column", "turn", "'turn' is an SQL keyword or a reserved column"),
        ("brief", "We hold {treasure} units.", "brief uses unknown placeholder {treasure}"),
        ("brief", "Hidden: {value}.", "brief uses unknown placeholder {value}"),
    ],
)
def test_what_is_missing_or_double_is_named(
    rationing: Environment, path: str, value: Any, evidence: str
) -> None:
    with pytest.raises(SpecError) as caught:
        check(rationing, path, value)
    assert evidence in str(caught.value)


def test_names_of_tools_tables_and_columns_are_unique(rationing: Environment) -> None:
    spec = rationing.spec
    for path, value in (
        ("tools.spend.name", spec.tools["query"].name),
        ("tables.ledger", spec.tables["terms"]),
        ("fields.value.column", spec.fields["budget"].column),
    ):
        with pytest.raises(SpecError, match=f"must be unique, used twice: \\['{value}'\\]"):
            check(rationing, path, value)


def test_a_sound_spec_passes_and_its_roles_are_the_tables(environment: Environment) -> None:
    check_spec(environment.spec, environment.family, environment.family.counts(environment.theta))
    roles = table_roles(environment.family)
    assert roles == set(environment.spec.tables)
    assert len(roles) >= 3
    assert not RESERVED & set(environment.spec.tables.values())


# --- filling texts ----------------------------------------------------------------------------------------
def test_values_are_never_expanded_again() -> None:
    assert fill("{a} and {b}", {"a": "{b}", "b": "{a}"}) == "{b} and {a}"
    assert (
        fill("{a.__class__} {a!r} {} {a:9}", {"a": 1}) == "{a.__class__} {a!r} {} {a:9}"
    )  # nothing is evaluated


@given(st.text(max_size=30), st.text(max_size=10))
def test_filling_replaces_exactly_the_known_names(text: str, value: str) -> None:
    plain = text.replace("{", "(").replace("}", ")")
    assert fill(f"{plain}{{x}}{plain}", {"x": value}) == f"{plain}{value}{plain}"


def test_an_unknown_placeholder_is_named() -> None:
    with pytest.raises(SpecError, match=r"unknown placeholder \{b\}"):
        fill("{a} {b}", {"a": 1})


def test_words_hold_every_form_of_every_entity(rationing: Environment) -> None:
    table = words(rationing.spec, {"period": 3, "item": 2})
    item = rationing.spec.entities["item"]
    assert (table["item"], table["items"], table["n_item"]) == (item.singular, item.plural, 2)
    assert table["Item"] == item.singular[0].upper() + item.singular[1:]
    assert table["tool_spend"] == rationing.spec.tools["spend"].name
    assert table["label_budget"] == rationing.spec.fields["budget"].label
