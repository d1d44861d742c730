"""Scripted agents of the world-first wing: each plays one episode through the bash tool, as a model would.

    reference       brings the reference solver into the workspace, runs it stage by stage, submits
    half-done       the first half of the stages, then submits
    never-submits   all stages, no submission
    saboteur        all stages, then destroys its own work, from the end backwards, and submits

They know the reference, so they are no policies to compare with; they show what the harness and Phi do.
"""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable

from .contract import PACKAGE
from .environment import BASH, MAX_COMMAND_CHARACTERS, SUBMIT, WorkspaceEpisode

SOLVER = "solve.py"


def _bash(episode: WorkspaceEpisode, command: str) -> str:
    return episode.call(BASH, {"command": command})


def carry_in(episode: WorkspaceEpisode) -> None:
    """Write the source of the reference solver into the workspace, in pieces that a command may hold."""
    name = episode.environment.instance.generator.name
    source = inspect.getsource(importlib.import_module(f"{PACKAGE}.{name}.reference"))
    piece = MAX_COMMAND_CHARACTERS // 2  # quoting may add to it
    for start in range(0, len(source), piece):
        into = ">>" if start else ">"
        _bash(episode, f"printf %s {shlex.quote(source[start : start + piece])} {into} {SOLVER}")


def work(episode: WorkspaceEpisode, share: float = 1.0) -> None:
    """Carry the solver in and run the first `share` of its stages, one a call."""
    carry_in(episode)
    stages = episode.environment.instance.generator.reference_stages
    for stage in stages[: round(share * len(stages))]:
        _bash(episode, f"python3 {SOLVER} {stage}")


def reference(episode: WorkspaceEpisode) -> None:
    work(episode)
    episode.call(SUBMIT, {})


def half_done(episode: WorkspaceEpisode) -> None:
    work(episode, 0.5)
    episode.call(SUBMIT, {})


def never_submits(episode: WorkspaceEpisode) -> None:
    work(episode)
    episode.stop()


def saboteur(episode: WorkspaceEpisode) -> None:
    work(episode)
    for one in reversed(episode.environment.instance.generator.deliverables):
        _bash(episode, f"rm {shlex.quote(one.path)}")
    episode.call(SUBMIT, {})


AGENTS: dict[str, Callable[[WorkspaceEpisode], None]] = {
    "reference": reference,
    "half-done": half_done,
    "never-submits": never_submits,
    "saboteur": saboteur,
}
