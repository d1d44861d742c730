"""Figures of worlds draw what their frames say."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.figures import draw

ORIGIN = {"generator": "g", "seed": 1, "tier": "nano"}


def texts(name: str, rows: list[dict[str, object]]) -> list[str]:
    figure = draw(name, pd.DataFrame(rows))
    return [text.get_text() for axis in figure.axes for text in axis.texts]


def test_the_workflow_names_every_stage_with_its_work_and_marks_the_critical_path():
    stages = [
        ("read-all", 3, 0, True, ""),
        ("left", 1200, 1, True, "read-all"),
        ("right", 2, 1, False, "read-all"),
    ]
    rows = [
        ORIGIN | {"stage": s, "work": w, "level": level, "critical": critical, "after": after}
        for s, w, level, critical, after in stages
    ]
    axis = draw("world_dag", pd.DataFrame(rows)).axes[0]
    boxes = {text.get_text(): text.get_bbox_patch().get_linewidth() for text in axis.texts if text.get_text()}
    assert boxes == {"read-\nall\n3": 2.0, "left\n1,200": 2.0, "right\n2": 0.9}
    assert axis.get_title(loc="left") == "g: 3 stages, 2 critical"
    arrows = [text.arrow_patch.get_linewidth() for text in axis.texts if getattr(text, "arrow_patch", None)]
    assert arrows == [2.4, 1.0]


def test_phi_along_agents_and_the_credit_of_nodes():
    rows = [
        ORIGIN
        | {"agent": agent, "call": call, "action": action, "phi": phi, "passed": passed, "credit/a": phi}
        for agent, passed, steps in (
            ("reference", True, (("start", 0.0), ("work", 1.0), ("submit", 1.0))),
            ("saboteur", False, (("start", 0.0), ("work", 0.5), ("submit", 0.0))),
            ("never-submits", False, (("start", 0.0), ("work", 1.0))),
        )
        for call, (action, phi) in enumerate(steps)
    ]
    figure = draw("world_potential", pd.DataFrame(rows))
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["never-submits: R = 0.25, no submission", "saboteur: R = 0.00", "reference: R = 1.25"]
    ends = [line.get_marker() for line in figure.axes[0].lines if line.get_marker() != "None"]
    assert ends == ["o", "X", "*"]
    assert figure.axes[1].images[0].get_array().tolist() == [[0.0, 0.5, 0.0]]


def test_gates_say_what_holds_and_what_fails():
    rows = [
        ORIGIN
        | {"subject": subject, "gate": "hygiene", "asks": "no answer", "passed": held, "seconds": 0.256}
        for subject, held in (("g", True), ("g, planted fault", False))
    ]
    assert texts("world_gates", rows) == ["holds, 0.26 s", "FAILS, 0.26 s"]


def test_probes_say_what_they_earn_and_what_prerequisites_keep_from_them():
    rows = [
        ORIGIN | {"probe": probe, "passed": passed, "phi": phi, "ungated": ungated, "reason": reason}
        for probe, passed, phi, ungated, reason in (
            ("other seed", False, 0.0, 0.07, "rows missing"),
            ("right answer", True, 1.0, 1.0, ""),
        )
    ]
    told = texts("world_probes", rows)
    assert told == ["0, fails (0.07)", "rows missing", "1, passes", "", "why not (g)"]


@pytest.mark.parametrize("trained", [False, True])
def test_starvation_has_a_panel_of_training_only_where_there_is_one(trained):
    cell = {"group_size": 8, "rho": 0.0, "idle": 0.0, "world": "w"}
    rows = [
        cell | {"kind": kind, "reward": reward, "p": p, "wasted": wasted, "n": 100, "low": 0.0, "high": 1.0}
        for kind in ("theory", "simulated")
        for reward, wasted in (("terminal", 0.6), ("with Phi", 0.1))
        for p in (0.01, 0.05)
    ]
    rows += [row | {"idle": 0.5, "wasted": 0.3} for row in rows if row["p"] == 0.01]
    rows.append(cell | {"kind": "source", "reward": "terminal", "p": 0.05, "wasted": 0.66})
    if trained:
        training = [
            {"kind": "measured", "arm": "progress", "seed": 0, "step": step, "wasted": 0.2} for step in (1, 2)
        ]
        rows += [row | {"world": "w"} for row in training]
    figure = draw("starvation", pd.DataFrame(rows))
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["One p for all tasks", "What Φ needs (p = 0.01)", "Measured in training"][: 2 + trained]
    first = figure.axes[0]
    assert [text.get_text() for text in first.texts] == ["66%"]
    drawn = {line.get_label(): line.get_ydata().tolist() for line in first.lines}
    assert drawn["G = 8, terminal"] == [0.6, 0.6]
    assert drawn["G = 8, with Φ"] == [0.1, 0.1]
    if trained:
        assert figure.axes[2].lines[0].get_label() == "progress (1 seed)"
