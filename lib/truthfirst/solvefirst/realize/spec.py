"""WorldSpec: all that a setter may say about an environment. It is data; nothing in it is ever executed.

The spec names things and tells the scenario. The exact rules and every number come from the family and theta,
so a setter can neither change the mechanism nor leak a value it never sees.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ..families.base import Family

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9 ,.'()/-]{0,79}$")]
EntityName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .'&-]{0,39}$")]
Prose = Annotated[
    str, StringConstraints(min_length=1, max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f<>`]+$")
]
Line = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f<>`]+$")]

RESERVED = frozenset(
    """id name turn abort action add after all alter analyze and as asc attach before begin between by cascade case
    cast check collate column commit conflict constraint create cross current database default delete desc detach
    distinct drop each else end escape except exists explain fail filter for foreign from full glob group having if
    in index inner insert instead intersect into is isnull join key last left like limit match natural no not null of
    offset on or order outer over partition plan pragma primary query raise range references reindex release rename
    replace restrict right rollback row rows savepoint select set table temp then to transaction trigger union unique
    update using vacuum values view virtual when where window with without""".split()
)

CODE_TOOL = "run_python"  # no setter casts it (`code_tool.py`), and none may take its name


class SpecError(ValueError):
    """A spec does not fit its family; names the part and the remedy."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EntityWords(_Model):
    singular: Label
    plural: Label
    names: tuple[EntityName, ...] = ()


class ToolWords(_Model):
    name: Identifier
    description: Line
    arguments: dict[str, Identifier] = Field(default_factory=dict)  # slot or entity kind -> argument name


class FieldWords(_Model):
    column: Identifier
    label: Label


class WorldSpec(_Model):
    """The words of one environment.

    scenario   what the player reads first; brief: the mechanism told in the domain's words, with placeholders
               for public scalars ({budget}) and counts ({n_item})
    phrasing   which alternative of the family's rules and goal is used, any integer
    tables     names: "terms", "ledger", "readings", every entity kind, every public field of two indices
    """

    domain: Label
    title: Line
    scenario: Prose
    brief: Prose
    closing: Line
    money: Label
    goods: Label
    time: Label
    entities: dict[str, EntityWords]
    tools: dict[str, ToolWords]
    fields: dict[str, FieldWords]
    tables: dict[str, Identifier]
    phrasing: Annotated[int, Field(ge=0)]
    passage: Annotated[str, Field(max_length=300)]
    setter: Line


def check_spec(spec: WorldSpec, family: Family, counts: dict[str, int]) -> None:
    """Raise SpecError unless the spec names everything the family needs, uniquely.

    counts   entity kind -> number of members; a named kind needs exactly that many names
    """
    face = family.interface
    _same("entities", set(spec.entities), {e.kind for e in face.entities})
    _same("fields", set(spec.fields), {f.name for f in face.fields} | {s.name for s in face.scalars})
    _same("tools", set(spec.tools), {v.name for v in face.verbs} | {f.name for f in face.probes} | {"query"})
    _same("tables", set(spec.tables), table_roles(family))
    for entity in face.entities:
        names = spec.entities[entity.kind].names
        wanted = 0 if entity.ordinal else counts[entity.kind]
        if len(names) != wanted:
            raise SpecError(f"entity kind {entity.kind!r} has {len(names)} names, needs {wanted}")
        _unique(f"names of {entity.kind}", list(names))
    _unique("tool names", [t.name for t in spec.tools.values()])
    if CODE_TOOL in {t.name for t in spec.tools.values()}:
        raise SpecError(f"tool name {CODE_TOOL!r} belongs to the code tool: choose another name")
    _unique("columns", [f.column for f in spec.fields.values()])
    _unique("table names", list(spec.tables.values()))
    for word in [f.column for f in spec.fields.values()] + list(spec.tables.values()):
        if word in RESERVED:
            raise SpecError(f"{word!r} is an SQL keyword or a reserved column: choose another name")
    for verb in face.verbs:
        slots = {s.name for s in verb.slots}
        _same(f"arguments of {verb.name}", set(spec.tools[verb.name].arguments), slots)
        _unique(f"arguments of {verb.name}", list(spec.tools[verb.name].arguments.values()))
    for field in face.probes:
        _same(f"arguments of {field.name}", set(spec.tools[field.name].arguments), set(field.index))
        _unique(f"arguments of {field.name}", list(spec.tools[field.name].arguments.values()))
    known = {s.name for s in face.scalars} | {f"n_{e.kind}" for e in face.entities}
    for placeholder in re.findall(r"\{(\w*)\}", spec.brief):
        if placeholder not in known:
            raise SpecError(
                f"brief uses unknown placeholder {{{placeholder}}}: allowed are {', '.join(sorted(known))}"
            )


def table_roles(family: Family) -> set[str]:
    """Return the tables an environment of this family has, by role."""
    face = family.interface
    wide = {f.name for f in face.fields if not f.hidden and len(f.index) > 1}
    return {"terms", "ledger", "readings"} | {e.kind for e in face.entities} | wide


def fill(template: str, values: dict[str, object]) -> str:
    """Replace each {name} by its value, once: values are never expanded again and nothing is evaluated."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in values:
            raise SpecError(f"text uses unknown placeholder {{{name}}}")
        return str(values[name])

    return re.sub(r"\{(\w+)\}", value, template)


def words(spec: WorldSpec, counts: dict[str, int]) -> dict[str, object]:
    """Return the placeholders that depend on the spec alone (see families.base.Texts)."""
    table: dict[str, object] = {"money": spec.money, "goods": spec.goods, "time": spec.time}
    for kind, entity in spec.entities.items():
        table |= {kind: entity.singular, f"{kind}s": entity.plural, f"n_{kind}": counts[kind]}
        table |= {
            kind.capitalize(): _sentence(entity.singular),
            f"{kind.capitalize()}s": _sentence(entity.plural),
        }
    table |= {f"tool_{key}": tool.name for key, tool in spec.tools.items()}
    table |= {f"label_{key}": field.label for key, field in spec.fields.items()}
    return table


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _same(what: str, found: set[str], wanted: set[str]) -> None:
    if found != wanted:
        missing, extra = sorted(wanted - found), sorted(found - wanted)
        raise SpecError(f"{what}: missing {missing}, not known {extra}")


def _unique(what: str, names: list[str]) -> None:
    folded = [" ".join(name.casefold().split()) for name in names]
    twice = sorted({name for name in folded if folded.count(name) > 1})
    if twice:
        raise SpecError(f"{what} must be unique, used twice: {twice}")
