"""Rollouts and losses of the trainer against TRL's own, on the same episodes, in one run.

    python bench/training.py                       # 8 and 20 turns, 64 episodes; a few minutes
    python bench/training.py --turns 8 --out /tmp/training.csv

Both train the same model, whose words are known (`policies/clockwork.py`), on the same environment classes, so that
both sample the same number of tokens; the script stops if they do not. Measured, alternating, by processor time of this
process, which a busy machine blurs less than the clock on the wall:

    rollouts   generation, tool calls and the reading of messages (TRL's `_generate`)
    scoring    what follows it: rewards, advantages, and the log-probabilities of the sampling policy
    loss       one forward and backward pass over all rollouts, of which every fourth is long

Log-probabilities that the trainer keeps from sampling are compared with those of a forward pass over whole sequences;
the script stops when they differ by more than `TOLERANCE`.

Writes a tidy table, one row a trainer and part: seconds, sampled tokens, tokens a second, episodes, versions.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pandas as pd
import torch
import transformers
import trl
from generation import CALL, CONTEXT, MARKUP, Clock, Depots, Seconds, words
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from truthfirst.policies.clockwork import clockwork
from truthfirst.train.environments import TaskSet, task_set
from truthfirst.train.grpo import Trainer
from truthfirst.train.plan import Plan
from truthfirst.train.rollouts import reward_function
from truthfirst.train.tiny import TEMPLATE
from truthfirst.types import Form, PublicView

TOLERANCE = 1e-3  # of log-probabilities, in nats
GROUP = 16


class Network:
    """The depots of `bench/generation.py` as an environment that training can play."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def view(self, form: Form) -> PublicView:
        return Depots(self.turns).view

    def episode(self, form: Form, policy: str) -> Depots:
        return Depots(self.turns)


def tasks_of(turns: int) -> TaskSet:
    return task_set([(str(turns), "depots")], ["A"], lambda key: Network(int(key)))


def plan_of(turns: int, episodes: int) -> Plan:
    """TRL asks once more after the last call is answered; one iteration fewer gives as many messages to both."""
    options = {"max_tool_calling_iterations": turns - 1, "disable_tqdm": True}
    sizes = {"group_size": GROUP, "groups": episodes // GROUP, "updates": 2, "steps": 2}
    return Plan(**sizes, episode_tokens=CONTEXT // 2, report_to="none", options=options)


def make(which: str, model: Any, tokenizer: Any, turns: int, episodes: int, folder: str) -> Any:
    """Return a trainer: `truthfirst`, or TRL's own with the same arguments and environment classes."""
    tasks, plan = tasks_of(turns), plan_of(turns, episodes)
    if which == "truthfirst":
        return Trainer(model, tokenizer, tasks, plan, Path(folder))
    from datasets import Dataset

    return GRPOTrainer(
        model=model,
        reward_funcs=[reward_function("score")],
        args=GRPOConfig(**plan.arguments(Path(folder), tasks.turn_budget)),
        train_dataset=Dataset.from_list(tasks.rows * (episodes // GROUP)),
        processing_class=tokenizer,
        environment_factory=dict(tasks.factories),
    )


@contextlib.contextmanager
def clocked(trainer: Any, name: str, times: dict[str, Seconds]) -> Iterator[None]:
    """Note how long a method takes while inside."""
    inner = getattr(trainer, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        clock = Clock()
        output = inner(*arguments, **options)
        times[name] = clock.read()
        return output

    setattr(trainer, name, timed)
    try:
        yield
    finally:
        delattr(trainer, name)


def measure(
    which: str, model: Any, tokenizer: Any, turns: int, episodes: int
) -> tuple[dict[str, Seconds], int, int]:
    """Return (seconds by part, sampled tokens, tokens in all) of one generation and one loss."""
    times: dict[str, Seconds] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(which, model, tokenizer, turns, episodes, folder)
        trainer.model.train()
        rows = [dict(row) for row in tasks_of(turns).rows for _ in range(episodes)]
        clock = Clock()
        with clocked(trainer, "_generate", times):
            batch = trainer._generate_and_score_completions(rows)
        whole = clock.read()
        times["rollouts"] = times.pop("_generate")
        times["scoring"] = Seconds(whole.wall - times["rollouts"].wall, whole.cpu - times["rollouts"].cpu)
        written = (batch["completion_mask"] * batch["tool_mask"]).bool()
        sampled, tokens = int(written.sum()), int(batch["completion_mask"].sum())
        if which == "truthfirst":
            check(trainer, batch, written)
        cut(batch)
        trainer.current_gradient_accumulation_steps = 1
        clock = Clock()
        trainer._compute_loss(trainer.model, batch).backward()
        times["loss"] = clock.read()
        trainer.model.zero_grad()
    return times, sampled, tokens


def check(trainer: Any, batch: dict[str, Any], written: torch.Tensor) -> None:
    """Stop unless the kept log-probabilities are those of a forward pass over whole sequences."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    with torch.no_grad():
        logps = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, batch["completion_ids"].shape[1], batch_size=GROUP
        )[0]
    error = (logps - batch["sampling_per_token_logps"])[written].abs().max().item()
    if not error <= TOLERANCE:
        raise SystemExit(f"log-probabilities of sampling and training differ by {error:.2e} nats")


def cut(batch: dict[str, Any]) -> None:
    """Shorten three rollouts of four to a third, as rollouts of unequal length are."""
    width = batch["completion_mask"].shape[1]
    short = torch.arange(len(batch["completion_mask"])) % 4 > 0
    batch["completion_mask"][short, width // 3 :] = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, nargs="+", default=[8, 20])
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "data/results/training_speed.csv"
    )
    options = parser.parse_args()
    if options.episodes % GROUP:
        parser.error(f"--episodes must be a multiple of {GROUP}, got {options.episodes}")
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, tokenizer = clockwork(CALL, TEMPLATE, context=CONTEXT, more_pieces=[*MARKUP, *words(TEMPLATE)])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for turns in options.turns:
        for repeat in range(options.repeats):
            runs = {
                which: measure(which, model, tokenizer, turns, options.episodes)
                for which in ("truthfirst", "trl")
            }
            counts = {sampled for _, sampled, _ in runs.values()}
            if len(counts) != 1:
                raise SystemExit(f"the trainers did not sample the same number of tokens: {counts}")
            for which, (times, sampled, _) in runs.items():
                for part, seconds in times.items():
                    rows.append(
                        {
                            "trainer": which,
                            "part": part,
                            "turns": turns,
                            "repeat": repeat,
                            "cpu_seconds": round(seconds.cpu, 4),
                            "seconds": round(seconds.wall, 4),
                            "sampled_tokens": sampled,
                            "tokens_per_second": round(sampled / max(seconds.cpu, 1e-9), 1),
                            "episodes": options.episodes,
                            "parameters": sum(weight.numel() for weight in model.parameters()),
                            "threads": options.threads,
                            "torch": torch.__version__,
                            "transformers": transformers.__version__,
                            "trl": trl.__version__,
                        }
                    )
            pd.DataFrame(rows).to_csv(options.out, index=False)  # each finished row is kept
    frame = pd.DataFrame(rows)
    best = frame.groupby(["turns", "part", "trainer"])["cpu_seconds"].min().unstack()
    print(best.assign(ratio=best["trl"] / best["truthfirst"]).round(2).to_string())
    rates = (
        frame[frame["part"] == "rollouts"].groupby(["turns", "trainer"])["tokens_per_second"].max().unstack()
    )
    print("sampled tokens a second of rollouts:")
    print(rates.round(0).to_string())


if __name__ == "__main__":
    main()
