"""DPPO's mask against a batch that was worked out by hand, and the loss that TRL makes of it."""

from __future__ import annotations

import math

import pytest
import torch

from truthfirst.train.dppo import masked_advantages, pushes_away

BOUND = 0.1
# probability now, when sampled, advantage, masked?
CASES = [
    (0.50, 0.35, 1.0, True),  # grew by 0.15, and is to grow further
    (0.50, 0.35, -1.0, False),  # grew by 0.15, and is to come back: harmless
    (0.20, 0.35, -1.0, True),  # fell by 0.15, and is to fall further
    (0.20, 0.35, 1.0, False),  # fell by 0.15, and is to come back: harmless
    (0.42, 0.35, 1.0, False),  # within the bound
    (0.002, 0.001, 1.0, False),  # doubled, which a clipped ratio would stop; in variation it is nothing
    (0.98, 0.85, 1.0, True),  # ratio 1.15, which a clip at 0.2 would let pass
    (0.50, 0.35, 0.0, False),  # nothing is asked of it
]


def columns() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[bool]]:
    now, before, advantage, masked = zip(*CASES, strict=True)
    return torch.tensor([now]).log(), torch.tensor([before]).log(), torch.tensor([advantage]), list(masked)


def test_the_hand_worked_batch() -> None:
    logps, sampled, advantages, masked = columns()
    assert pushes_away(logps, sampled, advantages, BOUND)[0].tolist() == masked
    expected = [0.0 if hidden else case[2] for case, hidden in zip(CASES, masked, strict=True)]
    assert masked_advantages(logps, sampled, advantages, BOUND)[0].tolist() == expected


def test_one_advantage_a_rollout_is_laid_on_its_tokens() -> None:
    logps, sampled = torch.tensor([[0.5, 0.35]]).log(), torch.tensor([[0.35, 0.35]]).log()
    assert masked_advantages(logps, sampled, torch.tensor([2.0]), BOUND).tolist() == [[0.0, 2.0]]


def test_a_token_whose_sampling_probability_is_unknown_is_masked() -> None:
    logps, sampled = torch.tensor([[0.5]]).log(), torch.tensor([[math.nan]])
    assert pushes_away(logps, sampled, torch.tensor([[1.0]]), BOUND).tolist() == [[True]]


def batch_of(trainer) -> dict:
    trainer.model.train()
    batch, _ = trainer._scored([dict(trainer.train_dataset[0])] * 4)
    return batch


@pytest.mark.parametrize("credit", ["outcome", "progress"])
def test_the_loss_is_the_masked_ratio_objective(trainer, credit: str) -> None:
    made = trainer(loss="dppo", credit=credit)
    batch = batch_of(made)
    made.current_gradient_accumulation_steps = 1
    torch.manual_seed(0)
    with torch.no_grad():  # a step away from the sampling policy, large enough for the mask to matter
        made.model.lm_head.weight.add_(0.05 * torch.randn_like(made.model.lm_head.weight))
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        logps = made._get_per_token_logps_and_entropies(
            made.model, ids, mask, batch["completion_ids"].shape[1]
        )[0]
    batch["advantages"] = (
        torch.tensor([1.0, -1.0, 0.5, -0.5]) if credit == "outcome" else batch["advantages"] + 0.3
    )
    loss = made._compute_loss(made.model, batch)
    written = (batch["completion_mask"] * batch["tool_mask"]).double()
    now, before = logps.double().exp(), batch["sampling_per_token_logps"].double().exp()
    advantages = batch["advantages"].double().view(4, -1).expand_as(now)
    away = ((now - before).abs() > BOUND) & (torch.sign(now - before) == torch.sign(advantages))
    assert (away & written.bool()).any()
    terms = -(now / before) * advantages * (~away) * written
    assert loss.item() == pytest.approx((terms.sum() / written.sum()).item(), rel=1e-4)
    assert made._metrics["train"]["dppo/masked"][-1] == pytest.approx(
        ((away & written.bool() & (advantages != 0)).sum() / written.sum()).item()
    )
    assert made._held is None


def test_a_masked_token_has_no_gradient(trainer) -> None:
    made = trainer(loss="dppo")
    batch = batch_of(made)
    made.current_gradient_accumulation_steps = 1
    batch["advantages"] = torch.ones(4)
    batch["sampling_per_token_logps"] = (
        batch["sampling_per_token_logps"] - 5.0
    )  # everything has grown beyond the bound
    loss = made._compute_loss(made.model, batch)
    loss.backward()
    assert not any(p.grad is not None and p.grad.any() for p in made.model.parameters())


def test_sampling_log_probabilities_are_kept_whoever_generates(trainer) -> None:
    made = trainer(loss="dppo")
    kept = batch_of(made)["sampling_per_token_logps"]
    made._engine = None
    batch = batch_of(made)
    written = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert kept.shape[0] == 4
    assert (batch["sampling_per_token_logps"][written] < 0).any()


def test_a_run_of_dppo_trains(trainer) -> None:
    made = trainer(loss="dppo", updates=2, steps=4, groups=2)
    before = made.model.lm_head.weight.clone()
    made.train()
    assert not torch.equal(before, made.model.lm_head.weight)
    assert made.args.scale_rewards == "none"
