"""Wrap: an instance as an agent environment, and one episode of it in form F, I or A.

`Environment` keeps the sealed truth (theta, its solution) apart from what a player gets (`view(form)`). An
`InstanceEpisode` turns calls into steps of the mechanism; it never computes a reward while the agent acts.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from .. import __version__
from ..episode import MAX_ANSWER_CHARACTERS, BudgetedEpisode, Outcome, is_integer, printable
from ..records import canonical_json, content_hash
from ..sandbox import require_sandbox
from ..types import Form, PublicView, Score, StopReason, Turn
from .families import family as find_family
from .families.base import Action, Family, Key, Solution, State, Theta, UnknownName, entry
from .realize.code_tool import SCHEMA, WRITTEN_TURNS, read_code, run_code, with_code_tool
from .realize.database import Ledger, QueryError, build_database
from .realize.prompt import display, messages, values
from .realize.spec import CODE_TOOL, WorldSpec, fill
from .realize.tools import Probe, Query, Refusal, Toolbox
from .score import call_rewards, score_trace

Budget = Literal["ample", "tight"]
BUDGETS: tuple[Budget, ...] = ("ample", "tight")


class NoRewardScale(ValueError):
    """Nothing can be won in an environment, so no reward can be measured; admission rejects it (gate `margin`)."""


def turn_budget(family: Family, theta: Theta, budget: str) -> int:
    """Return T in turns.

    ample   every decision of the longest sensible episode and every probe, and a tenth more for mistakes and queries
    tight   every decision and half of the probes (where decisions alone reveal: half of the revelations)
    """
    if budget not in BUDGETS:
        raise UnknownName("budget", budget, BUDGETS)
    decisions, probes = family.horizon(theta), len(family.probe_keys(theta))
    if budget == "ample":
        return decisions + probes + -(-(decisions + probes) // 10)
    return decisions + probes - len(family.keys(theta)) // 2


@dataclass(frozen=True)
class Environment:
    """One admitted (or candidate) environment.

    recipe      JSON that rebuilds it: family, size, seed, budget, passage, setter
    theta, solution   sealed; never given to a player, a setter or a policy that is not an oracle
    code_tool   whether Python in the sandbox is offered; raises SandboxUnavailable where there is no sandbox
    """

    family_name: str
    size: str
    budget: str
    recipe: dict[str, Any]
    spec: WorldSpec
    theta: Theta = field(repr=False)
    solution: Solution = field(repr=False)
    code_tool: bool = False

    def __post_init__(self) -> None:
        if self.code_tool:
            require_sandbox("an environment with code_tool=True")

    @property
    def family(self) -> Family:
        return find_family(self.family_name)

    @functools.cached_property
    def turn_budget(self) -> int:
        return turn_budget(self.family, self.theta, self.budget)

    @functools.cached_property
    def database(self) -> bytes:
        return build_database(self.family, self.theta, self.spec)

    @functools.cached_property
    def toolbox(self) -> Toolbox:
        further = (CODE_TOOL,) if self.code_tool else ()
        return Toolbox(self.family, self.family.counts(self.theta), self.spec, further)

    @functools.cached_property
    def id(self) -> str:
        """Name of the environment: family, size and a hash of everything a player can meet."""
        public = canonical_json([self.view(Form.AGENTIC).prompt, self.turn_budget])
        sealed = canonical_json(self.family.to_json(self.theta))
        return f"{self.family_name}-{self.size}-{content_hash([public, sealed], 12)}"

    @functools.cached_property
    def _views(self) -> dict[Form, PublicView]:
        return {}

    def view(self, form: Form | str) -> PublicView:
        """Return what a player gets in this form."""
        form = Form.parse(form)
        if form not in self._views:
            budget = 0 if form is Form.WRITTEN else self.turn_budget
            prompt = messages(self.family, self.theta, self.spec, form, budget)
            tools = () if form is Form.WRITTEN else self.toolbox.schemas()
            files = {} if form is Form.WRITTEN else {"world.sqlite": self.database}
            if self.code_tool:
                budget = WRITTEN_TURNS if form is Form.WRITTEN else budget
                prompt, tools = with_code_tool(prompt, form, budget), (*tools, SCHEMA)
            self._views[form] = PublicView(prompt, tools, budget, files)
        return self._views[form]

    def episode(self, form: Form | str, policy: str = "unnamed") -> InstanceEpisode:
        """Start an episode; raise NoRewardScale where no score could be given at its end."""
        if self.solution.span <= 0:
            raise NoRewardScale(
                f"environment {self.id} has no reward scale: its default policy earns the optimum (u0 = "
                f"{self.solution.u_zero}, u* = {self.solution.u_star}); play environments that admit() admits"
            )
        return InstanceEpisode(self, Form.parse(form), policy)


@dataclass(frozen=True, slots=True)
class Position:
    """What a scripted policy may see: everything an attentive agent knows, and nothing else.

    public       theta with every hidden entry at its prior mean
    known        hidden entries revealed so far
    turn_budget  calls of any kind in the whole episode; turns_left: of these, not yet used
    """

    family: Family
    public: Theta
    state: State
    known: dict[Key, int]
    turn_budget: int
    turns_left: int

    @property
    def believed(self) -> Theta:
        """Theta as the agent would plan with it: known entries, and prior means for the rest."""
        return self.family.substitute(self.public, self.known) if self.known else self.public


class InstanceEpisode(BudgetedEpisode):
    """An episode of one instance; see `types.Episode`."""

    def __init__(self, environment: Environment, form: Form, policy: str) -> None:
        env = environment
        header = {
            "environment": env.id,
            "family": env.family_name,
            "size": env.size,
            "budget": env.budget,
            "form": str(form),
            "policy": policy,
            "turn_budget": env.turn_budget,
            "recipe": env.recipe,
            "theta": env.family.to_json(env.theta),
            "u_star": env.solution.u_star,
            "u_zero": env.solution.u_zero,
            "version": __version__,
        }
        super().__init__(env.view(form), header)
        self.environment, self.form = env, form
        self._family, self._theta, self._toolbox = env.family, env.theta, env.toolbox
        self.state = self._family.start(self._theta)
        self.known: dict[Key, int] = {} if form is Form.AGENTIC else self._family.hidden(self._theta)
        self._ledger = None if form is Form.WRITTEN else Ledger(self._family, env.spec, env.database)
        self._moves = self._family.legal(self._theta, self.state)

    # --- calls --------------------------------------------------------------------------------
    def _when_spent(self) -> tuple[StopReason | None, str]:
        if self.form is Form.WRITTEN:  # the turns were for running code; the plan is still to be written
            return None, "No turns are left; write the plan."
        return super()._when_spent()

    def _without_turns(self) -> str:
        if self.view.tools:
            return "No turns are left and no call is executed; write the plan."
        return "This form has no tools and no call is executed; write the plan."

    def _execute(self, name: str, arguments: Any) -> Outcome:
        if name == CODE_TOOL and self.environment.code_tool:
            return self._run(arguments)
        if self.form is Form.WRITTEN:
            return Outcome(
                f"Refused: this form has no tool but {CODE_TOOL}; write the plan.", None, "refused"
            )
        kind = next((tool.kind for tool in self.view.tools if tool.name == name), None)
        try:
            call = self._toolbox.read(name, arguments)
            if isinstance(call, Query):
                return self._query(call)
            return self._probe(call) if isinstance(call, Probe) else self._decide(call)
        except Refusal as refusal:
            return Outcome(f"Refused: {refusal}.", kind, "refused")

    def _run(self, arguments: Any) -> Outcome:
        try:
            reply, detail = run_code(read_code(arguments))
        except Refusal as refusal:
            return Outcome(f"Refused: {refusal}.", "code", "refused")
        return Outcome(reply, "code", "ok", detail)

    def _query(self, query: Query) -> Outcome:
        assert self._ledger is not None
        try:
            return Outcome(self._ledger.query(query.sql), "query")
        except QueryError as error:
            raise Refusal(str(error)) from error

    def _probe(self, probe: Probe) -> Outcome:
        value = entry(self._theta, probe.key)
        new = self._reveal({probe.key: value})
        detail = {"key": list(probe.key), "value": value, "new": bool(new)}
        return Outcome(_sentence(f"{self._toolbox.label(probe.key)}: {value}."), "probe", "ok", detail)

    def _decide(self, action: Action) -> Outcome:
        if not any(action in move for move in self._moves):
            raise self._toolbox.refuse_illegal(action, self._moves)
        before = self.state
        self.state, gain, shown = self._family.step(self._theta, before, action)
        self._moves = self._family.legal(self._theta, self.state)
        new = self._reveal(shown)
        if self._ledger is not None:
            self._ledger.record_decision(len(self.turns), action, gain)
        detail = {
            "action": [action.verb, *action.args],
            "gain": gain,
            "shown": [[list(key), value] for key, value in shown.items()],
        }
        return Outcome(self._account(action, gain, new), "decision", "ok", detail)

    def _reveal(self, entries: dict[Key, int]) -> dict[Key, int]:
        """Add entries to what is known; return those that were new."""
        new = {key: value for key, value in entries.items() if key not in self.known}
        self.known |= new
        if self._ledger is not None:
            for key, value in new.items():
                self._ledger.record_reading(len(self.turns), key, value)
        return new

    def _account(self, action: Action, gain: int, new: dict[Key, int]) -> str:
        """Say what a decision did, what it showed, and where things stand."""
        family, spec = self._family, self.environment.spec
        table = self._words
        _, arguments = self._toolbox.write(action)
        slots = family.interface.verb(action.verb).slots
        named = {slot.name: arguments[spec.tools[action.verb].arguments[slot.name]] for slot in slots}
        parts = [fill(family.texts.outcomes[action.verb], table | named | {"gain": gain})]
        if new:
            entries = [f"{self._toolbox.label(key)} {value}" for key, value in new.items()]
            parts.append(f"Now known: {'; '.join(entries)}.")
        if self._moves:
            facts = family.observe(self._theta, self.state)
            units = {q.name: q.unit for q in family.interface.facts}
            shown = {name: display(family, spec, units[name], value) for name, value in facts.items()}
            parts.append(fill(family.texts.status, table | shown))
        return " ".join(_sentence(part) for part in parts)

    @functools.cached_property
    def _words(self) -> dict[str, object]:
        return values(self._family, self._theta, self.environment.spec)

    def _completed(self) -> bool:
        return not self._moves

    # --- form F -------------------------------------------------------------------------------
    def answer(self, text: str) -> None:
        """Form F: read a plan from an answer and play it; stops at the first decision that is not permitted.

        What is no text, or holds no plan, is malformed. In forms I and A, where nobody asks for an answer, one ends the
        episode as `stop` does: nothing of it is played. An episode that has ended takes no answer.
        """
        if self.done:
            return
        written = text if isinstance(text, str) else f"(an answer that is no text: {type(text).__name__})"
        self.answer_text = printable(written[-MAX_ANSWER_CHARACTERS:])
        if self.form is not Form.WRITTEN:
            self.stop()
            return
        steps = read_plan(self.answer_text)
        if steps is None:
            self.stop_reason = StopReason.MALFORMED
            return
        for step in steps:
            if not self._moves:
                break
            outcome = self._decide_written(step)
            turn = Turn(
                len(self.turns),
                step[0][:100],
                step[1:],
                outcome.reply,
                "decision",
                outcome.status,
                outcome.detail,
            )
            self.turns.append(turn)
            if outcome.status == "refused":
                break
        self.stop_reason = StopReason.ANSWERED

    def _decide_written(self, step: list[Any]) -> Outcome:
        """Play one step of a written plan; a step that is not permitted gives a refused outcome."""
        name, *rest = step
        schema = next((tool for tool in self._toolbox.schemas() if tool.name == name), None)
        try:
            if schema is None or schema.kind != "decision":
                raise Refusal("there is no such decision")
            slots = list(schema.parameters["properties"])
            if len(rest) != len(slots):
                raise Refusal(f"{name} takes {len(slots)} arguments, got {len(rest)}")
            call = self._toolbox.read(name, dict(zip(slots, rest, strict=True)))
            assert isinstance(call, Action)
            return self._decide(call)
        except Refusal as refusal:
            return Outcome(f"Refused: {refusal}.", "decision", "refused")

    # --- after the fact -----------------------------------------------------------------------
    def score(self) -> Score:
        return score_trace(self.trace())

    def rewards(self, kind: str) -> list[float]:
        return call_rewards(self.trace(), kind)

    # --- scripted policies ----------------------------------------------------------------------
    def position(self) -> Position:
        """Return what an attentive agent knows now."""
        turns = (0, 0) if self.form is Form.WRITTEN else (self.view.turn_budget, self.turns_left)
        return Position(self._family, self._public, self.state, dict(self.known), *turns)

    @functools.cached_property
    def _public(self) -> Theta:
        return self._family.expected(self._theta, {})

    def write(self, call: Probe | Action) -> tuple[str, dict[str, Any]]:
        """Return (tool name, arguments) of a probe or action in this environment's words."""
        return self._toolbox.write(call)

    def write_plan(self, plan: tuple[Action, ...]) -> str:
        """Return a plan in the format that form F asks for."""
        calls = [self._toolbox.write(action) for action in plan]
        return json.dumps([[name, *arguments.values()] for name, arguments in calls])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def read_plan(text: str) -> list[list[Any]] | None:
    """Return the last JSON list of an answer as steps [name, argument, ...]; None when there is none.

    Bounded: at most 1,000 opening brackets are tried. Strings and integers only; anything else is no plan.
    """
    decoder = json.JSONDecoder()
    found: list[list[Any]] | None = None
    position, tries = 0, 0
    while tries < 1_000 and (position := text.find("[", position)) >= 0:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position += 1
            continue
        if value == [] or (value and all(_is_step(step) for step in value)):
            found = value
        position = end
    return found


def _is_step(step: Any) -> bool:
    if not isinstance(step, list) or not step or not isinstance(step[0], str):
        return False
    return all(isinstance(part, str) or is_integer(part) for part in step)
