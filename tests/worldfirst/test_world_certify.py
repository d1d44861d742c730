"""The long proofs: resumed where they were, an exit code for what fails, nothing hidden."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.records import read_jsonl
from truthfirst.worldfirst import certify


def test_proofs_are_stored_and_resumed(tmp_path, capsys, monkeypatch):
    command = ["warehouse", "--tiers", "nano", "--workers", "1", "--out", str(tmp_path)]
    assert certify.main([*command, "--seeds", "1"]) == 0
    assert "1 instances, nothing wrong" in capsys.readouterr().out
    proven = []
    real = certify.prove
    monkeypatch.setattr(certify, "prove", lambda *job: proven.append(job[2]) or real(*job))
    assert certify.main([*command, "--seeds", "2"]) == 0
    assert proven == [1]
    frame = pd.read_parquet(tmp_path / "worlds.parquet")
    assert list(frame["seed"]) == [0, 1]
    assert frame["failed"].tolist() == ["[]", "[]"]
    monkeypatch.setattr(certify, "source_hash", lambda name: "changed")
    assert certify.main([*command, "--seeds", "1"]) == 0
    assert proven == [1, 0]
    assert len(list(read_jsonl(tmp_path / "worlds.jsonl"))) == 3


def test_a_failure_is_told_and_changes_the_exit_code(tmp_path, capsys, monkeypatch):
    real = certify.prove

    def alike(*job):
        return real(*job) | {"world": "same", "failed": ["solver agreement: the solvers disagree"]}

    monkeypatch.setattr(certify, "prove", alike)
    assert (
        certify.main(
            ["warehouse", "--tiers", "nano", "--seeds", "2", "--workers", "1", "--out", str(tmp_path)]
        )
        == 1
    )
    told = capsys.readouterr().out
    assert "warehouse/nano, seed 1: solver agreement: the solvers disagree" in told
    assert "two seeds share one world" in told


def test_an_interruption_is_one_line(tmp_path, capsys, monkeypatch):
    def interrupted(*job):
        raise KeyboardInterrupt

    monkeypatch.setattr(certify, "prove", interrupted)
    assert (
        certify.main(
            ["warehouse", "--tiers", "nano", "--seeds", "1", "--workers", "1", "--out", str(tmp_path)]
        )
        == 130
    )
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["no-such"], ["--seeds", "0"]])
def test_bad_arguments(arguments, capsys):
    assert certify.main(arguments) == 2
    assert "certify: " in capsys.readouterr().err
