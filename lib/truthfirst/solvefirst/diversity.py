"""Diversity of a corpus, measured from its public rows alone.

    topics       normalised entropy of the shares of domains (and of families), H / log K in [0, 1]
    nearest      of every prompt, the Jaccard similarity of its token set with its nearest neighbour's; the
                 near-duplicate rate is the share of prompts at or above a threshold
    vocabulary   distinct words as prompts are read one after the other in a shuffled order (Heaps, "Information
                 retrieval", 1978: V(n) = K n^beta; beta is the slope in log-log over the second half)
    passage      share of a prompt's tokens that lie in a run of at least five tokens of its passage: what the corpus of
                 texts says itself, beside what the mechanism and the domain's voice add

A prompt is its messages of form A. Prompts of one family share its rules word for word, which is why similarity is
given within and across families. None of this says that two environments ask for different thinking: that is what
families and sizes are for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..overlap import NGramIndex, nearest, tokens
from ..streams import stream
from .build_report import entropy
from .candidates import read_corpus

NEAR_DUPLICATE = (0.7, 0.8, 0.9)
RUN = 5  # tokens in a row that count as taken from a passage
CURVE_POINTS = 40


def prompt_text(prompt: Sequence[dict[str, str]]) -> str:
    """Return the text of a prompt: its messages one after the other."""
    return "\n\n".join(message["content"] for message in prompt)


def diversity_frame(public: pd.DataFrame, *, corpus: str | None = None, seed: int = 0) -> pd.DataFrame:
    """Return every measure of a corpus in one tidy frame (figures_corpus.corpus_diversity).

    public   rows of `manifest.load_public`; corpus: the folder of passages that it was built from

    One row a number: measure, name, x, value. Measures: "nearest" and "passage" (name an id; x 1 where the nearest
    neighbour is of the same family), "domain" and "family" (name, value environments), "vocabulary" (x prompts read,
    value distinct words), "tokens" (the same, value tokens read).
    """
    coded = [tokens(prompt_text(prompt)) for prompt in public["prompt"]]
    ids, families = public["id"].tolist(), public["family"].to_numpy()
    close = nearest([set(one) for one in coded])
    same = [bool(j >= 0 and families[i] == families[j]) for i, j in enumerate(close.index)]
    parts = [_rows("nearest", ids, same, close.similarity)]
    parts.append(_rows("passage", ids, [0] * len(ids), passage_shares(public, coded, corpus)))
    for measure in ("domain", "family"):
        counts = public[measure].value_counts().sort_index()
        parts.append(_rows(measure, counts.index, range(len(counts)), counts))
    read, words, total = vocabulary_growth(coded, seed)
    parts += [
        _rows("vocabulary", [""] * len(read), read, words),
        _rows("tokens", [""] * len(read), read, total),
    ]
    return pd.concat(parts, ignore_index=True)


def _rows(measure: str, names: Any, x: Any, values: Any) -> pd.DataFrame:
    data = {"measure": measure, "name": list(names), "x": np.asarray(list(x), float)}
    return pd.DataFrame(data | {"value": np.asarray(list(values), float)})


def vocabulary_growth(
    coded: Sequence[Sequence[str]], seed: int = 0
) -> tuple[list[int], list[int], list[int]]:
    """Return (prompts read, distinct words, tokens read) at evenly spaced points of a shuffled reading.

    Words are tokens without a digit: numbers differ from instance to instance, and say nothing of the language.
    """
    order = stream(seed, "vocabulary").permutation(len(coded))
    points = {round(len(coded) * k / CURVE_POINTS) for k in range(1, CURVE_POINTS + 1)} - {0}
    seen: set[str] = set()
    read, words, total, count = [], [], [], 0
    for number, position in enumerate(order, start=1):
        plain = [token for token in coded[position] if token.isalpha()]
        seen.update(plain)
        count += len(plain)
        if number in points:
            read.append(number)
            words.append(len(seen))
            total.append(count)
    return read, words, total


def passage_shares(
    public: pd.DataFrame, coded: Sequence[Sequence[str]], corpus: str | None = None
) -> list[float]:
    """Return for each prompt (its tokens in `coded`) the share that lies in runs of RUN tokens of its passage."""
    texts = {
        passage.id[-300:]: f"{passage.title}\n{passage.text}" for passage in read_corpus(corpus).passages
    }
    lacking = sorted(set(public["passage"]) - texts.keys())
    if lacking:
        raise ValueError(
            f"passage {lacking[0]!r} is not in the corpus: name the folder that the manifest was built from"
        )
    indices: dict[str, NGramIndex] = {}
    shares = []
    for passage, text in zip(public["passage"], coded, strict=True):
        if passage not in indices:
            indices[passage] = NGramIndex([tokens(texts[passage])], RUN)
        shares.append(float(indices[passage].covered(text).mean()) if len(text) else 0.0)
    return shares


def diversity_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the headline numbers of a `diversity_frame`: one row a number, with n."""
    of = dict(iter(frame.groupby("measure", sort=False)))
    rows: list[tuple[str, float, int]] = []
    for measure in ("domain", "family"):
        counts = of[measure]
        labels = np.repeat(counts["name"].to_numpy(), counts["value"].astype(int))
        rows.append((f"{measure} entropy, normalised", entropy(labels), int(counts["value"].sum())))
    close = of["nearest"]["value"]
    rows.append(("nearest neighbour, median Jaccard", float(close.median()), len(close)))
    rows += [
        (f"near duplicates at Jaccard {t}", float((close >= t).mean()), len(close)) for t in NEAR_DUPLICATE
    ]
    rows.append(("nearest neighbour is of the same family", float(of["nearest"]["x"].mean()), len(close)))
    rows.append(
        ("share of a prompt from its passage, mean", float(of["passage"]["value"].mean()), len(close))
    )
    words, total = of["vocabulary"], of["tokens"]
    rows.append(("distinct words", float(words["value"].iloc[-1]), len(close)))
    rows.append(("words read", float(total["value"].iloc[-1]), len(close)))
    if (beta := heaps_exponent(words["x"].to_numpy(), words["value"].to_numpy())) is not None:
        rows.append(("Heaps exponent of the second half", beta, len(close)))
    return pd.DataFrame(rows, columns=["measure", "value", "n"])


def heaps_exponent(read: np.ndarray, words: np.ndarray) -> float | None:
    """Return the slope of log words over log prompts in the second half of the curve; None for fewer than 4 points."""
    half = len(read) // 2
    if len(read) - half < 2 or math.isclose(read[half], read[-1]):
        return None
    return float(np.polyfit(np.log(read[half:]), np.log(words[half:]), 1)[0])
