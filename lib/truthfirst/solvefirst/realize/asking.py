"""Asking: what a language model is asked for, and how its answer is read. Pure functions of a SetterTask.

The model is asked for the words of a WorldSpec and nothing else: `answer_schema` derives the JSON schema from the
spec's own types and the task's kinds, counts, tools, fields and tables. Domain, passage, phrasing and the setter's
name are ours. It is given the passage, the family's interface and its rules with their placeholders. A SetterTask
holds no parameters, so neither do the messages: redrawing theta leaves them byte-identical.

An answer is read in five stages, and refused with the stage's name and a reason: `size`, `json`, `schema` (pydantic),
`spec` (check_spec) and `vetting` (vetting.py). A reasoning block, a code fence and text around the JSON object are
passed over; nothing inside it is repaired.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..families.base import Field, Slot
from .setter import SetterTask, topic
from .spec import EntityName, Identifier, Label, Line, Prose, SpecError, WorldSpec, check_spec, table_roles
from .vetting import MAX_DESCRIPTION, MAX_PROSE, VettingError, vet

OURS = frozenset({"domain", "phrasing", "passage", "setter"})  # parts of a spec that no model is asked for
ASKED = tuple(name for name in WorldSpec.model_fields if name not in OURS)
MAX_ANSWER = 60_000  # characters that are read; a healthy answer at size huge has about 6,000
MAX_REASONS = 12  # findings of one answer that are told to the model and kept

_SYSTEM = (
    "You put a planning exercise into the words of a trade. You are given a passage about the trade and the abstract "
    "rules of the exercise. You answer with one JSON object of names and short texts, nothing before or after it. "
    "You invent no rules and state no numbers."
)
_HOUSE_RULES = (
    "Plain English prose, in the tone of the passage; no markup, no lists, no links.",
    "No digits anywhere. The brief states an amount by its placeholder, written in braces; no other text has braces.",
    "scenario: two to five sentences that set the scene in this trade. brief: who the reader is, what is decided and "
    "what counts, told in this trade's words, in four to eight sentences. closing: one sentence.",
    "Every noun, name, label and description is different from the others of its sort. Names are capitalised.",
    "Tool, argument, column and table names are snake_case words of the trade, and no SQL keywords. A tool's "
    "description is one plain sentence that says what it does.",
    "money, goods and time are the plural nouns for the units of worth, of amounts and of time.",
)


class AnswerError(ValueError):
    """An answer cannot be used.

    stage    size, json, schema, spec or vetting
    check    of vetting.CHECKS that failed first, else the stage
    reasons  everything that is wrong, at most MAX_REASONS
    """

    def __init__(self, stage: str, reasons: list[str], check: str | None = None) -> None:
        super().__init__(
            f"{stage}: {reasons[0]}" + (f" (and {len(reasons) - 1} more)" if reasons[1:] else "")
        )
        self.stage, self.reasons, self.check = stage, reasons[:MAX_REASONS], check or stage


# --- the schema -------------------------------------------------------------------------------------------
def answer_schema(task: SetterTask) -> dict[str, Any]:
    """Return the JSON schema of an answer: closed objects, every key required, as many names as there are members."""
    face = task.family.interface
    label, identifier, name, field = (
        {"$ref": f"#/$defs/{kind}"} for kind in ("label", "id", "name", "field")
    )
    entities = {}
    for entity in face.entities:
        parts: dict[str, Any] = {"singular": label, "plural": label}
        if not entity.ordinal:
            count = task.counts[entity.kind]
            parts["names"] = {"type": "array", "items": name, "minItems": count, "maxItems": count}
        entities[entity.kind] = _object(parts)
    tools = {
        role: _object(
            {
                "name": identifier,
                "description": {"$ref": "#/$defs/line"},
                "arguments": _object(dict.fromkeys(arguments, identifier)),
            }
        )
        for role, arguments in tool_arguments(task).items()
    }
    asked: dict[str, Any] = {
        kind: _type(Line if kind in ("title", "closing") else Prose) | {"maxLength": most}
        for kind, most in MAX_PROSE.items()
    }
    asked |= dict.fromkeys(("money", "goods", "time"), label)
    asked |= {
        "entities": _object(entities),
        "tools": _object(tools),
        "fields": _object(
            dict.fromkeys([*(s.name for s in face.scalars), *(f.name for f in face.fields)], field)
        ),
        "tables": _object(dict.fromkeys(sorted(table_roles(task.family)), identifier)),
    }
    shared = {
        "label": _type(Label),
        "id": _type(Identifier),
        "name": _type(EntityName),
        "line": _type(Line) | {"maxLength": MAX_DESCRIPTION},
        "field": _object({"column": identifier, "label": label}),
    }
    return _object({part: asked[part] for part in ASKED}) | {"$defs": shared}


def tool_arguments(task: SetterTask) -> dict[str, tuple[str, ...]]:
    """Return the tools by role, with the arguments that need a name: probes, decisions, then the query tool."""
    face = task.family.interface
    named = {field.name: field.index for field in face.probes}
    named |= {verb.name: tuple(slot.name for slot in verb.slots) for verb in face.verbs}
    return named | {"query": ()}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _type(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of one of the spec's string types.

    Patterns that exclude control characters are left to our side: grammar compilers differ in how they read them.
    """
    schema = TypeAdapter(kind).json_schema()
    return {key: value for key, value in schema.items() if key != "pattern" or "\\x" not in value}


# --- the messages -----------------------------------------------------------------------------------------
def messages(task: SetterTask, passage_characters: int = 6_000) -> list[dict[str, str]]:
    """Return the conversation that opens the request."""
    family, face = task.family, task.family.interface
    placeholders = [f"{{{scalar.name}}}" for scalar in face.scalars]
    placeholders += [f"{{n_{entity.kind}}}" for entity in face.entities]
    parts = [
        f"Passage: {task.passage.title}\n{task.passage.text[:passage_characters]}",
        f"Exercise: {family.title}\n"
        + "\n".join(f"- {rule[0]}" for rule in (*family.texts.rules, family.texts.goal)),
        "What needs words\n" + "\n".join(f"- {line}" for line in _parts(task)),
        f"Placeholders that the brief may use: {', '.join(placeholders)}",
        "How to write\n" + "\n".join(f"- {rule}" for rule in _HOUSE_RULES),
        "Answer with one JSON object of this JSON schema:\n"
        + json.dumps(answer_schema(task), separators=(",", ":"), ensure_ascii=True),
    ]
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": "\n\n".join(parts)}]


def _parts(task: SetterTask) -> list[str]:
    face = task.family.interface
    lines = []
    for entity in face.entities:
        members = "they are numbered" if entity.ordinal else f"{task.counts[entity.kind]} names"
        lines.append(f"entities.{entity.kind}: a noun, singular and plural; {members}")
    lines += [f"fields.{scalar.name}: a published constant, in {scalar.unit}" for scalar in face.scalars]
    lines += [f"fields.{field.name}: {_about(field)}" for field in face.fields]
    lines += [
        f"tools.{field.name}: tells one {field.name} of one {' and one '.join(field.index)}"
        for field in face.probes
    ]
    lines += [f"tools.{verb.name}: decides; takes {_slots(verb.slots)}" for verb in face.verbs]
    lines.append("tools.query: reads the published tables by one SQL SELECT; it has no arguments to name")
    for role in sorted(table_roles(task.family)):
        what = {
            "terms": "the published constants",
            "ledger": "decisions taken so far",
            "readings": "figures told so far",
        }
        lines.append(f"tables.{role}: {what.get(role, f'lists every {role}')}")
    return lines


def _about(field: Field) -> str:
    known = "not known at first" if field.hidden else "published"
    return f"a figure of each {' and '.join(field.index)}, in {field.unit}, {known}"


def _slots(slots: tuple[Slot, ...]) -> str:
    return (
        " and ".join(f"{s.name} (one {s.entity})" if s.entity else f"{s.name} (in {s.unit})" for s in slots)
        or "none"
    )


# --- the answer -------------------------------------------------------------------------------------------
def read_answer(text: str, task: SetterTask, phrasing: int, setter: str) -> WorldSpec:
    """Return the spec that an answer holds; raise AnswerError with its stage and reasons.

    phrasing, setter   our parts of the spec: which wording of the rules is used, and who wrote the words
    """
    data = read_object(text)
    unknown = sorted(set(data) - set(ASKED))
    if unknown:
        raise AnswerError("schema", [f"{_short(key)}: is not asked for" for key in unknown])
    ours = {
        "domain": topic(task.passage),
        "phrasing": phrasing,
        "passage": task.passage.id[-300:],
        "setter": setter,
    }
    try:
        spec = WorldSpec.model_validate(data | ours)
    except ValidationError as error:
        reasons = [f"{_short('.'.join(map(str, e['loc'])))}: {e['msg'][:200]}" for e in error.errors()]
        raise AnswerError("schema", reasons) from error
    try:
        check_spec(spec, task.family, task.counts)
    except SpecError as error:
        raise AnswerError("spec", [str(error)[:400]]) from error
    try:
        vet(spec, task.passage)
    except VettingError as error:
        raise AnswerError("vetting", [str(f) for f in error.findings], error.findings[0].check) from error
    return spec


def read_object(text: str) -> dict[str, Any]:
    """Return the first JSON object of a text; raise AnswerError where there is none, or where a key stands twice."""
    if len(text) > MAX_ANSWER:
        raise AnswerError("size", [f"the answer has {len(text)} characters, at most {MAX_ANSWER} are read"])
    said = re.sub(r"^\s*<think>.*?</think>", "", text, flags=re.DOTALL)
    start = said.find("{")
    if start < 0:
        raise AnswerError("json", [f"holds no JSON object: {_short(said)}"])
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
    try:
        data = decoder.raw_decode(said, start)[0]
    except (ValueError, RecursionError) as error:
        reason = str(error)[:200] or type(error).__name__
        raise AnswerError("json", [f"is no valid JSON object: {_short(reason, 200)}"]) from error
    return data  # starts with a brace, so it is an object


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
    if twice:
        raise ValueError(f"the key {_short(twice[0])} stands twice in one object")
    return dict(pairs)


def _no_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON value")


def _short(text: str, width: int = 80) -> str:
    return ascii(text[:width]) + ("..." if len(text) > width else "")
