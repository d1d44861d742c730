"""The admission gates: what must hold of an environment before anybody plays it.

Each gate is a function that returns when the environment is sound and raises `GateFailure` with evidence when it is
not. A gate looks at the environment as a player meets it (through prompt, tools and database) and compares that with
the sealed truth. It never asks the code that built a text or a table what that should hold: `reading.py` knows the
published format, and what a decision does is asked of the family's own `step`.

Limits: the gates run in one process, so an order that depends on the hash seed shows only when an environment is built
again in another process; and prose is checked for its numbers, not for what its words claim.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...streams import stream
from ...types import Form
from .. import references
from ..candidates import read_corpus, rebuild
from ..environment import Environment
from ..families.base import Key, entry
from ..realize.spec import CODE_TOOL, SpecError, check_spec
from ..realize.tools import Probe
from .reading import ReadingError
from .trials import (
    call,
    check_records,
    check_score,
    check_stops,
    database_of,
    going_on,
    opening_of,
    other_theta,
    play,
    queried,
    reader_of,
    same_effect,
    same_view,
    silent_answers,
    start_episode,
    stubborn_plan,
    twin_of,
    view_of,
)
from .wording import GateFailure, check_story, check_wording, compare, require

WRITES = (
    'DELETE FROM "{table}"',
    'INSERT INTO "{table}" DEFAULT VALUES',
    'UPDATE "{table}" SET rowid = rowid + 1',
    'DROP TABLE "{table}"',
    "PRAGMA user_version = 7",
)

# The checks of OpenEnv's RFC 008 (rfcs/008-environment-auto-validation.md in huggingface/OpenEnv) that ask of a served
# environment what a gate asks of ours; a gate without an entry has no counterpart there.
OPENENV_CHECKS: dict[str, tuple[str, ...]] = {
    "margin": ("semantic.floor_gap",),
    "determinism": ("runtime.seed_control", "runtime.episode_determinism"),
    "schemas": ("runtime.tool_declaration_accuracy",),
    "budget": ("runtime.state_contract",),
    "optimal-replay": ("semantic.oracle_max",),
    "baseline-replay": ("semantic.floor_gap",),
    "upper-bound": ("runtime.reward_well_formed",),
    "no-leak": ("semantic.no_solution_leakage", "runtime.oracle_containment", "runtime.episode_isolation"),
}


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


def admit(
    environment: Environment, gates: dict[str, Callable[[Environment], None]] | None = None
) -> Admission:
    """Run the gates in order and stop at the first that fails."""
    passed: list[str] = []
    for name, gate in (GATES if gates is None else gates).items():
        try:
            gate(environment)
        except (GateFailure, ReadingError) as failure:
            return Admission(_name(environment), tuple(passed), name, str(failure)[:2000])
        passed.append(name)
    return Admission(_name(environment), tuple(passed))


def _name(environment: Environment) -> str:
    recipe = environment.recipe
    return "/".join(
        str(recipe.get(key, "?")) for key in ("family", "size", "split", "seed", "index", "budget")
    )


# --- the gates --------------------------------------------------------------------------------------------
def margin(environment: Environment) -> None:
    """u_star - u_zero is at least max(2, 5% of |u_star|), so that the reward has a scale."""
    solution = environment.solution
    needed = max(2, -(-abs(solution.u_star) // 20))
    span = solution.u_star - solution.u_zero
    require(span >= needed, f"u_star - u_zero = {span}, needs at least {needed}")


def names(environment: Environment) -> None:
    """Names are unique, complete, and refer to what they should: in spec, schemas and tables."""
    family, spec, reader = environment.family, environment.spec, reader_of(environment)
    try:
        check_spec(spec, family, reader.counts)
    except SpecError as error:
        raise GateFailure(str(error)) from error
    tools = {tool.name: tool.parameters.get("properties", {}) for tool in view_of(environment).tools}
    code = [CODE_TOOL] if environment.code_tool else []
    offered, wanted = sorted(tools), sorted([*code, *(tool.name for tool in spec.tools.values())])
    require(offered == wanted, f"tools {offered} are offered, the spec has {wanted}")
    for role, words in spec.tools.items():
        for argument, kind in reader.slots(role) if role != "query" else ():
            if kind and not reader.ordinal[kind]:
                listed = tools[words.name].get(argument, {}).get("enum")
                right = listed == reader.members[kind]
                require(right, f"{words.name} offers {listed} as {argument}, not {reader.members[kind]}")
    with database_of(environment) as database:
        found = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = sorted(spec.tables.values())
        require(sorted(found) == tables, f"tables {sorted(found)} differ from the spec's {tables}")
        require(len(found) >= 3, f"only {len(found)} tables")
        broken = database.execute("PRAGMA foreign_key_check").fetchall()
        require(not broken, f"stale references in the database: {broken[:3]}")
        for kind, members in reader.members.items():
            table = spec.tables[kind]
            rows = [str(row[0]) for row in database.execute(f'SELECT name FROM "{table}" ORDER BY id')]
            folded = [row.casefold() for row in rows]
            require(len(set(folded)) == len(folded), f"table {table} lists a name twice: {rows}")
            require(
                folded == [m.casefold() for m in members], f"table {table} lists {rows}, the spec {members}"
            )


def determinism(environment: Environment) -> None:
    """Built again from its recipe, the environment is the same to the byte and answers the same."""
    again = rebuild(environment.recipe)
    require(again.theta == environment.theta, "theta differs when sampled again")
    require(again.solution == environment.solution, "solution differs when solved again")
    for form in Form:
        same_view(
            view_of(environment, form), view_of(again, form), f"of form {form} differs when built again"
        )
    first, second = start_episode(environment), start_episode(again)
    for move in opening_of(environment):
        name, arguments = reader_of(environment).call(move)
        one, two = call(first, name, arguments)[0], call(second, name, arguments)[0]
        require(one == two, f"{name}({arguments}) is answered {one!r}, then {two!r}")


def schemas(environment: Environment) -> None:
    """Every tool has a valid schema, takes every member it should, answers such calls, and refuses others."""
    import jsonschema  # takes more than a second to load where its format checkers are installed

    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    tools = {tool.name: tool for tool in view_of(environment).tools}
    query, table = environment.spec.tools["query"].name, environment.spec.tables["terms"]
    calls: dict[str, list[dict[str, Any]]] = {query: [{"sql": f'SELECT count(*) FROM "{table}"'}]}
    roles = [field.name for field in family.interface.probes] + [verb.name for verb in family.interface.verbs]
    for role in roles:
        calls[reader.spec.tools[role].name] = [reader.call(one)[1] for one in reader.covering(role)]
    for move in family.legal(theta, family.start(theta)):
        if len(move):
            name, arguments = reader.call(next(iter(move)))
            calls[name].insert(0, arguments)
    for name, right in calls.items():
        require(name in tools, f"tool {name} is not offered")
        validator = jsonschema.Draft7Validator(tools[name].parameters)  # the dialect of function calling
        try:
            validator.check_schema(tools[name].parameters)
        except jsonschema.SchemaError as error:
            raise GateFailure(f"{name}: {error.message[:200]}") from error
        for arguments in right:
            errors = [error.message for error in validator.iter_errors(arguments)]
            require(not errors, f"the schema of {name} does not permit {arguments}: {errors[:1]}")
        episode = start_episode(environment)
        wrong = [{**right[0], "no_such_argument": 1}]
        wrong += [{**right[0], argument: None} for argument in right[0]]
        wrong += [{k: v for k, v in right[0].items() if k != argument} for argument in right[0]]
        for arguments in wrong:
            require(not validator.is_valid(arguments), f"the schema of {name} permits {arguments}")
            episode = going_on(environment, episode)
            before = episode.state
            reply, turn = call(episode, name, arguments)
            unchanged = episode.state == before and not episode.known
            require(turn.status == "refused" and unchanged, f"{name} accepts {arguments}: {reply!r}")
        reply, turn = call(going_on(environment, episode), name, right[0])
        sound = turn.status == "ok" or "not possible" in reply
        require(sound, f"{name}({right[0]}) does not answer its schema: {reply!r}")
        kind = tools[name].kind
        require(turn.kind == kind, f"{name} is announced as {kind}, acts as {turn.kind}")
    _check_read_only(environment, query)


def _check_read_only(environment: Environment, query: str) -> None:
    """The query tool refuses every statement that writes, and nothing is written."""
    reader, episode = reader_of(environment), start_episode(environment)
    table = environment.spec.tables[environment.family.interface.entities[0].kind]
    before = queried(episode, reader, table)
    for statement in WRITES:
        episode = episode if episode.turns_left > 1 else start_episode(environment)
        sql = statement.format(table=table)
        reply, turn = call(episode, query, {"sql": sql})
        require(turn.status == "refused", f"the query tool executes {sql!r}: {reply!r}")
        after = queried(episode, reader, table)
        require(after == before, f"{sql!r} is refused and yet executed: {table} then holds {after[:2]}")


def budget(environment: Environment) -> None:
    """The budget fits every decision and every probe (ample) or half of the probes (tight), and one call costs one."""
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    decisions, probes = family.horizon(theta), len(family.probe_keys(theta))
    if environment.budget == "ample":
        wanted = decisions + probes + -(-(decisions + probes) // 10)
    else:
        wanted = decisions + probes - len(family.keys(theta)) // 2
    view = view_of(environment)
    turns = view.turn_budget
    require(turns == wanted, f"turn budget {turns}, the {environment.budget} budget is {wanted}")
    fits = len(environment.solution.plan) + (probes if environment.budget == "ample" else probes // 2)
    require(
        fits <= turns, f"an optimal plan and the probes it should afford need {fits} turns, there are {turns}"
    )
    stated = f"You have {turns} turns" in view.prompt[0]["content"]
    require(stated, f"the prompt does not state the {turns} turns")
    query = environment.spec.tools["query"].name
    calls: list[tuple[str, Any]] = [("no_such_tool", {}), (query, {"sql": "SELECT 1"}), (query, {"sql": 1})]
    calls += [reader.call(move) for move in opening_of(environment) if isinstance(move, Probe)]
    calls += [(tool.name, {"no_such_argument": 1}) for tool in view.tools]
    episode = start_episode(environment)
    for spent in range(1, turns + 1):
        name, arguments = calls[spent % len(calls)]
        if episode.done:
            raise GateFailure(f"the episode ends after {spent - 1} of {turns} turns")
        reply, _ = call(episode, name, arguments)
        require(
            episode.turns_left == turns - spent, f"call {spent} left {episode.turns_left} of {turns} turns"
        )
        told = f"Turns left: {turns - spent}." in reply or (spent == turns and "budget is spent" in reply)
        require(told, f"call {spent} of {turns} does not say what is left: {reply!r}")
    require(episode.done, "the episode goes on after its last turn")


def optimal_replay(environment: Environment) -> None:
    """The optimal plan earns exactly u_star through the tools of every form, is told so, and scores 1."""
    solution, reader = environment.solution, reader_of(environment)
    for form in (Form.INFORMED, Form.AGENTIC):
        earned, episode = play(environment, solution.plan, form, fumble=form is Form.INFORMED)
        right = earned == solution.u_star
        require(right, f"the optimal plan earns {earned} in form {form}, u_star is {solution.u_star}")
    check_score(episode, solution.u_star)
    written = start_episode(environment, Form.WRITTEN)
    steps = [[name, *arguments.values()] for name, arguments in map(reader.call, solution.plan)]
    written.answer(f"The plan [as asked] is: {json.dumps(steps)}")
    wanted, told = ([turn.detail.get("gain") for turn in one.turns] for one in (episode, written))
    require(told == wanted, f"form F plays the optimal plan for gains of {told}, form A for {wanted}")


def baseline_replay(environment: Environment) -> None:
    """The default policy earns exactly u_zero through the tools and scores 0; stopping early earns what is forced."""
    family, theta, solution = environment.family, environment.theta, environment.solution
    state, plan = family.start(theta), []
    while family.legal(theta, state):
        plan.append(family.default(theta, state))
        state = family.step(theta, state, plan[-1])[0]
    earned, episode = play(environment, plan, Form.AGENTIC)
    right = earned == solution.u_zero
    require(right, f"the default policy earns {earned} through the tools, u_zero is {solution.u_zero}")
    check_score(episode, solution.u_zero)
    check_stops(environment)


def upper_bound(environment: Environment) -> None:
    """Nobody exceeds u_star: neither the independent bound nor any scripted or random policy."""
    family, theta, solution = environment.family, environment.theta, environment.solution
    bound, most = family.bound(theta), solution.u_star + family.epsilon
    require(
        solution.u_star <= bound <= most,
        f"u_star = {solution.u_star}, but the independent method ({family.certificate}) gives {bound}",
    )
    for name, seed in (("plan", 0), ("myopic", 0), ("random", 0), ("random", 1)):
        u = references.simulate(references.POLICIES[name], family, theta, environment.budget, seed)
        require(u <= most, f"policy {name} (seed {seed}) earns {u}, more than u_star = {solution.u_star}")
    u, episode = play(environment, stubborn_plan(environment), Form.AGENTIC)
    require(u <= most, f"a stubborn episode earns {u}, more than u_star = {solution.u_star}")
    check_score(episode, u)


def no_leak(environment: Environment) -> None:
    """Neither hidden entries nor the solution change the public view or any answer before a revelation.

    In a twin every hidden entry has another value and the solution is another one. A second twin keeps what one
    probe and one decision show, and must then answer alike. A fresh episode remembers nothing of earlier ones.
    """
    family, theta, spec = environment.family, environment.theta, environment.spec
    opening = opening_of(environment)
    shown = {move.key for move in opening if isinstance(move, Probe)}
    shown |= family.step(theta, family.start(theta), environment.solution.plan[0])[2].keys()
    rng = stream(0, "no-leak", environment.id)
    for kept in (set(), shown):
        twin = twin_of(environment, other_theta(environment, rng, kept))
        same_view(view_of(environment), view_of(twin), "of the public view depends on the sealed truth")
        before = opening if kept else []
        if not same_effect(environment, twin):  # a gain may rest on more than it shows
            before = [move for move in before if isinstance(move, Probe)]
        one, two = silent_answers(environment, before), silent_answers(twin, before)
        for (asked, first), (_, second) in zip(one, two, strict=True):
            same = first == second
            require(same, f"the answer to {asked} depends on what it may not reveal: {first!r}, {second!r}")
    fresh = start_episode(environment)
    for role in ("ledger", "readings"):
        rows = queried(fresh, reader_of(environment), spec.tables[role])
        require(not rows, f"a fresh episode remembers an earlier one: {spec.tables[role]} holds {rows[:2]}")
    passages = read_corpus(environment.recipe.get("corpus")).passages
    check_story(spec, next((f"{p.title} {p.text}" for p in passages if p.id == spec.passage), ""))


def read_back(environment: Environment) -> None:
    """Theta read from the player's side (texts, tables, every probe) is the sealed theta, and solves to u_star."""
    family, theta, reader = environment.family, environment.theta, reader_of(environment)
    wanted: dict[Key, int] = {(s.name,): getattr(theta, s.name) for s in family.interface.scalars}
    wanted |= {key: entry(theta, key) for key in family.keys(theta, family.interface.fields)}
    hidden, prior = family.hidden(theta), family.prior(theta)
    public = {key: value for key, value in wanted.items() if key not in hidden}
    with database_of(environment) as database:
        figures, published = reader.tables(database)
        compare("the database", figures, public)
        compare("the database, of unknown figures,", published, prior)
        tables, episode = {}, start_episode(environment)
        for table in environment.spec.tables.values():
            cursor = database.execute(f'SELECT * FROM "{table}" LIMIT 20')
            tables[table] = [column[0] for column in cursor.description]
            rows = [["-" if cell is None else str(cell) for cell in row] for row in cursor]
            episode = going_on(environment, episode)
            told = queried(episode, reader, table)
            require(told == rows, f"the query tool tells {told[:3]} of table {table}, it holds {rows[:3]}")
    for form in Form:
        text = view_of(environment, form).prompt[0]["content"]
        compare(f"form {form}'s text", reader.figures(text), public if form is Form.AGENTIC else wanted)
        if form is Form.AGENTIC:
            compare("form A's text, of unknown figures,", reader.priors(text), prior)
        check_wording(environment, form, reader, tables)
    revealed: dict[Key, int | None] = {}
    for key in family.probe_keys(theta):
        episode = going_on(environment, episode)
        reply, turn = call(episode, *reader.call(Probe(key)))
        require(turn.status == "ok", f"probe {key} is refused: {reply!r}")
        revealed[key] = turn.detail.get("value")
        spoken = f"{reader.label(key)}: {wanted[key]}. ".casefold()
        right = reply.casefold().startswith(spoken)
        require(right, f"probe {key} answers {reply!r}, the truth is {wanted[key]}")
    compare("the probes", revealed, {key: wanted[key] for key in revealed})
    check_records(environment, reader)
    for key, (low, high, _) in prior.items():
        inside = low <= wanted[key] <= high
        require(inside, f"{key} = {wanted[key]} lies outside its published range {low}..{high}")
    value = family.optimum(family.substitute(theta, {key: wanted[key] for key in hidden})).value
    sealed = environment.solution.u_star
    require(value == sealed, f"theta as read solves to {value}, u_star is {sealed}")


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
