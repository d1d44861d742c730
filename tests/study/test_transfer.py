"""Transfer: gains by role, paired on instance and seed."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.study import transfer


@pytest.fixture
def played():
    rows = []
    for role, family, written, base, trained in (
        ("unseen", "knapsack", 0.2, 0.1, 0.1),
        ("trained", "rationing", 0.9, 0.3, 0.8),
        ("unseen", "search", 0.4, 0.2, 0.3),
    ):
        for seed in (0, 1):
            for i in range(4):
                shared = {"role": role, "family": family, "environment": f"{family}-{i}", "seed": seed}
                rows += [
                    shared | {"policy": "base", "form": "A", "reward": base},
                    shared | {"policy": "trained", "form": "A", "reward": trained},
                    shared | {"policy": "base", "form": "F", "reward": written},
                    shared | {"policy": "trained", "form": "F", "reward": written},
                ]
    return pd.DataFrame(rows)


def test_gains_by_role_count_families_that_improved(played) -> None:
    table = transfer.by_role(played).set_index("role")
    assert list(table.index) == ["trained", "unseen"]
    assert table.loc["trained", "gain"] == pytest.approx(0.5)
    assert table.loc["unseen", "gain"] == pytest.approx(0.05)
    assert list(table["n"]) == [8, 16]
    assert list(table["families"]) == [1, 2]
    assert list(table["improved"]) == [1, 1]  # search alone among the unseen
    assert table.loc["unseen", "source"].startswith("8 of 8")


def test_competence_is_what_the_base_does_written_out(played) -> None:
    table = transfer.competence(played).set_index("family")
    assert table.loc["search", "written"] == pytest.approx(0.4)
    assert table.loc["search", "agentic"] == pytest.approx(0.2)
    assert table.loc["search", "gain"] == pytest.approx(0.1)
