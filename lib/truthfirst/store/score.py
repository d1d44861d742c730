"""Scoring a store from its trace alone.

Every turn records the day and the net worth after it, so u is the last net worth. There is no value-to-go, hence no
regret and no loss split: the optimum is only bounded.

    outcome    the reward on the last call
    progress   (W_t - W_(t-1)) / (u_bar - u0) with W the net worth and W_0 = u0: sums to the unclipped score, exactly
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records import RecordError
from ..types import Score, Trace

if TYPE_CHECKING:
    from .environment import StoreEpisode

REWARD_KINDS = ("outcome", "progress")


def reward(u: int, u_bar: int, u_zero: int) -> float:
    """Return r = clip((u - u_zero) / (u_bar - u_zero), 0, 1). Raises ValueError without a positive span."""
    if u_bar <= u_zero:
        raise ValueError(f"u_bar = {u_bar} does not exceed u_zero = {u_zero}: this store has no reward scale")
    return min(1.0, max(0.0, (u - u_zero) / (u_bar - u_zero)))


def _number(trace: Trace, table: dict[str, Any], name: str, where: str) -> int:
    value = table.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError(f"{trace.where}: {where}.{name} = {value!r}: expected an integer")
    return value


def worths(trace: Trace) -> list[int]:
    """Return the net worth after each call, cents. Raises RecordError where a turn does not record it."""
    return [_number(trace, turn.detail, "worth", f"turns[{turn.index}].detail") for turn in trace.turns]


def bankrupt(trace: Trace) -> bool:
    """Say whether the store went bankrupt: its net worth is then minus the limit, which no solvent store reaches."""
    found = worths(trace)
    return bool(found) and found[-1] == -_number(trace, trace.header, "limit", "header")


def score_trace(trace: Trace) -> Score:
    """Score a trace without a model and without solving anything. A damaged one raises RecordError."""
    u_bar, u_zero = (_number(trace, trace.header, name, "header") for name in ("u_bar", "u_zero"))
    found = worths(trace)
    u = found[-1] if found else u_zero
    kinds = [turn.kind if turn.status == "ok" else "refused" for turn in trace.turns]
    last = trace.turns[-1].detail if trace.turns else {"day": 0}
    detail = {
        "u": u,
        "u_bar": u_bar,
        "u_zero": u_zero,
        "unclipped": (u - u_zero) / (u_bar - u_zero),
        "stop": str(trace.stop),
        "days": _number(trace, last, "day", "turns[-1].detail"),
        "bankrupt": bankrupt(trace),
        "turns": len(trace.turns),
        "decisions": kinds.count("decision"),
        "probes": kinds.count("probe"),
        "queries": kinds.count("query"),
        "refused": kinds.count("refused"),
    }
    return Score(reward(u, u_bar, u_zero), detail)


def call_rewards(trace: Trace, kind: str) -> list[float]:
    """Return one number a call; raise ValueError for a kind that a store does not have."""
    if kind not in REWARD_KINDS:
        why = (
            ": regret needs a value-to-go, and the optimum of a store is only bounded"
            if "regret" in kind
            else ""
        )
        raise ValueError(
            f"unknown reward kind {kind!r} for a store{why}; choose one of {', '.join(REWARD_KINDS)}"
        )
    if not trace.turns:
        return []
    score = score_trace(trace)
    if kind == "outcome":
        return [0.0] * (len(trace.turns) - 1) + [score.reward]
    span, before = score.detail["u_bar"] - score.detail["u_zero"], score.detail["u_zero"]
    rewards = []
    for worth in worths(trace):
        rewards.append((worth - before) / span)
        before = worth
    return rewards


def replay(trace: Trace) -> StoreEpisode:
    """Play a trace's calls again in the store that its recipe gives, believing nothing else; return the episode.

    Raises RecordError where store, bound or any reply differ from what the trace says.
    """
    from .environment import rebuild  # an environment scores with this module

    environment = rebuild(trace.header["recipe"], trace.header["turn_budget"])
    stated = {"environment": environment.id, "u_bar": environment.bound.u_bar, "u_zero": environment.u_zero}
    for name, value in stated.items():
        if trace.header.get(name) != value:
            raise RecordError(
                f"{trace.where}: header.{name} = {trace.header.get(name)!r}: the recipe gives {value!r}"
            )
    episode = environment.episode(policy=str(trace.header.get("policy")))
    for turn in trace.turns:
        reply = episode.call(turn.tool, turn.arguments)
        if reply != turn.reply:
            raise RecordError(
                f"{trace.where}: turns[{turn.index}].reply differs: the store says {reply[:80]!r}"
            )
    if not episode.done:
        episode.stop()
    return episode
