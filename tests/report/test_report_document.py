"""The document: all figures, grid cells and provenance are in it; HTML and PDF are self-contained and byte-stable."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from test_report_findings import HIGH, LOW, scores

from truthfirst import figures, paths
from truthfirst.records import write_parquet
from truthfirst.report import __main__, html, pdf, provenance
from truthfirst.report.blocks import Picture, Table, table_of
from truthfirst.report.document import SECTIONS, build, caption, refresh, section_of
from truthfirst.report.grids import notebook_runs, told, training_cells
from truthfirst.report.stored import given_frames, stored_frames
from truthfirst.runs import RunRecord

NASTY = '<script>alert("x")</script> #panic() $x$ *bold*'


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A checkout whose only stored figure is `admission`, with one training run of a user's own study."""
    for module in (paths, figures):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "data" / "results")
        monkeypatch.setattr(module, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(paths, "RUNS", tmp_path / "papermill_runs")
    write_parquet(paths.RESULTS / "admission.parquet", admitted(6))
    write_parquet(paths.RESULTS / "training_scores.parquet", scores(LOW, HIGH, "mine"))
    history = pd.DataFrame(
        {"run": ["mine-0", "mine-1"], "study": "mine", "arm": "outcome", "size": "nano", "seed": [0, 1]}
    )
    how = {"families_trained": "rationing+lot_sizing", "trained_forms": "AI", "domain": None}
    history = history.assign(step=2, samples=64, growing=["", "nano+small"], instances=[None, 4.0], **how)
    write_parquet(paths.RESULTS / "training.parquet", history)
    return tmp_path


def admitted(n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"family": "rationing", "size": "nano", "admitted": [True] * (n - 1) + [False], "gate": "margin"}
    ).assign(gate=lambda frame: frame["gate"].where(~frame["admitted"]))


def record(home, name: str, **metrics: object) -> RunRecord:
    folder = home / "papermill_runs" / name
    folder.mkdir(parents=True)
    (folder / "parameters.json").write_text('{"size": "medium", "seed": 3}')
    return RunRecord(name, folder, "finished", metrics=metrics)


def test_equal_results_give_equal_bytes(home):
    made = []
    for _ in range(2):
        document = build(records=[], names=["admission"])
        made.append((html.render(document), pdf.render(document)))
    assert made[0] == made[1]
    assert made[0][1].startswith(b"%PDF")


def test_the_page_asks_for_nothing_and_reads_no_text_as_markup(home):
    runs = [record(home, "03_comparisons-size=medium-0123", note=NASTY, score=0.25)]
    document = build(records=runs, names=["admission"])
    page = html.render(document)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r'(?:src|href)="(?!data:image/png;base64,|#)', page)
    assert "url(" not in page
    assert page.count("<img") == 1
    assert pdf.render(document).startswith(b"%PDF")


def test_cells_that_a_user_ran_are_in_the_report(home):
    document = build(records=[record(home, "03_comparisons-size=medium-0123", plan_A=0.25)], names=[])
    grids = next(section for section in document.sections if section.key == "grids")
    trained, played = (block for block in grids.blocks if isinstance(block, Table))
    assert [row[-1] for row in trained.rows] == ["mine-0", "mine-1"]
    assert "0.10 to 0.70" in trained.rows[0]
    assert played.rows == (
        ("03_comparisons", "size = medium, seed = 3", "plan_A = 0.25", "03_comparisons-size=medium-0123"),
    )


def test_training_cells_count_instances_and_episodes(home):
    cells = training_cells(stored_frames())
    assert list(cells["n"]) == [4, 4]
    assert list(cells["episodes"]) == [64, 64]
    assert list(cells["trained on"]) == [
        "rationing, lot sizing in AI",
        "rationing, lot sizing in AI; from nano to small; 4 instances of each",
    ]
    assert training_cells(given_frames({})).empty


def test_broken_and_running_runs_are_counted_only(home):
    broken = RunRecord("01_x", home / "01_x", "broken", "stopped")
    assert notebook_runs([broken]).empty
    document = build(records=[broken], names=[])
    grids = next(section for section in document.sections if section.key == "grids")
    assert "1 run running or broken" in grids.blocks[-1].text


def test_a_stale_figure_is_drawn_again_and_a_fresh_one_is_left(home):
    assert refresh("admission", stored_frames()) == ""
    picture = paths.FIGURES / "admission.png"
    before = picture.stat().st_mtime_ns
    assert refresh("admission", stored_frames()) == ""
    assert picture.stat().st_mtime_ns == before
    write_parquet(paths.RESULTS / "admission.parquet", admitted(7))
    assert refresh("admission", stored_frames()) == ""
    assert picture.stat().st_mtime_ns > before


def test_a_figure_without_data_or_with_damaged_data_is_said(home):
    (paths.RESULTS / "forms.parquet").write_bytes(b"no parquet")
    document = build(records=[], names=["gap", "forms"])
    texts = [
        block.text for section in document.sections for block in section.blocks if hasattr(block, "text")
    ]
    assert any("Figure gap: no stored data" in text for text in texts)
    assert any("Figure forms: not drawn" in text for text in texts)
    assert not [b for section in document.sections for b in section.blocks if isinstance(b, Picture)]


@pytest.mark.parametrize("name", figures.FIGURES_BY_NAME)
def test_every_registered_figure_has_a_caption_and_a_section(name):
    assert caption(name).endswith(".")
    assert len(caption(name)) > len(name)
    assert section_of(name) in SECTIONS


def test_provenance_names_data_content_and_maker(home):
    figures.redraw(["admission"])
    (row,) = provenance.figure_rows(["admission", "gap"]).to_dict("records")
    assert row["rows"] == 6
    assert row["content"] == figures.frame_hash(admitted(6))
    assert row["run"] == "by hand"
    stored = provenance.stored_rows()
    assert list(stored["table"]) == ["admission.parquet", "training.parquet", "training_scores.parquet"]
    assert "matplotlib" in set(provenance.version_rows()["package"])


def test_cells_of_tables():
    frame = pd.DataFrame(
        {"run": ["a", "b"], "n": [1200, 3], "score": [0.1234, None], "note": [None, "x"], "ok": [True, False]}
    )
    table = table_of("t", frame)
    assert table.rows == (("a", "1,200", "0.123", "-", "yes"), ("b", "3", "-", "x", "no"))
    assert table.code == (True, False, False, False, False)


def test_long_metrics_are_cut_between_values():
    text = told({f"metric_{i}": i for i in range(100)})
    assert text.endswith(", ...")
    assert len(text) <= 410
    assert (
        told({"x": None, "y": True, "z": [1, 0.5], "w": {"a": 2}})
        == "x = -, y = yes, z = [1, 0.5], w = {a: 2}"
    )


def test_the_command_writes_both_files(home, capsys, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES_BY_NAME", {"admission": figures.admission})
    assert __main__.main(["--out", str(home / "report")]) == 0
    assert sorted(path.name for path in (home / "report").iterdir()) == ["report.html", "report.pdf"]
    assert "report.html" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_one_line(home, capsys, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES_BY_NAME", {})
    (home / "taken").write_text("a file")
    assert __main__.main(["--out", str(home / "taken")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
