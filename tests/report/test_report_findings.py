"""Findings: numbers and verbs come from the rows; hand-worked rows; no digit is typed into a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.report import (
    findings_environments,
    findings_policies,
    findings_studies,
    findings_worlds,
    words,
)
from truthfirst.report.document import FINDINGS, SECTIONS
from truthfirst.report.findings import Finding, tell, tell_all
from truthfirst.report.stored import given_frames, sources, stored_frames
from truthfirst.study.stats import Estimate

HERE = Path(words.__file__).parent
FILES = sorted(HERE.glob("findings*.py"))


# --- no number typed by hand ------------------------------------------------------------------------------
def typed_digits(source: str) -> list[str]:
    """Return texts of a program that hold a digit; docstrings and format specifications are left out."""
    tree = ast.parse(source)
    spared: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            spared |= {id(part) for part in ast.walk(node.format_spec)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            spared.add(id(node.value))
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in spared
        and any(letter.isdigit() for letter in node.value)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_digit_stands_in_a_sentence(path):
    assert typed_digits(path.read_text(encoding="utf-8")) == []


def test_the_check_sees_a_typed_number():
    assert typed_digits('def f(x):\n    "doc 1"\n    return f"{x:.2f} of 12"') == [" of 12"]


# --- the register -----------------------------------------------------------------------------------------
def test_findings_have_names_of_their_own_sections_and_commands():
    assert len({finding.name for finding in FINDINGS}) == len(FINDINGS)
    for finding in FINDINGS:
        assert finding.section in SECTIONS
        assert finding.command
        assert finding.needs


def test_every_finding_without_its_rows_names_its_command():
    for finding, told in zip(FINDINGS, tell_all(FINDINGS, given_frames({})), strict=True):
        assert told.state == "not run"
        assert finding.command in told.text


def test_rows_of_another_shape_are_said():
    frames = given_frames({name: pd.DataFrame({"other": [1]}) for f in FINDINGS for name in f.needs})
    for told in tell_all(FINDINGS, frames):
        assert told.state == "unreadable"
        assert "do not fit" in told.text


def test_a_damaged_file_is_said(tmp_path):
    (tmp_path / "certify.parquet").write_bytes(b"no parquet")
    told = tell(findings_environments.FINDINGS[0], stored_frames(tmp_path))
    assert told.state == "unreadable"


def test_none_is_not_run():
    finding = Finding("x", "training", "X", ("t",), "do it", lambda frames: None)
    assert tell(finding, given_frames({"t": pd.DataFrame({"a": [1]})})).state == "not run"


def test_stored_results_fit_every_finding_that_has_its_rows():
    frames = stored_frames()
    assert [told.text for told in tell_all(FINDINGS, frames) if told.state == "unreadable"] == []


# --- hand-worked rows -------------------------------------------------------------------------------------
def test_mutants_by_hand():
    verdicts = ["killed", "killed", "survived", "equivalent", "not applicable"]
    rows = pd.DataFrame(
        {
            "verdict": verdicts,
            "fault": list("abcde"),
            "family": ["f"] * 5,
            "gate": ["margin", "names", None, None, None],
        }
    )
    text = findings_environments.mutants(given_frames({"kill_table": rows}))
    assert "Of 5 mutants (5 planted faults, 1 family), 3 change" in text
    assert "kill 2 of these (66.7%) and 1 survive" in text


def scores(base: dict[str, float], trained: dict[str, float], study: str = "learning") -> pd.DataFrame:
    """Held-out episodes of four instances and two seeds, whose scores spread by 0.02 around the given means."""
    return pd.DataFrame(
        [
            {
                "study": study,
                "arm": "outcome",
                "size": "nano",
                "trained_forms": "AI",
                "run": f"{study}-{seed}",
                "seed": seed,
                "family": "rationing",
                "environment": f"e{index}",
                "form": form,
                "policy": policy,
                "reward": means[form] + (0.02 if index % 2 else -0.02) * (policy == "base"),
                "role": "near",
            }
            for policy, means in (("base", base), ("trained", trained))
            for form in "FIA"
            for seed in (0, 1)
            for index in range(4)
        ]
    )


LOW, HIGH = {"F": 0.9, "I": 0.3, "A": 0.1}, {"F": 0.9, "I": 0.6, "A": 0.7}


def test_gains_say_rises_and_falls_as_the_rows_do():
    up = findings_policies.gains(given_frames({"training_scores": scores(LOW, HIGH)}))
    down = findings_policies.gains(given_frames({"training_scores": scores(HIGH, LOW)}))
    assert up is not None
    assert down is not None
    assert "F does not move measurably, 0.90 to 0.90" in up
    assert "A rises, 0.10 to 0.70 (+0.60" in up
    assert "A falls, 0.70 to 0.10 (-0.60" in down
    assert "n = 8" in up
    assert "another experiment" in up


def test_gaps_closed_by_hand():
    text = findings_policies.gaps_closed(given_frames({"training_scores": scores(LOW, HIGH)}))
    assert text is not None
    assert "of the stateful gap, 0.60" in text  # 0.9 - 0.3, after 0.9 - 0.6: half is closed
    assert "closes 50% (by seed 0.50), less than the source's 84%" in text
    assert "closes 75% (by seed 0.75), less than the source's 77%" in text  # 0.8 before, 0.2 after


def test_another_study_is_told_apart_from_the_main_one():
    frames = given_frames({"training_scores": scores(LOW, HIGH, "mine")})
    assert findings_policies.gains(frames) is None
    assert findings_policies.credit(frames) is None
    text = findings_studies.other_studies(frames)
    assert text is not None
    assert "mine, outcome, nano: A rises, 0.10 to 0.70" in text


def test_a_gain_by_strata_is_told_with_its_terms():
    rows = pd.DataFrame(
        {
            "stratifier": "code_tool",
            "term": ["total", "composition", "within", "interaction"],
            "value": [0.5, 0.1, 0.4, 0.0],
            "low": [0.4, 0.0, 0.3, None],
            "high": [0.6, 0.2, 0.5, None],
            "n": 40,
        }
    )
    text = findings_studies.strata(given_frames({"strata": rows}))
    assert "gain of +0.50 [+0.40, +0.60] (n = 40 instances)" in text
    assert (
        "by code tool +0.10 [+0.00, +0.20] composition, +0.40 [+0.30, +0.50] within and +0.00 inter" in text
    )


def test_scaling_tells_fixed_and_growing_sizes_apart():
    rows = pd.concat(
        [
            scores(LOW, HIGH, "scaling").assign(growing=""),
            scores(HIGH, LOW, "scaling").assign(size="nano16", growing="nano"),
        ]
    )
    text = findings_studies.scaling(given_frames({"training_scores": rows}))
    assert text is not None
    assert "nano rises, 0.10 to 0.70" in text
    assert "nano16 through growing sizes falls, 0.70 to 0.10" in text


def test_credit_in_worlds_counts_episodes():
    rows = pd.DataFrame(
        {
            "policy": ["base", "base", "trained", "trained"],
            "arm": "progress",
            "seed": 0,
            "phi": [0.0, 0.0, 1.0, 1.0],
            "passed": [0, 0, 1, 1],
        }
    )
    text = findings_studies.credit_in_worlds(given_frames({"worlds_scores": rows}))
    assert "before 0.00 [0.00, 0.00] and" in text
    assert "progress 1.00 [1.00, 1.00] and 1.00 [1.00, 1.00] (n = 2), 1 seed" in text


def test_divergence_is_weighted_by_tokens():
    rows = pd.DataFrame(
        {
            "study": "learning",
            "seed": 0,
            "turn": [0, 1],
            "kl": [0.4, 0.1],
            "tokens": [100, 200],
        }
    )
    text = findings_policies.divergence(given_frames({"training_divergence": rows}))
    assert text is not None
    assert "0.200 nats" in text  # (0.4 x 100 + 0.1 x 200) / 300
    assert "more than the source's 0.089" in text


def test_worlds_count_the_failed_ones():
    rows = pd.DataFrame(
        {
            "generator": ["a", "b", "b"],
            "tier": "unit",
            "failed": [[], ["schema: x"], []],
            "files": [10, 99, 20],
            "bytes": [100, 9, 300],
            **{f"{part}_seconds": [1.0, 9.0, 1.0] for part in ("make", "reference", "alternative", "gates")},
        }
    )
    text = findings_worlds.certified(given_frames({"worlds": rows}))
    assert text.startswith("2 of 3 worlds (2 generators, 1 tier) pass every gate (66.7%)")
    assert "15 files and 200 bytes and costs 4 CPU seconds" in text


# --- words ------------------------------------------------------------------------------------------------
@given(st.floats(-1, 1), st.floats(0.001, 1))
def test_a_verb_needs_an_interval_without_zero(mean, half):
    verb = words.moves(Estimate(mean, mean - half, mean + half, 10))
    assert verb == ("rises" if mean > half else "falls" if mean < -half else "does not move measurably")


def test_numbers_read_well():
    assert words.share(0.5) == "50%"
    assert words.share(1829 / 1830) == "99.9%"
    assert words.number(-0.001) == "0.00"
    assert words.span([0.701, 0.704]) == "0.70"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.compared(0.752, 0.77) == "less than"
    assert words.plural(1, "family", "families") == "1 family"


def test_published_gaps_follow_from_published_scores():
    told = sources()["vhd_play"]
    (f0, f1), (i0, i1), (a0, a1) = (told["scores"][form] for form in "FIA")
    assert told["closed"]["stateful"] == pytest.approx(1 - (f1 - i1) / (f0 - i0), abs=0.005)
    assert told["closed"]["whole"] == pytest.approx(1 - (f1 - a1) / (f0 - a0), abs=0.005)
