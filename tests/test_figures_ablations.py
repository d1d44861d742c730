"""Figures of ablations, scaling and competence draw what their tables say."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.figures import draw


def test_ablations_draw_a_point_for_each_variant_and_form() -> None:
    rows = [
        {"axis": axis, "variant": name, "form": form, "trained": 0.7, "base": 0.3, "difference": value}
        | {"low": value - 0.1, "high": value + 0.1, "n": 180, "seeds": 1}
        for axis, name, value in (
            ("reference", "reference", 0.0),
            ("credit", "regret", 0.05),
            ("data", "few", -0.2),
        )
        for form in "FIA"
    ]
    axis = draw("ablations", pd.DataFrame(rows)).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["regret", "few"]
    points = sorted(line.get_xdata()[0] for line in axis.lines if line.get_marker() == "o")
    assert points == [-0.2, -0.2, 0.05, 0.05]


def test_policies_by_size_stand_beside_the_source() -> None:
    rows = [
        {"family": family, "size": f"nano{n}", "decisions": n, "growing": "", "base": 0.3, "trained": 0.6}
        | {"gain": gain, "low": gain - 0.1, "high": gain + 0.1, "n": 100, "seeds": 1}
        for family, gain in (("all", 0.3), ("rationing", 0.4))
        for n in (4, 5, 6, 8)
    ]
    rows.append(rows[3] | {"growing": "nano4+nano8", "trained": 0.9, "gain": 0.6, "low": 0.5, "high": 0.7})
    figure = draw("scaling_policies", pd.DataFrame(rows))
    score, gain = figure.axes
    drawn = [list(line.get_ydata()) for line in score.lines]
    assert drawn == [[0.3] * 4, [0.6] * 4, [0.3] * 4, [0.6] * 4, [0.9]]
    assert [list(line.get_ydata()) for line in gain.lines][:2] == [[0.3] * 4, [0.4] * 4]
    assert [tick.get_text() for tick in score.get_xticklabels()] == [
        "nano4\n4",
        "nano5\n5",
        "nano6\n6",
        "nano8\n8",
    ]
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "source, 6×5 to 11×11\n(another experiment)" in told
    assert "rationing" in told


def test_competence_places_families_by_what_the_base_can_write() -> None:
    frame = pd.DataFrame(
        {
            "role": ["trained", "unseen"], "family": ["rationing", "search"], "written": [0.9, 0.2],
            "agentic": [0.3, 0.1], "gain": [0.5, 0.0], "low": [0.4, -0.1], "high": [0.6, 0.1], "n": [9, 9],
        }
    )  # fmt: skip
    axis = draw("competence", frame).axes[0]
    found = {
        tuple(pair) for line in axis.lines if line.get_marker() == "o" for pair in line.get_xydata().tolist()
    }
    assert found == {(0.9, 0.5), (0.2, 0.0)}


@pytest.mark.parametrize("panel", ["score", "turns", "solver", "yield"])
def test_scaling_has_a_panel_for_everything_that_grows(panel: str) -> None:
    rows = [
        {"panel": name, "family": family, "series": "best script", "size": size}
        | {"mean": 0.95, "low": 0.94, "high": 0.96, "n": 9}
        for name, family in (
            ("score", "rationing"),
            ("turns", "rationing"),
            ("solver", "rationing"),
            ("yield", "all"),
        )
        for size in ("small", "huge")
    ]
    figure = draw("scaling", pd.DataFrame(rows))
    number = ["score", "turns", "solver", "yield"].index(panel)
    assert [
        line.get_ydata().tolist()
        for line in figure.axes[number].lines
        if len(line.get_ydata()) == 2 and line.get_marker() == "o"
    ] == [[0.95, 0.95]]


def test_a_family_has_the_same_dashes_in_both_figures_of_scaling() -> None:
    names = ("timed_selection", "rationing", "lot_sizing")
    grown = [
        {"panel": panel, "family": name, "series": "best script", "size": size}
        | {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 9}
        for panel in ("score", "turns", "solver", "yield")
        for name in names
        for size in ("small", "huge")
    ]
    trained = [
        {"family": name, "size": "nano", "decisions": 4, "growing": "", "base": 0.3, "trained": 0.6}
        | {"gain": 0.3, "low": 0.2, "high": 0.4, "n": 9, "seeds": 1}
        for name in ("all", *reversed(names))
    ]
    told = []
    for figure in (draw("scaling", pd.DataFrame(grown)), draw("scaling_policies", pd.DataFrame(trained))):
        (legend,) = figure.legends
        shown = zip(legend.get_texts(), legend.get_lines(), strict=True)
        styles = {text.get_text(): line._unscaled_dash_pattern for text, line in shown}
        told.append({name: styles[name.replace("_", " ")] for name in names})
    assert told[0] == told[1]
    assert len(set(map(str, told[0].values()))) == 3
