"""The template setter: every domain can tell every family, in words of its own, and never sees theta."""

from __future__ import annotations

import dataclasses
import itertools
import re
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Family
from truthfirst.solvefirst.realize.corpus import Passage, load_corpus, load_voices
from truthfirst.solvefirst.realize.prompt import instructions
from truthfirst.solvefirst.realize.setter import SetterTask, TemplateSetter, proper_names, slug
from truthfirst.solvefirst.realize.spec import RESERVED, WorldSpec, check_spec
from truthfirst.streams import stream
from truthfirst.types import Form

DOMAINS = sorted(load_voices())
PASSAGES = load_corpus().by_domain()


def write(family: Family, theta: Any, passage: Passage, seed: int = 0) -> WorldSpec:
    task = SetterTask(passage, family, family.counts(theta))
    return TemplateSetter().write(task, stream(seed, "setter", passage.id, family.name))


def sampled(name: str, size: str) -> tuple[Family, Any]:
    return FAMILIES[name], FAMILIES[name].sample(stream(0, "test-setter", name, size), size)


# --- every domain and family ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", FAMILIES)
def test_every_domain_tells_every_family(name: str) -> None:
    family, theta = sampled(name, "huge")  # the most names
    for domain in DOMAINS:
        spec = write(family, theta, PASSAGES[domain][0])
        check_spec(spec, family, family.counts(theta))
        assert spec.domain == load_voices()[domain].label
        text = instructions(family, theta, spec, Form.AGENTIC, 60)
        odd = re.findall(
            r".{0,20}(?:[{}<>`]|  +|\bNone\b(?! has)|\.\.(?!\.)| [,;:]|\bthe the\b|\ba a\b).{0,20}", text
        )
        assert odd == [], domain


@pytest.mark.parametrize("name", FAMILIES)
def test_a_passage_and_a_seed_fix_the_spec(name: str) -> None:
    family, theta = sampled(name, "nano")
    passage = PASSAGES["baking"][0]
    assert write(family, theta, passage) == write(family, theta, passage)
    others = [write(family, theta, passage, seed) for seed in range(1, 6)]
    assert len({spec.model_dump_json() for spec in others}) == 5
    assert len({spec.scenario for spec in others}) >= 3


def test_a_setter_cannot_see_theta() -> None:
    assert [field.name for field in dataclasses.fields(SetterTask)] == ["passage", "family", "counts"]


# --- the text ---------------------------------------------------------------------------------------------
def eight_grams(text: str) -> set[tuple[str, ...]]:
    """Return the 8-grams of lower-cased words, every number masked."""
    tokens = re.findall(r"[a-z]+|#", re.sub(r"\d+", "#", text.lower()))
    return {tuple(tokens[i : i + 8]) for i in range(len(tokens) - 7)}


def shared(texts: list[str]) -> list[float]:
    """Return for every pair of texts the share of 8-grams of the shorter one that the other has too."""
    grams = [eight_grams(text) for text in texts]
    return [len(one & two) / min(len(one), len(two)) for one, two in itertools.combinations(grams, 2)]


def test_the_measure_sees_a_skeleton_with_swapped_nouns() -> None:
    skeleton = "In the {} you have 7 {} to give to those who ask, and each of them takes at most 3 in one {} of work."
    texts = [
        skeleton.format(*nouns) for nouns in (("bakery", "sacks", "bake"), ("harbour", "berths", "tide"))
    ]
    assert shared(texts)[0] > 0.25
    assert shared([texts[0], texts[0].replace("7", "12")]) == [1.0]


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_of_two_domains_share_little(name: str) -> None:
    # All 378 pairs. What they do share are the family's exact rules, which come in three phrasings each, and how
    # tools and turns work. Measured over 14 families: medians 0.07 to 0.12, largest pair 0.27.
    family, theta = sampled(name, "nano")
    specs = [write(family, theta, PASSAGES[domain][0]) for domain in DOMAINS]
    pairs = shared([instructions(family, theta, spec, Form.AGENTIC, 20) for spec in specs])
    assert statistics.median(pairs) <= 0.15
    assert max(pairs) <= 0.3


@pytest.mark.parametrize("name", FAMILIES)
def test_the_words_of_two_domains_share_nothing(name: str) -> None:
    family, theta = sampled(name, "nano")
    told = []
    for domain in DOMAINS:
        spec = write(family, theta, PASSAGES[domain][0])
        tools = [tool.description for tool in spec.tools.values()]
        told.append("\n".join([spec.title, spec.scenario, spec.brief, spec.closing, *tools]))
    pairs = shared(told)  # measured: at most a short phrase of a tool's description, 0.034 in the worst pair
    assert statistics.median(pairs) == 0
    assert max(pairs) <= 0.05


@pytest.mark.parametrize("name", FAMILIES)
def test_tools_columns_and_labels_differ_between_domains(name: str) -> None:
    casts = [load_voices()[domain].castings[name] for domain in DOMAINS]
    for what, least in (
        ("tools", 27),
        ("fields", 22),
    ):  # a plain label such as "minutes the step takes" may recur
        for key in getattr(casts[0], what):
            words = [getattr(cast, what)[key].model_dump_json() for cast in casts]
            assert len(set(words)) >= least, (what, key)


# --- a user's own passages --------------------------------------------------------------------------------
OWN = (
    "The keepers of Bell Rock log every ship that passes. Captain Ferrier sails from Arbroath with coal, and the "
    "Widow Gilchrist sells smoked fish on the quay. When fog comes in, the horn at Inchcape sounds twice a minute, "
    "and nobody leaves Dundee harbour before noon."
)


def test_names_of_a_users_own_passage_are_used() -> None:
    family, theta = sampled("rationing", "small")
    spec = write(family, theta, Passage("own.txt", "baking", "Bell Rock", OWN))
    names = set(spec.entities["item"].names)
    assert names & set(proper_names(OWN))
    assert "Bell Rock" in proper_names(OWN)


def test_an_unknown_domain_borrows_the_nearest_voice_and_keeps_its_name() -> None:
    family, theta = sampled("rationing", "nano")
    text = PASSAGES["fisheries"][0].text
    spec = write(family, theta, Passage("own.txt", "deep_sea", "Own", text))
    assert spec.domain == "deep sea"
    assert spec.brief == load_voices()["fisheries"].castings["rationing"].brief
    assert write(family, theta, Passage("own.txt", "§", "Own", text)).domain == "Own corpus"


@pytest.mark.parametrize("name", list(FAMILIES)[:3])
@settings(max_examples=15)
@given(data=st.data())
def test_any_passage_gives_a_sound_spec(name: str, data: st.DataObject) -> None:
    family, theta = sampled(name, "nano")
    text = data.draw(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=300))
    title = data.draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=150))
    domain = data.draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
    goods = tuple(data.draw(st.lists(st.text(max_size=30), max_size=4)))
    passage = Passage("x" * 400, domain, title, text, {"goods": goods} if goods else {})
    spec = TemplateSetter().write(SetterTask(passage, family, family.counts(theta)), np.random.default_rng(0))
    check_spec(spec, family, family.counts(theta))


# --- identifiers ------------------------------------------------------------------------------------------
@given(st.text(max_size=60))
def test_slug_is_always_a_free_identifier(text: str) -> None:
    name = slug(text)
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name)
    assert name not in RESERVED


@pytest.mark.parametrize(
    ("text", "name"),
    [("Fair day", "fair_day"), ("order", "order_name"), ("2nd shift", "x_2nd_shift"), ("", "x")],
)
def test_slug_examples(text: str, name: str) -> None:
    assert slug(text) == name
