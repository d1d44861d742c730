"""Credit against a group that was worked out by hand, and against TRL's own advantages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.streams import stream
from truthfirst.train.credit import (
    CreditError,
    on_tokens,
    relative,
    return_to_go,
    token_advantages,
    turn_index,
    turn_table,
)

# A group of three. Rollout 0 has three turns, rollout 1 two, rollout 2 one:
#   rewards   -0.2 -0.1  0.0      returns   -0.3 -0.1  0.0
#              0.0 -0.5                     -0.5 -0.5
#              0.0                           0.0
# Means by turn: -0.8/3, -0.3, and turn 2 stands alone. The pooled mean is -1.4/6.
REWARDS = [[-0.2, -0.1, 0.0], [0.0, -0.5], [0.0]]
RETURNS = torch.tensor([[-0.3, -0.1, 0.0], [-0.5, -0.5, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
PRESENT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)
# x is a token of the policy, . one that it was given.
WRITTEN = torch.tensor([[1, 1, 0, 1, 0, 1], [1, 0, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0]])


def close(found: torch.Tensor, expected: list) -> bool:
    return torch.allclose(found.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6)


def test_a_turn_is_a_run_of_written_tokens() -> None:
    assert turn_index(WRITTEN).tolist() == [
        [0, 0, -1, 1, -1, 2],
        [0, -1, -1, 1, -1, -1],
        [0, 0, 0, -1, -1, -1],
    ]
    assert turn_index(torch.tensor([[0, 0, 1], [0, 0, 0]])).tolist() == [[-1, -1, 0], [-1, -1, -1]]


def test_returns_of_the_hand_worked_group() -> None:
    table, present = turn_table(REWARDS, [3, 2, 1])
    assert torch.equal(present, PRESENT)
    assert close(return_to_go(table), RETURNS.tolist())


def test_rewards_of_messages_without_tokens_fall_on_the_last_turn() -> None:
    table, _ = turn_table([[0.1, 0.2, 0.3], [0.5], []], [2, 2, 0])
    assert close(table, [[0.1, 0.5], [0.5, 0.0], [0.0, 0.0]])


def test_group_mean_at_the_same_turn() -> None:
    third = 0.8 / 3
    assert close(
        relative(RETURNS, PRESENT, 3),
        [[-0.3 + third, 0.2, 0.0], [-0.5 + third, -0.2, 0.0], [third, 0.0, 0.0]],
    )


def test_scaled_by_the_deviation_of_the_group_at_that_turn() -> None:
    found = relative(RETURNS, PRESENT, 3, scaled=True)
    first = np.array([-0.3, -0.5, 0.0])
    expected = (first - first.mean()) / (first.std(ddof=1) + 1e-4)
    assert close(found[:, 0], expected.tolist())
    assert close(found[:, 1], [0.2 / (0.08**0.5 + 1e-4), -0.2 / (0.08**0.5 + 1e-4), 0.0])
    assert close(found[:, 2], [0.0, 0.0, 0.0])


def test_pooled_mean_over_all_turns() -> None:
    mean = 1.4 / 6
    assert close(
        relative(RETURNS, PRESENT, 3, "pooled"),
        [[-0.3 + mean, -0.1 + mean, mean], [-0.5 + mean, -0.5 + mean, 0.0], [mean, 0.0, 0.0]],
    )


def test_the_solver_needs_no_group() -> None:
    assert close(relative(RETURNS, PRESENT, 3, "solver"), RETURNS.tolist())
    assert close(relative(RETURNS, PRESENT, 1, "solver"), RETURNS.tolist())


def test_advantages_lie_on_the_tokens_that_were_written() -> None:
    found = token_advantages("regret", torch.zeros(3), REWARDS, WRITTEN, 3)
    third = 0.8 / 3
    expected = [
        [-0.3 + third] * 2 + [0, 0.2, 0, 0],
        [-0.5 + third, 0, 0, -0.2, 0, 0],
        [third] * 3 + [0, 0, 0],
    ]
    assert close(found, expected)
    assert found.dtype == torch.float32


def test_a_message_without_a_call_gets_the_return_to_go() -> None:
    """Rollout 0 talks, then earns; rollout 1 earns nothing: talking is what led there."""
    written = torch.tensor([[1, 0, 1], [1, 0, 1]])
    found = token_advantages("progress", torch.zeros(2), [[0.0, 1.0], [0.0, 0.0]], written, 2)
    assert close(found, [[0.5, 0, 0.5], [-0.5, 0, -0.5]])


def test_direct_additive_adds_what_is_achieved_and_propagates_nothing() -> None:
    written = torch.tensor([[1, 0, 1], [1, 0, 1]])
    found = token_advantages(
        "direct-additive", torch.tensor([1.0, -1.0]), [[0.0, 1.0], [0.5, 0.0]], written, 2
    )
    # Achieved by the end of each turn: 0, 1 and 0.5, 0.5; centred: -0.25, 0.25 and 0.25, -0.25.
    assert close(found, [[0.75, 0, 1.25], [-0.75, 0, -1.25]])


def test_groups_do_not_mix() -> None:
    two = torch.cat([RETURNS, RETURNS + 1])
    found = relative(two, PRESENT.repeat(2, 1), 3)
    assert close(found[3:], found[:3].tolist())


def test_outcome_is_left_alone() -> None:
    outcome = torch.tensor([0.1, -0.2, 0.3])
    assert token_advantages("outcome", outcome, [], WRITTEN, 3) is outcome


@pytest.mark.parametrize(("size", "baseline", "word"), [(2, "turn", "groups of 2"), (3, "median", "median")])
def test_what_cannot_be_compared_is_an_error(size: int, baseline: str, word: str) -> None:
    with pytest.raises(CreditError, match=word):
        relative(RETURNS, PRESENT, size, baseline)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=6, max_size=6), st.lists(st.integers(0, 4), min_size=6, max_size=6)
)
def test_advantages_of_a_turn_sum_to_zero_over_the_group(counts: list[int], numbers: list[int]) -> None:
    rewards = [[number / 4] * count for number, count in zip(numbers, counts, strict=True)]
    table, present = turn_table(rewards, counts)
    for scaled in (False, True):
        found = relative(return_to_go(table), present, 3, scaled=scaled)
        assert close(found.view(2, 3, -1).sum(1), torch.zeros(2, found.shape[1]).tolist())
        assert not found[~present].any()


def test_every_written_token_of_a_turn_has_its_value() -> None:
    index = turn_index(WRITTEN)
    values = torch.arange(9, dtype=torch.float64).view(3, 3)
    assert on_tokens(values, index).tolist() == [[0, 0, 0, 1, 0, 2], [3, 0, 0, 4, 0, 0], [6, 6, 6, 0, 0, 0]]


@pytest.mark.parametrize("scaled", [True, False])
def test_outcome_equals_trls_own_advantage(trainer, scaled: bool) -> None:
    """The same formula: with all reward at the end, every turn has TRL's advantage; TRL computes its side here."""
    made = trainer(groups=2, scale="group" if scaled else "none")
    made.model.train()
    rng = stream(0, "rewards")
    for _ in range(3):
        rewards = [float(r) for r in rng.integers(0, 4, 8) / 3]
        made.reward_funcs = [lambda rewards=rewards, **_: rewards]
        batch, _ = made._scored([dict(made.train_dataset[0])] * 8)
        returns = torch.tensor(rewards, dtype=torch.float64)[:, None]
        ours = relative(returns, torch.ones(8, 1, dtype=torch.bool), 4, scaled=scaled)[:, 0]
        assert batch["advantages"].shape == (8,)
        assert torch.allclose(ours.float(), batch["advantages"], atol=1e-5)
