"""Recipes: whatever builds an environment, builds it again, byte for byte; and bad recipes are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from truthfirst.solvefirst.candidates import (
    SETTERS,
    SPLITS,
    Recipe,
    build_candidate,
    draw_passage,
    read_corpus,
    rebuild,
)
from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families.base import UnknownName
from truthfirst.solvefirst.realize.corpus import CorpusError
from truthfirst.solvefirst.realize.setter import SetterTask, TemplateSetter
from truthfirst.solvefirst.realize.spec import WorldSpec
from truthfirst.streams import SeedError
from truthfirst.types import Form

STORY = (
    "At the ropewalk of Port Gideon the spinners walk backwards with hemp about their waists, and the laying top runs "
    "down the track on its sledge. A cable of one hundred fathoms takes a morning. The tar house behind smells of the "
    "Baltic, and the foreman counts the strands twice before the ship's boats come from Cold Harbour to fetch it."
)


# --- bad recipes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        ({"family": "nothing"}, "unknown family 'nothing': choose one of rationing"),
        ({"family": None}, "unknown family None"),
        ({"size": "tiny"}, "unknown size of rationing 'tiny': choose one of nano, small"),
        ({"size": None}, "unknown size of rationing None"),
        ({"budget": "plenty"}, "unknown budget 'plenty': choose one of ample, tight"),
        ({"split": "dev"}, "unknown split 'dev': choose one of train, validation, test"),
        ({"setter": "oracle"}, "unknown setter 'oracle': choose one of template"),
    ],
)
def test_an_unknown_name_is_answered_with_those_there_are(changes: dict[str, Any], evidence: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Recipe(**({"family": "rationing", "size": "nano"} | changes))
    assert str(caught.value).startswith(evidence)


@pytest.mark.parametrize("value", [-1, -(10**20), 1.5, "1", None, True])
@pytest.mark.parametrize("name", ["seed", "index"])
def test_seeds_and_indices_are_integers_of_at_least_0(name: str, value: Any) -> None:
    with pytest.raises(SeedError, match="at least 0"):
        Recipe("rationing", "nano", **{name: value})


def test_an_unknown_domain_is_answered_with_the_domains_of_the_corpus() -> None:
    with pytest.raises(UnknownName, match=r"unknown domain 'space': choose one of air_cargo, baking, "):
        build_candidate(Recipe("rationing", "nano", domain="space"))


def test_a_missing_or_empty_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        build_candidate(Recipe("rationing", "nano", corpus=str(tmp_path / "missing")))
    with pytest.raises(CorpusError, match="no usable passage"):
        build_candidate(Recipe("rationing", "nano", corpus=str(tmp_path)))


@pytest.mark.parametrize("corpus", [5, True, ["a"], Path("a"), b"a"])
def test_a_corpus_is_named_by_text(corpus: Any) -> None:
    with pytest.raises(CorpusError, match=r"corpus = .*: give the path of a folder as text, or None"):
        Recipe("rationing", "nano", corpus=corpus)


def test_a_corpus_may_be_named_from_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "story.txt").write_text(STORY)
    read_corpus.cache_clear()
    assert draw_passage(Recipe("rationing", "nano", corpus="~/texts")).id == "story.txt"
    with pytest.raises(CorpusError, match=r"story\.txt' is a file, not a folder: name a folder of \.txt"):
        draw_passage(Recipe("rationing", "nano", corpus="~/texts/story.txt"))


@pytest.mark.parametrize("damage", [{"colour": "red"}, {"seed": -1}, {"family": "nothing"}])
def test_a_damaged_recipe_does_not_build(
    damage: dict[str, Any], candidate: Callable[..., Environment]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        rebuild(candidate("rationing").recipe | damage)


# --- building ---------------------------------------------------------------------------------------------
def test_a_recipe_builds_the_same_bytes_again(environment: Environment) -> None:
    again = rebuild(json.loads(json.dumps(environment.recipe)))
    assert (again.theta, again.solution, again.spec) == (
        environment.theta,
        environment.solution,
        environment.spec,
    )
    assert again.id == environment.id
    for form in Form:
        assert again.view(form) == environment.view(form)


def test_every_part_of_the_address_changes_the_instance() -> None:
    base = Recipe("rationing", "small")
    addresses = [base, Recipe("rationing", "small", seed=1), Recipe("rationing", "small", index=1)]
    addresses += [Recipe("rationing", "small", split=split) for split in SPLITS if split != base.split]
    built = [build_candidate(recipe) for recipe in addresses]
    assert len({env.theta for env in built}) == len(built)
    assert len({env.id for env in built}) == len(built)


def test_budget_and_domain_leave_theta_alone() -> None:
    plain = build_candidate(Recipe("rationing", "small"))
    tight = build_candidate(Recipe("rationing", "small", budget="tight"))
    baking = build_candidate(Recipe("rationing", "small", domain="baking"))
    assert plain.theta == tight.theta == baking.theta
    assert plain.spec == tight.spec
    assert baking.spec.domain == "Bread and baking"
    assert baking.recipe["domain"] == "baking"


def test_passages_are_drawn_from_all_domains_alike() -> None:
    drawn = [draw_passage(Recipe("rationing", "nano", index=index)) for index in range(300)]
    assert len({passage.domain for passage in drawn}) == 28
    assert len({passage.id for passage in drawn}) > 80
    chosen = {draw_passage(Recipe("rationing", "nano", index=i, domain="theatre")).domain for i in range(10)}
    assert chosen == {"theatre"}


def test_a_users_own_corpus_tells_the_environment(tmp_path: Path) -> None:
    (tmp_path / "ropewalk.txt").write_text(STORY)
    recipe = Recipe("rationing", "nano", corpus=str(tmp_path))
    env = build_candidate(recipe)
    assert env.spec.passage == "ropewalk.txt"
    prompt = env.view(Form.AGENTIC).prompt[0]["content"]
    assert any(sentence in prompt for sentence in read_corpus(str(tmp_path)).passages[0].sentences)
    assert env.theta == build_candidate(Recipe("rationing", "nano")).theta
    assert rebuild(env.recipe).id == env.id


def test_another_setter_may_write_the_spec_and_sees_no_theta() -> None:
    seen: list[SetterTask] = []

    class Loud(TemplateSetter):
        name = "loud"

        def write(self, task: SetterTask, rng: Any) -> WorldSpec:
            seen.append(task)
            return super().write(task, rng).model_copy(update={"closing": "LOUD."})

    env = build_candidate(Recipe("rationing", "nano"), Loud())
    assert env.spec.closing == "LOUD."
    assert env.view(Form.AGENTIC).prompt[0]["content"].endswith("LOUD.")
    assert seen[0].counts == env.family.counts(env.theta)
    assert not any(value is env.theta for value in (getattr(seen[0], name) for name in seen[0].__slots__))
    assert set(SETTERS) == {"template", "terse"}
