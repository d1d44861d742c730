"""The long proofs in small: a slice of each, resumable, and a failed proof is seen."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
import pytest

from truthfirst import paths
from truthfirst.solvefirst import certify as module
from truthfirst.solvefirst import families
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Optimum
from truthfirst.solvefirst.references import candidates, needs_calibration
from truthfirst.solvefirst.solve import SolverTimeout


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "REACH_FILE", tmp_path / "reachable.json")
    monkeypatch.setattr(module, "SIZES", ("nano",))
    return tmp_path


def test_a_slice_of_every_family_is_proven():
    rows = [module.prove(name, "nano", 7) for name in FAMILIES]
    assert {row["verdict"] for row in rows} == {"proven"}
    assert all("enumeration" in str(row["method"]) for row in rows)


def test_proofs_are_stored_resumed_and_redone_for_changed_source(out, monkeypatch):
    store = out / "certify.jsonl"
    first = module.prove_all(["rationing", "bidding"], 2, 1, store)
    assert len(first) == len(pd.read_parquet(out / "certify.parquet")) == 4
    made = []
    real = module.prove
    monkeypatch.setattr(module, "prove", lambda *job: made.append(job) or real(*job))
    module.prove_all(["rationing", "bidding"], 3, 1, store)
    assert made == [("rationing", "nano", 2), ("bidding", "nano", 2)]
    made.clear()
    hashes = {"rationing": "changed"}
    old = module.source_hash
    monkeypatch.setattr(module, "source_hash", lambda name: hashes.get(name) or old(name))
    module.prove_all(["rationing", "bidding"], 3, 1, store)
    assert {job[0] for job in made} == {"rationing"}
    assert len(made) == 3


def _plant(monkeypatch, **changes):
    wrong = dataclasses.replace(FAMILIES["rationing"], **changes)
    monkeypatch.setitem(families.FAMILIES, "rationing", wrong)


def test_a_wrong_bound_and_a_timeout_are_counted_and_not_dropped(monkeypatch):
    bound = FAMILIES["rationing"].bound
    _plant(monkeypatch, bound=lambda theta: bound(theta) + 1)
    row = module.prove("rationing", "nano", 0)
    assert row["verdict"] == "failed"
    assert "gives" in str(row["evidence"])

    def slow(theta) -> Optimum:
        raise SolverTimeout("rationing", "highs", "time limit")

    _plant(monkeypatch, optimum=slow)
    assert module.prove("rationing", "nano", 0)["verdict"] == "timeout"


def test_references_are_calibrated_once_and_stored(out, monkeypatch):
    table = module.calibrate_all(["bidding"], 1, 2)
    assert set(table) == {f"bidding/{size}/tight" for size in FAMILIES["bidding"].sizes}
    assert set(table.values()) <= set(candidates("bidding"))
    assert json.loads((out / "reachable.json").read_text())["policies"] == table
    monkeypatch.setattr(module, "calibrate", lambda *job: pytest.fail(f"calibrated again: {job}"))
    assert module.calibrate_all(["bidding"], 1, 2) == table


def test_only_search_needs_calibration_under_an_ample_budget():
    assert [name for name, family in FAMILIES.items() if needs_calibration(family, "ample")] == ["search"]
    assert all(needs_calibration(family, "tight") for family in FAMILIES.values())
    assert "reservation" in candidates("search")


def test_the_stored_table_covers_every_cell():
    stored = json.loads(module.REACH_FILE.read_text())
    wanted = {
        f"{name}/{size}/{budget}"
        for name, family in FAMILIES.items()
        for size in family.sizes
        for budget in ("ample", "tight")
        if needs_calibration(family, budget)
    }
    assert set(stored["policies"]) == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["clever"], "unknown family 'clever'"), (["--seeds", "0"], "numbers must be >= 1")],
)
def test_bad_arguments_end_with_a_message(arguments, message, capsys):
    assert module.main(arguments) == 2
    assert message in capsys.readouterr().err
