"""Presets, parameters, ids, grids, and requests that are refused before anything is written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from tiny import notebook

from truthfirst import paths, presets, runs_plan
from truthfirst.runs import RunError
from truthfirst.runs_cli import main
from truthfirst.runs_grid import load_yaml, parse_assignments, read_grid
from truthfirst.runs_plan import plan_run


def test_presets_grow_and_an_unknown_one_lists_them() -> None:
    smoke, cpu, gpu = (presets.resolve(name) for name in ("smoke", "cpu", "gpu"))
    assert smoke.instances < cpu.instances < gpu.instances
    assert set(smoke.sizes) < set(cpu.sizes) <= set(gpu.sizes)
    with pytest.raises(presets.UnknownPreset, match="'laptop': choose one of smoke, cpu, gpu"):
        presets.resolve("laptop")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cpu", "cpu"),
        ("3", 3),
        ("010", 10),
        ("0x10", 16),
        ("1e-3", 0.001),
        ("-.5", -0.5),
        ("true", True),
        ("no", "no"),
        ("2020-01-01", "2020-01-01"),
        ("1:30", "1:30"),
        ("[a, 1]", ["a", 1]),
        ("", None),
        ("'7'", "7"),
        ("a=b", "a=b"),
    ],
)
def test_assignments_are_yaml_core_scalars(text: str, value: object) -> None:
    got = parse_assignments([f"x={text}"])["x"]
    assert got == value
    assert type(got) is type(value)


def test_the_id_follows_parameters_source_and_code_but_not_outputs(home: Path) -> None:
    path = notebook(home, "01_small", "preset = 'smoke'\nseed = 0\nrate: float = 1", "x = 1")
    plan = plan_run("01_small", {"seed": 7})
    assert plan.run_id.startswith("01_small-preset=smoke-seed=7-")
    assert plan.parameters == {"preset": "smoke", "seed": 7, "rate": 1}
    assert plan_run(path, {"seed": 7, "preset": "smoke"}).run_id == plan.run_id
    assert plan_run(path, {"seed": 8}).run_id != plan.run_id
    node = nbformat.read(path, as_version=4)
    node.cells[1].outputs = [nbformat.v4.new_output("stream", text="seen")]
    node.cells[1].execution_count = 3
    nbformat.write(node, path)
    assert plan_run(path, {"seed": 7}).run_id == plan.run_id
    node.cells[1].source = "x = 2"
    nbformat.write(node, path)
    edited = plan_run(path, {"seed": 7}).run_id
    assert edited != plan.run_id
    (runs_plan.PACKAGE / "new_module.py").write_text("x = 1\n")
    recoded = plan_run(path, {"seed": 7}).run_id
    assert recoded not in (edited, plan.run_id)
    (home / "data" / "corpus").mkdir(parents=True)
    (home / "data" / "corpus" / "tea.md").write_text("Tea grows on hills.")
    assert plan_run(path, {"seed": 7}).run_id not in (recoded, edited, plan.run_id)


def test_a_label_stays_short_and_safe(home: Path) -> None:
    notebook(home, "a ü{b}", "text = ''\nnames = []", "text")
    plan = plan_run("a ü{b}", {"text": "../é/" * 40, "names": ["x", "y"] * 40})
    assert len(plan.run_id) < 100
    assert plan.folder.parent == home / "papermill_runs"
    assert set(plan.run_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.=+-")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("import os", "line 1: 'import os' does not assign a literal"),
        ("a = 1\nb = a + 1", "line 2: 'b = a \\+ 1' does not assign a literal"),
        ("a = float('nan')", "does not assign a literal"),
        ("a = 1e999", "does not assign a literal"),
        ("a, b = 1, 2", "does not assign a literal"),
        ("a = {1, 2}", "does not assign a literal"),
        ("a = (", "parameters cell, line 1"),
    ],
)
def test_a_parameters_cell_of_anything_but_literals_is_refused(home: Path, cell: str, message: str) -> None:
    notebook(home, "01_small", cell)
    with pytest.raises(RunError, match=message):
        plan_run("01_small", {})


def test_git_state_is_the_commit_of_the_repository_itself(tmp_path: Path) -> None:
    assert runs_plan.git_state(tmp_path) is None
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    state = runs_plan.git_state(tmp_path)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "inner").mkdir()
    (tmp_path / "new.txt").write_text("new")
    assert runs_plan.git_state(tmp_path) == {"commit": state["commit"], "dirty": True}
    assert runs_plan.git_state(tmp_path / "inner") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["01_small", "-p", "sed=1"],
            "01_small.ipynb declares no parameter sed; it declares preset, seed, rate",
        ),
        (["02_none", "-p", "seed=1"], "it declares none"),
        (["03_absent"], "no notebook '03_absent' here or in notebooks/; there: 01_small, 02_none"),
        (["01_small", "-p", "preset=laptop"], "unknown preset 'laptop': choose one of smoke, cpu, gpu"),
        (["study", "--preset", "laptop"], "unknown preset 'laptop'"),
        (["study"], "02_none.ipynb declares no parameter preset"),
        (["01_small", "-p", "seed=-1"], "seed must be at least 0, got -1"),
        (["01_small", "-p", "seed=1.5"], "parameter seed = 1.5: expected an integer"),
        (["01_small", "-p", "seed=true"], "parameter seed = True: expected an integer"),
        (["01_small", "-p", "rate=fast"], "parameter rate = 'fast': expected a number"),
        (["01_small", "-p", "rate=.nan"], "parameter rate = nan: give finite JSON values"),
        (["01_small", "-p", "seed"], "-p seed: write it as name=value"),
        (["01_small", "-p", "seed=1", "-p", "seed=2"], "-p seed is given twice"),
        (["01_small", "-p", "rate=[1"], "-p rate, line 1: not YAML"),
        (["grid", "absent.yaml"], "absent.yaml cannot be read"),
        (["grid", "grid.yaml", "--workers", "0"], "--workers 0: expected an integer of at least 1"),
        (["study", "--speed", "9"], "unrecognized arguments: --speed 9"),
        ([], "the following arguments are required"),
        (["04_json"], "04_json.ipynb is not a notebook that can be read"),
        (["05_binary"], "05_binary.ipynb is not a notebook that can be read"),
    ],
)
def test_a_bad_request_is_one_line_and_leaves_nothing(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    notebook(home, "01_small", "preset = 'smoke'\nseed = 0\nrate = 0.1", "seed")
    notebook(home, "02_none", None, "1")
    if words and words[0].startswith("0"):
        (home / "notebooks" / "04_json.ipynb").write_text('{"cells": [')
        (home / "notebooks" / "05_binary.ipynb").write_bytes(b"\x80\x00\xff")
    (home / "grid.yaml").write_text("notebook: 01_small\nproduct: {seed: [1]}\n")
    monkeypatch.chdir(home)
    if words == ["03_absent"]:
        (home / "notebooks" / "04_json.ipynb").unlink()
        (home / "notebooks" / "05_binary.ipynb").unlink()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not paths.RUNS.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("notebook: a\nproduct: {seed: [1}", "grid.yaml, line 2: not YAML"),
        ("notebook: a\nproduct: {seed: [1], seed: [2]}", "line 2: not YAML .the key 'seed' stands twice"),
        ("notebook: !!python/name:os.system a", "not YAML"),
        ("- 1", "expected a mapping"),
        ("", "expected a mapping"),
        ("notebok: a", "unknown key notebok; the keys are notebook, workers"),
        ("product: {seed: [1]}", "notebook = None"),
        ("notebook: a", "names no cell"),
        ("notebook: a\nproduct: {seed: 3}", "product.seed = 3: expected a list"),
        ("notebook: a\nproduct: {seed: []}", "product.seed = \\[\\]: expected a list"),
        ("notebook: a\ncells: [3]", "cells\\[0\\] = 3: expected a mapping"),
        ("notebook: a\ncells: [{1: 2}]", "cells\\[0\\]: 1 is not a parameter"),
        ("notebook: a\nworkers: 0\ncells: [{}]", "workers = 0"),
        ("notebook: a\nfixed: {seed: 1}\nproduct: {seed: [1]}", "seed stands both under fixed and in a cell"),
        (b"notebook: \xff\xfe", "not UTF-8"),
    ],
)
def test_a_malformed_grid_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(RunError, match=message) as caught:
        read_grid(path)
    assert "\n" not in str(caught.value)


def test_a_grid_is_a_product_and_further_cells(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "notebook: a\nworkers: 2\nfixed: {preset: cpu}\nproduct: {rate: [1e-3, 2], on: [no, true]}\n"
        "cells:\n  - {rate: 5}\n"
    )
    grid = read_grid(tmp_path / "grid.yaml")
    assert (grid.notebook, grid.workers) == ("a", 2)
    assert list(grid.cells) == [
        {"preset": "cpu", "rate": 0.001, "on": "no"},
        {"preset": "cpu", "rate": 0.001, "on": True},
        {"preset": "cpu", "rate": 2, "on": "no"},
        {"preset": "cpu", "rate": 2, "on": True},
        {"preset": "cpu", "rate": 5},
    ]
    assert load_yaml("a: &x 1\nb: *x", "text") == {"a": 1, "b": 1}
