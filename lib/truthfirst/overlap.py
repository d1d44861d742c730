"""How much texts share: token n-grams, and the nearest neighbour by Jaccard similarity of token sets.

Tokens are the maximal runs of letters and digits of the lower-cased text. Nothing is estimated: an n-gram is found
through 64-bit hashes of its windows and then compared token by token, and intersections of token sets are counted by
matrix products (dense for frequent tokens, sparse for rare ones).

    J(A, B) = |A and B| / |A or B|,   0 where both sets are empty

Source: n-gram overlap as in Brown et al., "Language models are few-shot learners", 2020, appendix C (13 tokens);
Jaccard, "The distribution of the flora in the alpine zone", 1912. It says nothing about paraphrase: a text told anew
in other words shares few n-grams and shows, if at all, in its token set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .streams import stream

_TOKEN = re.compile(r"[^\W_]+")
BLOCK = 2_048  # rows compared at once: bounds memory at about BLOCK^2 numbers
FREQUENT = 0.02  # share of texts from which on a token counts as frequent


def tokens(text: str) -> list[str]:
    """Return the lower-cased alphanumeric tokens of a text, in order."""
    return _TOKEN.findall(text.lower())


# --- n-grams ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Match:
    """An n-gram that a text shares with a document: where it starts in the text, in which document and where."""

    position: int
    document: int
    offset: int


class NGramIndex:
    """The n-grams of some documents.

    documents   token lists; one with fewer than n tokens holds no n-gram and can never be matched
    n           length of an n-gram in tokens, at least 1
    """

    def __init__(self, documents: Sequence[Sequence[str]], n: int) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.n = n
        self._documents = documents
        self._hashes: dict[str, int] = {}
        self._weights = stream(0, "n-gram", n).integers(1, 2**63, n, dtype=np.uint64) * np.uint64(
            2
        ) + np.uint64(1)
        found = [self._windows(document) for document in documents]
        keys = np.concatenate(found) if found else np.zeros(0, np.uint64)
        counts = [len(part) for part in found]
        where = np.repeat(np.arange(len(found)), counts)
        offsets = np.concatenate([np.arange(count) for count in counts]) if counts else np.zeros(0, int)
        self._keys, first = np.unique(keys, return_index=True)
        self._where, self._offsets = where[first], offsets[first]

    def __len__(self) -> int:
        """Number of distinct n-grams."""
        return len(self._keys)

    def matches(self, text: Sequence[str]) -> list[Match]:
        """Return every n-gram of `text` (tokens) that occurs in a document, in order; the first such document."""
        windows = self._windows(text)
        if not len(windows) or not len(self._keys):
            return []
        slots = np.minimum(np.searchsorted(self._keys, windows), len(self._keys) - 1)
        found = []
        for position in np.flatnonzero(self._keys[slots] == windows).tolist():
            document, offset = int(self._where[slots[position]]), int(self._offsets[slots[position]])
            there = self._documents[document][offset : offset + self.n]
            if list(text[position : position + self.n]) == list(there):
                found.append(Match(position, document, offset))
        return found

    def covered(self, text: Sequence[str]) -> np.ndarray:
        """Return a mask, shape (len(text),): which tokens lie inside a shared n-gram."""
        mask = np.zeros(len(text), dtype=bool)
        for match in self.matches(text):
            mask[match.position : match.position + self.n] = True
        return mask

    def _windows(self, text: Sequence[str]) -> np.ndarray:
        """Hash every window of n tokens: a weighted sum of the tokens' hashes, modulo 2^64."""
        count = len(text) - self.n + 1
        if count < 1:
            return np.zeros(0, np.uint64)
        coded = np.array([self._hash(token) for token in text], dtype=np.uint64)
        total = np.zeros(count, np.uint64)
        for shift, weight in enumerate(self._weights):
            total += coded[shift : shift + count] * weight
        return total

    def _hash(self, token: str) -> int:
        known = self._hashes.get(token)
        if known is None:
            digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            known = self._hashes[token] = int.from_bytes(digest, "big")
        return known


# --- nearest neighbours -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Nearest:
    """The nearest neighbours of n texts: `index` (n,), -1 where there is none; `similarity` (n,), in [0, 1]."""

    index: np.ndarray
    similarity: np.ndarray


def nearest(texts: Sequence[Iterable[str]], others: Sequence[Iterable[str]] | None = None) -> Nearest:
    """Return for each token set of `texts` its nearest neighbour by Jaccard similarity (ties: the lowest index).

    others   where neighbours are looked for; None: among `texts` themselves, a text not being its own neighbour
    """
    left, right, itself = _pair(texts, others)
    sizes = np.diff(left.indptr), np.diff(right.indptr)
    frequent = np.bincount(right.indices, minlength=right.shape[1]) > FREQUENT * max(1, right.shape[0])
    parts = [(left[:, mask], right[:, mask]) for mask in (frequent, ~frequent)]
    index = np.full(left.shape[0], -1)
    best = np.zeros(left.shape[0])
    for top in range(0, left.shape[0], BLOCK):
        rows = slice(top, min(top + BLOCK, left.shape[0]))
        dense = parts[0][0][rows].toarray()
        for start in range(0, right.shape[0], BLOCK):
            columns = slice(start, min(start + BLOCK, right.shape[0]))
            shared = dense @ parts[0][1][columns].toarray().T
            shared += (parts[1][0][rows] @ parts[1][1][columns].T).toarray()
            union = sizes[0][rows, None] + sizes[1][None, columns] - shared
            similarity = np.divide(shared, union, out=np.zeros_like(shared, dtype=float), where=union > 0)
            if itself and top == start:
                np.fill_diagonal(similarity, -1.0)
            closest = similarity.argmax(axis=1)
            value = similarity[np.arange(len(closest)), closest]
            better = (value > best[rows]) | ((index[rows] < 0) & (value >= 0))
            index[rows] = np.where(better, closest + start, index[rows])
            best[rows] = np.where(better, value, best[rows])
    return Nearest(index, best)


def _pair(
    texts: Sequence[Iterable[str]], others: Sequence[Iterable[str]] | None
) -> tuple[sparse.csr_array, sparse.csr_array, bool]:
    """Return both sides as 0/1 matrices over one vocabulary, and whether they are the same texts."""
    vocabulary: dict[str, int] = {}

    def rows(sets: Sequence[Iterable[str]]) -> tuple[list[int], list[int]]:
        indices: list[int] = []
        ends = [0]
        for one in sets:
            indices += sorted({vocabulary.setdefault(token, len(vocabulary)) for token in one})
            ends.append(len(indices))
        return indices, ends

    sides = [rows(texts), rows(texts if others is None else others)]
    made = [
        sparse.csr_array(
            (np.ones(len(indices), np.float32), np.array(indices, dtype=np.int64), np.array(ends)),
            shape=(len(ends) - 1, max(1, len(vocabulary))),
        )
        for indices, ends in sides
    ]
    return made[0], made[1], others is None
