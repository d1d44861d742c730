"""Named random streams: equal addresses agree, different addresses share nothing, bad addresses are named."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.streams import SeedError, check_seed, derive, stream

LABELS = st.one_of(st.integers(-5, 5), st.text("a1i|s", max_size=4))
ADDRESSES = st.tuples(st.integers(0, 3), st.lists(LABELS, max_size=4))


def test_equal_addresses_give_equal_draws() -> None:
    one, two = stream(7, "rationing", 12, "theta"), stream(7, "rationing", 12, "theta")
    assert one.integers(0, 10**9, 50).tolist() == two.integers(0, 10**9, 50).tolist()


def test_draws_of_one_stream_do_not_shift_another() -> None:
    quiet = stream(3, "theta").random(5).tolist()
    busy = stream(3, "setter")
    busy.random(1000)
    assert stream(3, "theta").random(5).tolist() == quiet


@given(ADDRESSES, ADDRESSES)
def test_different_addresses_differ(one: tuple[int, list], two: tuple[int, list]) -> None:
    assert (derive(one[0], *one[1]) == derive(two[0], *two[1])) == (one == two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("ab", "c"), ("a", "bc")),
        (("1",), (1,)),
        (("a",), ("a", "")),
        ((1, 2), (12,)),
        (("i1",), (1,)),
        (("a", "b"), ("asb",)),
        ((1, 2), (1, "2")),
    ],
)
def test_encoding_is_free_of_prefixes(one: tuple, two: tuple) -> None:
    assert derive(0, *one) != derive(0, *two)


def test_neighbouring_seeds_share_nothing() -> None:
    firsts = np.array([stream(seed, "x").random(4) for seed in range(200)])
    assert len(np.unique(firsts)) == firsts.size
    correlation = np.corrcoef(firsts[:-1, 0], firsts[1:, 0])[0, 1]
    assert abs(correlation) < 0.3  # four standard errors of independent draws


def test_address_does_not_depend_on_the_process() -> None:
    code = "from truthfirst.streams import derive; print(derive(7, 'train', 3, 'theta'))"
    environment = os.environ | {"PYTHONHASHSEED": "99"}
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert int(told.stdout) == derive(7, "train", 3, "theta")


def test_numpy_integers_are_integers() -> None:
    assert derive(np.int64(7), np.int32(3)) == derive(7, 3)


@pytest.mark.parametrize("seed", [-1, -(10**30), True, 1.0, "3", None, float("nan"), np.float64(2)])
def test_bad_seeds_are_named(seed: object) -> None:
    with pytest.raises(SeedError, match="at least 0") as caught:
        stream(seed, "x")  # type: ignore[arg-type]
    assert repr(seed) in str(caught.value)
    with pytest.raises(SeedError):
        check_seed(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("label", [None, 1.5, True, b"x", ("a",)])
def test_bad_labels_are_named(label: object) -> None:
    with pytest.raises(SeedError) as caught:
        derive(0, label)  # type: ignore[arg-type]
    assert repr(label) in str(caught.value)
