"""Episodes: one turn budget, one message a call, a complete trace.

`BudgetedEpisode` holds what both wings share. A wing gives `_execute`, which runs one call and says what came
of it; everything else (the budget, bounded records of what a model wrote, the stop reason) is here. Text from a
model is data: it is bounded before it is stored, and no call can raise.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from .records import RecordError, append_jsonl, read_jsonl
from .types import CallStatus, Form, PublicView, Score, StopReason, ToolKind, Trace, Turn

MAX_ARGUMENT_CHARACTERS = 2_000
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
        return self.view.turn_budget - len(self.turns)

    def call(self, name: str, arguments: Any) -> str:
        """Execute one tool call and return one short message; after the end nothing is executed or charged."""
        if self.done:
            return "The episode is over; no further call is executed."
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
        tool = printable(_text(name)[:MAX_NAME_CHARACTERS])
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
    return {"unreadable": printable(_text(value)[:200])}


def _deeper(value: Any, depth: int) -> bool:
    """Say whether a JSON value is nested more than `depth` levels deep."""
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper(part, depth - 1) for part in parts)


def _text(value: Any) -> str:
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
    return asdict(trace)


def read_trace(record: Any, where: str = "trace") -> Trace:
    """Build a Trace from its record; raise RecordError that names what is missing or wrong."""
    try:
        turns = tuple(Turn(**turn) for turn in record["turns"])
        trace = Trace(dict(record["header"]), turns, StopReason(record["stop"]), record.get("answer"))
        Form.parse(trace.header["form"])
        for turn in turns:
            if turn.status not in get_args(CallStatus) or not isinstance(turn.detail, dict):
                raise ValueError(f"turn {turn.index} has status {turn.status!r}, detail {turn.detail!r}")
            if turn.kind not in (None, *get_args(ToolKind)):
                raise ValueError(f"turn {turn.index} has kind {turn.kind!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{where}: not a trace record ({type(error).__name__}: {error})") from error
    if [turn.index for turn in turns] != list(range(len(turns))):
        raise RecordError(f"{where}: turns are not numbered 0..{len(turns) - 1}; the record is damaged")
    return trace


def save_trace(path: Path, trace: Trace) -> None:
    """Append a trace to a JSONL file."""
    append_jsonl(path, trace_record(trace))


def load_traces(path: Path) -> list[Trace]:
    """Read every trace of a JSONL file; raise RecordError that names file and line of the first damaged one."""
    return [read_trace(record, f"{path}, record {n}") for n, record in enumerate(read_jsonl(path), start=1)]
