"""Tools: schemas an agent sees, and the reading of its calls.

A call is read into a `Probe`, an `Action` or a `Query`, or it is refused with one message that says what was
wrong and what would be right. Refusals use public facts only.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...episode import is_integer
from ...types import ToolKind, ToolSchema
from ..families.base import Action, Entity, Family, Key, Move
from .database import member
from .spec import WorldSpec

MAX_QUERY_CHARACTERS = 2_000
MAX_LISTED = 16


class Refusal(Exception):
    """A call cannot be executed; the message is what the agent is told."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A request to reveal one hidden entry."""

    key: Key


@dataclass(frozen=True, slots=True)
class Query:
    """A request to read the public tables."""

    sql: str


class Toolbox:
    """The tools of one environment: names to meanings and back.

    further   names of tools that are offered beside these and read elsewhere
    """

    def __init__(
        self, family: Family, counts: dict[str, int], spec: WorldSpec, further: Sequence[str] = ()
    ) -> None:
        self.family, self.counts, self.spec, self._further = family, counts, spec, tuple(further)
        self.entities: dict[str, Entity] = {e.kind: e for e in family.interface.entities}
        self._roles = {tool.name: role for role, tool in spec.tools.items()}
        self._verbs = {verb.name: verb for verb in family.interface.verbs}
        self._probes = {field.name: field for field in family.interface.probes}
        self._members = {
            entity.kind: {member(spec, entity, i): i for i in range(counts[entity.kind])}
            for entity in family.interface.entities
        }

    # --- what the agent sees ------------------------------------------------------------------
    def schemas(self) -> tuple[ToolSchema, ...]:
        """Return the schemas: probes, then decisions, then the query tool."""
        made = []
        for role in (*self._probes, *self._verbs, "query"):
            words = self.spec.tools[role]
            properties = self._properties(role)
            parameters = {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }
            kind: ToolKind = "query" if role == "query" else "probe" if role in self._probes else "decision"
            made.append(ToolSchema(words.name, words.description, parameters, kind))
        return tuple(made)

    def _properties(self, role: str) -> dict[str, Any]:
        if role == "query":
            return {"sql": {"type": "string", "description": "one SELECT over the published tables"}}
        return {
            argument: self._entity_schema(entity) if entity else self._amount_schema(unit)
            for argument, entity, unit in self._slots(role)
        }

    def _slots(self, role: str) -> list[tuple[str, Entity | None, str]]:
        """Return (argument name, entity or None for an amount, unit) of a verb or probe."""
        names = self.spec.tools[role].arguments
        if role in self._probes:
            return [(names[kind], self.entities[kind], "") for kind in self._probes[role].index]
        return [
            (names[s.name], self.entities[s.entity] if s.entity else None, s.unit)
            for s in self._verbs[role].slots
        ]

    def _entity_schema(self, entity: Entity) -> dict[str, Any]:
        words = self.spec.entities[entity.kind]
        if entity.ordinal:
            text = f"number of the {words.singular}, from 1 to {self.counts[entity.kind]}"
            return {"type": "integer", "minimum": 1, "maximum": self.counts[entity.kind], "description": text}
        return {"type": "string", "enum": list(words.names), "description": f"name of the {words.singular}"}

    def _amount_schema(self, unit: str) -> dict[str, Any]:
        text = {"money": self.spec.money, "time": self.spec.time}.get(unit, self.spec.goods)
        return {"type": "integer", "minimum": 0, "description": f"{text}, a whole number"}

    # --- reading a call -----------------------------------------------------------------------
    def read(self, name: Any, arguments: Any) -> Probe | Action | Query:
        """Read one call; raise Refusal with what was wrong."""
        role = self._roles.get(name) if isinstance(name, str) else None
        if role is None:
            known = ", ".join((*self._roles, *self._further))
            raise Refusal(f"there is no tool {_quoted(name)}; the tools are {known}")
        wanted = ["sql"] if role == "query" else [slot[0] for slot in self._slots(role)]
        if not isinstance(arguments, dict):
            raise Refusal(
                f"the arguments of {name} must be a JSON object with {_listed(wanted) or 'no entries'}"
            )
        for argument in wanted:
            if argument not in arguments:
                raise Refusal(f"{name} needs the argument {argument!r}; it takes {_listed(wanted)}")
        for argument in arguments:
            if argument not in wanted:
                takes = _listed(wanted) or "no arguments"
                raise Refusal(f"{name} has no argument {_quoted(argument)}; it takes {takes}")
        if role == "query":
            return self._query(arguments["sql"])
        values = tuple(self._value(arg, entity, arguments[arg]) for arg, entity, _ in self._slots(role))
        return Probe((role, *values)) if role in self._probes else Action(role, values)

    def _query(self, sql: Any) -> Query:
        if not isinstance(sql, str):
            raise Refusal(f"sql must be text, got {_quoted(sql)}")
        if len(sql) > MAX_QUERY_CHARACTERS:
            raise Refusal(f"sql has {len(sql)} characters; at most {MAX_QUERY_CHARACTERS} are read")
        return Query(sql)

    def _value(self, argument: str, entity: Entity | None, value: Any) -> int:
        if entity is None or entity.ordinal:
            if not is_integer(value):
                raise Refusal(f"{argument} must be a whole number, got {_quoted(value)}")
            number = int(value)
            if entity is None:
                if not 0 <= number < 2**63:
                    raise Refusal(f"{argument} must be a whole number of at least 0, got {_quoted(value)}")
                return number
            count = self.counts[entity.kind]
            if not 1 <= number <= count:
                raise Refusal(f"{argument} must be between 1 and {count}, got {_quoted(value)}")
            return number - 1
        members = self._members[entity.kind]
        if not isinstance(value, str) or value not in members:
            close = difflib.get_close_matches(value[:60], members, n=1) if isinstance(value, str) else []
            hint = f"the nearest is {close[0]!r}" if close else f"choose one of {_listed(list(members))}"
            raise Refusal(f"{argument} {_quoted(value)} is not known; {hint}")
        return members[value]

    def refuse_illegal(self, action: Action, moves: Sequence[Move]) -> Refusal:
        """Say why an action is not legal among `moves`, first argument that is wrong first."""
        tool = self.spec.tools[action.verb].name
        same = [move for move in moves if move.verb == action.verb]
        if not same:
            possible = dict.fromkeys(self.spec.tools[move.verb].name for move in moves)
            return Refusal(f"{tool} is not possible now; possible: {', '.join(possible)}")
        for position, (argument, entity, _) in enumerate(self._slots(action.verb)):
            allowed = sorted({value for move in same for value in move.choices[position]})
            if action.args[position] not in allowed:
                shown = self.shown(entity, action.args[position])
                return Refusal(
                    f"{argument} {shown} is not possible now; possible: {self._choices(entity, allowed)}"
                )
            same = [move for move in same if action.args[position] in move.choices[position]]
        return Refusal(f"{tool} is not possible with these arguments now")

    def _choices(self, entity: Entity | None, allowed: list[int]) -> str:
        if not allowed:
            return "none"
        if (entity is None or entity.ordinal) and allowed == list(range(allowed[0], allowed[-1] + 1)):
            low, high = (self.shown(entity, value) for value in (allowed[0], allowed[-1]))
            return low if low == high else f"{low} to {high}"
        return _listed([self.shown(entity, value) for value in allowed])

    # --- writing a call -----------------------------------------------------------------------
    def shown(self, entity: Entity | None, value: int) -> str:
        """Return a value as the agent writes it: a number, or a member's name."""
        if entity is None:
            return str(value)
        return str(value + 1) if entity.ordinal else self.spec.entities[entity.kind].names[value]

    def write(self, call: Probe | Action | Query) -> tuple[str, dict[str, Any]]:
        """Return (tool name, arguments) of a call: the inverse of `read`."""
        if isinstance(call, Query):
            return self.spec.tools["query"].name, {"sql": call.sql}
        role, values = (call.key[0], call.key[1:]) if isinstance(call, Probe) else (call.verb, call.args)
        arguments: dict[str, Any] = {}
        for (argument, entity, _), value in zip(self._slots(role), values, strict=True):
            named = entity is not None and not entity.ordinal
            arguments[argument] = self.shown(entity, value) if named else int(self.shown(entity, value))
        return self.spec.tools[role].name, arguments

    def label(self, key: Key) -> str:
        """Return the display name of a hidden entry, such as 'worth, Turn 2, Ostrow Mill'."""
        field = next(f for f in self.family.interface.hidden_fields if f.name == key[0])
        where = [
            member(self.spec, self.entities[kind], i) for kind, i in zip(field.index, key[1:], strict=True)
        ]
        return ", ".join([self.spec.fields[field.name].label, *where])


def _quoted(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:60] + "..."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
