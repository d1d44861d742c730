"""The report: yields by second counting, intervals, costs that pay for rejected candidates."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.solvefirst.build import Built
from truthfirst.solvefirst.build_report import GATE_ORDER, costs, entropy, rejections, tables, text, yields


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
def test_entropy_is_one_only_when_even(labels):
    counts = [labels.count(letter) for letter in set(labels)]
    value = entropy(labels)
    assert 0 <= value <= 1 + 1e-12
    assert math.isclose(value, 1, abs_tol=1e-12) == (len(set(counts)) == 1)


def test_entropy_of_a_known_distribution():
    assert entropy("aaab") == pytest.approx(2 - 0.75 * math.log2(3))  # H(1/4) in bits, over log2 2


def test_yields_count_what_was_tried(small_corpus: Built):
    frame, tried = yields(small_corpus.candidates), small_corpus.candidates
    for dimension in ("family", "size", "domain", "budget", "split", "setter"):
        rows = frame[frame["dimension"] == dimension]
        assert rows["candidates"].sum() == len(tried)
        assert rows["admitted"].sum() == 30
    family = frame[(frame["dimension"] == "family") & (frame["value"] == "scheduling")].iloc[0]
    mine = [row for row in tried.to_dict("records") if row["family"] == "scheduling"]
    assert (family["candidates"], family["admitted"]) == (len(mine), sum(row["admitted"] for row in mine))
    assert family["low"] < family["yield"] < family["high"]


def test_a_gate_is_judged_by_the_candidates_that_reached_it(small_corpus: Built):
    frame = yields(small_corpus.candidates)
    gates = frame[frame["dimension"] == "gate"].set_index("value")
    assert list(gates.index) == list(GATE_ORDER)
    lost = (gates["candidates"] - gates["admitted"]).to_dict()
    assert lost == {gate: int((small_corpus.candidates["gate"] == gate).sum()) for gate in GATE_ORDER}
    assert gates["candidates"].iloc[1:].tolist() == gates["admitted"].iloc[:-1].tolist()
    assert lost["margin"] == rejections(small_corpus.candidates)["rejected"].sum() > 0


def test_setters_are_told_apart_where_there_are_several(small_corpus: Built):
    both = pd.concat(
        [small_corpus.candidates, small_corpus.candidates.assign(setter="language", admitted=False)]
    )
    frame = yields(both)
    rows = frame[frame["dimension"] == "setter"].set_index(["setter", "value"])
    assert rows.loc[("all", "language"), "yield"] == 0
    assert rows.loc[("template", "template"), "admitted"] == 30
    assert set(frame["setter"]) == {"all", "template", "language"}


def test_an_environment_pays_for_the_candidates_that_were_rejected(small_corpus: Built):
    tried = small_corpus.candidates.assign(cpu_seconds=2.0, dollars=0.5)
    frame = costs(tried).set_index(["builder", "measure"])
    assert frame.loc[("template", "seconds"), "value"] == pytest.approx(2 * len(tried) / 30)
    assert frame.loc[("template", "dollars"), "value"] == pytest.approx(len(tried) / 60)
    assert frame.loc[("Tev-Gym", "seconds"), "value"] == 30
    nothing = costs(tried.assign(admitted=False)).set_index(["builder", "measure"])
    assert pd.isna(nothing.loc[("template", "seconds"), "value"])  # no environment: no cost of one, not 0


def test_the_report_is_stored_and_told(small_corpus: Built):
    for name, frame in tables(small_corpus.candidates).items():
        stored = pd.read_parquet(small_corpus.folder / "report" / f"{name}.parquet")
        assert len(stored) == len(frame)
    told = text(small_corpus.summary, small_corpus.candidates)
    for part in (
        "30 environments",
        "yield by gate",
        "yield by family",
        "cost of an environment",
        small_corpus.hash,
    ):
        assert part in told
