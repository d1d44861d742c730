"""Rows of episodes and decisions; a damaged trace is named by file, line and field."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from truthfirst.episode import load_traces, save_trace
from truthfirst.records import RecordError
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.references import play, policy
from truthfirst.solvefirst.score import score_trace
from truthfirst.study.compare import compare
from truthfirst.study.episodes import decisions, episode_frame
from truthfirst.study.rescore import rescored
from truthfirst.study.viewer import trace_page

WORLD = build_candidate(Recipe("rationing", "nano", index=1))


def test_decisions_tell_what_was_spent_when(tmp_path):
    traces = [play(policy(name), WORLD, "A", 0) for name in ("optimal", "probe-2")]
    frame = decisions(traces, losses=True)
    assert list(frame["decision"]) == [1, 2, 3, 4] * 2
    assert list(frame["period"]) == [1, 2, 3, 4] * 2
    assert list(frame["turn"]) == [1, 2, 3, 4, 3, 4, 5, 6]
    assert frame["amount"].sum() <= 2 * WORLD.theta.budget
    for trace, (_, rows) in zip(traces, frame.groupby("policy", sort=False), strict=True):
        assert rows["gain"].sum() == score_trace(trace).detail["u"]
        assert rows["regret"].sum() == pytest.approx(1 - score_trace(trace).detail["unclipped"])
    assert (frame[frame["policy"] == "optimal"]["regret"] == 0).all()
    for trace in traces:
        save_trace(tmp_path / "t.jsonl", trace)
    assert decisions(tmp_path / "t.jsonl", losses=True).equals(frame)


def test_an_amount_is_null_where_a_decision_has_none():
    frame = decisions([play(policy("plan"), build_candidate(Recipe("pricing", "nano", index=2)), "A", 0)])
    assert len(frame)
    assert frame["amount"].isna().all()
    assert frame["period"].notna().all()
    assert decisions([]).columns.equals(frame.columns)


def test_repeated_probes_and_unknown_tools_are_counted():
    episode = WORLD.episode("A")
    key = WORLD.family.probe_keys(WORLD.theta)[0]
    from truthfirst.solvefirst.realize.tools import Probe

    for _ in range(2):
        episode.call(*episode.write(Probe(key)))
    episode.call("nowhere", {})
    episode.stop()
    row = episode_frame([episode.trace()]).iloc[0]
    assert (row["probes"], row["probes_new"], row["repeated"]) == (2, 1, 1)
    assert (row["unknown_tools"], row["refused"], row["turns"]) == (1, 1, 3)
    assert row["coverage"] == 1 / len(WORLD.family.probe_keys(WORLD.theta))


ROLLOUT = {
    "counts": {"cut": 1},
    "tokens": {"sampled": 5, "logprob": -2.0},
    "messages": [
        {"turns": [0, 1], "text": "x", "tokens": 5, "prompt_tokens": 9, "logprob": -2.0, "notes": []}
    ],
}
# Damage, and the field that the error must name.
DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no header": (lambda r: r.pop("header"), "field header is missing"),
    "header is a list": (lambda r: r.update(header=[]), "header = "),
    "no form": (lambda r: r["header"].pop("form"), "header.form"),
    "no theta": (lambda r: r["header"].pop("theta"), "header.theta"),
    "theta is null": (lambda r: r["header"].update(theta=None), "header.theta"),
    "unknown family": (lambda r: r["header"].update(family="nothing"), "header.family"),
    "u_star below u_zero": (lambda r: r["header"].update(u_star=-1), "header.u_star = -1"),
    "u_star is u_zero": (lambda r: r["header"].update(u_star=r["header"]["u_zero"]), "header.u_star"),
    "u_star is text": (lambda r: r["header"].update(u_star="12"), "header.u_star = '12'"),
    "u_zero is a share": (lambda r: r["header"].update(u_zero=0.5), "header.u_zero"),
    "no environment": (lambda r: r["header"].pop("environment"), "header.environment"),
    "policy is a list": (lambda r: r["header"].update(policy=["plan"]), "header.policy"),
    "seed is a list": (lambda r: r["header"].update(seed=[0]), "header.seed"),
    "budget of turns is text": (lambda r: r["header"].update(turn_budget="many"), "header.turn_budget"),
    "turns are an object": (lambda r: r.update(turns={}), "turns = "),
    "a turn is null": (lambda r: r["turns"].__setitem__(1, None), r"turns\[1\]"),
    "a turn is lost": (lambda r: r["turns"].pop(0), r"turns\[0\].index = 1"),
    "no kind": (lambda r: r["turns"][0].pop("kind"), r"turns\[0\].kind is missing"),
    "kind is a list": (lambda r: r["turns"][0].update(kind=[]), r"turns\[0\].kind"),
    "detail is null": (lambda r: r["turns"][0].update(detail=None), r"turns\[0\].detail"),
    "new is null": (lambda r: r["turns"][0]["detail"].update(new=None), r"turns\[0\].detail.new = None"),
    "new is text": (lambda r: r["turns"][0]["detail"].update(new="x"), r"turns\[0\].detail.new = 'x'"),
    "new is a list": (lambda r: r["turns"][0]["detail"].update(new=[]), r"turns\[0\].detail.new"),
    "new is missing": (lambda r: r["turns"][0]["detail"].pop("new"), r"turns\[0\].detail.new"),
    "new is false": (lambda r: r["turns"][0]["detail"].update(new=False), r"turns\[0\].detail.new = False"),
    "gain": (lambda r: r["turns"][2]["detail"].update(gain=10**6), r"turns\[2\].detail.gain"),
    "answer is a list": (lambda r: r.update(answer=[1]), "answer"),
    "rollout is text": (lambda r: r["header"].update(rollout="x"), "header.rollout"),
    "counts are a list": (lambda r: r["header"]["rollout"].update(counts=[]), "header.rollout.counts"),
    "a count is text": (
        lambda r: r["header"]["rollout"]["counts"].update(cut="x"),
        "header.rollout.counts.cut",
    ),
    "tokens are null": (lambda r: r["header"]["rollout"].update(tokens=None), "header.rollout.tokens"),
    "a message is a number": (
        lambda r: r["header"]["rollout"].update(messages=[3]),
        r"header.rollout.messages\[0\]",
    ),
    "a message's tokens are text": (
        lambda r: r["header"]["rollout"]["messages"][0].update(tokens="5"),
        r"messages\[0\].tokens",
    ),
    "a message without turns": (
        lambda r: r["header"]["rollout"]["messages"][0].update(turns=None),
        r"messages\[0\].turns",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_trace_is_named_by_file_line_and_field(kind, tmp_path):
    file, (damage, field) = tmp_path / "traces.jsonl", DAMAGE[kind]
    save_trace(file, play(policy("probe-2"), WORLD, "A", 0))
    record = json.loads(file.read_text())
    record["header"]["rollout"] = json.loads(json.dumps(ROLLOUT))
    file.write_text(f"{file.read_text()}\n{json.dumps(record)}\n")  # an empty line counts too
    assert len(episode_frame(load_traces(file))) == 2
    damage(record)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], json.dumps(record)]) + "\n")
    with pytest.raises(RecordError, match=rf"traces\.jsonl, line 3.*{field}"):
        episode_frame(load_traces(str(file)))


def complaint(use: Callable[[], object]) -> str:
    """What a reader says of a damaged file, or the file's name where the damage does not concern it."""
    try:
        use()
    except RecordError as error:
        return str(error)
    return "traces.jsonl"


@pytest.mark.parametrize("kind", DAMAGE)
def test_no_reader_of_traces_raises_anything_else_on_damage(kind, tmp_path):
    file = tmp_path / "traces.jsonl"
    save_trace(file, play(policy("probe-2"), WORLD, "A", 0))
    record = json.loads(file.read_text())
    record["header"]["rollout"] = json.loads(json.dumps(ROLLOUT))
    DAMAGE[kind][0](record)
    file.write_text(json.dumps(record) + "\n")

    for use in (
        lambda: decisions(file, losses=True),
        lambda: rescored(file),
        lambda: [trace_page(trace) for trace in load_traces(file)],
        lambda: compare(["probe-2"], [WORLD], ["A"], traces=file),
    ):
        assert "traces.jsonl" in complaint(use)


def test_files_of_traces_may_be_named_by_text(tmp_path):
    file = str(tmp_path / "traces.jsonl")
    save_trace(file, play(policy("plan"), WORLD, "A", 0))
    assert len(decisions(file)) == len(decisions(load_traces(file))) > 0
    assert len(rescored(file)) == 1
    assert len(compare(["plan"], [WORLD], ["A"], traces=file)) == 1
    with pytest.raises(RecordError, match=r"nowhere\.jsonl: cannot be read"):
        load_traces(str(tmp_path / "nowhere.jsonl"))
