"""Every gate passes what is sound, and rejects with its evidence what is not."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from truthfirst.episode import Outcome
from truthfirst.solvefirst.admit import gates
from truthfirst.solvefirst.admit.gates import GATES, OPENENV_CHECKS, admit
from truthfirst.solvefirst.admit.wording import GateFailure
from truthfirst.solvefirst.environment import Environment, InstanceEpisode
from truthfirst.solvefirst.families.base import Action, Key
from truthfirst.solvefirst.realize.database import Ledger
from truthfirst.solvefirst.realize.tools import Probe, Toolbox
from truthfirst.types import Form, PublicView

Candidate = Callable[..., Environment]


@pytest.fixture(scope="module")
def healthy(candidate: Candidate) -> Environment:
    return candidate("lot_sizing", "small", index=3, domain="baking")


@dataclasses.dataclass(frozen=True)
class Faulty(Environment):
    """An environment whose views pass through `edit(form, view)`; everything else stays as it is."""

    edit: Callable[[Form, PublicView], PublicView] = lambda form, view: view

    def view(self, form: Form | str) -> PublicView:
        return self.edit(Form.parse(form), super().view(form))


def faulty(environment: Environment, edit: Callable[[Form, PublicView], PublicView]) -> Faulty:
    parts = {field.name: getattr(environment, field.name) for field in dataclasses.fields(environment)}
    return Faulty(**parts, edit=edit)


def retold(environment: Environment, old: str, new: str, form: Form = Form.AGENTIC) -> Faulty:
    """Change a piece of one form's instructions."""

    def edit(shown: Form, view: PublicView) -> PublicView:
        system, *others = view.prompt
        assert shown is not form or old in system["content"], old
        text = system["content"].replace(old, new, 1) if shown is form else system["content"]
        return replace(view, prompt=({**system, "content": text}, *others))

    return faulty(environment, edit)


def restored(environment: Environment, *statements: str) -> Faulty:
    """Change the published database."""

    def edit(form: Form, view: PublicView) -> PublicView:
        if not view.files:
            return view
        connection = sqlite3.connect(":memory:")
        connection.deserialize(view.files["world.sqlite"])
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        return replace(view, files={"world.sqlite": connection.serialize()})

    return faulty(environment, edit)


def rejected(gate: str, environment: Environment) -> str:
    """Return the evidence of a rejection by one gate, as an admission carries it."""
    admission = admit(environment, {gate: GATES[gate]})
    assert not admission.admitted
    assert admission.gate == gate
    assert admission.passed == ()
    assert admission.evidence
    return admission.evidence


# --- passing ------------------------------------------------------------------------------------------------
def test_a_healthy_environment_passes_every_gate(environment: Environment) -> None:
    admission = admit(environment)
    assert admission.admitted, admission
    assert admission.passed == tuple(GATES)
    assert admission.evidence is None


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("budget", ["ample", "tight"])
def test_each_gate_passes_alone(gate: str, budget: str, candidate: Candidate) -> None:
    GATES[gate](candidate("pricing", "small", budget, 1, "baking"))


@pytest.mark.parametrize("size", ["medium", "long"])
def test_larger_environments_pass(size: str, candidate: Candidate) -> None:
    assert admit(candidate("rationing", size)).admitted


# --- failing ------------------------------------------------------------------------------------------------
def test_margin_fails_without_a_scale(healthy: Environment) -> None:
    flat = replace(healthy.solution, u_zero=healthy.solution.u_star - 1)
    assert "u_star - u_zero = 1" in rejected("margin", replace(healthy, solution=flat))


def test_margin_needs_five_percent(healthy: Environment) -> None:
    narrow = replace(healthy.solution, u_star=1000, u_zero=951)
    assert "at least 50" in rejected("margin", replace(healthy, solution=narrow))


def test_names_fails_where_a_name_is_used_twice(healthy: Environment) -> None:
    words = healthy.spec.entities["item"]
    twice = words.model_copy(update={"names": (*words.names[:-1], words.names[0].upper())})
    spec = healthy.spec.model_copy(update={"entities": healthy.spec.entities | {"item": twice}})
    assert "used twice" in rejected("names", replace(healthy, spec=spec))


def test_names_fails_where_a_choice_is_missing(healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Toolbox._entity_schema

    def short(toolbox: Toolbox, entity: Any) -> dict[str, Any]:
        schema = original(toolbox, entity)
        return schema | {"enum": schema["enum"][:-1]} if "enum" in schema else schema

    monkeypatch.setattr(Toolbox, "_entity_schema", short)
    assert "offers" in rejected("names", replace(healthy))


@pytest.mark.parametrize(
    ("statement", "evidence"),
    [
        ('DELETE FROM "{item}" WHERE id = 2', "lists"),
        ('DROP TABLE "{terms}"', "differ from the spec's"),
        ('ALTER TABLE "{item}" RENAME COLUMN name TO title', "cannot be read"),
    ],
)
def test_names_fails_on_a_broken_database(healthy: Environment, statement: str, evidence: str) -> None:
    assert evidence in rejected("names", restored(healthy, statement.format(**healthy.spec.tables)))


def test_names_fails_on_a_file_that_is_no_database(healthy: Environment) -> None:
    broken = faulty(healthy, lambda form, view: replace(view, files={"world.sqlite": b"not a database" * 99}))
    assert "cannot be read" in rejected("names", broken)


def test_names_fails_on_a_stale_reference(candidate: Candidate) -> None:
    environment = candidate("orienteering", "nano")
    table = environment.spec.tables["travel_time"]
    stale = restored(environment, f'UPDATE "{table}" SET from_id = 999 WHERE from_id = 1')
    assert "stale reference" in rejected("names", stale)


def test_determinism_fails_on_another_instance(healthy: Environment) -> None:
    recipe = healthy.recipe | {"index": healthy.recipe["index"] + 1}
    assert "theta differs" in rejected("determinism", replace(healthy, recipe=recipe))


def test_determinism_fails_on_another_text(healthy: Environment) -> None:
    assert "prompt of form I" in rejected("determinism", retold(healthy, "Rules", "The rules", Form.INFORMED))


def test_determinism_fails_where_answers_vary(healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    count = iter(range(1000))
    original = InstanceEpisode._probe

    def varying(episode: InstanceEpisode, probe: Probe) -> Outcome:
        outcome = original(episode, probe)
        return replace(outcome, reply=f"{outcome.reply} Answer {next(count)}.")

    monkeypatch.setattr(InstanceEpisode, "_probe", varying)
    assert "is answered" in rejected("determinism", healthy)


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({"type": "objekt"}, "is not valid under any of the given schemas"),
        ({"additionalProperties": True}, "the schema of"),
        ({"required": []}, "the schema of"),
        ({"properties": {}, "required": []}, "does not permit"),
    ],
)
def test_schemas_fails_on_a_wrong_schema(healthy: Environment, change: dict[str, Any], evidence: str) -> None:
    def edit(form: Form, view: PublicView) -> PublicView:
        return replace(view, tools=tuple(replace(t, parameters=t.parameters | change) for t in view.tools))

    assert evidence in rejected("schemas", faulty(healthy, edit))


def test_schemas_fails_on_a_tool_announced_as_another_kind(healthy: Environment) -> None:
    def edit(form: Form, view: PublicView) -> PublicView:
        return replace(view, tools=tuple(replace(tool, kind="query") for tool in view.tools))

    assert "announced as query" in rejected("schemas", faulty(healthy, edit))


def test_schemas_fails_where_a_call_raises(healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(episode: InstanceEpisode, probe: Probe) -> Outcome:
        raise ZeroDivisionError("no such shelf")

    monkeypatch.setattr(InstanceEpisode, "_probe", crash)
    assert "ZeroDivisionError: no such shelf" in rejected("schemas", healthy)


def test_schemas_fails_where_the_query_tool_writes(
    healthy: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "_authorize", lambda *arguments: sqlite3.SQLITE_OK)
    assert "refused and yet executed" in rejected("schemas", healthy)


@pytest.mark.parametrize("turns", [-1, 1])
def test_budget_fails_off_by_one(healthy: Environment, turns: int) -> None:
    other = faulty(healthy, lambda form, view: replace(view, turn_budget=view.turn_budget + turns))
    assert f"turn budget {healthy.turn_budget + turns}" in rejected("budget", other)


def test_budget_fails_where_the_text_says_otherwise(healthy: Environment) -> None:
    said = f"You have {healthy.turn_budget} turns"
    assert "does not state" in rejected("budget", retold(healthy, said, "You have some turns"))


def test_budget_fails_where_a_call_is_free(healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    original = InstanceEpisode.call

    def free(episode: InstanceEpisode, name: str, arguments: Any) -> str:
        reply = original(episode, name, arguments)
        if episode.turns[-1].status == "refused":
            episode.turns.pop()
        return reply

    monkeypatch.setattr(InstanceEpisode, "call", free)
    assert "is not charged" in rejected("budget", healthy)


def test_optimal_replay_fails_on_an_overstated_optimum(healthy: Environment) -> None:
    sealed = replace(healthy.solution, u_star=healthy.solution.u_star + 1)
    assert f"u_star is {sealed.u_star}" in rejected("optimal-replay", replace(healthy, solution=sealed))


def test_optimal_replay_fails_on_an_illegal_plan(healthy: Environment) -> None:
    sealed = replace(healthy.solution, plan=(Action("make", (10**6,)),))
    assert "is refused" in rejected("optimal-replay", replace(healthy, solution=sealed))


@pytest.mark.parametrize(
    ("old", "new", "evidence"),
    [
        ("gained: ", "gained: 1", "lacks"),
        ("Turns left: ", "Turns left: 9", "nothing public accounts for"),
        ("on hand: ", "on hand: 1", "lacks"),
        ("Now known: ", "Now known (and tomorrow 17): ", "nothing accounts for a number"),
    ],
)
def test_optimal_replay_fails_where_a_reply_is_wrong(
    healthy: Environment, monkeypatch: pytest.MonkeyPatch, old: str, new: str, evidence: str
) -> None:
    original = InstanceEpisode.call
    replies = []

    def call(episode: InstanceEpisode, name: str, arguments: Any) -> str:
        reply = original(episode, name, arguments)
        replies.append(reply)
        return reply.replace(old, new)

    monkeypatch.setattr(InstanceEpisode, "call", call)
    assert evidence in rejected("optimal-replay", healthy)
    assert any(old in reply for reply in replies)


def test_baseline_replay_fails_on_another_baseline(healthy: Environment) -> None:
    sealed = replace(healthy.solution, u_zero=healthy.solution.u_zero - 1)
    assert f"u_zero is {sealed.u_zero}" in rejected("baseline-replay", replace(healthy, solution=sealed))


def test_baseline_replay_fails_where_the_score_is_wrong(
    healthy: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = InstanceEpisode.score
    monkeypatch.setattr(InstanceEpisode, "score", lambda episode: replace(original(episode), reward=0.5))
    assert "is rewarded with 0.5" in rejected("baseline-replay", healthy)


def test_upper_bound_fails_on_a_plan_that_is_not_optimal(healthy: Environment) -> None:
    sealed = replace(healthy.solution, u_star=healthy.solution.u_star - 1)
    assert "independent method" in rejected("upper-bound", replace(healthy, solution=sealed))


def test_no_leak_fails_where_the_text_depends_on_a_hidden_entry(healthy: Environment) -> None:
    @dataclasses.dataclass(frozen=True)
    class Telling(Environment):
        def view(self, form: Form | str) -> PublicView:
            view = super().view(form)
            hint = {"role": "user", "content": f"Start with {self.theta.demand[0][0]}."}
            return replace(view, prompt=(*view.prompt, hint))

    parts = {field.name: getattr(healthy, field.name) for field in dataclasses.fields(healthy)}
    assert "prompt of the public view" in rejected("no-leak", Telling(**parts))


def test_no_leak_fails_where_an_answer_depends_on_a_hidden_entry(
    healthy: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = InstanceEpisode._execute

    def execute(episode: InstanceEpisode, name: str, arguments: Any) -> Outcome:
        outcome = original(episode, name, arguments)
        return replace(outcome, reply=f"{outcome.reply} {sum(map(sum, episode._theta.demand))}")

    monkeypatch.setattr(InstanceEpisode, "_execute", execute)
    assert "depends on what it may not reveal" in rejected("no-leak", healthy)


def test_no_leak_fails_where_a_probe_tells_another_entry_too(
    healthy: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = InstanceEpisode._reveal

    def reveal(episode: InstanceEpisode, entries: dict[Key, int]) -> dict[Key, int]:
        (name, period, item), *_ = entries
        extra = (name, (period - 1) % len(episode._theta.demand), item)
        return original(episode, {**entries, extra: episode._theta.demand[extra[1]][item]})

    monkeypatch.setattr(InstanceEpisode, "_reveal", reveal)
    assert "depends on what it may not reveal" in rejected("no-leak", healthy)


def test_no_leak_fails_on_a_number_that_the_setter_made_up(healthy: Environment) -> None:
    spec = healthy.spec.model_copy(update={"closing": "There are 90210 reasons to begin."})
    assert "90210" in rejected("no-leak", replace(healthy, spec=spec))


def test_read_back_fails_on_each_figure_of_the_text(healthy: Environment) -> None:
    for field in healthy.family.interface.fields:
        column = healthy.spec.fields[field.name].column
        text = healthy.view(Form.INFORMED).prompt[0]["content"]
        block = text.split(f"[{column}]", 1)[1].split("\n\n", 1)[0]
        last = block.rsplit(" ", 1)[1]
        wrong = retold(healthy, block, f"{block.removesuffix(last)}{int(last) + 1}", Form.INFORMED)
        assert f"form I's text states ('{field.name}'" in rejected("read-back", wrong)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| lowest | highest | typical", "| typical | highest | lowest"),
        ("Not known at first\n(", "Not known at first\n(was 7) ("),
        ("\n\nTables\n", "\n\nThe first order is 4.\n\nTables\n"),
        ("\n- ", "\n- First, "),
        ("Rules\n", "Rules (4 of them)\n"),
    ],
)
def test_read_back_fails_on_other_statements(healthy: Environment, old: str, new: str) -> None:
    assert rejected("read-back", retold(healthy, old, new))


@pytest.mark.parametrize(
    ("statement", "evidence"),
    [
        ('UPDATE "{terms}" SET value = value + 1', "the database states"),
        (
            'UPDATE "{period}" SET {capacity} = {capacity} + 1 WHERE id = 2',
            "the database states ('capacity', 1)",
        ),
        ('UPDATE "{item}" SET {demand}_typical = {demand}_lowest', "of unknown figures"),
        ('ALTER TABLE "{item}" ADD COLUMN note TEXT', "nothing explains"),
    ],
)
def test_read_back_fails_on_each_table(healthy: Environment, statement: str, evidence: str) -> None:
    columns = {name: words.column for name, words in healthy.spec.fields.items()}
    wrong = restored(healthy, statement.format(**healthy.spec.tables, **columns))
    assert evidence in rejected("read-back", wrong)


def test_read_back_fails_on_a_wrong_probe(healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    original = InstanceEpisode._probe

    def wrong(episode: InstanceEpisode, probe: Probe) -> Outcome:
        name, period, item = probe.key
        return original(episode, Probe((name, period, (item + 1) % len(episode._theta.demand[0]))))

    monkeypatch.setattr(InstanceEpisode, "_probe", wrong)
    assert "the truth is" in rejected("read-back", healthy)


# --- the order of the gates -----------------------------------------------------------------------------------
def test_admission_stops_at_the_first_failure(healthy: Environment) -> None:
    asked = []

    def gate(name: str, failure: str | None) -> Callable[[Environment], None]:
        def run(environment: Environment) -> None:
            asked.append(name)
            if failure:
                raise GateFailure(failure)

        return run

    admission = admit(healthy, {"a": gate("a", None), "b": gate("b", "two is odd"), "c": gate("c", "never")})
    assert asked == ["a", "b"]
    assert admission.passed == ("a",)
    assert (admission.gate, admission.evidence) == ("b", "two is odd")
    assert admission.environment == "lot_sizing/small/train/0/3/ample"


def test_a_broken_gate_raises(healthy: Environment) -> None:
    def broken(environment: Environment) -> None:
        raise LookupError("this gate is broken")

    with pytest.raises(LookupError, match="this gate is broken"):
        admit(healthy, {"broken": broken})


def test_evidence_is_bounded(healthy: Environment) -> None:
    def wordy(environment: Environment) -> None:
        raise GateFailure("x" * 10_000)

    assert len(admit(healthy, {"wordy": wordy}).evidence or "") == 2000


def test_every_gate_says_what_it_checks() -> None:
    assert set(OPENENV_CHECKS) <= set(GATES)
    for name, gate in GATES.items():
        assert gate.__doc__
        assert getattr(gates, name.replace("-", "_")) is gate
