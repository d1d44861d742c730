"""Credit: how the reward of an episode falls on its turns, as advantages of shape (B, T).

A turn is a run of tokens that the policy wrote, and sums the rewards of its calls. With R(b, k) the return-to-go of
turn k in rollout b (gamma = 1), the advantage of every token of that turn is

    R(b, k) - baseline,      divided by the deviation from that baseline where advantages are scaled

    baseline 'turn'     mean of R(., k) over the group's rollouts that have turn k; 0 where fewer than two have it
    baseline 'pooled'   mean over all turns of all rollouts of the group (an ablation: late turns have small returns)
    baseline 'solver'   nothing: a regret return-to-go is already measured against the solver's value of the state

`outcome` is TRL's own advantage and is left alone. `direct-additive`, an ablation of the source (Yuan et al. 2026 as
cited there), adds to it what has been achieved by the end of each turn (gamma = 0: nothing is propagated back), less
the group's mean at that turn. A message without a call is a turn like any other: what follows is its return too.

Pure functions of tensors. B rollouts of which G successive ones are a group, T tokens, K turns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

EPSILON = 1e-4  # added to a deviation before it divides, as TRL does


class CreditError(ValueError):
    """Rollouts do not form groups, or a baseline does not exist."""


def turn_index(written: torch.Tensor) -> torch.Tensor:
    """Return for each token the number of its turn, -1 where the policy did not write; `written` is a (B, T) mask."""
    wrote = written.bool()
    begins = wrote & ~torch.nn.functional.pad(wrote, (1, 0))[:, :-1]
    return (begins.cumsum(dim=1) - 1).masked_fill(~wrote, -1)


def turn_table(rewards: Sequence[Sequence[float]], turns: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (rewards, present), both (B, K): rollout b has turns 0 ... turns[b] - 1.

    Rewards of messages that left no tokens (cut to nothing) fall on the last turn that has some.
    """
    width = max([1, *turns])
    table = torch.zeros(len(turns), width, dtype=torch.float64)
    for row, (own, count) in enumerate(zip(rewards, turns, strict=True)):
        for k, reward in enumerate(own):
            table[row, min(k, max(count - 1, 0))] += reward
    present = torch.arange(width)[None, :] < torch.tensor(list(turns))[:, None]
    return table * present, present


def return_to_go(rewards: torch.Tensor) -> torch.Tensor:
    """Return for each turn the sum of its own and all later rewards, (B, K)."""
    return rewards.flip(1).cumsum(1).flip(1)


def relative(
    returns: torch.Tensor,
    present: torch.Tensor,
    group_size: int,
    baseline: str = "turn",
    *,
    scaled: bool = False,
) -> torch.Tensor:
    """Return the advantages of turns, (B, K), 0 where a rollout has no such turn; see the module docstring."""
    if group_size < 1 or len(returns) % group_size:
        raise CreditError(f"{len(returns)} rollouts do not form groups of {group_size}")
    grouped = returns.view(-1, group_size, returns.shape[1])
    counted = present.view_as(grouped).to(returns.dtype)
    over: tuple[int, ...] = (1, 2) if baseline == "pooled" else (1,)
    n = counted.sum(dim=over, keepdim=True)
    if baseline == "solver":
        deviation = grouped * counted
    elif baseline in ("turn", "pooled"):
        mean = (grouped * counted).sum(dim=over, keepdim=True) / n.clamp(min=1)
        deviation = (grouped - mean) * counted * (n >= 2)
    else:
        raise CreditError(f"unknown baseline {baseline!r}: choose turn, pooled or solver")
    if scaled:
        spread = (deviation.square().sum(dim=over, keepdim=True) / (n - 1).clamp(min=1)).sqrt()
        deviation = deviation / (spread + EPSILON)
    return deviation.reshape(returns.shape)


def on_tokens(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Lay the values of turns (B, K) on their tokens, (B, T); 0 where the policy did not write."""
    values = values.to(index.device)
    return values.gather(1, index.clamp(min=0)) * (index >= 0)


def token_advantages(
    credit: str,
    outcome: torch.Tensor,
    rewards: Sequence[Sequence[float]],
    written: torch.Tensor,
    group_size: int,
    *,
    baseline: str = "turn",
    scaled: bool = False,
) -> torch.Tensor:
    """Return the advantages that TRL's loss takes: (B,) for `outcome`, else (B, T).

    outcome  TRL's own advantages, (B,)
    rewards  of each rollout's messages in order, of the kind that `reward_kind(credit)` names
    written  1 where the policy wrote a token, (B, T)
    """
    if credit == "outcome":
        return outcome
    index = turn_index(written)
    table, present = turn_table(rewards, (index.max(dim=1).values + 1).tolist())
    if credit == "direct-additive":
        turns = relative(table.cumsum(1), present, group_size, scaled=scaled)
        return on_tokens(turns + outcome.to(turns)[:, None], index).to(outcome.dtype)
    turns = relative(return_to_go(table), present, group_size, baseline, scaled=scaled)
    return on_tokens(turns, index).to(outcome.dtype)


def reward_kind(credit: str) -> str:
    """Return the kind of step reward that an episode is asked for."""
    return "progress" if credit == "direct-additive" else credit
