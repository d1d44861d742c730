"""Decontamination: planted texts are found, clean ones are not, and a blind comparator is found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from truthfirst.overlap import NGramIndex, tokens
from truthfirst.solvefirst.build import Built
from truthfirst.solvefirst.decontaminate import (
    ControlError,
    Evaluation,
    EvaluationError,
    contamination,
    main,
    overlaps,
    read_evaluation,
)
from truthfirst.solvefirst.diversity import prompt_text


def foreign(count: int, seed: int = 0, length: int = 60) -> list[list[str]]:
    """Texts of made-up words that no prompt can hold."""
    rng = np.random.default_rng(seed)
    return [[f"q{rng.integers(500)}z" for _ in range(length)] for _ in range(count)]


def evaluation(texts: list[list[str]]) -> Evaluation:
    return Evaluation(tuple(f"t{n}" for n in range(len(texts))), tuple(map(tuple, texts)))


def test_clean_prompts_are_clean_and_every_control_is_passed(small_corpus: Built):
    frame = overlaps(small_corpus.public, evaluation(foreign(25)))
    table = contamination(frame).set_index("set")
    assert table.loc["corpus", ["found_13", "found_8", "jaccard_highest"]].tolist() == [0, 0, 0]
    assert table.loc["itself", ["found_13", "found_8", "jaccard_median"]].tolist() == [1, 1, 1]
    assert table.loc["planted 20", ["found_13", "found_8"]].tolist() == [1, 1]
    assert table.loc["planted 10", ["found_13", "found_8"]].tolist() == [0, 1]
    assert table.loc["shuffled", ["found_13", "found_8"]].tolist() == [0, 0]
    assert table.loc["shuffled", "jaccard_median"] == 1  # every token is shared, in another order
    assert table["n"].to_dict() == {
        "corpus": 30,
        "itself": 25,
        "planted 20": 30,
        "planted 10": 30,
        "shuffled": 25,
    }


def test_a_leaked_prompt_is_found_with_its_evidence(small_corpus: Built):
    public = small_corpus.public
    leaked = tokens(prompt_text(public["prompt"].iloc[7]))[40:58]
    texts = [*foreign(5), ["before", *leaked, "after"]]
    frame = overlaps(public, evaluation(texts))
    row = frame[(frame["set"] == "corpus") & (frame["id"] == public["id"].iloc[7])].iloc[0]
    assert row["shared_13"] == 18 - 13 + 1
    assert row["shared_8"] >= 18 - 8 + 1
    assert (row["document"], row["nearest"]) == ("t5", "t5")
    assert row["evidence"] == " ".join(leaked[:13])
    own, theirs = set(tokens(prompt_text(public["prompt"].iloc[7]))), set(texts[5])
    assert row["jaccard"] == pytest.approx(len(own & theirs) / len(own | theirs))


def test_the_passages_that_prompts_quote_are_found(small_corpus: Built):
    """A positive control on real texts: epigraphs come from the corpus of passages."""
    from truthfirst.paths import CORPUS

    frame = overlaps(small_corpus.public, read_evaluation(CORPUS))
    table = contamination(frame).set_index("set")
    assert table.loc["corpus", "found_13"] > 0.8


@pytest.mark.parametrize("fault", ["blind", "short-sighted", "far-sighted"])
def test_a_comparator_that_misses_is_found_out_by_the_controls(small_corpus: Built, monkeypatch, fault):
    true_matches = NGramIndex.matches

    def matches(self: NGramIndex, text: Any) -> Any:
        found = true_matches(self, text)
        if fault == "blind" or (fault == "short-sighted" and self.n == 13):
            return []
        return [m for m in found if m.position < 5] if fault == "far-sighted" else found

    monkeypatch.setattr(NGramIndex, "matches", matches)
    frame = overlaps(small_corpus.public, evaluation(foreign(25)))
    with pytest.raises(ControlError, match="is not found by the comparator"):
        contamination(frame)


# --- reading ----------------------------------------------------------------------------------------------
def test_every_format_is_read_and_nothing_is_passed_over_in_silence(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("One question here.")
    (tmp_path / "sub" / "b.md").write_text("# Two\nquestions")
    rows = [{"question": "three", "choices": ["x", {"deep": "y"}], "n": 4}, {"question": "five"}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "d.json").write_text(json.dumps(rows))
    pd.DataFrame(rows[1:]).to_csv(tmp_path / "e.csv", index=False)
    pd.DataFrame({"question": ["six"], "choices": [["seven", "eight"]]}).to_parquet(tmp_path / "f.parquet")
    (tmp_path / "g.bin").write_bytes(b"\x00\xff")
    (tmp_path / "h.jsonl").write_text("{broken")
    (tmp_path / "i.txt").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "j.parquet").write_bytes(b"PAR1")
    (tmp_path / "k.txt").write_text(" ... ")
    found = read_evaluation(tmp_path)
    texts = dict(zip(found.names, found.coded, strict=True))
    assert texts == {
        "a.txt": ("one", "question", "here"),
        "sub/b.md": ("two", "questions"),
        "c.jsonl#0": ("three", "x", "y"),
        "c.jsonl#1": ("five",),
        "d.json#0": ("three", "x", "y"),
        "d.json#1": ("five",),
        "e.csv#0": ("five",),
        "f.parquet#0": ("six", "seven", "eight"),
    }
    assert [name for name, _ in found.skipped] == ["g.bin", "h.jsonl", "i.txt", "j.parquet", "k.txt"]


def test_a_folder_without_texts_is_refused(tmp_path: Path):
    with pytest.raises(EvaluationError, match="no folder"):
        read_evaluation(tmp_path / "nowhere")
    (tmp_path / "a.bin").write_bytes(b"\x00")
    with pytest.raises(EvaluationError, match=r"a\.bin: ValueError: not a text format"):
        read_evaluation(tmp_path)


def test_the_command_tells_clean_from_contaminated(small_corpus: Built, tmp_path: Path, capsys):
    folder, out = tmp_path / "texts", tmp_path / "out" / "overlap.parquet"
    folder.mkdir()
    (folder / "a.txt").write_text(" ".join(foreign(1)[0]))
    (folder / "short.txt").write_text("too short to share a run")
    corpus = str(small_corpus.folder)
    assert main([corpus, str(folder), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "30 prompts" in said
    assert "1 are shorter than 13 tokens" in said
    assert len(pd.read_parquet(out)) == 30 + 2 + 30 + 30 + 2
    (folder / "b.txt").write_text(prompt_text(small_corpus.public["prompt"].iloc[3]))
    assert main([corpus, str(folder)]) == 1
    assert "contaminated" in capsys.readouterr().out
    assert main([str(tmp_path / "nowhere"), str(folder)]) == 2
    assert main([corpus, str(tmp_path / "nowhere")]) == 2
