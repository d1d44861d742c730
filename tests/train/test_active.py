"""Active sampling: which groups teach, what share is wasted, and how batches are joined."""

from __future__ import annotations

import pytest
import torch

from truthfirst.streams import stream
from truthfirst.train.active import expected_waste, fitted_waste, informative, join, pass_counts
from truthfirst.train.rollouts import reward_function
from truthfirst.types import Score


def test_a_group_that_earned_the_same_teaches_nothing() -> None:
    assert informative(torch.tensor([0.5, 0.5, 0.5, 0.0, 1.0, 0.0]), 3) == [False, True]
    assert informative(torch.tensor([0.1 + 0.2, 0.3]), 2) == [False]
    advantages = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.2], [0.0, -0.2]])
    assert informative(advantages, 2) == [False, True]


def test_expected_waste_of_known_rates() -> None:
    assert expected_waste([0.5], 2) == pytest.approx(0.5)
    assert expected_waste([0.0, 1.0, 0.5], 4) == pytest.approx((1 + 1 + 2 / 16) / 3)
    # The source's figures for no pass at all: 66% at p = 0.05 with 8 rollouts, 92% at p = 0.01.
    assert expected_waste([0.05], 8) == pytest.approx(0.66, abs=0.005)
    assert expected_waste([0.01], 8) == pytest.approx(0.92, abs=0.005)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 5.0), (0.3, 3.0)])
def test_the_wasted_share_is_what_the_formula_says(a: float, b: float) -> None:
    """Groups are drawn from instances of many rates; the formula knows the rates, the fit only the pass counts."""
    rng, size = stream(0, "waste", str(a)), 6
    rates = rng.beta(a, b, 20_000)
    passes = rng.binomial(size, rates)
    wasted = float(((passes == 0) | (passes == size)).mean())
    assert expected_waste(rates, size) == pytest.approx(wasted, abs=0.01)
    assert fitted_waste(passes.tolist(), size) == pytest.approx(wasted, abs=0.015)


def test_fit_at_the_edges() -> None:
    assert fitted_waste([3], 6) is None
    assert fitted_waste([0, 0, 0], 6) == 1.0
    assert fitted_waste([0, 6, 0, 6], 6) == 1.0
    assert fitted_waste([3, 3, 3], 6) == pytest.approx(2 * 0.5**6)


def test_only_pass_or_fail_rewards_have_pass_counts() -> None:
    assert pass_counts(torch.tensor([1.0, 0.0, 1.0, 1.0]), 2) == [1, 2]
    assert pass_counts(torch.tensor([1.0, 0.5]), 2) is None


def test_join_pads_prompts_left_and_the_rest_right() -> None:
    one = {
        "prompt_ids": torch.tensor([[1, 2], [3, 4]]),
        "prompt_mask": torch.ones(2, 2),
        "completion_ids": torch.tensor([[5], [6]]),
        "tool_mask": torch.zeros(2, 1),
        "advantages": torch.tensor([[0.5], [0.25]]),
        "num_items_in_batch": torch.tensor(2),
    }
    other = {
        "prompt_ids": torch.tensor([[7, 8, 9]]),
        "prompt_mask": torch.ones(1, 3),
        "completion_ids": torch.tensor([[10, 11]]),
        "tool_mask": torch.zeros(1, 2),
        "advantages": torch.tensor([[1.0, 2.0]]),
        "num_items_in_batch": torch.tensor(1),
    }
    found = join([(one, [1]), (other, [0])], pad_id=99)
    assert found["prompt_ids"].tolist() == [[99, 3, 4], [7, 8, 9]]
    assert found["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert found["completion_ids"].tolist() == [[6, 99], [10, 11]]
    assert found["tool_mask"].tolist() == [[0, 1], [0, 0]]
    assert found["advantages"].tolist() == [[0.25, 0.0], [1.0, 2.0]]
    assert "num_items_in_batch" not in found


def test_groups_that_teach_nothing_are_refilled(trainer) -> None:
    made = trainer(groups=2, group_size=4, refills=6, seed=1)
    made.model.train()
    rounds, inner = [], made._scored

    def recorded(rows: list) -> tuple:
        rounds.append(inner(rows))
        return rounds[-1]

    made._scored = recorded
    made.reward_funcs = [chance]  # a third of the groups differ
    batch = made._generate_and_score_completions([dict(made.train_dataset[0])] * 8)
    taught = [
        part["advantages"].view(-1, 4)[group]
        for part, rollouts in rounds
        for group, good in enumerate(informative(torch.tensor([r.reward for r in rollouts]), 4))
        if good
    ]
    drawn = sum(len(rollouts) for _, rollouts in rounds) // 4
    assert len(rounds) > 1
    assert len(taught) >= 2
    assert torch.equal(batch["advantages"].view(2, 4), torch.stack(taught[:2]))
    metrics = made._metrics["train"]
    assert metrics["active/groups_informative"] == [2]
    assert metrics["active/groups_drawn"] == [drawn]
    assert metrics["active/wasted"] == [pytest.approx(1 - len(taught) / drawn)]
    assert batch["num_items_in_batch"] == (batch["completion_mask"] * batch["tool_mask"]).sum()
    assert batch["prompt_ids"].shape[0] == 8


def chance(environments: list, completions: list, **_) -> list[float]:
    """Reward what was pressed first, in one group of three; the episode tells the same."""
    rewards = reward_function("score")(environments, completions)
    for first in range(0, len(rewards), 4):
        group = [environments[row]._rollout for row in range(first, first + 4)]
        good = sum(len(r.episode.trace().turns) for r in group) % 3 == 0
        for place, rollout in enumerate(group):
            value = float(place == 0) if good else 0.0
            rollout._score = Score(value, {})
            rewards[first + place] = value
    return rewards


def test_a_bound_on_rounds_is_kept(trainer) -> None:
    """A policy that always does the same can never teach: the batch keeps its size and its advantages are zero."""
    made = trainer(groups=2, group_size=2, refills=3, script=["nothing"])
    made.model.train()
    batch = made._generate_and_score_completions([dict(made.train_dataset[0])] * 4)
    metrics = made._metrics["train"]
    assert metrics["active/groups_drawn"] == [2 + 3 * 2]
    assert metrics["active/wasted"] == [1.0]
    assert metrics["active/wasted_expected"] == [1.0]  # every reward was 0: all fail
    assert not batch["advantages"].any()
    assert batch["completion_ids"].shape[0] == 4
