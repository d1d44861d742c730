"""Plans: even lists of places, whatever the weights, and errors that name the entry."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.paths import HOME
from truthfirst.solvefirst.build_plan import (
    CorpusPlan,
    PlanError,
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
    for size, weight in sizes.items():
        assert abs(sum(p.size == size for p in made) - n * weight / sum(sizes.values())) < count + 1
    domains = Counter(p.domain for p in made)
    assert max(domains.values()) - min(domains.get(name, 0) for name in asked.domain_names()) <= 1
    streams = [(r.labels, r.seed) for p in made for r in (p.recipe(asked, attempt) for attempt in range(3))]
    assert len(set(streams)) == len(streams)
    assert places(asked) == made


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
    ("content", "message"), [("- 1\n", "mapping"), ("a: [", "YAML"), (None, "cannot be read")]
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content, message):
    file = tmp_path / "plan.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PlanError, match=message):
        read_plan_file(file)
