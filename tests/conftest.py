"""Shared fixtures: candidate environments, built once a session, and a disk that is full."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable

import pytest
from hypothesis import settings

from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families import FAMILIES

# The same examples in every run and on every machine; a slow machine is no failure.
settings.register_profile("seeded", derandomize=True, deadline=None, database=None, max_examples=30)
settings.load_profile("seeded")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks first: they take longest, and at the end one process would wait for the other."""
    items.sort(key=lambda item: item.get_closest_marker("notebook") is None)


Candidate = Callable[..., Environment]


@functools.lru_cache(maxsize=256)
def _candidate(family: str, size: str, budget: str, index: int, domain: str | None) -> Environment:
    for position in range(index, index + 50):
        environment = build_candidate(Recipe(family, size, index=position, budget=budget, domain=domain))
        if environment.solution.span >= environment.solution.required_margin:
            return environment
    raise AssertionError(f"{family}/{size}: no instance in 50 has the required margin")


@pytest.fixture(scope="session")
def candidate() -> Candidate:
    """Build a candidate environment with the required margin: candidate(family, size, budget, index, domain)."""

    def build(
        family: str = "rationing",
        size: str = "nano",
        budget: str = "ample",
        index: int = 0,
        domain: str | None = None,
    ) -> Environment:
        return _candidate(family, size, budget, index, domain)

    return build


@pytest.fixture(scope="session", params=FAMILIES)
def environment(request: pytest.FixtureRequest, candidate: Candidate) -> Environment:
    """One nano environment a family."""
    return candidate(request.param)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every sync to disk fail as it does when no space is left."""

    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
