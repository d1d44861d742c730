"""A trace scored again from its recipe: an honest one to the same score, a falsified one not at all."""

from __future__ import annotations

import dataclasses
import json

import pytest

from truthfirst.episode import read_trace, save_trace, trace_record
from truthfirst.records import RecordError
from truthfirst.solvefirst import candidates
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.references import play, policy
from truthfirst.solvefirst.score import score_trace
from truthfirst.study import rescore as module
from truthfirst.study.compare import compare
from truthfirst.study.rescore import rescore, rescored

WORLD = build_candidate(Recipe("rationing", "nano", index=1))
OTHER = build_candidate(Recipe("rationing", "nano", index=3))


def with_header(trace, **entries):
    return dataclasses.replace(trace, header=trace.header | entries)


def stored(trace):
    """A trace as it comes back from its file: tuples are lists."""
    return read_trace(json.loads(json.dumps(trace_record(trace))), "t.jsonl, line 7")


@pytest.mark.parametrize("family", FAMILIES)
def test_an_honest_trace_scores_again_to_the_same(family, candidate):
    for form in ("F", "A"):
        trace = stored(play(policy("plan"), candidate(family), form, 0))
        again = rescore(trace)
        assert again.reward == score_trace(trace).reward
        assert (again.detail["checked"], again.detail["unchecked"]) == ("all", None)


@pytest.mark.parametrize("name", ["u_star", "u_zero", "turn_budget"])
def test_a_falsified_number_is_named(name):
    trace = stored(play(policy("probe-2"), WORLD, "A", 0))
    false = with_header(trace, **{name: trace.header[name] - 3})
    if name != "turn_budget":
        assert score_trace(false).reward != score_trace(trace).reward  # the header is believed there
    with pytest.raises(
        RecordError, match=rf"t\.jsonl, line 7: the header states {name} = .*, not .*falsified"
    ):
        rescore(false)


def test_a_consistently_falsified_header_is_refused_and_all_that_differs_is_named():
    """Theta, u_star, u_zero and every gain of another, easier instance: only the recipe tells that it is another."""
    generous = dataclasses.replace(
        WORLD.theta, value=tuple(tuple(2 * entry for entry in row) for row in WORLD.theta.value)
    )
    high = max(entry for row in generous.value for entry in row)
    generous = dataclasses.replace(generous, value_prior=(0, high, high // 2))
    world = dataclasses.replace(WORLD, theta=generous, solution=WORLD.family.solve(generous))
    forged = stored(play(policy("optimal"), world, "A", 0))
    assert score_trace(forged).reward == 1  # nothing in the trace contradicts anything else in it
    with pytest.raises(
        RecordError, match=r"another theta; u_star = .*; u_zero = .*as its recipe gives.*falsified"
    ):
        rescore(with_header(forged, environment=WORLD.id))


def test_a_trace_of_another_instance_under_this_name_is_refused():
    trace = stored(play(policy("optimal"), OTHER, "A", 0))
    with pytest.raises(RecordError, match=f"environment = '{WORLD.id}', not '{OTHER.id}'"):
        rescore(with_header(trace, environment=WORLD.id))
    with pytest.raises(RecordError, match="another theta"):
        rescore(with_header(trace, recipe=WORLD.recipe, environment=WORLD.id))
    with pytest.raises(RecordError, match="size = 'small', not 'nano'"):
        rescore(with_header(trace, size="small"))


def test_another_version_is_named_since_a_sampler_may_have_changed():
    trace = stored(play(policy("plan"), WORLD, "A", 0))
    with pytest.raises(RecordError, match=r"written by truthfirst 0\.0\.1, this is"):
        rescore(with_header(trace, version="0.0.1", u_star=trace.header["u_star"] + 1))


def test_more_turns_than_the_budget_allows_are_named():
    episode = WORLD.episode("A")
    while not episode.done:
        episode.call("nothing", {})
    trace = episode.trace()
    more = dataclasses.replace(
        trace, turns=(*trace.turns, dataclasses.replace(trace.turns[-1], index=len(trace.turns)))
    )
    assert rescore(trace).reward == score_trace(trace).reward
    with pytest.raises(RecordError, match="under a budget of"):
        rescore(more)
    with pytest.raises(RecordError, match="budget = 'tight', not 'ample'"):
        rescore(with_header(trace, budget="tight"))


def test_an_end_that_the_answer_cannot_have_is_named():
    written = WORLD.episode("F")
    written.answer("I would rather not.")
    trace = written.trace()
    assert rescore(trace).reward == 0
    with pytest.raises(RecordError, match="stop = 'answered'"):
        rescore(dataclasses.replace(trace, stop=module.StopReason.ANSWERED))
    for answer in (None, [], ["x", 1]):
        odd = WORLD.episode("F")
        odd.answer(answer)
        assert rescore(stored(odd.trace())).detail["stop"] == "malformed"
    idle = WORLD.episode("A")
    idle.answer("[]")
    assert rescore(stored(idle.trace())).detail["stop"] == "stopped"


# --- how far the check could go -------------------------------------------------------------------------------
def test_where_no_recipe_can_be_built_the_row_says_so():
    trace = stored(play(policy("plan"), WORLD, "A", 0))
    missing = with_header(trace, recipe=None)
    unknown = with_header(trace, recipe={"family": "nothing", "size": "nano"})
    rows = rescored([trace, missing, unknown])
    assert list(rows["checked"]) == ["all", "nothing", "nothing"]
    assert rows["unchecked"].isna().tolist() == [True, False, False]
    assert rows["unchecked"][1] == "the header has no recipe"
    assert "unknown family 'nothing'" in rows["unchecked"][2]
    assert rows["reward"].nunique() == 1
    with pytest.raises(RecordError, match=r"u_star = .*as its own theta gives"):
        rescore(with_header(missing, u_star=trace.header["u_star"] + 1))
    with pytest.raises(RecordError, match=r"header\.budget cannot be used"):
        rescore(with_header(missing, budget="endless"))


def test_words_that_cannot_be_told_again_leave_the_parameters_checked():
    trace = stored(play(policy("plan"), WORLD, "A", 0))
    for change, reason in (
        ({"corpus": "/nowhere/at/all"}, "does not exist"),
        ({"setter": "language:some-model"}, "does not hold the words that 'language:some-model' wrote"),
    ):
        score = rescore(with_header(trace, recipe=trace.header["recipe"] | change))
        assert score.detail["checked"] == "parameters"
        assert reason in score.detail["unchecked"]
        with pytest.raises(RecordError, match="u_zero"):
            rescore(
                with_header(trace, recipe=trace.header["recipe"] | change, u_zero=trace.header["u_zero"] - 1)
            )


def test_no_model_is_asked_for_words(monkeypatch):
    trace = stored(play(policy("plan"), WORLD, "A", 0))
    monkeypatch.setattr(candidates, "find_setter", lambda name: pytest.fail(f"setter {name} was asked"))
    recipe = trace.header["recipe"] | {"setter": "language:some-model"}
    assert rescore(with_header(trace, recipe=recipe)).detail["checked"] == "parameters"


def test_each_environment_is_built_once_for_all_its_episodes(tmp_path, monkeypatch):
    built = []
    build = module.build_candidate
    monkeypatch.setattr(module, "build_candidate", lambda *a, **k: built.append(a) or build(*a, **k))
    module._built.cache_clear()
    file = tmp_path / "traces.jsonl"
    recipes = [Recipe("pricing", "nano", index=i) for i in (2, 5)]
    frame = compare(["plan", "random"], recipes, n=2, traces=file)
    rows = rescored(file)
    assert len(built) == 2
    assert sorted(rows["reward"]) == sorted(frame["reward"])
    assert list(rows.columns[:3]) == ["environment", "family", "size"]


def test_two_processes_give_the_same_rows(tmp_path):
    file = tmp_path / "traces.jsonl"
    for world in (WORLD, OTHER):
        save_trace(file, play(policy("probe-2"), world, "A", 0))
    assert rescored(file, workers=2).equals(rescored(file))
