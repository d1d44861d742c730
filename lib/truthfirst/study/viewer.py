"""A trace as a page to read: turn by turn, what was written and called, what came of it, and what it cost.

    view_trace(trace, environment)

One row a call. Beside each decision stands its regret as a bar with its split, beside each probe its credit; to the
right of them the state table: the gain so far, how much of the hidden is known, V* (the best still to be had) and the
public state, with what has just changed in bold. Above the turns stands the loss split, below them the end row.
Everything is computed from the trace; the environment only adds its title, its prompt and its names.

Text in a trace was written by a model or a setter and is never trusted: all of it is escaped, control and direction
characters are shown as a replacement, and the page holds no script, no link, no image and no form. Styles are inline,
so that a page read elsewhere looks the same and touches nothing around it.
"""

from __future__ import annotations

import html
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from IPython.display import HTML

from ..solvefirst.environment import Environment
from ..solvefirst.realize.prompt import display
from ..solvefirst.score import LedgerRow, RegretLedger, Replay, regret_ledger, score_trace
from ..types import Form, StopReason, Trace, Turn

# Okabe and Ito, "Color universal design", 2008, and a grey
BLUE, RED, GREY = "#0072B2", "#D55E00", "#8A8A8A"
LOSS_COLOURS = {"score": "#009E73", "information": "#56B4E9", "planning": "#E69F00", "execution": "#000000"}
MAX_SHOWN = 1_500  # characters of one text; the trace has the rest
EDGE = "border:1px solid rgba(128,128,128,.7);box-sizing:border-box"  # black is seen on a dark page too
MONO = "font-family:monospace;font-size:12px;white-space:pre-wrap;overflow-wrap:anywhere;text-align:left;margin:2px 0"
CELL = "padding:4px 8px;vertical-align:top;text-align:left;border-top:1px solid rgba(128,128,128,.25)"
NUMBER = "padding:4px 6px;vertical-align:top;text-align:right;border-top:1px solid rgba(128,128,128,.25);font-size:12px"
NOTE = "color:#808080;font-size:11px;text-align:left"
TINTS = {
    "refused": "background:rgba(213,94,0,.10)",
    "probe": "background:rgba(0,114,178,.06)",
    "decision": "background:rgba(0,158,115,.07)",
}
BAR = 90  # pixels of the longest bar


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
        _turns(replay, ledger, environment),
        _foot(trace),
    ]
    return f'<div style="max-width:1100px;font-size:13px;line-height:1.45">{"".join(parts)}</div>'


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


def _bar(share: float, longest: float, colour: str, label: str) -> str:
    """Return a bar whose length is `share` of `longest`, with its number; negative ones are hollow, zero has no bar."""
    if not share:
        return f'<div title="{label}" style="{NOTE}">0</div>'
    width = max(1, round(BAR * abs(share) / longest))
    fill = f"background:{colour};{EDGE}" if share >= 0 else f"border:1px solid {colour};box-sizing:border-box"
    return (
        f'<div title="{label}" style="white-space:nowrap"><span style="display:inline-block;height:10px;'
        f'width:{width}px;{fill}"></span> <span style="font-size:12px">{share:+.3f}</span></div>'
    )


# --- the parts of the page --------------------------------------------------------------------------------
def _head(trace: Trace, environment: Environment | None) -> str:
    header, score = trace.header, score_trace(trace)
    title = environment.spec.title if environment else str(header.get("environment", "an episode"))
    facts = [
        f"{header.get('family')}, {header.get('size')}, {header.get('budget')} budget",
        f"form {header.get('form')}",
        f"seed {header.get('seed', 0)}",
        f"{len(trace.turns)} steps of a written plan"
        if header.get("form") == Form.WRITTEN
        else f"{len(trace.turns)} of {header.get('turn_budget')} turns",
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
        + (
            f"background:{LOSS_COLOURS[name]};{EDGE}"
            if share >= 0
            else f"border:2px solid {LOSS_COLOURS[name]}"
        )
        + ';box-sizing:border-box"></span>'
        for name, share in shares.items()
        if share
    )
    legend = " + ".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:9px;height:9px;'
        f'background:{LOSS_COLOURS[name]};{EDGE}"></span> {name} {share:+.3f}{_UNCLIPPED.get(name, "")}</span>'
        for name, share in shares.items()
    )
    return f'<div style="margin:6px 0;text-align:left"><div style="white-space:nowrap">{pieces}</div>{legend} = 1</div>'


_UNCLIPPED = {"score": " (unclipped)"}


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


def _turns(replay: Replay, ledger: RegretLedger, environment: Environment | None) -> str:
    """Return the table of turns with the state after each, messages of a model above their calls, and the end row."""
    trace, span, theta = replay.trace, ledger.span, replay.theta
    prices = [abs(part) for row in ledger.rows for part in (row.regret, row.credit) if part is not None]
    longest = max([*prices, ledger.end], default=0) / span
    spoken, hidden, gained = _messages(trace), len(replay.family.hidden(theta)), 0
    start = replay.family.start(theta)
    known_at_first = 0 if trace.header["form"] == Form.AGENTIC else hidden
    state = _state(replay, environment, start, gained, known_at_first, ledger.u_star)
    width = 3 + len(state)
    told = f"u* = {ledger.u_star} can be had from here, the default policy earns {ledger.u_zero}"
    note = f'<div style="{NOTE}">{told}</div>'
    body = [_row("start", "", note, "", state, {})]
    for row, (turn, _, _, _, after, known) in zip(ledger.rows, replay.positions(), strict=True):
        gained += row.gain
        before, state = state, _state(replay, environment, after, gained, len(known), row.value_after)
        body += [_message_row(message, width) for message in spoken.get(turn.index, ())]
        kind = "refused" if turn.status == "refused" else str(turn.kind)
        body.append(
            _row(
                str(turn.index + 1),
                kind,
                _called(turn) + _block(turn.reply),
                _price(row, longest, span),
                state,
                before,
            )
        )
    body += [_message_row(message, width) for message in spoken.get(len(trace.turns), ())]
    forced = ledger.u - gained
    words = (
        f"<b>{shown(_ending(trace))}</b>{_error(trace)}<div>What the dynamics then give: {forced:+d}; still to be had "
        f"by then: {ledger.end + forced:+d}. In all u = {ledger.u}.</div>"
    )
    price = _bar(ledger.end / span, longest, LOSS_COLOURS["execution"], "end row")
    body.append(
        _row("end", "", words, price, dict.fromkeys(state, ""), {}, "background:rgba(128,128,128,.12)")
    )
    heads = [
        ("turn", CELL),
        ("call and reply", f"{CELL};width:60%"),
        ("regret (red) or credit (blue), share of u* - u0", f"{CELL};min-width:150px"),
        *((shown(name), f"{NUMBER};{NOTE};text-align:right") for name in state),
    ]
    head = "".join(f'<th style="{NOTE};{style}">{name}</th>' for name, style in heads)
    return (
        # JupyterLab lays tables out in equal columns unless told otherwise.
        '<table style="border-collapse:collapse;table-layout:auto;width:100%;margin-top:8px">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def _state(
    replay: Replay, environment: Environment | None, state: Any, gained: int, known: int, value: int
) -> dict[str, str]:
    """Return the columns of the state table after a call, in order."""
    family, theta = replay.family, replay.theta
    units = {fact.name: fact.unit for fact in family.interface.facts}
    facts = {}
    for name, number in family.observe(theta, state).items():
        text = display(family, environment.spec, units[name], number) if environment else str(number)
        facts[name.replace("_", " ")] = text
    return {
        "gain so far": f"{gained:d}",
        "known": f"{known}/{len(family.hidden(theta))}",
        "V* after": f"{value:d}",
        **facts,
    }


def _row(
    turn: str,
    kind: str,
    words: str,
    price: str,
    state: Mapping[str, str],
    before: Mapping[str, str],
    tint: str | None = None,
) -> str:
    """Return one row; `words` and `price` are HTML, what differs from the state `before` is bold."""
    cells = "".join(
        f'<td style="{NUMBER};{_changed(before.get(name, value) != value)}">{shown(value)}</td>'
        for name, value in state.items()
    )
    label = f'<div style="{NOTE}">{shown(kind)}</div>' if kind and kind != "None" else ""
    return (
        f'<tr style="{TINTS.get(kind, "") if tint is None else tint}"><td style="{CELL}">{shown(turn)}{label}</td>'
        f'<td style="{CELL}">{words}</td><td style="{CELL}">{price}</td>{cells}</tr>'
    )


def _changed(yes: bool) -> str:
    return "font-weight:600" if yes else "color:#808080"


def _price(row: LedgerRow, longest: float, span: int) -> str:
    """Return the regret of a decision with its split, or the credit of a probe."""
    if row.regret is not None:
        price = _bar(row.regret / span, longest, RED, "regret")
        if not row.regret and not row.information:
            return price
        split = (
            f"information {(row.information or 0) / span:+.3f}, planning {(row.planning or 0) / span:+.3f}"
        )
        if row.information == row.regret:
            split = "all of it information"
        elif row.planning == row.regret:
            split = "all of it planning"
        return price + f'<div style="{NOTE}">{split}</div>'
    return "" if row.credit is None else _bar(row.credit / span, longest, BLUE, "credit of a probe")


def _called(turn: Turn) -> str:
    """Return a call as HTML; a program is shown as it stands."""
    arguments = turn.arguments
    if turn.kind == "code" and isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        return f'<div style="{MONO};font-weight:600">{shown(turn.tool)}</div>{_block(arguments["code"])}'
    return f'<div style="{MONO};font-weight:600">{shown(_call(turn))}</div>'


def _call(turn: Turn) -> str:
    arguments = turn.arguments
    if isinstance(arguments, dict):
        given = [f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items()]
    elif turn.kind == "decision" and isinstance(arguments, list):  # a step of a written plan
        given = [json.dumps(value, ensure_ascii=False) for value in arguments]
    else:
        given = [json.dumps(arguments, ensure_ascii=False)]
    return f"{turn.tool}({', '.join(given)})"


# --- a model's messages -----------------------------------------------------------------------------------
def _rollout(trace: Trace) -> dict[str, Any]:
    """Return a model's record of its conversation; empty for a scripted policy."""
    record = trace.header.get("rollout")
    return record if isinstance(record, dict) else {}


def _messages(trace: Trace) -> dict[int, list[Mapping[str, Any]]]:
    """Return the messages of a model by the turn before which they stand."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    messages = _rollout(trace).get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            turns = message.get("turns")
            first = (
                turns[0]
                if isinstance(turns, list) and turns and isinstance(turns[0], int)
                else len(trace.turns)
            )
            found.setdefault(max(0, min(first, len(trace.turns))), []).append(message)
    return found


def _message_row(message: Mapping[str, Any], width: int) -> str:
    """Return one message of a model as a row of a table with `width` columns."""
    tokens, before, logprob = (message.get(name) for name in ("tokens", "prompt_tokens", "logprob"))
    facts = [] if tokens is None else [f"{tokens} token{'' if tokens == 1 else 's'}"]
    facts += [] if before is None else [f"{before} before"]
    if isinstance(logprob, float) and math.isfinite(logprob):
        each = f", {logprob / tokens:.2f} a token" if isinstance(tokens, int) and tokens else ""
        facts.append(f"log-probability {logprob:.2f}{each}")
    facts += ["cut"] if message.get("cut") else []
    listed = message.get("notes")
    notes = "".join(
        f'<div style="color:{RED};font-size:11px">{shown(note)}</div>'
        for note in (listed if isinstance(listed, list) else ())
    )
    text = str(message.get("text", ""))
    said = _block(text) if text.strip() else f'<div style="{NOTE}">(an empty message)</div>'
    return (
        f'<tr><td style="{CELL};{NOTE}">wrote</td><td style="{CELL};border-left:3px solid {GREY}" colspan="2">{said}'
        f'{notes}</td><td style="{CELL};{NOTE}" colspan="{width - 3}">{shown(" · ".join(facts))}</td></tr>'
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
        else "<div>Form F: the rows are the steps of the written plan.</div>"
    )
    return f'<div style="{NOTE};margin-top:6px">{form}{"".join(f"<div>{t}</div>" for t in texts if t)}</div>'


def _pairs(table: Any, skip: Iterable[str] = ()) -> list[tuple[str, Any]]:
    """Return the entries of what should be a table of a header; nothing where it is none."""
    return [(str(k), v) for k, v in table.items() if k not in skip] if isinstance(table, dict) else []
