"""Divergence: nothing between a model and itself, the sum over the vocabulary otherwise, a row for each own token."""

from __future__ import annotations

import copy

import pytest
import torch

from truthfirst.study.divergence import divergence_frame
from truthfirst.train import tiny
from truthfirst.train.base import BaseRecipe, make_tokenizer
from truthfirst.train.evaluate import instances, policy


@pytest.fixture(scope="module")
def setting():
    tokenizer = make_tokenizer(BaseRecipe(families=("rationing",), others=(), instances=4))
    model = tiny.build_model(tokenizer, tiny.Shape(layers=1, hidden=16, heads=2), seed=0).eval()
    return tokenizer, model, instances(["rationing"], "nano", 3)


def test_a_model_does_not_diverge_from_itself(setting) -> None:
    tokenizer, model, worlds = setting
    frame = divergence_frame(policy(model, tokenizer, "m"), copy.deepcopy(model), worlds)
    assert frame["kl"].abs().max() < 1e-6
    assert (frame["logprob"] - frame["base_logprob"]).abs().max() < 1e-6


def test_divergence_is_the_sum_over_the_vocabulary(setting) -> None:
    tokenizer, model, worlds = setting
    base = tiny.build_model(tokenizer, tiny.Shape(layers=1, hidden=16, heads=2), seed=1).eval()
    player = policy(model, tokenizer, "m")
    frame = divergence_frame(player, base, worlds, batch=2)
    talks = player.converse([world.episode("A") for world in worlds])
    assert len(frame) == sum(sum(talk.tool_mask) for talk in talks)
    talk, world = talks[0], worlds[0]
    ids = torch.tensor([talk.ids])
    with torch.no_grad():
        ours, theirs = (torch.log_softmax(one(input_ids=ids).logits[0].float(), -1) for one in (model, base))
    at = len(talk.prompt_ids) - 1  # gives the first token of the first message
    expected = sum(
        float(p.exp() * (p - q)) for p, q in zip(ours[at], theirs[at], strict=True)
    )  # term by term, another way than the module's
    first = frame[(frame["environment"] == world.id) & (frame["turn"] == 0) & (frame["place"] == 0)]
    assert first["kl"].item() == pytest.approx(expected, abs=1e-5)
    assert first["logprob"].item() == pytest.approx(talk.logprobs[0], abs=1e-4)
    assert (frame["kl"] > -1e-6).all()


def test_models_of_different_vocabularies_are_refused(setting) -> None:
    tokenizer, model, worlds = setting
    other = tiny.build_model(tiny.build_tokenizer([]), tiny.Shape(layers=1, hidden=16, heads=2), seed=0)
    with pytest.raises(ValueError, match="do not share a vocabulary"):
        divergence_frame(policy(model, tokenizer, "m"), other, worlds)
