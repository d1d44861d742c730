"""Rows of episodes and decisions; a falsified trace does not score again."""

from __future__ import annotations

import dataclasses

import pytest

from truthfirst.episode import save_trace
from truthfirst.records import RecordError
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.references import play, policy
from truthfirst.solvefirst.score import score_trace
from truthfirst.study.episodes import decisions, episode_frame, rescore

WORLD = build_candidate(Recipe("rationing", "nano", index=1))


def with_header(trace, **entries):
    return dataclasses.replace(trace, header=trace.header | entries)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_honest_trace_scores_again_to_the_same(family, candidate):
    trace = play(policy("plan"), candidate(family), "A", 0)
    assert rescore(trace) == score_trace(trace)


@pytest.mark.parametrize("name", ["u_star", "u_zero"])
def test_a_falsified_header_is_named(name):
    trace = play(policy("probe-2"), WORLD, "A", 0)
    false = with_header(trace, **{name: trace.header[name] - 3})
    assert score_trace(false).reward != score_trace(trace).reward  # the header is believed here
    with pytest.raises(RecordError, match=f"states {name} = .*falsified"):
        rescore(false)


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
    with pytest.raises(RecordError, match="unknown budget"):
        rescore(with_header(trace, budget="endless"))


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
