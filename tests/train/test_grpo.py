"""The trainer on a toy game: rollouts, rewards, credit, and what it shares with a comparison."""

from __future__ import annotations

import pytest
import torch
from lamps import LETTERS, LOOK, PRESS, PRESSING, TURNS, Lamps, lamp_tasks
from transformers import TrainerCallback

from truthfirst.policies import Rules
from truthfirst.policies.language import LanguagePolicy
from truthfirst.train.environments import task_set
from truthfirst.train.grpo import _sequences
from truthfirst.types import Form

UNKNOWN = [piece.replace("press", "smash") if isinstance(piece, str) else piece for piece in PRESSING]
LISTED = [
    "<tool_call>\n{",
    '"name"',
    ': "press',
    '", "arguments',
    '": ["',
    LETTERS,
    '"]',
    "}\n</tool_call>",
]
UNREADABLE = ["<tool_call>\n{", '"name"', ': "press', '", "argu', LETTERS, "\n</tool_call>"]
TWICE = [
    *PRESSING,
    "<tool_call>{",
    ' "name"',
    ':"press',
    '" , "arguments',
    '" : {"item',
    '" : "',
    'A"',
    "}}</tool_call>",
]


def roll(trainer, rows=None) -> tuple[dict, list]:
    """Return (batch, rollouts) of one generation."""
    rows = rows or [trainer.train_dataset[0]] * trainer.num_generations
    trainer.model.train()
    batch, rollouts = trainer._scored([dict(row) for row in rows])
    return batch, rollouts


def sampled_ids(batch: dict, row: int) -> list[int]:
    return batch["completion_ids"][row][batch["completion_mask"][row].bool()].tolist()


def test_a_rollout_is_what_the_policy_does_in_a_comparison(trainer) -> None:
    made = trainer(script=[piece if isinstance(piece, str) else "B" for piece in PRESSING])
    batch, rollouts = roll(made)
    policy = LanguagePolicy(made.model, made.processing_class, rules=Rules(reminders=0))
    (ours,) = policy.converse([Lamps("A").episode(Form.AGENTIC, "x")])
    length = len(ours.completion_ids)
    for row in range(4):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        assert prompt == ours.prompt_ids
        # TRL still lays the last reply behind the last message; nothing of it is trained on.
        ids, mask = sampled_ids(batch, row), batch["tool_mask"][row].tolist()
        assert ids[:length] == ours.completion_ids
        assert mask[:length] == ours.tool_mask
        assert not any(mask[length : len(ids)])
        assert batch["sampling_per_token_logps"][row][:length].tolist() == pytest.approx(ours.logprobs)
    assert [r.record()["turns"] for r in rollouts] == [TURNS] * 4


def test_log_probabilities_are_those_of_the_training_forward_pass(trainer) -> None:
    made = trainer()
    batch, _ = roll(made)
    keep = batch["completion_ids"].shape[1]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        again = made._get_per_token_logps_and_entropies(made.model, ids, mask, keep)[0]
    written = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert torch.allclose(again[written], batch["sampling_per_token_logps"][written], atol=1e-4)
    assert (batch["sampling_per_token_logps"][written] < -0.1).any()  # the letter is drawn among four


def test_reading_rows_of_like_length_together_changes_nothing(trainer, monkeypatch) -> None:
    from truthfirst.train import rollouts

    made = trainer(group_size=6)
    batch, _ = roll(made)
    batch["completion_mask"][1, 7:] = 0  # rows of unequal length
    batch["prompt_mask"][2, :3] = 0
    arguments = _sequences(batch)
    found = []
    for rows in (100, 2):
        monkeypatch.setattr(rollouts, "READ_ROWS", rows)
        found.append(made._get_per_token_logps_and_entropies(made.model, *arguments, compute_entropy=True))
    written = (batch["completion_mask"] * batch["tool_mask"]).bool()
    for one, other in zip(found[0][:2], found[1][:2], strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one[written], other[written], atol=1e-5)
    gradients = []
    for logps, *_ in found:
        made.model.zero_grad()
        (logps * written).sum().backward()
        gradients.append(made.model.model.embed_tokens.weight.grad.clone())
    assert torch.allclose(*gradients, atol=1e-4)


@pytest.mark.parametrize("script", [UNKNOWN, LISTED, UNREADABLE])
def test_calls_that_trl_would_answer_itself_reach_the_episode(trainer, script) -> None:
    _, rollouts = roll(trainer(script=script))
    for rollout in rollouts:
        turns = rollout.episode.trace().turns
        assert [turn.status for turn in turns] == ["refused"] * TURNS
        assert rollout.messages == [1] * TURNS


def test_every_call_of_a_message_costs_its_turn(trainer) -> None:
    _, rollouts = roll(trainer(script=TWICE))
    assert all(sum(r.messages) <= TURNS for r in rollouts)
    assert all(r.messages[0] == 2 for r in rollouts)


def test_arguments_of_an_unreadable_call_are_those_of_a_comparison(trainer) -> None:
    script = [piece if isinstance(piece, str) else "B" for piece in UNREADABLE]
    made = trainer(script=script)
    _, rollouts = roll(made)
    policy = LanguagePolicy(made.model, made.processing_class, rules=Rules(reminders=0))
    (trace,) = policy.play([Lamps("A").episode(Form.AGENTIC, "x")])
    assert rollouts[0].episode.trace().turns == trace.turns


def test_the_prompt_shows_the_exact_schemas(trainer) -> None:
    made = trainer()
    (shown,) = made._env_tools.values()
    assert shown == [PRESS.openai(), LOOK.openai()]
    batch, _ = roll(made)
    text = made.processing_class.decode(batch["prompt_ids"][0])
    assert '"enum": ["A", "B", "C", "D"]' in text


def test_forms_are_mixed_in_one_generation(trainer) -> None:
    made = trainer(lamp_tasks("A", ("A", "F")), groups=2, script=["A"])
    rows = [row for row in made.tasks.rows for _ in range(4)]
    _, rollouts = roll(made, rows)
    assert [r.reward for r in rollouts] == [0.0] * 4 + [1.0] * 4
    assert [r.record()["turns"] for r in rollouts] == [0] * 8


def test_many_tool_sets_in_one_trainer(trainer) -> None:
    def open_many(key: str) -> Lamps:
        from dataclasses import replace

        return Lamps("A", (replace(PRESS, name=f"press_{key}"), LOOK))

    keys = [str(number) for number in range(30)]
    made = trainer(task_set([(key, "x") for key in keys], ["A"], open_many), group_size=2, groups=30)
    rows = [row for row in made.tasks.rows for _ in range(2)]
    batch, _ = roll(made, rows)
    texts = [made.processing_class.decode(ids) for ids in batch["prompt_ids"][::2]]
    for key, text in zip(keys, texts, strict=True):
        assert f'"name": "press_{key}"' in text
        assert text.count("press_") == 1


def test_it_learns_to_press_the_right_button(trainer) -> None:
    rewards = []

    class Watch(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "reward" in (logs or {}):
                rewards.append(logs["reward"])

    made = trainer(steps=6, group_size=8, groups=2, learning_rate=2e-3, callbacks=[Watch()])
    made.train()
    assert rewards[-1] > rewards[0] + 0.2


def test_the_same_seed_gives_the_same_run_and_another_does_not(trainer) -> None:
    found = [
        sampled_ids(roll(trainer(seed=seed, folder=f"run{n}"))[0], 0) for n, seed in enumerate((0, 0, 1, 2))
    ]
    assert found[0] == found[1]
    assert len({tuple(ids) for ids in found}) > 1


def test_no_draws_are_used_twice(trainer) -> None:
    made = trainer(group_size=8)
    first, second = roll(made)[0], roll(made)[0]
    assert [sampled_ids(first, row) for row in range(8)] != [sampled_ids(second, row) for row in range(8)]


def test_trls_own_generation_serves_where_the_engine_does_not_fit(trainer) -> None:
    made = trainer()
    made._engine = None
    batch, rollouts = roll(made)
    assert "sampling_per_token_logps" not in batch
    assert all(r.record()["turns"] >= 2 for r in rollouts)
