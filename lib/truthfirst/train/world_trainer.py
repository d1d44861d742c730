"""The trainer, with the metrics of worlds beside its own; nothing in it changes a step.

phi, passed             means over the rollouts of a generation
same/pass, same/return  share of groups whose rollouts all have the same 1[pass], the same R
sandbox/executed        commands of this generation that ran in the sandbox; sandbox/asked: all of them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .environments import Rollout
from .grpo import Trainer
from .kept_shell import KeptShell


class WorldTrainer(Trainer):
    """See the module docstring; `shell` is the one that the environments run their commands in."""

    def __init__(self, *arguments: Any, shell: KeptShell, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shell, self._counted = shell, (shell.executed, shell.asked)

    def _note(self, rollouts: Sequence[Rollout], begin: float) -> None:
        super()._note(rollouts, begin)
        metrics = self._metrics[self._mode]
        details = [rollout.finish("").detail for rollout in rollouts]  # scored by now
        executed, asked = self.shell.executed, self.shell.asked
        found = spread(details, self._group_size) | {
            "sandbox/executed": float(executed - self._counted[0]),
            "sandbox/asked": float(asked - self._counted[1]),
        }
        self._counted = (executed, asked)
        for name, value in found.items():
            metrics[name].append(value)


def spread(details: Sequence[dict[str, Any]], size: int) -> dict[str, float]:
    """Return mean Phi and pass rate of rollouts, and the shares of groups of `size` without variance in a reward."""
    phi = np.array([detail["phi"] for detail in details])
    passed = np.array([float(detail["passed"]) for detail in details])
    whole = np.array([detail["return"] for detail in details])
    same = {
        name: float((values.reshape(-1, size).std(axis=1) < 1e-12).mean())
        for name, values in (("pass", passed), ("return", whole))
    }
    return {
        "phi": float(phi.mean()),
        "passed": float(passed.mean()),
        "same/pass": same["pass"],
        "same/return": same["return"],
    }
