"""Harbor tasks: complete, sealed, byte-identical, worth 1 solved and 0 otherwise, and read back by others' loaders."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from truthfirst.export import harbor, sealed, trial, vendor
from truthfirst.export.grader import grade, scanned
from truthfirst.export.harbor import ExportError, export_all, export_task, task_files
from truthfirst.sandbox import Limits, Program, available, run
from truthfirst.worldfirst.generators import GENERATORS
from truthfirst.worldfirst.instances import Instance, instance
from truthfirst.worldfirst.scan import Bounds, Link, pack

needs_sandbox = pytest.mark.skipif(not available(), reason=available().reason or "there is a sandbox")
PACKAGES = ("networkx",)
JOB = ("warehouse", "nano", 0)
READ = """
import sys, warnings
warnings.simplefilter("error")
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition
for folder in sys.argv[1:]:
    task = Task(folder)
    own = resolve_verifier_environment_definition(task.config, task.paths)
    assert Task.is_valid_dir(folder) and own.directory.name == "tests" and own.bundled_tests
    print(task.name)
"""


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance("warehouse", 0, "nano")


@pytest.fixture(scope="module")
def exported(tmp_path_factory, made) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("harbor")
    assert export_all([JOB], out) == []
    return out / "tasks" / made.id, json.loads((out / "index.jsonl").read_text())


@pytest.fixture(scope="module")
def answer(made) -> dict[str, bytes]:
    return {**made.files, **made.generator.reference(made.files)}


def sealed_task(made: Instance) -> dict:
    return json.loads(task_files(made)["tests/sealed.json"])


# --- content ----------------------------------------------------------------------------------------------
def test_the_same_instance_gives_the_same_bytes(made):
    assert task_files(made) == task_files(instance("warehouse", 0, "nano"))


def test_a_task_has_the_parts_of_the_format_and_the_recipe(made):
    files = task_files(made)
    task = tomllib.loads(files["task.toml"].decode())
    assert {name: task["metadata"][name] for name in made.recipe} == made.recipe
    assert task["task"]["name"] == f"truthfirst/{made.id}"
    assert task["environment"]["workdir"] == "/workspace"
    assert files["instruction.md"].decode().endswith(made.prompt)
    for path, data in made.files.items():
        assert files[f"environment/{path}"] == data


@pytest.mark.parametrize("name", GENERATORS)
def test_nothing_of_the_truth_lies_outside_tests(name):
    one = instance(name, 0, "nano")
    files = task_files(one)
    image = {path: data for path, data in files.items() if path.startswith("environment/")}
    assert image.keys() == {"environment/Dockerfile", *(f"environment/{path}" for path in one.files)}
    secret = json.loads(files["tests/sealed.json"])["sealed"]["plan"][0]
    needle = json.dumps(secret["parameters"], separators=(",", ":"), ensure_ascii=False).encode()
    assert len(needle) > 20
    assert [path for path, data in files.items() if needle in data] == ["tests/sealed.json"]


@pytest.mark.parametrize("name", GENERATORS)
def test_a_grader_travels_whole_and_without_a_solver(name):
    files = vendor.sources(name)
    roles = {Path(path).stem for path in files if f"/generators/{name}/" in path}
    assert {"world", "verifier", "progress"} <= roles
    assert not roles & {"reference", "alternative", "sample", "suite"}
    assert "truthfirst/worldfirst/scan.py" in files
    for source in files.values():
        ast.parse(source)
    expected = {"networkx"} | ({"numpy", "safetensors"} if name == "shards" else set())
    assert vendor.packages(files).keys() == expected


@pytest.mark.parametrize("name", GENERATORS)
def test_a_sealed_world_comes_back_from_json_in_order(name):
    one = instance(name, 1, "nano")
    told = json.loads(json.dumps(sealed.encode(one.sealed)))
    back = sealed.decode(told, harbor.sys.modules[f"{harbor.PACKAGE}.{name}.world"])
    assert back == one.sealed
    assert json.dumps(sealed.encode(back)) == json.dumps(told)


# --- worth ------------------------------------------------------------------------------------------------
def test_what_travels_grades_as_the_episode_does(made, answer, tmp_path):
    task = sealed_task(made)
    assert task["bounds"]["total_bytes"] == Bounds.of(made.files).total_bytes
    for dropped in (None, *made.generator.deliverables):
        files = {path: data for path, data in answer.items() if dropped is None or path != dropped.path}
        outputs = {path: data for path, data in files.items() if path.startswith("output/")}
        root = tmp_path / (dropped.path.replace("/", "-") if dropped else "whole")
        harbor._write(outputs, root)
        found = grade(task, scanned(root, Bounds(**task["bounds"])))
        assert found.reward == int(made.verify(files).passed) == int(dropped is None)
        assert found.phi == made.potential(files)


def test_a_hostile_or_missing_workspace_is_worth_nothing(made, answer, tmp_path):
    task = sealed_task(made)
    harbor._write({path: data for path, data in answer.items() if path.startswith("output/")}, tmp_path / "w")
    (tmp_path / "w" / "output" / "more.csv").symlink_to("/etc/passwd")
    linked = grade(task, scanned(tmp_path / "w", Bounds(**task["bounds"])))
    assert (linked.reward, linked.phi) == (0, 0)
    assert "is a link" in linked.reasons[0]
    gone = grade(task, scanned(tmp_path / "none", Bounds(**task["bounds"])))
    assert (gone.reward, gone.phi) == (0, 0)
    assert "cannot be opened" in gone.reasons[0]


@needs_sandbox
def test_oracle_is_1_and_no_op_is_0(exported, made):
    folder, row = exported
    assert (row["oracle"], row["oracle_phi"], row["no_op"]) == (1, 1.0, 0)
    assert row["no_op_phi"] == float(made.potential(made.files))
    assert [path.name for path in folder.parent.iterdir()] == [made.id], "nothing temporary is left"


@needs_sandbox
def test_tampered_outputs_are_worth_0(exported, answer):
    folder, _ = exported
    path = "output/manifest.json"
    for changed in (answer[path].replace(b"1", b"2"), Link("/etc/passwd")):
        found = trial.graded(folder, pack({**answer, path: changed}), PACKAGES)
        assert found.reward == 0
        assert found.phi < 1


@needs_sandbox
def test_a_task_whose_oracle_fails_is_refused_by_name(made, tmp_path, monkeypatch):
    lazy = b"import pathlib\npathlib.Path('output').mkdir()\n"
    monkeypatch.setattr(harbor, "task_files", lambda one: {**task_files(one), "solution/solve.py": lazy})
    with pytest.raises(ExportError, match=f"{made.id}, seed 0: the oracle reward is 0, not 1"):
        export_task(made, tmp_path / "tasks" / made.id)
    assert list((tmp_path / "tasks").iterdir()) == []


@needs_sandbox
def test_a_task_that_pays_for_nothing_is_refused(made, tmp_path, monkeypatch):
    reward = b'{"reward": 1, "phi": 1}'
    generous = b"#!/bin/bash\nmkdir $TRUTHFIRST_LOGS\necho '%s' > $TRUTHFIRST_LOGS/reward.json\n" % reward
    monkeypatch.setattr(harbor, "task_files", lambda one: {**task_files(one), "tests/test.sh": generous})
    with pytest.raises(ExportError, match="the no_op reward is 1, not 0"):
        export_task(made, tmp_path / made.id)


@needs_sandbox
def test_the_solver_sees_no_tests_and_the_verifier_no_solution(exported):
    folder, _ = exported
    shown = {"/solution": folder / "solution"}
    listing = run(
        Program(("/bin/sh", "-c", "ls /solution; ls /tests; touch /solution/x"), shell=True, shown=shown)
    )
    assert listing.stdout.split() == ["solve.py", "solve.sh"]
    assert "/tests" in listing.stderr
    assert "Read-only" in listing.stderr


@pytest.mark.parametrize("place", ["relative", "/a/../b", "/a//b", "/"])
def test_a_place_to_show_something_must_be_absolute(place, tmp_path):
    with pytest.raises(ValueError, match="must be absolute"):
        Program(("/x",), shown={place: tmp_path}, limits=Limits())


# --- many -------------------------------------------------------------------------------------------------
@needs_sandbox
def test_an_export_goes_on_where_it_was(exported, tmp_path, monkeypatch):
    out, row = exported[0].parents[1], exported[1]
    assert (row["seed"], row["oracle"], row["no_op"]) == (0, 1, 0)
    shutil.copytree(out, tmp_path / "copy")
    whole, calls = harbor.export_task, []
    monkeypatch.setattr(harbor, "export_task", lambda *told: calls.append(told) or whole(*told))
    assert export_all([JOB], tmp_path / "copy") == []
    assert calls == [], "a finished task is left alone"
    (tmp_path / "copy" / "tasks" / row["id"] / "task.toml").write_text("damaged")
    assert export_all([JOB], tmp_path / "copy") == []
    assert len(calls) == 1
    again = json.loads((tmp_path / "copy" / "index.jsonl").read_text())
    assert again["content"] == row["content"], "made again to the same bytes"


def test_a_refused_task_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    def refuse(made: Instance, folder: Path) -> dict:
        raise ExportError(f"{made.id}: no")

    monkeypatch.setattr(harbor, "export_task", refuse)
    refused = export_all([("warehouse", "nano", 0), ("warehouse", "nano", 1)], tmp_path)
    assert [line.partition(":")[0] for line in refused] == [
        "warehouse, nano, seed 0",
        "warehouse, nano, seed 1",
    ]


@pytest.mark.parametrize("text", ["", "x", "4-2", "-1"])
def test_seeds_are_a_number_or_a_range(text):
    assert harbor._seeds("0-2") == [0, 1, 2]
    assert harbor._seeds("7") == [7]
    with pytest.raises(harbor.argparse.ArgumentTypeError):
        harbor._seeds(text)


def test_a_truth_that_is_no_json_is_refused(made):
    first, *rest = made.sealed.plan
    odd = replace(first, parameters={**first.parameters, "extra": (1, 2)})
    with pytest.raises(ExportError, match="does not come back"):
        task_files(replace(made, sealed=replace(made.sealed, plan=(odd, *rest))))


# --- read back --------------------------------------------------------------------------------------------
@needs_sandbox
def test_the_loader_of_trl_reads_it(exported):
    pytest.importorskip("datasets")
    loader = pytest.importorskip("trl.experimental.harbor")
    folder, _ = exported
    rows = loader.HarborSpec(str(folder.parents[1])).train_dataset
    assert rows["task_dir"] == [str(folder)]
    assert rows["difficulty_level"] == ["nano"]


@needs_sandbox
@pytest.mark.skipif(
    "TRUTHFIRST_HARBOR_PYTHON" not in os.environ, reason="names a Python with the harbor package"
)
def test_the_harbor_package_reads_it(exported):
    folder, _ = exported
    command = [os.environ["TRUTHFIRST_HARBOR_PYTHON"], "-c", READ, str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == [f"truthfirst/{folder.name}"]
