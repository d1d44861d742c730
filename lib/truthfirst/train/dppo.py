"""DPPO's trust region: a mask by total variation in place of a clipped ratio.

With mu the probability that the sampling policy gave a token, pi the present one and A its advantage, a token is masked
when it has moved by more than `bound` and the update would push it further away:

    |pi - mu| > bound    and    (A > 0 and pi > mu    or    A < 0 and pi < mu)

|pi - mu| is the total variation between the two policies on the question "this token or another". A clipped ratio
hinders rare tokens most (0.001 to 0.002 doubles) and common ones least; this does the reverse. A token beyond the bound
that the update would bring back keeps its gradient (Qi et al. 2026, as used by the world-first source with bound 0.1).

The objective is the mean of M · (pi / mu) · A over tokens, without a clip and without a KL term. Masking is done on the
advantages, so that TRL's own loss does the rest.
"""

from __future__ import annotations

import torch

UNCLIPPED = 1e9  # as TRL's epsilon on both sides: no ratio reaches it, so that min(ratio, clip) is the ratio


def pushes_away(
    logps: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, bound: float
) -> torch.Tensor:
    """Return True where a token is masked; log-probabilities and advantages are (B, T).

    A token whose sampling log-probability is not known (nan) is masked: nothing says how far it has moved.
    """
    moved = logps.exp() - sampled.exp()
    beyond = (moved.abs() > bound) & (moved * advantages > 0)
    return beyond | sampled.isnan()


def masked_advantages(
    logps: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, bound: float
) -> torch.Tensor:
    """Return advantages (B, T) with 0 where `pushes_away`; advantages may come as (B,)."""
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand_as(logps)
    return advantages.masked_fill(pushes_away(logps.detach(), sampled, advantages, bound), 0.0)
