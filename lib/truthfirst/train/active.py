"""Active sampling: groups that teach nothing are thrown away, and further ones drawn in their place.

With group-relative advantages a group whose rollouts all earned the same moves nothing. Such groups are discarded and
refilled from further rows of the data until a generation has its number of informative groups, or a bound on rounds is
hit; what is then still missing stays filled with groups of zero advantage.

For pass/fail rewards a group of G rollouts on an instance with pass probability p teaches nothing with probability

    (1 - p)^G + p^G

so the wasted share of a run is the mean of that over instances. p differs from instance to instance and each is seen
once, so that plugging in the observed rates would overrate the waste of small groups; `fitted_waste` fits a Beta
distribution to the pass counts of many groups by their first two moments instead, and takes the mean under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from scipy.special import betaln

TOLERANCE = 1e-6  # rewards that differ by less are equal


def informative(values: torch.Tensor, group_size: int) -> list[bool]:
    """Return for each group whether its rollouts differ.

    values  rewards (B,), or advantages (B, T), which are zero throughout a group that teaches nothing
    """
    grouped = values.reshape(-1, group_size, *values.shape[1:])
    if values.dim() == 1:
        spread = grouped.max(dim=1).values - grouped.min(dim=1).values
    else:
        spread = grouped.abs().flatten(1).max(dim=1).values
    return (spread > TOLERANCE).tolist()


def expected_waste(rates: Iterable[float], group_size: int) -> float:
    """Return the mean of (1 - p)^G + p^G over instances with pass probabilities `rates`."""
    p = np.asarray(list(rates), dtype=float)
    return float(np.mean((1 - p) ** group_size + p**group_size))


def fitted_waste(passes: Sequence[int], group_size: int) -> float | None:
    """Return E[(1 - p)^G + p^G] under a Beta distribution of p fitted to pass counts; None without two groups.

    passes  of `group_size` rollouts each, one entry a group
    """
    if len(passes) < 2 or group_size < 2:
        return None
    share = np.asarray(passes, dtype=float) / group_size
    mean, variance = share.mean(), share.var(ddof=1)
    if mean in (0.0, 1.0):
        return 1.0
    # The variance of a share is m (1 - m) (1 + (G - 1) rho) / G with rho the correlation within a group.
    rho = (group_size * variance / (mean * (1 - mean)) - 1) / (group_size - 1)
    if rho <= 0:  # no more spread than one common p explains
        return expected_waste([float(mean)], group_size)
    if rho >= 1:
        return 1.0
    a, b = mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)
    return float(
        np.exp(betaln(a + group_size, b) - betaln(a, b)) + np.exp(betaln(a, b + group_size) - betaln(a, b))
    )


def pass_counts(rewards: torch.Tensor, group_size: int) -> list[int] | None:
    """Return passes a group where every reward is 0 or 1, else None."""
    if not bool(((rewards == 0) | (rewards == 1)).all()):
        return None
    return rewards.reshape(-1, group_size).sum(dim=1).long().tolist()


def join(
    parts: Sequence[tuple[Mapping[str, torch.Tensor], Sequence[int]]], pad_id: int
) -> dict[str, torch.Tensor]:
    """Return one batch of the chosen rows of several; each part is (batch, row numbers).

    Prompts are padded on the left, the rest on the right, as TRL has them. Counts over a whole batch (tensors without
    rows, such as num_items_in_batch) are left to the caller.
    """
    joined: dict[str, torch.Tensor] = {}
    for name in parts[0][0]:
        pieces = [batch[name][list(rows)] for batch, rows in parts if batch[name].dim() and len(rows)]
        if not pieces:
            continue
        if pieces[0].dim() > 1:
            width = max(piece.shape[1] for piece in pieces)
            fill = pad_id if name.endswith("_ids") else 1 if name == "tool_mask" else 0
            left = name.startswith("prompt_")
            pieces = [
                torch.nn.functional.pad(
                    piece, (width - piece.shape[1], 0) if left else (0, width - piece.shape[1]), value=fill
                )
                for piece in pieces
            ]
        joined[name] = torch.cat(pieces)
    return joined
