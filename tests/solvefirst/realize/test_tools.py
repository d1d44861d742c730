"""Tools: sound schemas, calls that read back as they are written, and refusals that say what would be right."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families.base import Action
from truthfirst.solvefirst.realize.tools import MAX_QUERY_CHARACTERS, Probe, Query, Refusal, Toolbox


@pytest.fixture(scope="module")
def rationing(candidate: Callable[..., Environment]) -> Environment:
    return candidate("rationing", "small", domain="baking")


def some_actions(environment: Environment, most: int = 200) -> list[Action]:
    moves = environment.family.legal(environment.theta, environment.family.start(environment.theta))
    return list(itertools.islice(itertools.chain.from_iterable(moves), most))


# --- schemas ----------------------------------------------------------------------------------------------
def test_schemas_are_valid_and_accept_exactly_what_is_read(environment: Environment) -> None:
    toolbox, schemas = environment.toolbox, {s.name: s for s in environment.toolbox.schemas()}
    calls = [Probe(key) for key in environment.family.probe_keys(environment.theta)]
    for call in (*calls, *some_actions(environment), Query("SELECT 1")):
        name, arguments = toolbox.write(call)
        schema = schemas[name]
        jsonschema.Draft202012Validator.check_schema(schema.parameters)
        jsonschema.validate(arguments, schema.parameters)
        json.dumps(schema.openai(), allow_nan=False)
        assert toolbox.read(name, json.loads(json.dumps(arguments))) == call
        for wrong in ({**arguments, "more": 1}, {}, [arguments]):
            if wrong != arguments:
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.validate(wrong, schema.parameters)
                with pytest.raises(Refusal):
                    toolbox.read(name, wrong)


def test_kinds_of_tools_and_their_order(environment: Environment) -> None:
    face = environment.family.interface
    kinds = [schema.kind for schema in environment.toolbox.schemas()]
    assert kinds == ["probe"] * len(face.probes) + ["decision"] * len(face.verbs) + ["query"]
    assert all(schema.description for schema in environment.toolbox.schemas())
    assert (
        environment.toolbox.schemas()[-1].openai()["function"]["name"] == environment.spec.tools["query"].name
    )


# --- arguments --------------------------------------------------------------------------------------------
# What a model may write for a whole number, and none of it is one.
NO_NUMBER = [
    "3",
    "",
    None,
    True,
    False,
    2.5,
    math.nan,
    math.inf,
    -math.inf,
    [3],
    {"a": 3},
    "３",
    "٣",
    "three",
    1e-9,
]
# Whole numbers that no amount and no index can be.
OUT_OF_RANGE = [-1, -(10**400), 2**63, 10**400, 10**5_000, 1e300]
# Names that look like a member of the pool and are none: another case, a Cyrillic o, a no-break space, ...
CONFUSABLE = [
    str.upper,
    str.lower,
    lambda n: n + " ",
    lambda n: n.replace(" ", "\u00a0"),
    lambda n: n + "\u200b",
]
CONFUSABLE += [
    lambda n: n.translate(str.maketrans("aeo", "аео")),
    lambda n: n[::-1],
    lambda n: "",
    lambda n: n[:-1],
]


@pytest.mark.parametrize("value", NO_NUMBER, ids=repr)
def test_an_amount_must_be_a_whole_number(value: Any, rationing: Environment) -> None:
    tool = rationing.spec.tools["spend"].name
    with pytest.raises(Refusal, match=r"^amount must be a whole number, got ") as caught:
        rationing.toolbox.read(tool, {"amount": value})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("position", range(len(OUT_OF_RANGE)))
def test_an_amount_must_not_be_negative_or_endless(position: int, rationing: Environment) -> None:
    tool, value = rationing.spec.tools["spend"].name, OUT_OF_RANGE[position]
    with pytest.raises(Refusal, match=r"^amount must be a whole number of at least 0, got ") as caught:
        rationing.toolbox.read(tool, {"amount": value})
    assert len(str(caught.value)) < 200


def test_whole_floats_count_as_whole_numbers(rationing: Environment) -> None:
    tool = rationing.spec.tools["spend"].name
    assert rationing.toolbox.read(tool, {"amount": 3.0}) == Action("spend", (3,))
    assert rationing.toolbox.read(tool, {"amount": -0.0}) == Action("spend", (0,))


@pytest.mark.parametrize("value", [0, -1, 6, 10**30, "1", None, 1.5, True, math.nan], ids=repr)
def test_an_ordinal_lies_between_1_and_its_count(value: Any, rationing: Environment) -> None:
    name, arguments = rationing.toolbox.write(Probe(("value", 0, 0)))
    ordinal = rationing.spec.tools["value"].arguments["period"]
    with pytest.raises(Refusal, match=f"^{ordinal} must be (a whole number|between 1 and 5), got "):
        rationing.toolbox.read(name, arguments | {ordinal: value})


@pytest.mark.parametrize(
    "value", [None, 7, True, [], {}, "x" * 10_000, "\ud800", 10**5_000, *CONFUSABLE], ids=type
)
def test_a_name_is_written_exactly_as_it_is_published(value: Any, rationing: Environment) -> None:
    name, arguments = rationing.toolbox.write(Probe(("value", 0, 0)))
    slot = rationing.spec.tools["value"].arguments["item"]
    wrong = value(arguments[slot]) if callable(value) else value
    assert wrong != arguments[slot]
    with pytest.raises(Refusal, match=f"^{slot} .* is not known; (the nearest is|choose one of) ") as caught:
        rationing.toolbox.read(name, arguments | {slot: wrong})
    message = str(caught.value)
    assert any(member in message for member in rationing.spec.entities["item"].names)
    assert message.isascii()  # a confusable letter is shown as its code
    assert len(message) < 600


def test_a_small_slip_is_answered_with_the_name_that_was_meant(rationing: Environment) -> None:
    name, arguments = rationing.toolbox.write(Probe(("value", 0, 3)))
    slot = rationing.spec.tools["value"].arguments["item"]
    with pytest.raises(Refusal, match=f"; the nearest is '{arguments[slot]}'$"):
        rationing.toolbox.read(name, arguments | {slot: arguments[slot] + "s"})


@pytest.mark.parametrize("arguments", [None, [], "text", 7, "{}", ["amount"], math.nan], ids=repr)
def test_arguments_must_be_an_object(arguments: Any, rationing: Environment) -> None:
    with pytest.raises(Refusal, match=r"must be a JSON object with amount$"):
        rationing.toolbox.read(rationing.spec.tools["spend"].name, arguments)


def test_missing_and_extra_arguments_are_named(rationing: Environment) -> None:
    toolbox, spend = rationing.toolbox, rationing.spec.tools["spend"].name
    with pytest.raises(Refusal, match=r"needs the argument 'amount'; it takes amount$"):
        toolbox.read(spend, {})
    with pytest.raises(Refusal, match=r'has no argument "\\u0430mount"'):
        toolbox.read(spend, {"amount": 1, "аmount": 2})
    with pytest.raises(Refusal, match="has no argument "):
        toolbox.read(spend, {"amount": 1, 7: 2})


@pytest.mark.parametrize("name", ["", "spend", "SELECT", None, 7, [], {}, "x" * 10_000, "\ud800"], ids=repr)
def test_an_unknown_tool_is_answered_with_the_tools_there_are(name: Any, rationing: Environment) -> None:
    with pytest.raises(Refusal, match=r"^there is no tool ") as caught:
        rationing.toolbox.read(name, {})
    assert all(tool.name in str(caught.value) for tool in rationing.toolbox.schemas())
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "sql", [None, 7, ["SELECT 1"], {"sql": "SELECT 1"}, "x" * (MAX_QUERY_CHARACTERS + 1)]
)
def test_a_query_is_text_of_bounded_length(sql: Any, rationing: Environment) -> None:
    with pytest.raises(Refusal, match=f"^sql (must be text|has {MAX_QUERY_CHARACTERS + 1} characters)"):
        rationing.toolbox.read(rationing.spec.tools["query"].name, {"sql": sql})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=8), part, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_reading_gives_a_call_or_a_refusal_with_a_short_reason(
    data: st.DataObject, environment: Environment
) -> None:
    toolbox: Toolbox = environment.toolbox
    schema = data.draw(st.sampled_from(toolbox.schemas()))
    names = st.sampled_from([*schema.parameters["properties"], "extra"])
    arguments = data.draw(st.dictionaries(names, JUNK, max_size=3) | JUNK)
    try:
        call = toolbox.read(schema.name, arguments)
    except Refusal as refusal:
        reason = str(refusal)
    else:
        assert toolbox.read(*toolbox.write(call)) == call
        return
    assert 0 < len(reason) < 800


# --- what is not possible now -----------------------------------------------------------------------------
def test_an_action_out_of_reach_is_answered_with_what_is_possible(rationing: Environment) -> None:
    family, theta, toolbox = rationing.family, rationing.theta, rationing.toolbox
    moves = family.legal(theta, family.start(theta))
    refusal = toolbox.refuse_illegal(Action("spend", (theta.budget + 1,)), moves)
    assert str(refusal) == f"amount {theta.budget + 1} is not possible now; possible: 0 to {theta.budget}"
    assert "possible" in str(toolbox.refuse_illegal(Action("spend", (0,)), ()))


def test_every_refusal_of_an_illegal_action_names_a_legal_choice(environment: Environment) -> None:
    family, theta, toolbox = environment.family, environment.theta, environment.toolbox
    moves = family.legal(theta, family.start(theta))
    for verb in family.interface.verbs:
        action = Action(verb.name, tuple(10**6 for _ in verb.slots))
        slots = [slot for slot in verb.slots if slot.entity]
        if slots:  # members are read from names, so that no index is out of range: take the last of each kind
            counts = family.counts(theta)
            action = Action(verb.name, tuple(counts[s.entity] - 1 if s.entity else 10**6 for s in verb.slots))
        if any(action in move for move in moves):
            continue
        text = str(toolbox.refuse_illegal(action, moves))
        assert "not possible" in text
        assert len(text) < 800
        legal = next(iter(itertools.chain.from_iterable(m for m in moves if m.verb == verb.name)), None)
        if legal is None:
            assert environment.spec.tools[moves[0].verb].name in text


def test_labels_name_every_hidden_entry_differently(environment: Environment) -> None:
    keys = environment.family.keys(environment.theta)
    labels = {environment.toolbox.label(key) for key in keys}
    assert len(labels) == len(keys)
