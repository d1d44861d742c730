"""The one YAML loader: scalars of the 1.2 core schema, and no key twice; grids and plans read it alike."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from truthfirst.core_yaml import YamlError, load_yaml
from truthfirst.runs import RunError
from truthfirst.runs_grid import read_grid
from truthfirst.solvefirst.build_plan import PlanError, read_plan_file


@pytest.mark.parametrize(
    ("text", "value"),  # YAML 1.2.2, example 10.9 and the table of section 10.3.2
    [
        ("A null: null", {"A null": None}),
        ("Booleans: [true, True, false, FALSE]", {"Booleans": [True, True, False, False]}),
        ("Integers: [0, 0o7, 0x3A, -19]", {"Integers": [0, 7, 58, -19]}),
        ("Floats: [0., -0.0, .5, +12e03, -2E+05]", {"Floats": [0.0, -0.0, 0.5, 12000.0, -200000.0]}),
        ("Also floats: [.inf, -.Inf, +.INF]", {"Also floats": [math.inf, -math.inf, math.inf]}),
        ("Texts: [no, on, 1:30, 2020-01-01, 0b1]", {"Texts": ["no", "on", "1:30", "2020-01-01", "0b1"]}),
    ],
)
def test_scalars_are_those_of_the_core_schema(text: str, value: Any):
    assert load_yaml(text, "t") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", r"t, line 3: not YAML \(the key 'a' stands twice\)"),
        ("a:\n  b: {c: 1, c: 2}", r"t, line 2: .*'c' stands twice"),
        ("a: [1", "t, line 1: not YAML"),
        ("a: !!python/name:os.system x", "t, line 1: not YAML"),
        ("a: \x00", "t.*: not YAML"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(text: str, message: str):
    with pytest.raises(YamlError, match=message) as caught:
        load_yaml(text, "t")
    assert "\n" not in str(caught.value)


def test_a_grid_and_a_plan_refuse_the_same_file(tmp_path: Path):
    file = tmp_path / "twice.yaml"
    file.write_text("name: a\nname: b\n")
    with pytest.raises(RunError, match="'name' stands twice"):
        read_grid(file)
    with pytest.raises(PlanError, match="'name' stands twice"):
        read_plan_file(file)
