"""From messages to calls: the rules by which any language model plays an episode, and the record of it.

The rules, the same for a model in this process and for a server:

1. Every call in a message is executed, in order, and costs one turn each; at most `max_calls` of one message are
   executed, and none after the episode has ended. In the text protocol a message has one call: its first.
2. A call that cannot be read (bad JSON, no name) is executed as it stands: the environment refuses it, and it costs a
   turn like any refused call. So does a call to an unknown tool.
3. A message without any call (an empty one too) is answered by a reminder, at most `reminders` times an episode; after
   that the agent has stopped. With `reminders=0` it stops at once, which is how TRL's tool loop treats it.
4. A message is cut at `max_message_tokens`; what has been written by then is read as usual. When an episode has
   sampled `max_episode_tokens`, or its context is full, it is stopped.
5. In form F the first message without a call is the answer, whatever it holds; so is one with calls when no turn is
   left for them, or when no tool is offered. Messages are cut at `max_answer_tokens`.
6. With a `window`, a model reads the instructions and the latest exchanges only: when these fill the window, the oldest
   exchanges are forgotten until half of the room beside the instructions is free. An episode of thousands of turns then
   costs as much a turn as one of a hundred; what was forgotten is lost to the model, never to the record.

Everything is recorded under `rollout` in the trace's header: one record a message with the turns it used and what was
wrong with it, counts of each irregularity, tokens, and how the conversation ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..episode import as_text, is_integer, printable
from ..records import RecordError
from ..types import Episode, Form, Trace
from .base import named
from .calls import Call, visible

MAX_RECORDED_CHARACTERS = 2_000
MAX_NOTES = 8

End = Literal[
    "episode_over",  # the environment ended it: all decisions made, or the turn budget spent
    "answered",  # form F
    "done",  # text protocol: the agent wrote DONE
    "no_call",  # a message without a call, and no reminder left
    "empty",  # the same, and the message was empty
    "cut",  # the same, and the message was cut at its limit
    "token_limit",  # max_episode_tokens are sampled
    "context_full",  # the conversation fills the model's context
    "server",  # the server failed for good; see `error`
]

REMINDER = (
    "No call was read in your message. Write one call in the form you were shown, or the episode ends here."
)
REMINDER_CUT = "Your message was too long and was cut before any call. Write one call, without explanation."


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of a conversation; see the module docstring. Tokens are sampled tokens, without replies.

    window   tokens that are read at most, instructions and replies counted; 0: all there are
    """

    reminders: int = 1
    max_message_tokens: int = 512
    max_answer_tokens: int = 2_048
    max_episode_tokens: int = 32_768
    max_calls: int = 16
    window: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 0 if name in ("reminders", "window") else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a model.

    text       what it wrote, reasoning included
    calls      read from it
    cut        it was cut at its limit
    finished   it says that the agent is done
    notes      irregularities found while reading it
    tokens     sampled; prompt_tokens: read before it, by whatever means; None where nobody counted
    logprob    sum of the log-probabilities of the sampled tokens, None where there are none
    """

    text: str
    calls: Sequence[Call] = ()
    cut: bool = False
    finished: bool = False
    notes: Sequence[str] = ()
    tokens: int | None = None
    prompt_tokens: int | None = None
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model is told next: the result of a call (role tool) or a reminder (role user)."""

    role: Literal["tool", "user"]
    text: str
    call: Call | None = None


class Dialogue:
    """One episode as a conversation; `end` says how it ended, None while it goes on."""

    def __init__(self, episode: Episode, rules: Rules) -> None:
        self.episode, self.rules = episode, rules
        self.written = not episode.view.tools or episode.trace().header.get("form") == Form.WRITTEN
        self.end: End | None = None
        self.error: str | None = None
        self.counts: Counter[str] = Counter()
        self.messages: list[dict[str, Any]] = []
        self.sampled = 0
        self._turns = 0

    @property
    def allowance(self) -> int:
        """Tokens that the next message may have; 0 when the episode has used all."""
        limit = self.rules.max_answer_tokens if self.written else self.rules.max_message_tokens
        return max(0, min(limit, self.rules.max_episode_tokens - self.sampled))

    def read(self, message: Message) -> list[Reply]:
        """Act on one message; return what to tell the model next, nothing when the conversation is over."""
        if self.end is not None:
            raise RuntimeError(f"the conversation has ended ({self.end}): no further message can be read")
        self.sampled += message.tokens or 0
        first, notes = self._turns, list(message.notes)
        calls = message.calls if not self.written or self._turns < self.episode.view.turn_budget else ()
        if self.written and not calls:
            self.episode.answer(visible(message.text))
            replies: list[Reply] = []
            self._finish("answered")
        elif calls:
            replies = self._execute(calls, notes)
        else:
            replies = self._without_call(message)
        if message.cut:
            self.counts["cut"] += 1
        for note in message.notes:
            self.counts[note] += 1
        if self.end is None and self.allowance == 0:
            self._finish("token_limit")
        self.messages.append(
            {
                "turns": [first, self._turns - first],
                "text": printable(message.text[:MAX_RECORDED_CHARACTERS]),
                "characters": len(message.text),
                "tokens": message.tokens,
                "prompt_tokens": message.prompt_tokens,
                "logprob": message.logprob,
                "cut": message.cut,
                "notes": [printable(note[:200]) for note in notes[:MAX_NOTES]],
            }
        )
        return [] if self.end else replies

    def _execute(self, calls: Sequence[Call], notes: list[str]) -> list[Reply]:
        if len(calls) > 1:
            self.counts["several_calls"] += 1
        replies = []
        for number, call in enumerate(calls):
            spent = self.written and self._turns >= self.episode.view.turn_budget
            if self.episode.done or spent or number >= self.rules.max_calls:
                self.counts["calls_not_executed"] += len(calls) - number
                notes.append(f"{len(calls) - number} calls not executed")
                break
            reply = self.episode.call(call.name, call.arguments)
            self._turns += 1
            if call.error:
                self.counts["unreadable_calls"] += 1
                notes.append(f"unreadable call: {call.error}")
                reply = f"The call could not be read: {call.error}. {reply}"
            replies.append(Reply("tool", reply, call))
        if self.episode.done:
            self._finish("episode_over")
        return replies

    def _without_call(self, message: Message) -> list[Reply]:
        if message.finished:
            self._finish("done")
            return []
        empty = not visible(message.text).strip()
        self.counts["empty" if empty else "no_call"] += 1
        if self.counts["reminded"] < self.rules.reminders:
            self.counts["reminded"] += 1
            return [Reply("user", REMINDER_CUT if message.cut else REMINDER)]
        self._finish("cut" if message.cut else "empty" if empty else "no_call")
        return []

    def forget(self, exchanges: int) -> None:
        """Record that the model no longer reads its oldest exchanges."""
        if exchanges:
            self.counts["forgotten"] += exchanges

    def fail(self, end: End, error: str | None = None) -> None:
        """End the conversation from outside: a full context, or a server that failed for good."""
        self.error = None if error is None else printable(error[:500])
        self._finish(end)

    def _finish(self, end: End) -> None:
        self.end = end
        if not self.episode.done:
            self.episode.stop()

    def trace(self, policy: str, about: dict[str, Any], tokens: dict[str, Any]) -> Trace:
        """Return the trace with the conversation's record under `rollout` in its header.

        about   JSON that describes policy and protocol; tokens: its token account
        """
        record = about | {
            "rules": asdict(self.rules),
            "end": self.end,
            "error": self.error,
            "counts": dict(sorted(self.counts.items())),
            "tokens": tokens,
            "messages": self.messages,
        }
        return named(self.episode.trace(), policy, rollout=record)


# --- reading the record back ------------------------------------------------------------------------------
def rollout_of(trace: Trace) -> dict[str, Any] | None:
    """Return a model's record of its conversation, None for a scripted policy's trace.

    Raises RecordError that names the field where the record is not what `Dialogue.trace` writes.
    """
    record = trace.header.get("rollout")
    if record is None:
        return None
    where = f"{trace.where}: header.rollout"
    if not isinstance(record, dict):
        raise RecordError(f"{where} = {as_text(record)[:80]}: expected an object")
    for name, kind in (("counts", dict), ("tokens", dict), ("messages", list)):
        if not isinstance(record.get(name, kind()), kind):
            raise RecordError(f"{where}.{name} = {as_text(record[name])[:80]}: expected {_JSON[kind]}")
    for table in ("counts", "tokens"):
        for name, value in record.get(table, {}).items():
            _number(value, f"{where}.{table}.{name}")
    for number, message in enumerate(record.get("messages", [])):
        place = f"{where}.messages[{number}]"
        if not isinstance(message, dict):
            raise RecordError(f"{place} = {as_text(message)[:80]}: expected an object")
        for name in ("tokens", "prompt_tokens", "logprob"):
            _number(message.get(name), f"{place}.{name}")
        turns = message.get("turns")
        if not (isinstance(turns, list) and len(turns) == 2 and all(is_integer(part) for part in turns)):
            raise RecordError(
                f"{place}.turns = {as_text(turns)[:80]}: expected two integers, first turn and how many"
            )
        if not isinstance(message.get("notes", []), list):
            raise RecordError(f"{place}.notes = {as_text(message['notes'])[:80]}: expected a list")
    return record


_JSON: dict[type, str] = {dict: "an object", list: "a list"}


def _number(value: Any, where: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise RecordError(f"{where} = {as_text(value)[:80]}: expected a number or null")
