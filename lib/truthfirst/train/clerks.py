"""Transcripts to learn from: written-out answers, and clerks of whom few play well.

A base model in the source writes a good plan when everything stands before it, and plays badly when it has to ask and
act. The tiny base gets both halves from supervision:

    answer     form F: the optimal plan of the instance
    careful    forms I and A: asks every figure that the budget affords, writes down an optimal plan in the words of
               form F, and acts on it call by call
    careless   asks a random part of the figures, in any order, then decides at random among the permitted actions;
               now and then a call is refused, and some leave before the end

The share of careful clerks sets how well the base acts; training has to find and keep what they do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..solvefirst.environment import Environment, InstanceEpisode
from ..solvefirst.families.base import Action, Move
from ..solvefirst.realize.tools import Probe
from ..solvefirst.references import POLICIES, Position, draw_action
from ..types import Form

DONE = "Done."
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Habits:
    """How clerks are drawn.

    careful   share of clerks who play well
    plans     whether these write their plan down before the first decision
    ahead     decisions that they plan at a time; 0: all that are left
    slip      chance, whenever they would plan, that they take the same number of decisions at random instead
    fumble    chance that a careless clerk's decision is one that cannot be permitted
    leave     chance, before each decision, that a careless clerk goes home
    """

    careful: float = 0.25
    plans: bool = True
    ahead: int = 0
    slip: float = 0.0
    fumble: float = 0.03
    leave: float = 0.02


def answer(environment: Environment) -> Messages:
    """Return the conversation of form F with the optimal plan as its answer."""
    plan = environment.episode(Form.WRITTEN).write_plan(environment.solution.plan)
    return [*map(dict, environment.view(Form.WRITTEN).prompt), {"role": "assistant", "content": plan}]


def clerk(environment: Environment, form: Form, habits: Habits, rng: np.random.Generator) -> Messages:
    """Return the conversation of one clerk drawn by `habits`, in form I or A."""
    episode = environment.episode(form)
    messages: Messages = [dict(message) for message in episode.view.prompt]
    play = _careful if rng.random() < habits.careful else _careless

    def act(name: str, arguments: dict[str, Any], thought: str = "") -> None:
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})
        messages.append({"role": "tool", "name": name, "content": episode.call(name, arguments)})

    play(episode, habits, rng, act)
    messages.append({"role": "assistant", "content": DONE})
    return messages


Act = Callable[..., None]


def _careful(episode: InstanceEpisode, habits: Habits, rng: np.random.Generator, act: Act) -> None:
    decide = POLICIES["probe-all"].decide
    plan: deque[Action] = deque()
    slipping = 0  # decisions still to be taken at random
    while not episode.done:
        position = episode.position()
        choice = decide(position, rng)
        if choice is None:
            return
        thought = ""
        if isinstance(choice, Action) and not plan and not slipping and rng.random() < habits.slip:
            slipping = habits.ahead or position.family.horizon(position.public)
        if isinstance(choice, Action) and slipping:
            choice = draw_action(_moves(position), rng)
            slipping -= 1
        elif isinstance(choice, Action) and habits.plans:
            if not plan and position.known.keys() >= position.family.hidden(position.public).keys():
                rest = position.family.residual(position.believed, position.state)
                plan.extend(position.family.optimum(rest).plan[: habits.ahead or None])
                thought = episode.write_plan(tuple(plan))
            if plan:
                choice = plan.popleft()
        act(*episode.write(choice), thought)


def _careless(episode: InstanceEpisode, habits: Habits, rng: np.random.Generator, act: Act) -> None:
    position = episode.position()
    unknown = [key for key in position.family.probe_keys(position.public) if key not in position.known]
    spare = max(0, episode.turns_left - position.family.horizon(position.public))
    asked = int(rng.integers(0, min(spare, len(unknown)) + 1))
    for i in rng.permutation(len(unknown))[:asked]:
        act(*episode.write(Probe(unknown[int(i)])))
    while not episode.done and rng.random() >= habits.leave:
        moves = _moves(episode.position())
        if not moves:
            return
        name, arguments = episode.write(draw_action(moves, rng))
        numbers = [key for key, value in arguments.items() if isinstance(value, int)]
        if numbers and rng.random() < habits.fumble:
            arguments = arguments | {numbers[-1]: arguments[numbers[-1]] + int(rng.integers(5, 20))}
        act(name, arguments)


def _moves(position: Position) -> list[Move]:
    return [move for move in position.family.legal(position.public, position.state) if len(move)]
