"""The planted faults: real ways in which a builder of environments goes wrong, each a patch of the code that builds.

The docstring of a fault is its story. Faults stand in the order of the pipeline: the solution that is sealed, the
text, the tables, the tools, the episode, the score, the building itself. A fault looks for something that it would
change in this environment and says so where there is nothing (`NotApplicable`); whether a change that it makes is
ever seen or earned is for `mutations.verdict` to find out.
"""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...episode import BudgetedEpisode, Outcome
from ...streams import stream
from ...types import Form, PublicView
from .. import candidates, references, score
from .. import environment as wrap
from ..environment import Environment, InstanceEpisode
from ..families import FAMILIES
from ..families.base import Action, Entity, Family, Key, Optimum, Solution, State, Theta, entry, published
from ..realize import database, prompt, setter
from ..realize.database import Ledger, Table
from ..realize.tools import Probe, Refusal, Toolbox
from .mutations import Fault, NotApplicable, Patch

Patches = Sequence[Patch] | NotApplicable
FAULTS: list[Fault] = []


def _fault(patches: Callable[[Environment], Patches]) -> Callable[[Environment], Patches]:
    """Enter a fault in the list, under its function's name and with its docstring as the story."""
    story = " ".join((patches.__doc__ or "").split())
    FAULTS.append(Fault(patches.__name__.replace("_", "-"), story, patches))
    return patches


def _around(owner: Any, name: str, change: Callable[..., Any]) -> Patch:
    """Replace a function or method by change(original, *arguments)."""
    original = getattr(owner, name)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    return Patch(owner, name, replacement)


def _family(environment: Environment, **changes: Any) -> list[Patch]:
    """Replace functions of the family itself, for everybody who asks the table of families."""
    changed = dataclasses.replace(environment.family, **changes)
    return [Patch(FAMILIES, environment.family_name, changed)]


# --- the solution that is sealed ----------------------------------------------------------------------------
@_fault
def second_best_plan(environment: Environment) -> Patches:
    """The solver stops at a feasible plan one decision away from the best, and everybody trusts it."""
    family, theta = environment.family, environment.theta
    best = environment.solution.u_star - family.epsilon
    state, sofar, head = family.start(theta), 0, ()
    for right in environment.solution.plan:
        found: list[tuple[int, tuple[Action, ...]]] = []
        options = (action for move in family.legal(theta, state) for action in move if action != right)
        for action in itertools.islice(options, 60):
            after, gain, _ = family.step(theta, state, action)
            rest, tail = _follow_optimum(family, theta, after)
            if sofar + gain + rest < best:
                found.append((sofar + gain + rest, (*head, action, *tail)))
        if found:
            second = Optimum(*max(found))
            return _family(environment, optimum=lambda t: second if t == theta else family.optimum(t))
        state, gain, _ = family.step(theta, state, right)
        sofar, head = sofar + gain, (*head, right)
    return NotApplicable("every plan one decision away from the optimal one earns as much")


def _follow_optimum(family: Family, theta: Theta, state: State) -> tuple[int, tuple[Action, ...]]:
    total, plan = 0, ()
    while steps := family.optimum(family.residual(theta, state)).plan:
        state, gain, _ = family.step(theta, state, steps[0])
        total, plan = total + gain, (*plan, steps[0])
    return total + family.abandon(theta, state), plan


@_fault
def relaxation_sealed(environment: Environment) -> Patches:
    """The optimum of a relaxation, a little above what any plan earns, is sealed as u_star."""
    extra = 1 + environment.family.epsilon

    def solve(original: Any, family: Family, theta: Theta) -> Solution:
        solution = original(family, theta)
        return dataclasses.replace(solution, u_star=solution.u_star + extra)

    return [_around(Family, "solve", solve)]


@_fault
def baseline_of_doing_nothing(environment: Environment) -> Patches:
    """u_zero is taken from an agent that never acts instead of from the default policy."""
    family = environment.family
    if family.replay(environment.theta, ()) == environment.solution.u_zero:
        return NotApplicable("never acting earns exactly what the default policy earns")

    def solve(original: Any, family: Family, theta: Theta) -> Solution:
        return dataclasses.replace(original(family, theta), u_zero=family.replay(theta, ()))

    return [_around(Family, "solve", solve)]


@_fault
def baseline_that_peeks(environment: Environment) -> Patches:
    """The default policy reads the hidden entries, so the baseline is the optimum and the reward has no scale."""
    family = environment.family

    def default(theta: Theta, state: State) -> Action:
        plan = family.optimum(family.residual(theta, state)).plan
        return plan[0] if plan else family.default(theta, state)

    return _family(environment, default=default)


@_fault
def solution_of_an_older_draw(environment: Environment) -> Patches:
    """Hidden entries were drawn anew after solving, and the old solution was kept."""
    family, rng = environment.family, stream(0, "older-draw", environment.id)
    olds = (family.solve(family.redraw(environment.theta, rng)) for _ in range(10))
    old = next((solution for solution in olds if solution != environment.solution), None)
    if old is None:
        return NotApplicable("ten other draws have the very same solution")

    def solve(original: Any, family: Family, theta: Theta) -> Solution:
        return old if theta == environment.theta else original(family, theta)

    return [_around(Family, "solve", solve)]


# --- the text -----------------------------------------------------------------------------------------------
@_fault
def figure_off_by_one(environment: Environment) -> Patches:
    """One figure of the text is one too high."""
    family = environment.family
    field = next(f for f in family.interface.fields if f.unit not in _kinds(family))
    wrong = family.keys(environment.theta, [field])[-1]
    return [_around(prompt, "entry", lambda original, theta, key: original(theta, key) + (key == wrong))]


@_fault
def rule_off_by_one(environment: Environment) -> Patches:
    """The rules state a constant one too high, while the table of constants is right."""
    scalars = environment.family.interface.scalars
    name = scalars[0].name if scalars else f"n_{environment.family.interface.entities[0].kind}"

    def values(original: Any, *args: Any) -> dict[str, Any]:
        table = original(*args)
        return table | {name: int(table[name]) + 1}

    return [_around(prompt, "values", values)]


@_fault
def rows_swapped_in_text(environment: Environment) -> Patches:
    """Two rows of a table in the text bear each other's names."""
    family, theta = environment.family, environment.theta
    for field in family.interface.fields:
        for i, j in itertools.combinations(range(family.counts(theta)[field.index[0]]), 2):
            if getattr(theta, field.name)[i] != getattr(theta, field.name)[j]:
                swap = {i: j, j: i}

                def member(original: Any, spec: Any, entity: Entity, index: int) -> str:
                    return original(spec, entity, swap.get(index, index) if entity.kind == field.index[0] else index)

                return [_around(prompt, "member", member)]
    return NotApplicable("all rows of every table are equal")


@_fault
def table_transposed_in_text(environment: Environment) -> Patches:
    """A table with two indices is printed with its indices exchanged."""
    family, theta = environment.family, environment.theta
    for field in (f for f in family.interface.fields if len(f.index) == 2):
        rows, columns = (family.counts(theta)[kind] for kind in field.index)
        exchanged = {
            key: (field.name, key[2] % rows, key[1] % columns) for key in family.keys(theta, [field])
        }
        if any(entry(theta, key) != entry(theta, other) for key, other in exchanged.items()):
            return [_around(prompt, "entry", lambda original, t, key: original(t, exchanged.get(key, key)))]
    return NotApplicable("no table has two indices and changes when they are exchanged")


@_fault
def last_rule_lost(environment: Environment) -> Patches:
    """The last line of the rules, which says what counts, is cut off."""
    return [_messages(lambda text: text.replace(_bullets(text)[-1] + "\n\nFigures", "\n\nFigures"))]


def _bullets(text: str) -> list[str]:
    return [f"\n{line}" for line in text.split("\n\nFigures\n")[0].split("\n") if line.startswith("- ")]


def _messages(change: Callable[[str], str], forms: Sequence[Form] = tuple(Form)) -> Patch:
    """Change the text of the instructions in some forms."""

    def messages(original: Any, *args: Any) -> Any:
        system, *others = original(*args)
        text = change(system["content"]) if args[3] in forms else system["content"]
        return ({**system, "content": text}, *others)

    return _around(wrap, "messages", messages)


@_fault
def priors_exchanged_in_text(environment: Environment) -> Patches:
    """The text gives the typical value as the highest one and the highest as the typical one."""
    return [_around(prompt, "published", _exchanged)]


def _exchanged(original: Any, theta: Theta, key: Key) -> tuple[int, int, int]:
    low, high, mean = original(theta, key)
    return low, mean, high


@_fault
def figures_rounded_to_tens(environment: Environment) -> Patches:
    """Figures are printed in round tens, as for a report."""

    def display(original: Any, *args: Any) -> str:
        text = original(*args)
        return str(round(int(text), -1)) if text.lstrip("-").isdigit() else text

    return [_around(prompt, "display", display)]


@_fault
def informed_of_the_means(environment: Environment) -> Patches:
    """Form I shows the published typical values where it should show the true ones."""
    if environment.family.expected(environment.theta, {}) == environment.theta:
        return NotApplicable("every hidden entry is at its typical value")

    def messages(original: Any, family: Family, theta: Theta, spec: Any, form: Form, turns: int) -> Any:
        return original(family, family.expected(theta, {}) if form is Form.INFORMED else theta, spec, form, turns)

    return [_around(wrap, "messages", messages)]


@_fault
def budget_misquoted(environment: Environment) -> Patches:
    """The text promises one turn more than there is."""

    def messages(original: Any, family: Family, theta: Theta, spec: Any, form: Form, turns: int) -> Any:
        return original(family, theta, spec, form, turns + 1)

    return [_around(wrap, "messages", messages)]


@_fault
def optimum_in_the_text(environment: Environment) -> Patches:
    """A remark for the developers, with the optimum in it, stays in the instructions."""

    def view(original: Any, env: Environment, form: Form) -> PublicView:
        seen = original(env, form)
        system, *others = seen.prompt
        text = f"{system['content']}\n\nA perfect plan earns {env.solution.u_star}."
        return dataclasses.replace(seen, prompt=({**system, "content": text}, *others))

    return [_around(Environment, "view", view)]


@_fault
def hidden_entries_in_the_story(environment: Environment) -> Patches:
    """The setter was handed theta, and tells some of it as local colour."""

    def build(original: Any, *args: Any) -> Environment:
        built = original(*args)
        told = ", ".join(map(str, built.family.hidden(built.theta).values()))
        story = f"{built.spec.scenario} An old page of the book reads {told}."
        return dataclasses.replace(built, spec=built.spec.model_copy(update={"scenario": story}))

    return [_around(candidates, "build_candidate", build)]


@_fault
def number_invented_by_the_setter(environment: Environment) -> Patches:
    """The setter makes up a quantity that is none of the mechanism's."""

    def build(original: Any, *args: Any) -> Environment:
        built = original(*args)
        brief = f"{built.spec.brief} There are 7131 more in the yard."
        return dataclasses.replace(built, spec=built.spec.model_copy(update={"brief": brief}))

    return [_around(candidates, "build_candidate", build)]


@_fault
def choices_sorted_by_worth(environment: Environment) -> Patches:
    """A tool lists the members it can be called with in the order of their hidden entries."""
    family, theta = environment.family, environment.theta
    names = {kind: environment.spec.entities[kind].names for kind in _kinds(family)}
    kinds = {kind for field in family.interface.hidden_fields for kind in field.index if names[kind]}
    if not any("enum" in schema for tool in environment.view(Form.AGENTIC).tools for schema in _schemas(tool)):
        return NotApplicable("no tool lists names")
    if not kinds:
        return NotApplicable("no hidden entry belongs to a named member")

    def view(original: Any, env: Environment, form: Form) -> PublicView:
        seen, worth = original(env, form), {}
        for field in family.interface.hidden_fields:
            for key in family.keys(theta, [field]):
                for kind, i in zip(field.index, key[1:], strict=True):
                    name = names[kind][i] if names[kind] else ""
                    worth[name] = worth.get(name, 0) - entry(env.theta, key)
        tools = []
        for tool in seen.tools:
            properties = {
                name: schema | {"enum": sorted(schema["enum"], key=lambda n: worth.get(n, 0))}
                if "enum" in schema
                else schema
                for name, schema in tool.parameters["properties"].items()
            }
            tools.append(dataclasses.replace(tool, parameters=tool.parameters | {"properties": properties}))
        return dataclasses.replace(seen, tools=tuple(tools))

    return [_around(Environment, "view", view)]


def _kinds(family: Family) -> list[str]:
    return [entity.kind for entity in family.interface.entities]


def _schemas(tool: Any) -> list[dict[str, Any]]:
    return list(tool.parameters["properties"].values())
