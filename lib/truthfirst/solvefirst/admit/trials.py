"""Trials that the gates put an environment through: looking, calling, playing a plan, asking what reveals nothing.

The environment's own code is on trial here, so whatever it raises is evidence against it (`GateFailure`); every reply
is compared with what the mechanism, asked directly, says. A number in a reply or a prompt that nothing accounts for
is a failure, for that is how a hidden value gets out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ...types import Form, PublicView, Turn
from ..environment import Environment, InstanceEpisode
from ..families.base import Action, Key, Solution, State, Theta, entry
from ..realize.tools import Probe
from .reading import Reader, render
from .wording import GateFailure, account_for, identifiers, numbers, require, without

T = TypeVar("T")
LISTED_ROWS = 20  # rows that one query must show without cutting
TRIES = 60  # decisions that a stubborn plan tries out, over the whole plan


# --- looking and calling ----------------------------------------------------------------------------------
def guarded(what: str, action: Callable[[], T]) -> T:
    """Do something with the environment; whatever it raises is evidence."""
    try:
        return action()
    except GateFailure:
        raise
    except Exception as error:  # the environment is on trial: whatever it raises is evidence
        raise GateFailure(f"{what} raised {type(error).__name__}: {error}") from error


def reader_of(environment: Environment) -> Reader:
    """Return the reader of an environment's published words."""
    return Reader(environment.family, environment.spec, environment.family.counts(environment.theta))


def view_of(environment: Environment, form: Form = Form.AGENTIC) -> PublicView:
    """Return a public view; a crash of the builder is evidence."""
    return guarded(f"building the view of form {form}", lambda: environment.view(form))


def start_episode(environment: Environment, form: Form = Form.AGENTIC) -> InstanceEpisode:
    """Start an episode; a crash is evidence."""
    return guarded(f"starting an episode in form {form}", lambda: environment.episode(form))


def going_on(environment: Environment, episode: InstanceEpisode) -> InstanceEpisode:
    """Return `episode`, or a fresh one once it is over."""
    return start_episode(environment) if episode.done else episode


def call(episode: InstanceEpisode, name: str, arguments: Any) -> tuple[str, Turn]:
    """Make one call that must be executed and charged; return the reply and the recorded turn."""
    before = len(episode.turns)
    reply = guarded(f"{name}({arguments})", lambda: episode.call(name, arguments))
    require(len(episode.turns) == before + 1, f"{name}({arguments}) is not charged: the reply was {reply!r}")
    return reply, episode.turns[-1]


@contextlib.contextmanager
def database_of(environment: Environment) -> Iterator[sqlite3.Connection]:
    """Open the published database; what SQLite cannot read is evidence."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(view_of(environment).files.get("world.sqlite", b""))
        yield connection
    except sqlite3.Error as error:
        raise GateFailure(f"the database cannot be read: {error}") from error
    finally:
        connection.close()


def queried(episode: InstanceEpisode, reader: Reader, table: str) -> list[list[str]]:
    """Return the first rows of a table as the query tool tells them, as cells of text."""
    sql = f'SELECT * FROM "{table}" LIMIT {LISTED_ROWS}'
    reply, turn = call(episode, reader.spec.tools["query"].name, {"sql": sql})
    require(turn.status == "ok" and turn.kind == "query", f"{sql} is refused: {reply!r}")
    _, *rows = reply.split("\n")[:-1]
    return [] if rows == ["(no rows)"] else [[cell.strip() for cell in row.split(" | ")] for row in rows]


# --- playing ----------------------------------------------------------------------------------------------
def play(
    environment: Environment, plan: Sequence[Action], form: Form, *, fumble: bool = False
) -> tuple[int, InstanceEpisode]:
    """Play a plan through the wrapped tools; return what they say was earned in all, and the episode.

    Every reply must state the call's true effect and nothing else: the arguments and the gain, the entries it
    shows for the first time, the facts of the new state, and the turns that are left. With `fumble`, decisions that
    are not legal are tried in between as far as the turns allow; a refusal may state public numbers only.
    """
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    vocabulary = reader.vocabulary(theta)
    episode, state, earned = start_episode(environment, form), family.start(theta), 0
    known: set[Key] = set() if form is Form.AGENTIC else set(family.hidden(theta))
    for done, action in enumerate(plan):
        if fumble:
            spare = (episode.turns_left - len(plan) + done) // (len(plan) - done)
            for wrong in itertools.islice(illegal_actions(environment, state), spare):
                _check_refusal(episode, environment, wrong, state)
        reply, turn = call(episode, *reader.call(action))
        require(turn.status == "ok", f"turn {turn.index}: {action} is refused: {reply!r}")
        after, gain, shown = family.step(theta, state, action)
        told = turn.detail.get("gain")
        require(
            told == gain, f"turn {turn.index}: the tool counts a gain of {told}, the mechanism gives {gain}"
        )
        new = {key: value for key, value in shown.items() if key not in known}
        pieces = decision_pieces(reader, environment, vocabulary, action, gain, new, after)
        account_for(f"turn {turn.index}", reply, [*pieces, f"Turns left: {episode.turns_left}."])
        state, earned, known = after, earned + gain, known | set(new)
    return earned + family.abandon(theta, episode.state), episode


def stubborn_plan(environment: Environment) -> list[Action]:
    """Return a plan that takes decisions which can be taken twice in a row, and takes them until they cannot.

    Optimal plans seldom repeat themselves, so this one goes where they do not; it fits the turn budget.
    """
    family, theta = environment.family, environment.theta
    state, plan, tries = family.start(theta), list[Action](), TRIES
    while moves := [move for move in family.legal(theta, state) if len(move)]:
        if not plan or not any(plan[-1] in move for move in moves):
            choice = next(iter(moves[0]))
            for action in itertools.islice(itertools.chain.from_iterable(moves), tries):
                tries -= 1
                if family.is_legal(theta, family.step(theta, state, action)[0], action):
                    choice = action
                    break
        else:
            choice = plan[-1]
        plan.append(choice)
        state = family.step(theta, state, choice)[0]
    return plan[: environment.turn_budget]


def illegal_actions(environment: Environment, state: State) -> Iterator[Action]:
    """Yield well-formed decisions that are not legal in `state`: of every verb, every member, and absurd amounts."""
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    for verb in family.interface.verbs:
        for action in reader.covering(verb.name, amount=10**6):
            if isinstance(action, Action) and not family.is_legal(theta, state, action):
                yield action


def _check_refusal(episode: InstanceEpisode, environment: Environment, action: Action, state: State) -> None:
    """An illegal decision is refused, changes nothing, and is told public numbers only."""
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    reply, turn = call(episode, *reader.call(action))
    unchanged = episode.state == state
    require(turn.status == "refused" and unchanged, f"{action} is not legal and yet accepted: {reply!r}")
    public = {str(episode.turns_left), *(str(value) for value in action.args)}
    for move in family.legal(theta, state):
        for allowed in move.choices:
            ends = (allowed[0], allowed[-1]) if isinstance(allowed, range) and allowed else allowed
            public |= {str(value + add) for value in ends for add in (0, 1)}
    public |= {str(value + 1) for value in action.args}
    leaked = sorted(numbers(without(reply, identifiers(reader.spec))) - public)
    require(not leaked, f"nothing public accounts for {leaked[:5]} in the refusal {reply!r}")


def decision_pieces(
    reader: Reader,
    environment: Environment,
    vocabulary: Mapping[str, str],
    action: Action,
    gain: int,
    new: Mapping[Key, int],
    after: State,
) -> list[str]:
    """Return what the reply to a decision must state."""
    family, theta = environment.family, environment.theta
    slots = family.interface.verb(action.verb).slots
    arguments = reader.call(action)[1].values()
    words = {slot.name: str(value) for slot, value in zip(slots, arguments, strict=True)}
    pieces = [render(family.texts.outcomes[action.verb], {**vocabulary, **words, "gain": str(gain)})]
    pieces += [f"{reader.label(key)} {value}" for key, value in new.items()]
    if family.legal(theta, after):
        units = {fact.name: fact.unit for fact in family.interface.facts}
        facts = {
            name: reader.shown(units[name], value) for name, value in family.observe(theta, after).items()
        }
        pieces.append(render(family.texts.status, {**vocabulary, **facts}))
    return pieces


# --- asking what reveals nothing --------------------------------------------------------------------------
def silent_answers(environment: Environment, before: Sequence[Probe | Action] = ()) -> list[tuple[str, str]]:
    """Return (call, reply) of calls that reveal nothing: queries of tables, and refusals of every tool.

    before   calls that each episode opens with; their replies stand first, and only the tables that grow are asked
    """
    family, theta, reader, spec = (
        environment.family,
        environment.theta,
        reader_of(environment),
        environment.spec,
    )
    query, roles = spec.tools["query"].name, ("ledger", "readings") if before else tuple(spec.tables)
    calls: list[tuple[str, Any]] = [
        (query, {"sql": f'SELECT * FROM "{spec.tables[role]}"'}) for role in roles
    ]
    calls.append(("no_such_tool", {}))
    for tool in view_of(environment).tools if not before else ():
        if tool.kind != "code":  # a program is executed, whatever it is
            calls.append((tool.name, dict.fromkeys(tool.parameters["properties"], "Nobody")))
    state = family.start(theta)
    for one in before:
        state = family.step(theta, state, one)[0] if isinstance(one, Action) else state
    calls += [reader.call(action) for action in itertools.islice(illegal_actions(environment, state), 4)]
    opening = [reader.call(one) for one in before]
    answers: list[tuple[str, str]] = []
    episode: InstanceEpisode | None = None
    for name, arguments in calls:
        if episode is None or episode.done:
            episode = start_episode(environment)
            opened = [(f"{n}({a})", call(episode, n, a)[0]) for n, a in opening]
            answers += [] if answers else opened
            if episode.done:
                break
        reply, turn = call(episode, name, arguments)
        if turn.status == "ok" and turn.kind != "query":
            episode = None  # an amount that happened to be legal: not a silent call
        else:
            answers.append((f"{name}({arguments})", reply))
    return answers


# --- twins and records ---------------------------------------------------------------------------------------
def opening_of(environment: Environment) -> list[Probe | Action]:
    """Return a probe, where there is one, and the first decision of the optimal plan."""
    probes = environment.family.probe_keys(environment.theta)
    return [*(Probe(key) for key in probes[-1:]), *environment.solution.plan[:1]]


def other_theta(environment: Environment, rng: np.random.Generator, kept: set[Key]) -> Theta:
    """Return theta with every hidden entry outside `kept` at another value of its published range."""
    family, theta = environment.family, environment.theta
    prior, values = family.prior(theta), {}
    offsets = rng.integers(1, 1 << 30, len(prior)).tolist()
    for offset, (key, (low, high, _)) in zip(offsets, prior.items(), strict=True):
        if key not in kept and high > low:
            values[key] = low + (entry(theta, key) - low + 1 + offset % (high - low)) % (high - low + 1)
    return family.substitute(theta, values)


def twin_of(environment: Environment, theta: Theta) -> Environment:
    """Return the same environment around other hidden entries and another solution."""
    solution = environment.solution
    return dataclasses.replace(
        environment, theta=theta, solution=Solution(solution.u_star + 7, solution.u_zero - 7, ())
    )


def same_view(one: PublicView, two: PublicView, complaint: str) -> None:
    """Require that two public views are the same to the byte; `complaint` says what it means if they are not."""
    for part in dataclasses.fields(PublicView):
        require(getattr(one, part.name) == getattr(two, part.name), f"{part.name} {complaint}")


def same_effect(environment: Environment, twin: Environment) -> bool:
    """Say whether the first decision does the same in a twin, gain included (it may rest on more than it shows)."""
    family, state = environment.family, environment.family.start(environment.theta)
    action = environment.solution.plan[0]
    return family.step(environment.theta, state, action) == family.step(twin.theta, state, action)


def reward_of(environment: Environment, u: int) -> float:
    """Return the reward that u must earn: its share of the way from u_zero to u_star, between 0 and 1."""
    solution = environment.solution
    return min(1.0, max(0.0, (u - solution.u_zero) / (solution.u_star - solution.u_zero)))


def check_score(episode: InstanceEpisode, u: int) -> None:
    """Require that the episode, scored from its trace, has earned u and the reward that goes with it."""
    score, reward = guarded("scoring", episode.score), reward_of(episode.environment, u)
    require(score.detail["u"] == u, f"the episode earned {u}, its score says {score.detail['u']}")
    require(abs(score.reward - reward) < 1e-9, f"u = {u} is rewarded with {score.reward}, not {reward}")


def check_stops(environment: Environment) -> None:
    """Stopping in the middle of the optimal plan earns what the dynamics then force, and the reward that goes with it.

    Tried where most is forced, and where the reward is nearest to one half.
    """
    family, theta, plan = environment.family, environment.theta, environment.solution.plan
    states, gains = [family.start(theta)], [0]
    for action in plan:
        state, gain, _ = family.step(theta, states[-1], action)
        states, gains = [*states, state], [*gains, gains[-1] + gain]
    forced = [family.abandon(theta, state) for state in states]
    earned = [gain + rest for gain, rest in zip(gains, forced, strict=True)]
    stops = range(len(plan) + 1)
    half = min(stops, key=lambda k: abs(reward_of(environment, earned[k]) - 0.5))
    for stop in sorted({max(stops, key=lambda k: abs(forced[k])), half}):
        _, episode = play(environment, plan[:stop], Form.AGENTIC)
        episode.stop()
        check_score(episode, earned[stop])


def check_records(environment: Environment, reader: Reader) -> None:
    """After a probe, and after all decisions but the last, ledger and readings hold exactly what was done and shown."""
    family, theta, spec = environment.family, environment.theta, environment.spec
    face = family.interface
    slots = dict.fromkeys(slot.entity for verb in face.verbs for slot in verb.slots if slot.entity)
    for move in [one for one in opening_of(environment) if isinstance(one, Probe)]:
        episode = start_episode(environment)
        call(episode, *reader.call(move))
        _check_rows(episode, reader, [], [_reading(reader, 0, move.key, entry(theta, move.key))])
    episode, state, ledger = start_episode(environment), family.start(theta), []
    readings: dict[Key, list[str]] = {}
    plan: Sequence[Action] = environment.solution.plan[:-1]
    if not family.replay(theta, plan):  # a wrong sign shows only on a gain that is not 0
        plan = stubborn_plan(environment)[:-1]
    for turn, action in enumerate(plan):
        call(episode, *reader.call(action))
        state, gain, shown = family.step(theta, state, action)
        pairs = zip(face.verb(action.verb).slots, action.args, strict=True)
        values = {slot.entity: value + 1 if slot.entity else value for slot, value in pairs}
        cells = [str(values.get(kind, "-")) for kind in (*slots, None)]
        ledger.append([str(turn + 1), spec.tools[action.verb].name, *cells, str(gain)])
        for key, value in shown.items():
            readings.setdefault(key, _reading(reader, turn, key, value))
    _check_rows(episode, reader, ledger, list(readings.values()))


def _reading(reader: Reader, turn: int, key: Key, value: int) -> list[str]:
    hidden = reader.family.interface.hidden_fields
    kinds = dict.fromkeys(kind for field in hidden for kind in field.index)
    field = next(f for f in hidden if f.name == key[0])
    where = {kind: str(i + 1) for kind, i in zip(field.index, key[1:], strict=True)}
    label = reader.spec.fields[field.name].label
    return [str(turn + 1), label, *(where.get(kind, "-") for kind in kinds), str(value)]


def _check_rows(
    episode: InstanceEpisode, reader: Reader, ledger: list[list[str]], readings: list[list[str]]
) -> None:
    for role, rows in (("ledger", ledger), ("readings", readings)):
        if not episode.done:
            told = queried(episode, reader, reader.spec.tables[role])
            right = len(told) == min(len(rows), LISTED_ROWS) and all(row in rows for row in told)
            require(right, f"table {reader.spec.tables[role]} holds {told[-3:]}, not {rows[-3:]}")
