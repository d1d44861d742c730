"""Generation with a cache across turns against full re-reads, over architectures and ragged conversations."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen3Config,
)

from truthfirst.policies.base import Sampling
from truthfirst.policies.cache import fits
from truthfirst.policies.clockwork import tiny_qwen3
from truthfirst.policies.generate import Engine, GenerationError, Sample, Stream, draw_tokens

SIZE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2_048,
}
STOPS = [0, 1, 2, 3]
CONFIGS = {
    "qwen3": Qwen3Config(**SIZE),
    "qwen3_window": Qwen3Config(**SIZE, use_sliding_window=True, sliding_window=9, max_window_layers=1),
    "llama": LlamaConfig(**SIZE),
    "mistral_window": MistralConfig(**SIZE, sliding_window=7),
    "gemma2": Gemma2Config(**SIZE, sliding_window=6, query_pre_attn_scalar=8),
}


def build(name: str, attention: str = "sdpa", seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation=attention)
    with torch.no_grad():  # livelier than the usual initialisation, so that a mistake moves the logits
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    return model.eval()


@torch.no_grad()
def reread_logprobs(model: PreTrainedModel, ids: list[int], start: int, temperature: float) -> torch.Tensor:
    """Log-probabilities of ids[start:] by one plain forward pass over one unpadded sequence."""
    logits = model(torch.tensor([ids])).logits[0, start - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[start:])[:, None])[:, 0]


def converse(engine: Engine, rows: int, turns: int, seed: int = 0) -> list[list[tuple[list[int], Sample]]]:
    """Play `turns` turns of ragged conversations; some end early. Returns (sequence, sample) a turn, a row."""
    dice = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=dice))

    sequences = [[4 + pick(0, 50) for _ in range(pick(1, 40))] for _ in range(rows)]
    sequences[-1] = list(sequences[0])  # twins: read once, and then apart
    streams = [Stream(seed, row) for row in range(rows)]
    last_turn = [turns if row % 3 else pick(0, turns) for row in range(rows)]
    log: list[list[tuple[list[int], Sample]]] = [[] for _ in range(rows)]
    for turn in range(turns):
        live = [row for row in range(rows) if last_turn[row] >= turn]
        limits = [pick(1, 25) for _ in range(rows)]
        samples = engine.generate(
            [sequences[r] for r in live], [limits[r] for r in live], [streams[r] for r in live]
        )
        for row, sample in zip(live, samples, strict=True):
            log[row].append((list(sequences[row]), sample))
            between = [4 + pick(0, 50) for _ in range(pick(0, 12))]
            sequences[row] = sequences[row] + sample.ids + between
    return log


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", CONFIGS)
def test_log_probabilities_equal_those_of_a_full_reread(name: str, attention: str) -> None:
    model = build(name, attention)
    engine = Engine(model, STOPS, Sampling(temperature=1.3))
    log = converse(engine, rows=7, turns=5)
    assert engine.why_reread is None
    worst = 0.0
    for row in log:
        for sequence, sample in row:
            whole = reread_logprobs(model, sequence + sample.ids, len(sequence), 1.3)
            worst = max(worst, float((whole - torch.tensor(sample.logprobs)).abs().max()))
    assert worst < 2e-5
    assert engine.account.reused > engine.account.fed  # it did use its cache


def test_cached_and_plain_generation_write_the_same_tokens() -> None:
    model = build("qwen3")
    cached = converse(Engine(model, STOPS, reuse=True), rows=6, turns=4)
    plain_engine = Engine(model, STOPS, reuse=False)
    plain = converse(plain_engine, rows=6, turns=4)
    assert plain_engine.why_reread == "asked for"
    for one, other in zip(cached, plain, strict=True):
        for (ids, sample), (other_ids, other_sample) in zip(one, other, strict=True):
            assert (ids, sample.ids, sample.stopped) == (other_ids, other_sample.ids, other_sample.stopped)
            assert sample.logprobs == pytest.approx(other_sample.logprobs, abs=2e-5)


def test_what_a_row_writes_does_not_depend_on_its_company() -> None:
    model = build("llama")
    prompts = [[5, 9, 11], [7] * 30, [8, 8, 20, 33]]
    together = Engine(model, STOPS).generate(prompts, [20] * 3, [Stream(5, n) for n in range(3)])
    for number, prompt in enumerate(prompts):
        (alone,) = Engine(model, STOPS).generate([prompt], [20], [Stream(5, number)])
        assert alone.ids == together[number].ids


def test_the_same_seed_repeats_and_another_differs() -> None:
    model = build("qwen3")

    def write(seed: int) -> list[int]:
        return Engine(model, STOPS).generate([[5, 6, 7]], [30], [Stream(seed)])[0].ids

    torch.manual_seed(1)
    first = write(3)
    torch.manual_seed(2)  # torch's global generator plays no part
    assert write(3) == first
    assert write(4) != first


def test_limits_and_stop_tokens() -> None:
    model = build("qwen3")
    samples = Engine(model, STOPS).generate([[9], [9], [9, 10]], [1, 40, 3], [Stream(n) for n in range(3)])
    assert [len(sample.ids) <= limit for sample, limit in zip(samples, [1, 40, 3], strict=True)] == [True] * 3
    for sample, limit in zip(samples, [1, 40, 3], strict=True):
        assert sample.stopped == (sample.ids[-1] in STOPS)
        assert sample.stopped or len(sample.ids) == limit
        assert not set(sample.ids[:-1]) & set(STOPS)
        assert len(sample.logprobs) == len(sample.ids)


def test_a_sequence_may_come_again_unchanged_or_rewritten() -> None:
    """Nothing is assumed of the caller: whatever does not extend what is held is read afresh."""
    model = build("qwen3")
    engine = Engine(model, STOPS, Sampling(temperature=0))
    prompt = list(range(10, 30))
    (first,) = engine.generate([prompt], [10], [Stream(0)])
    (again,) = engine.generate([prompt], [10], [Stream(0)])
    assert again.ids == first.ids
    (further,) = engine.generate([prompt + first.ids], [5], [Stream(0)])
    rewritten = [*prompt[:5], 55, *prompt[6:]]
    (other,) = engine.generate([rewritten], [10], [Stream(0)])
    (fresh,) = Engine(model, STOPS, Sampling(temperature=0)).generate([rewritten], [10], [Stream(0)])
    assert other.ids == fresh.ids
    (whole,) = Engine(model, STOPS, Sampling(temperature=0), reuse=False).generate(
        [prompt + first.ids], [5], [Stream(0)]
    )
    assert further.ids == whole.ids


def test_twin_prompts_are_read_once() -> None:
    model = build("qwen3")
    engine = Engine(model, STOPS)
    engine.generate([[5] * 100] * 8, [1] * 8, [Stream(n) for n in range(8)])
    assert engine.account.fed == 100
    assert engine.account.reused == 700


def test_reset_forgets_after_the_weights_change() -> None:
    model = build("qwen3")
    engine = Engine(model, STOPS, Sampling(temperature=0))
    prompt = list(range(10, 30))
    (first,) = engine.generate([prompt], [4], [Stream(0)])
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1)
    engine.reset()
    (after,) = engine.generate([prompt + first.ids], [6], [Stream(0)])
    expected = reread_logprobs(model, prompt + first.ids + after.ids, len(prompt) + 4, 1.0)
    assert after.logprobs == pytest.approx(expected.tolist(), abs=2e-5)


def test_dropout_is_off_while_generating_and_training_mode_comes_back() -> None:
    model = build("qwen3").train()
    Engine(model, STOPS).generate([[5, 6]], [3], [Stream(0)])
    assert model.training


def test_a_model_that_ignores_the_mask_is_found_out_and_reread() -> None:
    model = build("qwen3")
    forward = model.forward

    def broken(*args, **kwargs):
        if isinstance(kwargs.get("attention_mask"), torch.Tensor) and kwargs["attention_mask"].ndim == 4:
            kwargs["attention_mask"] = torch.ones_like(kwargs["attention_mask"])
        return forward(*args, **kwargs)

    model.forward = broken
    engine = Engine(model, STOPS)
    engine.generate([[5, 6]], [3], [Stream(0)])
    assert engine.why_reread is not None
    assert "changes the logits" in engine.why_reread


def test_models_that_do_not_fit_say_why() -> None:
    model = build("qwen3")
    model.config.layer_types = ["linear_attention", "full_attention", "full_attention"]
    assert fits(model) == "layers of kind linear_attention"
    with pytest.raises(GenerationError, match="reuse=None"):
        Engine(model, STOPS, reuse=True)


def test_bad_input_is_refused() -> None:
    model = tiny_qwen3(30, hidden=16)
    engine = Engine(model, [0])
    assert engine.generate([], [], []) == []
    with pytest.raises(GenerationError, match="at least one token"):
        engine.generate([[]], [3], [Stream(0)])
    with pytest.raises(GenerationError, match="1 new token"):
        engine.generate([[4]], [0], [Stream(0)])
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(GenerationError, match="nan"):
        Engine(model, [0]).generate([[4]], [3], [Stream(0)])


# --- sampling ---------------------------------------------------------------------------------------------
def test_drawing_follows_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    n = 20_000
    stream = Stream(11)
    tokens, logprobs = draw_tokens(
        logits.expand(n, -1), [stream.draw() for _ in range(n)], Sampling(temperature=2.0)
    )
    expected = torch.softmax(logits[0] / 2, -1)
    shares = torch.bincount(torch.tensor(tokens), minlength=4) / n
    assert torch.allclose(shares, expected, atol=0.015)
    assert logprobs[0] == pytest.approx(float(expected[tokens[0]].log()), abs=1e-6)


def test_top_k_top_p_and_greedy_cut_the_tail() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(2_000, -1)
    stream = Stream(3)
    uniforms = [stream.draw() for _ in range(2_000)]
    assert set(draw_tokens(logits, uniforms, Sampling(top_k=2))[0]) == {0, 1}
    assert set(draw_tokens(logits, uniforms, Sampling(top_p=0.6))[0]) == {0, 1}
    assert set(draw_tokens(logits, uniforms, Sampling(top_p=0.9))[0]) == {0, 1, 2}
    assert set(draw_tokens(logits, uniforms, Sampling(top_k=1))[0]) == {0}
    assert set(draw_tokens(logits, uniforms, Sampling(temperature=0))[0]) == {0}


@pytest.mark.parametrize(
    "options", [{"temperature": -1.0}, {"temperature": float("inf")}, {"top_p": 0.0}, {"top_k": -1}]
)
def test_sampling_refuses_nonsense(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Sampling(**options)
