"""What a text may and must state: evidence of a gate, and the accounting for every number.

A hidden value gets out as a number that stands somewhere it should not. So prompts and replies are not searched for
known leaks: whatever they have to say is taken away, and no number may be left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...types import Form
from ..environment import Environment
from ..families.base import Key
from ..realize.spec import WorldSpec
from .reading import Reader, blocks_of, render


class GateFailure(Exception):
    """A gate is not passed; the message is the evidence."""


def require(condition: bool, evidence: str) -> None:
    """Raise GateFailure with `evidence` unless `condition` holds."""
    if not condition:
        raise GateFailure(evidence)


def compare(where: str, stated: Mapping[Key, Any], wanted: Mapping[Key, Any]) -> None:
    """Raise GateFailure that names the first entry in which two mappings differ."""
    if stated != wanted:
        key = next(k for k in (*wanted, *stated) if stated.get(k) != wanted.get(k))
        raise GateFailure(f"{where} states {key} = {stated.get(key)}, the truth is {wanted.get(key)}")


def account_for(where: str, reply: str, pieces: Sequence[str]) -> None:
    """Require every piece in `reply` (what turns are left: only while the episode goes on), and no other number."""
    rest = reply.casefold()
    for piece in sorted((p.casefold() for p in pieces), key=len, reverse=True):
        start = rest.find(piece)
        over = piece.startswith("turns left") and "the episode is over" in rest
        require(start >= 0 or over, f"{where}: the reply lacks {piece!r}: {reply!r}")
        if start >= 0:
            rest = f"{rest[:start]} {rest[start + len(piece) :]}"
    require(not re.search(r"\d", rest), f"{where}: nothing accounts for a number in the reply {reply!r}")


def check_wording(
    environment: Environment, form: Form, reader: Reader, tables: Mapping[str, Sequence[str]]
) -> None:
    """Require that a prompt states every rule truly, names every tool and table, and states no number besides.

    tables   name -> columns, as the published database has them
    """
    family, spec, theta = environment.family, environment.spec, environment.theta
    view = environment.view(form)
    text = view.prompt[0]["content"]
    lines, vocabulary = set(text.split("\n")), reader.vocabulary(theta)
    story = [reader.said(part) for part in (spec.title, spec.scenario, spec.closing)]
    story.append(reader.said(render(spec.brief, vocabulary)))
    for part in story:
        require(part in text, f"form {form} lacks a part of its story: {part[:120]!r}")
    accounted = {line for part in story for line in part.split("\n")}
    for options in (*family.texts.rules, family.texts.goal):
        wordings = [reader.said(f"- {render(option, vocabulary)}") for option in options]
        stated = lines.intersection(wordings)
        require(len(stated) == 1, f"form {form} does not state this rule as it is: {wordings[0]!r}")
        accounted |= stated
    if form is not Form.WRITTEN:
        wanted = {f"{table}({', '.join(columns)})" for table, columns in tables.items()}
        for role, words in spec.tools.items():
            names = ["sql"] if role == "query" else [name for name, _ in reader.slots(role)]
            wanted.add(f"- {words.name}({', '.join(names)}): {words.description}")
        require(wanted <= lines, f"form {form} does not say {sorted(wanted - lines)[:2]}")
        accounted |= wanted
    columns = {"constants", *(field.column for field in spec.fields.values())}
    for bracket in "[(":
        for column, (head, rows) in blocks_of(text, bracket).items():
            if column in columns:  # what its rows say is read back and compared
                accounted |= {*rows, head} if bracket == "[" else set(rows)
    known = identifiers(spec)
    for field in family.interface.hidden_fields:
        known.append(f"tells one of these {len(family.keys(theta, [field]))} figures")
    known.append(f"You have {view.turn_budget} turns")
    for line in sorted(lines - accounted):
        left = without(line, known) if re.search(r"\d", line) else ""
        require(not re.search(r"\d", left), f"form {form}: nothing accounts for a number in {line[:200]!r}")


def check_story(spec: WorldSpec, passage: str) -> None:
    """Require that the setter's own prose states no number but those of its passage, where quotations come from."""
    told = [spec.title, spec.scenario, spec.brief, spec.closing]
    told += [tool.description for tool in spec.tools.values()]
    invented = sorted(numbers(" ".join(told)) - numbers(passage))
    require(not invented, f"the story states {invented[:5]}, which its passage {spec.passage} does not")


def identifiers(spec: WorldSpec) -> list[str]:
    """Return the words of a spec, outside its story, that may hold digits of their own."""
    words = [word for field in spec.fields.values() for word in (field.label, field.column)]
    words += [
        word for entity in spec.entities.values() for word in (entity.singular, entity.plural, *entity.names)
    ]
    for tool in spec.tools.values():
        words += [tool.name, *tool.arguments.values()]
    return words


def without(text: str, words: Sequence[str]) -> str:
    """Return `text` in lower case without some words, the longest taken away first."""
    text = text.casefold()
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word.casefold(), " ")
    return text


def numbers(text: str) -> set[str]:
    """Return the numbers that a text states in digits."""
    return set(re.findall(r"\d+", text))
