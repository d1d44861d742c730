"""What cannot work stops before training, and says what to change."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from lamps import Lamps, lamp_model, lamp_tasks, template

from truthfirst.policies.clockwork import byte_tokenizer
from truthfirst.train.checks import SetupError, check_setup, load_policy
from truthfirst.train.environments import task_set
from truthfirst.train.grpo import TrainingError
from truthfirst.train.plan import Plan, PlanError, reporters

PLAIN = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


@pytest.fixture(scope="module")
def pair():
    return lamp_model()


def test_what_fits_is_let_through(pair) -> None:
    assert check_setup(*pair, lamp_tasks("AB", ("A", "F", "I")), Plan()).family == "hermes"


def test_a_model_without_a_tool_template(pair) -> None:
    tokenizer = byte_tokenizer(PLAIN)
    with pytest.raises(SetupError, match=r"no tool template.*qwen2_5\.jinja"):
        check_setup(pair[0], tokenizer, lamp_tasks(), Plan())


def test_a_tokenizer_of_another_model(pair) -> None:
    tokenizer = byte_tokenizer(template(), [f"word{n}" for n in range(500)])
    with pytest.raises(SetupError, match="do not belong together"):
        check_setup(pair[0], tokenizer, lamp_tasks(), Plan())


def test_a_tokenizer_without_padding(pair) -> None:
    tokenizer = byte_tokenizer(template())
    tokenizer.pad_token = None
    with pytest.raises(SetupError, match="padding"):
        check_setup(pair[0], tokenizer, lamp_tasks(), Plan())


def long_tasks(turns: int):
    return task_set([("A", "lamps")], ["A"], lambda key: Lamps(key, turns=turns))


def test_a_context_that_cannot_hold_the_turns(pair) -> None:
    with pytest.raises(SetupError, match=r"lamps in form A: 2000 turns .* context of 4096"):
        check_setup(*pair, long_tasks(2_000), Plan(episode_tokens=100_000))


def test_a_limit_that_cannot_hold_the_turns(pair) -> None:
    with pytest.raises(SetupError, match="episode_tokens is 100"):
        check_setup(*pair, long_tasks(20), Plan(episode_tokens=100))


def test_the_shortest_turns_are_no_reason_to_refuse(pair) -> None:
    check_setup(*pair, long_tasks(20), Plan(episode_tokens=2_000))


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere/at/all", "nowhere"])
def test_a_missing_checkpoint(path: str) -> None:
    with pytest.raises(SetupError, match="base checkpoint"):
        load_policy(path)


def test_a_group_size_that_does_not_divide(trainer) -> None:
    with pytest.raises(PlanError, match=r"3 × 5 = 15 rollouts.*multiple of 2"):
        trainer(groups=3, group_size=5, updates=2)
    assert Plan(groups=4, group_size=6, updates=2, accumulation=3).batch() == 4
    assert Plan(groups=4, group_size=6, updates=2).batch(processes=3) == 4


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"group_size": 1}, "group_size"),
        ({"groups": 0}, "groups"),
        ({"steps": 2.5}, "steps"),
        ({"loss": "ppo"}, "grpo, dppo"),
        ({"credit": "hope"}, "regret"),
        ({"baseline": "pooled"}, "baseline"),
        ({"baseline": "solver", "credit": "progress"}, "solver"),
        ({"loss": "dppo", "scale": "group"}, "scale"),
        ({"save_every": 3, "updates": 2}, "use 4"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_plan_that_makes_no_sense(fields: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Plan(**fields)


def test_a_plan_in_trls_words(tmp_path) -> None:
    plan = Plan(
        loss="dppo",
        groups=4,
        group_size=8,
        updates=2,
        accumulation=2,
        report_to="none",
        options={"bf16": True},
    )
    found = plan.arguments(tmp_path, turn_budget=9)
    assert found["per_device_train_batch_size"] * found["steps_per_generation"] == 32
    assert found["gradient_accumulation_steps"] == 2
    assert found["max_tool_calling_iterations"] == 10
    assert (found["beta"], found["scale_rewards"], found["bf16"]) == (0.0, "none", True)
    assert replace(plan, loss="grpo").arguments(tmp_path, 9)["scale_rewards"] == "group"


def test_a_logger_that_is_not_installed(monkeypatch) -> None:
    from truthfirst.train import plan as module

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert reporters("auto") == "none"
    with pytest.raises(PlanError, match="wandb is not installed"):
        reporters("wandb")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    assert reporters("auto") == ["trackio"]
    assert reporters(("wandb", "tensorboard")) == ["wandb", "tensorboard"]


def test_a_loss_that_is_no_number_stops_the_run(trainer) -> None:
    made = trainer()
    made.model.train()
    made.current_gradient_accumulation_steps = 1
    batch, _ = made._scored([dict(made.train_dataset[0])] * 4)
    batch["advantages"] = torch.full((4,), math.nan)
    with pytest.raises(TrainingError, match=r"loss is nan at step 1: lower learning_rate \(now 0\.001\)"):
        made._compute_loss(made.model, batch)


def test_a_tokenizer_of_phrases_is_not_measured_in_bytes() -> None:
    """The longest episodes of the study of credit fit: 36 turns, though an unknown call would be 73 bytes."""
    from truthfirst import paths
    from truthfirst.train.checks import load_policy
    from truthfirst.train.evaluate import instances

    [world] = instances(["rationing"], "nano16", 1)
    tasks = task_set([("key", "rationing")], ["I", "A"], lambda key: world)
    check_setup(*load_policy(str(paths.HOME / "data" / "checkpoints" / "tiny-long")), tasks, Plan())
