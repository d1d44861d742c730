"""Scaling: gains by size and the curriculum beside a fixed size, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.study import scaling


def episodes(size: str, growing: str, base: float, trained: float) -> list[dict[str, object]]:
    return [
        {
            "size": size, "growing": growing, "seed": 0, "form": "A", "policy": policy, "family": family,
            "environment": f"{family}-{size}-{i}", "reward": value + more,
        }
        for family, more in (("timed_selection", 0.0), ("rationing", 0.2))
        for i in range(3)
        for policy, value in (("base", base), ("trained", trained))
    ]  # fmt: skip


@pytest.fixture
def scores():
    return pd.DataFrame(
        episodes("nano8", "", 0.1, 0.4)
        + episodes("nano", "", 0.3, 0.7)
        + episodes("nano8", "nano+nano8", 0.1, 0.6)
    )


def test_gains_stand_by_size_in_order_for_all_and_for_each_family(scores) -> None:
    table = scaling.trained_by_size(scores)
    assert list(table["family"]) == [
        name for name in ("all", "timed_selection", "rationing") for _ in range(3)
    ]
    assert list(table["decisions"]) == [3.5, 8, 8, 3, 8, 8, 4, 8, 8]
    assert list(table["growing"]) == ["", "", "nano+nano8"] * 3
    assert list(table["gain"]) == pytest.approx([0.4, 0.3, 0.5] * 3)
    assert list(table["base"]) == pytest.approx([0.4, 0.2, 0.2, 0.3, 0.1, 0.1, 0.5, 0.3, 0.3])
    assert list(table["n"]) == [6] * 3 + [3] * 6


def test_the_curriculum_is_compared_where_both_have_been_run(scores) -> None:
    table = scaling.curriculum_against_fixed(scores)
    assert list(table["family"]) == ["all", "timed_selection", "rationing"]
    assert set(table["size"]) == {"nano8"}
    assert list(table["difference"]) == pytest.approx([0.2] * 3)
    assert scaling.curriculum_against_fixed(scores[scores["growing"] == ""]).empty


def test_growth_is_the_largest_sizes_gain_less_the_smallests(scores) -> None:
    noisy = scores.assign(
        reward=scores["reward"]
        + 0.01 * (scores["environment"].str[-1].astype(int) - 1) * (scores["policy"] == "trained")
    )
    table = scaling.growth(noisy)
    assert list(table["family"]) == ["all", "timed_selection", "rationing"]
    assert set(table["smallest"]) == {"nano"}
    assert set(table["largest"]) == {"nano8"}
    assert list(table["difference"]) == pytest.approx([-0.1] * 3)
    assert (table["low"] < table["difference"]).all()
    assert (table["high"] > table["difference"]).all()
    assert list(table["n"]) == [6, 3, 3]
    assert scaling.growth(scores[scores["size"] == "nano"]).empty


def test_what_the_base_writes_stands_by_size_in_order() -> None:
    rows = pd.DataFrame(episodes("nano8", "", 0.1, 0.4) + episodes("nano", "", 0.3, 0.7)).assign(form="F")
    table = scaling.written(rows)
    assert list(table.columns) == ["nano", "nano8"]
    assert table.loc["rationing"].tolist() == pytest.approx([0.5, 0.3])


def test_what_grows_with_size_is_one_tidy_table() -> None:
    sizes = ("small", "huge")
    references = pd.DataFrame(
        [
            {"family": "rationing", "size": size, "clears_margin": True, "decisions": 5 * k, "probes": 30 * k}
            | {f"score_{name}": 0.5 for name in scaling.POLICIES}
            for k, size in enumerate(sizes, 1)
            for _ in range(2)
        ]
    )
    certified = pd.DataFrame(
        [{"family": "rationing", "size": size, "solve_seconds": 0.002} for size in sizes for _ in range(2)]
    )
    yields = pd.DataFrame(
        [
            {"dimension": "size", "value": size, "candidates": 10, "yield": 0.9, "low": 0.8, "high": 1.0}
            for size in ("nano", *sizes)
        ]
    )
    table = scaling.by_size(references, certified, yields, ["rationing"], sizes)
    assert set(table["panel"]) == set(scaling.PANELS)
    means = table.set_index(["panel", "size"])["mean"]
    assert means["turns", "small"] == 35
    assert means["turns", "huge"] == 70
    assert means["solver", "huge"] == pytest.approx(2.0)
    assert list(table[table["panel"] == "yield"]["size"]) == list(sizes)
