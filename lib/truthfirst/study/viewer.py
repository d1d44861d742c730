"""A trace as a page to read: turn by turn, what was written and called, what came of it, and what it cost.

    view_trace(trace, environment)

Beside each decision stands its regret as a bar, beside each probe its credit; below it the public state, the running
gain and how much of the hidden is known; at the end the end row and the loss split. Everything is computed from the
trace; the environment only adds its title and its prompt.

Text in a trace was written by a model or a setter and is never trusted: all of it is escaped, control and direction
characters are shown as a replacement, and the page holds no script, no link, no image and no form. Styles are inline,
so that a page read elsewhere looks the same and touches nothing around it.
"""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from IPython.display import HTML

from ..solvefirst.environment import Environment
from ..solvefirst.score import LedgerRow, RegretLedger, Replay, regret_ledger, score_trace
from ..types import Form, StopReason, Trace, Turn

# Okabe and Ito, "Color universal design", 2008, and a grey
BLUE, RED, GREY = "#0072B2", "#D55E00", "#8A8A8A"
LOSS_COLOURS = {"score": "#009E73", "information": "#56B4E9", "planning": "#E69F00", "execution": "#000000"}
MAX_SHOWN = 1_500  # characters of one text; the trace has the rest
MONO = "font-family:monospace;font-size:12px;white-space:pre-wrap;overflow-wrap:anywhere;text-align:left;margin:2px 0"
CELL = "padding:5px 8px;vertical-align:top;text-align:left;border-top:1px solid rgba(128,128,128,.25)"
NOTE = "color:#808080;font-size:11px;text-align:left"
TINTS = {
    "refused": "background:rgba(213,94,0,.10)",
    "probe": "background:rgba(0,114,178,.06)",
    "decision": "background:rgba(0,158,115,.07)",
}
BAR = 110  # pixels of the longest bar


def view_trace(trace: Trace, environment: Environment | None = None) -> HTML:
    """Return one episode as a page for a notebook; raise RecordError when the trace is damaged.

    environment   the one that was played, for its title and prompt
    """
    return HTML(trace_page(trace, environment))


def trace_page(trace: Trace, environment: Environment | None = None) -> str:
    """Return the HTML of `view_trace`."""
    replay, ledger = Replay.of(trace), regret_ledger(trace)
    parts = [
        _head(trace, environment),
        _split(trace, ledger),
        _prompt(trace, environment),
        _answer(trace),
        _turns(replay, ledger),
        _foot(trace),
    ]
    return f'<div style="max-width:1040px;font-size:13px;line-height:1.45">{"".join(parts)}</div>'


# --- text -------------------------------------------------------------------------------------------------
def shown(value: Any, limit: int = MAX_SHOWN) -> str:
    """Return any text as HTML that is nothing but text: escaped, cut at `limit`, without characters that hide."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    if len(text) > limit:
        text = f"{text[:limit]} [... {len(text) - limit:,} more characters]"
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn")
    plain = "".join(
        letter
        if letter in "\n\t" or unicodedata.category(letter) not in hidden
        else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )
    return html.escape(plain, quote=True)


def _block(value: Any, limit: int = MAX_SHOWN) -> str:
    return f'<div style="{MONO}">{shown(value, limit)}</div>'


def _fold(summary: str, body: str) -> str:
    """Return `body` (HTML) folded under `summary` (HTML)."""
    return f'<details><summary style="{NOTE};cursor:pointer">{summary}</summary>{body}</details>'


def _bar(share: float | None, longest: float, colour: str, label: str) -> str:
    """Return a bar whose length is `share` of `longest`, with its number; negative ones are hollow."""
    if share is None:
        return ""
    width = 0 if longest <= 0 else max(1 if share else 0, round(BAR * abs(share) / longest))
    fill = f"background:{colour}" if share >= 0 else f"border:1px solid {colour};box-sizing:border-box"
    return (
        f'<div title="{label}" style="white-space:nowrap"><span style="display:inline-block;height:10px;'
        f'width:{width}px;{fill}"></span> <span style="font-size:11px">{share:+.3f}</span></div>'
    )


# --- the parts of the page --------------------------------------------------------------------------------
def _head(trace: Trace, environment: Environment | None) -> str:
    header, score = trace.header, score_trace(trace)
    title = environment.spec.title if environment else str(header.get("environment", "an episode"))
    facts = [
        f"{header.get('family')}, {header.get('size')}, {header.get('budget')} budget",
        f"form {header.get('form')}",
        f"seed {header.get('seed', 0)}",
        f"{len(trace.turns)} of {header.get('turn_budget')} turns",
        f"ended: {_ending(trace)}",
    ]
    return (
        f'<div style="font-size:17px;font-weight:600;text-align:left">{shown(title, 200)}</div>'
        f'<div style="text-align:left"><b>{shown(header.get("policy", "unnamed"), 200)}</b> earned '
        f"<b>{score.reward:.3f}</b> "
        f"(u = {shown(score.detail['u'])}, u* = {score.detail['u_star']}, u0 = {score.detail['u_zero']})</div>"
        f'<div style="{NOTE}">{" · ".join(shown(fact, 300) for fact in facts)}</div>'
    )


def _ending(trace: Trace) -> str:
    end = _rollout(trace).get("end")
    return f"{trace.stop}, {end}" if end and end != "episode_over" else str(trace.stop)


def _split(trace: Trace, ledger: RegretLedger) -> str:
    """Return score and losses as one line of coloured pieces with their numbers."""
    if trace.stop is StopReason.MALFORMED:
        return f'<div style="{NOTE}">No plan could be read from the answer: it scores 0 and has no loss split.</div>'
    shares = {name: float(share) for name, share in ledger.losses().items()}
    total = sum(abs(share) for share in shares.values()) or 1.0
    pieces = "".join(
        f'<span style="display:inline-block;height:14px;width:{round(520 * abs(share) / total)}px;'
        + (f"background:{LOSS_COLOURS[name]}" if share >= 0 else f"border:2px solid {LOSS_COLOURS[name]}")
        + ';box-sizing:border-box"></span>'
        for name, share in shares.items()
    )
    legend = " + ".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:9px;height:9px;'
        f'background:{LOSS_COLOURS[name]}"></span> {name} {share:+.3f}</span>'
        for name, share in shares.items()
    )
    return f'<div style="margin:6px 0;text-align:left"><div style="white-space:nowrap">{pieces}</div>{legend} = 1</div>'


def _prompt(trace: Trace, environment: Environment | None) -> str:
    if environment is None:
        return ""
    messages = environment.view(trace.header["form"]).prompt
    body = "".join(
        f'<div style="{NOTE}">{shown(message["role"])}</div>{_block(message["content"], 20_000)}'
        for message in messages
    )
    return _fold("what it was told", body)


def _answer(trace: Trace) -> str:
    if trace.answer is None:
        return ""
    written = trace.answer if trace.answer.strip() else "(empty)"
    return f'<div style="{NOTE};margin-top:6px">the written answer</div>{_block(written, 6_000)}'


def _turns(replay: Replay, ledger: RegretLedger) -> str:
    """Return the table of turns, messages of a model above the calls that they made, and the end row."""
    trace, span = replay.trace, ledger.span
    prices = [abs(part) for row in ledger.rows for part in (row.regret, row.credit) if part is not None]
    longest = max([*prices, ledger.end], default=0) / span
    spoken = _messages(trace)
    hidden, gained, lines, body = len(replay.family.hidden(replay.theta)), 0, [], []
    for row, (turn, _, _, action, state, known) in zip(ledger.rows, replay.positions(), strict=True):
        gained += row.gain
        facts = replay.family.observe(replay.theta, state)
        entry = {"turn": turn.index + 1, "call": _call(turn)[:60], "gain": row.gain if action else None}
        entry |= {"gain so far": gained, "known": f"{len(known)}/{hidden}"} | facts
        entry |= {"V* after": row.value_after}
        lines.append(entry)
        body += [_message_row(message) for message in spoken.get(turn.index, ())]
        body.append(_turn_row(turn, row, entry, lines, longest, span))
    body += [_message_row(message) for message in spoken.get(len(trace.turns), ())]
    forced = ledger.u - gained
    body.append(
        f'<tr style="background:rgba(128,128,128,.12)"><td style="{CELL}">end</td><td style="{CELL}">'
        f"<b>{shown(_ending(trace))}</b>{_error(trace)}<div>What the dynamics then give: {forced:+d}; still to be had "
        f'by then: {ledger.end + forced:+d}.</div></td><td style="{CELL}">u = {ledger.u}</td>'
        f'<td style="{CELL}">{_bar(ledger.end / span, longest, LOSS_COLOURS["execution"], "end row")}</td></tr>'
    )
    heads = ("turn", "call and reply", "state after it", "regret (red) or credit (blue), share of u* - u0")
    head = "".join(f'<th style="{CELL};{NOTE}">{name}</th>' for name in heads)
    return (
        '<table style="border-collapse:collapse;width:100%;margin-top:8px">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def _turn_row(
    turn: Turn,
    row: LedgerRow,
    entry: Mapping[str, Any],
    lines: list[dict[str, Any]],
    longest: float,
    span: int,
) -> str:
    price = ""
    if row.regret is not None:
        price = _bar(row.regret / span, longest, RED, "regret")
        if row.information is not None and row.regret != row.information:
            price += (
                f'<div style="{NOTE}">of it not knowing {row.information / span:+.3f}, '
                f"planning {(row.planning or 0) / span:+.3f}</div>"
            )
        elif row.regret:
            price += f'<div style="{NOTE}">all of it not knowing</div>'
    elif row.credit is not None:
        price = _bar(row.credit / span, longest, BLUE, "credit of a probe")
    gain = "" if entry["gain"] is None else f"<b>{entry['gain']:+d}</b>, "
    left = ("turn", "call", "gain", "gain so far", "known")
    facts = "<br>".join(f"{shown(k)} {shown(v)}" for k, v in entry.items() if k not in left)
    state = (
        f'{gain}{entry["gain so far"]} so far<div style="{NOTE}">{facts}<br>known {entry["known"]}</div>'
        + _fold("ledger so far", _ledger_table(lines))
    )
    tint = TINTS.get("refused" if turn.status == "refused" else str(turn.kind), "")
    return (
        f'<tr style="{tint}"><td style="{CELL}">{turn.index + 1}</td><td style="{CELL}">'
        f"{_called(turn)}{_block(turn.reply)}</td>"
        f'<td style="{CELL};white-space:nowrap">{state}</td><td style="{CELL}">{price}</td></tr>'
    )


def _called(turn: Turn) -> str:
    """Return a call as HTML; a program is shown as it stands."""
    arguments = turn.arguments
    if turn.kind == "code" and isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        return f'<div style="{MONO};font-weight:600">{shown(turn.tool)}</div>{_block(arguments["code"])}'
    return f'<div style="{MONO};font-weight:600">{shown(_call(turn))}</div>'


def _call(turn: Turn) -> str:
    if not isinstance(turn.arguments, dict):
        return f"{turn.tool}({json.dumps(turn.arguments, ensure_ascii=False)})"
    given = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in turn.arguments.items())
    return f"{turn.tool}({', '.join(given)})"


def _ledger_table(lines: list[dict[str, Any]]) -> str:
    """Return what has happened so far, decisions only and the latest call, as a small table."""
    kept = [line for line in lines[:-1] if line["gain"] is not None] + lines[-1:]
    head = "".join(f'<th style="{NOTE};padding:0 6px">{shown(name)}</th>' for name in kept[0])
    cells = (
        "".join(
            f'<td style="padding:0 6px;font-size:11px;text-align:left">{"" if v is None else shown(v)}</td>'
            for v in line.values()
        )
        for line in kept
    )
    rows = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<table style="border-collapse:collapse"><tr>{head}</tr>{rows}</table>'


# --- a model's messages -----------------------------------------------------------------------------------
def _rollout(trace: Trace) -> dict[str, Any]:
    """Return a model's record of its conversation; empty for a scripted policy."""
    record = trace.header.get("rollout")
    return record if isinstance(record, dict) else {}


def _messages(trace: Trace) -> dict[int, list[Mapping[str, Any]]]:
    """Return the messages of a model by the turn before which they stand."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for message in _rollout(trace).get("messages", ()):
        found.setdefault(min(int(message["turns"][0]), len(trace.turns)), []).append(message)
    return found


def _message_row(message: Mapping[str, Any]) -> str:
    tokens, before, logprob = (message.get(name) for name in ("tokens", "prompt_tokens", "logprob"))
    facts = [] if tokens is None else [f"{tokens} tokens"]
    facts += [] if before is None else [f"{before} before them"]
    if isinstance(logprob, float):
        each = f", {logprob / tokens:.2f} a token" if isinstance(tokens, int) and tokens else ""
        facts.append(f"log-probability {logprob:.2f}{each}")
    facts += ["cut"] if message.get("cut") else []
    notes = "".join(
        f'<div style="color:{RED};font-size:11px">{shown(note)}</div>' for note in message.get("notes", ())
    )
    text = str(message.get("text", ""))
    said = _block(text) if text.strip() else f'<div style="{NOTE}">(an empty message)</div>'
    return (
        f'<tr><td style="{CELL};{NOTE}">wrote</td><td style="{CELL};border-left:3px solid {GREY}" colspan="2">{said}'
        f'{notes}</td><td style="{CELL};{NOTE}">{shown(" · ".join(facts))}</td></tr>'
    )


def _error(trace: Trace) -> str:
    error = _rollout(trace).get("error")
    return "" if not error else f'<div style="color:{RED};text-align:left">{shown(error)}</div>'


def _foot(trace: Trace) -> str:
    """Return versions, and for a model its settings, tokens and counts of what went wrong."""
    header = trace.header
    rollout = _rollout(trace)
    about: list[tuple[str, Any]] = [("truthfirst", header.get("version"))]
    about += _pairs(header.get("versions"), skip=("truthfirst",)) + _pairs(rollout.get("versions"))
    lines = [about]
    if rollout:
        names = ("kind", "model", "architecture", "protocol", "protocol_reason", "sampling", "seed")
        lines += [[(name, rollout.get(name)) for name in names], _pairs(rollout.get("tokens"))]
        lines.append(_pairs(rollout.get("counts")))
    texts = (" · ".join(f"{shown(k)} {shown(v)}" for k, v in line if v is not None) for line in lines)
    form = (
        ""
        if header["form"] != Form.WRITTEN
        else "<div>Form F: the turns are the steps of the written plan.</div>"
    )
    return f'<div style="{NOTE};margin-top:6px">{form}{"".join(f"<div>{t}</div>" for t in texts if t)}</div>'


def _pairs(table: Any, skip: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """Return the entries of what should be a table of a header; nothing where it is none."""
    return [(str(k), v) for k, v in table.items() if k not in skip] if isinstance(table, dict) else []
