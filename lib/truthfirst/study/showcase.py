"""Showing one environment and one episode: tables, transcript, regret by turn, a card for a figure."""

from __future__ import annotations

import json
import sqlite3

import pandas as pd

from ..solvefirst.environment import Environment
from ..solvefirst.score import regret_ledger
from ..types import Form, Trace


def tables(environment: Environment) -> dict[str, pd.DataFrame]:
    """Return the public tables as the agent finds them before its first call, by name."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(environment.view(Form.AGENTIC).files["world.sqlite"])
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    frames = {name: pd.read_sql_query(f'SELECT * FROM "{name}"', connection) for name in names}
    connection.close()
    return frames


def transcript(trace: Trace) -> pd.DataFrame:
    """Return one row a call: turn, tool, arguments, kind, status, gain, reply."""
    rows = [
        {
            "turn": turn.index + 1,
            "tool": turn.tool,
            "arguments": json.dumps(turn.arguments, ensure_ascii=False),
            "kind": turn.kind,
            "status": turn.status,
            "gain": turn.detail.get("gain"),
            "reply": turn.reply,
        }
        for turn in trace.turns
    ]
    return pd.DataFrame(rows, columns=["turn", "tool", "arguments", "kind", "status", "gain", "reply"])


def nearest_to_median(frame: pd.DataFrame, value: str = "unclipped") -> pd.Series:
    """Return the row whose `value` is nearest to the median of the frame: a typical episode, chosen by rule.

    Of equals the first; rows without a value are passed over. Raises ValueError when there is no row with one.
    """
    kept = frame.dropna(subset=[value])
    if kept.empty:
        raise ValueError(f"no episode with a number in column {value!r} to choose from")
    distance = (kept[value] - kept[value].median()).abs().to_numpy(float)
    return kept.iloc[int(distance.argmin())]


def regret_frame(trace: Trace, title: str) -> pd.DataFrame:
    """Return the regret ledger by turn, in shares of u_star - u_zero, with the end row last (figures.regret)."""
    ledger = regret_ledger(trace)
    ledger.check()
    rows = [
        {
            "turn": row.turn + 1,
            "call": f"{row.turn + 1} {trace.turns[row.turn].tool}"[:28],
            "kind": row.kind,
            "regret": None if row.regret is None else row.regret / ledger.span,
            "information": None if row.information is None else row.information / ledger.span,
            "planning": None if row.planning is None else row.planning / ledger.span,
            "credit": None if row.credit is None else row.credit / ledger.span,
        }
        for row in ledger.rows
    ]
    end = {"turn": len(rows) + 1, "call": "end", "kind": "end", "regret": ledger.end / ledger.span}
    frame = pd.DataFrame([*rows, end])
    return frame.assign(score=(ledger.u - ledger.u_zero) / ledger.span, title=title)


def card(environment: Environment, trace: Trace) -> pd.DataFrame:
    """Return the panels of figures.environment_card: prompt, tools, tables and a transcript."""
    view = environment.view(Form.AGENTIC)
    tools = "\n".join(
        f"{t.name}({', '.join(t.parameters['properties'])}): {t.description}" for t in view.tools
    )
    listing = [
        f"{name}: {len(frame)} rows, {', '.join(frame.columns)}"
        for name, frame in tables(environment).items()
    ]
    calls = [
        f"> {turn.tool}({', '.join(f'{k}={v}' for k, v in dict(turn.arguments).items())})\n{turn.reply}"
        for turn in trace.turns
    ]
    panels = {
        "prompt": view.prompt[0]["content"],
        "tools": tools,
        "tables": "\n".join(listing),
        "transcript": "\n".join(calls),
    }
    title = (
        f"{environment.spec.title} ({environment.spec.domain}; {environment.family_name}, {environment.size})"
    )
    return pd.DataFrame([{"panel": name, "text": text, "title": title} for name, text in panels.items()])
