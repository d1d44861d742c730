"""The gallery: one environment a domain, nothing sealed, text that Markdown leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from truthfirst.solvefirst.build import build
from truthfirst.solvefirst.build_plan import check_plan
from truthfirst.solvefirst.candidates import read_corpus
from truthfirst.study import gallery as showing
from truthfirst.study.gallery import as_markdown, fresh, from_corpus, gallery


def test_a_built_corpus_shows_one_of_every_domain_and_many_families(tmp_path: Path):
    plan = check_plan(
        {
            "name": "g",
            "environments": 40,
            "families": ["rationing", "pricing", "search", "bidding"],
            "sizes": {"nano": 1},
            "budgets": {"ample": 1},
            "domains": ["dairy", "mining", "baking", "textiles", "forestry"],
        }
    )
    build(plan, tmp_path, workers=1, progress=False)
    shown = from_corpus(tmp_path)  # has no `small`: shows what there is
    assert [e.recipe["domain"] for e in shown] == sorted(plan.domains)
    families = [e.family_name for e in shown]
    assert max(map(families.count, families)) == 2  # five domains over four families
    assert [e.id for e in from_corpus(tmp_path)] == [e.id for e in shown]


def test_a_fresh_gallery_covers_every_domain(monkeypatch):
    few = {name: showing.FAMILIES[name] for name in ("rationing", "pricing", "search")}
    monkeypatch.setattr(showing, "FAMILIES", few)
    shown = fresh("nano")
    assert [e.recipe["domain"] for e in shown] == sorted(read_corpus(None).by_domain())
    assert len(shown) == 28
    frame = gallery(shown)
    assert frame["domain"].is_unique
    assert frame["title"].nunique() > 20
    assert frame["family"].value_counts().max() <= 10
    for column in ("epigraph", "opening", "brief", "unknown"):
        assert (frame[column].str.len() > 20).all()
        assert not frame[column].str.contains(r"\{\w+\}").any()


def test_no_domain_is_left_out_in_silence(monkeypatch):
    class Refused:
        admitted = False

    monkeypatch.setattr(showing, "admit", lambda environment: Refused())
    monkeypatch.setattr(showing, "ATTEMPTS", 2)
    with pytest.raises(ValueError, match="no rationing environment of size nano was admitted in 2"):
        fresh("nano")


def test_the_markdown_shows_words_as_they_are(candidate):
    environment = candidate("pricing", "small", domain="dairy")
    frame = gallery([environment]).assign(title="A $5 *plan* [for_all]", opening="<b>Now</b> 1 | 2.")
    text = as_markdown(frame)
    assert r"A \$5 \*plan\* \[for\_all\]" in text
    assert r"\<b\>Now\</b\> 1 \| 2." in text
    assert text.startswith("#### ")
    assert f"{environment.turn_budget} turns" in text
    numbers = set(re.findall(r"\d+", text))
    solution = environment.solution
    assert str(solution.u_star) not in numbers
