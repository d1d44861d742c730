"""Episodes of an instance: the three forms, arbitrary calls, and nothing hidden in any answer before its time."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.episode import load_traces, save_trace
from truthfirst.solvefirst import references
from truthfirst.solvefirst.admit.gates import admit
from truthfirst.solvefirst.candidates import Recipe, build_candidate, rebuild
from truthfirst.solvefirst.environment import (
    Environment,
    InstanceEpisode,
    NoRewardScale,
    read_plan,
    turn_budget,
)
from truthfirst.solvefirst.families.base import Action, UnknownName, entry
from truthfirst.solvefirst.realize.tools import Probe
from truthfirst.solvefirst.score import REWARD_KINDS, score_trace
from truthfirst.types import Form, PublicView, StopReason

LONGEST_REPLY = 2_500  # characters; a query's rows take most


@pytest.fixture(scope="module")
def rationing(candidate: Callable[..., Environment]) -> Environment:
    return candidate("rationing")


def play(episode: InstanceEpisode, plan: tuple[Action, ...]) -> InstanceEpisode:
    for action in plan:
        episode.call(*episode.write(action))
    return episode


# --- arbitrary calls --------------------------------------------------------------------------------------
CONFUSED = str.maketrans("aeopcxiEAO", "аеорсхіЕАО")  # Cyrillic letters that look alike
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from(
        [2**63, -(2**63), 10**400, 1e308, math.nan, math.inf, -math.inf, 2.5, 3.0, "３", "3", "\ud800"]
    )
    | st.text(max_size=6),
    lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(max_size=4), part, max_size=2),
    max_leaves=4,
)
SQL = st.lists(
    st.sampled_from(
        """SELECT * FROM WHERE 1 = , ( ) ; -- ' sqlite_master INSERT DELETE DROP TABLE UPDATE PRAGMA ATTACH VACUUM WITH
        UNION ALL ORDER BY LIMIT count(*) name id turn gain value {0} {1} {2} {3} {4} NULL LIKE '%' CASE END""".split()
    ),
    max_size=8,
).map(" ".join)


@st.composite
def calls(draw: st.DrawFn, episode: InstanceEpisode) -> tuple[Any, Any]:
    """Draw one call: legal, nearly legal, or nothing like it."""
    env = episode.environment
    kind = draw(st.sampled_from(["legal", "legal", "probe", "probe", "bent", "bent", "query", "junk"]))
    keys = env.family.probe_keys(env.theta)
    moves = [move for move in env.family.legal(env.theta, episode.state) if len(move)]
    if kind == "query":
        sql = draw(SQL | st.text(max_size=20))
        for position, table in enumerate(itertools.islice(env.spec.tables.values(), 5)):
            sql = sql.replace(f"{{{position}}}", table)
        return env.spec.tools["query"].name, {"sql": sql}
    if kind == "junk":
        names = st.sampled_from([tool.name for tool in env.toolbox.schemas()])
        return draw(names | JUNK), draw(JUNK)
    move = draw(st.sampled_from(moves))
    action = Action(move.verb, tuple(int(draw(st.sampled_from(list(allowed)))) for allowed in move.choices))
    name, arguments = episode.write(
        Probe(draw(st.sampled_from(keys))) if keys and kind != "legal" else action
    )
    if kind != "bent":
        return name, arguments
    bend = draw(st.sampled_from(["missing", "extra", "value", "confused", "text", "name", "key"]))
    slot = draw(st.sampled_from([*arguments])) if arguments else "amount"
    if bend == "missing":
        arguments.pop(slot, None)
    elif bend == "extra":
        arguments[draw(st.text(max_size=6))] = draw(JUNK)
    elif bend == "value":
        arguments[slot] = draw(JUNK)
    elif bend == "confused":
        arguments[slot] = str(arguments.get(slot)).translate(CONFUSED)
    elif bend == "text":
        return name, json.dumps(arguments)  # as an endpoint sends them; that is fine
    elif bend == "name":
        return name.translate(CONFUSED).upper(), arguments
    else:
        arguments = {key.translate(CONFUSED): value for key, value in arguments.items()}
    return name, arguments


@settings(max_examples=25)
@given(data=st.data(), form=st.sampled_from([Form.INFORMED, Form.AGENTIC]), stops=st.booleans())
def test_whole_episodes_with_arbitrary_calls(
    environment: Environment, data: st.DataObject, form: Form, stops: bool
) -> None:
    env, solution = environment, environment.solution
    episode = env.episode(form, "arbitrary")
    made: list[tuple[Any, Any]] = []
    most = data.draw(st.integers(0, 12)) if stops else env.turn_budget
    while not episode.done and len(made) < most:
        name, arguments = data.draw(calls(episode))
        before, left = (episode.state, dict(episode.known)), episode.turns_left
        reply = episode.call(name, arguments)
        made.append((name, arguments))
        turn = episode.turns[-1]
        assert episode.turns_left == left - 1
        assert 0 < len(reply) <= LONGEST_REPLY
        assert turn.reply == reply
        if turn.status == "refused":
            assert (episode.state, episode.known) == before
            assert reply.startswith("Refused: ")
            assert "?." not in reply  # one full stop ends a sentence
    episode.stop()

    score = episode.score()
    assert 0 <= score.reward <= 1
    assert score.detail["u"] <= solution.u_star + env.family.epsilon
    assert score.detail["turns"] == len(made)
    assert sum(score.detail[kind] for kind in ("decisions", "probes", "queries", "refused")) == len(made)
    for kind in REWARD_KINDS:
        further = kind != "outcome" and bool(made) and episode.trace().stop is StopReason.STOPPED
        assert len(episode.rewards(kind)) == len(made) + further  # leaving is owed to no call

    # Whatever has not been revealed may be anything else: every answer stays the same.
    for seed in range(2):
        other = env.family.redraw(env.theta, np.random.default_rng(seed), keep=episode.known)
        twin = dataclasses.replace(env, theta=other).episode(form, "arbitrary")
        assert [twin.call(name, arguments) for name, arguments in made] == [t.reply for t in episode.turns]


@settings(max_examples=25)
@given(data=st.data())
def test_whole_answers_of_arbitrary_text(environment: Environment, data: st.DataObject) -> None:
    env = environment
    episode = env.episode(Form.WRITTEN, "arbitrary")
    plan = env.episode(Form.AGENTIC).write_plan(env.solution.plan)
    pieces = st.sampled_from(
        [plan, plan[:-1], plan[1:], "[]", "[[1]]", '[["x"]]', "[" * 300, "null", '["a"]', "NaN"]
    )
    step = st.lists(JUNK, min_size=1, max_size=3).filter(lambda value: value != [])
    steps = st.lists(st.sampled_from(json.loads(plan)) | step, max_size=6).map(
        lambda v: json.dumps(v, default=str)
    )
    text = "\n".join(data.draw(st.lists(pieces | steps | st.text(max_size=20), max_size=4)))
    episode.answer(text)
    assert episode.done
    score = episode.score()
    assert 0 <= score.reward <= 1
    if episode.stop_reason is StopReason.MALFORMED:
        assert (score.reward, score.detail["u"]) == (0, None)
    else:
        assert score.detail["u"] <= env.solution.u_star + env.family.epsilon
    assert episode.turns_left == 0  # form F has no turns to spend


# --- the three forms --------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", Form)
def test_the_optimal_plan_scores_one_and_the_baseline_zero(environment: Environment, form: Form) -> None:
    env = environment
    _, baseline = env.family.follow(env.theta, env.family.default)
    for plan, reward, u in ((env.solution.plan, 1, env.solution.u_star), (baseline, 0, env.solution.u_zero)):
        episode = env.episode(form)
        if form is Form.WRITTEN:
            episode.answer(f"The plan:\n{episode.write_plan(plan)}\nThat is all.")
        else:
            play(episode, plan)
            episode.stop()
        score = episode.score()
        assert (score.reward, score.detail["u"]) == (reward, u)
        assert score.detail["decisions"] == len(plan)


def test_what_a_player_gets(environment: Environment) -> None:
    written, informed, agentic = (environment.view(form) for form in Form)
    assert {field.name for field in dataclasses.fields(PublicView)} == {
        "prompt",
        "tools",
        "turn_budget",
        "files",
    }
    assert (written.tools, written.files, written.turn_budget) == ((), {}, 0)
    assert informed.turn_budget == agentic.turn_budget == environment.turn_budget
    assert informed.tools == agentic.tools
    assert list(agentic.files) == ["world.sqlite"]
    assert len({view.prompt[0]["content"] for view in (written, informed, agentic)}) == 3


def test_the_public_view_of_form_a_is_blind_to_hidden_entries(environment: Environment) -> None:
    for seed in range(3):
        other = environment.family.redraw(environment.theta, np.random.default_rng(seed))
        assert dataclasses.replace(environment, theta=other).view(Form.AGENTIC) == environment.view(
            Form.AGENTIC
        )


def test_forms_f_and_i_know_everything_and_form_a_nothing(environment: Environment) -> None:
    hidden = environment.family.hidden(environment.theta)
    assert environment.episode("F").known == environment.episode("I").known == hidden
    agentic = environment.episode("A")
    assert agentic.known == {}
    position = agentic.position()
    assert position.public == position.believed == environment.family.expected(environment.theta, {})
    assert environment.episode("I").position().believed == environment.theta
    assert not hasattr(position, "theta")


def test_probes_and_decisions_reveal_what_they_say(environment: Environment) -> None:
    env, episode = environment, environment.episode("A")
    keys = env.family.probe_keys(env.theta)
    for key in keys[:1] * 2:
        reply = episode.call(*episode.write(Probe(key)))
        assert f": {entry(env.theta, key)}." in reply
    if keys:
        assert [turn.detail["new"] for turn in episode.turns] == [True, False]
        assert episode.known == {keys[0]: entry(env.theta, keys[0])}
    action = env.solution.plan[0]
    _, gain, shown = env.family.step(env.theta, episode.state, action)
    reply = episode.call(*episode.write(action))
    assert str(gain) in reply
    assert episode.known.items() >= shown.items()
    new = {key: value for key, value in shown.items() if key not in keys[:1]}
    assert all(f"{env.toolbox.label(key)} {value}" in reply for key, value in new.items())


def test_the_ledger_of_an_episode_can_be_queried(environment: Environment) -> None:
    env, episode = environment, environment.episode("A")
    episode.call(*episode.write(env.solution.plan[0]))
    gain = episode.turns[0].detail["gain"]
    query = env.spec.tools["query"].name
    reply = episode.call(query, {"sql": f"SELECT turn, gain FROM {env.spec.tables['ledger']}"})
    assert reply.splitlines()[1] == f"1 | {gain}"
    told = episode.call(query, {"sql": f"SELECT count(*) FROM {env.spec.tables['readings']}"})
    assert told.splitlines()[1] == str(len(episode.known))
    fresh = env.episode("A")
    assert "(no rows)" in fresh.call(query, {"sql": f"SELECT * FROM {env.spec.tables['ledger']}"})


def test_informed_episodes_count_no_entry_as_newly_revealed(environment: Environment) -> None:
    episode = environment.episode("I")
    for key in environment.family.probe_keys(environment.theta)[:2]:
        episode.call(*episode.write(Probe(key)))
        assert episode.turns[-1].detail["new"] is False
    assert episode.score().detail["probes_new"] == 0


# --- the budget -------------------------------------------------------------------------------------------
def test_turn_budgets_fit_what_they_promise(environment: Environment) -> None:
    family, theta = environment.family, environment.theta
    decisions, probes = family.horizon(theta), len(family.probe_keys(theta))
    ample, tight = turn_budget(family, theta, "ample"), turn_budget(family, theta, "tight")
    assert ample >= 1.1 * (decisions + probes)
    if probes:
        assert decisions + probes // 2 <= tight < decisions + probes
    assert tight < ample
    with pytest.raises(UnknownName, match="unknown budget 'loose': choose one of ample, tight"):
        turn_budget(family, theta, "loose")


def test_an_episode_ends_when_the_turns_are_spent(environment: Environment) -> None:
    episode = environment.episode("A")
    for spent in range(environment.turn_budget):
        assert not episode.done
        assert episode.turns_left == environment.turn_budget - spent
        episode.call("no_such_tool", {})
    assert episode.stop_reason is StopReason.BUDGET
    score = episode.score()
    assert score.detail["refused"] == environment.turn_budget
    assert score.detail["u"] == environment.family.abandon(environment.theta, episode.state)


def test_every_probe_and_the_optimal_plan_fit_an_ample_budget(environment: Environment) -> None:
    episode = environment.episode("A")
    for key in environment.family.probe_keys(environment.theta):
        episode.call(*episode.write(Probe(key)))
    play(episode, environment.solution.plan)
    episode.stop()
    assert episode.score().reward == 1
    assert (
        episode.known.items()
        >= {k: entry(environment.theta, k) for k in environment.family.probe_keys(environment.theta)}.items()
    )


# --- form F -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ('[["a", 1], ["b"]]', [["a", 1], ["b"]]),
        ('First [["a", 1]], no: [["b", 2]] it is.', [["b", 2]]),
        ('```json\n[["a", "North"]]\n```', [["a", "North"]]),
        ("[]", []),
        ('[["a", 1.0]]', [["a", 1.0]]),
        ('I looked at [1] and [2]. [["a", 1]] [3]', [["a", 1]]),
        ('{"plan": [["a", 1]]}', [["a", 1]]),
        ("[one aside] " * 900 + '[["a", 1]]', [["a", 1]]),
        ("", None),
        ("no list at all", None),
        ('["a", 1]', None),
        ("[[1, 2]]", None),
        ('[["a", 1.5]]', None),
        ('[["a", true]]', None),
        ('[["a", null]]', None),
        ('[["a", NaN]]', None),
        ('[["a", [1]]]', None),
        ('[["a", 1', None),
        ("[[]]", None),
        ("[" * 5_000, None),
        ('[["a", ' + "9" * 5_000 + "]]", None),
    ],
)
def test_read_plan(text: str, steps: Any) -> None:
    assert read_plan(text) == steps


def test_a_written_plan_stops_at_the_first_decision_that_is_not_permitted(rationing: Environment) -> None:
    spend = rationing.spec.tools["spend"].name
    episode = rationing.episode("F")
    episode.answer(json.dumps([[spend, 1], [spend, 99], [spend, 1]]))
    assert [turn.status for turn in episode.turns] == ["ok", "refused"]
    assert episode.stop_reason is StopReason.ANSWERED
    gain = rationing.family.step(
        rationing.theta, rationing.family.start(rationing.theta), Action("spend", (1,))
    )[1]
    assert episode.score().detail["u"] == gain
    for wrong in ([[spend]], [[spend, 1, 1]], [["query", "SELECT 1"]], [["x", 1]]):
        episode = rationing.episode("F")
        episode.answer(json.dumps(wrong))
        assert [turn.status for turn in episode.turns] == ["refused"]


def test_a_malformed_answer_scores_zero_and_other_numbers_are_missing(environment: Environment) -> None:
    episode = environment.episode("F")
    episode.answer("I would rather not.")
    score = episode.score()
    assert episode.stop_reason is StopReason.MALFORMED
    assert (score.reward, score.detail["u"], score.detail["unclipped"]) == (0.0, None, None)
    before = episode.trace()
    episode.answer(episode.write_plan(environment.solution.plan))  # one answer only
    assert episode.trace() == before


def test_form_f_has_no_tools_and_no_turns_and_records_no_call(rationing: Environment) -> None:
    written = rationing.episode("F")
    for name, arguments in ((rationing.spec.tools["spend"].name, {"amount": 1}), ("nothing", None)) * 5:
        assert "no tools and no call is executed; write the plan" in written.call(name, arguments)
        assert (written.turns, written.turns_left, written.done) == ([], 0, False)
    assert written.state == rationing.family.start(rationing.theta)
    written.answer(written.write_plan(rationing.solution.plan))
    assert written.score().reward == 1
    assert len(written.turns) == len(rationing.solution.plan)
    assert written.turns_left == 0
    assert "over" in written.call("nothing", {})


@pytest.mark.parametrize("answer", [None, 7, [], [["x", 1]], {"plan": []}, b"[]", math.nan, object()])
def test_an_answer_that_is_no_text_is_malformed(rationing: Environment, answer: Any, tmp_path: Path) -> None:
    episode = rationing.episode("F")
    episode.answer(answer)
    assert episode.stop_reason is StopReason.MALFORMED
    assert episode.score().reward == 0
    save_trace(tmp_path / "traces.jsonl", episode.trace())
    (trace,) = load_traces(tmp_path / "traces.jsonl")
    assert trace.answer == f"(an answer that is no text: {type(answer).__name__})"


@pytest.mark.parametrize("form", ["I", "A"])
def test_an_answer_where_calls_are_asked_for_ends_the_episode_as_stopping_does(
    rationing: Environment, form: str
) -> None:
    answered, stopped = rationing.episode(form), rationing.episode(form)
    first = rationing.solution.plan[0]
    for episode in (answered, stopped):
        episode.call(*episode.write(first))
    answered.answer(answered.write_plan(rationing.solution.plan))  # nothing of it is played
    stopped.stop()
    assert answered.stop_reason is StopReason.STOPPED
    assert answered.score() == stopped.score()
    assert answered.trace().answer is not None
    before = answered.trace()
    answered.answer(None)
    assert answered.trace() == before


def test_an_unknown_form_is_named(rationing: Environment) -> None:
    for form in ("X", "a", "", None):
        with pytest.raises(ValueError, match="unknown form"):
            rationing.episode(form)


@pytest.mark.parametrize("form", Form)
def test_no_episode_begins_where_nothing_can_be_won(form: Form) -> None:
    """The score of such an episode does not exist: it must not be found out in the middle of a rollout."""
    flat = build_candidate(Recipe("knapsack", "nano", index=2))
    assert flat.solution.span == 0
    with pytest.raises(NoRewardScale, match=rf"{flat.id} has no reward scale: .*u0 = .*admit"):
        flat.episode(form)
    assert admit(flat).gate == "margin"
    with pytest.raises(NoRewardScale):
        references.play(references.policy("plan"), flat, form, 0)


# --- traces -----------------------------------------------------------------------------------------------
def test_a_stored_trace_scores_the_same_and_rebuilds_its_environment(
    environment: Environment, tmp_path: Path
) -> None:
    path, scores = tmp_path / "traces.jsonl", []
    for form in Form:
        episode = environment.episode(form, "mixed")
        if form is Form.WRITTEN:
            episode.answer(episode.write_plan(environment.solution.plan[:1]))
        else:
            episode.call("nothing", {"n": "\ud800"})
            episode.call(*episode.write(environment.solution.plan[0]))
            episode.stop()
        save_trace(path, episode.trace())
        scores.append(episode.score())
    traces = load_traces(path)
    assert [score_trace(trace) for trace in traces] == scores
    again = rebuild(traces[-1].header["recipe"])
    assert again.id == environment.id == traces[-1].header["environment"]
    assert [trace.header["form"] for trace in traces] == ["F", "I", "A"]
    assert traces[0].header["policy"] == "mixed"


def test_the_id_names_everything_a_player_can_meet(rationing: Environment) -> None:
    assert rationing.id.startswith("rationing-nano-")
    other = rationing.family.redraw(rationing.theta, np.random.default_rng(0))
    assert dataclasses.replace(rationing, theta=other).id != rationing.id
    assert dataclasses.replace(rationing, budget="tight").id != rationing.id
    told = rationing.spec.model_copy(update={"closing": "Another ending."})
    assert dataclasses.replace(rationing, spec=told).id != rationing.id
