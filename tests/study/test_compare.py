"""Comparison: a tidy frame, paired on instances, that resumes from its traces."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from truthfirst.episode import load_traces
from truthfirst.records import RecordError
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.study import compare as module
from truthfirst.study.admission import admission_frame, admitted_recipes, recipes
from truthfirst.study.compare import compare

RECIPES = [
    Recipe("rationing", "nano", index=1),
    Recipe("pricing", "nano", index=2, budget="tight"),
]
FLAT = Recipe("knapsack", "nano", index=2)  # its default is optimal, so admission rejects it
POLICIES = ["optimal", "probe-all", "plan", "default", "random"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return compare(POLICIES, RECIPES, n=2)


def test_one_row_an_episode(frame):
    assert len(frame) == len(POLICIES) * len(RECIPES) * 3 * 2
    assert not frame.duplicated(["environment", "policy", "form", "seed"]).any()


def test_references_score_what_defines_them(frame):
    means = frame.groupby(["policy", "form"])["reward"].mean()
    for form in "FIA":
        assert means["optimal", form] == 1
        assert means["default", form] == 0
    assert means["probe-all", "F"] == means["plan", "F"] == means["plan", "I"] == 1
    assert frame["reward"].between(0, 1).all()


def test_losses_and_score_sum_to_one_in_every_episode(frame):
    total = frame[["unclipped", "information", "planning", "execution"]].sum(axis=1)
    assert total.to_numpy() == pytest.approx(1)


def test_reachable_reference_is_the_optimum_under_an_ample_budget(frame):
    ample = frame[frame["budget"] == "ample"]
    assert (ample["u_reach"] == ample["u_star"]).all()
    assert (frame["u_reach"] <= frame["u_star"]).all()


def test_a_comparison_resumes_and_gives_the_same_frame(tmp_path, monkeypatch, frame):
    store = tmp_path / "traces.jsonl"
    part = compare(["plan"], RECIPES[:1], ["A"], traces=store)
    assert len(load_traces(store)) == 1
    whole = compare(["plan", "random"], RECIPES, traces=store, n=2)
    assert len(load_traces(store)) == len(whole) == 2 * 2 * 3 * 2
    played = []
    monkeypatch.setattr(module, "_play_batch", lambda *job: played.append(job) or [])
    again = compare(["plan", "random"], RECIPES, traces=store, n=2)
    assert not played
    pd.testing.assert_frame_equal(whole, again)
    assert (
        part.loc[0, "reward"] == whole[(whole["policy"] == "plan") & (whole["form"] == "A")]["reward"].iloc[0]
    )


def test_a_damaged_trace_file_is_named_with_a_remedy(tmp_path):
    store = tmp_path / "traces.jsonl"
    compare(["plan"], RECIPES[:1], ["A"], traces=store)
    store.write_text(store.read_text()[:-30])
    with pytest.raises(RecordError, match=r"line 1.*remove the damaged line"):
        compare(["plan"], RECIPES[:1], ["A"], traces=store)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ["clever"]}, "unknown policy 'clever'"),
        ({"forms": ["X"]}, "unknown form 'X'"),
        ({"n": 0}, "n must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"environments": []}, "nothing to compare"),
        ({"environments": [FLAT]}, "has no reward scale"),
        ({"policies": ["plan", "plan"]}, "two policies are called 'plan'"),
        ({"policies": [len]}, "is no policy: give a scripted policy's name"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"policies": ["plan"], "environments": RECIPES, "forms": ["A"], "n": 1} | change
    with pytest.raises(ValueError, match=message):
        compare(**arguments)


def test_admission_frame_gives_verdicts_and_recipes_back():
    candidates = recipes(["rationing"], ["nano"], 4, seed=5)
    verdicts = admission_frame(candidates)
    assert len(verdicts) == 8
    kept = admitted_recipes(verdicts)
    assert len(kept) == verdicts["admitted"].sum() > 0
    assert set(kept) <= set(candidates)
    assert (verdicts["gate"].isna() == verdicts["admitted"]).all()


def test_environments_may_be_given_built_and_twice(frame):
    world = build_candidate(RECIPES[0])
    again = compare(["plan"], [world, RECIPES[0]], ["A"], n=2)
    same = frame[(frame["environment"] == world.id) & (frame["policy"] == "plan") & (frame["form"] == "A")]
    pd.testing.assert_frame_equal(again, same.reset_index(drop=True))


def test_a_store_that_states_another_truth_is_refused(tmp_path):
    store = tmp_path / "traces.jsonl"
    compare(["plan"], RECIPES[:1], ["A"], traces=store)
    (record,) = map(json.loads, store.read_text().splitlines())
    record["header"]["u_zero"] -= 5
    store.write_text(json.dumps(record) + "\n")
    with pytest.raises(RecordError, match="states another truth"):
        compare(["plan"], RECIPES[:1], ["A"], traces=store)


def test_losses_can_be_left_out_and_are_then_null():
    frame = compare(["plan"], RECIPES[:1], ["A"], losses=False)
    assert frame["information"].isna().all()
    assert frame["reward"].notna().all()
