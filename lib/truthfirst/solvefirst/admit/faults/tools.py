"""Faults of the tools: what they offer, how they read a call, and what a probe answers."""

from __future__ import annotations

import sqlite3
from typing import Any

from ....types import Form, PublicView, ToolSchema
from ... import environment as wrap
from ...environment import Environment
from ...families.base import Action, Entity, Family, Key, Theta, published
from ...realize.database import Ledger
from ...realize.tools import Refusal, Toolbox
from .base import Fault, NotApplicable, Patches, around, listed_in

FAULTS: list[Fault] = []
fault = listed_in(FAULTS)
NO_PROBES = NotApplicable("the family has no probes")


@fault
def tool_not_offered(environment: Environment) -> Patches:
    """The first tool of the spec is missing from the schemas that the agent gets."""
    return [around(Toolbox, "schemas", lambda original, toolbox: original(toolbox)[1:])]


@fault
def tool_is_dead(environment: Environment) -> Patches:
    """One tool is offered but refuses every call."""
    face = environment.family.interface
    dead = face.probes[-1].name if face.probes else face.verbs[-1].name

    def read(original: Any, toolbox: Toolbox, name: Any, arguments: Any) -> Any:
        wanted = original(toolbox, name, arguments)
        if name == toolbox.spec.tools[dead].name:
            raise Refusal(f"{name} does not answer at the moment")
        return wanted

    return [around(Toolbox, "read", read)]


@fault
def tool_crashes_on_a_member(environment: Environment) -> Patches:
    """A lookup table lacks one member, so that a call about it ends in an exception."""
    family, theta = environment.family, environment.theta
    first = family.step(theta, family.start(theta), environment.solution.plan[0])[2]
    missing = (family.probe_keys(theta) or list(first))[-1]

    def label(original: Any, toolbox: Toolbox, key: Key) -> str:
        if key == missing:
            raise KeyError(key)
        return original(toolbox, key)

    return [around(Toolbox, "label", label)]


@fault
def last_choice_cut_off(environment: Environment) -> Patches:
    """The schema of an argument lists all members but the last."""
    schemas = [s for t in environment.view(Form.AGENTIC).tools for s in t.parameters["properties"].values()]
    if not any("enum" in schema or "maximum" in schema for schema in schemas):
        return NotApplicable("no argument of a tool is a member of something")

    def schema(original: Any, toolbox: Toolbox, entity: Entity) -> dict[str, Any]:
        full = original(toolbox, entity)
        if "enum" in full:
            return full | {"enum": full["enum"][:-1]}
        return full | {"maximum": full["maximum"] - 1}

    return [around(Toolbox, "_entity_schema", schema)]


@fault
def members_counted_from_zero(environment: Environment) -> Patches:
    """Tools count members from 0 while texts and tables count from 1; writing and reading a call agree on it."""

    def value(original: Any, toolbox: Toolbox, argument: str, entity: Entity | None, given: Any) -> int:
        read = original(toolbox, argument, entity, given)
        return (read + 1) % toolbox.counts[entity.kind] if entity else read

    def shown(original: Any, toolbox: Toolbox, entity: Entity | None, number: int) -> str:
        return original(toolbox, entity, (number - 1) % toolbox.counts[entity.kind] if entity else number)

    return [around(Toolbox, "_value", value), around(Toolbox, "shown", shown)]


@fault
def label_of_the_neighbour(environment: Environment) -> Patches:
    """Replies name the member after the one that they speak of."""

    def label(original: Any, toolbox: Toolbox, key: Key) -> str:
        return original(toolbox, _next(toolbox.family, toolbox.counts, key))

    return [around(Toolbox, "label", label)]


def _next(family: Family, counts: dict[str, int], key: Key) -> Key:
    """Return the neighbour of an entry along the longest of its indices."""
    kinds = next(f.index for f in family.interface.hidden_fields if f.name == key[0])
    longest = max(range(len(kinds)), key=lambda n: counts[kinds[n]])
    return tuple(
        (part + 1) % counts[kinds[n - 1]] if n == longest + 1 else part for n, part in enumerate(key)
    )


@fault
def probe_of_the_neighbour(environment: Environment) -> Patches:
    """A probe reads the entry after the one that was asked for."""
    if not environment.family.interface.probes:
        return NO_PROBES
    family, counts = environment.family, environment.family.counts(environment.theta)

    def read(original: Any, theta: Theta, key: Key) -> int:
        return original(theta, _next(family, counts, key))

    return [around(wrap, "entry", read)]


@fault
def probe_off_by_one(environment: Environment) -> Patches:
    """A probe answers one more than the entry."""
    if not environment.family.interface.probes:
        return NO_PROBES
    return [around(wrap, "entry", lambda original, theta, key: original(theta, key) + 1)]


@fault
def probe_tells_the_typical_value(environment: Environment) -> Patches:
    """A probe is wired to the published table and answers its typical value."""
    if not environment.family.interface.probes:
        return NO_PROBES
    return [around(wrap, "entry", lambda original, theta, key: published(theta, key)[2])]


@fault
def query_tool_writes(environment: Environment) -> Patches:
    """The query tool was opened without its guard and executes any statement."""
    return [around(Ledger, "_authorize", lambda original, ledger, *args: sqlite3.SQLITE_OK)]


@fault
def choices_sorted_by_worth(environment: Environment) -> Patches:
    """A tool lists the members it can be called with in the order of their hidden entries, the least first."""
    family, spec = environment.family, environment.spec
    named = {entity.kind for entity in family.interface.entities if not entity.ordinal}
    listed = {kind for tool in spec.tools.values() for kind in tool.arguments if kind in named}
    listed |= {slot.entity for verb in family.interface.verbs for slot in verb.slots if slot.entity in named}
    kinds = [kind for field in family.interface.hidden_fields for kind in field.index if kind in listed]
    if not kinds:
        return NotApplicable("no tool lists members that hidden entries belong to")

    def view(original: Any, env: Environment, form: Form) -> PublicView:
        seen, kind = original(env, form), kinds[0]
        worth = dict.fromkeys(spec.entities[kind].names, 0)
        for field in family.interface.hidden_fields:
            for key, value in family.hidden(env.theta).items():
                if key[0] == field.name and kind in field.index:
                    worth[spec.entities[kind].names[key[1 + field.index.index(kind)]]] += value
        tools = tuple(_sorted(tool, worth) for tool in seen.tools)
        return PublicView(seen.prompt, tools, seen.turn_budget, seen.files)

    return [around(Environment, "view", view)]


def _sorted(tool: ToolSchema, worth: dict[str, int]) -> ToolSchema:
    properties = {
        name: schema | {"enum": sorted(schema["enum"], key=worth.__getitem__)}
        if set(schema.get("enum", ())) == set(worth)
        else schema
        for name, schema in tool.parameters["properties"].items()
    }
    return ToolSchema(tool.name, tool.description, tool.parameters | {"properties": properties}, tool.kind)


@fault
def refusal_prints_the_record(environment: Environment) -> Patches:
    """For debugging, a refusal of a decision prints the record that it was checked against."""

    def decide(original: Any, episode: Any, action: Action) -> Any:
        try:
            return original(episode, action)
        except Refusal as refusal:
            raise Refusal(f"{refusal} (checked against {episode._theta})") from refusal

    return [around(wrap.InstanceEpisode, "_decide", decide)]
