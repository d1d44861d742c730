"""Faults of the episode: what a decision does and is said to do, what a turn costs, and what it all earns."""

from __future__ import annotations

import dataclasses
from typing import Any

from ....episode import BudgetedEpisode, Outcome
from ....types import Form
from ... import environment as wrap
from ... import references, score
from ...environment import Environment, InstanceEpisode
from ...families.base import Action, Family, Key, State, Theta
from ...realize.tools import Refusal
from .base import Fault, Patch, Patches, around, listed_in

FAULTS: list[Fault] = []
fault = listed_in(FAULTS)


def _started(change: Any) -> Patch:
    """Do something to every episode right after it has started."""

    def init(original: Any, episode: InstanceEpisode, *args: Any, **kwargs: Any) -> None:
        original(episode, *args, **kwargs)
        change(episode)

    return around(InstanceEpisode, "__init__", init)


# --- decisions ----------------------------------------------------------------------------------------------
@fault
def decision_not_applied(environment: Environment) -> Patches:
    """A decision is answered as if it had been executed, but the new state is never stored."""

    def decide(original: Any, episode: InstanceEpisode, action: Action) -> Outcome:
        before, moves = episode.state, episode._moves
        outcome = original(episode, action)
        episode.state, episode._moves = before, moves
        return outcome

    return [around(InstanceEpisode, "_decide", decide)]


@fault
def decision_applied_twice(environment: Environment) -> Patches:
    """A decision is sent again after a supposed timeout and, where it is still legal, executed again."""

    def decide(original: Any, episode: InstanceEpisode, action: Action) -> Outcome:
        outcome = original(episode, action)
        if any(action in move for move in episode._moves):
            family, theta = episode._family, episode._theta
            episode.state = family.step(theta, episode.state, action)[0]
            episode._moves = family.legal(theta, episode.state)
        return outcome

    return [around(InstanceEpisode, "_decide", decide)]


@fault
def costs_counted_as_gains(environment: Environment) -> Patches:
    """The episode's step has the wrong sign: what is lost counts as earned."""

    def flip(episode: InstanceEpisode) -> None:
        right = episode._family

        def step(theta: Theta, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
            after, gain, shown = right.step(theta, state, action)
            return after, -gain, shown

        episode._family = dataclasses.replace(right, step=step)

    return [_started(flip)]


@fault
def reply_has_the_wrong_sign(environment: Environment) -> Patches:
    """Gains are counted rightly but told with the opposite sign."""

    def account(original: Any, episode: InstanceEpisode, action: Action, gain: int, new: Any) -> str:
        return original(episode, action, -gain, new)

    return [around(InstanceEpisode, "_account", account)]


@fault
def reply_in_another_unit(environment: Environment) -> Patches:
    """Gains are told in tens, rounded."""

    def account(original: Any, episode: InstanceEpisode, action: Action, gain: int, new: Any) -> str:
        return original(episode, action, round(gain / 10), new)

    return [around(InstanceEpisode, "_account", account)]


@fault
def status_of_the_state_before(environment: Environment) -> Patches:
    """The status line of a reply describes the state before the decision."""

    def decide(original: Any, episode: Any, action: Action) -> Outcome:
        episode.state_before = episode.state
        return original(episode, action)

    def account(original: Any, episode: Any, *args: Any) -> str:
        now, episode.state = episode.state, episode.state_before
        try:
            return original(episode, *args)
        finally:
            episode.state = now

    return [around(InstanceEpisode, "_decide", decide), around(InstanceEpisode, "_account", account)]


@fault
def decision_shows_too_much(environment: Environment) -> Patches:
    """The reply to a decision lists an entry that its outcome does not let anybody see."""

    def account(
        original: Any, episode: InstanceEpisode, action: Action, gain: int, new: dict[Key, int]
    ) -> str:
        rest = {k: v for k, v in episode._family.hidden(episode._theta).items() if k not in episode.known}
        return original(episode, action, gain, new | dict(list(rest.items())[-1:]))

    return [around(InstanceEpisode, "_account", account)]


@fault
def mechanism_runs_on_the_means(environment: Environment) -> Patches:
    """The episode is started with the published typical values, not with the true entries."""

    def swap(episode: InstanceEpisode) -> None:
        episode._theta = episode._family.expected(episode._theta, {})

    return [_started(swap)]


@fault
def regret_is_refused(environment: Environment) -> Patches:
    """A guard left over from a demonstration refuses every decision that is not optimal."""

    def decide(original: Any, episode: InstanceEpisode, action: Action) -> Outcome:
        family, theta = episode._family, episode._theta
        if any(action in move for move in episode._moves):
            after, gain, _ = family.step(theta, episode.state, action)
            if (
                gain + family.value_to_go(theta, after)
                < family.value_to_go(theta, episode.state) - family.epsilon
            ):
                raise Refusal("that would be unwise")
        return original(episode, action)

    return [around(InstanceEpisode, "_decide", decide)]


# --- turns --------------------------------------------------------------------------------------------------
@fault
def refused_calls_are_free(environment: Environment) -> Patches:
    """A refused call is taken off the record and costs no turn."""

    def call(original: Any, episode: BudgetedEpisode, name: str, arguments: Any) -> str:
        reply = original(episode, name, arguments)
        if episode.turns and episode.turns[-1].status == "refused":
            episode.turns.pop()
        return reply

    return [around(BudgetedEpisode, "call", call)]


@fault
def one_turn_too_many(environment: Environment) -> Patches:
    """The episode counts its turns from 0 to T and so grants one more than it says."""

    def extend(episode: InstanceEpisode) -> None:
        if episode.form is not Form.WRITTEN:
            episode.view = dataclasses.replace(episode.view, turn_budget=episode.view.turn_budget + 1)

    return [_started(extend)]


@fault
def budget_forgets_the_probes(environment: Environment) -> Patches:
    """The turn budget is sized for the decisions alone."""

    def turns(family: Family, theta: Theta, budget: str) -> int:
        return family.horizon(theta)

    return [Patch(wrap, "turn_budget", turns), Patch(references, "turn_budget", turns)]


@fault
def episodes_share_their_database(environment: Environment) -> Patches:
    """All episodes of an environment write to the same live database."""
    live: dict[str, Any] = {}

    def share(episode: InstanceEpisode) -> None:
        if episode.form is not Form.WRITTEN:
            episode._ledger = live.setdefault(episode.environment.id, episode._ledger)

    return [_started(share)]


# --- scores -------------------------------------------------------------------------------------------------
@fault
def stopping_early_costs_nothing(environment: Environment) -> Patches:
    """The score leaves out what the dynamics force when nobody decides any more."""

    def total(original: Any, replay: score.Replay) -> int:
        family = dataclasses.replace(replay.family, abandon=lambda theta, state: 0)
        return original(dataclasses.replace(replay, family=family))

    return [around(score.Replay, "total", total)]


@fault
def reward_without_baseline(environment: Environment) -> Patches:
    """The reward is u over u_star: the baseline is not taken off."""

    def reward(u: int, u_star: int, u_zero: int) -> float:
        return min(1.0, max(0.0, u / u_star)) if u_star else 0.0

    return [Patch(score, "reward", reward)]


@fault
def written_plan_loses_its_first_step(environment: Environment) -> Patches:
    """The reader of written plans counts steps from 1 and skips step 0."""

    def read(original: Any, text: str) -> Any:
        steps = original(text)
        return steps[1:] if steps else steps

    return [around(wrap, "read_plan", read)]
