"""Figures: drawn from tidy frames, byte-stable, with a sidecar, and redrawn without a model."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from truthfirst import figures, figures_comparison, figures_corpus, figures_setters, figures_solvers
from truthfirst.solvefirst.admit.faults import FAULTS
from truthfirst.solvefirst.admit.mutations import kill_table
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.references import play, policy
from truthfirst.study import admission, atlas, showcase
from truthfirst.study.compare import compare


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    environment = build_candidate(Recipe("rationing", "nano", index=1))
    trace = play(policy("probe-2"), environment, "A", 0)
    recipes = [Recipe("rationing", "nano", index=i, budget=b) for i in (1, 3) for b in ("ample", "tight")]
    lookers = compare(["probe-0", "probe-3"], recipes, ["A"])
    lookers["k"] = lookers["policy"].str.removeprefix("probe-").astype(int)
    instances = atlas.instance_frame(["rationing", "bidding"], ["nano"], 3)
    return {
        "atlas": atlas.plan_curves(["rationing", "search"], "nano"),
        "optimum_and_baseline": instances,
        "references": instances,
        "environment_card": showcase.card(environment, trace),
        "admission": admission.admission_frame(recipes),
        "kill_table": kill_table([environment], FAULTS[:4]),
        "forms": compare(["plan", "default"], recipes),
        "losses": compare(["probe-2", "random"], recipes, ["I", "A"]),
        "probes": lookers,
        "regret": showcase.regret_frame(trace, "an episode"),
    }


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    return tmp_path


SPINE = (
    "atlas",
    "optimum_and_baseline",
    "references",
    "environment_card",
    "admission",
    "kill_table",
    "forms",
    "losses",
    "probes",
    "regret",
)


@pytest.mark.parametrize("name", SPINE)
def test_every_figure_is_published_and_redrawn_to_the_same_bytes(name, frames, out):
    figure = figures.publish(name, frames[name], {"preset": "smoke"})
    assert figure.axes
    files = [out / "figures" / f"{name}.{suffix}" for suffix in ("png", "svg", "json")]
    before = [file.read_bytes() for file in files]
    assert before[0].startswith(b"\x89PNG")
    sidecar = json.loads(before[2])
    assert sidecar["parameters"] == {"preset": "smoke"}
    assert sidecar["rows"] == len(frames[name])
    assert figures.redraw([name]) == {name: "drawn"}
    assert [file.read_bytes() for file in files] == before


def test_an_exploring_run_leaves_the_study_alone(frames, out, monkeypatch):
    study, exploring = out / "03_comparisons-preset=cpu-0a1b", out / "03_comparisons-preset=cpu-seed=9-0a1b"
    monkeypatch.setenv("TRUTHFIRST_RUN", str(study))
    figures.publish("forms", frames["forms"])
    before = (out / "figures" / "forms.png").read_bytes()
    monkeypatch.setenv("TRUTHFIRST_RUN", str(exploring))
    figures.publish("forms", frames["forms"].head(3))
    assert (out / "figures" / "forms.png").read_bytes() == before
    assert json.loads((exploring / "figures" / "forms.json").read_text())["rows"] == 3
    assert (exploring / "results" / "forms.parquet").exists()


def test_labelled_axes(frames):
    for name in ("forms", "probes", "regret", "optimum_and_baseline"):
        assert any(axis.get_ylabel() for axis in figures.draw(name, frames[name]).axes)


def test_every_figure_of_every_file_is_in_the_one_table():
    tables = (figures_comparison.FIGURES, figures_corpus.CORPUS_FIGURES, figures_setters.FIGURES)
    for table in (*tables, figures_solvers.FIGURES):
        assert table.items() <= figures.FIGURES_BY_NAME.items()
    assert len(figures.FIGURES_BY_NAME) == sum(map(len, figures._OF_EACH_FILE))  # no name stands twice


def test_the_bars_of_losses_end_at_one_and_need_agentic_episodes(frames):
    frame = frames["losses"]
    axis = figures.draw("losses", frame).axes[0]
    rows = frame[(frame["form"] == "A") & (frame["budget"] == "ample") & (frame["policy"] == "probe-2")]
    first = [bar for bar in axis.patches if abs(bar.get_y() + bar.get_height() / 2) < 1e-9]
    widths = [bar.get_width() for bar in first if bar.get_width()]
    assert sum(widths) == pytest.approx(1)
    assert widths[0] == pytest.approx(rows["unclipped"].mean())
    with pytest.raises(ValueError, match="form A with their loss split"):
        figures.draw("losses", frame[frame["form"] == "I"])


def test_missing_data_is_said_and_not_drawn(out):
    done = figures.redraw(["forms"])
    assert "run make study" in done["forms"]
    assert not (out / "figures").exists()


@pytest.mark.parametrize(
    ("name", "frame", "message"),
    [("nonsense", pd.DataFrame({"a": [1]}), "unknown figure"), ("forms", pd.DataFrame(), "at least one row")],
)
def test_bad_requests_are_named(name, frame, message):
    with pytest.raises(ValueError, match=message):
        figures.draw(name, frame)
