"""Scaling: gains by size and the curriculum beside a fixed size, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.study import scaling


def episodes(size: str, growing: str, base: float, trained: float) -> list[dict[str, object]]:
    return [
        {
            "size": size, "growing": growing, "seed": 0, "form": "A", "policy": policy,
            "environment": f"{size}-{i}", "reward": value,
        }
        for i in range(3)
        for policy, value in (("base", base), ("trained", trained))
    ]  # fmt: skip


@pytest.fixture
def scores():
    return pd.DataFrame(
        episodes("long", "", 0.1, 0.4)
        + episodes("short", "", 0.3, 0.7)
        + episodes("long", "short+long", 0.1, 0.6)
    )


def test_gains_stand_by_size_in_order(scores) -> None:
    table = scaling.trained_by_size(scores, {"short": 4, "long": 16})
    assert list(table["decisions"]) == [4, 16, 16]
    assert list(table["growing"]) == ["", "", "short+long"]
    assert list(table["gain"]) == pytest.approx([0.4, 0.3, 0.5])
    assert set(table["n"]) == {3}


def test_the_curriculum_is_compared_where_both_have_been_run(scores) -> None:
    table = scaling.curriculum_against_fixed(scores)
    assert list(table["size"]) == ["long"]
    assert table["difference"].iloc[0] == pytest.approx(0.2)
    assert scaling.curriculum_against_fixed(scores[scores["growing"] == ""]).empty


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
