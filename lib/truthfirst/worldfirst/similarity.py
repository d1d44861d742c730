"""The similarity gate: a new generator that is too like a registered one, in code, prompt or data, is refused.

    code     share of the syntax that lies in runs of 30 nodes which a registered generator's code holds, too; of all
             roles together, and of the role where it is largest (declarations aside, which are alike everywhere)
    prompt   share of the words that lie in runs of 8 of a registered prompt; Jaccard similarity of the word sets
    data     Jaccard similarity of what the public tree is made of: tables by width, columns by the look of their
             cells, JSON by paths, tensors by format and rank

Syntax is read as a walk through the tree of a module that keeps the kinds of nodes and drops every name, text, number,
docstring and annotation; the look of a cell keeps whether its runs are letters, digits or both. So new names, new
wording of messages, another order of functions or columns, TSV for CSV, do not hide a copy.

Source: n-grams and nearest neighbours from `overlap.py`; structure instead of tokens as in Baxter et al., "Clone
detection using abstract syntax trees", 1998. It says nothing about two generators that do the same by other means.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ..overlap import NGramIndex, nearest, tokens
from .contract import PACKAGE, ROLES
from .generators import GENERATORS
from .instances import instance
from .tables import Table, decode, decode_sqlite
from .tensors import METADATA
from .world import Files, WorldError

CODE_RUN, PROMPT_RUN = 30, 8
LIMITS = {"code": 0.4, "code of a role": 0.7, "prompt": 0.4, "prompt words": 0.6, "data": 0.5}
DECLARATIVE = ("world", "workflow", "prompt")  # types, tables of constants: alike everywhere
LEAST_ROLE = 200  # nodes that a role must have to be looked at by itself
_LOOKED_AT = 40  # rows of a table, entries of a JSON list
_DROPPED = frozenset(
    {"annotation", "returns", "ctx", "type_comment", "type_ignores", "kind", "decorator_list"}
)


class TooSimilar(WorldError):
    """A new generator is too like a registered one."""


@dataclass(frozen=True)
class Fingerprint:
    """What of a generator is compared.

    code    role -> kinds of syntax nodes in order
    prompt  words of one prompt
    data    what one public tree is made of
    """

    name: str
    code: Mapping[str, tuple[str, ...]] = field(repr=False)
    prompt: tuple[str, ...] = field(repr=False)
    data: frozenset[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a registered generator a new one is in one respect, in [0, 1]."""

    measure: str
    value: float
    other: str
    where: str = ""

    @property
    def refused(self) -> bool:
        return self.value > LIMITS[self.measure]


def fingerprint(name: str, sources: Mapping[str, str], prompt: str, files: Files) -> Fingerprint:
    """Return the fingerprint of a generator from the source of its roles, a prompt and a public tree.

    Raises WorldError where a role's source is missing.
    """
    if missing := [role for role in ROLES if role not in sources]:
        raise WorldError(
            f"{name}: no source of the role {missing[0]!r}; there must be one for each of {', '.join(ROLES)}"
        )
    code = {role: tuple(_syntax(ast.parse(source))) for role, source in sources.items()}
    return Fingerprint(name, code, tuple(tokens(prompt)), frozenset(_makeup(files)))


@functools.cache
def registered(name: str) -> Fingerprint:
    """Return the fingerprint of a generator in the register, as its seed 0 at unit gives it."""
    sources = {role: inspect.getsource(importlib.import_module(f"{PACKAGE}.{name}.{role}")) for role in ROLES}
    made = instance(name, 0, "unit")
    return fingerprint(name, sources, made.prompt, made.files)


def likenesses(new: Fingerprint, others: Sequence[Fingerprint]) -> tuple[Likeness, ...]:
    """Return the likeness of `new` to each of the others, in every respect; its own name is left out."""
    found = []
    for other in others:
        if other.name == new.name:
            continue
        index = NGramIndex(list(other.code.values()), CODE_RUN)
        shared = {role: int(index.covered(code).sum()) for role, code in new.code.items()}
        sizes = {role: len(code) for role, code in new.code.items()}
        found.append(Likeness("code", sum(shared.values()) / sum(sizes.values()), other.name))
        large = [role for role, size in sizes.items() if size >= LEAST_ROLE and role not in DECLARATIVE]
        if large:
            worst = max(large, key=lambda role: shared[role] / sizes[role])
            found.append(Likeness("code of a role", shared[worst] / sizes[worst], other.name, worst))
        prompts = NGramIndex([other.prompt], PROMPT_RUN)
        share = float(prompts.covered(new.prompt).mean()) if new.prompt else 0.0
        found.append(Likeness("prompt", share, other.name))
        found.append(Likeness("prompt words", _jaccard(new.prompt, other.prompt), other.name))
        found.append(Likeness("data", _jaccard(new.data, other.data), other.name))
    return tuple(found)


def require_new(new: Fingerprint, others: Iterable[str] = tuple(GENERATORS)) -> tuple[Likeness, ...]:
    """Return the likenesses to the registered generators. Raises TooSimilar that names the respects and the values."""
    found = likenesses(new, [registered(name) for name in others])
    if refused := [one for one in found if one.refused]:
        told = "; ".join(
            f"{one.measure}{f' ({one.where})' if one.where else ''} {one.value:.2f} like {one.other!r} "
            f"(at most {LIMITS[one.measure]})"
            for one in refused
        )
        raise TooSimilar(f"generator {new.name!r} is no new one: {told}. Write other files, rules and code")
    return found


def _jaccard(left: Iterable[str], right: Iterable[str]) -> float:
    return float(nearest([set(left)], [set(right)]).similarity[0])


# --- code -------------------------------------------------------------------------------------------------
def _syntax(node: ast.AST) -> Iterator[str]:
    """Yield the kinds of nodes of a tree in order, without imports, docstrings, names, values and annotations."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name not in _DROPPED:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    yield from _syntax(part)


# --- data -------------------------------------------------------------------------------------------------
def _makeup(files: Files) -> Iterator[str]:
    """Yield what a public tree is made of."""
    for path, data in files.items():
        ending = PurePosixPath(path).suffix
        try:
            if ending in (".csv", ".tsv"):
                yield from _table(decode(data, path))
            elif ending == ".json":
                yield from _json(json.loads(data))
            elif ending == ".jsonl":
                yield from _json([json.loads(line) for line in data.splitlines()])
            elif ending == ".sqlite":
                for table in decode_sqlite(data).values():
                    yield from _table(table)
            elif ending == ".safetensors":
                header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
                entries = (told for key, told in header.items() if key != METADATA)
                yield from (f"tensor {told['dtype']} {len(told['shape'])}" for told in entries)
            else:
                yield f"file {ending}"
        except ValueError:  # an input that is meant to be broken
            yield f"broken {ending}"


def _table(table: Table) -> Iterator[str]:
    width = len(table.columns)
    yield f"table {width}"
    for place in range(width):
        looks = Counter(_look(row[place]) for row in table.rows[:_LOOKED_AT])
        yield f"table {width} {max(sorted(looks), key=looks.__getitem__) if looks else 'empty'}"


def _json(value: Any) -> Iterator[str]:
    """Yield a list of records of one shape as a table, anything else by its paths."""
    records = (
        value if isinstance(value, list) and value and all(isinstance(one, dict) for one in value) else []
    )
    if records and all(one.keys() == records[0].keys() for one in records):
        columns = tuple(records[0])
        yield from _table(Table(columns, tuple(tuple(one[key] for key in columns) for one in records)))
    else:
        yield from _paths(value, "json")


def _paths(value: Any, above: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _paths(below, f"{above}.{_look(key)}")
    elif isinstance(value, list):
        for below in value[:_LOOKED_AT]:
            yield from _paths(below, f"{above}[]")
    else:
        yield f"{above}={_look(value)}"


def _look(value: Any) -> str:
    """Return the look of a value: runs of letters a, of digits 9, of both w; other marks as they are, spaces as one."""
    if not isinstance(value, str):
        return type(value).__name__

    def run(match: re.Match[str]) -> str:
        text = match[0]
        return "9" if text.isdigit() else "a" if text.isalpha() else "w"

    return re.sub(r"\s+", " ", re.sub(r"[^\W_]+", run, value)) or "blank"
