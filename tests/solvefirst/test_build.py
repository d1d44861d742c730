"""Builds: complete, even and unique; the same after SIGKILL, with lost workers, and in any order of the work."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from small import SMALL

from truthfirst.records import read_jsonl
from truthfirst.solvefirst import backends, build_store, build_work, manifest
from truthfirst.solvefirst import build as building
from truthfirst.solvefirst.admit.gates import GATES
from truthfirst.solvefirst.build import Built, build, main
from truthfirst.solvefirst.build_plan import CorpusPlan, check_plan, places
from truthfirst.solvefirst.build_work import BuildError


def test_every_place_is_filled_as_planned(small_corpus: Built, small_plan: CorpusPlan):
    public, sealed = small_corpus.public, small_corpus.sealed
    planned = places(small_plan)
    for name in ("family", "size", "split", "budget", "domain"):
        assert public[name].tolist() == [getattr(place, name) for place in planned]
    assert sealed["id"].tolist() == public["id"].tolist()
    assert public["id"].is_unique
    for place, index in zip(planned, sealed["index"], strict=True):
        assert index % place.stride == place.first
    assert (sealed["u_star"] - sealed["u_zero"] >= 2).all()
    assert (sealed["u_reach"] <= sealed["u_star"]).all()
    ample = (public["budget"] == "ample").to_numpy()
    assert (sealed.loc[ample, "u_reach"] == sealed.loc[ample, "u_star"]).all()
    assert (sealed["turns"] == sealed["decisions"] + public["probes"]).all()
    assert {tuple(gates) for gates in public["gates"]} == {(*GATES, "unique")}


def test_no_public_view_or_instance_is_shared(small_corpus: Built):
    assert small_corpus.public["view_hash"].is_unique
    assert small_corpus.sealed["theta_hash"].is_unique
    address = ["family", "size", "split", "seed", "index"]
    assert not small_corpus.public.merge(small_corpus.sealed, on="id")[address].duplicated().any()


def test_rejected_candidates_are_kept_with_gate_and_evidence(small_corpus: Built):
    rejected = manifest.load_rejected(small_corpus.folder)
    assert len(rejected) == len(small_corpus.candidates) - SMALL["environments"] > 0
    assert rejected["gate"].notna().all()
    assert rejected["evidence"].str.contains(r"\d").all()
    margins = rejected[rejected["gate"] == "margin"]
    assert margins["evidence"].str.contains("needs at least").all()


def test_the_order_in_which_work_is_done_does_not_matter(
    small_corpus: Built, small_plan, tmp_path, monkeypatch
):
    def shuffled(work: Any, jobs: Any, workers: int, address: str | None = None) -> Any:
        jobs = list(jobs)
        random.Random(3).shuffle(jobs)
        yield from map(work, jobs)

    monkeypatch.setitem(backends.BACKENDS, "joblib", shuffled)
    assert build(small_plan, tmp_path, workers=1, progress=False).hash == small_corpus.hash


def test_a_repeated_view_gives_way_to_the_next_instance(small_plan, tmp_path, monkeypatch):
    """Two places whose candidates look alike: the later one in the plan's order becomes another instance."""
    plan = small_plan.model_copy(
        update={"environments": 3, "families": ("rationing",), "splits": {"train": 1.0}}
    )
    true_work = building.work
    first = [place.recipe(plan, 0) for place in places(plan)]

    def alike(job: Any) -> dict[str, Any]:
        record = true_work(job)
        if job.recipe == first[2]:
            record["view_hash"] = true_work(building.Job(job.cell, first[0], job.reach))["view_hash"]
        return record

    monkeypatch.setattr(building, "work", alike)
    built = build(plan, tmp_path, workers=1, progress=False)
    assert built.sealed["index"].tolist()[:2] == [0, 1]
    assert built.sealed["index"].iloc[2] in range(5, 200, 3)
    lost = built.rejected.iloc[0]
    assert (lost["gate"], lost["index"]) == ("unique", 2)
    assert built.public["id"].iloc[0] in lost["evidence"]


def test_a_candidate_that_is_not_built_again_alike_ends_the_build(small_plan, tmp_path, monkeypatch):
    true_work = building.work
    monkeypatch.setattr(building, "work", lambda job: true_work(job) | {"view_hash": f"other {job.key}"})
    plan = small_plan.model_copy(update={"environments": 2, "families": ("pricing",)})
    with pytest.raises(BuildError, match="does not determine it"):
        build(plan, tmp_path, workers=1, progress=False)


def test_a_place_that_no_candidate_fills_is_named(tmp_path):
    plan = check_plan(SMALL | {"attempts": 1, "families": ["scheduling"], "environments": 8})
    wanted = r"1 candidates each; the first is scheduling, nano, .* rejected by margin: u_star - u_zero = \d"
    with pytest.raises(BuildError, match=wanted):
        build(plan, tmp_path, workers=1, progress=False)


def test_a_missed_requirement_fails_the_build_and_says_by_how_much(tmp_path, capsys):
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(SMALL | {"environments": 6, "require": {"mean_turns": 59.7}}))
    assert main([str(file), "--out", str(tmp_path / "out"), "--workers", "1"]) == 1
    assert "required is at least 59.7" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "build.json").read_text())["missed"]


@pytest.mark.parametrize(
    ("arguments", "plan", "message"),
    [
        (["--workers", "0"], SMALL, "workers must be from 1 to"),
        (["--workers", "1000"], SMALL, "got 1000"),
        ([], SMALL | {"families": ["alchemy"]}, "unknown family"),
        ([], SMALL | {"sizes": {"nano": float("inf")}}, "sizes.nano"),
    ],
)
def test_wrong_input_ends_with_code_2_and_leaves_nothing(
    tmp_path, capsys, monkeypatch, arguments, plan, message
):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    file, folder = tmp_path / "plan.yaml", tmp_path / "out"
    file.write_text(yaml.safe_dump(plan))
    assert main([str(file), "--out", str(folder), *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not folder.exists()


# --- interruptions ----------------------------------------------------------------------------------------
def start(plan: dict[str, Any], folder: Path, *options: str) -> subprocess.Popen[str]:
    file = folder.parent / f"{folder.name}.yaml"
    file.write_text(yaml.safe_dump(plan))
    command = [sys.executable, "-m", "truthfirst.solvefirst.build", str(file), "--out", str(folder), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_records(folder: Path, count: int, process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait until the store of a running build holds `count` whole records of candidates."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        store = folder / "candidates.jsonl"
        lines = store.read_bytes().split(b"\n")[:-1] if store.exists() else []
        found = [record for record in map(json.loads, lines) if "recipe" in record]
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"no {count} records came: {process.communicate()[1]}")


def test_a_killed_build_goes_on_where_it_was(small_corpus: Built, tmp_path):
    folder = tmp_path / "killed"
    process = start(SMALL, folder, "--workers", "1")
    wait_for_records(folder, 5, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    store = folder / "candidates.jsonl"
    with open(store, "ab") as file:
        file.write(b'{"key": "half a rec')  # as a power cut may leave it
    before = len([line for line in store.read_bytes().split(b"\n")[:-1] if line])
    again = start(SMALL, folder, "--workers", "1")
    out, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    assert small_corpus.hash in out
    records = list(read_jsonl(store))
    assert len({record["key"] for record in records}) == len(records)  # nothing was done twice
    assert json.loads((folder / "build.json").read_text())["jobs_done_now"] == len(records) - before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_build_says_so_and_goes_on(small_corpus: Built, small_plan, tmp_path, number):
    """Ctrl-C reaches every process of the group, SIGTERM the one that was started: one line, no traceback."""
    folder = tmp_path / "stopped"
    process = start(SMALL, folder, "--workers", "2")
    wait_for_records(folder, 3, process)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert errors.splitlines()[-1] == "stopped; the same command goes on where this one ended"
    assert not {"Traceback", "Warning", "Error"} & set(errors.replace(":", " ").split())
    before = len(list(read_jsonl(folder / "candidates.jsonl")))
    again = build(small_plan, folder, workers=1, progress=False)
    assert again.hash == small_corpus.hash
    total = len(list(read_jsonl(folder / "candidates.jsonl")))
    assert again.summary["jobs_done_now"] == total - before > 0


def test_a_killed_worker_loses_nothing(small_corpus: Built, tmp_path):
    folder = tmp_path / "orphaned"
    process = start(SMALL, folder, "--workers", "2")
    worker = int(wait_for_records(folder, 2, process)[-1]["worker"].rpartition(":")[2])
    assert worker != process.pid
    os.kill(worker, signal.SIGKILL)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert small_corpus.hash in out
    workers = {record["worker"] for record in read_jsonl(folder / "candidates.jsonl")}
    assert len(workers) >= 3  # two, and at least one that took over


def test_a_finished_build_does_nothing_again(small_corpus: Built, small_plan, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(small_corpus.folder, folder)
    again = build(small_plan, folder, workers=1, progress=False)
    assert again.hash == small_corpus.hash
    assert again.summary["jobs_done_now"] == 0


def test_records_of_other_code_are_not_used(small_corpus: Built, small_plan, tmp_path, monkeypatch):
    shutil.copy(small_corpus.folder / "candidates.jsonl", tmp_path / "candidates.jsonl")
    for module in (building, build_work):
        monkeypatch.setattr(module, "library_hash", lambda corpus=None: "changed")
    again = build(small_plan, tmp_path, workers=1, progress=False)
    assert again.summary["jobs_done_now"] >= len(
        small_corpus.candidates
    )  # with its own code: none, see above
    assert again.hash == small_corpus.hash


def test_two_builds_do_not_write_to_one_store(small_corpus: Built, small_plan, tmp_path):
    with (
        build_store.only_writer(tmp_path / "candidates.jsonl"),
        pytest.raises(BuildError, match="another build is writing"),
    ):
        build(small_plan, tmp_path, workers=1, progress=False)
