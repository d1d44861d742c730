"""Plans: even lists of places, whatever the weights, and errors that name the entry."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.paths import HOME
from truthfirst.solvefirst.build_plan import (
    CorpusPlan,
    PlanError,
    _largest_remainder,
    check_plan,
    places,
    plan_hash,
    read_plan_file,
)
from truthfirst.solvefirst.build_report import entropy
from truthfirst.solvefirst.families import FAMILIES

BASE: dict[str, Any] = {"name": "a", "environments": 40, "sizes": {"nano": 1, "small": 3}}


def plan(**changes: Any) -> CorpusPlan:
    return check_plan(BASE | changes)


def test_the_corpus_of_the_repository_is_planned_evenly():
    asked = read_plan_file(HOME / "data" / "corpora" / "vhd3300.yaml")
    made = places(asked)
    assert len(made) == 3300
    assert {p.family for p in made} == set(FAMILIES)
    domains = Counter(p.domain for p in made)
    assert len(domains) == 28
    assert max(domains.values()) - min(domains.values()) <= 1
    assert entropy(p.domain for p in made) >= 0.997
    families = Counter(p.family for p in made)
    assert max(families.values()) - min(families.values()) <= 1
    both = Counter((p.domain, p.budget) for p in made)  # domain and budget are not confounded
    assert min(both.values()) > 0.35 * 3300 / 28


weights = st.dictionaries(st.sampled_from(["nano", "small", "large"]), st.integers(0, 5), min_size=1).filter(
    lambda w: any(w.values())
)


@given(n=st.integers(1, 150), sizes=weights, count=st.integers(1, 4), seed=st.integers(0, 3))
def test_counts_follow_the_weights_and_no_two_places_share_an_instance(n, sizes, count, seed):
    asked = plan(environments=n, sizes=sizes, families=list(FAMILIES)[:count], seed=seed)
    made = places(asked)
    assert [p.number for p in made] == list(range(n))
    families = Counter(p.family for p in made)
    assert all(abs(families[name] - n / count) < 1 for name in asked.family_names())
    for size, weight in sizes.items():  # by largest remainder; 0.01: see TOLERANCE, for plans of hundreds
        share = n * weight / sum(sizes.values())
        assert abs(sum(p.size == size for p in made) - share) < 1 + 0.01 * share
    domains = Counter(p.domain for p in made)
    assert max(domains.values()) - min(domains.get(name, 0) for name in asked.domain_names()) <= 1
    streams = [(r.labels, r.seed) for p in made for r in (p.recipe(asked, attempt) for attempt in range(3))]
    assert len(set(streams)) == len(streams)
    assert places(asked) == made


@pytest.mark.parametrize("n", [10, 20, 34, 51, 85, 170])
def test_a_small_plan_loses_no_split_size_budget_or_setter(n):
    """Seventeen families and few places: cumulative rounding alone gives every one of 34 places to `train`."""
    asked = plan(
        environments=n,
        sizes={"nano": 2, "small": 5, "medium": 3},
        setters={"template": 4, "language:m": 1},
    )
    made = places(asked)
    assert len(made) == n
    for axis, weights in (
        *(("split", asked.splits), ("size", asked.sizes)),
        *(("budget", asked.budgets), ("setter", asked.setters)),
    ):
        found = Counter(getattr(place, axis) for place in made)
        for value, weight in weights.items():
            share = n * weight / sum(weights.values())
            assert math.floor(share) <= found[value] <= math.ceil(share) + 0.01 * share, (axis, value)
    families = Counter(place.family for place in made)
    assert all(abs(families[name] - n / len(FAMILIES)) < 1 for name in FAMILIES)
    if n >= 51:  # the places that moved are spread, and no family is a split of its own
        assert all(len({p.family for p in made if p.split == s}) >= 5 for s in asked.splits)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.integers(0, 200))
def test_the_largest_remainder_keeps_quota(weights, total):
    """Hamilton's apportionment: every count is its share rounded down or up, larger cut-off parts first."""
    found = _largest_remainder([float(w) for w in weights], total)
    shares = [Fraction(total * w, sum(weights)) for w in weights]
    assert sum(found) == total
    assert all(math.floor(s) <= f <= math.ceil(s) for s, f in zip(shares, found, strict=True))
    cut = [(f > s, s % 1) for s, f in zip(shares, found, strict=True) if s % 1]
    assert all(up >= down for more, up in cut if more for less, down in cut if not less)


def test_a_textbook_apportionment():
    """The example commonly given for Hamilton's method: 100,000 votes, ten seats, quota 10,000."""
    votes = [47_000.0, 16_000.0, 15_900.0, 12_000.0, 6_000.0, 3_100.0]
    assert _largest_remainder(votes, 10) == [5, 2, 1, 1, 1, 0]


def test_the_corpus_of_the_repository_keeps_its_places():
    """3,300 places are even without moving any: within a hundredth of what each value is due."""
    asked = read_plan_file(HOME / "data" / "corpora" / "vhd3300.yaml")
    made = places(asked)
    found = {axis: Counter(getattr(p, axis) for p in made) for axis in ("split", "size", "budget")}
    assert found["split"] == {"train": 2640, "validation": 330, "test": 330}
    assert found["size"] == {
        **{"nano": 220, "small": 550, "medium": 660},
        **{"large": 660, "huge": 550, "long": 660},
    }
    assert found["budget"] == {"ample": 1652, "tight": 1648}  # what cumulative rounding gave: nothing moved


def test_the_order_of_a_file_means_nothing():
    turned = {name: dict(reversed(BASE[name].items())) for name in ("sizes",)}
    turned |= {
        "families": ["search", "rationing"],
        "splits": {"test": 1, "train": 2},
        "budgets": {"tight": 1, "ample": 2},
    }
    straight = {
        "families": ["rationing", "search"],
        "splits": {"train": 2, "test": 1},
        "budgets": {"ample": 2, "tight": 1},
    }
    assert places(plan(**turned)) == places(plan(**straight))


def test_another_seed_deals_the_domains_differently():
    first, second = (([p.domain for p in places(plan(seed=seed))]) for seed in (0, 1))
    assert first != second


def test_the_hash_knows_what_all_means(monkeypatch):
    named = plan(families=list(FAMILIES))
    assert plan_hash(plan()) == plan_hash(named)
    assert plan_hash(plan(environments=41)) != plan_hash(named)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environments": 0}, "environments"),
        ({"environments": "many"}, "environments"),
        ({"families": ["rationing", "alchemy"]}, "unknown family 'alchemy': choose from rationing"),
        ({"families": []}, "families"),
        ({"families": ["search", "search"]}, "'search' is named twice"),
        ({"domains": ["dairy", "atlantis"]}, "unknown domain 'atlantis'"),
        ({"sizes": {"tiny": 1}}, "unknown size of rationing 'tiny': choose from nano"),
        ({"sizes": {}}, "sizes"),
        ({"sizes": {"nano": 0}}, "at least one weight must be above 0"),
        ({"sizes": {"nano": -1}}, "sizes.nano"),
        ({"sizes": {"nano": math.inf}}, "sizes.nano"),
        ({"sizes": {"nano": math.nan}}, "sizes.nano"),
        ({"splits": {"train": 1e300, "test": 1e300}}, "splits.train"),
        ({"require": {"mean_turns": math.inf}}, "require.mean_turns"),
        ({"budgets": {"lavish": 1}}, "unknown budget 'lavish': choose from ample, tight"),
        ({"splits": {"dev": 1}}, "unknown split 'dev'"),
        ({"setters": {"oracle": 1}}, "unknown setter 'oracle'"),
        ({"name": "../up"}, "name"),
        ({"colour": "blue"}, "colour"),
        ({"require": {"domain_entropy": 2}}, "require.domain_entropy"),
    ],
)
def test_a_wrong_plan_is_refused_and_the_entry_is_named(change, message):
    with pytest.raises(PlanError, match=r"my\.yaml: ") as caught:
        check_plan(BASE | change, "my.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- 1\n", "mapping"),
        (b"a: [", "not YAML"),
        (b"name: \xff", "not UTF-8"),
        (b"name: a\nsizes: {nano: 1, small: 2, nano: 3}\n", "line 2: .*'nano' stands twice"),
        (b"name: a\nseed: 1\nseed: 2\n", "line 3: .*'seed' stands twice"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content, message):
    file = tmp_path / "plan.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PlanError, match=message):
        read_plan_file(file)
