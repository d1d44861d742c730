"""Supervised training: batches of one kind, loss on what the assistant wrote, and resuming."""

from __future__ import annotations

import pytest
import torch

from truthfirst.train import tiny
from truthfirst.train.sft import ByKind, Sample, Schedule, collate, load_samples, save_samples, train


def samples_of(kinds: str, length: int = 3) -> list[Sample]:
    return [Sample([5] * length, [0] + [1] * (length - 1), kind) for kind in kinds]


def test_batches_are_of_one_kind_and_seeded() -> None:
    samples = samples_of("FA" * 20)
    schedule = Schedule(steps=200, batch=8)
    batches = list(ByKind(samples, {"F": 3.0, "A": 1.0}, schedule, seed=1))
    assert all(len({samples[i].kind for i in batch}) == 1 for batch in batches)
    assert {len(batch) for batch in batches} == {8}
    share = sum(samples[batch[0]].kind == "F" for batch in batches) / len(batches)
    assert 0.65 < share < 0.85
    assert batches == list(ByKind(samples, {"F": 3.0, "A": 1.0}, schedule, seed=1))
    assert batches != list(ByKind(samples, {"F": 3.0, "A": 1.0}, schedule, seed=2))


def test_long_conversations_come_in_smaller_batches() -> None:
    samples = samples_of("F" * 20, length=50) + samples_of("F" * 20, length=200)
    schedule = Schedule(steps=30, batch=8, tokens=700)
    for batch in ByKind(samples, {"F": 1.0}, schedule, seed=0):
        longest = max(len(samples[i].ids) for i in batch)
        assert longest * len(batch) <= 700
    huge = ByKind(samples_of("F", length=5_000), {"F": 1.0}, schedule, seed=0)
    assert huge.batch(0) == [0]  # one conversation is always taken


def test_weights_must_fit_the_kinds() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        ByKind(samples_of("F"), {"F": 1.0, "A": 1.0}, Schedule(), seed=0)


def test_conversations_are_kept(tmp_path) -> None:
    samples = [Sample([1, 2, 3], [0, 1, 1], "F"), Sample([4], [0], "A")]
    save_samples(tmp_path / "samples.parquet", samples)
    assert load_samples(tmp_path / "samples.parquet") == samples


def test_loss_falls_on_the_masked_tokens_only() -> None:
    batch = collate([Sample([5, 6, 7], [0, 1, 1], "F"), Sample([8], [0], "F")], pad=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 7], [-100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


class _Stop(Exception):
    pass


def test_a_resumed_run_is_like_an_unbroken_one(tmp_path, monkeypatch) -> None:
    tokenizer = tiny.build_tokenizer(["ab " * 20] * 5)
    samples = [Sample([10 + i % 7, 20 + i % 5, 10 + i % 7], [0, 1, 1], "F") for i in range(30)]
    schedule = Schedule(steps=6, batch=4, save_every=2)

    def fresh():
        return tiny.build_model(tokenizer, tiny.Shape(layers=1, hidden=16, heads=2, positions=16), seed=0)

    def run(model, folder):
        train(model, tokenizer, samples, {"F": 1.0}, schedule, 0, folder, progress=False)
        return model.lm_head.weight.detach().clone()

    whole = run(fresh(), tmp_path / "whole")
    from truthfirst.train.sft import _Supervised

    step = _Supervised.training_step

    def break_off(self, *arguments, **named):
        if self.state.global_step == 3:
            raise _Stop
        return step(self, *arguments, **named)

    monkeypatch.setattr(_Supervised, "training_step", break_off)
    with pytest.raises(_Stop):
        run(fresh(), tmp_path / "broken")
    monkeypatch.setattr(_Supervised, "training_step", step)
    assert torch.allclose(run(fresh(), tmp_path / "broken"), whole, atol=1e-6)
