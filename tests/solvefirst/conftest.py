"""A small corpus, built once a session in this process, for the tests of what is made of a corpus."""

from __future__ import annotations

import pytest
from small import SMALL

from truthfirst.solvefirst.build import Built, build
from truthfirst.solvefirst.build_plan import CorpusPlan, check_plan


@pytest.fixture(scope="session")
def small_plan() -> CorpusPlan:
    return check_plan(SMALL)


@pytest.fixture(scope="session")
def small_corpus(small_plan: CorpusPlan, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The corpus of `small_plan`, built without interruption by one worker. Not to be written to."""
    return build(small_plan, tmp_path_factory.mktemp("corpus"), workers=1, progress=False)
