"""The harness: budget, transactions, Phi in the trace, rewards, four scripted agents, hostile commands, replay."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from typing import Any

import pytest

from truthfirst.episode import load_traces, read_trace, save_trace, trace_record
from truthfirst.policies.base import Scripted, roll_out
from truthfirst.records import RecordError
from truthfirst.sandbox import SandboxUnavailable, available
from truthfirst.types import Form, StopReason, Trace, Turn
from truthfirst.worldfirst import environment as harness
from truthfirst.worldfirst.agents import AGENTS
from truthfirst.worldfirst.environment import (
    REWARD_KINDS,
    Environment,
    WorkspaceEpisode,
    build_environment,
    call_rewards,
    potentials,
    replay,
    score_trace,
)
from truthfirst.worldfirst.scan import Link, pack
from truthfirst.worldfirst.shell import LIMITS, Shell, Step

needs_sandbox = pytest.mark.skipif(not available(), reason=available().reason or "there is a sandbox")


@pytest.fixture(scope="module")
def shell() -> Shell:
    """A shell that remembers, so that agents who begin alike share their beginnings."""
    return Shell(remember=500)


@pytest.fixture(scope="module")
def world(shell: Shell) -> Environment:
    return build_environment({"generator": "warehouse", "seed": 21, "tier": "nano"}, shell=shell)


class Fake(Shell):
    """A shell without a sandbox: `write PATH TEXT`, `link PATH TARGET`, `remove PATH` on entries it keeps."""

    def run(self, tree: bytes, command: str) -> Step:
        entries: dict[str, Any] = getattr(self, "entries", {})
        verb, path, *text = command.split(" ", 2)
        if verb == "remove":
            entries = {name: data for name, data in entries.items() if name != path}
        else:
            entries = entries | {path: Link(text[0]) if verb == "link" else text[0].encode()}
        self.entries = entries
        return Step("done", pack(entries), str(len(entries)), "exited", 0, False, True)


@pytest.fixture
def fake(world: Environment, monkeypatch) -> Environment:
    monkeypatch.setattr(harness, "require_sandbox", lambda what: None)
    return dataclasses.replace(world, shell=Fake(), calls=6)


def done(environment: Environment) -> WorkspaceEpisode:
    """Return an episode whose workspace holds the right answer, every file by one call of a fake shell."""
    episode = environment.episode()
    outputs = environment.instance.generator.reference(environment.instance.files)
    episode.environment.shell.entries = dict(outputs)  # type: ignore[attr-defined]
    episode.call("bash", {"command": "write note x"})
    return episode


# --- without a sandbox ------------------------------------------------------------------------------------
def test_the_view(world):
    view = world.view("A")
    assert [tool.name for tool in view.tools] == ["bash", "submit"]
    assert view.turn_budget == 64
    assert view.prompt[1]["content"] == world.instance.prompt
    assert view.files == world.instance.files
    for form in (Form.WRITTEN, "I"):
        with pytest.raises(ValueError, match="form A only"):
            world.view(form)
    with pytest.raises(ValueError, match="at least 1"):
        Environment(world.instance, calls=0)


def test_a_pass_is_a_submission_that_the_verifier_accepts(fake):
    episode = done(fake)
    assert episode.score().reward == 0
    assert episode.score().detail["phi"] == 1
    assert "episode is over" in episode.call("submit", {})
    assert episode.done
    assert episode.trace().stop is StopReason.COMPLETED
    assert episode.score().reward == 1
    assert episode.score().detail["return"] == 1.25
    assert episode.rewards("progress") == [0.25, 1.0]
    assert episode.rewards("outcome") == [0.0, 1.0]
    assert episode.rewards("return") == [0.0, 1.25]
    assert episode.rewards("additive") == [0.25, 1.25]
    assert episode.call("bash", {"command": "remove output/manifest.json"}).startswith("The episode is over")


def test_without_a_submission_progress_alone_is_earned(fake):
    for end in ("stop", "answer", "budget"):
        episode = done(fake)
        if end == "stop":
            episode.stop()
        elif end == "answer":
            episode.answer("I am done.")
        while not episode.done:
            episode.call("bash", {"command": "write note y"})
        score = episode.score()
        assert (score.reward, score.detail["phi"], score.detail["return"]) == (0, 1, 0.25)
        assert score.detail["passed"] is False
        assert sum(episode.rewards("progress")) == 0.25


def test_regression_is_paid_back(fake):
    episode = done(fake)
    episode.call("bash", {"command": "remove output/manifest.json"})
    episode.call("bash", {"command": "remove output/profile.csv"})
    episode.call("submit", {})
    assert potentials(episode.trace()) == [1, Fraction(23, 24), 0, 0]
    assert episode.rewards("progress") == pytest.approx([0.25, -0.25 / 24, -0.25 * 23 / 24, 0])
    assert episode.score().detail["regressions"] == 2
    assert episode.score().reward == 0


def test_a_link_in_the_output_is_worth_nothing(fake):
    episode = done(fake)
    episode.call("bash", {"command": "link output/extra /etc/passwd"})
    assert episode.grading.reasons == ("output/extra is a link",)
    assert potentials(episode.trace()) == [1, 0]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("python", {}, "no tool 'python'"),
        ("bash", {}, "command and nothing else"),
        ("bash", {"command": "ls", "cwd": "/"}, "command and nothing else"),
        ("bash", "ls", "command and nothing else"),
        ("bash", None, "command and nothing else"),
        ("bash", {"command": 7}, "must be text"),
        ("bash", {"command": "ls\0"}, "null"),
        ("bash", {"command": "x" * 16_001}, "16001 characters"),
        ("submit", {"sure": True}, "takes no arguments"),
        ("submit", [1], "takes no arguments"),
        (None, object(), "no tool"),
    ],
)
def test_bad_calls_are_refused_and_cost_a_turn(fake, name, arguments, message):
    episode = fake.episode()
    reply = episode.call(name, arguments)
    assert reply.startswith("Refused: ")
    assert message in reply
    assert episode.turns_left == 5
    assert not episode.done
    assert episode.score().detail["refused"] == 1
    read_trace(json.loads(json.dumps(trace_record(episode.trace()))))


def test_rewards_of_every_kind_have_one_number_a_call(fake):
    episode = fake.episode()
    assert all(episode.rewards(kind) == [] for kind in REWARD_KINDS)
    episode.call("bash", {})
    assert all(episode.rewards(kind) == [0.0] for kind in REWARD_KINDS)
    with pytest.raises(ValueError, match="choose one of outcome, progress"):
        episode.rewards("regret")


def test_scoring_by_the_return(fake):
    episode = done(dataclasses.replace(fake, scoring="return"))
    episode.stop()
    assert episode.score().reward == 0.25
    assert score_trace(episode.trace()) == episode.score()


@pytest.mark.parametrize("detail", [{}, {"phi": "x"}, {"phi": "1/0"}, {"phi": "3/2"}, {"phi": None}])
def test_a_damaged_trace_is_told(detail):
    turn = Turn(0, "bash", {}, "", "code", "ok", detail)
    trace = Trace({"form": "A"}, (turn,), StopReason.STOPPED, where="t.jsonl, line 3")
    with pytest.raises(RecordError, match=r"t\.jsonl, line 3: turn 0"):
        score_trace(trace)
    with pytest.raises(RecordError):
        call_rewards(trace, "progress")


def test_recipes_rebuild_and_old_ones_are_refused(world):
    assert build_environment(world.instance.recipe).id == world.id
    with pytest.raises(RecordError, match="revision"):
        build_environment(world.instance.recipe | {"revision": 99})
    with pytest.raises(RecordError, match="no 'tier'"):
        build_environment({"generator": "warehouse", "seed": 7})


def test_without_a_sandbox_nothing_starts(world, monkeypatch):
    def refuse(what):
        raise SandboxUnavailable(f"{what} needs the sandbox: none here")

    monkeypatch.setattr(harness, "require_sandbox", refuse)
    with pytest.raises(SandboxUnavailable, match="workspace needs the sandbox"):
        world.episode()


# --- in the sandbox -----------------------------------------------------------------------------------------
@needs_sandbox
@pytest.mark.parametrize(
    ("name", "passed", "last", "highest"),
    [
        ("reference", True, 1, 1),
        ("half-done", False, Fraction(7, 12), Fraction(7, 12)),
        ("never-submits", False, 1, 1),
        ("saboteur", False, 0, 1),
    ],
)
def test_scripted_agents(world, tmp_path, name, passed, last, highest):
    (trace,) = roll_out(Scripted(name, AGENTS[name]), [world.episode()])
    found = potentials(trace)
    assert (score_trace(trace).detail["passed"], found[-1], max(found)) == (passed, last, highest)
    assert sum(call_rewards(trace, "progress")) == pytest.approx(passed + float(last) / 4)
    assert trace.header["policy"] == name
    save_trace(tmp_path / "t.jsonl", trace)
    (again,) = load_traces(tmp_path / "t.jsonl")
    assert score_trace(again) == score_trace(trace)
    risen = found[: found.index(max(found)) + 1]
    assert risen == sorted(risen)


@needs_sandbox
def test_a_trace_can_be_played_again(world, shell):
    episode = world.episode()
    for command in ("mkdir output; cp input/codes.json output/x; ls input | wc -l", "exit 3", "sleep"):
        episode.call("bash", {"command": command})
    episode.call("nothing", {})
    episode.stop()
    executed = shell.executed
    assert replay(episode.trace(), Shell()).turns == episode.trace().turns
    assert replay(episode.trace(), shell).turns == episode.trace().turns
    assert shell.executed == executed, "a remembered command is not run again"
    other = Trace(episode.trace().header | {"environment": "x"}, (), StopReason.STOPPED)
    with pytest.raises(RecordError, match="not x"):
        replay(other)


@needs_sandbox
def test_a_workspace_lasts_through_the_episode_and_a_stopped_command_leaves_none_of_its_work(world):
    bounded = dataclasses.replace(LIMITS, processor_seconds=1, workspace_bytes=1 << 20, file_bytes=1 << 20)
    episode = dataclasses.replace(world, shell=Shell(bounded)).episode()
    assert episode.call("bash", {"command": "echo one > kept; cd input; false"}).startswith("Exit status 1.")
    assert "processor time. The workspace is as it was" in episode.call(
        "bash", {"command": "echo two > lost; while true; do :; done"}
    )
    assert "grew beyond" in episode.call("bash", {"command": "for i in 1 2 3; do truncate -s 1M $i; done"})
    assert episode.call("bash", {"command": "ls; cat kept; echo err >&2"}).startswith(
        "input\nkept\none\nErrors:\nerr"
    )
    assert [turn.detail["kept"] for turn in episode.turns] == [True, False, False, True]


@needs_sandbox
def test_hostile_commands_find_no_truth_and_break_nothing(world):
    episode = world.episode()
    look = "env; ls /; cat /proc/1/cmdline | head -c 300; find / -name '*truthfirst*' 2>/dev/null"
    reply = episode.call("bash", {"command": look})
    assert all(word not in reply for word in ("warehouse", "truthfirst", "worldfirst"))
    hostile = (
        "mkdir output; ln -s /etc/passwd output/customers.csv; mknod output/n c 1 5; mkfifo output/p; "
        "truncate -s 10G output/big; touch $'output/\\xff'; true"
    )
    episode.call("bash", {"command": hostile})
    assert episode.grading.potential == 0
    assert episode.grading.reasons
    assert "Submitted" in episode.call("submit", {})
    assert episode.score().reward == 0
