"""The nouns that both wings share. Read this file first.

Data meets them in this order::

    Theta -> Solution -> WorldSpec -> Environment (PublicView + sealed truth)
          -> Episode -> Trace -> Score -> frame -> Figure

`Theta`, `Solution` and `WorldSpec` belong to the solve-first wing (`solvefirst/`). Everything here is
frozen, and nothing here can hold a solution or a hidden value except `Score`, which is made after the
episode has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

ToolKind = Literal["probe", "decision", "query", "code"]
CallStatus = Literal["ok", "refused"]


class Form(StrEnum):
    """How one instance is presented."""

    WRITTEN = "F"  # everything in the prompt, one written answer: a plan
    INFORMED = "I"  # parameters shown at the start, then act
    AGENTIC = "A"  # parameters only through interaction

    @classmethod
    def parse(cls, value: str) -> Form:
        """Return the form named by `value`, or raise ValueError that lists the forms."""
        try:
            return cls(value)
        except ValueError:
            raise ValueError(f"unknown form {value!r}: choose one of {', '.join(cls)}") from None


class StopReason(StrEnum):
    """Why an episode ended."""

    COMPLETED = "completed"  # no decision is left
    BUDGET = "budget"  # the turn budget is spent
    STOPPED = "stopped"  # the agent ended it early
    ANSWERED = "answered"  # form F: an answer was read
    MALFORMED = "malformed"  # form F: no plan could be read from the answer; scores 0


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """One tool as an agent sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]
    kind: ToolKind

    def openai(self) -> dict[str, Any]:
        """Return the schema in the function-calling format that chat templates take."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class PublicView:
    """All that a player may have before its first call.

    prompt       messages with role and content, in chat order
    tools        schemas; in form F none but the code tool, where it is offered
    turn_budget  T, calls of any kind; in form F those of the code tool, 0 without one
    files        public artifacts by name: the database of wing one, the file tree of wing two
    """

    prompt: tuple[dict[str, str], ...]
    tools: tuple[ToolSchema, ...]
    turn_budget: int
    files: dict[str, bytes] = field(repr=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One call and what came of it, as the trace keeps it.

    index      0-based; every call costs exactly one turn
    tool       the name that was called, as the agent wrote it
    arguments  JSON value as the agent wrote it, bounded in size
    reply      the message the agent got
    kind       kind of the tool, None when no such tool exists
    status     ok or refused (a refused call changes nothing but the budget)
    detail     wing-specific, JSON: the action and its gain, the entry revealed, ...
    """

    index: int
    tool: str
    arguments: Any
    reply: str
    kind: ToolKind | None
    status: CallStatus
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """One episode, complete: it can be scored again without a model.

    header  JSON: environment id, form, budget, versions, policy, and what rebuilds the environment
    turns   in order
    stop    why it ended
    answer  the text of a written answer, bounded in size: form F's plan
    where   file and line that it was read from; for messages only, it is no part of the record
    """

    header: dict[str, Any]
    turns: tuple[Turn, ...]
    stop: StopReason
    answer: str | None = None
    where: str = field(default="trace", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Score:
    """What an episode earned.

    reward  in [0, 1], what training sees
    detail  wing-specific numbers (JSON), null where a number does not exist
    """

    reward: float
    detail: dict[str, Any]


class Episode(Protocol):
    """What a policy, a trainer or a study may ask of an episode of either wing."""

    @property
    def view(self) -> PublicView: ...

    @property
    def done(self) -> bool: ...

    def call(self, name: str, arguments: Any) -> str:
        """Execute one tool call and return one short message. Never raises on bad input."""
        ...

    def answer(self, text: str) -> None:
        """Form F: hand in the written answer; anything is scored, nothing raises. Elsewhere it ends the episode."""
        ...

    def stop(self) -> None:
        """End the episode early; nothing happens if it has ended."""
        ...

    def score(self) -> Score:
        """Score the episode as it stands."""
        ...

    def rewards(self, kind: str) -> list[float]:
        """Return one number a call, how the reward of kind `kind` falls on the turns; a further one is for leaving."""
        ...

    def trace(self) -> Trace:
        """Return the episode so far."""
        ...
