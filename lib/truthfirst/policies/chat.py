"""Chat templates as exact token ids.

A conversation's ids are the rendered opening, then in turn what was sampled and what the template puts between one
sampled message and the next. Sampled text is never tokenised again, so the log-probabilities belong to the very ids
that the model gave. The piece in between is the template's rendering of the replies after a stand-in assistant
message, from behind that message's end-of-turn token to the next assistant header: the form that TRL's tool loop
uses, so that what is rolled out here can be trained on there.

What a template supports is found by rendering a tool call through it, never from a model's name. A template that
drops tool calls or tool results, refuses the roles or writes calls in no known way gets the text protocol, for which
any model with a tokenizer will do.

It does not promise that a template's own rendering of the whole conversation gives the same text: some (Qwen3) drop
the reasoning of earlier messages, which here stays, as it does in TRL.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from ..types import PublicView, ToolSchema
from .calls import Call, text_instructions
from .dialogue import Reply

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
_NAME, _KEY, _VALUE, _RESULT, _TEXT = "alpha_tool", "beta_key", "gamma_value", "delta_result", "epsilon_text"
_Messages = list[dict[str, Any]]


class ProtocolError(ValueError):
    """A tokenizer or template cannot carry the protocol that was asked for; the message says what can."""


class ChatFormat:
    """How one tokenizer writes conversations.

    family   how calls are written: hermes, xml, mistral, llama3 or text (`calls.py`)
    reason   why it is the text protocol, else None
    end_id   the token that closes a message
    stop_ids every token that ends sampling: `end_id` and the model's own
    """

    def __init__(
        self,
        tokenizer: Any,
        protocol: str = "auto",
        stop_ids: Sequence[int] = (),
        template_options: dict[str, Any] | None = None,
    ) -> None:
        if protocol not in ("auto", "tools", "text"):
            raise ProtocolError(f"unknown protocol {protocol!r}: choose auto, tools or text")
        self.tokenizer, self._options = tokenizer, dict(template_options or {})
        if not tokenizer.chat_template:
            self._options["chat_template"] = PLAIN_TEMPLATE
        self.reason: str | None
        self.family, self.reason = ("text", "asked for") if protocol == "text" else self._find_family()
        if protocol == "tools" and self.family == "text":
            raise ProtocolError(
                f"this tokenizer cannot carry tool calls ({self.reason}): use protocol='text'"
            )
        self.end_id = self._find_end()
        own = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        self.stop_ids = sorted({self.end_id, *own, *stop_ids})
        self._takes_system = self._renders([{"role": "system", "content": _TEXT}, _user("u")])
        self._check_closing()

    # --- rendering ------------------------------------------------------------------------------------
    def _render(self, messages: _Messages, *, prompt: bool, tools: Any = None) -> str:
        return self.tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=prompt, tokenize=False, **self._options
        )

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _renders(self, messages: _Messages) -> bool:
        try:
            return _TEXT in self._render(messages, prompt=True)
        except (TemplateError, TypeError, ValueError):
            return False

    def opening(self, view: PublicView) -> list[int]:
        """Return the ids of an episode's instructions, up to and with the first assistant header."""
        messages: _Messages = [dict(message) for message in view.prompt]
        if view.tools and self.family == "text":
            note = text_instructions(view.tools)
            first = messages[0] if messages and messages[0]["role"] == "system" else None
            if first is None:
                messages.insert(0, {"role": "system", "content": note})
            else:
                first["content"] = f"{first['content']}\n\n{note}"
        if not self._takes_system and messages and messages[0]["role"] == "system":
            system = messages.pop(0)["content"]
            if messages and messages[0]["role"] == "user":
                messages[0]["content"] = f"{system}\n\n{messages[0]['content']}"
            else:
                messages.insert(0, _user(system))
        tools = [tool.openai() for tool in view.tools] if self.family != "text" else None
        return self._ids(self._render(messages, prompt=True, tools=tools or None))

    def calling(self, name: str, arguments: dict[str, Any]) -> list[int]:
        """Return the ids of a message that makes one call, as the template writes it behind an assistant's header."""
        spoken = {"role": "assistant", "content": "", "tool_calls": [_call(0, name, arguments)]}
        whole = self._render([_user("dummy"), spoken], prompt=False)
        head = self._render([_user("dummy")], prompt=True)
        same = (a == b for a, b in zip(whole, head, strict=False))  # a template may think before it calls
        return self._ids(whole[sum(itertools.takewhile(bool, same)) :])

    def closing(self, replies: Sequence[Reply]) -> list[int]:
        """Return the ids between a sampled message's end-of-turn token and the next message of the model."""
        # The stand-in message ends in a mark, and the piece is what follows the next end-of-turn token behind it. It
        # is found in the rendered whole, since some templates (Qwen3) write a last message unlike an earlier one.
        if self.family == "text" or replies[0].role == "user":
            spoken: dict[str, Any] = {"role": "assistant", "content": _TEXT}
            told: _Messages = [_user("\n".join(reply.text for reply in replies))]
        else:
            names = [reply.call.name if reply.call else _NAME for reply in replies]
            calls = [_call(number, name, {}) for number, name in enumerate(names[:-1])]
            calls.append(_call(len(calls), names[-1], {_KEY: _TEXT}))
            spoken = {"role": "assistant", "content": "", "tool_calls": calls}
            told = [
                {"role": "tool", "name": name, "tool_call_id": _identifier(number), "content": reply.text}
                for number, (name, reply) in enumerate(zip(names, replies, strict=True))
            ]
        whole = self._render([_user("dummy"), spoken, *told], prompt=True)
        ids = self._ids(whole.partition(_TEXT)[2])
        return ids[ids.index(self.end_id) + 1 :] if self.end_id in ids else ids

    # --- what the template supports -------------------------------------------------------------------
    def _find_family(self) -> tuple[str, str | None]:
        if not self.tokenizer.chat_template:
            return "text", "the tokenizer has no chat template"
        schema = ToolSchema(
            _NAME,
            "d",
            {"type": "object", "properties": {_KEY: {"type": "string"}}, "required": [_KEY]},
            "query",
        )
        call = _call(0, _NAME, {_KEY: _VALUE})
        result = {"role": "tool", "name": _NAME, "tool_call_id": _identifier(0), "content": _RESULT}
        messages = [_user("u"), {"role": "assistant", "content": "", "tool_calls": [call]}, result]
        try:
            offered = self._render(messages[:1], prompt=True, tools=[schema.openai()])
            written = self._render(messages[:2], prompt=False)
            answered = self._render(messages, prompt=True)
        except (TemplateError, TypeError, ValueError) as error:
            return "text", f"the template refuses tool messages ({type(error).__name__})"
        if _NAME not in offered:
            return "text", "the template does not show the tools"
        if _NAME not in written or _VALUE not in written:
            return "text", "the template drops tool calls"
        if _RESULT not in answered:
            return "text", "the template drops tool results"
        for family, mark in (
            ("xml", f"<function={_NAME}>"),
            ("mistral", "[TOOL_CALLS]"),
            ("hermes", "<tool_call>"),
            ("llama3", f'{{"name": "{_NAME}", "parameters":'),
        ):
            if mark in written:
                return family, None
        return "text", "the template writes calls in a way that is not known here"

    def _find_end(self) -> int:
        """Return the first special token after an assistant's text."""
        try:
            text = self._render([_user("u"), {"role": "assistant", "content": _TEXT}], prompt=False)
        except (TemplateError, TypeError) as error:
            raise ProtocolError(
                f"the chat template cannot render a dialogue ({error}): try another one"
            ) from error
        special = {*self.tokenizer.all_special_ids, *self.tokenizer.get_added_vocab().values()}
        for token in self._ids(text.rpartition(_TEXT)[2]):
            if token in special:
                return token
        if self.tokenizer.eos_token_id is None:
            raise ProtocolError(
                "neither the chat template nor the tokenizer has an end-of-turn token: set eos_token"
            )
        return self.tokenizer.eos_token_id

    def _check_closing(self) -> None:
        """Try the pieces between messages once, so that a template that cannot give them is known at once."""
        replies = [Reply("user", _RESULT)]
        if self.family != "text":
            replies.append(Reply("tool", _RESULT, Call(_NAME, {})))
        for reply in replies:
            try:
                found = self.tokenizer.decode(self.closing([reply]))
            except (TemplateError, TypeError) as error:
                raise ProtocolError(
                    f"the chat template cannot render a dialogue ({error}): try another one"
                ) from error
            if reply.text not in found:
                raise ProtocolError(f"the chat template drops a reply of role {reply.role}: try another one")


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _identifier(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, as Mistral's template insists


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "id": _identifier(number), "function": function}
