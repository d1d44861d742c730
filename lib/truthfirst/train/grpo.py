"""GRPO on truth-first environments: TRL's trainer with credit per turn, active sampling and DPPO's trust region.

    tasks = task_set(recipe_keys(recipes), ["A", "F"], open_recipe)
    trainer = Trainer(model, tokenizer, tasks, Plan(credit="regret"), Path("runs/one"))
    trainer.train()

The same class trains a model of half a million parameters on a laptop and a large one under vLLM. It is a thin
subclass: rollouts are those of `rollouts.py`, and here

    _generate_and_score_completions  lays the advantages on the turns, refills groups that teach nothing, and logs
    _compute_loss                    masks tokens for DPPO; a loss that is no number stops the run

around TRL's own. Not for images, nor for TRL's reference model (beta is 0).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from accelerate.utils import gather_object
from transformers import PrinterCallback, ProgressCallback

from ..streams import stream
from . import active, dppo
from .credit import reward_kind, token_advantages
from .curriculum import COLUMN, Curriculum
from .environments import Rollout, TaskSet
from .history import History, Progress
from .plan import Plan, PlanError
from .rollouts import RolloutTrainer

PASS_WINDOW = 512  # groups whose pass counts tell what share of the groups to expect in vain


class TrainingError(RuntimeError):
    """Training cannot go on; the message says what to change."""


class Trainer(RolloutTrainer):
    """See the module docstring; `options` go to TRL's trainer (callbacks, peft_config, ...)."""

    def __init__(
        self, model: Any, tokenizer: Any, tasks: TaskSet, plan: Plan, output: Path, **options: Any
    ) -> None:
        super().__init__(model, tokenizer, tasks, plan, output, **options)
        processes = self.accelerator.num_processes
        if (plan.credit != "outcome" or plan.refills) and plan.groups % processes:
            raise PlanError(
                f"groups = {plan.groups} on {processes} processes: credit per turn and active sampling compare the "
                f"rollouts of a group on one process; use a multiple of {processes}"
            )
        about = {"seed": plan.seed, "loss": plan.loss, "credit": plan.credit, "baseline": plan.baseline}
        self.add_callback(History(output, about))
        self.remove_callback(PrinterCallback)
        if not self.args.disable_tqdm:
            self.remove_callback(ProgressCallback)
            self.add_callback(Progress())
        self._curriculum: Curriculum | None = None
        if plan.curriculum:
            self._curriculum = Curriculum(tasks.rows, plan.curriculum, plan.seed, output)
            self.add_callback(self._curriculum)
        self._held: tuple[Any, ...] | None = None
        self._passes: deque[int] = deque(maxlen=PASS_WINDOW)
        self._last: tuple[float, float] | None = (
            None  # when the last generation began, and its environments' seconds
        )

    @property
    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    # --- credit and active sampling -------------------------------------------------------------------
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        begin = time.perf_counter()
        grows = self._curriculum if self.model.training else None
        if grows is not None:
            groups = len(inputs) // self.num_generations
            address = (int(self.state.global_step), int(self.accelerator.process_index))
            inputs = grows.draw(groups, self.num_generations, address)
        batch, rollouts = self._scored(inputs)
        if self.model.training and self.plan.refills:
            batch, rollouts = self._refilled(batch, rollouts)
        self._note(rollouts, begin)
        if grows is not None:
            everyone = gather_object([rollout.reward for rollout in rollouts])
            self._metrics["train"]["curriculum/level"].append(grows.level)
            self._metrics["train"][COLUMN].append(sum(everyone) / len(everyone))
            grows.scores.append(sum(everyone) / len(everyone))
        return batch

    def _scored(self, inputs: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Rollout]]:
        """Generate and score one batch with TRL, then lay its advantages on the turns."""
        batch = super()._generate_and_score_completions(inputs)
        rollouts = self._rollouts
        kind = reward_kind(self.plan.credit)
        batch["advantages"] = token_advantages(
            self.plan.credit,
            batch["advantages"],
            [] if kind == "outcome" else [rollout.turn_rewards(kind) for rollout in rollouts],
            _written(batch),
            self._group_size,
            baseline=self.plan.baseline,
            scaled=self.plan.scaled,
        )
        if self.plan.loss == "dppo" and "sampling_per_token_logps" not in batch:
            with torch.no_grad():  # TRL's own generation tells no probabilities; the weights are still those
                found = self._get_per_token_logps_and_entropies(
                    self.model, *_sequences(batch), batch_size=self.args.per_device_train_batch_size
                )
            batch["sampling_per_token_logps"] = found[0]
        return batch, rollouts

    def _refilled(
        self, batch: dict[str, Any], rollouts: list[Rollout]
    ) -> tuple[dict[str, Any], list[Rollout]]:
        """Replace groups that teach nothing by further ones; return the batch, and every rollout that was drawn."""
        size, wanted = self.num_generations, len(rollouts) // self.num_generations
        parts: list[tuple[dict[str, Any], range]] = []
        spare: list[tuple[dict[str, Any], range]] = []
        drawn, useful = list(rollouts), 0
        for number in range(self.plan.refills + 1):
            rewards = torch.tensor([rollout.earned(self.plan.reward) for rollout in rollouts])
            values = rewards if self.plan.credit == "outcome" else batch["advantages"]
            teaches = active.informative(values, size)
            self._passes.extend(active.pass_counts(rewards, size) or [])
            for group, good in enumerate(teaches):
                place = (batch, range(group * size, (group + 1) * size))
                (parts if good else spare).append(place)
            useful += sum(teaches)
            short = torch.tensor(wanted - len(parts), device=self.accelerator.device)
            missing = int(self.accelerator.gather(short).max())  # all processes draw as often: none may wait
            if missing <= 0 or number == self.plan.refills:
                break
            batch, rollouts = self._scored(self._further_rows(missing, number))
            drawn += rollouts
        groups, metrics = len(drawn) // size, self._metrics["train"]
        metrics["active/wasted"].append(1 - useful / groups)
        metrics["active/groups_drawn"].append(groups)
        metrics["active/groups_informative"].append(min(useful, wanted))
        expected = active.fitted_waste(list(self._passes), size)
        if expected is not None:
            metrics["active/wasted_expected"].append(expected)
        joined: dict[str, Any] = active.join((parts + spare)[:wanted], self._tokenizer.pad_token_id)
        joined["num_items_in_batch"] = self.accelerator.gather(_written(joined).sum()).sum()
        return joined, drawn

    def _further_rows(self, groups: int, number: int) -> list[dict[str, Any]]:
        """Draw rows for `groups` groups; the draw depends on seed, step, generation and round alone."""
        address = (*self._begun[1:], number, int(self.accelerator.process_index))
        chosen = stream(self.plan.seed, "refill", *address).integers(0, len(self.tasks.rows), groups)
        return [dict(self.tasks.rows[int(i)]) for i in chosen for _ in range(self.num_generations)]

    # --- the loss -------------------------------------------------------------------------------------
    def _get_per_token_logps_and_entropies(self, *arguments: Any, **options: Any) -> Any:
        if self._held is not None:
            return self._held
        return super()._get_per_token_logps_and_entropies(*arguments, **options)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self.plan.loss == "dppo":
            inputs = self._within_bound(model, inputs)
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self._held = None
        if not torch.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}: lower learning_rate (now "
                f"{self.plan.learning_rate}) or max_grad_norm (now {self.plan.max_grad_norm}), or train in float32; "
                "the last checkpoint is unharmed"
            )
        return loss

    def _within_bound(self, model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs of TRL's loss for DPPO, and hold the log-probabilities that it will ask for."""
        self._held = self._get_per_token_logps_and_entropies(
            model, *_sequences(inputs), compute_entropy=True, compute_aux_loss=self.aux_loss_enabled
        )
        logps, sampled = self._held[0], inputs["sampling_per_token_logps"]
        advantages = dppo.masked_advantages(logps, sampled, inputs["advantages"], self.plan.variation)
        written = _written(inputs).bool()
        masked = (advantages == 0) & (inputs["advantages"].view(len(logps), -1) != 0) & written
        self._metrics[self._mode]["dppo/masked"].append((masked.sum() / written.sum().clamp(min=1)).item())
        old = torch.where(sampled.isnan(), logps.detach(), sampled)
        return inputs | {"advantages": advantages, "old_per_token_logps": old}

    # --- what is logged -------------------------------------------------------------------------------
    def _note(self, rollouts: Sequence[Rollout], begin: float) -> None:
        """Add what happened in these episodes to the metrics; shares of time are those of the last generation."""
        metrics = self._metrics[self._mode]
        for name, value in summary(gather_object([rollout.record() for rollout in rollouts])).items():
            metrics[name].append(value)
        metrics["time/rollouts"].append(time.perf_counter() - begin)
        if self.model.training:
            if self._last is not None:
                metrics["time/environment_share"].append(self._last[1] / (begin - self._last[0]))
            self._last = (begin, sum(rollout.seconds for rollout in rollouts))
            metrics["time/environment"].append(self._last[1])


def _written(batch: dict[str, Any]) -> torch.Tensor:
    """Return 1 where the policy wrote a token, (B, T)."""
    return batch["completion_mask"] * batch.get("tool_mask", 1)


def _sequences(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return (ids, attention mask, completion length) of whole sequences."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, mask, batch["completion_ids"].shape[1]


def summary(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return means over the records of rollouts (`Rollout.record`), by form, and scores by form and stratum too."""
    table = pd.DataFrame(list(records))
    found: dict[str, float] = {}
    for form, part in table.groupby("form"):
        found[f"score/{form}"] = float(part["reward"].mean())
        for name in ("turns", "probes", "ended"):
            found[f"{name}/{form}"] = float(part[name].mean())
        if part["turns"].sum():
            found[f"refused/{form}"] = float(part["refused"].sum() / part["turns"].sum())
        for stratum, own in part.groupby("stratum"):
            found[f"score/{form}/{stratum}"] = float(own["reward"].mean())
    return found
