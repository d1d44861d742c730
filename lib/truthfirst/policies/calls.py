"""Reading tool calls from what a model wrote.

A call is written in one of a few ways; which one a model was taught is seen in its chat template (`chat.py`):

    hermes   <tool_call>{"name": ..., "arguments": {...}}</tool_call>           Qwen2.5, Qwen3, Hermes
    xml      <tool_call><function=NAME><parameter=KEY>VALUE</parameter>...      Qwen3-Coder, Qwen3.5, Nemotron 3
    mistral  [TOOL_CALLS][{"name": ..., "arguments": {...}}] or NAME[ARGS]{...}
    llama3   {"name": ..., "parameters": {...}} as the whole message
    text     a line CALL NAME {"argument": value}                               any model, no template needed

What looks like a call but cannot be read is kept as a call with an `error`: it is executed all the same, so that the
environment refuses it, it costs its turn, and the trace shows it. Nothing here raises on any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..types import ToolSchema

UNREADABLE = "(unreadable call)"  # stands for the tool's name where none can be read
DONE = "DONE"  # the line that ends an episode in the text protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the model wrote it.

    name, arguments  handed to `Episode.call` as they are
    error            why it could not be read, else None
    identifier       the call's id where a server gave one
    """

    name: str
    arguments: Any
    error: str | None = None
    identifier: str | None = None


def visible(text: str) -> str:
    """Return what follows the reasoning; a reasoning block that never closes leaves nothing."""
    _, closed, rest = text.rpartition("</think>")
    if closed:
        return rest
    return text.partition("<think>")[0]


def read_calls(text: str, family: str, tools: Sequence[ToolSchema]) -> list[Call]:
    """Return the calls in `text`, in order; an empty list when it has none. `text` is without its reasoning."""
    return READERS[family](text, tools)


# --- one reader a family --------------------------------------------------------------------------------
_HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^\n>]*)>(.*?)(?:</function>|</tool_call>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^\n>]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_NAMED = re.compile(r'"name"\s*:\s*"([^"\\]{1,100})"')
_LINE = re.compile(r"^[ \t*`>]*CALL[ \t:]+([^\s{(]{1,100})[ \t]*", re.MULTILINE)


def _hermes(text: str, tools: Sequence[ToolSchema]) -> list[Call]:
    return [_from_json(match.group(1), "arguments") for match in _HERMES.finditer(text)]


def _xml(text: str, tools: Sequence[ToolSchema]) -> list[Call]:
    schemas = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
    calls = []
    for block in _HERMES.finditer(text):
        match = _FUNCTION.search(block.group(1))
        if match is None:
            calls.append(Call(UNREADABLE, block.group(1), "there is no <function=NAME> in the call"))
            continue
        name, body = match.group(1).strip(), match.group(2)
        types = schemas.get(name, {})
        arguments = {key: _typed(value, types.get(key, {})) for key, value in _PARAMETER.findall(body)}
        calls.append(Call(name, arguments))
    return calls


def _mistral(text: str, tools: Sequence[ToolSchema]) -> list[Call]:
    _, marker, rest = text.partition("[TOOL_CALLS]")
    if not marker:
        return []
    if rest.lstrip().startswith("["):
        try:
            listed = json.loads(rest.strip(), strict=False)
        except (ValueError, RecursionError) as error:
            return [Call(_name_in(rest), rest, _reason(error))]
        return [_from_value(value, rest, "arguments") for value in listed]
    calls = []
    for part in rest.split("[TOOL_CALLS]"):
        name, _, arguments = part.partition("[ARGS]")
        if not arguments:
            name, brace, tail = part.partition("{")
            arguments = brace + tail
        calls.append(Call(name.split("[CALL_ID]")[0].strip()[:100] or UNREADABLE, *_json_object(arguments)))
    return calls


def _llama3(text: str, tools: Sequence[ToolSchema]) -> list[Call]:
    body = text.replace("<|python_tag|>", "").strip()
    if not body.startswith("{") or '"name"' not in body:
        return []
    return [_from_json(body, "parameters")]


def _text(text: str, tools: Sequence[ToolSchema]) -> list[Call]:
    """Read the first CALL line; more of them in one message are not executed (the model imagines the replies)."""
    match = _LINE.search(text)
    if match is None:
        return []
    name = match.group(1).strip("`*:")
    rest = text[match.end() :]
    if rest.startswith("("):
        rest = rest[1:]
    if not rest.startswith("{"):
        line = rest.partition("\n")[0].strip(" `).")
        return [
            Call(name or UNREADABLE, line, "its arguments are not a JSON object") if line else Call(name, {})
        ]
    return [Call(name or UNREADABLE, *_json_object(rest, whole=False))]


READERS: dict[str, Callable[[str, Sequence[ToolSchema]], list[Call]]] = {
    "hermes": _hermes,
    "xml": _xml,
    "mistral": _mistral,
    "llama3": _llama3,
    "text": _text,
}


def count_lines(text: str) -> int:
    """Return how many CALL lines a message of the text protocol has."""
    return sum(1 for _ in _LINE.finditer(text))


def says_done(text: str) -> bool:
    """Say whether a message of the text protocol ends the episode."""
    return any(line.strip(" .*`") == DONE for line in text.splitlines())


def text_instructions(tools: Sequence[ToolSchema]) -> str:
    """Return what the text protocol adds to the instructions: how to write a call, with two worked examples.

    Where there is nothing to do but to run code (form F), the episode ends with a written answer and not with DONE.
    """
    if all(tool.kind == "code" for tool in tools):
        ending = "Your first message without a CALL line is read as your answer, and ends the episode."
    else:
        ending = f"When nothing is left to do, write {DONE}."
    lines = []
    for tool in tools:
        names = ", ".join(f'"{name}": ...' for name in tool.parameters.get("properties", {}))
        lines.append(f"CALL {tool.name} {{{names}}}")
    return (
        "How to call a tool\n"
        "Write one line: CALL, the name of the tool, and its arguments as a JSON object. One call a message; the "
        "result comes back as the next message. Two examples, of tools that you do not have:\n"
        'CALL look_up {"word": "harbour"}\n'
        'CALL order {"item": "rope", "amount": 3}\n'
        "Your tools:\n" + "\n".join(lines) + f"\n{ending}"
    )


# --- parts ----------------------------------------------------------------------------------------------
def _from_json(body: str, key: str) -> Call:
    try:
        value = json.loads(body, strict=False)
    except (ValueError, RecursionError) as error:
        return Call(_name_in(body), body, _reason(error))
    return _from_value(value, body, key)


def _from_value(value: Any, body: str, key: str) -> Call:
    if not isinstance(value, dict):
        return Call(UNREADABLE, body, "a call is a JSON object with name and " + key)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return Call(UNREADABLE, value, 'the call has no "name"')
    arguments = value.get(key)
    if arguments is None:
        arguments = value.get("arguments", value.get("parameters"))
    return Call(name, {} if arguments is None else arguments)


def _json_object(text: str, *, whole: bool = True) -> tuple[Any, str | None]:
    """Return (object, None), or (the text, why it is none); without `whole`, what follows the object is ignored."""
    body = text.strip()
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(body)
    except (ValueError, RecursionError) as error:
        return body, _reason(error)
    if whole and body[end:].strip():
        return body, "there is text after its arguments"
    return (value, None) if isinstance(value, dict) else (body, "its arguments are not a JSON object")


def _typed(value: str, schema: Any) -> Any:
    """Return a parameter's text as the type its schema asks for; text that does not fit stays text."""
    kind = schema.get("type", "string") if isinstance(schema, dict) else "string"
    if kind == "string":
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _name_in(body: str) -> str:
    match = _NAMED.search(body)
    return match.group(1) if match else UNREADABLE


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON at character {error.pos}: {error.msg}"
    return f"not JSON ({type(error).__name__})"
