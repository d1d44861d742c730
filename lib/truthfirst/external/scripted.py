"""Players without a model, for the two ends of a benchmark's scale: one that knows the answers, one that does nothing.

Both answer chat-completion requests (`server.py`). The oracle proves that a suite's scoring gives full marks to right
answers through every stage that a model's answers pass; the no-op shows what a suite gives for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .server import CASE, BadRequestError, completion

NOTHING = "There is nothing to do."


def noop(body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Answer every request with the same words and no call."""
    return completion({"content": NOTHING})


class Oracle:
    """Answers from a script: case -> {"turns": [[{"name", "arguments"}, ...], ...], "say": text}.

    turns  the calls of each turn of the user, in one message; a turn without calls is answered in words
    say    what is said where there is nothing to call

    The request's header CASE names the case; a case without a script is answered as `noop` does.
    """

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.script = script

    def __call__(self, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        case = headers.get(CASE)
        if case is None:
            raise BadRequestError(f"the oracle needs the header {CASE} to know which case is played")
        entry = self.script.get(case, {})
        roles = [message["role"] for message in body["messages"]]
        if roles and roles[-1] == "user":
            turn = sum(
                role == "user" and before != "user" for before, role in zip(["", *roles], roles, strict=False)
            )
            turns = entry.get("turns", [])
            if turn <= len(turns) and turns[turn - 1]:
                return completion({"content": None, "tool_calls": _calls(turns[turn - 1])})
        return completion({"content": entry.get("say", NOTHING)})


def _calls(wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for number, call in enumerate(wanted)
    ]
