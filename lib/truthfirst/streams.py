"""Named random streams: one independent generator for every purpose.

A stream is addressed by a seed and labels, such as ``stream(7, "rationing", "train", 12, "theta")``.
The address is hashed, so neighbouring seeds or indices share nothing, and adding a purpose never
shifts the draws of another one (which ``seed + index`` does).

Source of the idea: counter-based and hashed seeding, Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import hashlib
from numbers import Integral

import numpy as np


class SeedError(ValueError):
    """A seed or stream label is not usable."""


def check_seed(seed: int) -> int:
    """Return `seed` as an int, or raise SeedError unless it is an integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise SeedError(f"seed must be an integer of at least 0, got {seed!r}")
    if seed < 0:
        raise SeedError(f"seed must be at least 0, got {seed}")
    return int(seed)


def derive(seed: int, *labels: str | int) -> int:
    """Return the 128-bit integer that the address (seed, labels...) hashes to.

    Labels are strings or integers; the encoding is prefix-free, so ("ab", "c") and ("a", "bc") differ.
    """
    digest = hashlib.blake2b(digest_size=16)
    for label in (check_seed(seed), *labels):
        if isinstance(label, bool) or not isinstance(label, (str, Integral)):
            raise SeedError(f"a stream label must be a string or an integer, got {label!r}")
        text = label if isinstance(label, str) else str(int(label))
        part = f"{'s' if isinstance(label, str) else 'i'}{text}".encode()
        digest.update(len(part).to_bytes(4, "big") + part)
    return int.from_bytes(digest.digest(), "big")


def stream(seed: int, *labels: str | int) -> np.random.Generator:
    """Return a fresh generator for the address (seed, labels...)."""
    return np.random.Generator(np.random.PCG64(derive(seed, *labels)))
