"""The admission gates: what must hold of an environment before anybody plays it.

Each gate is a function that returns when the environment is sound and raises `GateFailure` with evidence when it is
not. A gate looks at the environment as a player meets it (through prompt, tools and database) and compares that with
the sealed truth; it never trusts the code that realized it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema

from ...streams import stream
from ...types import Form, PublicView, StopReason
from .. import references
from ..candidates import rebuild
from ..environment import Environment, InstanceEpisode, turn_budget
from ..families.base import Action, Key, entry
from ..realize.database import public_tables
from ..realize.prompt import ReadBackError, read_figures, read_priors
from ..realize.spec import SpecError, check_spec
from ..realize.tools import Probe

REDRAWS = 2


class GateFailure(Exception):
    """A gate is not passed; the message is the evidence."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict on one candidate.

    passed     gates in the order they were passed
    gate, evidence   of the first gate that failed, or None
    """

    environment: str
    passed: tuple[str, ...]
    gate: str | None = None
    evidence: str | None = None

    @property
    def admitted(self) -> bool:
        return self.gate is None


def admit(environment: Environment, gates: dict[str, Callable[[Environment], None]] | None = None) -> Admission:
    """Run the gates in order and stop at the first that fails."""
    passed = []
    for name, gate in (GATES if gates is None else gates).items():
        try:
            gate(environment)
        except GateFailure as failure:
            return Admission(_name(environment), tuple(passed), name, str(failure)[:2000])
        passed.append(name)
    return Admission(_name(environment), tuple(passed))


def _name(environment: Environment) -> str:
    recipe = environment.recipe
    return "/".join(str(recipe.get(key, "?")) for key in ("family", "size", "split", "seed", "index", "budget"))


def require(condition: bool, evidence: str) -> None:
    if not condition:
        raise GateFailure(evidence)


# --- the gates --------------------------------------------------------------------------------------------
def determinism(environment: Environment) -> None:
    """Built again from its recipe, the environment is the same to the byte."""
    again = rebuild(environment.recipe)
    require(again.theta == environment.theta, "theta differs when sampled again")
    require(again.solution == environment.solution, "solution differs when solved again")
    for form in Form:
        one, two = environment.view(form), again.view(form)
        for part in dataclasses.fields(PublicView):
            require(
                getattr(one, part.name) == getattr(two, part.name),
                f"{part.name} of form {form} differs when built again",
            )


def names(environment: Environment) -> None:
    """Names are unique, complete, and refer to what they should: in spec, prompt, schemas and tables."""
    family, counts = environment.family, environment.family.counts(environment.theta)
    try:
        check_spec(environment.spec, family, counts)
    except SpecError as error:
        raise GateFailure(str(error)) from error
    view = environment.view(Form.AGENTIC)
    text = view.prompt[0]["content"]
    for tool in view.tools:
        require(f"- {tool.name}(" in text, f"the prompt does not name the tool {tool.name}")
    spoken = {role: words.name for role, words in environment.spec.tools.items()}
    require({t.name for t in view.tools} == set(spoken.values()), "the tools offered are not the tools of the spec")
    with _tables(environment) as database:
        found = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        wanted = set(environment.spec.tables.values())
        require(found == wanted, f"tables {sorted(found)} differ from the spec's {sorted(wanted)}")
        require(len(found) >= 3, f"only {len(found)} tables")
        broken = database.execute("PRAGMA foreign_key_check").fetchall()
        require(not broken, f"stale references in the database: {broken[:3]}")
        for entity in family.interface.entities:
            table = environment.spec.tables[entity.kind]
            rows = [row[0] for row in database.execute(f'SELECT name FROM "{table}" ORDER BY id')]
            require(len(rows) == counts[entity.kind], f"table {table} lists {len(rows)} of {counts[entity.kind]}")
            if not entity.ordinal:
                listed = list(environment.spec.entities[entity.kind].names)
                require(rows == listed, f"table {table} lists {rows}, the spec {listed}")


def schemas(environment: Environment) -> None:
    """Every tool has a valid schema, answers calls that satisfy it, and refuses calls that do not."""
    view, episode = environment.view(Form.AGENTIC), environment.episode(Form.AGENTIC)
    calls = [episode.write(Probe(key)) for key in _one_key_a_field(environment)]
    calls += [episode.write(action) for action in _one_action_a_verb(environment)]
    table = next(iter(environment.spec.tables.values()))
    calls.append((environment.spec.tools["query"].name, {"sql": f'SELECT count(*) FROM "{table}"'}))
    by_name = {tool.name: tool for tool in view.tools}
    for name, arguments in calls:
        require(name in by_name, f"tool {name} is not offered")
        schema = by_name[name].parameters
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
            jsonschema.validate(arguments, schema)
        except (jsonschema.SchemaError, jsonschema.ValidationError) as error:
            raise GateFailure(f"{name}: {error.message[:200]}") from error
        trial = environment.episode(Form.AGENTIC)
        reply = trial.call(name, arguments)
        turn = trial.turns[-1]
        sound = turn.status == "ok" or "is not possible" in reply
        require(sound and bool(reply.strip()), f"{name}({arguments}) does not answer its schema: {reply!r}")
        require(turn.kind == by_name[name].kind, f"{name} is announced as {by_name[name].kind}, acts as {turn.kind}")
        wrong = environment.episode(Form.AGENTIC)
        before = wrong.state
        wrong.call(name, {**arguments, "no_such_argument": 1})
        require(
            wrong.turns[-1].status == "refused" and wrong.state == before and not wrong.known,
            f"{name} accepts an argument outside its schema",
        )


def optimal_replay(environment: Environment) -> None:
    """The optimal plan, played through the wrapped tools, earns exactly u_star, and every reply states its gain."""
    earned, episode = _play(environment, list(environment.solution.plan))
    require(
        earned == environment.solution.u_star,
        f"the optimal plan earns {earned} through the tools, u_star is {environment.solution.u_star}",
    )
    for turn in episode.turns:
        gain = str(turn.detail.get("gain"))
        require(gain in turn.reply, f"turn {turn.index}: the reply does not state the gain {gain}: {turn.reply!r}")


def baseline_replay(environment: Environment) -> None:
    """The default policy, played through the wrapped tools, earns exactly u_zero."""
    family, state, plan = environment.family, environment.family.start(environment.theta), []
    while family.legal(environment.theta, state):
        plan.append(family.default(environment.theta, state))
        state = family.step(environment.theta, state, plan[-1])[0]
    earned, _ = _play(environment, plan)
    require(
        earned == environment.solution.u_zero,
        f"the default policy earns {earned} through the tools, u_zero is {environment.solution.u_zero}",
    )


def upper_bound(environment: Environment) -> None:
    """Nobody exceeds u_star: neither the independent bound nor any scripted or random policy."""
    family, theta, solution = environment.family, environment.theta, environment.solution
    bound = family.bound(theta)
    require(
        solution.u_star <= bound <= solution.u_star + family.epsilon,
        f"u_star = {solution.u_star}, but the independent method ({family.certificate}) gives {bound}",
    )
    for name, seed in (("plan", 0), ("myopic", 0), ("random", 0), ("random", 1), ("random", 2)):
        u = references.simulate(references.POLICIES[name], family, theta, environment.budget, seed)
        require(u <= solution.u_star, f"policy {name} (seed {seed}) earns {u}, more than u_star = {solution.u_star}")
    trace = references.play(references.POLICIES["random"], environment, Form.AGENTIC, 3)
    gains = sum(turn.detail.get("gain", 0) for turn in trace.turns)
    if trace.stop is StopReason.COMPLETED:
        require(gains <= solution.u_star, f"a random episode earns {gains}, more than u_star = {solution.u_star}")


def margin(environment: Environment) -> None:
    """u_star - u_zero is at least max(2, 5% of |u_star|), so that the reward has a scale."""
    solution = environment.solution
    require(
        solution.span >= solution.required_margin,
        f"u_star - u_zero = {solution.span}, needs at least {solution.required_margin}",
    )


def budget(environment: Environment) -> None:
    """The budget fits every decision and every probe (ample) or half of the probes (tight), and one call costs one."""
    family, theta = environment.family, environment.theta
    turns = environment.view(Form.AGENTIC).turn_budget
    wanted = turn_budget(family, theta, environment.budget)
    require(turns == wanted, f"turn budget {turns}, the {environment.budget} budget is {wanted}")
    probes, decisions = len(family.probe_keys(theta)), len(environment.solution.plan)
    fits = probes if environment.budget == "ample" else probes // 2
    require(decisions + fits <= turns, f"{decisions} decisions and {fits} probes do not fit {turns} turns")
    require(f"You have {turns} turns" in _prompt(environment), f"the prompt does not state the {turns} turns")
    episode = environment.episode(Form.AGENTIC)
    for spent in range(1, turns + 1):
        episode.call("no_such_tool", {})
        require(episode.turns_left == turns - spent, f"call {spent} left {episode.turns_left} of {turns} turns")
    require(episode.done, "the episode goes on after its last turn")


def no_leak(environment: Environment) -> None:
    """Redrawing hidden entries changes neither the public view nor any answer before the entry is revealed."""
    family, theta = environment.family, environment.theta
    rng = stream(0, "no-leak", environment.id)
    view = environment.view(Form.AGENTIC)
    replies = _answers(environment, None)
    keys = family.probe_keys(theta)
    for _ in range(REDRAWS):
        twin = _twin(environment, family.redraw(theta, rng))
        for part in dataclasses.fields(PublicView):
            require(
                getattr(view, part.name) == getattr(twin.view(Form.AGENTIC), part.name),
                f"{part.name} of the public view depends on hidden entries",
            )
        for (call, one), (_, two) in zip(replies, _answers(twin, None), strict=True):
            require(one == two, f"the answer to {call} depends on hidden entries: {one!r} against {two!r}")
    if keys:
        kept = keys[int(rng.integers(len(keys)))]
        twin = _twin(environment, family.redraw(theta, rng, keep={kept: entry(theta, kept)}))
        for (call, one), (_, two) in zip(_answers(environment, kept), _answers(twin, kept), strict=True):
            require(one == two, f"after revealing {kept}, the answer to {call} leaks another entry: {one!r}, {two!r}")


def read_back(environment: Environment) -> None:
    """Theta read from the player's side (form I's text, the tables, every probe) is the sealed theta, and solves to u_star."""
    family, theta, spec = environment.family, environment.theta, environment.spec
    counts = family.counts(theta)
    wanted: dict[Key, int] = {(s.name,): getattr(theta, s.name) for s in family.interface.scalars}
    wanted |= {key: entry(theta, key) for key in family.keys(theta, family.interface.fields)}
    for form in (Form.WRITTEN, Form.INFORMED):
        try:
            stated = read_figures(environment.view(form).prompt[0]["content"], family, spec, counts)
        except (ReadBackError, ValueError) as error:
            raise GateFailure(f"form {form}: {error}") from error
        _compare(f"form {form}'s text", stated, wanted)
    hidden = set(family.hidden(theta))
    public = {key: value for key, value in wanted.items() if key not in hidden}
    try:
        stated = read_figures(_prompt(environment), family, spec, counts)
        published = read_priors(_prompt(environment), family, spec, counts)
    except (ReadBackError, ValueError) as error:
        raise GateFailure(f"form A: {error}") from error
    _compare("form A's text", stated, public)
    _compare("form A's text on unknown figures", published, family.prior(theta))
    _compare_tables(environment)
    episode = environment.episode(Form.AGENTIC)
    told = {}
    for key in family.probe_keys(theta):
        if episode.done:
            episode = environment.episode(Form.AGENTIC)
        reply = episode.call(*episode.write(Probe(key)))
        require(episode.turns[-1].status == "ok", f"probe {key} is refused: {reply!r}")
        told[key] = episode.turns[-1].detail["value"]
        spoken = f"{environment.toolbox.label(key)}: {wanted[key]}."
        require(spoken.casefold() in reply.casefold(), f"probe {key} answers {reply!r}, the truth is {wanted[key]}")
    _compare("the probes", told, {key: wanted[key] for key in told})
    for key, value in family.prior(theta).items():
        require(value[0] <= wanted[key] <= value[1], f"{key} = {wanted[key]} lies outside its published range {value}")
    rebuilt = family.substitute(theta, {key: wanted[key] for key in hidden})
    value = family.optimum(rebuilt).value
    require(value == environment.solution.u_star, f"theta as read solves to {value}, u_star is sealed otherwise")


GATES: dict[str, Callable[[Environment], None]] = {
    "margin": margin,
    "names": names,
    "determinism": determinism,
    "schemas": schemas,
    "budget": budget,
    "optimal-replay": optimal_replay,
    "baseline-replay": baseline_replay,
    "upper-bound": upper_bound,
    "no-leak": no_leak,
    "read-back": read_back,
}


# --- helpers ------------------------------------------------------------------------------------------------
def _prompt(environment: Environment) -> str:
    return environment.view(Form.AGENTIC).prompt[0]["content"]


@contextlib.contextmanager
def _tables(environment: Environment) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(environment.view(Form.AGENTIC).files["world.sqlite"])
        yield connection
    finally:
        connection.close()


def _twin(environment: Environment, theta: Any) -> Environment:
    """The same environment around other hidden entries."""
    return dataclasses.replace(environment, theta=theta)


def _play(environment: Environment, plan: list[Action]) -> tuple[int, InstanceEpisode]:
    """Play a plan through the wrapped tools and return what the tools say was earned, and the episode."""
    episode = environment.episode(Form.AGENTIC)
    earned = 0
    for action in plan:
        reply = episode.call(*episode.write(action))
        turn = episode.turns[-1]
        require(turn.status == "ok", f"turn {turn.index}: {action} is refused: {reply!r}")
        earned += turn.detail["gain"]
    return earned + environment.family.abandon(environment.theta, episode.state), episode


def _one_key_a_field(environment: Environment) -> list[Key]:
    family = environment.family
    return [family.keys(environment.theta, [field])[-1] for field in family.interface.probes]


def _one_action_a_verb(environment: Environment) -> list[Action]:
    """One well-formed action a verb: a legal one where the start has it, else the first members and amount 0."""
    family, theta = environment.family, environment.theta
    moves = {move.verb: move for move in family.legal(theta, family.start(theta)) if len(move)}
    actions = []
    for verb in family.interface.verbs:
        if verb.name in moves:
            actions.append(next(iter(moves[verb.name])))
        else:
            actions.append(Action(verb.name, tuple(0 for _ in verb.slots)))
    return actions


def _answers(environment: Environment, revealed: Key | None) -> list[tuple[str, str]]:
    """Return (call, reply) of calls that reveal nothing, after one probe of `revealed` if given."""
    episode = environment.episode(Form.AGENTIC)
    calls: list[tuple[str, Any]] = []
    if revealed is not None:
        calls.append(episode.write(Probe(revealed)))
    query = environment.spec.tools["query"].name
    calls += [(query, {"sql": f'SELECT * FROM "{table}"'}) for table in environment.spec.tables.values()]
    calls += [("no_such_tool", {}), (query, {"sql": "DELETE FROM nothing"}), (query, {"sql": 7})]
    for tool in environment.view(Form.AGENTIC).tools:
        for value in (-1, 10**9, "Nobody", None):
            calls.append((tool.name, dict.fromkeys(tool.parameters["properties"], value)))
    answers = []
    for name, arguments in calls:
        if episode.done:
            episode = environment.episode(Form.AGENTIC)
            if revealed is not None:
                episode.call(*episode.write(Probe(revealed)))
        reply = episode.call(name, arguments)
        if episode.turns[-1].kind == "decision" and episode.turns[-1].status == "ok":
            episode = environment.episode(Form.AGENTIC)  # an amount that happened to be legal: not a silent call
            continue
        answers.append((f"{name}({arguments})", reply))
    return answers


def _compare(where: str, stated: Mapping[Key, Any], wanted: Mapping[Key, Any]) -> None:
    for key in wanted.keys() | stated.keys():
        one, two = stated.get(key), wanted.get(key)
        require(one == two, f"{where} states {key} = {one}, the truth is {two}")


def _compare_tables(environment: Environment) -> None:
    """Every public table holds exactly what theta says, and no reading or decision yet."""
    with _tables(environment) as database:
        for table in public_tables(environment.family, environment.theta, environment.spec):
            columns = ", ".join(f'"{column.name}"' for column in table.columns)
            try:
                rows = database.execute(f'SELECT {columns} FROM "{table.name}"').fetchall()
            except sqlite3.Error as error:
                raise GateFailure(f"table {table.name} cannot be read: {error}") from error
            require(sorted(map(repr, rows)) == sorted(map(repr, table.rows)), f"table {table.name} differs from theta")
