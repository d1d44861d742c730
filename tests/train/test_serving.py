"""vLLM for a tool loop: every process gets the answers to its own prompts, and weights arrive under the right names.

vLLM itself is not here: its client is stood in for by our own generation, everything around it is TRL's.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from lamps import lamp_model, lamp_tasks
from transformers import AutoModelForCausalLM, Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from truthfirst.policies.base import Sampling
from truthfirst.policies.generate import Engine, Stream
from truthfirst.train.grpo import Trainer
from truthfirst.train.plan import Plan, PlanError
from truthfirst.train.serving import Generation, adopt


class Echo:
    """A server that answers every prompt with its first token."""

    def generate(self, prompts, n, **_):
        answers = [[ids[0]] for ids in prompts for _ in range(n)]
        logprobs = [[[-1.0]] for _ in answers]
        return {
            "prompt_ids": prompts,
            "completion_ids": answers,
            "logprobs": logprobs,
            "logprob_token_ids": answers,
        }


def generation(mode: str, process: int = 0, tensor_parallel: int = 1) -> VLLMGeneration:
    made = object.__new__(VLLMGeneration)
    made.mode, made.tensor_parallel_size, made.vllm_client = mode, tensor_parallel, Echo()
    made.accelerator = SimpleNamespace(process_index=process, is_main_process=process == 0)
    made.repetition_penalty = made.temperature = made.top_p = 1.0
    made.top_k, made.min_p, made.max_completion_length, made.logprobs = 0, None, 8, 0
    made.structured_outputs_regex, made.generation_kwargs = None, {}
    return made


UNFINISHED = (
    [[10, 1], [11, 1], [12, 1]],
    [[20, 1]],
)  # prompts of two processes, in the middle of their tool loops


def test_trl_deals_answers_out_in_equal_shares(monkeypatch) -> None:
    """Why `Generation` exists; should TRL change this, it may go."""
    everything = [prompt for process in UNFINISHED for prompt in process]
    monkeypatch.setattr(
        vllm_generation, "gather_object", lambda given: everything if given[0] else [None] * 4
    )
    answers = generation("server").vllm_client.generate(everything, 1)
    names = ("prompt_ids", "completion_ids", "logprobs", "logprob_token_ids")
    payload = tuple(answers[name] for name in names)
    monkeypatch.setattr(
        vllm_generation,
        "broadcast_object_list",
        lambda box, from_process: box.__setitem__(0, payload),
    )
    second = generation("server", process=1).generate(UNFINISHED[1], None, 1)
    assert second[1] == [[11]]  # the answer to another process's prompt


@pytest.mark.parametrize("process", [0, 1])
def test_every_process_gets_the_answers_to_its_own_prompts(process: int) -> None:
    made = generation("server", process)
    made.__class__ = Generation
    _, completions, logprobs, _ = made.generate(UNFINISHED[process], None, 1)
    assert completions == [[ids[0]] for ids in UNFINISHED[process]]
    assert len(logprobs) == len(UNFINISHED[process])


def test_an_engine_over_several_cards_is_refused_where_it_is_colocated() -> None:
    with pytest.raises(PlanError, match="vllm_tensor_parallel_size = 2"):
        adopt(generation("colocate", tensor_parallel=2), "qwen3")


def test_a_language_model_is_called_as_in_its_checkpoint(tmp_path) -> None:
    """A small checkpoint with a vision tower, its language model loaded alone: every weight has its name there."""
    text = {
        "num_hidden_layers": 4,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 64,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_num_value_heads": 2,
        "linear_value_head_dim": 8,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    }
    sight = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    whole = Qwen3_5MoeForConditionalGeneration(Qwen3_5MoeConfig(text_config=text, vision_config=sight))
    whole.save_pretrained(tmp_path)
    language = AutoModelForCausalLM.from_pretrained(tmp_path)
    made = generation("colocate")
    adopt(made, language.config.model_type)
    there = dict(whole.named_parameters())
    for name, weight in language.named_parameters():
        assert torch.equal(there[made._fix_param_name_to_vllm(name)], weight)
    other = generation("colocate")
    adopt(other, "qwen3")
    assert other._fix_param_name_to_vllm("model.norm.weight") == "model.norm.weight"


class Client:
    """A vLLM server of the trainer's own weights."""

    def __init__(self, model, stop: list[int]) -> None:
        self.model, self.stop, self.calls, self.received = model, stop, 0, []

    def generate(self, prompts, n, max_tokens, generation_kwargs, **_):
        assert n == 1
        engine = Engine(self.model, self.stop, Sampling())
        limit = generation_kwargs.get("max_tokens", max_tokens)
        streams = [Stream(7, self.calls, row) for row in range(len(prompts))]
        self.calls += 1
        samples = engine.generate(prompts, [limit] * len(prompts), streams)
        return {
            "prompt_ids": prompts,
            "completion_ids": [sample.ids for sample in samples],
            "logprobs": [[[value] for value in sample.logprobs] for sample in samples],
        }

    def update_named_params(self, metadata, params) -> None:
        names = [name for name, _ in params]
        assert names == [name for name, _, _ in metadata]
        self.received.append(names)

    def reset_prefix_cache(self) -> None:
        pass

    def get_server_info(self):
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}


@pytest.mark.parametrize("loss", ["grpo", "dppo"])
def test_a_run_with_a_server(tmp_path, monkeypatch, loss: str) -> None:
    """TRL's vLLM path from end to end: episodes are played, weights sent, log-probabilities those of the tokens."""
    model, tokenizer = lamp_model()
    clients = []

    def start(self) -> None:
        self.vllm_client = Client(self.model, [tokenizer.eos_token_id])
        clients.append(self.vllm_client)

    monkeypatch.setattr(VLLMGeneration, "_init_vllm", start)
    options = {
        "disable_tqdm": True,
        "use_vllm": True,
        "vllm_mode": "server",
        "generation_kwargs": {"max_tokens": 24},
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    }
    fields = {"group_size": 4, "groups": 2, "updates": 2, "steps": 4, "warmup": 0, "report_to": "none"}
    plan = Plan(loss=loss, learning_rate=1e-3, options=options, **fields)
    trainer = Trainer(model, tokenizer, lamp_tasks("AB"), plan, tmp_path)
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "turns/A" in entry]
    assert log[0]["turns/A"] == 3  # every message is a call
    if loss == "grpo":  # the sampler's log-probabilities are those of the same weights
        assert log[0]["sampling/sampling_logp_difference/max"] < 1e-4
    assert len(clients[0].received) == 2  # once a generation
    assert set(clients[0].received[0]) == {name for name, _ in model.named_parameters()}
