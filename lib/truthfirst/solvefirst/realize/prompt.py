"""The player's instructions, for the three forms, and the reading back of what they state.

The setter's words frame the text; every rule comes from the family and every number from theta. Numbers stand in
small pipe tables under headings that name their column, so that a gate can read them back entry by entry.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ...streams import derive
from ...types import Form
from ..families.base import Entity, Family, Field, Key, Theta, entry, published
from .database import member, public_tables, schema_text
from .spec import WorldSpec, fill, words
from .tools import Toolbox


def values(family: Family, theta: Theta, spec: WorldSpec) -> dict[str, object]:
    """Return every placeholder a rule or brief may use: words, counts and public scalars."""
    scalars = {s.name: getattr(theta, s.name) for s in family.interface.scalars}
    return words(spec, family.counts(theta)) | scalars


def instructions(family: Family, theta: Theta, spec: WorldSpec, form: Form, turn_budget: int) -> str:
    """Return the whole text a player reads before it acts (form A never contains a hidden entry)."""
    table = values(family, theta, spec)
    rules = [fill(_choose(options, spec.phrasing, n), table) for n, options in enumerate(family.texts.rules)]
    goal = fill(_choose(family.texts.goal, spec.phrasing, 97), table)
    parts = [
        spec.title,
        spec.scenario,
        fill(spec.brief, table),
        "Rules\n" + "\n".join(f"- {rule}" for rule in [*rules, goal]),
        "Figures\n" + figures(family, theta, spec, public=True),
    ]
    if form is Form.AGENTIC:
        parts.append("Not known at first\n" + priors(family, theta, spec))
    else:
        parts.append("Known in full\n" + figures(family, theta, spec, public=False))
    parts.append(_how_to_act(family, theta, spec, form, turn_budget))
    parts.append(spec.closing)
    return _agree("\n\n".join(parts), spec, family.counts(theta))


def _agree(text: str, spec: WorldSpec, counts: dict[str, int]) -> str:
    """Say '1 kind' where a count of one met a plural noun."""
    for kind, entity in spec.entities.items():
        if counts[kind] == 1:
            text = re.sub(rf"\b1 {re.escape(entity.plural)}\b", f"1 {entity.singular}", text)
    return text


def messages(
    family: Family, theta: Theta, spec: WorldSpec, form: Form, turn_budget: int
) -> tuple[dict[str, str], ...]:
    """Return the chat an episode starts with."""
    ask = "Write the plan." if form is Form.WRITTEN else "Begin."
    text = instructions(family, theta, spec, form, turn_budget)
    return ({"role": "system", "content": text}, {"role": "user", "content": ask})


def _choose(options: Sequence[str], phrasing: int, salt: int) -> str:
    return options[derive(phrasing, "phrasing", salt) % len(options)]


def _how_to_act(family: Family, theta: Theta, spec: WorldSpec, form: Form, turn_budget: int) -> str:
    toolbox = Toolbox(family, family.counts(theta), spec)
    if form is Form.WRITTEN:
        decisions = [s for s in toolbox.schemas() if s.kind == "decision"]
        calls = "; ".join(
            f'["{s.name}"{"".join(f", {name}" for name in s.parameters["properties"])}]' for s in decisions
        )
        return (
            "Your answer\nThink as you like, then end with the plan as one JSON list of decisions in order, each "
            f"a list of its name and its arguments: {calls}. Names are quoted, numbers are not. The last JSON list "
            "in your answer is played; it stops at the first decision that the rules do not permit."
        )
    lines = [
        f"- {s.name}({', '.join(s.parameters['properties'])}): {s.description}" for s in toolbox.schemas()
    ]
    tables = schema_text(public_tables(family, theta, spec))
    return (
        f"Tools\nYou have {turn_budget} turns. Every call of a tool costs one turn, a refused one too; when the "
        "turns are spent, or you stop calling tools, what has not been decided stays undone.\n"
        + "\n".join(lines)
        + "\n\nTables\n"
        + tables
    )


# --- numbers in the text ------------------------------------------------------------------------------
def figures(family: Family, theta: Theta, spec: WorldSpec, *, public: bool) -> str:
    """Return the pipe tables of the public constants and fields, or of the hidden fields."""
    blocks = []
    if public and family.interface.scalars:
        rows = [f"{spec.fields[s.name].column} | {getattr(theta, s.name)}" for s in family.interface.scalars]
        labels = [
            f"{spec.fields[s.name].column}: {spec.fields[s.name].label}" for s in family.interface.scalars
        ]
        blocks.append("\n".join(["[constants] " + "; ".join(labels), *rows]))
    for field in family.interface.fields:
        if field.hidden != public:
            blocks.append(_field_block(family, theta, spec, field))
    return "\n\n".join(blocks)


def _entity(family: Family, kind: str) -> Entity:
    return next(e for e in family.interface.entities if e.kind == kind)


def _field_block(family: Family, theta: Theta, spec: WorldSpec, field: Field) -> str:
    counts, words_ = family.counts(theta), spec.fields[field.name]
    kinds = [_entity(family, kind) for kind in field.index]
    names = [[member(spec, kind, i) for i in range(counts[kind.kind])] for kind in kinds]
    head = f"[{words_.column}] {words_.label}"
    if len(kinds) == 1:
        rows = [
            f"{name} | {_value(family, theta, spec, field, (field.name, i))}"
            for i, name in enumerate(names[0])
        ]
    else:
        rows = [" | ".join(["", *names[1]]).strip()]
        for i, name in enumerate(names[0]):
            cells = (_value(family, theta, spec, field, (field.name, i, j)) for j in range(len(names[1])))
            rows.append(" | ".join([name, *cells]))
    return "\n".join([head, *rows])


def _value(family: Family, theta: Theta, spec: WorldSpec, field: Field, key: Key) -> str:
    value = entry(theta, key)
    return display(family, spec, field.unit, value)


def display(family: Family, spec: WorldSpec, unit: str, value: int) -> str:
    """Return a number as text; a reference to a named entity by its name, -1 as none."""
    entities = {e.kind: e for e in family.interface.entities}
    if unit in entities and not entities[unit].ordinal:
        return "none" if value < 0 else spec.entities[unit].names[value]
    return str(value)


def priors(family: Family, theta: Theta, spec: WorldSpec) -> str:
    """Return what is published of the hidden entries: lowest, highest and typical value."""
    entities = {e.kind: e for e in family.interface.entities}
    blocks = []
    for field in family.interface.hidden_fields:
        keys = family.keys(theta, [field])
        words_ = spec.fields[field.name]
        where = " and ".join(f"each {spec.entities[kind].singular}" for kind in field.index)
        if field.probe:
            how = f"{spec.tools[field.name].name} tells one of these {len(keys)} figures"
        else:
            how = "only deciding tells it"
        triples = {key[-1]: published(theta, key) for key in keys}
        if len(set(triples.values())) == 1:
            rows = [("any", *next(iter(triples.values())))]
        else:
            last = entities[field.index[-1]]
            rows = [(member(spec, last, i), *triple) for i, triple in triples.items()]
        lines = [" | ".join(map(str, row)) for row in rows]
        head = f"({words_.column}) {words_.label}, for {where}: {how}."
        blocks.append("\n".join([head, "| lowest | highest | typical", *lines]))
    return "\n\n".join(blocks)


# --- reading back -------------------------------------------------------------------------------------
class ReadBackError(ValueError):
    """A number that the text should state cannot be read from it."""


def read_figures(text: str, family: Family, spec: WorldSpec, counts: dict[str, int]) -> dict[Key, int]:
    """Read every constant and field entry that `text` states; keys as in theta, scalars as (name,)."""
    entities = {e.kind: e for e in family.interface.entities}
    found: dict[Key, int] = {}
    blocks = {m.group(1): m.group(2) for m in re.finditer(r"(?m)^\[(\w+)\] .*\n((?:.*\|.*\n?)+)", text)}
    constants = dict(row.split(" | ") for row in blocks.get("constants", "").splitlines())
    for scalar in family.interface.scalars:
        column = spec.fields[scalar.name].column
        if column in constants:
            found[(scalar.name,)] = int(constants[column])
    for field in family.interface.fields:
        block = blocks.get(spec.fields[field.name].column)
        if block is None:
            continue
        rows = [[cell.strip() for cell in row.split("|")] for row in block.strip("\n").splitlines()]
        grid = rows if len(field.index) == 1 else rows[1:]
        cells = [row[1:] for row in grid]
        shape = [range(counts[kind]) for kind in field.index]
        named = None
        if field.unit in entities and not entities[field.unit].ordinal:
            named = {name: i for i, name in enumerate(spec.entities[field.unit].names)} | {"none": -1}
        for index in itertools.product(*shape):
            try:
                cell = cells[index[0]][index[1] if len(index) > 1 else 0]
                found[(field.name, *index)] = named[cell] if named else int(cell)
            except (IndexError, KeyError, ValueError) as error:
                raise ReadBackError(
                    f"{field.name}{list(index)} cannot be read from the text ({error!r})"
                ) from error
    return found


def read_priors(
    text: str, family: Family, spec: WorldSpec, counts: dict[str, int]
) -> dict[Key, tuple[int, int, int]]:
    """Read the published (lowest, highest, typical) of every hidden entry that `text` states."""
    blocks = {m.group(1): m.group(2) for m in re.finditer(r"(?m)^\((\w+)\) .*\n((?:.*\|.*\n?)+)", text)}
    found: dict[Key, tuple[int, int, int]] = {}
    for field in family.interface.hidden_fields:
        block = blocks.get(spec.fields[field.name].column)
        if block is None:
            continue
        rows = [row.split(" | ") for row in block.strip("\n").splitlines()[1:]]
        for index in itertools.product(*(range(counts[kind]) for kind in field.index)):
            try:
                _, low, high, mean = rows[0] if len(rows) == 1 else rows[index[-1]]
                found[(field.name, *index)] = (int(low), int(high), int(mean))
            except (IndexError, ValueError) as error:
                raise ReadBackError(
                    f"prior of {field.name}{list(index)} cannot be read ({error!r})"
                ) from error
    return found
