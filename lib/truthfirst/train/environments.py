"""Episodes as TRL environments: one class for each set of tools, one instance for each row of the data.

TRL's trainer takes environments from factories, shows a prompt the public methods of the environment that its row
names, and calls those methods as tools. Here each distinct set of tool schemas becomes a class (`environment_class`)
whose only public methods are `reset` and the domain tools; which instance is played comes from the row, so that all
rollouts of a group play the same one:

    prompt       messages of the instance's public view
    environment  name of the class, a hash of its tool schemas
    instance     key under which `open_instance` finds whatever has `view(form)` and `episode(form, policy)`
    form         F, I or A
    stratum      under which results are reported, such as the family
    turn_budget  T of the view

A tool method takes any arguments: what does not fit its schema reaches the episode, which refuses and charges it as it
would any player's. What an episode raises is a fault of the grader, never of the model; TRL would turn it into a
message to the model, so it is kept and raised when the episode is scored.

Nothing here knows a wing, and nothing here needs TRL.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ..policies.calls import visible
from ..records import content_hash
from ..types import Episode, Form, PublicView, Score, StopReason, ToolSchema

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_TAKEN = ("reset", "get_reward")  # names that TRL reads as something else than a tool


class Playable(Protocol):
    """An environment of either wing."""

    def view(self, form: Form) -> PublicView: ...

    def episode(self, form: Form, policy: str) -> Episode: ...


Open = Callable[[str], Playable]


class TaskError(ValueError):
    """Tools or instances cannot be offered to the trainer; the message names what and why."""


class Rollout:
    """One episode as it is played under the trainer.

    row       of the data
    messages  calls that each message of the policy made and the episode charged, in order
    seconds   spent in the environment
    """

    def __init__(self, row: dict[str, Any], open_instance: Open) -> None:
        self.row, self.messages, self.seconds = row, list[int](), 0.0
        self.form = Form.parse(row["form"])
        self._charged = 0
        self._fault: Exception | None = None
        self._score: Score | None = None
        with self._timed():
            self.episode = open_instance(row["instance"]).episode(self.form, "training")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - begin

    @property
    def over(self) -> bool:
        """Whether nothing that the policy writes can change the episode any more."""
        return self.episode.done

    def message(self) -> None:
        """Note that the policy writes its next message."""
        self.messages.append(0)

    def call(self, name: str, arguments: Any) -> str:
        """Execute one call; any name and any arguments reach the episode."""
        with self._timed():
            try:
                reply = self.episode.call(name, arguments)
            except Exception as fault:
                self._fault = self._fault or fault
                raise
            charged = len(self.episode.trace().turns)
            if self.messages:
                self.messages[-1] += charged - self._charged
            self._charged = charged
            return reply

    def finish(self, last: str) -> Score:
        """Score the episode; `last` is the policy's last message, the answer in form F. Raises a kept fault."""
        if self._fault is not None:
            raise self._fault
        with self._timed():
            if self._score is None:
                if self.form is Form.WRITTEN:
                    self.episode.answer(visible(last))
                self.episode.stop()
                self._score = self.episode.score()
            return self._score

    @property
    def reward(self) -> float:
        """The score of the finished episode, in [0, 1]."""
        assert self._score is not None
        return self._score.reward

    def earned(self, kind: str) -> float:
        """Return what the finished episode earns in training; the kinds are those of `Plan.reward`.

        A malformed answer earns what u0 would; a wing without utilities has its score alone.
        """
        assert self._score is not None
        detail = self._score.detail
        if kind == "score" or "u_zero" not in detail:
            return self.reward
        if kind == "unclipped":
            return float(detail["unclipped"] or 0.0)
        return float(detail["u_zero"] if detail["u"] is None else detail["u"])

    def record(self) -> dict[str, Any]:
        """Return what happened, as numbers: reward, calls, how many of them probed or were refused, and whether the
        episode came to its end (the policy did not leave it early).
        """
        trace = self.episode.trace()
        calls = trace.turns[: self._charged]
        return {
            "form": str(self.form),
            "stratum": self.row.get("stratum", ""),
            "reward": self.reward,
            "turns": len(calls),
            "probes": sum(turn.kind == "probe" and turn.status == "ok" for turn in calls),
            "refused": sum(turn.status == "refused" for turn in calls),
            "ended": trace.stop is not StopReason.STOPPED,
        }

    def turn_rewards(self, kind: str) -> list[float]:
        """Return one number a message: the sum of its calls' rewards of this kind; `finish` comes first.

        What was rewarded without a call (the steps of a written plan) falls on the last message. An episode without
        any call has no rewards, but where regrets are asked for it has lost what was to be had, and pays for it.
        """
        assert self._score is not None
        with self._timed():
            rewards = self.episode.rewards(kind)
        if not rewards and kind.startswith("regret"):
            unclipped = self._score.detail.get("unclipped")
            rewards = [(self._score.reward if unclipped is None else unclipped) - 1.0]
        turns, first = [], 0
        for calls in self.messages or [0]:
            turns.append(sum(rewards[first : first + calls]))
            first += calls
        turns[-1] += sum(rewards[first:])
        return turns


class EpisodeEnvironment:
    """What TRL holds: it makes some, and resets each to a new episode as often as it likes.

    Every attribute is private, since TRL offers each public method as a tool and a tool may have any name.
    """

    _tools: ClassVar[tuple[ToolSchema, ...]] = ()
    _open: ClassVar[Open]
    _rollout: Rollout

    def reset(self, **row: Any) -> None:
        """Begin a new episode of the instance that the row names."""
        self._rollout = Rollout(row, type(self)._open)


# --- a class for each set of tools ----------------------------------------------------------------------
def tool_set_name(tools: Sequence[ToolSchema]) -> str:
    """Return the name under which a set of tools is known: a hash of its schemas."""
    return f"tools_{content_hash([tool.openai() for tool in tools], 12)}" if tools else "no_tools"


def environment_class(tools: Sequence[ToolSchema], open_instance: Open) -> type[EpisodeEnvironment]:
    """Return the class whose public methods are `reset` and `tools`; raise TaskError for a name TRL cannot carry."""
    methods: dict[str, Any] = {}
    for tool in tools:
        if tool.name in methods or tool.name in _TAKEN or tool.name.startswith("_"):
            raise TaskError(
                f"tool {tool.name!r}: the name is taken, or begins with an underscore; rename the tool"
            )
        methods[tool.name] = _method(tool)
    members = {"_tools": tuple(tools), "_open": staticmethod(open_instance), **methods}
    return type(tool_set_name(tools), (EpisodeEnvironment,), members)


def _method(tool: ToolSchema) -> Callable[..., str]:
    """Return a tool as a method with the name, signature and docstring that describe it."""

    def call(self: EpisodeEnvironment, /, **arguments: Any) -> str:
        return self._rollout.call(tool.name, arguments)

    properties = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    annotations = {name: _TYPES.get(schema.get("type", ""), Any) for name, schema in properties.items()}
    lines = [
        f"    {name}: {' '.join(str(schema.get('description', name)).split())}"
        for name, schema in properties.items()
    ]
    call.__name__ = tool.name
    call.__qualname__ = f"{EpisodeEnvironment.__name__}.{tool.name}"
    call.__doc__ = "\n".join([tool.description, "", "Args:", *lines]) if lines else tool.description
    if all(name.isidentifier() and not keyword.iskeyword(name) and name != "self" for name in properties):
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
        for name in properties:
            default = inspect.Parameter.empty if name in required else None
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotations[name]))
        call.__annotations__ = {**annotations, "return": str}
        call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return call  # an argument called `class` can be given by keyword, though no signature can name it


# --- rows of data ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskSet:
    """What a trainer plays: rows of data, and the classes that they name.

    turn_budget  the largest of any row
    """

    rows: list[dict[str, Any]]
    factories: dict[str, type[EpisodeEnvironment]]
    turn_budget: int


def task_set(
    instances: Iterable[tuple[str, str]],
    forms: Sequence[Form | str],
    open_instance: Open,
    *,
    cache: int = 1_024,
) -> TaskSet:
    """Return the rows of every instance in every form.

    instances      (key, stratum) pairs, in order
    open_instance  from a key to its environment; what it gives is kept for the last `cache` keys
    Raises TaskError when there is nothing to play.
    """
    opened = functools.lru_cache(maxsize=cache)(open_instance)
    parsed = [Form.parse(form) for form in forms]
    rows, budget = [], 0
    factories: dict[str, type[EpisodeEnvironment]] = {}
    for key, stratum in instances:
        playable = opened(key)
        for form in parsed:
            view = playable.view(form)
            name = tool_set_name(view.tools)
            if name not in factories:
                factories[name] = environment_class(view.tools, opened)
            budget = max(budget, view.turn_budget)
            prompt = [dict(message) for message in view.prompt]
            rows.append(
                {
                    "prompt": prompt,
                    "environment": name,
                    "instance": key,
                    "form": str(form),
                    "stratum": stratum,
                    "turn_budget": view.turn_budget,
                }
            )
    if not rows:
        raise TaskError("there is nothing to play: give at least one instance and one form (F, I or A)")
    return TaskSet(rows, factories, budget)
