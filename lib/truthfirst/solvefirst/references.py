"""Scripted policies, and the reachable reference u_reach.

A scripted policy decides from a `Position`, which holds what an attentive agent knows and nothing else; only the
oracle `optimal` is given every hidden entry. Policies play through the wrapped tools, as a model would.

u_star assumes full information. u_reach is what the scripted policy that is best on average for a family, size and
budget earns among those that see only what an agent may see; under an ample budget, where every entry can be
probed, that is u_star itself.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np

from ..streams import stream
from ..types import Form, Trace
from . import information
from .environment import Environment, InstanceEpisode, Position, turn_budget
from .families import family as find_family
from .families.base import Action, Family, Key, Move, State, Theta, UnknownName
from .realize.tools import Probe
from .score import planned

Decide = Callable[[Position, np.random.Generator], Probe | Action | None]


@dataclass(frozen=True)
class Policy:
    """A scripted policy; `oracle` ones are given every hidden entry (they are references, not agents)."""

    name: str
    decide: Decide
    oracle: bool = False


# --- what to do next --------------------------------------------------------------------------------------
def plan(position: Position, rng: np.random.Generator) -> Action | None:
    """Act on an optimal plan for what is believed: known entries, prior means for the rest."""
    return planned(position.family, position.believed, position.state)


def default(position: Position, rng: np.random.Generator) -> Action | None:
    """The family's fixed baseline, which earns u_zero."""
    if not position.family.legal(position.public, position.state):
        return None
    return position.family.default(position.public, position.state)


def random(position: Position, rng: np.random.Generator) -> Probe | Action | None:
    """A uniformly random verb with uniformly random legal arguments; a random probe in one turn of three."""
    unknown = _unknown(position)
    if unknown and rng.random() < 1 / 3:
        return Probe(unknown[int(rng.integers(len(unknown)))])
    moves = position.family.legal(position.public, position.state)
    if not moves:
        return None
    verbs = sorted({move.verb for move in moves})
    verb = verbs[int(rng.integers(len(verbs)))]
    return draw_action([move for move in moves if move.verb == verb], rng)


def draw_action(moves: Sequence[Move], rng: np.random.Generator) -> Action:
    """Return one of all actions of `moves`, each as likely as any other; `moves` must hold at least one action."""
    sizes = np.array([len(move) for move in moves], dtype=float)
    move = moves[int(rng.choice(len(moves), p=sizes / sizes.sum()))]
    return Action(move.verb, tuple(int(allowed[int(rng.integers(len(allowed)))]) for allowed in move.choices))


def myopic(position: Position, rng: np.random.Generator) -> Action | None:
    """The legal action with the largest expected immediate gain; the least action among equals."""
    family, believed, state = position.family, position.believed, position.state
    best: tuple[int, Action] | None = None
    for move in family.legal(position.public, state):
        for action in move:
            gain = family.step(believed, state, action)[1]
            if best is None or gain > best[0]:
                best = (gain, action)
    return best[1] if best else None


def _unknown(position: Position) -> list[Key]:
    """List the entries that could still be probed, in order of their first index, then their field."""
    keys = position.family.probe_keys(position.public)
    return sorted((k for k in keys if k not in position.known), key=lambda k: (k[1:], k[0]))


def _decisions_left(position: Position) -> int:
    return position.family.horizon(position.family.residual(position.public, position.state))


def _ordered(order: str, position: Position) -> list[Key]:
    unknown = _unknown(position)
    if order == "first":
        return unknown
    prior = position.family.prior(position.public)
    rank = {"wide": lambda k: prior[k][0] - prior[k][1], "high": lambda k: -prior[k][2]}[order]
    return sorted(unknown, key=rank)


def probe_then_plan(limit: int | None, order: str = "first") -> Decide:
    """Probe up to `limit` entries (as many as leave room for every decision if None), then plan."""

    def decide(position: Position, rng: np.random.Generator) -> Probe | Action | None:
        used = position.turn_budget - position.turns_left
        affordable = position.turns_left > _decisions_left(position)
        if affordable and (limit is None or used < limit) and (unknown := _ordered(order, position)):
            return Probe(unknown[0])
        return plan(position, rng)

    return decide


def probe_as_you_go(position: Position, rng: np.random.Generator) -> Probe | Action | None:
    """Spread the affordable probes over the decisions, nearest entries first; plan with what is known."""
    left = _decisions_left(position)
    spare = position.turns_left - left
    total = position.family.horizon(position.public)
    keep = math.floor((position.turn_budget - total) * (left - 1) / max(1, total))
    if spare > max(0, keep) and (unknown := _unknown(position)):
        return Probe(unknown[0])
    return plan(position, rng)


def reservation(position: Position, rng: np.random.Generator) -> Probe | Action | None:
    """Weitzman's rule in `search`, by the law of the published priors; in other families, plan."""
    if position.family.name != "search" or not position.family.legal(position.public, position.state):
        return plan(position, rng)
    law = information.laws(position.family, position.public)
    boxes = [law["prize", position.state.period, i] for i in range(len(position.public.fee))]
    return information.reservation_rule(position.believed, position.state, boxes)


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("optimal", plan, oracle=True),
        Policy("default", default),
        Policy("random", random),
        Policy("myopic", myopic),
        Policy("plan", plan),
        Policy("probe-all", probe_then_plan(None)),
        Policy("probe-wide", probe_then_plan(None, "wide")),
        Policy("probe-high", probe_then_plan(None, "high")),
        Policy("probe-as-you-go", probe_as_you_go),
        Policy("reservation", reservation),
    )
}
CANDIDATES = (
    "default",
    "myopic",
    "plan",
    "probe-all",
    "probe-wide",
    "probe-high",
    "probe-as-you-go",
)


def policy(name: str) -> Policy:
    """Return the scripted policy `name`: one of POLICIES, or probe-K for any K (probe K entries, then plan)."""
    if name in POLICIES:
        return POLICIES[name]
    if match := re.fullmatch(r"probe-(\d{1,4})", str(name)):
        return Policy(name, probe_then_plan(int(match.group(1))))
    raise UnknownName("policy", name, (*POLICIES, "probe-K"))


# --- playing ----------------------------------------------------------------------------------------------
def play(scripted: Policy, environment: Environment, form: Form | str, seed: int) -> Trace:
    """Play one episode through the wrapped tools and return its trace."""
    rng = stream(seed, "policy", scripted.name, environment.id, str(form))
    episode = environment.episode(form, scripted.name)
    if episode.form is Form.WRITTEN:
        episode.answer(_written(scripted, episode, rng))
        return episode.trace()
    hidden = environment.family.hidden(environment.theta) if scripted.oracle else None
    while not episode.done:
        position = episode.position()
        choice = scripted.decide(replace(position, known=hidden) if hidden else position, rng)
        if choice is None:
            episode.stop()
        else:
            episode.call(*episode.write(choice))
    return episode.trace()


def _written(scripted: Policy, episode: InstanceEpisode, rng: np.random.Generator) -> str:
    """Write a plan by playing the policy in one's head: in form F everything is known."""
    position = episode.position()
    steps = _imagine(scripted, position.family, position.believed, position, rng)
    return episode.write_plan(steps)


def _imagine(
    scripted: Policy, family: Family, theta: Theta, position: Position, rng: np.random.Generator
) -> tuple[Action, ...]:
    """Play a policy on a known theta; probes are skipped, since nothing is left to learn."""
    steps: list[Action] = []
    state: State = position.state
    while family.legal(theta, state):
        choice = scripted.decide(replace(position, state=state), rng)
        if not isinstance(choice, Action):
            break
        state = family.step(theta, state, choice)[0]
        steps.append(choice)
    return tuple(steps)


def simulate(scripted: Policy, family: Family, theta: Theta, budget: str, seed: int) -> int:
    """Return u of a policy in form A on bare theta: the same turns and knowledge, without words or tables."""
    rng = stream(seed, "simulate", scripted.name)
    public = family.expected(theta, {})
    turns = left = turn_budget(family, theta, budget)
    state, total = family.start(theta), 0
    known: dict[Key, int] = family.hidden(theta) if scripted.oracle else {}
    while left and family.legal(theta, state):
        choice = scripted.decide(Position(family, public, state, dict(known), turns, left), rng)
        if choice is None:
            break
        left -= 1
        if isinstance(choice, Probe):
            known[choice.key] = family.hidden(theta)[choice.key]
        else:
            state, gain, shown = family.play(theta, state, choice)
            known |= shown
            total += gain
    return total + family.abandon(theta, state)


# --- the reachable reference ------------------------------------------------------------------------------
REACH_DRAWS = 40


def candidates(family_name: str) -> tuple[str, ...]:
    """Return the policies among which u_reach is chosen: in `search` Weitzman's rule too."""
    return (*CANDIDATES, "reservation") if family_name == "search" else CANDIDATES


def needs_calibration(family: Family, budget: str) -> bool:
    """Say whether u_reach must be found: not under an ample budget where every hidden entry can be probed.

    Probing all and planning then earns u_star. In `search` only decisions reveal, so both budgets are calibrated.
    """
    return budget != "ample" or len(family.interface.probes) < len(family.interface.hidden_fields)


def calibrate(family_name: str, size: str, budget: str, draws: int = REACH_DRAWS) -> str:
    """Return the candidate that is best on average over `draws` calibration instances (ties: first listed)."""
    family = find_family(family_name)
    means = {}
    for name in candidates(family_name):
        scores = []
        for index in range(draws):
            theta = family.sample(stream(0, "reach", family_name, size, index), size)
            solution = family.solve(theta)
            if solution.span > 0:
                u = simulate(POLICIES[name], family, theta, budget, index)
                scores.append((u - solution.u_zero) / solution.span)
        means[name] = sum(scores) / len(scores)
    return max(means, key=means.__getitem__)


@functools.lru_cache(maxsize=1)
def reach_table() -> dict[str, str]:
    """Return the stored table 'family/size/budget' -> best candidate (written by `make certify`)."""
    file = resources.files(__package__).joinpath("reachable.json")
    return json.loads(file.read_text())["policies"] if file.is_file() else {}


@functools.lru_cache(maxsize=256)
def reachable_policy(family_name: str, size: str, budget: str) -> Policy:
    """Return the reference policy of u_reach: probe all, or from the stored table, else calibrated now."""
    if not needs_calibration(find_family(family_name), budget):
        return POLICIES["probe-all"]
    name = reach_table().get(f"{family_name}/{size}/{budget}") or calibrate(family_name, size, budget)
    return POLICIES[name]


def u_reach(family: Family, theta: Theta, size: str, budget: str) -> int:
    """Return what the reference policy earns on theta."""
    return simulate(reachable_policy(family.name, size, budget), family, theta, budget, 0)
