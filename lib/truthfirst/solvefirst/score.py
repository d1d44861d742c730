"""Scoring: the reward, the regret ledger, probe credit and the loss split, all from a trace.

Every number is an exact integer over the span u_star - u_zero. With V* the value-to-go:

    regret of a decision   rho_t = (V*(s_t) - gain_t - V*(s_t+1)) / span  >= 0
    end row                (V*(s_end) - what the dynamics then give) / span  >= 0
    identity               sum of regrets + end row = 1 - unclipped score

A decision's regret splits into information loss (the regret, in the same state, of the action that the reference
planner takes with the same information) and planning loss (the rest); the end row is execution loss. A probe is
credited with what it adds to the planner's real earnings; credit stands outside the sum.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import Any

from ..records import RecordError
from ..types import Score, StopReason, Trace, Turn
from .families import family as find_family
from .families.base import Action, Family, Key, State, Theta, ThetaError

REWARD_KINDS = ("outcome", "progress", "regret", "regret+credit")


def reward(u: int, u_star: int, u_zero: int) -> float:
    """Return r = clip((u - u_zero) / (u_star - u_zero), 0, 1); the span must be positive."""
    if u_star <= u_zero:
        raise ValueError(
            f"u_star = {u_star} does not exceed u_zero = {u_zero}: this instance has no reward scale"
        )
    return min(1.0, max(0.0, (u - u_zero) / (u_star - u_zero)))


# --- the reference planner ------------------------------------------------------------------------------
@functools.lru_cache(maxsize=20_000)
def _first_action(name: str, theta: Theta, state: State) -> Action | None:
    family = find_family(name)
    plan = family.optimum(family.residual(theta, state)).plan
    return plan[0] if plan else None


def planned(family: Family, believed: Theta, state: State) -> Action | None:
    """Return the reference planner's action: the first of an optimal plan under `believed`; None means stop."""
    return _first_action(family.name, believed, state)


@functools.lru_cache(maxsize=20_000)
def _value_to_go(name: str, theta: Theta, state: State) -> int:
    return find_family(name).value_to_go(theta, state)


def planner_earnings(family: Family, theta: Theta, state: State, known: dict[Key, int]) -> int:
    """Return w(s, I): what the planner, probing no more, really earns from `state` when it knows `known`."""
    public, known, total = family.expected(theta, {}), dict(known), 0
    while family.legal(theta, state):
        action = planned(family, family.substitute(public, known), state)
        if action is None:
            break
        state, gain, shown = family.play(theta, state, action)
        known |= shown
        total += gain
    return total + family.abandon(theta, state)


# --- reading a trace -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Replay:
    """A trace replayed through the mechanism; raises RecordError where the two disagree."""

    family: Family
    theta: Theta
    u_star: int
    u_zero: int
    trace: Trace

    @classmethod
    def of(cls, trace: Trace) -> Replay:
        header = trace.header
        try:
            family = find_family(header["family"])
            theta = family.build(header["theta"])
        except KeyError as error:
            raise RecordError(f"{trace.where}: field header.{error.args[0]} is missing") from error
        except ThetaError as error:
            raise RecordError(f"{trace.where}: header.theta cannot be used ({error})") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise RecordError(
                f"{trace.where}: header.family or header.theta cannot be used ({error})"
            ) from error
        u_star, u_zero = (header_number(trace, name) for name in ("u_star", "u_zero"))
        if u_star <= u_zero:
            raise RecordError(
                f"{trace.where}: header.u_star = {u_star} does not exceed header.u_zero = {u_zero}: no reward scale"
            )
        return cls(family, theta, u_star, u_zero, trace)

    @property
    def span(self) -> int:
        return self.u_star - self.u_zero

    def positions(self) -> Iterator[tuple[Turn, State, dict[Key, int], Action | None, State, dict[Key, int]]]:
        """Yield (turn, state and knowledge before, action or None, state and knowledge after) for each turn."""
        hidden = self.family.hidden(self.theta)
        state, known = self.family.start(self.theta), {} if self.trace.header["form"] == "A" else hidden
        for turn in self.trace.turns:
            action, after, learned = None, state, dict(known)
            where = f"{self.trace.where}: turns[{turn.index}].detail"
            if turn.status == "ok" and turn.kind == "decision":
                action, recorded = _decision(turn, where)
                if not self.family.is_legal(self.theta, state, action):
                    raise RecordError(f"{where}.action = {action} is not legal there; the trace is damaged")
                after, gain, shown = self.family.step(self.theta, state, action)
                if gain != recorded:
                    raise RecordError(f"{where}.gain = {recorded}: the mechanism gives {gain}")
                learned |= shown
            elif turn.status == "ok" and turn.kind == "probe":
                key, value, new = _reading(turn, where)
                if hidden.get(key) != value:
                    raise RecordError(
                        f"{where}.value = {value}: the mechanism has {hidden.get(key)} at {key}"
                    )
                if new is not (key not in known):
                    raise RecordError(
                        f"{where}.new = {new!r}: expected {json.dumps(key not in known)} for {key}"
                    )
                learned[key] = value
            yield turn, state, known, action, after, learned
            state, known = after, learned

    def total(self) -> int:
        """Return u, the total gain of the episode with what the dynamics give after its last decision."""
        gains, end = 0, self.family.start(self.theta)
        for turn, _, _, action, after, _ in self.positions():
            gains += turn.detail["gain"] if action else 0
            end = after
        return gains + self.family.abandon(self.theta, end)


def header_number(trace: Trace, name: str) -> int:
    """Return an integer of a trace's header; raise RecordError where there is none."""
    value = trace.header.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError(f"{trace.where}: header.{name} = {value!r}: expected an integer")
    return value


def _decision(turn: Turn, where: str) -> tuple[Action, int]:
    """Return the action and the gain that a decision's record states."""
    action: Any = turn.detail.get("action")
    gain: Any = turn.detail.get("gain")
    try:
        verb, *args = action
        return Action(verb, tuple(index(arg) for arg in args)), index(gain)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"{where}: action = {action!r}, gain = {gain!r}: not a record of a decision ({error})"
        ) from error


def _reading(turn: Turn, where: str) -> tuple[Key, int, Any]:
    """Return the entry that a probe's record names, its value, and what it states of being new."""
    parts: list[Any] = [turn.detail.get(name) for name in ("key", "value", "new")]
    key, value, new = parts
    try:
        field, *at = key
        return (str(field), *(index(i) for i in at)), index(value), new
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"{where}: key = {key!r}, value = {value!r}: not a record of a probe ({error})"
        ) from error


def score_trace(trace: Trace) -> Score:
    """Score a trace without a model. A malformed written answer scores 0; a damaged trace raises RecordError."""
    replay = Replay.of(trace)
    u = replay.total()
    malformed = trace.stop is StopReason.MALFORMED
    earned = 0.0 if malformed else reward(u, replay.u_star, replay.u_zero)
    kinds = [turn.kind if turn.status == "ok" else "refused" for turn in trace.turns]
    detail: dict[str, Any] = {
        "u": None if malformed else u,
        "u_star": replay.u_star,
        "u_zero": replay.u_zero,
        "unclipped": None if malformed else (u - replay.u_zero) / replay.span,
        "stop": str(trace.stop),
        "turns": len(trace.turns),
        **{name: kinds.count(kind) for name, kind in _COUNTS.items()},
        "probes_new": sum(
            turn.detail["new"] for turn in trace.turns if turn.kind == "probe" and turn.status == "ok"
        ),
        "probes_possible": len(replay.family.probe_keys(replay.theta)),
    }
    return Score(earned, detail)


_COUNTS = {
    "decisions": "decision",
    "probes": "probe",
    "queries": "query",
    "code": "code",
    "refused": "refused",
}


# --- the regret ledger -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One call, in units of gain (divide by the span for shares of the score).

    value_before, value_after   V* around the call
    regret         of a decision; None for other calls
    information    regret of the planner's action in the same state with the same information
    credit         of a probe: what it adds to the planner's real earnings
    """

    turn: int
    kind: str
    gain: int
    value_before: int
    value_after: int
    regret: int | None = None
    information: int | None = None
    credit: int | None = None

    @property
    def planning(self) -> int | None:
        """Regret beyond the planner's: planning loss; negative when the agent was luckier than the planner."""
        return None if self.regret is None or self.information is None else self.regret - self.information


@dataclass(frozen=True, slots=True)
class RegretLedger:
    """The rows of an episode and its end row; everything in units of gain, `span` is the denominator."""

    rows: tuple[LedgerRow, ...]
    end: int
    span: int
    u: int
    u_star: int
    u_zero: int

    def check(self) -> None:
        """Raise AssertionError unless regrets and end row sum to u_star - u exactly."""
        total = sum(row.regret or 0 for row in self.rows) + self.end
        if total != self.u_star - self.u:
            raise AssertionError(f"regrets and end row sum to {total}, u_star - u is {self.u_star - self.u}")

    def losses(self) -> dict[str, Fraction]:
        """Return score (unclipped), information, planning and execution loss; they sum to 1 exactly."""
        return {
            "score": Fraction(self.u - self.u_zero, self.span),
            "information": Fraction(sum(row.information or 0 for row in self.rows), self.span),
            "planning": Fraction(sum(row.planning or 0 for row in self.rows), self.span),
            "execution": Fraction(self.end, self.span),
        }


def regret_ledger(trace: Trace, *, information: bool = True, credit: bool = True) -> RegretLedger:
    """Compute the ledger of a trace; `information` and `credit` cost further solves and can be left out."""
    replay = Replay.of(trace)
    family, theta = replay.family, replay.theta
    public = family.expected(theta, {})
    rows, state, gains = [], family.start(theta), 0
    for turn, before, known, action, state, learned in replay.positions():
        value = _value_to_go(family.name, theta, before)
        if action is None:
            kind = turn.kind if turn.status == "ok" and turn.kind else "refused"
            earned = None
            if kind == "probe" and credit:
                earned = 0
                if learned.keys() != known.keys():
                    earned = planner_earnings(family, theta, before, learned)
                    earned -= planner_earnings(family, theta, before, known)
            rows.append(LedgerRow(turn.index, kind, 0, value, value, credit=earned))
            continue
        gain = turn.detail["gain"]
        gains += gain
        after = _value_to_go(family.name, theta, state)
        lost = None
        if information:
            choice = planned(family, family.substitute(public, known), before)
            lost = value - family.abandon(theta, before)
            if choice is not None:
                there, paid, _ = family.play(theta, before, choice)
                lost = value - paid - _value_to_go(family.name, theta, there)
        rows.append(
            LedgerRow(
                turn.index, "decision", gain, value, after, regret=value - gain - after, information=lost
            )
        )
    forced = family.abandon(theta, state)
    end = _value_to_go(family.name, theta, state) - forced
    return RegretLedger(tuple(rows), end, replay.span, gains + forced, replay.u_star, replay.u_zero)


def call_rewards(trace: Trace, kind: str) -> list[float]:
    """Return one number a call, and one more for what leaving cost where an episode was left before its end.

    outcome         the reward on the last call
    progress        gain / span of each decision; in the end what abandoning the rest brings or costs
    regret          -rho of each decision, 0 for other calls; in the end minus the end row
    regret+credit   the same, with its credit for each probe

    What the end brings falls on the last call, which used up the budget, or, in an episode that was left, stands as a
    number of its own: it is owed to whatever was said in the place of a call, not to the call before.
    """
    if kind not in REWARD_KINDS:
        raise ValueError(f"unknown reward kind {kind!r}: choose one of {', '.join(REWARD_KINDS)}")
    if not trace.turns:
        return []
    if kind == "outcome":
        return [0.0] * (len(trace.turns) - 1) + [score_trace(trace).reward]
    if kind == "progress":
        replay = Replay.of(trace)
        gains = [turn.detail["gain"] if action else 0 for turn, _, _, action, *_ in replay.positions()]
        rewards, end = [gain / replay.span for gain in gains], (replay.total() - sum(gains)) / replay.span
    else:
        ledger = regret_ledger(trace, information=False, credit=kind == "regret+credit")
        rewards = [((row.credit or 0) - (row.regret or 0)) / ledger.span for row in ledger.rows]
        end = -ledger.end / ledger.span
    if trace.stop is StopReason.STOPPED:
        return [*rewards, end]
    return [*rewards[:-1], rewards[-1] + end]
