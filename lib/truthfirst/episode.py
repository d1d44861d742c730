"""Episodes: one turn budget, one message a call, a complete trace.

`BudgetedEpisode` holds what both wings share. A wing gives `_execute`, which runs one call and says what came
of it; everything else (the budget, bounded records of what a model wrote, the stop reason) is here. Text from a
model is data: it is bounded before it is stored, and no call can raise.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from .records import RecordError, append_jsonl, numbered_jsonl
from .types import CallStatus, Form, PublicView, Score, StopReason, ToolKind, Trace, Turn

MAX_ARGUMENT_CHARACTERS = 2_000
MAX_PARTING_CHARACTERS = 2_000
MAX_ANSWER_CHARACTERS = 20_000
MAX_NAME_CHARACTERS = 100
MAX_ARGUMENT_DEPTH = 32  # a trace is copied level by level; nothing may exhaust the interpreter's stack


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call came to; see `types.Turn`."""

    reply: str
    kind: ToolKind | None = None
    status: CallStatus = "ok"
    detail: dict[str, Any] = field(default_factory=dict)


class BudgetedEpisode(ABC):
    """An episode in which every call, right or wrong, costs one turn of `view.turn_budget`."""

    def __init__(self, view: PublicView, header: dict[str, Any]) -> None:
        self.view = view
        self.header = header
        self.turns: list[Turn] = []
        self.answer_text: str | None = None
        self.stop_reason: StopReason | None = None

    @abstractmethod
    def _execute(self, name: str, arguments: Any) -> Outcome:
        """Run one call. Bad names and arguments give a refused outcome, never an exception."""

    @abstractmethod
    def _completed(self) -> bool:
        """Say whether no decision is left."""

    @abstractmethod
    def score(self) -> Score: ...

    @abstractmethod
    def rewards(self, kind: str) -> list[float]: ...

    @property
    def done(self) -> bool:
        return self.stop_reason is not None

    @property
    def turns_left(self) -> int:
        """Calls that may still be made; the steps of a written plan (form F) cost none and are no calls."""
        return max(0, self.view.turn_budget - len(self.turns))

    def call(self, name: str, arguments: Any) -> str:
        """Execute one tool call and return one short message; after the end nothing is executed or charged."""
        if self.done:
            return "The episode is over; no further call is executed."
        if self.turns_left == 0:
            return self._without_turns()
        outcome = self._execute(name, parsed(arguments))
        index = len(self.turns)
        left = self.view.turn_budget - index - 1
        if self._completed():
            self.stop_reason = StopReason.COMPLETED
            ending = "All decisions are made; the episode is over."
        elif left == 0:
            self.stop_reason, ending = self._when_spent()
        else:
            ending = f"Turns left: {left}."
        separator = "\n" if "\n" in outcome.reply else " "
        reply = f"{outcome.reply}{separator}{ending}"
        tool = printable(as_text(name)[:MAX_NAME_CHARACTERS])
        self.turns.append(
            Turn(
                index,
                tool,
                bounded(arguments),
                reply,
                outcome.kind,
                outcome.status,
                outcome.detail,
            )
        )
        return reply

    def _when_spent(self) -> tuple[StopReason | None, str]:
        """Return what the last turn of the budget means: the end of the episode, unless a wing says otherwise."""
        return StopReason.BUDGET, "The turn budget is spent; the episode is over."

    def _without_turns(self) -> str:
        """Say that there is no turn for a call, where the episode goes on without one."""
        return "No turns are left and no call is executed."

    def answer(self, text: str) -> None:
        """End the episode and keep the end of `text`: where no written answer is asked for, a message leaves."""
        if not self.done:
            self.answer_text = printable(text if isinstance(text, str) else repr(type(text)))[
                -MAX_PARTING_CHARACTERS:
            ]
            self.stop()

    def stop(self) -> None:
        """End the episode early; nothing happens if it has ended."""
        if not self.done:
            self.stop_reason = StopReason.STOPPED

    def trace(self) -> Trace:
        """Return the episode so far (an unfinished one counts as stopped)."""
        stop = self.stop_reason or StopReason.STOPPED
        return Trace(self.header, tuple(self.turns), stop, self.answer_text)


def parsed(arguments: Any) -> Any:
    """Return the JSON value of arguments that came as text; text that is no JSON stays text."""
    if isinstance(arguments, str) and len(arguments) <= MAX_ANSWER_CHARACTERS:  # a program may be long
        try:
            return json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    return arguments


def bounded(value: Any) -> Any:
    """Return `value` as plain JSON of bounded size, fit for a trace; what does not fit becomes its beginning."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if len(text) <= MAX_ARGUMENT_CHARACTERS:
            plain = json.loads(printable(text))
            if not _deeper(plain, MAX_ARGUMENT_DEPTH):
                return plain
    except (TypeError, ValueError, RecursionError, OverflowError):
        pass
    return {"unreadable": printable(as_text(value)[:200])}


def _deeper(value: Any, depth: int) -> bool:
    """Say whether a JSON value is nested more than `depth` levels deep."""
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper(part, depth - 1) for part in parts)


def as_text(value: Any) -> str:
    """Return text as it is, and anything else as Python shows it."""
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001 - repr of a foreign object may do anything
        return f"<{type(value).__name__}>"


def printable(text: str) -> str:
    """Return `text` with lone surrogates replaced, so that it can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def is_integer(value: Any) -> bool:
    """Say whether a JSON value is an integer: 3 and 3.0 are, true, "3", NaN and 2.5 are not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (
        isinstance(value, float) and math.isfinite(value) and value.is_integer()
    )


# --- traces on disk -------------------------------------------------------------------------------------
def trace_record(trace: Trace) -> dict[str, Any]:
    """Return a trace as one JSON record."""
    record = asdict(trace)
    del record["where"]
    return record


def read_trace(record: Any, where: str = "trace") -> Trace:
    """Build a Trace from its record; raise RecordError that names `where`, the field and what is wrong with it."""
    record = _fields(record, ("header", "turns", "stop"), where)
    header, listed = record["header"], record["turns"]
    if not isinstance(header, dict):
        raise _damaged(where, "header", header, "expected an object")
    if not isinstance(listed, list):
        raise _damaged(where, "turns", listed, "expected a list")
    turns = tuple(_read_turn(turn, number, where) for number, turn in enumerate(listed))
    answer = record.get("answer")
    if not (answer is None or isinstance(answer, str)):
        raise _damaged(where, "answer", answer, "expected text or null")
    for field_name, value, choices in (
        ("header.form", header.get("form"), list(Form)),
        ("stop", record["stop"], list(StopReason)),
    ):
        if value not in choices:
            raise _damaged(where, field_name, value, f"expected one of {', '.join(choices)}")
    return Trace(header, turns, StopReason(record["stop"]), answer, where)


_TURN_FIELDS = tuple(part.name for part in fields(Turn))


def _read_turn(record: Any, number: int, where: str) -> Turn:
    place = f"turns[{number}]"
    record = _fields(record, _TURN_FIELDS, where, f"{place}.")
    unknown = [name for name in record if name not in _TURN_FIELDS]
    if unknown:
        raise _damaged(where, f"{place}.{unknown[0]}", record[unknown[0]], "a turn has no such field")
    for name, fits, expected in (
        (
            "index",
            record["index"] == number and is_integer(record["index"]),
            f"turns are numbered from 0: {number}",
        ),
        ("tool", isinstance(record["tool"], str), "expected text"),
        ("reply", isinstance(record["reply"], str), "expected text"),
        (
            "kind",
            record["kind"] in (None, *get_args(ToolKind)),
            f"expected null or one of {_listed(ToolKind)}",
        ),
        ("status", record["status"] in get_args(CallStatus), f"expected one of {_listed(CallStatus)}"),
        ("detail", isinstance(record["detail"], dict), "expected an object"),
    ):
        if not fits:
            raise _damaged(where, f"{place}.{name}", record[name], expected)
    return Turn(**record)


def _listed(kinds: Any) -> str:
    return ", ".join(get_args(kinds))


def _fields(record: Any, names: tuple[str, ...], where: str, prefix: str = "") -> dict[str, Any]:
    """Return an object that has all of `names`; raise RecordError for one that lacks a field, or is none."""
    if not isinstance(record, dict):
        raise _damaged(where, prefix.rstrip(".") or "the record", record, "expected an object")
    for name in names:
        if name not in record:
            raise RecordError(f"{where}: field {prefix}{name} is missing; the record is damaged")
    return record


def _damaged(where: str, name: str, value: Any, expected: str) -> RecordError:
    return RecordError(f"{where}: {name} = {as_text(value)[:80]}: {expected}; the record is damaged")


def save_trace(path: str | Path, trace: Trace) -> None:
    """Append a trace to a JSONL file."""
    append_jsonl(Path(path), trace_record(trace))


def load_traces(path: str | Path) -> list[Trace]:
    """Read every trace of a JSONL file; raise RecordError that names file, line and field of the first damaged one."""
    return [read_trace(record, f"{path}, line {number}") for number, record in numbered_jsonl(path)]
