"""Supervised training of a causal language model on conversations: the loss falls on what the assistant wrote.

Transformers' own Trainer does the work (resume, logging, progress bar). Batches are drawn from one kind of
conversation at a time, a kind being whatever the caller keeps apart (here the forms F, I and A): a written-out answer
has a dozen tokens and a transcript fifty, and a mean over both would drown the answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.utils.data import Dataset, Sampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from ..records import write_parquet
from ..streams import stream


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation: token ids, 1 where the assistant wrote, and its kind."""

    ids: list[int]
    mask: list[int]
    kind: str


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write conversations to a file that `load_samples` reads."""
    table = pd.DataFrame([asdict(sample) for sample in samples])
    write_parquet(path, table)


def load_samples(path: Path) -> list[Sample]:
    """Read conversations."""
    table = pd.read_parquet(path)
    rows = zip(table["ids"], table["mask"], table["kind"], strict=True)
    return [Sample(ids.tolist(), mask.tolist(), kind) for ids, mask, kind in rows]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to train.

    steps          optimizer steps; warmup: share of them in which the learning rate rises, then it falls by a cosine
    batch          conversations a batch at most
    tokens         of a batch at most, padding counted: long conversations come in smaller batches
    """

    steps: int = 3_000
    batch: int = 64
    tokens: int = 6_144
    learning_rate: float = 1e-3
    warmup: float = 0.05
    save_every: int = 500


class _Rows(Dataset):
    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]


class ByKind(Sampler[list[int]]):
    """Batches of one kind each; how often a kind comes up is its weight.

    The batch of step t depends on (seed, t) alone, so that a resumed run sees what an unbroken one would have seen.
    """

    def __init__(
        self, samples: Sequence[Sample], weights: dict[str, float], schedule: Schedule, seed: int
    ) -> None:
        kinds = [sample.kind for sample in samples]
        self.members = {
            kind: [i for i, one in enumerate(kinds) if one == kind] for kind in sorted(set(kinds))
        }
        missing = sorted(set(self.members) ^ set(weights))
        if missing:
            raise ValueError(f"weights {weights} do not fit the kinds {sorted(self.members)}: see {missing}")
        self.lengths = [len(sample.ids) for sample in samples]
        self.weights, self.schedule, self.seed = weights, schedule, seed

    def __len__(self) -> int:
        return self.schedule.steps

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.batch, range(len(self)))

    def batch(self, step: int) -> list[int]:
        """Return the rows of one step."""
        rng = stream(self.seed, "batch", step)
        kinds = list(self.members)
        total = sum(self.weights[kind] for kind in kinds)
        kind = kinds[int(rng.choice(len(kinds), p=[self.weights[kind] / total for kind in kinds]))]
        rows: list[int] = []
        longest = 0
        for i in rng.integers(0, len(self.members[kind]), self.schedule.batch):
            row = self.members[kind][int(i)]
            longest = max(longest, self.lengths[row])
            if rows and longest * (len(rows) + 1) > self.schedule.tokens:
                break
            rows.append(row)
        return rows


def collate(samples: Sequence[Sample], pad: int) -> dict[str, torch.Tensor]:
    """Return input_ids, attention_mask and labels, right-padded, each (batch, longest)."""
    longest = max(len(sample.ids) for sample in samples)
    ids = torch.full((len(samples), longest), pad)
    labels = torch.full((len(samples), longest), -100)
    attention = torch.zeros((len(samples), longest), dtype=torch.long)
    for row, sample in enumerate(samples):
        n = len(sample.ids)
        ids[row, :n] = torch.tensor(sample.ids)
        attention[row, :n] = 1
        labels[row, :n] = torch.where(torch.tensor(sample.mask, dtype=torch.bool), ids[row, :n], -100)
    return {"input_ids": ids, "attention_mask": attention, "labels": labels}


class _Supervised(Trainer):
    sampler: ByKind
    rows: _Rows

    def get_train_dataloader(self) -> Any:
        pad = int(self.processing_class.pad_token_id)  # type: ignore[union-attr]
        return torch.utils.data.DataLoader(
            self.rows, batch_sampler=self.sampler, collate_fn=lambda rows: collate(rows, pad)
        )


def train(
    model: Any,
    tokenizer: Any,
    samples: Sequence[Sample],
    weights: dict[str, float],
    schedule: Schedule,
    seed: int,
    folder: Path,
    *,
    progress: bool = True,
) -> list[dict[str, float]]:
    """Train `model` in place; return the logged losses. Resumes from the last checkpoint in `folder`."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=schedule.steps,
        per_device_train_batch_size=schedule.batch,
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=round(schedule.warmup * schedule.steps),
        weight_decay=0.01,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        logging_steps=50,
        save_steps=schedule.save_every,
        save_total_limit=2,
        seed=seed,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=not progress,
        remove_unused_columns=False,
    )
    trainer = _Supervised(
        model=model, args=arguments, train_dataset=_Rows(samples), processing_class=tokenizer
    )
    trainer.rows = _Rows(samples)
    trainer.sampler = ByKind(samples, weights, schedule, seed)
    last = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    return [entry for entry in trainer.state.log_history if "loss" in entry]
