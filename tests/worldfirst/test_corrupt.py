"""Damage: every operator has an exact inverse, in any order of acts; a plan that does not fit raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.worldfirst.corrupt import CODECS, OPERATORS, CorruptionError, Draft, corrupt, restore, text64
from truthfirst.worldfirst.tables import Table, decode, encode
from truthfirst.worldfirst.world import Defect

COLUMNS = ("id", "day", "cents")
TABLE = Table(COLUMNS, tuple((f"k{n}", f"2031-0{n % 9 + 1}-1{n}", str(n * 37)) for n in range(6)))
FILES = {f"input/t.{ending}": encode(TABLE, f"t.{ending}") for ending in ("csv", "tsv", "json", "jsonl")}
ACTS = ("rename", "replace", "insert", "delete", "permute", "recode", "move", "exchange")


def add(draft: Draft, act: str, path: str, number: int) -> None:
    """Add one damage of a kind, fitted to what the file is by now; `number` decides the details."""
    table = draft.table(path)
    size = len(table.rows)
    row = number % size
    if act == "rename":
        draft.add(
            "schema drift", "rename_columns", path, names={table.columns[0]: f"c{number}x{len(draft.plan)}"}
        )
    elif act == "replace":
        cell = table.rows[row][0]
        draft.add("drift", "replace_cells", path, column=table.columns[0], cells=[[row, cell, f"{cell}!"]])
    elif act == "insert":
        draft.add(
            "duplicates", "insert_rows", path, rows=[[size, list(table.rows[row])], [0, list(table.rows[0])]]
        )
    elif act == "delete" and size > 2:
        draft.add("missing rows", "delete_rows", path, rows=[[n, list(table.rows[n])] for n in (0, size - 1)])
    elif act == "permute":
        order = list(range(size))[::-1]
        draft.add("lost order", "permute_rows", path, order=order[number % size :] + order[: number % size])
    elif act == "recode" and all("." not in str(cells[1]) for cells in table.rows):
        draft.add(
            "format drift", "recode_column", path, column=table.columns[1], codec="iso date -> dd.mm.yyyy"
        )
    elif act == "exchange":
        old = draft.files[path]
        new = encode(Table(table.columns, table.rows[::-1]), path)
        draft.add("stale file", "replace_file", path, old=text64(old), new=text64(new))


@given(
    st.lists(
        st.tuples(st.sampled_from(ACTS), st.sampled_from(sorted(FILES)), st.integers(0, 50)), max_size=12
    )
)
def test_any_damage_is_undone_exactly(acts):
    draft = Draft(FILES, OPERATORS)
    for act, path, number in acts:
        add(draft, act, path, number)
    damaged = corrupt(FILES, draft.plan, OPERATORS)
    assert damaged == draft.files
    assert restore(damaged, draft.plan, OPERATORS) == FILES
    plan = json.loads(json.dumps([[d.kind, d.operator, d.path, d.parameters] for d in draft.plan]))
    assert restore(damaged, [Defect(*entry) for entry in plan], OPERATORS) == FILES, "a plan is JSON"


def test_a_file_can_be_misplaced():
    plan = [Defect("misplaced file", "move_file", "input/t.csv", {"to": "input/u.csv"})]
    damaged = corrupt(FILES, plan, OPERATORS)
    assert "input/t.csv" not in damaged
    assert restore(damaged, plan, OPERATORS) == FILES
    with pytest.raises(CorruptionError, match="must exist"):
        corrupt(damaged, plan, OPERATORS)


def test_a_file_can_be_lost_and_lines_can_come_in():
    path = "input/t.csv"
    plan = [
        Defect("torn lines", "insert_lines", path, {"lines": [[1, "k0,20"], [3, ""]]}),
        Defect("lost files", "lose_file", "input/t.tsv", {"content": text64(FILES["input/t.tsv"])}),
    ]
    damaged = corrupt(FILES, plan, OPERATORS)
    assert "input/t.tsv" not in damaged
    lines = FILES[path].split(b"\n")
    assert damaged[path].split(b"\n") == [lines[0], b"k0,20", lines[1], b"", *lines[2:]]
    assert restore(damaged, plan, OPERATORS) == FILES
    with pytest.raises(CorruptionError, match="does not hold"):
        corrupt(damaged, plan[1:], OPERATORS)
    with pytest.raises(CorruptionError, match="it is there"):
        restore(FILES, plan[1:], OPERATORS)
    with pytest.raises(CorruptionError, match="line 3"):
        restore(FILES, plan[:1], OPERATORS)
    with pytest.raises(CorruptionError, match="no position 99"):
        corrupt(FILES, [Defect("", "insert_lines", path, {"lines": [[99, "x"]]})], OPERATORS)


def test_what_an_operator_does_is_what_it_says():
    draft = Draft(FILES, OPERATORS)
    draft.add("format drift", "recode_column", "input/t.csv", column="day", codec="iso date -> dd.mm.yyyy")
    draft.add("unit drift", "recode_column", "input/t.csv", column="cents", codec="cents -> decimal")
    draft.add("schema drift", "rename_columns", "input/t.csv", names={"cents": "each"})
    found = draft.table("input/t.csv")
    assert found.columns == ("id", "day", "each")
    assert found.rows[1] == ("k1", "11.02.2031", "0.37")
    assert found.rows[5] == ("k5", "15.06.2031", "1.85")


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        ("no_such", {}),
        ("rename_columns", {"names": {"x": "y"}}),
        ("rename_columns", {"names": {"id": "day"}}),
        ("replace_cells", {"column": "id", "cells": [[0, "k1", "k2"]]}),
        ("replace_cells", {"column": "id", "cells": [[99, "k1", "k2"]]}),
        ("insert_rows", {"rows": [[9, ["a", "b", "c"]]]}),
        ("delete_rows", {"rows": [[0, ["a", "b", "c"]]]}),
        ("permute_rows", {"order": [0, 0, 1, 2, 3, 4]}),
        ("recode_column", {"column": "cents", "codec": "iso date -> dd.mm.yyyy"}),
        ("replace_file", {"old": "", "new": ""}),
    ],
)
def test_a_plan_that_does_not_fit_raises(operator, parameters):
    with pytest.raises((CorruptionError, ValueError)):
        corrupt(FILES, [Defect("x", operator, "input/t.csv", parameters)], OPERATORS)


def test_a_wrong_plan_does_not_restore():
    plan = [Defect("x", "replace_cells", "input/t.csv", {"column": "id", "cells": [[0, "k0", "k9"]]})]
    with pytest.raises(CorruptionError, match="does not hold"):
        restore(FILES, plan, OPERATORS)
    with pytest.raises(CorruptionError, match="no file"):
        corrupt({}, plan, OPERATORS)


@given(st.integers(0, 10**9))
def test_cents_survive_as_decimals(cents):
    there, back = CODECS["cents -> decimal"]
    assert back(there(str(cents))) == str(cents)
    assert float(str(there(str(cents)))) == pytest.approx(cents / 100)


def test_a_value_that_does_not_survive_recoding_is_refused():
    files = {"input/t.csv": encode(Table(("a",), (("007",),)), "t.csv")}
    plan = [Defect("x", "recode_column", "input/t.csv", {"column": "a", "codec": "cents -> decimal"})]
    with pytest.raises(CorruptionError, match="does not survive"):
        corrupt(files, plan, OPERATORS)
    assert decode(files["input/t.csv"], "t.csv").rows == (("007",),)


def test_an_act_that_leaves_no_trace_is_no_damage() -> None:
    path = next(iter(FILES))
    draft = Draft(FILES, OPERATORS)
    number = len(draft.table(path).rows)
    draft.add("lost order", "permute_rows", path, order=list(range(number)))
    assert draft.plan == []
    draft.add("lost order", "permute_rows", path, order=list(range(number))[::-1])
    assert len(draft.plan) == 1
