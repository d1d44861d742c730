"""Overlap of texts against a slow second method: sets of tuples for n-grams, set arithmetic for Jaccard."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst import overlap
from truthfirst.overlap import NGramIndex, nearest, tokens

WORDS = st.lists(st.sampled_from("a b c d e".split()), max_size=14)


def grams(text: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


def test_tokens_are_lower_cased_runs_of_letters_and_digits():
    assert tokens("The kiln_No. 7 burned 1,200 kg; Säge-Werk's OAK!") == [
        *("the", "kiln", "no", "7", "burned", "1", "200", "kg"),
        *("säge", "werk", "s", "oak"),
    ]


@given(st.lists(WORDS, max_size=4), WORDS, st.integers(1, 5))
def test_matches_are_exactly_the_shared_ngrams(documents, text, n):
    index = NGramIndex(documents, n)
    held = {gram for document in documents for gram in grams(document, n)}
    assert len(index) == len(held)
    found = index.matches(text)
    assert [m.position for m in found] == [i for i, gram in enumerate(grams(text, n)) if gram in held]
    for m in found:
        assert documents[m.document][m.offset : m.offset + n] == text[m.position : m.position + n]
    mask = index.covered(text)
    wanted = [any(p <= i < p + n for p in (m.position for m in found)) for i in range(len(text))]
    assert mask.tolist() == wanted


def test_a_hash_that_lies_is_found_out(monkeypatch):
    monkeypatch.setattr(NGramIndex, "_hash", lambda self, token: 7)  # every window collides
    index = NGramIndex([["a", "b", "c"]], 2)
    assert [m.position for m in index.matches(["a", "b", "x", "y"])] == [0]


def test_ngrams_need_a_length():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        NGramIndex([["a"]], 0)


def slow_nearest(sets: list[set[str]], others: list[set[str]] | None) -> tuple[list[int], list[float]]:
    index, best = [], []
    for i, one in enumerate(sets):
        pairs = [
            (len(one & other) / len(one | other) if one | other else 0.0, -j)
            for j, other in enumerate(sets if others is None else others)
            if others is not None or i != j
        ]
        value, j = max(pairs, default=(0.0, 1))
        index.append(-j)
        best.append(value)
    return index, best


@given(st.lists(WORDS, max_size=7), st.none() | st.lists(WORDS, max_size=7))
def test_nearest_agrees_with_set_arithmetic(texts, others):
    sets, rest = [set(t) for t in texts], None if others is None else [set(t) for t in others]
    found = nearest(sets, rest)
    index, best = slow_nearest(sets, rest)
    assert found.index.tolist() == index
    assert found.similarity == pytest.approx(best)


def test_blocks_and_rare_tokens_change_nothing(monkeypatch):
    rng = np.random.default_rng(5)
    sets = [set(map(str, rng.integers(0, 400, 30))) | {"the", "of"} for _ in range(60)]
    whole = nearest(sets)
    monkeypatch.setattr(overlap, "BLOCK", 7)
    for frequent in (0.0, 0.2, 2.0):  # all tokens dense, some, none
        monkeypatch.setattr(overlap, "FREQUENT", frequent)
        parts = nearest(sets)
        assert parts.index.tolist() == whole.index.tolist()
        assert parts.similarity == pytest.approx(whole.similarity)
    assert whole.index.tolist() == slow_nearest(sets, None)[0]
