"""Statistics: intervals that cover, strata that are respected, the source's gap arithmetic."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from truthfirst.streams import stream
from truthfirst.study.stats import (
    Estimate,
    bootstrap_mean,
    gap_closed,
    paired_difference,
    paired_table,
    summarise,
)


def test_interval_covers_the_true_mean_about_as_often_as_it_says():
    covered = 0
    for index in range(200):
        values = stream(index, "coverage").normal(3.0, 2.0, size=60)
        estimate = bootstrap_mean(values, seed=index, replicates=400)
        covered += estimate.low <= 3.0 <= estimate.high
    assert 0.88 <= covered / 200 <= 0.985


def test_resampling_within_strata_ignores_the_difference_between_strata():
    values, strata = [0.0] * 50 + [1.0] * 50, ["a"] * 50 + ["b"] * 50
    within = bootstrap_mean(values, strata)
    across = bootstrap_mean(values)
    assert within.low == within.high == 0.5
    assert across.high - across.low > 0.1


def test_bootstrap_is_deterministic_given_its_seed():
    values = stream(1, "x").random(30)
    assert bootstrap_mean(values, seed=4) == bootstrap_mean(values, seed=4)
    assert bootstrap_mean(values, seed=4) != bootstrap_mean(values, seed=5)


@pytest.mark.parametrize(("values", "wanted"), [([], (None, None, None, 0)), ([2.0], (2.0, None, None, 1))])
def test_too_few_values_give_null_and_not_zero(values, wanted):
    assert bootstrap_mean(values) == Estimate(*wanted)


@pytest.mark.parametrize("values", [[1.0, np.nan], [[1.0, 2.0]], [np.inf, 1.0]])
def test_values_that_are_no_flat_finite_sequence_are_refused(values):
    with pytest.raises(ValueError, match="finite"):
        bootstrap_mean(values)


def test_paired_difference_uses_only_instances_that_have_both_arms():
    frame = pd.DataFrame(
        {
            "environment": ["a", "a", "b", "b", "c"],
            "form": ["F", "A", "F", "A", "F"],
            "reward": [1.0, 0.5, 0.8, 0.6, 0.0],
        }
    )
    found = paired_difference(frame, "form", "A", "F")
    assert found.n == 2
    assert found.mean == pytest.approx(0.35)
    with pytest.raises(ValueError, match="no rows with form = 'I'"):
        paired_difference(frame, "form", "I", "F")


def test_paired_table_and_summary_show_n_and_interval():
    frame = pd.DataFrame(
        {"environment": list("aabb"), "form": list("FAFA"), "policy": ["p"] * 4, "reward": [1, 0.5, 1, 0.0]}
    )
    table = paired_table(frame, "policy", "form", [("F", "A")])
    assert table.loc[0, "mean"] == pytest.approx(0.75)
    assert table.loc[0, "n"] == 2
    means = summarise(frame, ["form"]).set_index("form")
    assert means.loc["A", "mean"] == pytest.approx(0.25)
    assert set(means.columns) == {"mean", "low", "high", "n"}


@pytest.mark.parametrize(("low", "wanted"), [(0.962 - 0.231, 0.84), (0.962 - 0.204, 0.77)])
def test_gap_closed_reproduces_the_published_shares(low, wanted):
    base = {"F": 0.962, "I": 0.231, "A": 0.204}
    gain = {"F": 0.030, "I": 0.644, "A": 0.611}
    form = "I" if wanted == 0.84 else "A"
    after = {name: base[name] + gain[name] for name in base}
    gap = Estimate(low, low - 0.05, low + 0.05, 100)
    closed = gap_closed((base["F"], base[form]), (after["F"], after[form]), gap)
    assert closed == pytest.approx(wanted, abs=0.005)


def test_gap_closed_is_null_where_there_is_no_gap():
    assert gap_closed((0.5, 0.45), (0.9, 0.9), Estimate(0.05, -0.02, 0.12, 20)) is None
