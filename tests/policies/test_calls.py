import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import PROBE

from truthfirst.policies.calls import (
    DONE,
    READERS,
    UNREADABLE,
    count_lines,
    read_calls,
    says_done,
    text_instructions,
    visible,
)
from truthfirst.solvefirst.realize.code_tool import SCHEMA as CODE
from truthfirst.types import ToolSchema

TYPED = ToolSchema(
    "order",
    "Order.",
    {"type": "object", "properties": {"item": {"type": "string"}, "amount": {"type": "integer"}}},
    "decision",
)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (
            "hermes",
            'Sure.\n<tool_call>\n{"name": "order", "arguments": {"item": "75", "amount": 3}}\n</tool_call>',
        ),
        ("hermes", '<tool_call>{"name": "order", "parameters": {"item": "75", "amount": 3}}'),
        (
            "xml",
            "<tool_call>\n<function=order>\n<parameter=item>\n75\n</parameter>\n<parameter=amount>\n3\n</parameter>\n"
            "</function>\n</tool_call>",
        ),
        ("mistral", '[TOOL_CALLS][{"name": "order", "arguments": {"item": "75", "amount": 3}}]'),
        ("mistral", '[TOOL_CALLS]order[ARGS]{"item": "75", "amount": 3}'),
        ("llama3", '{"name": "order", "parameters": {"item": "75", "amount": 3}}'),
        ("llama3", '<|python_tag|>{"name": "order", "parameters": {"item": "75", "amount": 3}}'),
        ("text", 'I order.\nCALL order {"item": "75", "amount": 3}\nCALL order {"item": "76"}'),
        ("text", '- no\n`CALL order({"item": "75", "amount": 3})`'),
        ("text", 'CALL order {"item": "75",\n "amount": 3} and then'),
    ],
)
def test_each_family_reads_its_own_form(family: str, text: str) -> None:
    (call,) = read_calls(text, family, (TYPED,))
    assert (call.name, call.arguments, call.error) == ("order", {"item": "75", "amount": 3}, None)


def test_several_calls_are_read_in_order() -> None:
    text = "".join(
        f'<tool_call>{{"name": "probe", "arguments": {{"item": "{x}"}}}}</tool_call>' for x in "CAB"
    )
    assert [call.arguments["item"] for call in read_calls(text, "hermes", (PROBE,))] == ["C", "A", "B"]


@pytest.mark.parametrize(
    ("family", "text", "name"),
    [
        ("hermes", '<tool_call>{"name": "probe", "arguments": {"item": </tool_call>', "probe"),
        ("hermes", "<tool_call>[1, 2]</tool_call>", UNREADABLE),
        ("hermes", "<tool_call>", UNREADABLE),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>', UNREADABLE),
        ("xml", "<tool_call>probe A</tool_call>", UNREADABLE),
        ("mistral", '[TOOL_CALLS][{"name": "probe"', "probe"),
        ("mistral", "[TOOL_CALLS]probe[ARGS]{", "probe"),
        ("llama3", '{"name": "probe", "parameters": {', "probe"),
        ("text", "CALL probe A", "probe"),
        ("text", 'CALL probe {"item": A}', "probe"),
    ],
)
def test_what_cannot_be_read_stays_a_call_with_its_reason(family: str, text: str, name: str) -> None:
    (call,) = read_calls(text, family, (PROBE,))
    assert call.name == name
    assert call.error


@pytest.mark.parametrize("family", sorted(READERS))
def test_plain_prose_has_no_call(family: str) -> None:
    assert read_calls("I would like to call someone about item A.", family, (PROBE,)) == []


@pytest.mark.parametrize("family", sorted(READERS))
@given(
    text=st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "CALL ",
                "[TOOL_CALLS]",
                "[ARGS]",
                "{",
                "}",
                '"name"',
                ":",
                '"a"',
                "[",
                "\n",
                "<function=",
                "x>",
                "<parameter=k>",
                "NaN",
                "1e999",
                "�",
                "</think>",
            ]
        ),
        max_size=30,
    ).map("".join)
)
@settings(max_examples=150, deadline=None)
def test_no_text_raises(family: str, text: str) -> None:
    for call in read_calls(visible(text), family, (PROBE, TYPED)):
        assert isinstance(call.name, str)
        assert call.name


def test_deep_nesting_is_a_reason_not_a_crash() -> None:
    deep = "[" * 100_000
    (call,) = read_calls(
        f'<tool_call>{{"name": "probe", "arguments": {deep}}}</tool_call>', "hermes", (PROBE,)
    )
    assert call.name == "probe"
    assert call.error


def test_reasoning_is_not_read() -> None:
    call = '<tool_call>{"name": "probe", "arguments": {"item": "A"}}</tool_call>'
    assert read_calls(visible(f"<think>perhaps {call}</think>Done."), "hermes", (PROBE,)) == []
    assert read_calls(visible(f"<think>perhaps {call}"), "hermes", (PROBE,)) == []
    assert len(read_calls(visible(f"<think>hm</think>{call}"), "hermes", (PROBE,))) == 1


def test_text_protocol_lines() -> None:
    assert count_lines("CALL a {}\nthen\n  CALL b {}") == 2
    assert says_done("All is well.\n**DONE.**")
    assert not says_done("I am not done, but DONE is a word")


def test_json_text_as_arguments_is_handed_on_for_the_episode_to_parse() -> None:
    text = json.dumps({"name": "probe", "arguments": '{"item": "A"}'})
    (call,) = read_calls(f"<tool_call>{text}</tool_call>", "hermes", (PROBE,))
    assert call.arguments == '{"item": "A"}'
    assert call.error is None


def test_only_where_one_acts_does_an_episode_end_with_a_word() -> None:
    """Form F offers a code tool at most: there the first message without a call is the answer, and DONE is none."""
    for acting in ((PROBE,), (TYPED,), (PROBE, TYPED, CODE)):
        assert text_instructions(acting).endswith(f"When nothing is left to do, write {DONE}.")
    written = text_instructions((CODE,))
    assert DONE not in written
    assert f"CALL {CODE.name}" in written
    assert written.endswith(
        "Your first message without a CALL line is read as your answer, and ends the episode."
    )
