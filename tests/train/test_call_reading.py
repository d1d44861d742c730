"""Messages are read as in a comparison, whatever they hold."""

from __future__ import annotations

import pytest
from lamps import LOOK, PRESS, lamp_model, open_lamps

from truthfirst.policies.calls import read_calls
from truthfirst.policies.chat import ChatFormat
from truthfirst.train.environments import Rollout
from truthfirst.train.reading import CallReader, EveryTool

TOOLS = [PRESS.openai(), LOOK.openai()]
CALL = '<tool_call>\n{"name": "press", "arguments": {"item": "A"}}\n</tool_call>'


@pytest.fixture(scope="module")
def reader() -> CallReader:
    _, tokenizer = lamp_model()
    return CallReader(tokenizer, ChatFormat(tokenizer), max_calls=2)


def read(reader: CallReader, text: str, tools=TOOLS) -> dict:
    return reader.parse_response(reader(text, add_special_tokens=False)["input_ids"], tools=tools)


def test_a_message_with_a_call(reader) -> None:
    message = read(reader, f"I press.{CALL}<|im_end|>")
    assert message["content"] == f"I press.{CALL}"
    assert message["tool_calls"] == [
        {"type": "function", "function": {"name": "press", "arguments": {"item": "A"}}}
    ]


@pytest.mark.parametrize("text", ["", "Nothing.", "<think>" + CALL, "<|im_end|>"])
def test_a_message_without_a_call(reader, text: str) -> None:
    assert "tool_calls" not in read(reader, text)


def test_without_tools_there_are_no_calls(reader) -> None:
    assert "tool_calls" not in read(reader, CALL, tools=[])


def test_calls_beyond_the_limit_are_not_read(reader) -> None:
    assert len(read(reader, CALL * 3)["tool_calls"]) == 2


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "press", "arguments": ["A"]}</tool_call>',
        '<tool_call>{"name": "press", "argum</tool_call>',
        '<tool_call>{"name": "fly", "arguments": {"item": "A"}}</tool_call>',
        '<tool_call>{"name": 7}</tool_call>',
        '<tool_call>{"name": "press", "arguments": "A"}</tool_call>',
        '<tool_call>{"name": "press", "arguments": {"self": "A", "name": "B"}}</tool_call>',
    ],
)
def test_whatever_is_read_reaches_the_episode_as_it_was_written(reader, text: str) -> None:
    """The loop of TRL: names are looked up, arguments are passed as keywords."""
    rollout = Rollout({"instance": "A", "form": "A"}, open_lamps)
    table = EveryTool(rollout)
    (call,) = read(reader, text)["tool_calls"]
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    assert name in table
    reply = table[name](**arguments)
    (expected,) = read_calls(text, "hermes", [PRESS, LOOK])
    (turn,) = rollout.episode.trace().turns
    assert (turn.tool, turn.arguments, turn.status) == (expected.name, expected.arguments, "refused")
    assert reply.startswith("The call could not be read" if expected.error else "Refused")


def test_the_reader_is_otherwise_the_tokenizer(reader) -> None:
    assert reader.decode(reader("A b", add_special_tokens=False)["input_ids"]) == "A b"
    assert reader.eos_token == "<|im_end|>"
