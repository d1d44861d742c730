"""Comparison: policies on the same instances in the forms F, I and A, as one tidy frame.

    frame = compare(["optimal", "plan", model], environments, ["F", "I", "A"], n=4, traces=Path("traces.jsonl"))

A policy is the name of a scripted one, or any object with `name` and `play(episodes)` (`policies/base.py`): a
transformers model, an endpoint. One row an episode. A comparison that is interrupted resumes: every finished batch is
kept as JSONL, and what is found there is not played again, provided that it is of the same environment, form, policy
name and seed. Whatever a model does is scored or retried by the rules of `policies/dialogue.py` and stands in its
trace; it raises nothing here, and neither does a policy that answers where it should act, or acts where it should
answer (`solvefirst/environment.py`). What raises is a comparison that cannot be right: names that stand twice, a
damaged or falsified store, stored episodes of the same policy name under other settings.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import json
import math
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from ..episode import load_traces, printable, read_trace, save_trace, trace_record
from ..policies.base import Policy, model_name, named, roll_out
from ..policies.dialogue import rollout_of
from ..records import RecordError, canonical_json
from ..solvefirst import references
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.environment import Environment, NoRewardScale
from ..types import Form, Trace
from .episodes import decisions, episode_frame, episode_row, identity
from .rescore import rescore, rescored

__all__ = [
    "compare",
    "decisions",
    "episode_frame",
    "episode_row",
    "play_all",
    "recipe_columns",
    "rescore",
    "rescored",
]

Address = tuple[str, str, str, int]  # policy, environment, form, seed


def compare(
    policies: Sequence[str | Policy],
    environments: Sequence[Recipe | Environment],
    forms: Sequence[str] = tuple(Form),
    n: int = 1,
    *,
    traces: str | Path | None = None,
    workers: int = 1,
    losses: bool = True,
    batch: int = 32,
) -> pd.DataFrame:
    """Play every policy on every environment in every form, `n` episodes each; return one row an episode.

    traces    JSONL file that keeps every episode; episodes found there are not played again
    workers   joblib processes, for scripted policies and for scoring; models play in this process
    losses    split the loss of every episode (it costs solves)
    batch     episodes that a model is given at once; a finished batch is saved at once

    An environment that stands twice is played once. The columns are described in data/README.md.
    """
    played = play_all(policies, environments, forms, n, traces=traces, workers=workers, batch=batch)
    return episode_frame(played, losses=losses, workers=workers)


def play_all(
    policies: Sequence[str | Policy],
    environments: Sequence[Recipe | Environment],
    forms: Sequence[str] = tuple(Form),
    n: int = 1,
    *,
    traces: str | Path | None = None,
    workers: int = 1,
    batch: int = 32,
) -> list[Trace]:
    """Return the traces of a comparison, environment by environment; see `compare`."""
    for what, count in (("n", n), ("batch", batch)):
        if count < 1:
            raise ValueError(f"{what} must be at least 1, got {count}")
    traces = None if traces is None else Path(traces)
    players = _players(policies)
    asked = [str(Form.parse(form)) for form in dict.fromkeys(forms)]
    if not (players and environments and asked):
        raise ValueError("nothing to compare: give at least one policy, one environment and one form")
    worlds = dict(Parallel(n_jobs=workers)(delayed(_built)(environment) for environment in environments))
    done = _stored(traces, worlds, players)
    wanted = [
        (name, world, form, seed)
        for world in worlds
        for name in players
        for form in asked
        for seed in range(n)
    ]
    missing = [address for address in wanted if address not in done]

    def keep(address: Address, trace: Trace) -> None:
        done[address] = _storable(_claimed(trace, address))
        if traces is not None:
            save_trace(traces, done[address])

    scripted = [address for address in missing if players[address[0]] is None]
    _play_scripted(scripted, worlds, workers, keep)
    for name, player in players.items():
        if player is not None:
            _play_model(player, [address for address in missing if address[0] == name], worlds, batch, keep)
    return [done[address] for address in wanted]


# --- what is asked ----------------------------------------------------------------------------------------
def _players(policies: Sequence[str | Policy]) -> dict[str, Policy | None]:
    """Return policies by name, None for scripted ones; raise ValueError for what cannot play or stands twice."""
    players: dict[str, Policy | None] = {}
    for policy in policies:
        if isinstance(policy, str):
            name, player = references.policy(policy).name, None
        elif isinstance(policy, Policy):
            name, player = policy.name, policy
        else:
            raise ValueError(
                f"{policy!r} is no policy: give a scripted policy's name, or an object with name and play(episodes)"
            )
        if name in players:
            raise ValueError(f"two policies are called {name!r}: give each a name of its own")
        players[name] = player
    return players


def _built(environment: Recipe | Environment) -> tuple[str, Environment]:
    """Return an environment under its id; raise ValueError for one that no reward can be measured in."""
    world = build_candidate(environment) if isinstance(environment, Recipe) else environment
    if world.solution.span <= 0:
        raise NoRewardScale(
            f"environment {world.id} has no reward scale (u* = u0): compare admitted ones only"
        )
    return world.id, world


# --- what has been played ---------------------------------------------------------------------------------
def _stored(
    path: Path | None, worlds: dict[str, Environment], players: dict[str, Policy | None]
) -> dict[Address, Trace]:
    """Read the stored episodes of this comparison; raise RecordError for a store that it may not rest on."""
    if path is None or not path.exists():
        return {}
    settings = {name: _settings(player) for name, player in players.items()}
    truths: dict[str, tuple[int, int, Any]] = {}
    found = {}
    try:
        traces = load_traces(path)
        for trace in traces:
            identity(trace)
    except RecordError as error:
        raise RecordError(f"{error}; remove the damaged line or the file, and compare again") from error
    for trace in traces:
        header = trace.header
        told = identity(trace)
        address = (told["policy"], told["environment"], str(header["form"]), told["seed"])
        world = worlds.get(address[1])
        if world is None or address[0] not in players:
            continue
        if address[1] not in truths:
            theta = json.loads(canonical_json(world.family.to_json(world.theta)))
            truths[address[1]] = (world.solution.u_star, world.solution.u_zero, theta)
        if truths[address[1]] != (header.get("u_star"), header.get("u_zero"), header.get("theta")):
            raise RecordError(
                f"{trace.where}: the episode {address} states another truth than its environment has"
            )
        _same_settings(trace, settings[address[0]])
        found[address] = trace
    return found


def _same_settings(trace: Trace, settings: dict[str, Any]) -> None:
    """Raise RecordError when a stored episode of a model was played under other settings than it has now."""
    record = rollout_of(trace) or {}
    for name, value in settings.items():
        if name in record and record[name] != value:
            raise RecordError(
                f"{trace.where}: policy {trace.header['policy']!r} has stored episodes with {name} = {record[name]}, "
                f"now it has {value}; give the policy another name, or the comparison another file"
            )


def _settings(player: Policy | None) -> dict[str, Any]:
    """Return what a model's policy says of itself under the names that its traces use."""
    names = ("model", "model_hash", "protocol", "rules", "sampling", "seed")
    found = {name: getattr(player, name, None) for name in names}
    found["model"] = model_name(found["model"]) if isinstance(found["model"], str) else None
    found["sampling"] = found["sampling"] or getattr(getattr(player, "engine", None), "sampling", None)
    plain = {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in found.items()
    }
    return {name: value for name, value in plain.items() if isinstance(value, str | int | dict)}


def _claimed(trace: Trace, address: Address) -> Trace:
    """Return a trace under its address, with versions; raise ValueError if a policy returned another episode's."""
    policy, environment, form, seed = address
    if (trace.header.get("environment"), trace.header.get("form")) != (environment, form):
        raise ValueError(f"policy {policy!r} returned a trace of another episode than {address}")
    return named(trace, policy, seed=seed, versions=_versions())


@functools.cache
def _versions() -> dict[str, str]:
    packages = ("truthfirst", "numpy", "pulp", "highspy")
    return {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in packages}


def _storable(trace: Trace) -> Trace:
    """Return a trace as it will be read back from its file, whatever a policy put into its header."""
    return read_trace(_plain(trace_record(trace)))


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it: a number that is none becomes null, a lone surrogate a question mark."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {printable(str(key)): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return printable(repr(value))[:200]


# --- playing ----------------------------------------------------------------------------------------------
Keep = Callable[[Address, Trace], None]


def _play_scripted(jobs: Sequence[Address], worlds: dict[str, Environment], workers: int, keep: Keep) -> None:
    """Play scripted policies, the episodes of one environment together."""
    batches: dict[str, list[Address]] = {}
    for job in jobs:
        batches.setdefault(job[1], []).append(job)
    runner = Parallel(n_jobs=workers, return_as="generator")
    played = runner(
        delayed(_play_batch)(worlds[world], [(name, form, seed) for name, _, form, seed in batch])
        for world, batch in batches.items()
    )
    shown = tqdm(played, total=len(batches), desc="environments", disable=None if batches else True)
    for batch, traces in zip(batches.values(), shown, strict=True):
        for address, trace in zip(batch, traces, strict=True):
            keep(address, trace)


def _play_batch(environment: Environment, batch: Iterable[tuple[str, str, int]]) -> list[Trace]:
    return [references.play(references.policy(name), environment, form, seed) for name, form, seed in batch]


def _play_model(
    player: Policy, jobs: Sequence[Address], worlds: dict[str, Environment], batch: int, keep: Keep
) -> None:
    """Play a model's episodes, `batch` at once; each carries its seed, which addresses its randomness."""
    waiting = iter(jobs)
    with tqdm(total=len(jobs), desc=player.name, disable=None if jobs else True) as bar:
        while chunk := list(itertools.islice(waiting, batch)):
            episodes = []
            for _, world, form, seed in chunk:
                episode = worlds[world].episode(form, player.name)
                episode.header["seed"] = seed
                episodes.append(episode)
            for address, trace in zip(chunk, roll_out(player, episodes), strict=True):
                keep(address, trace)
            bar.update(len(chunk))


def recipe_columns(recipe: Recipe) -> dict[str, object]:
    """Return a recipe as columns of a tidy frame."""
    return asdict(recipe)
