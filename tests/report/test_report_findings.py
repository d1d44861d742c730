"""Findings: numbers and verbs come from the rows; hand-worked rows; no digit is typed into a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.external import benchmark
from truthfirst.report import (
    findings_benchmarks,
    findings_environments,
    findings_policies,
    findings_studies,
    findings_worlds,
    words,
)
from truthfirst.report.document import FINDINGS, SECTIONS
from truthfirst.report.findings import Finding, tell, tell_all
from truthfirst.report.stored import given_frames, stored_frames
from truthfirst.report.tables import TABLES
from truthfirst.sources import published
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


def test_models_are_told_apart_from_scripts():
    rows = pd.DataFrame(
        {
            "policy": ["plan", "tiny", "tiny"],
            "form": ["A", "A", "A"],
            "family": "rationing",
            "environment": ["e", "e", "f"],
            "reward": [0.9, 0.25, 0.75],
            "messages": [None, 3.0, 4.0],
        }
    )
    text = findings_policies.models(given_frames({"models": rows}))
    assert "tiny 0.50" in text
    assert "in A (n = 2)" in text
    assert "plan" not in text
    assert findings_policies.models(given_frames({"models": rows[:1]})) is None


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


def variants(**trained: float) -> pd.DataFrame:
    """Rows of the study of ablations: the reference at 0.5 in form A, each other arm at the given score."""
    labels = {"trained_forms": "AI", "instances": None, "setter": "terse", "domain": None}
    return pd.concat(
        [
            scores(LOW, LOW | {"A": value}, "ablations").assign(arm=arm, run=arm, **labels)
            for arm, value in {"outcome": 0.5, **trained}.items()
        ]
    )


def test_scaling_compares_the_curriculum_where_both_were_run():
    fixed = scores(LOW, HIGH, "scaling").assign(growing="")
    for better, said in ((0.9, "more, 0.90 beside 0.70 (+0.20"), (0.5, "less, 0.50 beside 0.70 (-0.20")):
        grown = scores(LOW, HIGH | {"A": better}, "scaling").assign(growing="pico+nano")
        text = findings_studies.scaling(given_frames({"training_scores": pd.concat([fixed, grown])}))
        assert text is not None
        assert f"at nano it scores {said}" in text
    text = findings_studies.scaling(given_frames({"training_scores": fixed}))
    assert text is not None
    assert "curriculum" not in text


def test_ablations_name_the_largest_loss_and_gain():
    rows = variants(progress=0.6, regret=0.9, dppo=0.2)
    text = findings_studies.ablations(given_frames({"training_scores": rows}))
    assert text is not None
    assert "the largest loss is that of dppo (-0.30 [-0.30, -0.30])" in text
    assert "the largest gain is that of regret (+0.40 [+0.40, +0.40])" in text
    text = findings_studies.ablations(given_frames({"training_scores": variants(dppo=0.2)}))
    assert text is not None
    assert "no variant has a gain" in text


def store_rows() -> pd.DataFrame:
    """Two seeds: the planner at 0.9 and 0.7, two managers without hidden demand, one of two over-expanders lost."""
    reached = {
        "planner": (0.9, 0.7),
        "base-stock": (0.2, 0.4),
        "surveyor": (0.5, 0.3),
        "over-expander": (-0.1, 0.1),
    }
    return pd.DataFrame(
        [
            {
                "policy": policy,
                "seed": seed,
                "horizon": 365,
                "unclipped": value,
                "reward": max(value, 0.0),
                "bankrupt": value < 0,
                "days": 365,
                "turns": 1000,
                "u": 12_300,
            }
            for policy, values in reached.items()
            for seed, value in enumerate(values)
        ]
    )


def test_the_store_by_hand():
    text = findings_benchmarks.store(given_frames({"store": store_rows()}))
    assert text.startswith("In 2 stores of 365 days the planner")
    assert "reaches 0.70 to 0.90 of the way" in text
    assert "(mean 0.80 [" in text
    assert "the surveyor scores most, 0.40 [" in text  # the mean of base-stock is 0.3
    assert "bankrupt in 1 of 2 stores" in text
    assert "54,294 (base model, finished 4 of 5, 1 bankrupt)" in text
    assert "another experiment" in text


def external_rows() -> pd.DataFrame:
    one, two = {"group": "multi_turn", "model": "oracle"}, {"group": "multi_turn", "model": "noop"}
    return benchmark.frame(
        [
            {"benchmark": "B", "version": "v", **who, "category": category, "status": benchmark.RUN}
            | benchmark.accuracy(correct, cases)
            for who, results in ((one, (9, 6)), (two, (0, 3)))
            for category, correct, cases in zip("ab", results, (9, 6), strict=True)
        ]
        + [{"benchmark": "B", "group": "g", "category": "long_one", "status": benchmark.NOT_RUN}] * 2
        + [{"benchmark": "Absent", "group": "g", "category": "c", "status": benchmark.NOT_RUN}]
    )


def test_external_benchmarks_say_what_was_not_run():
    rows = external_rows()
    text = findings_benchmarks.external(given_frames({"external": rows}))
    assert text is not None
    assert "oracle multi turn 15 of 15 (100%); noop multi turn 3 of 15 (20%)" in text
    assert "left out: long one. Suites that were not run: Absent." in text
    fewer = rows[(rows["model"] != "noop") | (rows["category"] != "b")]
    told = findings_benchmarks.external(given_frames({"external": fewer}))
    assert told is not None
    assert "left out: long one. noop was not given b. Suites" in told
    assert findings_benchmarks.external(given_frames({"external": rows[rows["status"] == "not run"]})) is None


def worlds_scores() -> pd.DataFrame:
    """Three seeds: progress gains 0.4, 0.5 and 0.6 of Phi, terminal loses 0.1 with one seed."""
    gains = [("progress", 0, 0.4), ("progress", 1, 0.5), ("progress", 2, 0.6), ("terminal", 0, -0.1)]
    return pd.DataFrame(
        [
            {
                "arm": arm,
                "seed": seed,
                "policy": policy,
                "phi": 0.2 + gain * trained + shift,
                "passed": bool(trained),
            }
            for arm, seed, gain in gains
            for policy, trained in (("base", 0), ("trained", 1))
            for shift in (-0.05, 0.05)
        ]
    )


def test_credit_in_worlds_is_paired_on_seeds():
    text = findings_worlds.credit_in_worlds(given_frames({"worlds_scores": worlds_scores()}))
    assert "progress rises, 0.20 to 0.70 (+0.50 [+0.40, +0.60])" in text
    assert "share that passes rises, 0.00 to 1.00 (+1.00 [+1.00, +1.00]) (n = 3 seeds of 2 episodes)" in text
    assert "terminal 0.20 to 0.10 (-0.10), share" in text  # one seed: no interval, no verb


def worlds_steps() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "arm": "progress",
            "seed": [0, 0, 0, 1],
            "frac_reward_zero_std": [0.2, 0.4, None, 0.5],
            "same/pass": [0.8, 1.0, None, 0.9],
        }
    )


def test_starvation_is_the_mean_over_steps_by_seed():
    text = findings_worlds.starvation_in_worlds(given_frames({"worlds_training": worlds_steps()}))
    assert "progress 0.40 [0.30, 0.50], by the verdict alone 0.90 [0.90, 0.90] (n = 2 seeds)" in text


@pytest.mark.parametrize(
    ("title", "column", "expected"),
    [
        ("Agentic score by size of training", "gain", "+0.60"),
        ("Curriculum less fixed size, equal samples", "difference", "+0.20"),
        ("Variants less the reference", "difference", "-0.30 [-0.30, -0.30]"),
        ("Managers of the store, net worth at the end", "reward", "0.80 ["),
        ("Balance beside the source's", "finished", "4 of 5, 1 bankrupt"),
        ("External benchmarks by category", "score", "1.00 [0.70, 1.00]"),
        ("Training on worlds by arm", "starved", "0.40 [0.30"),
    ],
)
def test_tables_hold_the_numbers_of_the_findings(title, column, expected):
    sized = [(HIGH, ""), (HIGH | {"A": 0.9}, "pico+nano")]
    trained = [scores(LOW, after, "scaling").assign(growing=growing) for after, growing in sized]
    rows = {
        "training_scores": pd.concat([*trained, variants(dppo=0.2)]),
        "store": store_rows(),
        "external": external_rows(),
        "worlds_scores": worlds_scores(),
        "worlds_training": worlds_steps(),
    }
    summary = next(table for table in TABLES if table.title == title)
    table = summary.build(given_frames(rows))
    assert any(expected in str(cell) for cell in table[column])


def test_tables_of_studies_that_are_not_stored_are_empty():
    frames = given_frames({"training_scores": scores(LOW, HIGH)})
    for title in ("Agentic score by size of training", "Curriculum less fixed size, equal samples", "Variants less the reference"):  # fmt: skip  # noqa: E501
        assert next(table for table in TABLES if table.title == title).build(frames).empty


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
            "failed": ["[]", '["schema: x"]', "[]"],
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
    told = published("vhd_play")
    (f0, f1), (i0, i1), (a0, a1) = (told["scores"][form] for form in "FIA")
    assert told["closed"]["stateful"] == pytest.approx(1 - (f1 - i1) / (f0 - i0), abs=0.005)
    assert told["closed"]["whole"] == pytest.approx(1 - (f1 - a1) / (f0 - a0), abs=0.005)
