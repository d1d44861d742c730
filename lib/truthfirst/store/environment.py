"""A store as an agent environment: tools, one turn budget, and an episode of it.

Every call costs one turn, a refused one too. When the turns are spent, or the agent stops, the store closes on that
day: what is in it brings its salvage value, and what has been earned stays earned.

    r = clip((u - u0) / (u_bar - u0), 0, 1)

with u the net worth at the end, u0 that of closing on the first day, and u_bar the bound of `bound.py`, which
nobody can exceed and perhaps nobody can reach: 1 is no promise. Demand is hidden, sales are seen; a sold-out day
tells only that more was wanted.

Memory: a state has a few numbers a good and batch, a turn keeps its bounded message and arguments, and what a
manager may see of the past is one record a day. An episode of T calls is therefore at most proportional to T, a few
megabytes at 3,000."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..episode import BudgetedEpisode, Outcome, printable
from ..types import Form, PublicView, Score
from . import mechanism, tools
from .bound import Bound, solve_bound, u_zero
from .mechanism import Day, Refusal, State
from .score import call_rewards, score_trace
from .theta import NOTICE, REVISION, YEAR, StoreError, Terms, Theta, recipe, sample

TURNS_A_DAY = 8


@dataclass(frozen=True)
class Environment:
    """One store that can be played.

    theta    sealed; recipe: JSON that `sample` makes it of, empty for a store made by hand
    calls    T, calls of all tools together; by default 8 a day
    """

    theta: Theta = field(repr=False)
    recipe: dict[str, Any] = field(default_factory=dict)
    calls: int = 0

    def __post_init__(self) -> None:
        if self.calls < 0:
            raise StoreError(f"calls must be at least 1, or 0 for {TURNS_A_DAY} a day, got {self.calls}")

    @property
    def terms(self) -> Terms:
        return self.theta.terms

    @property
    def turn_budget(self) -> int:
        return self.calls or TURNS_A_DAY * self.terms.days

    @functools.cached_property
    def id(self) -> str:
        return f"store-{self.terms.days}-{self.theta.hash[:12]}"

    @functools.cached_property
    def bound(self) -> Bound:
        """The relaxation's solution, solved when first asked for: about 2 CPU seconds for a year of six goods."""
        return solve_bound(self.theta)

    @property
    def u_zero(self) -> int:
        return u_zero(self.theta)

    @functools.cached_property
    def view(self) -> PublicView:
        return PublicView(
            tools.messages(self.terms, self.turn_budget), tools.schemas(self.terms), self.turn_budget
        )

    def episode(self, form: Form | str = Form.AGENTIC, policy: str = "unnamed") -> StoreEpisode:
        """Start an episode. Raises ValueError for a form other than A, StoreError where nothing can be earned."""
        if Form.parse(form) is not Form.AGENTIC:
            raise ValueError(f"a store is played in form {Form.AGENTIC} only, got {form!r}")
        if self.bound.u_bar <= self.u_zero:
            raise StoreError(
                f"{self.id} has no reward scale: its bound {self.bound.u_bar} does not exceed u0 = {self.u_zero}; "
                f"take more days or another seed"
            )
        return StoreEpisode(self, policy)


def build_environment(seed: int, days: int = YEAR, goods: int = 6, calls: int = 0) -> Environment:
    """Return the environment of a seed and size."""
    return Environment(sample(seed, days, goods), recipe(seed, days, goods), calls)


def rebuild(stated: dict[str, Any], calls: int = 0) -> Environment:
    """Return the environment of a recipe. Raises StoreError when sampling has changed since it was written."""
    if stated.get("revision") != REVISION:
        raise StoreError(f"sampling is at revision {REVISION}, the recipe is of {stated.get('revision')!r}")
    return build_environment(stated["seed"], stated["days"], stated["goods"], calls)


@dataclass(frozen=True, slots=True)
class Position:
    """What a scripted manager may see: what an attentive agent knows, and nothing else.

    past     one record a day that has ended
    news     announced events that were told so far: (good, first day, length, per cent of normal demand)
    surveys  for each good the last survey: (day on which it was made, days it covers, units wanted at each price)
    """

    terms: Terms
    state: State
    past: tuple[Day, ...]
    news: frozenset[tuple[int, int, int, int]]
    surveys: dict[int, tuple[int, int, tuple[int, ...]]]
    turns_left: int


class StoreEpisode(BudgetedEpisode):
    """An episode of one store; see `types.Episode`."""

    def __init__(self, environment: Environment, policy: str) -> None:
        header = {
            "environment": environment.id,
            "family": "store",
            "size": str(environment.terms.days),
            "form": str(Form.AGENTIC),
            "policy": policy,
            "turn_budget": environment.turn_budget,
            "recipe": environment.recipe,
            "theta_hash": environment.theta.hash,
            "u_bar": environment.bound.u_bar,
            "u_zero": environment.u_zero,
            "limit": environment.terms.limit,
            "version": __version__,
        }
        super().__init__(environment.view, header)
        self.environment = environment
        self._theta, self._terms = environment.theta, environment.terms
        self.state = mechanism.start(self._terms)
        self._past: list[Day] = []
        self._news: set[tuple[int, int, int, int]] = set()
        self._surveys: dict[int, tuple[int, int, tuple[int, ...]]] = {}

    # --- calls --------------------------------------------------------------------------------
    def _execute(self, name: str, arguments: Any) -> Outcome:
        run = self._runs.get(name) if isinstance(name, str) else None
        if run is None:
            told = printable(str(name)[:60])
            why = f"there is no tool {told!r}, only {', '.join(self._runs)}"
            return Outcome(f"Refused: {why}.", None, "refused", self._worth())
        kind = tools.KINDS[name]
        try:
            reply, detail = run(tools.read(self._terms, name, arguments))
        except Refusal as refusal:
            return Outcome(f"Refused: {refusal}.", kind, "refused", self._worth())
        return Outcome(reply, kind, "ok", detail | self._worth())

    @functools.cached_property
    def _runs(self) -> dict[str, Callable[[dict[str, int]], tuple[str, dict[str, Any]]]]:
        return {
            "report": lambda _: (tools.report(self._terms, self.state), {}),
            "history": self._history,
            "news": lambda _: self._tell_news(),
            "survey": self._survey,
            "order": lambda a: self._decide(mechanism.order, "order", a["good"], a["units"]),
            "set_price": lambda a: self._decide(mechanism.set_price, "set_price", a["good"], a["price"]),
            "set_staff": lambda a: self._decide(mechanism.set_staff, "set_staff", a["number"]),
            "borrow": lambda a: self._decide(mechanism.borrow, "borrow", a["amount"]),
            "repay": lambda a: self._decide(mechanism.repay, "repay", a["amount"]),
            "next_day": lambda a: self._next_days(a["days"]),
            "close": lambda _: self._decide(mechanism.close, "close"),
        }

    def _decide(self, decide: Callable[..., State], *action: Any) -> tuple[str, dict[str, Any]]:
        before = self.state
        self.state = decide(self._terms, before, *action[1:])
        return tools.decided(self._terms, before, self.state, action), {"action": list(action)}

    def _next_days(self, days: int) -> tuple[str, dict[str, Any]]:
        ended: list[Day] = []
        while len(ended) < days and not self.state.ended:
            self.state, day = mechanism.end_day(self._theta, self.state)
            ended.append(day)
        self._past += ended
        return tools.days_told(self._terms, ended, self.state), {"action": ["next_day", len(ended)]}

    def _history(self, arguments: dict[str, int]) -> tuple[str, dict[str, Any]]:
        return tools.history(self._terms, self._past[-arguments["days"] :], arguments["good"]), {}

    def _tell_news(self) -> tuple[str, dict[str, Any]]:
        today = self.state.day
        seen = [
            event
            for event in self._theta.events
            if event.announced and event.first - NOTICE <= today < event.first + event.length
        ]
        self._news |= {(event.good, event.first, event.length, event.strength) for event in seen}
        return tools.news(self._terms, seen), {"events": len(seen)}

    def _survey(self, arguments: dict[str, int]) -> tuple[str, dict[str, Any]]:
        good = arguments["good"]
        self.state = mechanism.pay_survey(self._terms, self.state)
        found = mechanism.surveyed(self._theta, self.state.day, good)
        days = min(7, self.state.day)
        self._surveys[good] = (self.state.day, days, found)
        return tools.survey(self._terms, good, days, found), {"action": ["survey", good]}

    def _worth(self) -> dict[str, Any]:
        return {"day": self.state.day, "worth": mechanism.net_worth(self._terms, self.state)}

    def _completed(self) -> bool:
        return self.state.ended

    # --- after the fact -----------------------------------------------------------------------
    def score(self) -> Score:
        return score_trace(self.trace())

    def rewards(self, kind: str) -> list[float]:
        return call_rewards(self.trace(), kind)

    # --- scripted managers ----------------------------------------------------------------------
    def position(self) -> Position:
        """Return what an attentive agent knows now."""
        return Position(
            self._terms,
            self.state,
            tuple(self._past),
            frozenset(self._news),
            dict(self._surveys),
            self.turns_left,
        )
