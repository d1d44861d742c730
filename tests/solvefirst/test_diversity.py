"""Diversity: each measure on texts whose answer is known by hand, and on a small corpus."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from truthfirst.overlap import tokens
from truthfirst.solvefirst.build import Built
from truthfirst.solvefirst.candidates import read_corpus
from truthfirst.solvefirst.diversity import (
    diversity_frame,
    diversity_summary,
    heaps_exponent,
    passage_shares,
    prompt_text,
    vocabulary_growth,
)


def numbers(public: pd.DataFrame) -> pd.Series:
    return diversity_summary(diversity_frame(public)).set_index("measure")["value"]


def test_a_corpus_is_described_in_full(small_corpus: Built):
    public = small_corpus.public
    frame = diversity_frame(public)
    counts = frame.groupby("measure")["value"].agg(["size", "sum"])
    assert counts.loc["domain", "sum"] == counts.loc["family", "sum"] == len(public)
    assert (counts.loc["nearest", "size"], counts.loc["passage", "size"]) == (len(public), len(public))
    assert frame.loc[frame["measure"].isin(["nearest", "passage"]), "value"].between(0, 1).all()
    found = numbers(public)
    assert found["domain entropy, normalised"] == pytest.approx(
        small_corpus.summary["domain_entropy"], abs=1e-6
    )
    plain = {t for prompt in public["prompt"] for t in tokens(prompt_text(prompt)) if t.isalpha()}
    assert found["distinct words"] == len(plain)
    assert found["nearest neighbour is of the same family"] > 0.9  # rules are shared word for word


def test_copies_are_near_duplicates(small_corpus: Built):
    public = small_corpus.public
    twice = pd.concat([public, public.assign(id=public["id"] + "-copy")], ignore_index=True)
    assert numbers(twice)["near duplicates at Jaccard 0.9"] == 1
    assert numbers(public)["near duplicates at Jaccard 0.9"] < 0.1


def test_the_share_of_the_passage_is_what_is_quoted():
    passage = read_corpus(None).passages[5]
    words = passage.text.split()
    public = pd.DataFrame({"passage": [passage.id] * 3})
    quoted, other = (
        tokens(" ".join(words[3:33])),
        [f"w{n}" for n in range(len(tokens(" ".join(words[3:33]))))],
    )
    assert passage_shares(public, [quoted, other, [*other, *quoted]]) == [1.0, 0.0, 0.5]
    four = tokens(" ".join(words[3:33]))[:4]  # too short a run
    assert passage_shares(public.iloc[:1], [four]) == [0.0]


def test_every_environment_quotes_its_passage_a_little(small_corpus: Built):
    frame = diversity_frame(small_corpus.public)
    shares = frame.loc[frame["measure"] == "passage", "value"]
    assert 0.01 < shares.mean() < 0.4


def test_a_passage_of_another_corpus_is_refused(small_corpus: Built):
    with pytest.raises(ValueError, match=r"passage 'mine\.txt' is not in the corpus"):
        diversity_frame(small_corpus.public.assign(passage="mine.txt"))


def test_vocabulary_grows_as_words_come():
    coded = [["a", "b", "1"], ["a", "b", "2"], ["a", "c", "c", "3"]]
    read, words, total = vocabulary_growth(coded)
    assert read == [1, 2, 3]
    assert words[-1] == 3
    assert total[-1] == 7
    assert words == sorted(words)
    assert vocabulary_growth(coded) == (read, words, total)


def test_the_heaps_exponent_of_a_power_law_is_its_power():
    n = np.arange(1, 101)
    assert heaps_exponent(n, 30 * n**0.6) == pytest.approx(0.6)
    assert heaps_exponent(n[:2], n[:2]) is None
