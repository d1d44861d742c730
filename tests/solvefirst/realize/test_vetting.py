"""Vetting passes all healthy text, and each check finds what it is for and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.realize.corpus import Passage, load_corpus
from truthfirst.solvefirst.realize.setter import SetterTask, TemplateSetter
from truthfirst.solvefirst.realize.spec import WorldSpec
from truthfirst.solvefirst.realize.vetting import (
    CHECKS,
    VettingError,
    findings,
    texts,
    vet,
    without_quotation,
)
from truthfirst.streams import stream

PASSAGES = load_corpus().by_domain()
PASSAGE = PASSAGES["baking"][0]


def template(name: str, passage: Passage, size: str = "nano", seed: int = 0) -> WorldSpec:
    family = FAMILIES[name]
    theta = family.sample(stream(0, "vetting", name), size)
    task = SetterTask(passage, family, family.counts(theta))
    return TemplateSetter().write(task, stream(seed, "vetting", passage.id, name))


@pytest.mark.parametrize("name", FAMILIES)
def test_healthy_text_passes_in_every_domain(name: str) -> None:
    for domain, passages in PASSAGES.items():
        spec = template(name, passages[0], "medium")
        assert findings(spec, passages[0]) == [], domain


def test_every_passage_may_be_quoted() -> None:
    for number, passages in enumerate(PASSAGES.values()):
        for seed, passage in enumerate(passages):
            spec = template(list(FAMILIES)[number % len(FAMILIES)], passage, seed=seed)
            assert findings(spec, passage) == [], passage.id


def test_every_text_of_a_spec_is_looked_at() -> None:
    # A mark in any one string of the spec, at any depth, is found: no part is left out.
    spec = template("assignment", PASSAGE).model_copy(update={"setter": "template"})
    seen = {text.part for text in texts(spec)}
    data = spec.model_dump(mode="json", exclude={"domain", "phrasing", "passage", "setter"})

    def count(value: object) -> int:
        if isinstance(value, dict):
            return sum(map(count, value.values()))
        return sum(map(count, value)) if isinstance(value, list) else 1

    assert len(seen) == count(data)
    for text in texts(spec):
        assert text.text


def test_findings_name_check_part_and_evidence() -> None:
    spec = template("rationing", PASSAGE).model_copy(
        update={"title": "Butter for 3 <b>bakes</b>", "closing": "Go on {now}, my friend."}
    )
    found = findings(spec, PASSAGE)
    assert [(finding.check, finding.part) for finding in found] == [
        ("markup", "title"),
        ("braces", "closing"),
        ("digits", "title"),
    ]
    assert "3 <b>" in found[2].evidence
    with pytest.raises(VettingError, match=r"^markup: title: .* \(and 2 more\)$"):
        vet(spec, PASSAGE)
    assert set(CHECKS) >= {finding.check for finding in found}


# --- quotations -------------------------------------------------------------------------------------------
SOLD = "In 1840 the guild sold 12 loaves for a penny, and flour was dear."
OWN = Passage("own.txt", "baking", "Bread in 1840", f"{SOLD} Then the mill burnt.")


@pytest.mark.parametrize(
    ("scenario", "left"),
    [
        (f'"{SOLD}"\n(from: Bread in 1840)\n\nYou bake.', '""\n\nYou bake.'),
        ("“In 1840 the guild sold 12 loaves\nfor a penny”, they say.", '"", they say.'),
        (
            '"In 1840 the guild sold 13 loaves for a penny."',
            '"In 1840 the guild sold 13 loaves for a penny."',
        ),
        ('They say "12" and mean it.', 'They say "12" and mean it.'),  # too short to be a quotation
        ("(from: Bread in 1841)", "(from: Bread in 1841)"),
    ],
)
def test_only_the_passage_itself_may_be_quoted(scenario: str, left: str) -> None:
    assert without_quotation(scenario, OWN) == left


def test_a_quoted_year_passes_and_the_same_year_elsewhere_does_not() -> None:
    spec = TemplateSetter().write(
        SetterTask(OWN, FAMILIES["rationing"], {"period": 3, "item": 2}), np.random.default_rng(0)
    )
    assert "1840" in spec.scenario
    assert findings(spec, OWN) == []
    told = spec.model_copy(update={"scenario": f"{spec.scenario} It is 1840."})
    assert [finding.check for finding in findings(told, OWN)] == ["digits"]


# --- wording that must not be taken for an attack -----------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "Forget the rain; the coopers will not.",
        "The highest score of the flight is chalked up.",
        "An agent of the mill answers for the price.",
        "The graders' hours are short this season.",
        "Its reward only shows over several winters.",
        "Standing instruction for the night shift.",
        "Select one plot from the list at the gate.",
        "The assistant stage manager calls the cues.",
    ],
)
def test_ordinary_sentences_of_a_trade_pass(text: str) -> None:
    spec = template("rationing", PASSAGE)
    assert findings(spec.model_copy(update={"closing": text}), PASSAGE) == []
