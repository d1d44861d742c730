"""Tables of a comparison: the instance is the unit, pass@k is unbiased, gaps follow the source's arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from truthfirst.streams import stream
from truthfirst.study.stats import pass_at_k
from truthfirst.study.tables import form_table, gap_table, pass_table


def frame_of(scores: dict[tuple[str, str], list[float]], episodes: int = 1) -> pd.DataFrame:
    """One row an episode from {(policy, form): score of each instance}."""
    return pd.DataFrame(
        {
            "environment": f"e{i}",
            "family": f"f{i % 2}",
            "policy": policy,
            "form": form,
            "seed": s,
            "reward": value,
        }
        for (policy, form), values in scores.items()
        for i, value in enumerate(values)
        for s in range(episodes)
    )


def test_pass_at_k_is_the_mean_over_all_draws_of_k_episodes():
    for n, passed, k in ((5, 2, 3), (6, 0, 2), (4, 4, 4), (7, 1, 1)):
        outcomes = [1] * passed + [0] * (n - passed)
        draws = [max(draw) for draw in itertools.combinations(outcomes, k)]
        assert pass_at_k(n, passed, k) == pytest.approx(np.mean(draws))
    assert pass_at_k(2, 1, 3) is None
    with pytest.raises(ValueError, match=r"0 <= passed <= n"):
        pass_at_k(2, 3, 1)


def test_pass_table_shows_n_and_null_where_there_are_too_few_episodes():
    frame = frame_of({("p", "A"): [1.0, 0.5]}, episodes=4)
    frame.loc[frame["seed"] == 0, "reward"] = 1.0
    table = pass_table(frame, k=(1, 4, 5)).set_index("k")
    assert table.loc[1, "mean"] == pytest.approx((1 + 1 / 4) / 2)
    assert table.loc[4, "mean"] == 1
    assert pd.isna(table.loc[5, "mean"])
    assert list(table["n"]) == [2, 2, 0]
    assert list(table["episodes"]) == [8, 8, 0]
    assert pass_table(frame, at=0.5).loc[0, "mean"] == 1


def test_repeating_episodes_does_not_narrow_an_interval():
    values = list(stream(1, "rewards").random(30))
    once, often = (form_table(frame_of({("p", "A"): values}, n)).iloc[0] for n in (1, 8))
    assert (once["low"], once["high"]) == pytest.approx((often["low"], often["high"]))
    assert (once["n"], often["n"]) == (30, 30)
    assert (once["episodes"], often["episodes"]) == (30, 240)


def test_gap_table_reproduces_the_published_shares():
    """Mean scores of the source's two checkpoints: 0.731 -> 0.117 closes 0.84, 0.758 -> 0.177 closes 0.77."""
    noise = stream(2, "noise").normal(0, 0.02, size=40)
    noise -= noise.mean()
    means = {("base", "F"): 0.962, ("base", "I"): 0.231, ("base", "A"): 0.204}
    means |= {("late", "F"): 0.992, ("late", "I"): 0.875, ("late", "A"): 0.815}
    table = gap_table(frame_of({arm: list(m + noise) for arm, m in means.items()}), "base", "late")
    rows = table.set_index("gap")
    assert rows.loc["stateful", "closed"] == pytest.approx(0.84, abs=0.005)
    assert rows.loc["whole", "closed"] == pytest.approx(0.77, abs=0.005)
    assert rows.loc["stateful", "before"] == pytest.approx(0.731)
    assert (table["n"] == 40).all()


def test_a_gap_that_may_be_none_has_no_share_closed_and_a_missing_arm_is_named():
    rng = stream(3, "noise")
    arms = list(itertools.product(("base", "late"), "FIA"))
    frame = frame_of({arm: list(rng.normal(0.5, 0.2, 20)) for arm in arms})
    assert gap_table(frame, "base", "late")["closed"].isna().all()
    with pytest.raises(ValueError, match="policy = 'late' in form I"):
        gap_table(frame[(frame["policy"] != "late") | (frame["form"] != "I")], "base", "late")
