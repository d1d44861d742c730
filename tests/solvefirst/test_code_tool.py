"""The code tool in every form: what it costs, what it sees, what a trace keeps of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from truthfirst.episode import read_trace, trace_record
from truthfirst.policies.calls import Call
from truthfirst.policies.dialogue import Dialogue, Message, Rules
from truthfirst.sandbox import Result, SandboxUnavailable, available
from truthfirst.solvefirst.admit.gates import admit
from truthfirst.solvefirst.candidates import Recipe, build_candidate, rebuild
from truthfirst.solvefirst.environment import Environment
from truthfirst.solvefirst.families.base import UnknownName
from truthfirst.solvefirst.realize.code_tool import MAX_CODE_CHARACTERS, OUTPUT_BYTES, WRITTEN_TURNS, reply
from truthfirst.solvefirst.realize.spec import CODE_TOOL, SpecError, check_spec
from truthfirst.solvefirst.references import play, policy
from truthfirst.solvefirst.score import regret_ledger, score_trace
from truthfirst.types import Form, StopReason

needs_sandbox = pytest.mark.skipif(not available(), reason=available().reason or "there is a sandbox")


@pytest.fixture(scope="module")
def plain(candidate: Any) -> Environment:
    return candidate("rationing")


@pytest.fixture(scope="module")
def coded(plain: Environment) -> Environment:
    return build_candidate(Recipe(**plain.recipe | {"code_tool": True}))


# --- off, it is not there -------------------------------------------------------------------------------
def test_off_is_the_default_and_changes_nothing(plain: Environment) -> None:
    old = {key: value for key, value in plain.recipe.items() if key != "code_tool"}
    assert rebuild(old).id == plain.id
    for form in Form:
        view = plain.view(form)
        assert CODE_TOOL not in [tool.name for tool in view.tools]
        assert CODE_TOOL not in str(view.prompt)
    episode = plain.episode(Form.AGENTIC)
    assert f'there is no tool "{CODE_TOOL}"' in episode.call(CODE_TOOL, {"code": "print(1)"})
    assert episode.turns[0].kind is None
    with pytest.raises(UnknownName, match="code_tool"):
        Recipe("rationing", "nano", code_tool="yes")  # type: ignore[arg-type]


def test_no_setter_may_take_its_name(plain: Environment) -> None:
    query = plain.spec.tools["query"].model_copy(update={"name": CODE_TOOL})
    spec = plain.spec.model_copy(update={"tools": {**plain.spec.tools, "query": query}})
    with pytest.raises(SpecError, match="belongs to the code tool"):
        check_spec(spec, plain.family, plain.family.counts(plain.theta))


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    available.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    yield
    available.cache_clear()


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_a_sandbox_it_cannot_be_built_and_the_remedy_is_named(plain: Environment) -> None:
    with pytest.raises(SandboxUnavailable, match=r"code_tool=True needs the sandbox: .*make setup"):
        replace(plain, code_tool=True)
    assert replace(plain).code_tool is False


# --- what a player sees -----------------------------------------------------------------------------------
@needs_sandbox
def test_it_is_offered_in_every_form(plain: Environment, coded: Environment) -> None:
    assert coded.id != plain.id
    assert (coded.turn_budget, coded.theta, coded.spec) == (plain.turn_budget, plain.theta, plain.spec)
    for form in Form:
        view, before = coded.view(form), plain.view(form)
        assert [tool.name for tool in view.tools] == [*(tool.name for tool in before.tools), CODE_TOOL]
        assert view.tools[-1].kind == "code"
        assert view.files == before.files
        text = view.prompt[0]["content"]
        assert text.startswith(before.prompt[0]["content"])
        assert f"- {CODE_TOOL}(code): {view.tools[-1].description}" in text
        written = form is Form.WRITTEN
        assert (f"You have {WRITTEN_TURNS} turns" in text) == written
        assert view.turn_budget == (WRITTEN_TURNS if written else plain.turn_budget)


@needs_sandbox
def test_the_gates_pass_with_and_without_the_tool(plain: Environment, coded: Environment) -> None:
    for environment in (plain, coded):
        verdict = admit(environment)
        assert verdict.admitted, verdict.evidence


# --- acting ---------------------------------------------------------------------------------------------------
@needs_sandbox
@pytest.mark.parametrize("form", ["I", "A"])
def test_a_run_costs_a_turn_and_is_counted(coded: Environment, form: str) -> None:
    episode = coded.episode(form)
    before = (episode.state, dict(episode.known))
    answer = episode.call(CODE_TOOL, {"code": "print(6 * 7)"})
    assert answer == f"Output:\n42\nTurns left: {coded.turn_budget - 1}."
    failed = episode.call(CODE_TOOL, json.dumps({"code": "# " + "x" * 3_000 + "\n1 / 0"}))
    assert "ZeroDivisionError" in failed
    assert "Exit status 1." in failed
    for wrong in ({}, {"code": 1}, "code", {"code": "", "x": 1}, {"code": "x" * (MAX_CODE_CHARACTERS + 1)}):
        assert episode.call(CODE_TOOL, wrong).startswith("Refused: ")
    assert (episode.state, episode.known) == before
    score = episode.score()
    assert (score.detail["code"], score.detail["refused"], score.detail["turns"]) == (2, 5, 7)
    assert {turn.kind for turn in episode.turns} == {"code"}
    assert CODE_TOOL in episode.call("nothing", {})
    assert episode.turns[0].detail == {
        "code": "print(6 * 7)",
        "reason": "exited",
        "exit_status": 0,
        "cut": False,
    }


@needs_sandbox
def test_the_shared_budget_ends_the_episode(coded: Environment) -> None:
    episode = coded.episode("A")
    for _ in range(coded.turn_budget - 1):
        episode.call(CODE_TOOL, {"code": 0})
    assert "The turn budget is spent" in episode.call(CODE_TOOL, {"code": "print(1)"})
    assert episode.stop_reason is StopReason.BUDGET


@needs_sandbox
def test_a_trace_with_code_is_scored_again_and_its_losses_still_sum_to_one(coded: Environment) -> None:
    episode = coded.episode("I")
    episode.call(CODE_TOOL, {"code": "print('\\ud800'.encode('utf-8', 'replace'))"})
    episode.call(*episode.write(coded.solution.plan[0]))
    trace = read_trace(json.loads(json.dumps(trace_record(episode.trace()))))
    assert score_trace(trace) == episode.score()
    ledger = regret_ledger(trace)
    ledger.check()
    assert [row.kind for row in ledger.rows] == ["code", "decision"]
    assert sum(ledger.losses().values()) == 1
    assert [episode.rewards(kind)[0] for kind in ("outcome", "progress", "regret")] == [0, 0, 0]


@needs_sandbox
def test_scripted_policies_play_as_without_it(plain: Environment, coded: Environment) -> None:
    for form in Form:
        for name in ("optimal", "default"):
            one, two = (play(policy(name), environment, form, 0) for environment in (plain, coded))
            assert [turn.detail for turn in one.turns] == [turn.detail for turn in two.turns]


# --- form F -----------------------------------------------------------------------------------------------------
@needs_sandbox
def test_form_f_has_a_small_budget_and_still_writes_its_answer(coded: Environment) -> None:
    episode = coded.episode("F")
    decision = episode.write(coded.solution.plan[0])
    assert "Refused: this form has no tool but run_python" in episode.call(*decision)
    assert episode.call(CODE_TOOL, {"code": "print(2)"}) == f"Output:\n2\nTurns left: {WRITTEN_TURNS - 2}."
    for _ in range(WRITTEN_TURNS - 2):
        said = episode.call(CODE_TOOL, {})
    assert said.endswith("No turns are left; write the plan.")
    assert not episode.done
    assert "no call is executed" in episode.call(CODE_TOOL, {"code": "print(3)"})
    assert len(episode.turns) == WRITTEN_TURNS
    episode.answer(episode.write_plan(coded.solution.plan))
    score = episode.score()
    assert (score.reward, score.detail["code"], score.detail["stop"]) == (1.0, 1, "answered")
    assert score.detail["decisions"] == len(coded.solution.plan)


@needs_sandbox
def test_a_model_may_run_code_before_it_answers_in_form_f(coded: Environment) -> None:
    plan = coded.episode("F").write_plan(coded.solution.plan)
    call = Call(CODE_TOOL, {"code": 1})
    dialogue = Dialogue(coded.episode("F"), Rules())
    (told,) = dialogue.read(Message("let me see", [Call(CODE_TOOL, {"code": "print(5)"})]))
    assert told.text.startswith("Output:\n5\n")
    assert dialogue.read(Message(plan)) == []
    assert (dialogue.end, dialogue.episode.score().reward) == ("answered", 1.0)
    many = Dialogue(coded.episode("F"), Rules())
    assert len(many.read(Message("", [call] * (WRITTEN_TURNS + 3)))) == WRITTEN_TURNS
    assert many.counts["calls_not_executed"] == 3
    assert many.read(Message(plan, [call])) == []  # no turn is left: this is the answer
    assert many.episode.score().reward == 1.0


# --- the truth -----------------------------------------------------------------------------------------------------
@needs_sandbox
@pytest.mark.parametrize("form", list(Form))
def test_the_sealed_truth_is_out_of_reach(
    coded: Environment, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"sealed-{coded.solution.u_star}-{coded.solution.plan}"
    monkeypatch.setenv("TRUTHFIRST_SEALED", mark)
    episode = coded.episode(form)
    code = """
import glob, importlib, os
found = []
for name in ("truthfirst", "truthfirst.solvefirst.environment", "numpy"):
    try:
        importlib.import_module(name); found.append(name)
    except ImportError:
        pass
for root, folders, names in os.walk("/"):
    folders[:] = [f for f in folders if root + f not in ("/proc", "/usr", "/python")]
    found += [os.path.join(root, n) for n in names if n.endswith((".py", ".sqlite", ".json", ".parquet", ".jsonl"))]
text = str(os.environ)
for path in glob.glob("/proc/[0-9]*/*"):
    try:
        if os.path.isfile(path):
            text += open(path, errors="replace").read(100000)
    except OSError:
        pass
print(sorted(found), "sealed-" in text, "u_star" in text, os.path.exists(MAIN))
""".replace("MAIN", repr(__file__))
    said = episode.call(CODE_TOOL, {"code": code})
    assert said.split("\n")[1] == "['/workspace/main.py'] False False False"


def test_replies_say_how_a_run_ended_in_fixed_words() -> None:
    def ended(**parts: Any) -> str:
        return reply(replace(Result("", "", None, "exited", False, False, 1.0), **parts))

    assert ended(exit_status=0) == "The program printed nothing."
    assert (
        ended(exit_status=0, stdout="a\x1b[2J\x00\n")
        == "Output:\na\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}"
    )
    assert ended(exit_status=3, stderr="no\n") == "The program printed nothing.\nErrors:\nno\nExit status 3."
    assert ended(reason="output", stdout="y" * OUTPUT_BYTES, stdout_cut=True).endswith(
        "y\n[cut here]\nThe program was stopped: it printed without end."
    )
    for reason, words in (
        ("processor", "processor time"),
        ("wall", "in time"),
        ("memory", "too much memory"),
    ):
        assert words in ended(reason=reason)
