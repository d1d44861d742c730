"""Reading from the player's side: by names, never by position, and nothing is believed that is stated twice."""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from collections.abc import Callable

import pytest

from truthfirst.solvefirst.admit.reading import Reader, ReadingError, blocks_of, render
from truthfirst.solvefirst.admit.trials import database_of, reader_of
from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families.base import Action, entry
from truthfirst.solvefirst.realize.tools import Probe
from truthfirst.types import Form

Candidate = Callable[..., Environment]


@pytest.fixture(scope="module")
def lots(candidate: Candidate) -> Environment:
    return candidate("lot_sizing", "small", domain="mining")


@pytest.fixture(scope="module")
def reader(lots: Environment) -> Reader:
    return reader_of(lots)


@pytest.fixture(scope="module")
def text(lots: Environment) -> str:
    return lots.view(Form.INFORMED).prompt[0]["content"]


def block(reader: Reader, text: str, field: str) -> str:
    column = reader.spec.fields[field].column
    return text[text.index(f"[{column}]") :].split("\n\n", 1)[0]


# --- what it reads is the truth ---------------------------------------------------------------------------------
def test_form_i_states_theta(environment: Environment) -> None:
    family, theta = environment.family, environment.theta
    stated = reader_of(environment).figures(environment.view(Form.INFORMED).prompt[0]["content"])
    keys = family.keys(theta, family.interface.fields)
    scalars = {(s.name,): getattr(theta, s.name) for s in family.interface.scalars}
    assert stated == scalars | {key: entry(theta, key) for key in keys}


def test_form_a_and_the_database_state_what_is_public(environment: Environment) -> None:
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    text = environment.view(Form.AGENTIC).prompt[0]["content"]
    with database_of(environment) as database:
        figures, priors = reader.tables(database)
    assert figures == reader.figures(text)
    assert priors == reader.priors(text) == family.prior(theta)
    assert not figures.keys() & family.hidden(theta).keys()


def test_calls_are_read_by_the_environment_as_meant(environment: Environment) -> None:
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    for key in family.probe_keys(theta):
        assert environment.toolbox.read(*reader.call(Probe(key))) == Probe(key)
    for action in environment.solution.plan:
        assert environment.toolbox.read(*reader.call(action)) == action


def test_covering_calls_meet_every_member(reader: Reader, lots: Environment) -> None:
    met = [one.key[1:] for one in reader.covering("demand") if isinstance(one, Probe)]
    counts = lots.family.counts(lots.theta)
    assert {period for period, _ in met} == set(range(counts["period"]))
    assert {item for _, item in met} == set(range(counts["item"]))
    assert list(reader.covering("make", amount=9)) == [Action("make", (9,))]


# --- names, not positions ---------------------------------------------------------------------------------------
def test_rows_in_another_order_state_the_same(reader: Reader, text: str) -> None:
    head, *rows = block(reader, text, "setup").split("\n")
    turned = text.replace("\n".join([head, *rows]), "\n".join([head, *reversed(rows)]))
    assert turned != text
    assert reader.figures(turned) == reader.figures(text)


def test_columns_in_another_order_state_the_same(reader: Reader, text: str) -> None:
    old = block(reader, text, "demand")
    head, *rows = old.split("\n")
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    turned = "\n".join([head, *(" | ".join([row[0], *reversed(row[1:])]) for row in cells)])
    assert reader.figures(text.replace(old, turned)) == reader.figures(text)


def test_swapped_row_names_state_something_else(reader: Reader, text: str, lots: Environment) -> None:
    old = block(reader, text, "setup")
    one, two = reader.members["period"][:2]
    one, two = (next(re.finditer(re.escape(name), old, re.IGNORECASE)).group() for name in (one, two))
    new = old.replace(one, "?").replace(two, one).replace("?", two)
    stated = reader.figures(text.replace(old, new))
    assert stated[("setup", 0)] == lots.theta.setup[1]
    assert stated[("setup", 1)] == lots.theta.setup[0]


# --- what cannot be believed --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda block: f"{block}\n{block.splitlines()[-1]}", "is stated twice"),
        (lambda block: block.replace(block.splitlines()[-1].split(" |")[0], "Nowhere"), "is no period"),
        (lambda block: f"{block}5.5", "is not a whole number"),
        (lambda block: f"{block} | 3", "cells"),
        (lambda block: f"{block}\n\n{block}", "is stated twice"),
    ],
)
def test_unreadable_figures_are_named(
    reader: Reader, text: str, change: Callable[[str], str], message: str
) -> None:
    old = block(reader, text, "setup")
    with pytest.raises(ReadingError, match=message):
        reader.figures(text.replace(old, change(old)))


def test_an_unknown_constant_is_named(reader: Reader, text: str) -> None:
    column = reader.spec.fields["holding"].column
    with pytest.raises(ReadingError, match="is no constant"):
        reader.figures(text.replace(f"\n{column} |", "\nsurcharge |"))


def test_an_unknown_heading_of_priors_is_named(reader: Reader, lots: Environment) -> None:
    told = lots.view(Form.AGENTIC).prompt[0]["content"]
    with pytest.raises(ReadingError, match="is not a heading"):
        reader.priors(told.replace("| lowest | highest | typical", "| least | highest | typical"))


def test_a_missing_prior_is_named(candidate: Candidate) -> None:
    environment = candidate("rationing", "small")
    reader, told = reader_of(environment), environment.view(Form.AGENTIC).prompt[0]["content"]
    row = next(line for line in told.split("\n") if line.startswith(f"{reader.members['item'][2]} | "))
    with pytest.raises(ReadingError, match="nothing is published of value"):
        reader.priors(told.replace(f"\n{row}", ""))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ('ALTER TABLE "{period}" ADD COLUMN remark INTEGER', "nothing explains"),
        ("INSERT INTO \"{terms}\" VALUES ('lucky number', 7)", "nothing explains"),
        ('UPDATE "{period}" SET id = id + 100', "numbers its rows differently"),
        ('DROP TABLE "{period}"', "cannot be read"),
    ],
)
def test_unreadable_tables_are_named(reader: Reader, lots: Environment, statement: str, message: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(lots.database)
    connection.execute(statement.format(**lots.spec.tables))
    with pytest.raises(ReadingError, match=message):
        reader.tables(connection)
    connection.close()


# --- small parts ----------------------------------------------------------------------------------------------
def test_references_are_read_by_name(candidate: Candidate) -> None:
    environment = candidate("project_selection", "small")
    reader = reader_of(environment)
    assert reader.shown("item", -1) == "none"
    assert reader.shown("item", 0) == environment.spec.entities["item"].names[0]
    assert reader.shown("money", -3) == "-3"


def test_placeholders_stand_for_something() -> None:
    assert render("{a} and {b}", {"a": "{b}", "b": "2"}) == "{b} and 2"
    with pytest.raises(ReadingError, match="stands for nothing"):
        render("{c}", {})


def test_a_count_of_one_takes_the_singular(reader: Reader) -> None:
    words = reader.spec.entities["item"]
    single = dataclasses.replace(reader, counts=reader.counts | {"item": 1})
    assert single.said(f"the 1 {words.plural} here") == f"the 1 {words.singular} here"
    assert reader.said(f"the 1 {words.plural} here") == f"the 1 {words.plural} here"


def test_blocks_end_at_an_empty_line() -> None:
    told = "[a] one\nx | 1\n(b) two\ny | 2\n\nz | 3"
    assert blocks_of(told, "[") == {"a": ("[a] one", ["x | 1"])}
    assert blocks_of(told, "(") == {"b": ("(b) two", ["y | 2"])}
