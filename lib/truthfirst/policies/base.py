"""The contract of a policy: many episodes in, as many traces out.

A comparison, a study or a test hands any policy the same fresh episodes, whether it is a script, a transformers model
in this process or a server elsewhere, and gets traces that can be scored without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Any, Protocol, runtime_checkable

from ..types import Episode, Trace


@runtime_checkable
class Policy(Protocol):
    """Whatever can play episodes."""

    @property
    def name(self) -> str: ...

    def play(self, episodes: Sequence[Episode]) -> list[Trace]:
        """Play fresh episodes to their ends, in any order or at once; return their traces in the order given."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a model's tokens are drawn; temperature 0 is greedy; top_k 0 and top_p 1 leave the distribution as it is."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be at least 0, got {self.temperature!r}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_k must be at least 0 and top_p in (0, 1], got {self.top_k!r} and {self.top_p!r}"
            )


@dataclass(frozen=True)
class Scripted:
    """A policy made of a function that plays one episode (of whatever wing it knows) to its end."""

    name: str
    act: Callable[[Any], None]

    def play(self, episodes: Sequence[Episode]) -> list[Trace]:
        for episode in episodes:
            self.act(episode)
        return [named(episode.trace(), self.name) for episode in episodes]


def roll_out(policy: Policy, episodes: Sequence[Episode]) -> list[Trace]:
    """Play every episode with `policy`; an episode that it leaves unfinished counts as stopped by the agent."""
    started = [number for number, episode in enumerate(episodes) if episode.done or episode.trace().turns]
    if started:
        raise ValueError(f"episode {started[0]} of {len(episodes)} has begun already: give fresh episodes")
    traces = policy.play(episodes)
    if len(traces) != len(episodes):
        raise ValueError(f"policy {policy.name!r} gave {len(traces)} traces for {len(episodes)} episodes")
    return traces


def named(trace: Trace, policy: str, **entries: Any) -> Trace:
    """Return `trace` with the policy's name and further JSON entries in its header."""
    return replace(trace, header=trace.header | {"policy": policy} | entries)


def model_name(path: str) -> str:
    """Return how a model is called: the last part of a folder's path, a hub name (`Qwen/Qwen3-8B`) as it is.

    What lies before the last part belongs to one machine and says nothing of the model.
    """
    local = PureWindowsPath(path).is_absolute() or path.startswith(("/", "~", ".")) or Path(path).is_dir()
    if not local:
        return path
    if path.rstrip("/\\").endswith("."):  # . and ..: only the file system knows their names
        path = str(Path(path).resolve())
    return PureWindowsPath(path).name or "model"


def addresses(episodes: Sequence[Episode]) -> list[tuple[str, int]]:
    """Return for each episode the address of its randomness: environment and form, and its number.

    The number is the header's `seed` where the caller has set one, so that an episode which is played later, alone,
    samples what it would have sampled among its like; else how manyth such episode of the call it is.
    """
    seen: Counter[str] = Counter()
    found = []
    for episode in episodes:
        header = episode.trace().header
        address = f"{header.get('environment', '')}/{header.get('form', '')}"
        found.append((address, header.get("seed", seen[address])))
        seen[address] += 1
    return found
