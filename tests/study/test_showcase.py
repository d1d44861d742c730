"""Showing an environment and an episode: nothing is lost or added on the way to the page."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.references import play, policy
from truthfirst.study import showcase
from truthfirst.widgets import play_by_hand

ENVIRONMENT = build_candidate(Recipe("lot_sizing", "nano", index=3))


def test_tables_are_the_public_ones_and_empty_of_readings():
    frames = showcase.tables(ENVIRONMENT)
    assert set(frames) == set(ENVIRONMENT.spec.tables.values())
    assert frames[ENVIRONMENT.spec.tables["readings"]].empty
    assert len(frames[ENVIRONMENT.spec.tables["period"]]) == 4


def test_transcript_and_regret_tell_every_call():
    trace = play(policy("probe-2"), ENVIRONMENT, "A", 0)
    rows = showcase.transcript(trace)
    assert len(rows) == len(trace.turns)
    assert rows["gain"].sum() == sum(turn.detail.get("gain", 0) for turn in trace.turns)
    frame = showcase.regret_frame(trace, "title")
    assert len(frame) == len(rows) + 1
    assert frame["regret"].sum() == pytest.approx(1 - frame["score"].iloc[0])
    decided = frame[frame["kind"] == "decision"]
    assert (decided["information"] + decided["planning"]).to_numpy() == pytest.approx(decided["regret"])


def test_the_typical_episode_is_the_one_nearest_to_the_median():
    frame = pd.DataFrame({"unclipped": [0.1, None, 0.4, 0.9, 0.5], "seed": range(5)}, index=[7, 3, 9, 1, 2])
    assert showcase.nearest_to_median(frame)["seed"] == 2  # median 0.45: 0.4 stands before 0.5
    with pytest.raises(ValueError, match="no episode with a number"):
        showcase.nearest_to_median(frame[frame["unclipped"].isna()])


def test_the_card_holds_prompt_tools_tables_and_transcript():
    trace = play(policy("plan"), ENVIRONMENT, "A", 0)
    card = showcase.card(ENVIRONMENT, trace).set_index("panel")["text"]
    assert card["prompt"] == ENVIRONMENT.view("A").prompt[0]["content"]
    for tool in ENVIRONMENT.view("A").tools:
        assert tool.name in card["tools"]
    assert all(turn.reply in card["transcript"] for turn in trace.turns)


def test_playing_by_hand_calls_the_tools_and_shows_the_score():
    episode = ENVIRONMENT.episode("A", "reader")
    panel = play_by_hand(episode)
    tabs, (stop, left), log = panel.children[0], panel.children[1].children, panel.children[2]
    form = tabs.children[0]
    button = form.children[-1]
    button.click()
    assert len(episode.turns) == 1
    assert episode.turns[0].status == "ok"
    assert episode.turns[0].reply in log.value
    assert left.value.startswith(f"Turns: {ENVIRONMENT.turn_budget - 1} ")
    stop.click()
    assert episode.done
    assert "Score:" in log.value
