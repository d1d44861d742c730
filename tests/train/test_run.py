"""Runs survive: a kill loses at most one checkpoint interval, and a resumed curve is that of an unbroken run."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pandas as pd
import pytest
from lamps import lamp_tasks
from transformers import TrainerCallback

from truthfirst.records import RecordError
from truthfirst.train.history import FILE, read_history
from truthfirst.train.plan import PlanError
from truthfirst.train.run import RunError, last_checkpoint, main, read_plan, train

FIELDS = {"steps": 6, "updates": 2, "save_every": 2, "groups": 2, "learning_rate": 2e-3}
COMPARED = ["loss", "grad_norm", "reward", "score/A", "turns/A", "entropy", "completions/mean_length"]


class Kill(TrainerCallback):
    """Stops a run as Ctrl-C would, after a step has been taken and logged."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **_) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    from lamps import lamp_model

    from truthfirst.train.grpo import Trainer
    from truthfirst.train.plan import Plan

    plan = Plan(**FIELDS, group_size=4, warmup=0, report_to="none", options={"disable_tqdm": True})
    made = Trainer(*lamp_model(), lamp_tasks("ABCD"), plan, tmp_path_factory.mktemp("unbroken"))
    return train(made)


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    assert one["step"].tolist() == other["step"].tolist()
    for name in COMPARED:
        curves = [frame[name].astype(float).tolist() for frame in (one, other)]
        assert curves[0] == pytest.approx(curves[1], abs=1e-5, nan_ok=True)


@pytest.mark.parametrize(("killed", "kept"), [(3, 2), (5, 4)])
def test_a_resumed_run_has_the_curve_of_an_unbroken_one(trainer, unbroken, killed: int, kept: int) -> None:
    first = trainer(lamp_tasks("ABCD"), callbacks=[Kill(killed)], **FIELDS)
    folder = Path(first.args.output_dir)
    with pytest.raises(KeyboardInterrupt):
        train(first)
    assert last_checkpoint(folder).name == f"checkpoint-{kept}"  # at most one interval is lost
    assert read_history(folder)["step"].max() == killed  # and these steps are taken again
    second = trainer(lamp_tasks("ABCD"), **FIELDS)
    same(train(second, resume=True), unbroken)
    assert second.state.global_step == 6


def test_a_half_written_checkpoint_is_passed_over(trainer) -> None:
    made = trainer(**FIELDS | {"steps": 4, "keep": 2})
    folder = Path(made.args.output_dir)
    train(made)
    assert last_checkpoint(folder).name == "checkpoint-4"
    (folder / "checkpoint-4" / "trainer_state.json").write_text('{"global_step": ', encoding="utf-8")
    assert last_checkpoint(folder).name == "checkpoint-2"
    (folder / "checkpoint-2" / "optimizer.pt").unlink()
    assert last_checkpoint(folder) is None
    assert last_checkpoint(folder / "nowhere") is None


def test_a_folder_with_another_run_is_refused(trainer) -> None:
    train(trainer(**FIELDS | {"steps": 2}))
    with pytest.raises(RunError, match="checkpoint-2"):
        train(trainer(**FIELDS))
    with pytest.raises(RunError, match="learning_rate"):
        train(trainer(**FIELDS | {"learning_rate": 1e-3}), resume=True)


def test_resuming_without_a_checkpoint_begins(trainer) -> None:
    history = train(trainer(**FIELDS | {"steps": 2, "save_every": 0}), resume=True)
    assert history["step"].tolist() == [1, 2]


def test_history_is_one_row_a_step_with_nulls(unbroken) -> None:
    assert unbroken["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert unbroken["seed"].tolist() == [0] * 6
    assert unbroken["reward"].isna().tolist() == [False, True] * 3  # one generation for two steps
    assert unbroken["time/environment_share"].isna().tolist() == [True, True, False, True, False, True]


def test_a_damaged_history_is_named(tmp_path) -> None:
    (tmp_path / FILE).write_bytes(b"PAR1 no more")
    with pytest.raises(RecordError, match=FILE):
        read_history(tmp_path)
    assert read_history(tmp_path / "nowhere").empty


@pytest.mark.parametrize("text", ["group_size", "colour=red", "steps={", "steps=many", "loss=ppo"])
def test_a_plan_that_cannot_be_read_says_so(text: str) -> None:
    with pytest.raises(PlanError, match=text.partition("=")[0]):
        read_plan([text])


def test_a_missing_base_checkpoint_stops_early(tmp_path, capsys) -> None:
    assert main(["--model", str(tmp_path / "base"), "--out", str(tmp_path / "run")]) == 2
    assert "base checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_signal_gives_one_line(tmp_path, capsys, monkeypatch) -> None:
    """The whole command, ended by SIGTERM after its first step: one line, no traceback, and the run can go on."""
    from lamps import lamp_model

    from truthfirst.train import grpo

    class Signalled(grpo.Trainer):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, callbacks=[Signal()], **options)

    class Signal(TrainerCallback):
        def on_step_end(self, args, state, control, **_) -> None:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(grpo, "Trainer", Signalled)
    model, tokenizer = lamp_model()
    model.config.max_position_embeddings = 8_192
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    command = ["--model", str(tmp_path / "base"), "--out", str(tmp_path / "run")]
    command += ["--families", "pricing", "--instances", "2"]
    for field in ("steps=9", "groups=1", "group_size=2", "updates=1", "report_to=none", "message_tokens=8"):
        command += ["-p", field]
    assert main(command) == 130
    said = capsys.readouterr().err
    assert said.rstrip().splitlines()[-1].startswith("stopped;")
    assert "Traceback" not in said
    assert json.loads((tmp_path / "run" / "plan.json").read_text(encoding="utf-8"))["steps"] == 9
