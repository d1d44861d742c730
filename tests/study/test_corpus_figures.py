"""The figures of a corpus: stored and drawn from its folder by one command, with what they were made of."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

from truthfirst import figures
from truthfirst.solvefirst.build import Built, build
from truthfirst.solvefirst.build_plan import check_plan
from truthfirst.solvefirst.diversity import prompt_text
from truthfirst.study.corpus_figures import main, reasoning_gym_texts

NAMES = {"corpus_yield", "corpus_costs", "corpus_diversity", "decontamination"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Built:
    plan = check_plan(
        {"name": "few", "environments": 12, "sizes": {"nano": 1}, "families": ["search", "pricing"]}
    )
    return build(plan, tmp_path_factory.mktemp("corpus") / "few", workers=1, progress=False)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    return tmp_path


def texts(folder: Path, *lines: str) -> str:
    folder.mkdir()
    for number, line in enumerate(lines):
        (folder / f"{number}.txt").write_text(line)
    return str(folder)


FOREIGN = " ".join(f"zq{n}" for n in range(60))


def test_every_figure_is_stored_with_its_origin(
    corpus: Built, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(corpus.folder), "--evaluation", texts(out / "mine", FOREIGN)]) == 0
    assert {file.stem for file in (out / "results").iterdir()} == NAMES
    for name in NAMES:
        origin = json.loads((out / "figures" / f"{name}.json").read_text())["parameters"]
        assert origin == {
            "command": "python -m truthfirst.study.corpus_figures",
            "corpus": "few",
            "evaluation": "1 texts of mine",
        }
    said = capsys.readouterr().out
    assert "domain entropy, normalised" in said
    stored = pd.read_parquet(out / "results" / "decontamination.parquet")
    assert (stored["set"] == "corpus").sum() == 12
    assert (stored.loc[stored["set"] == "corpus", "shared_8"] == 0).all()
    assert (stored.loc[stored["set"] == "planted 20", "shared_13"] > 0).all()


def test_a_contaminated_corpus_fails_the_command(corpus: Built, out: Path) -> None:
    leaked = prompt_text(corpus.public["prompt"].iloc[3])
    assert main([str(corpus.folder), "--evaluation", texts(out / "mine", FOREIGN, leaked)]) == 1


def test_what_is_missing_is_one_line(corpus: Built, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = texts(out / "mine", FOREIGN)
    copy = out / "copy"
    shutil.copytree(corpus.folder, copy)
    (copy / "build.json").unlink()
    without = out / "without"
    shutil.copytree(corpus.folder, without)
    shutil.rmtree(without / "report")
    for place, message in (
        (out / "nowhere", "build the corpus with"),
        (copy, "build.json cannot be read"),
        (without, "yield.parquet is missing"),
    ):
        assert main([str(place), "--evaluation", folder]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert main([str(corpus.folder), "--evaluation", str(out / "absent")]) == 2


def test_without_the_collection_the_other_figures_are_drawn(
    corpus: Built, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    assert main([str(corpus.folder)]) == 0
    assert "install it with make bench" in capsys.readouterr().err
    assert {file.stem for file in (out / "results").iterdir()} == NAMES - {"decontamination"}


def test_the_questions_of_reasoning_gym_are_the_same_every_time() -> None:
    pytest.importorskip("reasoning_gym", reason="needs the extra bench")
    first, second = reasoning_gym_texts(1), reasoning_gym_texts(1)
    assert first == second
    assert len(first.names) == len(set(first.names)) >= 90
    assert all(first.coded)
