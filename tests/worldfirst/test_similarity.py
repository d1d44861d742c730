"""The similarity gate: registered generators pass beside each other, disguised copies are refused part by part."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import inspect

import pytest

from truthfirst.worldfirst.contract import PACKAGE, ROLES
from truthfirst.worldfirst.generators import GENERATORS
from truthfirst.worldfirst.similarity import (
    Fingerprint,
    TooSimilar,
    fingerprint,
    likenesses,
    registered,
    require_new,
)
from truthfirst.worldfirst.tables import Table, decode, encode
from truthfirst.worldfirst.world import WorldError


class Disguise(ast.NodeTransformer):
    """Other names, other texts, other numbers, no docstrings, functions in another order."""

    def name(self, old: str) -> str:
        return f"v{hashlib.sha256(old.encode()).hexdigest()[:6]}"

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.name(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        return ast.Attribute(self.visit(node.value), self.name(node.attr), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.name(node.arg))

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(self.name(node.value) if isinstance(node.value, str) else node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name, node.returns = self.name(node.name), None
        if len(node.body) > 1 and isinstance(node.body[0], ast.Expr):
            del node.body[0]
        return node


def disguised(source: str) -> str:
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    rest = [node for node in tree.body if node not in functions]
    tree.body = [*rest, *functions[::-1]]
    return ast.unparse(ast.fix_missing_locations(Disguise().visit(tree)))


def sources(name: str) -> dict[str, str]:
    return {role: inspect.getsource(importlib.import_module(f"{PACKAGE}.{name}.{role}")) for role in ROLES}


@pytest.fixture(scope="module")
def other() -> Fingerprint:
    """A generator that is like none: nothing written yet."""
    return Fingerprint(
        "other", dict.fromkeys(ROLES, ("Module",)), ("nothing", "yet"), frozenset({"file .txt"})
    )


def test_registered_generators_are_not_copies_of_each_other():
    for name in GENERATORS:
        assert not [one for one in require_new(registered(name)) if one.refused]


def test_a_copy_is_refused_in_every_respect():
    copy = dataclasses.replace(registered("shards"), name="copy")
    refused = {one.measure for one in likenesses(copy, [registered("shards")]) if one.refused}
    assert refused == {"code", "code of a role", "prompt", "prompt words", "data"}
    with pytest.raises(TooSimilar, match=r"code 1\.00 like 'shards'"):
        require_new(copy)


def test_disguised_code_is_refused(other):
    told = sources("warehouse")
    hidden = {role: disguised(source) for role, source in told.items()}
    assert not any("customer" in source for source in hidden.values())
    code = fingerprint("hidden", hidden, "", {}).code
    with pytest.raises(TooSimilar, match=r"code 0\.9\d like 'warehouse'"):
        require_new(dataclasses.replace(other, code=code))


def test_one_copied_role_among_new_ones_is_refused(other):
    role = registered("shards").code["alternative"]
    mixed = {
        **other.code,
        "sample": tuple("new code that is like nothing".split()) * 2_000,
        "reference": role,
    }
    with pytest.raises(TooSimilar, match=r"code of a role \(reference\) 1.00 like 'shards'"):
        require_new(dataclasses.replace(other, code=mixed))


def test_a_reworded_prompt_is_refused(other, made):
    """Every eighth word is another one and sentences stand in another order: runs of eight are gone, words not."""
    words = made("warehouse", 0, "unit").prompt.split()
    changed = [f"other{place}" if place % 8 == 0 else word for place, word in enumerate(words)]
    prompt = fingerprint("new", sources("warehouse"), " ".join(changed[::-1]), {}).prompt
    found = {
        one.measure: one
        for one in likenesses(dataclasses.replace(other, prompt=prompt), [registered("warehouse")])
    }
    assert not found["prompt"].refused
    assert found["prompt words"].refused
    with pytest.raises(TooSimilar, match="prompt words"):
        require_new(dataclasses.replace(other, prompt=prompt))


def test_renamed_data_is_refused(other, made):
    """Other columns, other values of the same look, comma for tab, another order of columns, other paths."""
    shift = str.maketrans("abcdefghij0123456789", "ghijabcdef5678901234")
    files = {}
    for number, (path, data) in enumerate(made("warehouse", 5, "unit").files.items()):
        if path.endswith((".csv", ".tsv")):
            table = decode(data, path)
            rows = tuple(tuple(str(cell).translate(shift) for cell in row[::-1]) for row in table.rows)
            columns = tuple(f"c{place}" for place in range(len(table.columns)))
            files[f"input/f{number}.csv"] = encode(Table(columns, rows), "x.csv")
        else:
            files[f"input/f{number}{path[path.rindex('.') :]}"] = data
    data = fingerprint("new", sources("warehouse"), "", files).data
    with pytest.raises(TooSimilar, match=r"data [01]\.\d+ like 'warehouse'"):
        require_new(dataclasses.replace(other, data=data))


def test_what_is_like_nothing_is_let_in(other):
    assert not [one for one in require_new(other) if one.refused]


def test_another_seed_and_tier_of_a_generator_keeps_its_fingerprint_near(made):
    told = sources("shards")
    made_again = made("shards", 3, "nano")
    again = fingerprint("again", told, made_again.prompt, made_again.files)
    assert {one.measure for one in likenesses(again, [registered("shards")]) if one.refused} >= {
        "code",
        "prompt",
        "data",
    }


def test_a_missing_role_is_told():
    told = {role: "" for role in ROLES if role != "workflow"}
    with pytest.raises(WorldError, match="no source of the role 'workflow'"):
        fingerprint("new", told, "", {})


def test_broken_inputs_have_a_makeup_too():
    files = {
        "input/a.json": b"{",
        "input/b.csv": b"x,y\n1\n",
        "input/c.bin": b"\0",
        "input/d.jsonl": b'{"a":1}\n[2]\n',
    }
    found = fingerprint("new", dict.fromkeys(ROLES, ""), "", files).data
    assert {"broken .json", "broken .csv", "file .bin"} <= found
