"""The study of the store: rows, resumption, tables and figures at a small size."""

from __future__ import annotations

import pytest

from truthfirst import figures
from truthfirst.study import store


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    return folder, *store.run(2, 28, 2, 1, folder)


def test_a_finished_seed_is_not_played_again(frames, monkeypatch):
    folder, episodes, by_day = frames
    monkeypatch.setattr(store, "_job", lambda *_: pytest.fail("played again"))
    again, days_again = store.run(2, 28, 2, 1, folder)
    assert again.equals(episodes)
    assert days_again.equals(by_day)


def test_every_day_of_a_solvent_store_is_in_the_frame(frames):
    _, episodes, by_day = frames
    planner = by_day[(by_day["policy"] == "planner") & (by_day["seed"] == store.FIRST)]
    assert planner["day"].tolist() == list(range(29))
    mine = episodes[(episodes["policy"] == "planner") & (episodes["seed"] == store.FIRST)].iloc[0]
    assert planner["worth"].iloc[-1] == mine["u"]


def test_tables_count_bankruptcies_and_stand_beside_the_source(frames):
    _, episodes, _ = frames
    table = store.by_manager(episodes).set_index("manager")
    assert table.loc["closer", "reward"] == 0
    assert (table["n"] == 2).all()
    assert (store.tightness(episodes)["planner"] >= 0.8).all()
    beside = store.beside_the_source(episodes)
    assert beside.loc[beside["who"] == "trained", "balance"].item() == 182_844


@pytest.mark.parametrize("name", ["store_worth", "store_reward", "store_bound"])
def test_figures_draw(frames, name):
    _, episodes, by_day = frames
    assert figures.draw(name, by_day if name == "store_worth" else episodes).axes


def test_a_wrong_request_is_refused(capsys, tmp_path):
    assert store.main(["--seeds", "0", "--out", str(tmp_path)]) == 2
    assert store.main(["--goods", "99", "--seeds", "1", "--out", str(tmp_path)]) == 2
    assert "goods must be an integer from 1 to 10" in capsys.readouterr().err
