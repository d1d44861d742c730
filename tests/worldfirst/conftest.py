"""Instances of the world-first wing, made once a session."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from truthfirst.worldfirst.instances import Instance, instance

Made = Callable[..., Instance]


@functools.lru_cache(maxsize=64)
def _instance(name: str, seed: int, tier: str) -> Instance:
    return instance(name, seed, tier)


@pytest.fixture(scope="session")
def made() -> Made:
    """Make an instance: made(generator, seed, tier). Shared, not to be changed."""

    def make(name: str = "warehouse", seed: int = 0, tier: str = "nano") -> Instance:
        return _instance(name, seed, tier)

    return make
