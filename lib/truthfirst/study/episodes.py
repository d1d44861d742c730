"""From traces to tidy frames: one row an episode, one row a decision.

Everything is computed from the trace alone, by replaying it through its mechanism; no policy and no environment is
needed. The header's theta, u_star and u_zero are believed here; `rescore.py` builds the recipe again and believes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed

from ..episode import load_traces
from ..policies.calls import UNREADABLE
from ..policies.dialogue import rollout_of
from ..records import RecordError
from ..solvefirst.families.base import UnknownName
from ..solvefirst.references import u_reach
from ..solvefirst.score import Replay, header_number, regret_ledger, score_trace
from ..types import Form, Trace

IDENTITY = ("environment", "family", "size", "budget", "policy", "form", "seed")
LOSSES = ("information", "planning", "execution")
NULLABLE = (
    *("u", "unclipped", "coverage", *LOSSES, "u_reach", "reach"),
    *("unreadable", "not_executed", "reminders", "cut", "messages"),
    *("tokens_context", "tokens_sampled", "logprob"),
)
DECISION_COLUMNS = (
    *IDENTITY,
    *("decision", "turn", "period", "verb", "amount", "gain", "regret", "information"),
)


def identity(trace: Trace) -> dict[str, Any]:
    """Return who played what, from a trace's header; raise RecordError that names an entry that is missing or wrong."""
    header = trace.header
    for name in ("environment", "family", "size", "budget", "policy"):
        if not isinstance(header.get(name), str):
            raise RecordError(f"{trace.where}: header.{name} = {header.get(name)!r}: expected text")
    seed = header.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise RecordError(f"{trace.where}: header.seed = {seed!r}: expected an integer")
    return {name: header.get(name) for name in IDENTITY} | {"seed": seed}


# --- one row an episode -----------------------------------------------------------------------------------
def episode_row(trace: Trace, *, losses: bool = True) -> dict[str, object]:
    """Return the tidy row of one trace; `losses` adds the loss split (null where there is no plan to split).

    The columns are described in data/README.md.
    """
    score = score_trace(trace)
    header = trace.header
    row: dict[str, object] = identity(trace)
    row |= {"reward": score.reward, **score.detail, "turn_budget": header_number(trace, "turn_budget")}
    possible = score.detail["probes_possible"]
    agentic = header["form"] == Form.AGENTIC
    row["coverage"] = score.detail["probes_new"] / possible if possible and agentic else None
    split: dict[str, float | None] = dict.fromkeys(LOSSES)
    if losses and score.detail["u"] is not None:
        shares = regret_ledger(trace, credit=False).losses()
        split = {name: float(shares[name]) for name in split}
    return row | split | _failures(trace) | _tokens(trace)


def _failures(trace: Trace) -> dict[str, object]:
    """Count calls that came to nothing; null where there were no messages to count in."""
    rollout = rollout_of(trace)
    counts: dict[str, Any] = (rollout or {}).get("counts", {})
    found: dict[str, object] = {
        "unknown_tools": sum(turn.kind is None and turn.tool != UNREADABLE for turn in trace.turns),
        "repeated": sum(
            turn.kind == "probe" and turn.status == "ok" and not turn.detail.get("new")
            for turn in trace.turns
        ),
        "end": None if rollout is None else rollout.get("end"),
    }
    named = {"unreadable": "unreadable_calls", "not_executed": "calls_not_executed", "reminders": "reminded"}
    for column, name in (named | {"cut": "cut"}).items():
        found[column] = None if rollout is None else counts.get(name, 0)
    return found


def _tokens(trace: Trace) -> dict[str, object]:
    """Return messages, the longest context, sampled tokens and their log-probability, null where uncounted."""
    rollout = rollout_of(trace) or {}
    messages, tokens = rollout.get("messages"), rollout.get("tokens", {})
    contexts = [
        message["prompt_tokens"] + message["tokens"]
        for message in messages or ()
        if message.get("prompt_tokens") is not None and message.get("tokens") is not None
    ]
    return {
        "messages": None if messages is None else len(messages),
        "tokens_context": max(contexts, default=None),
        "tokens_sampled": tokens.get("sampled"),
        "logprob": tokens.get("logprob"),
    }


def episode_frame(traces: Sequence[Trace], *, losses: bool = True, workers: int = 1) -> pd.DataFrame:
    """Return one row an episode, in the order of `traces`, with u_reach of each instance and budget.

    workers   joblib processes; episodes of one environment stay together, since they share solves
    """
    groups: dict[str, list[int]] = {}
    for number, trace in enumerate(traces):
        groups.setdefault(identity(trace)["environment"], []).append(number)
    parts = Parallel(n_jobs=workers)(
        delayed(_rows)([traces[number] for number in group], losses) for group in groups.values()
    )
    rows: list[dict[str, object]] = [{}] * len(traces)
    for group, part in zip(groups.values(), parts, strict=True):
        for number, row in zip(group, part, strict=True):
            rows[number] = row
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    frame["reach"] = (
        (frame["u_reach"].astype(float) - frame["u_zero"]) / (frame["u_star"] - frame["u_zero"])
    ).clip(0, 1)
    return frame.astype(dict.fromkeys(NULLABLE, float))


def _rows(traces: Sequence[Trace], losses: bool) -> list[dict[str, object]]:
    """Return the rows of one environment's episodes."""
    replay, header = Replay.of(traces[0]), traces[0].header
    try:
        reach: int | None = u_reach(replay.family, replay.theta, header["size"], header["budget"])
    except UnknownName:  # a published instance has a size of its own, for which no reference is calibrated
        reach = None
    return [episode_row(trace, losses=losses) | {"u_reach": reach} for trace in traces]


# --- one row a decision -----------------------------------------------------------------------------------
def decision_rows(trace: Trace, *, losses: bool = False) -> list[dict[str, object]]:
    """Return one row for every decision that was carried out.

    period   1-based, where the mechanism's state has a period, else null
    amount   the decision's amount (spend, production, bid ...), null where the verb has none
    regret, information   shares of u_star - u_zero, with `losses` (it costs solves)
    """
    replay, told = Replay.of(trace), identity(trace)
    ledger = {row.turn: row for row in regret_ledger(trace, credit=False).rows} if losses else {}
    rows: list[dict[str, object]] = []
    for turn, state, _, action, _, _ in replay.positions():
        if action is None:
            continue
        slots = replay.family.interface.verb(action.verb).slots
        amounts = [value for slot, value in zip(slots, action.args, strict=True) if slot.entity is None]
        period, priced = getattr(state, "period", None), ledger.get(turn.index)
        rows.append(
            told
            | {
                "decision": len(rows) + 1,
                "turn": turn.index + 1,
                "period": None if period is None else period + 1,
                "verb": action.verb,
                "amount": amounts[0] if len(amounts) == 1 else None,
                "gain": turn.detail["gain"],
                "regret": _share(priced.regret if priced else None, replay.span),
                "information": _share(priced.information if priced else None, replay.span),
            }
        )
    return rows


def _share(value: int | None, span: int) -> float | None:
    return None if value is None else value / span


def decisions(traces: str | Path | Iterable[Trace], *, losses: bool = False) -> pd.DataFrame:
    """Return the decisions of many episodes, or of a JSONL file of traces: what was spent when, and what it earned."""
    episodes = load_traces(traces) if isinstance(traces, str | Path) else traces
    rows = [row for trace in episodes for row in decision_rows(trace, losses=losses)]
    frame = pd.DataFrame(rows, columns=list(DECISION_COLUMNS))
    return frame.astype(dict.fromkeys(("period", "amount", "regret", "information"), float))
