"""Figures: drawn from tidy frames, byte-stable, with a sidecar, and redrawn without a model."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.backends.backend_agg import FigureCanvasAgg

from truthfirst import figures, figures_comparison, figures_corpus, figures_setters, figures_solvers
from truthfirst.figure_style import GREY, show_in_notebooks
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


def test_in_a_run_everything_goes_to_the_runs_own_folder(frames, out, monkeypatch):
    folder = out / "runs" / "03_comparisons-preset=cpu-0a1b"
    monkeypatch.setenv("TRUTHFIRST_RUN", str(folder))
    figures.publish("forms", frames["forms"], {"preset": "cpu"})
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png", ".svg", ".json"}
    assert json.loads((folder / "figures" / "forms.json").read_text())["run"] == folder.name
    assert len(pd.read_parquet(folder / "results" / "forms.parquet")) == len(frames["forms"])
    assert not (out / "figures").exists()
    assert not (out / "results").exists()


def test_by_hand_a_figure_of_another_preset_is_drawn_and_not_stored(frames, out, capsys):
    figures.publish("forms", frames["forms"], {"preset": "cpu"})
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    assert figures.publish("forms", frames["forms"].head(3), {"preset": "smoke"}).axes
    assert capsys.readouterr().out == (
        "forms is not stored: the stored forms is of preset cpu, this one is of preset smoke\n"
    )
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before
    figures.publish("forms", frames["forms"].head(3), {"preset": "cpu"})
    assert json.loads((out / "figures" / "forms.json").read_text())["rows"] == 3


def test_a_damaged_frame_stops_its_own_figure_only(frames, out, capsys):
    for name in ("forms", "regret", "probes"):
        figures.publish(name, frames[name])
        (out / "figures" / f"{name}.png").unlink()
    (out / "results" / "forms.parquet").write_bytes(b"PAR1 and nothing more")
    frames["regret"].drop(columns="credit").to_parquet(out / "results" / "regret.parquet")
    assert figures.main([]) == 1
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert said["forms"].startswith("not drawn: forms.parquet cannot be read (ArrowInvalid: ")
    assert said["regret"].startswith(
        "not drawn: regret.parquet does not fit this figure (KeyError: 'credit')"
    )
    assert said["probes"] == "drawn"
    assert said["atlas"].startswith("no stored data")
    assert list(said) == list(figures.FIGURES_BY_NAME)  # one line each
    assert {path.stem for path in (out / "figures").glob("*.png")} == {"probes"}
    assert figures.main(["probes"]) == 0


def test_the_command_line_explains_itself_and_names_a_wrong_figure(out, capsys):
    with pytest.raises(SystemExit) as ended:
        figures.main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "usage: python -m truthfirst.figures" in told
    assert "solver_peers" in told
    assert figures.main(["nonsense"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown figure 'nonsense': choose one of atlas")


def test_a_notebook_shows_a_figure_that_its_cell_ends_with(frames):
    """Without pyplot nobody else tells IPython how; without that a notebook shows `<Figure size ...>` and no figure."""
    shell = SimpleNamespace(display_formatter=DisplayFormatter())
    figure = figures.draw("regret", frames["regret"])
    assert "image/png" not in shell.display_formatter.format(figure)[0]
    show_in_notebooks(shell)
    shown = shell.display_formatter.format(figure)[0]["image/png"]
    assert base64.b64decode(shown).startswith(b"\x89PNG")
    show_in_notebooks(None)


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


def boxes(figure):
    """Extents in pixels of what must not lie on each other: axes with their labels, legends and the title."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    parts = [(f"axes {n}", axis.get_tightbbox(renderer)) for n, axis in enumerate(figure.axes) if axis.axison]
    parts += [(f"legend {n}", legend.get_window_extent(renderer)) for n, legend in enumerate(figure.legends)]
    if figure._suptitle is not None:
        parts.append(("title", figure._suptitle.get_window_extent(renderer)))
    return parts


@pytest.mark.parametrize("name", [name for name in SPINE if name != "environment_card"] + ["losses of one"])
def test_nothing_in_a_figure_lies_on_anything_else_or_runs_out_of_it(name, frames):
    if name == "losses of one":  # one budget, one instance, and a model that does everything wrong
        frame = frames["losses"].query("budget == 'ample' and form == 'A'").drop_duplicates("policy")
        frame = frame.assign(repeated=1, refused=5, unknown_tools=2, unreadable=2, stop="stopped", end="cut")
        figure = figures.draw("losses", frame)
        assert figure.axes[0].get_title(loc="left") == "ample budget (n = 1 instance)"
    else:
        figure = figures.draw(name, frames[name])
    parts = boxes(figure)
    width, height = figure.canvas.get_width_height()
    for number, (first, box) in enumerate(parts):
        assert box.x0 >= -1, first
        assert box.y0 >= -1, first
        assert box.x1 <= width + 1, first
        assert box.y1 <= height + 1, first
        for second, other in parts[number + 1 :]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            along = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(across, along) < 1, (first, second)


def test_the_atlas_cuts_a_plan_that_goes_on_and_on_and_says_where_it_ends():
    steps = {"optimal": 10, "default": 11, "myopic, all known": 76}
    frame = pd.DataFrame(
        {"family": "transport", "policy": policy, "step": step, "gain": -10 * step}
        for policy, last in steps.items()
        for step in range(last + 1)
    )
    (axis,) = figures.draw("atlas", frame).axes
    assert axis.get_xlim()[1] < 2 * 11
    assert [text.get_text() for text in axis.texts] == ["goes on to -760\nat step 76"]
    widths = {line.get_color(): line.get_linewidth() for line in axis.lines}
    assert max(widths, key=widths.get) == figures.BLUE  # the optimum is seen beneath what runs over it


def test_references_state_n_at_every_point_and_mark_what_lies_below_the_cut(frames):
    frame = frames["references"].assign(score_random=-9.0)
    frame.loc[0, ["score_reach", "score_plan", "score_myopic", "score_random"]] = None  # below the margin
    axis = figures.draw("references", frame).axes[0]
    scored = frame[frame["family"] == "rationing"]["score_reach"].notna().sum()
    assert [label.get_text() for label in axis.get_xticklabels()] == [f"nano\nn={scored}"]
    below = [line for line in axis.lines if line.get_marker() == "v" and line.get_markerfacecolor() == "none"]
    assert GREY in {line.get_markeredgecolor() for line in below}
    assert {float(y) for line in below for y in line.get_ydata()} == {-1.6}
    labels = figures.draw("optimum_and_baseline", frame).axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == ["nano\nn=3"]


def test_probes_count_the_instances_of_each_budget(frames):
    frame = frames["probes"]
    one = frame[(frame["budget"] == "ample") | (frame["environment"] == frame["environment"].iloc[-1])]
    titles = [axis.get_title(loc="left") for axis in figures.draw("probes", one).axes]
    assert titles == ["rationing (n = 2 ample, 1 tight)"]


def test_losses_have_a_panel_for_waste_and_endings_only_where_there_are_any(frames):
    frame = (
        frames["losses"].query("form == 'A'").assign(refused=0, unknown_tools=0, repeated=0, stop="completed")
    )
    quiet = figures.draw("losses", frame)
    assert len(quiet.axes) == frame["budget"].nunique()
    told = quiet._suptitle.get_text()
    assert told.endswith("No call was refused or wasted, every episode ended with all decisions made.")
    assert len({axis.get_xlim() for axis in quiet.axes}) == 1
    frame.loc[frame.index[0], "repeated"] = 1
    wasteful = figures.draw("losses", frame)
    assert len(wasteful.axes) == 2 * frame["budget"].nunique()
    assert wasteful._suptitle.get_text().endswith("Every episode ended with all decisions made.")
    frame.loc[frame.index[0], "stop"] = "budget"
    whole = figures.draw("losses", frame)
    assert len(whole.axes) == 3 * frame["budget"].nunique()
    assert "\n" not in whole._suptitle.get_text()


def test_the_regret_of_many_turns_names_each_run_of_calls_once(frames):
    frame = frames["regret"]
    figure = figures.draw("regret", frame)
    below = figure.axes[1]
    assert [label.get_text() for label in below.get_xticklabels()][-1] == "end"
    names = [text.get_text() for text in below.texts if text.get_text()]
    assert names == list(dict.fromkeys(call.split(" ")[1] for call in frame["call"][:-1]))
    (line,) = (text for text in figure.axes[0].texts if text.get_text().startswith("1 - score"))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = line.get_window_extent(canvas.get_renderer())
    assert box.y0 > figure.axes[0].transData.transform((0, 1 - frame["score"].iloc[0]))[1] + 1
    alternating = frame.assign(call=[f"{n} tool_{n % 2}" for n in range(len(frame))])
    assert figures.draw("regret", alternating).axes[1].get_xticklabels()[0].get_rotation() == 60


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


def test_drawing_and_reporting_load_no_model_library() -> None:
    code = "import sys, truthfirst.figures, truthfirst.report.document; print({'torch', 'trl'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "set()"
