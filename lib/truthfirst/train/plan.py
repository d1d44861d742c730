"""A plan of training: what a run does, in our words, and the same in TRL's.

One generation samples `groups` × `group_size` episodes, all of a group from one row of the data, and makes `updates`
optimizer steps from them. With G rollouts a group:

    loss 'grpo'   clipped policy ratio, advantages divided by the group's standard deviation (Shao et al. 2024)
    loss 'dppo'   group-centred advantages, and a mask by total variation instead of a clip (`dppo.py`)
    credit        how the reward falls on the turns (`credit.py`)

There is no KL term and the sampling temperature is 1, unless said otherwise. A checkpoint falls between generations, so
that a resumed run goes on as if it had never stopped.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ..streams import check_seed
from .dppo import UNCLIPPED

Loss = Literal["grpo", "dppo"]
Credit = Literal["outcome", "progress", "regret", "regret+credit", "direct-additive"]
Baseline = Literal["turn", "pooled", "solver"]
Scale = Literal["auto", "group", "none"]
Reward = Literal["score", "unclipped", "utility"]
Precision = Literal["float32", "bfloat16"]


class PlanError(ValueError):
    """A plan cannot be carried out; the message names the field, the value and what would be right."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    group_size         G, rollouts of one instance, at least 2
    groups             a generation
    updates            optimizer steps a generation
    accumulation       backward passes an optimizer step, for less memory; the result is the same
    steps              optimizer steps in all
    warmup             of them, while the learning rate rises to `learning_rate`; it is constant then
    scale              advantages divided by the group's standard deviation or not; auto: not with dppo
    curriculum         mean score from which on rows of the next level are drawn (`curriculum.py`); 0: all rows in turn
    per_token          TRL's way to add the tokens up: dapo weighs all tokens of a generation alike
    reward             what an outcome is worth: score, in [0, 1]; unclipped, (u - u0) / (u* - u0); utility, u itself
                       (ablations: losses count too, and every instance has its own scale)
    refills            rounds in which zero-variance groups may be drawn again, 0 for none (active sampling)
    answer_tokens, message_tokens, episode_tokens
                       limits of an answer in form F, of one message, and of all that follows the prompt
    save_every         optimizer steps between checkpoints, a multiple of `updates`; 0 keeps none
    keep               checkpoints on disk; the oldest goes first
    report_to          auto is trackio where it is installed; else a name or a list of names that transformers takes
    cpu                keep to the processor though there is a GPU
    options            further arguments of TRL's GRPOConfig, which win over all others
    """

    loss: Loss = "grpo"
    credit: Credit = "outcome"
    baseline: Baseline = "turn"
    scale: Scale = "auto"
    reward: Reward = "score"
    group_size: int = 16
    groups: int = 16
    updates: int = 2
    accumulation: int = 1
    steps: int = 100
    learning_rate: float = 2e-4
    warmup: int = 5
    max_grad_norm: float = 0.5
    temperature: float = 1.0
    seed: int = 0
    refills: int = 0
    curriculum: float = 0.0
    per_token: str = "dapo"
    variation: float = 0.1
    answer_tokens: int = 192
    message_tokens: int = 96
    episode_tokens: int = 1_024
    save_every: int = 0
    keep: int = 1
    log_every: int = 1
    report_to: str | tuple[str, ...] = "auto"
    precision: Precision = "float32"
    cpu: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in (
            ("loss", Loss),
            ("credit", Credit),
            ("baseline", Baseline),
            ("scale", Scale),
            ("reward", Reward),
            ("precision", Precision),
        ):
            if getattr(self, name) not in get_args(choices):
                raise PlanError(
                    f"{name} = {getattr(self, name)!r}: choose one of {', '.join(get_args(choices))}"
                )
        for name, least in (
            ("group_size", 2),
            ("groups", 1),
            ("updates", 1),
            ("accumulation", 1),
            ("steps", 1),
            ("warmup", 0),
            ("refills", 0),
            ("answer_tokens", 1),
            ("message_tokens", 1),
            ("episode_tokens", 1),
            ("save_every", 0),
            ("keep", 1),
            ("log_every", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise PlanError(f"{name} = {value!r}: give an integer of at least {least}")
        for name in ("learning_rate", "temperature", "max_grad_norm", "variation", "curriculum"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise PlanError(f"{name} = {number!r}: give a finite number")
            if number < 0 or (number == 0 and name != "curriculum"):
                raise PlanError(f"{name} = {number!r}: give a number above 0")
        if not 0 <= self.curriculum < 1:
            raise PlanError(f"curriculum = {self.curriculum!r}: give a score between 0 and 1, or 0 for none")
        if self.curriculum and self.refills:
            raise PlanError("curriculum and refills exclude each other: refills draw from all rows alike")
        if self.save_every % self.updates:
            better = -(-self.save_every // self.updates) * self.updates
            raise PlanError(
                f"save_every = {self.save_every} is no multiple of updates = {self.updates}: a checkpoint between the "
                f"updates of one generation would lose its episodes; use {better}"
            )
        if self.credit in ("outcome", "direct-additive") and self.baseline != "turn":
            raise PlanError(f"baseline = {self.baseline!r} needs credit progress, regret or regret+credit")
        if self.baseline == "solver" and not self.credit.startswith("regret"):
            raise PlanError(f"baseline = 'solver' needs credit regret or regret+credit, not {self.credit!r}")
        if self.reward != "score" and self.credit != "outcome":
            raise PlanError(
                f"reward = {self.reward!r} is for credit outcome: {self.credit!r} has rewards of its own"
            )
        if self.loss == "dppo" and self.scale == "group":
            raise PlanError(
                "loss = 'dppo' centres advantages and does not scale them: use scale 'auto' or 'none'"
            )
        check_seed(self.seed)

    @property
    def scaled(self) -> bool:
        """Whether advantages are divided by the group's standard deviation."""
        return self.scale == "group" or (self.scale == "auto" and self.loss == "grpo")

    @property
    def rollouts(self) -> int:
        """Episodes a generation."""
        return self.groups * self.group_size

    def batch(self, processes: int = 1) -> int:
        """Return rollouts a backward pass and process; raise PlanError where a generation does not divide."""
        parts = self.updates * self.accumulation * processes
        if self.rollouts % parts:
            raise PlanError(
                f"groups × group_size = {self.groups} × {self.group_size} = {self.rollouts} rollouts cannot be divided "
                f"among updates × accumulation × processes = {self.updates} × {self.accumulation} × {processes} = "
                f"{parts}: choose a group_size or groups so that the product is a multiple of {parts}"
            )
        return self.rollouts // parts

    @property
    def generations(self) -> int:
        """Generations in the whole run."""
        return -(-self.steps // self.updates)

    def arguments(self, output: Path, turn_budget: int) -> dict[str, Any]:
        """Return the arguments of TRL's GRPOConfig."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        return {
            "output_dir": str(output),
            "per_device_train_batch_size": self.batch(processes),
            "gradient_accumulation_steps": self.accumulation,
            "steps_per_generation": self.updates * self.accumulation,
            "num_generations": self.group_size,
            "max_steps": self.steps,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": self.warmup,
            "max_grad_norm": self.max_grad_norm,
            "temperature": self.temperature,
            "seed": self.seed,
            "beta": 0.0,
            "loss_type": self.per_token,
            "scale_rewards": "group" if self.scaled else "none",
            "max_completion_length": self.episode_tokens,
            # TRL drops the calls of the message that reaches its limit: one more than the budget, and it never does.
            "max_tool_calling_iterations": turn_budget + 1,
            "shuffle_dataset": False,  # rows come in an order of our own, see `grpo.py`
            "save_strategy": "steps" if self.save_every else "no",
            "save_steps": self.save_every or 500,
            "save_total_limit": self.keep,
            "logging_steps": self.log_every,
            "report_to": reporters(self.report_to),
            "vllm_importance_sampling_correction": self.loss
            != "dppo",  # DPPO's ratio is taken to the sampler itself
            "use_cpu": self.cpu,
            "bf16": self.precision == "bfloat16",
            "gradient_checkpointing": False,
            "dataloader_pin_memory": not self.cpu,
            **({"epsilon": UNCLIPPED, "epsilon_high": UNCLIPPED} if self.loss == "dppo" else {}),
            **self.options,
        }


def reporters(wanted: str | tuple[str, ...]) -> list[str] | str:
    """Return the loggers by name: `auto` is trackio where it is installed, else none."""
    if wanted == "auto":
        return ["trackio"] if importlib.util.find_spec("trackio") else "none"
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name in ("trackio", "wandb") and importlib.util.find_spec(name) is None:
            raise PlanError(
                f"report_to = {name!r}: {name} is not installed; install it, or use 'auto' or 'none'"
            )
    return "none" if names == ["none"] else names
