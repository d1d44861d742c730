"""Presets for real models on GPUs: which model on how many cards, how it is trained there, and how it is started.

    python -m truthfirst.train.check_gpu                         what a preset needs, and that everything fits together
    accelerate launch ... -m truthfirst.train.run --preset NAME  train; `Preset.launch` gives the whole line

A preset is a `Plan` and the arguments of TRL, vLLM, PEFT and accelerate that go with it; `-p` changes its plan. All of
them are GRPO in bfloat16 with the thinking of Qwen3's template switched off, so that a message is little more than a
call:

    full    float32 weights, computed in bfloat16: at a learning rate of 1e-6, bfloat16 weights would round most updates
            away. More than one card shares weights, gradients and optimizer by FSDP2.
    LoRA    a frozen base in bfloat16, adapters in float32; vLLM gets the sum of both.

    colocate   vLLM lives on the training cards, one whole engine a card, and sleeps while the weights are updated
    server     vLLM has a node of its own (`Preset.serve`); `serving.py` says what that changes

vLLM's log-probabilities are not quite the trainer's. TRL weighs each token by their ratio, cut at 2 (`token_truncate`):
its default, a mask by the ratio of the whole sequence, would drop most episodes of thousands of tokens.

Sizes are those of the models' own config.json. No preset has been run on the models themselves here: `check_gpu` says
what was checked, and runs ten steps where it finds a GPU.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .plan import Plan, PlanError

CARD_GIB = {"80 GB": 79.0, "141 GB": 139.0}  # what is usable of a card sold as that
FAMILIES = ("rationing", "lot_sizing", "pricing")  # the families that are trained on
CONFIGS = "data/presets"
SERVER = "http://SERVER:8000"  # stands in a launch line for the address that `Preset.serve` serves at
_DENSE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class UnknownPreset(ValueError):
    """There is no such preset; the message lists those that there are."""


@dataclass(frozen=True, slots=True)
class Model:
    """A published model.

    name      on the hub
    kind      model type of transformers
    layer     class of its layers, by which FSDP shards
    template  file of trl/chat_templates that its tokenizer has
    calls     how that template writes calls (`policies/calls.py`)
    config    what its config.json says of its size
    """

    name: str
    kind: str
    layer: str
    template: str
    calls: str
    config: Mapping[str, Any]


def _qwen3(name: str, layers: int, hidden: int, intermediate: int, heads: int, tied: bool) -> Model:
    config = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": tied,
    }
    return Model(f"Qwen/{name}", "qwen3", "Qwen3DecoderLayer", "qwen3", "hermes", config)


QWEN3_0_6B = _qwen3("Qwen3-0.6B", 28, 1_024, 3_072, 16, tied=True)
QWEN3_1_7B = _qwen3("Qwen3-1.7B", 28, 2_048, 6_144, 16, tied=True)
QWEN3_4B = _qwen3("Qwen3-4B", 36, 2_560, 9_728, 32, tied=True)
QWEN3_8B = _qwen3("Qwen3-8B", 36, 4_096, 12_288, 32, tied=False)
QWEN3_14B = _qwen3("Qwen3-14B", 40, 5_120, 17_408, 40, tied=False)
# Three layers of gated linear attention, then one of attention; 256 experts a layer, of which 8 and a shared one work.
# The checkpoint is that of a vision-language model, whose language model alone is loaded and trained.
QWEN3_6_35B = Model(
    "Qwen/Qwen3.6-35B-A3B",
    "qwen3_5_moe_text",
    "Qwen3_5MoeDecoderLayer",
    "qwen3_6",
    "xml",
    {
        "num_hidden_layers": 40,
        "hidden_size": 2_048,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "vocab_size": 248_320,
        "max_position_embeddings": 262_144,
        "tie_word_embeddings": False,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
)

MODELS: dict[str, Model] = {
    model.name: model for model in (QWEN3_0_6B, QWEN3_1_7B, QWEN3_4B, QWEN3_8B, QWEN3_14B, QWEN3_6_35B)
}


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters on every linear layer that `targets` name (Hu et al. 2021); their scale is alpha / rank."""

    targets: tuple[str, ...] = _DENSE
    rank: int = 32
    alpha: int = 64

    def config(self) -> Any:
        """Return PEFT's configuration; raise PlanError where PEFT is not installed."""
        try:
            from peft import LoraConfig
        except ImportError as error:
            raise PlanError("a LoRA preset needs peft: pip install -e '.[train,gpu]'") from error
        return LoraConfig(
            r=self.rank, lora_alpha=self.alpha, target_modules=list(self.targets), task_type="CAUSAL_LM"
        )


@dataclass(frozen=True, slots=True)
class Vllm:
    """Where vLLM generates: `share` is the part of a card that it may fill, `cards` those that hold one engine."""

    mode: Literal["colocate", "server"]
    share: float
    cards: int = 1


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to train one model.

    cards        that train, over all nodes; a server's cards are `vllm.cards` more
    card         a key of CARD_GIB
    batch        rollouts a backward pass and card
    size         of the instances (a mechanism's size)
    prompt_tokens, message_tokens, episode_tokens
                 room for the prompt, for one message, and for everything after the prompt
    """

    name: str
    model: Model
    cards: int
    vllm: Vllm
    lora: Lora | None = None
    nodes: int = 1
    card: str = "80 GB"
    learning_rate: float = 1e-6
    groups: int = 16
    group_size: int = 16
    updates: int = 2
    batch: int = 1
    size: str = "medium"
    prompt_tokens: int = 4_096
    message_tokens: int = 256
    episode_tokens: int = 16_384

    @property
    def context(self) -> int:
        """Tokens of the longest conversation."""
        return self.prompt_tokens + self.episode_tokens

    @property
    def accumulation(self) -> int:
        """Backward passes an optimizer step; raise PlanError where the rollouts do not divide."""
        rollouts, parts = self.groups * self.group_size, self.updates * self.cards * self.batch
        if rollouts % parts:
            raise PlanError(
                f"preset {self.name}: groups × group_size = {rollouts} rollouts cannot be divided among updates × "
                f"cards × batch = {self.updates} × {self.cards} × {self.batch} = {parts}: change one of them"
            )
        return rollouts // parts

    def plan(self, server: str = SERVER) -> Plan:
        """Return the plan; `server` is where a server-mode preset finds vLLM."""
        options: dict[str, Any] = {
            "bf16": True,
            "gradient_checkpointing": True,
            "chat_template_kwargs": {"enable_thinking": False},
            "use_vllm": True,
            "vllm_mode": self.vllm.mode,
            # TRL would let one message have the whole episode's tokens.
            "generation_kwargs": {"max_tokens": self.message_tokens},
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": 2.0,
        }
        if self.vllm.mode == "colocate":
            options |= {
                "vllm_gpu_memory_utilization": self.vllm.share,
                "vllm_max_model_length": self.context,
                "vllm_enable_sleep_mode": True,
            }
        else:
            options["vllm_server_base_url"] = server
            options["vllm_server_timeout"] = 1_800.0  # a large model takes minutes to load
        if "num_experts" in self.model.config:
            options["router_aux_loss_coef"] = 0.0  # the experts are balanced already, and the update is small
        return Plan(
            group_size=self.group_size,
            groups=self.groups,
            updates=self.updates,
            accumulation=self.accumulation,
            steps=200,
            learning_rate=self.learning_rate,
            answer_tokens=self.message_tokens,
            message_tokens=self.message_tokens,
            episode_tokens=self.episode_tokens,
            save_every=20,
            keep=2,
            precision="bfloat16" if self.lora else "float32",
            cpu=False,
            options=options,
        )

    def defaults(self, server: str | None = None) -> dict[str, Any]:
        """Return what `run.py` takes from a preset where the command line says nothing else."""
        return {
            "model": self.model.name,
            "families": list(FAMILIES),
            "size": self.size,
            "setter": "template",
            "plan": self.plan(server or SERVER),
            "peft_config": self.lora.config() if self.lora else None,
        }

    # --- how it is started ----------------------------------------------------------------------------
    @property
    def accelerate_file(self) -> str:
        """The configuration of accelerate, in the repository."""
        return f"{CONFIGS}/{'fsdp' if self.cards > 1 else 'one_card'}.yaml"

    def launch(self) -> str:
        """Return the line that trains, to be run on every training node; names in capitals are yours to fill in."""
        words = ["accelerate", "launch", "--config_file", self.accelerate_file]
        if self.cards > 1:
            words += ["--num_processes", str(self.cards)]
            # Stated, since a model's own list may name layers that its language model does not have.
            words += ["--fsdp_transformer_layer_cls_to_wrap", self.model.layer]
        if self.nodes > 1:
            words += ["--num_machines", str(self.nodes), "--machine_rank", "RANK"]
            words += ["--main_process_ip", "HEAD", "--main_process_port", "29500"]
        words += ["-m", "truthfirst.train.run", "--preset", self.name, "--out", f"data/training/{self.name}"]
        if self.vllm.mode == "server":
            words += ["--server", SERVER]
        return shlex.join(words)

    def serve(self) -> str | None:
        """Return the line that serves the model to the trainer, or None where vLLM is colocated."""
        if self.vllm.mode == "colocate":
            return None
        words = ["vllm", "serve", self.model.name, "--host", "0.0.0.0", "--port", "8000"]
        words += ["--tensor-parallel-size", str(self.vllm.cards)]
        words += ["--gpu-memory-utilization", str(self.vllm.share), "--max-model-len", str(self.context)]
        words += ["--weight-transfer-config", '{"backend": "nccl"}']
        words += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
        if self.model is QWEN3_6_35B:
            words.append("--language-model-only")
        return "VLLM_SERVER_DEV_MODE=1 " + shlex.join(words)


_MOE_LORA = Lora((*_DENSE, "in_proj_qkv", "in_proj_z", "out_proj"))  # of the experts, the shared one alone

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "qwen3-0.6b",
            QWEN3_0_6B,
            cards=1,
            vllm=Vllm("colocate", 0.40),
            size="small",
            episode_tokens=8_192,
            batch=4,
        ),
        Preset(
            "qwen3-1.7b",
            QWEN3_1_7B,
            cards=2,
            vllm=Vllm("colocate", 0.40),
            size="small",
            episode_tokens=8_192,
            batch=4,
        ),
        Preset(
            "qwen3-4b-lora",
            QWEN3_4B,
            cards=1,
            lora=Lora(),
            vllm=Vllm("colocate", 0.50),
            learning_rate=2e-5,
            size="small",
            episode_tokens=8_192,
            batch=2,
        ),
        Preset(
            "qwen3-4b",
            QWEN3_4B,
            cards=4,
            vllm=Vllm("colocate", 0.45),
            size="small",
            episode_tokens=8_192,
            batch=2,
        ),
        Preset("qwen3-8b", QWEN3_8B, cards=4, vllm=Vllm("colocate", 0.50)),
        Preset("qwen3-14b", QWEN3_14B, cards=8, vllm=Vllm("colocate", 0.60)),
        Preset(
            "qwen3.6-35b-a3b-lora",
            QWEN3_6_35B,
            cards=8,
            lora=_MOE_LORA,
            vllm=Vllm("server", 0.90, cards=8),
            learning_rate=2e-5,
        ),
        Preset("qwen3.6-35b-a3b", QWEN3_6_35B, cards=16, nodes=2, vllm=Vllm("server", 0.90, cards=8)),
    )
}


def resolve(name: str) -> Preset:
    """Return a preset by its name; raise UnknownPreset that lists the names."""
    if name not in PRESETS:
        raise UnknownPreset(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
