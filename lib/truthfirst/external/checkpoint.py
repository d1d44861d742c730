"""A local checkpoint behind the OpenAI protocol, generated with the engine of `policies`.

Conversations are rendered by the model's own chat template; a model whose template has no tool calls gets the text
protocol (`policies/chat.py`): the tools as JSON in its instructions, one CALL line a message. A call that cannot be
read is no call: its message is returned as words, as other servers do. A conversation that another one has just
extended costs only what is new (`policies/generate.py`), where re-tokenising a message gives the tokens it was
sampled with. Requests are answered one after another.

Differences from a server for many users: no streaming, one choice, `temperature`, `top_p`, `seed` and the bound on
tokens are the only sampling fields that are read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..policies.base import Sampling
from ..policies.calls import Call, read_calls, visible
from ..policies.generate import GenerationError, Stream
from ..records import content_hash
from ..types import PublicView, ToolSchema
from .server import BadRequestError, completion

if TYPE_CHECKING:
    from ..policies.language import LanguagePolicy

GREEDY_BELOW = 0.01  # a temperature below this is greedy decoding in all but name


class Checkpoint:
    """Answers chat-completion requests with a loaded model; `max_tokens` bounds a message that sets no bound itself."""

    def __init__(self, policy: LanguagePolicy, max_tokens: int = 1024) -> None:
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        self.policy, self.max_tokens = policy, max_tokens
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        tools = read_tools(body.get("tools"))
        family = self.policy.chat.family
        messages = [_plain(message, family) for message in body["messages"]]
        if family == "text":
            messages = _as_text(messages, tools)
        ids = self.policy.chat.opening(PublicView(tuple(messages), tools, 0))
        room = self.policy.context - len(ids)
        if room < 1:
            raise BadRequestError(
                f"context_length_exceeded: {len(ids)} tokens of a context of {self.policy.context}"
            )
        wanted = body.get("max_completion_tokens") or body.get("max_tokens") or self.max_tokens
        if not isinstance(wanted, int) or wanted < 1:
            raise BadRequestError(f"max_tokens must be a whole number of at least 1, got {wanted!r}")
        with self._lock:
            sample = self._generate(ids, min(wanted, room), body)
        spoken = sample.ids[:-1] if sample.stopped else sample.ids
        text = self.policy.tokenizer.decode(spoken, skip_special_tokens=family == "text")
        message = as_message(text, family, tools)
        finish = None if sample.stopped else "length"
        return completion(message, finish=finish, prompt_tokens=len(ids), tokens=len(sample.ids))

    def _generate(self, ids: list[int], limit: int, body: dict[str, Any]) -> Any:
        engine = self.policy.engine
        engine.sampling = _sampling(body)
        seed = body.get("seed")
        stream = Stream(seed if isinstance(seed, int) else 0, content_hash(body["messages"]))
        try:
            (sample,) = engine.generate([ids], [limit], [stream])
        except GenerationError as error:
            raise BadRequestError(str(error)) from error
        return sample


def read_tools(tools: Any) -> tuple[ToolSchema, ...]:
    """Return a request's tools; raise BadRequestError that names the first one that is none."""
    found = []
    for number, tool in enumerate(tools or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequestError(f"tool {number} must be an object with a function that has a name")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise BadRequestError(f"the parameters of tool {function['name']!r} must be a JSON schema")
        found.append(ToolSchema(function["name"], str(function.get("description", "")), parameters, "query"))
    return tuple(found)


def as_message(text: str, family: str, tools: tuple[ToolSchema, ...]) -> dict[str, Any]:
    """Return what a model wrote as an assistant message of the OpenAI protocol.

    In the text protocol the words stay beside the call, so that the conversation can be rendered again as it was.
    """
    calls = read_calls(visible(text), family, tools) if tools else []
    if not calls or any(call.error or not isinstance(call.arguments, dict) for call in calls):
        return {"content": visible(text).strip()}
    listed = [_listed(number, call) for number, call in enumerate(calls)]
    return {"content": text if family == "text" else None, "tool_calls": listed}


def _listed(number: int, call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": f"call{number:05d}", "type": "function", "function": function}


def _plain(message: dict[str, Any], family: str) -> dict[str, Any]:
    """Return a message with what templates read: text, and arguments as objects instead of JSON text."""
    kept: dict[str, Any] = {"role": message["role"], "content": message.get("content") or ""}
    if message["role"] == "tool" and message.get("tool_call_id"):
        kept["tool_call_id"] = message["tool_call_id"]
    calls: list[dict[str, Any]]
    try:
        calls = [
            {
                "id": call.get("id") or "call00000",
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": json.loads(call["function"]["arguments"]),
                },
            }
            for call in message.get("tool_calls") or ()
        ]
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadRequestError(f"tool_calls of a message cannot be read ({type(error).__name__})") from error
    if calls and family == "text" and not kept["content"]:
        functions = [call["function"] for call in calls]
        kept["content"] = "\n".join(f"CALL {one['name']} {json.dumps(one['arguments'])}" for one in functions)
    return kept | ({"tool_calls": calls} if calls and family != "text" else {})


def _as_text(messages: list[dict[str, Any]], tools: tuple[ToolSchema, ...]) -> list[dict[str, Any]]:
    """Return messages of the roles system, user and assistant only, with the tools described at the start."""
    plain: list[dict[str, Any]] = []
    for message in messages:
        role = "user" if message["role"] == "tool" else message["role"]
        if plain and role == plain[-1]["role"] and role != "assistant":
            plain[-1]["content"] += f"\n{message['content']}"
        else:
            plain.append({"role": role, "content": message["content"]})
    if not tools:
        return plain
    described = "\n".join(json.dumps(tool.openai()["function"]) for tool in tools)
    if plain[0]["role"] != "system":
        plain.insert(0, {"role": "system", "content": ""})
    plain[0]["content"] = f"{plain[0]['content']}\n\nYour tools, as JSON:\n{described}".strip()
    return plain


def _sampling(body: dict[str, Any]) -> Sampling:
    temperature, top_p = body.get("temperature"), body.get("top_p")
    try:
        warmth = 1.0 if temperature is None else float(temperature)
        return Sampling(
            0.0 if warmth < GREEDY_BELOW else warmth, top_p=1.0 if top_p is None else float(top_p)
        )
    except (TypeError, ValueError) as error:
        raise BadRequestError(str(error)) from error
