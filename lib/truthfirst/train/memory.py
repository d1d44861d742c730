"""What a preset asks of a card's memory, by arithmetic.

With P parameters, A of them in adapters, on N training cards, bytes a card:

    weights      full 4 P / N (float32)                 LoRA 2 P / N (bfloat16) + 4 A / N
    optimizer    8 P / N (AdamW's two moments)               8 A / N
    gradients    4 P / N, freed before generation            4 A / N
    gathered     what is whole for a moment: two layers in bfloat16 (one at work, one on its way), embeddings and output
                 head in bfloat16, and in full training a layer's gradient and the head with its gradient in float32. On
                 one card nothing is gathered, but autocast keeps a bfloat16 copy of all float32 weights.
    activations  one input a layer (they are checkpointed), one layer at work, and a tile of logits (4,096 × 32,768, as
                 TRL computes log-probabilities), for `batch` episodes
    vllm         `share` of the card while it generates (weights, cache, its own activations), a remainder asleep
    overhead     CUDA contexts, communication buffers, what the allocator cannot use

The two moments that count are generation (weights + optimizer + vllm + overhead) and the update (all but vllm). Layers
at work are counted by the widths of what they keep, which is good to a few tenths of their size: this says whether a
preset fits and what fills the card, not the last GiB. Every episode is taken to be as long as it may be.

Parameters are counted on the architecture itself, built by transformers without memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from .presets import CARD_GIB, MODELS, Model, Preset

GIB = 2**30
OVERHEAD = 3 * GIB
ASLEEP = 2 * GIB  # of vLLM: its CUDA context, graphs and buffers stay
VLLM_WORK = 3 * GIB  # vLLM's own activations and graphs
TILE = 4_096 * 32_768 * 6  # logits in bfloat16 and float32


@dataclass(frozen=True, slots=True)
class Memory:
    """GiB on one training card, and what one vLLM engine can hold.

    episodes     of full length that the cache of one engine holds at once; more wait for their turn
    server_card  GiB that vLLM fills on a card of its own, or None
    """

    weights: float
    optimizer: float
    gradients: float
    gathered: float
    activations: float
    vllm: float
    asleep: float
    overhead: float
    episodes: float
    server_card: float | None

    @property
    def generating(self) -> float:
        """GiB while vLLM generates."""
        return self.weights + self.optimizer + self.vllm + self.overhead

    @property
    def updating(self) -> float:
        """GiB while the weights are updated."""
        own = self.weights + self.optimizer + self.gradients + self.gathered + self.activations
        return own + self.asleep + self.overhead

    @property
    def peak(self) -> float:
        """GiB at the worse of the two."""
        return max(self.generating, self.updating)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of parameters, and of floats that a layer at work keeps for each token."""

    total: int
    layer: int  # the largest
    table: int  # the embedding; the output head is as large, or the same
    tables: int  # both together
    kept: int


@functools.lru_cache(maxsize=16)
def skeleton(name: str) -> Any:
    """Return the model of this hub name as transformers builds it, without memory for its weights."""
    model = MODELS[name]
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(model.kind, **model.config))


def counts(model: Model) -> Counts:
    """Count the parameters of a model."""
    built, config = skeleton(model.name), model.config
    hidden = config["hidden_size"]
    if "num_experts" in config:
        width = config["num_experts_per_tok"] * config["moe_intermediate_size"]
        width += config["shared_expert_intermediate_size"]
        copies = config["num_experts_per_tok"]  # every token goes to as many experts
    else:
        width, copies = config["intermediate_size"], 0
    heads = config["num_attention_heads"] + config["num_key_value_heads"]
    table = built.get_input_embeddings().weight.numel()
    return Counts(
        total=sum(weight.numel() for weight in built.parameters()),
        layer=max(sum(weight.numel() for weight in layer.parameters()) for layer in built.model.layers),
        table=table,
        tables=table if config["tie_word_embeddings"] else 2 * table,
        kept=(8 + copies) * hidden + 2 * heads * config["head_dim"] + 4 * width,
    )


def adapter_parameters(preset: Preset) -> int:
    """Return how many parameters the adapters of a preset have, 0 where it trains the whole model."""
    if preset.lora is None:
        return 0
    return sum(
        preset.lora.rank * (layer.in_features + layer.out_features)
        for name, layer in skeleton(preset.model.name).named_modules()
        if isinstance(layer, torch.nn.Linear) and name.rpartition(".")[2] in preset.lora.targets
    )


def cache_bytes(model: Model, cards: int = 1) -> int:
    """Return bytes of vLLM's cache for one token on each of an engine's cards.

    Keys and values of the layers with attention, in bfloat16; a head is on one card, or on several where the cards
    are more than the heads.
    """
    config = skeleton(model.name).config
    kinds = config.layer_types or ["full_attention"] * config.num_hidden_layers
    heads = max(1, config.num_key_value_heads // cards)
    return 2 * 2 * kinds.count("full_attention") * heads * config.head_dim


def estimate(preset: Preset) -> Memory:
    """Return the expected memory of a preset; see the module docstring."""
    model, cards, config = preset.model, preset.cards, preset.model.config
    n = counts(model)
    adapters, full = adapter_parameters(preset), preset.lora is None
    trained = n.total if full else adapters
    if cards == 1:
        gathered = 2 * n.total + 4 * n.table if full else 0
    else:
        gathered = 2 * 2 * n.layer + 2 * n.tables
        gathered += 4 * n.layer + 2 * 4 * n.table if full else 0
    tokens = preset.batch * preset.context
    at_work = 2 * tokens * (n.kept + config["num_hidden_layers"] * config["hidden_size"])
    engine, share = 2 * n.total / preset.vllm.cards, preset.vllm.share * CARD_GIB[preset.card] * GIB
    cache = max(0.0, share - engine - VLLM_WORK)
    colocated = preset.vllm.mode == "colocate"
    return Memory(
        weights=(4 * n.total if full else 2 * n.total + 4 * adapters) / cards / GIB,
        optimizer=8 * trained / cards / GIB,
        gradients=4 * trained / cards / GIB,
        gathered=gathered / GIB,
        activations=(at_work + TILE) / GIB,
        vllm=share / GIB if colocated else 0.0,
        asleep=ASLEEP / GIB if colocated else 0.0,
        overhead=OVERHEAD / GIB,
        episodes=cache / (cache_bytes(model, preset.vllm.cards) * preset.context),
        server_card=None if colocated else share / GIB,
    )
