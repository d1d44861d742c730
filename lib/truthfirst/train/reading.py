"""What the policy writes, read in training exactly as in a comparison.

TRL parses messages by a template of its own, answers unknown tools and odd arguments itself, and takes a call that it
cannot read for plain text, which ends the episode for free. Two small stand-ins make its loop follow the rules of
`policies/dialogue.py` instead, by which every call, readable or not, reaches the environment and costs a turn:

    CallReader   a tokenizer whose `parse_response` is `policies.calls.read_calls`
    EveryTool    a rollout's table of tools that has every name
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..policies.calls import Call, read_calls, visible
from ..policies.chat import ChatFormat
from ..policies.dialogue import Rules
from ..types import ToolSchema
from .environments import Rollout

_RAW = "(arguments as written)"  # TRL passes arguments as keywords, so that what is no object travels under a key
_ERROR = "(why they could not be read)"


class CallReader:
    """A tokenizer that reads messages as `chat` writes them, and is otherwise the one it stands for."""

    response_template = "truthfirst"  # anything but None: TRL then parses every message

    def __init__(self, tokenizer: Any, chat: ChatFormat, max_calls: int = Rules().max_calls) -> None:
        self._tokenizer, self._chat, self._max_calls = tokenizer, chat, max_calls
        for name in (
            "eos_token",
            "eos_token_id",
            "pad_token_id",
            "bos_token_id",
        ):  # TRL asks for them token by token
            setattr(self, name, getattr(tokenizer, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        return self._tokenizer(*texts, **options)

    def parse_response(
        self,
        ids: Sequence[int],
        prefix: Sequence[int] | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Return one message with its calls; `tools` are those of its prompt, and without any there are no calls."""
        spoken = ids[:-1] if len(ids) and ids[-1] in self._chat.stop_ids else ids
        text = self._tokenizer.decode(spoken, skip_special_tokens=False)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if tools:
            calls = read_calls(visible(text), self._chat.family, [_schema(tool) for tool in tools])
            if calls:
                message["tool_calls"] = [_written(call) for call in calls[: self._max_calls]]
        return message


def _schema(tool: dict[str, Any]) -> ToolSchema:
    function = tool["function"]
    return ToolSchema(function["name"], function["description"], function["parameters"], "query")


def _written(call: Call) -> dict[str, Any]:
    """Return a call in the form TRL executes."""
    plain = isinstance(call.arguments, dict) and call.error is None
    arguments = call.arguments if plain else {_RAW: call.arguments, _ERROR: call.error}
    return {"type": "function", "function": {"name": call.name, "arguments": arguments}}


class EveryTool(dict[str, Callable[..., str]]):
    """The tools of one rollout by name: whatever name is asked for, the call goes to its episode."""

    def __init__(self, rollout: Rollout) -> None:
        super().__init__()
        self._rollout = rollout

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Callable[..., str]:
        def call(**arguments: Any) -> str:
            if arguments.keys() != {_RAW, _ERROR}:
                return self._rollout.call(name, arguments)
            reply = self._rollout.call(name, arguments[_RAW])
            error = arguments[_ERROR]
            return reply if error is None else f"The call could not be read: {error}. {reply}"

        return call
