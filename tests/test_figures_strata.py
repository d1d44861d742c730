"""Figures of strata, trajectories and divergence by place draw what the frames say."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.figure import Figure

from truthfirst.figures import draw
from truthfirst.study import strata

CASE = strata.known_case((0.25, 0.75), (0.2, 0.4), (0.3, 0.8), number=40).assign(size="nano")


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def test_the_split_stands_beside_the_sources() -> None:
    figure = draw("strata", strata.every(strata.decompose, CASE, ["size", "code_tool"]))
    axis = figure.axes[0]
    widths = [bar.get_width() for bar in axis.patches if bar.get_width()]
    assert widths == pytest.approx([0.1, 0.175, 0.15, 0.425])  # the code tool first; the size is within alone
    marks = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "D" and len(line.get_xdata())]
    assert marks == [strata.SOURCE["composition"], strata.SOURCE["within"]]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert "another experiment" in labels[0]
    assert "100% of episodes" in labels[1]
    assert "no composition" in labels[2]


def test_one_instance_has_no_interval() -> None:
    one = CASE[CASE["environment"] == CASE["environment"].iloc[0]]
    figure = draw("strata", strata.decompose(one, "size"))
    assert "[" not in figure.get_suptitle()


def test_gain_by_stratum_says_gain_and_shares() -> None:
    figure = draw("strata_gain", strata.by_stratum(CASE, "code_tool"))
    told = texts(figure)
    assert any(text.startswith("+0.10 [") for text in told)
    assert "25% → 75%" in told
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["no code", "ran code"]


def test_a_stratum_of_one_policy_is_said_and_many_strata_are_cut() -> None:
    table = strata.by_stratum(strata.known_case((0.0, 0.5), (0.2, 0.4), (0.3, 0.8), number=20), "code_tool")
    assert "one policy only" in texts(draw("strata_gain", table))
    many = pd.concat([table.iloc[[0]].assign(stratum=f"s{i}", n0=i) for i in range(20)], ignore_index=True)
    axis = draw("strata_gain", many).axes[0]
    assert axis.get_title(loc="left").endswith("(the 12 largest of 20)")
    assert axis.get_yticklabels()[0].get_text() == "s8"


def test_trajectories_have_a_bar_a_policy_and_period() -> None:
    rows = [
        {"view": view, "family": "rationing", "policy": policy, "period": period, "value": value, "among": 5}
        | {"quantity": "amount", "reward": 0.5, "probes_first": None if policy == "optimum" else 2.0}
        for view in ("pair", "mean")
        for policy, values in (("optimum", (1, 2)), ("base", (3, 0)), ("trained", (1, 1)))
        for period, value in enumerate(values, start=1)
    ]
    figure = draw("trajectories", pd.DataFrame(rows))
    assert [bar.get_height() for bar in figure.axes[0].patches] == [1, 2, 3, 0, 1, 1]
    assert "base: 0.50; asked 2\ntrained: 0.50; asked 2" in texts(figure)
    assert figure.axes[0].get_title(loc="left") == "rationing: median gain of 5 pairs"
    assert figure.axes[0].get_ylabel() == "amount decided on"


def test_divergence_by_place_has_shares_and_parts_where_stored() -> None:
    rows = pd.DataFrame({"family": "f", "form": "A", "turn": [0, 1], "kl": [0.1, 0.3], "tokens": [10, 10]})
    figure = draw("divergence_place", rows)
    assert len(figure.axes) == 1
    assert [bar.get_height() for bar in figure.axes[0].patches[:2]] == pytest.approx([0.25, 0.75])
    figure = draw("divergence_place", rows.assign(part=["first", "last"]))
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["f", "by token of a message"]
