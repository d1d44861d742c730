"""A language model whose words are known: for benchmarks and tests of generation.

`clockwork` builds a Qwen3-architecture model and a tokenizer whose weights are set by hand so that, given any
conversation, it writes one fixed script, in which some places may be drawn uniformly from a few choices. The model
costs exactly what any model of its size costs, needs no training, and behaves the same in every conversation, so two
ways of generating do the same work token for token.

How: every token has a random direction as its embedding; attention and feed-forward layers are random but their
outputs are scaled down to a whisper, so that the last token's direction passes through; and the output row of each
script token is the direction of its predecessor. Each piece of the script is one token of its own, so that a
predecessor has one successor.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SHARPNESS = 5.0  # of the output rows: the scripted token leads the next by tens of nats


def byte_tokenizer(chat_template: str, pieces: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with ChatML's special tokens and `pieces` as tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True) for token in (PAD, START, END)])
    inner.add_tokens([AddedToken(piece, normalized=False) for piece in dict.fromkeys(pieces)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END, pad_token=PAD, padding_side="left"
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def tiny_qwen3(
    vocabulary: int, *, hidden: int = 128, layers: int = 2, context: int = 4_096, **more: Any
) -> Qwen3ForCausalLM:
    """Return a randomly initialised Qwen3-architecture model (torch's global seed decides) in evaluation mode."""
    options: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": hidden // 4,
        "max_position_embeddings": context,
        "tie_word_embeddings": False,
        "bos_token_id": None,
    }
    return Qwen3ForCausalLM(Qwen3Config(**(options | more))).eval()


def clockwork(
    script: Sequence[str | tuple[str, ...]],
    chat_template: str,
    *,
    seed: int = 0,
    context: int = 4_096,
    more_pieces: Sequence[str] = (),
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Return (model, tokenizer) that write `script` as every message.

    script       pieces of text, all different; a tuple is a place where one of its pieces is drawn
    more_pieces  further text that shall be one token, such as the template's markup
    Raises ValueError when a piece comes twice.
    """
    places = [(piece,) if isinstance(piece, str) else piece for piece in script]
    pieces = [piece for place in places for piece in place]
    if len(set(pieces)) != len(pieces):
        twice = next(piece for piece in pieces if pieces.count(piece) > 1)
        raise ValueError(f"piece {twice!r} comes twice: cut the script so that every piece is unique")
    tokenizer = byte_tokenizer(chat_template, [*pieces, *more_pieces])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = tiny_qwen3(
            len(tokenizer),
            context=context,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        directions = torch.nn.functional.normalize(
            torch.randn(len(tokenizer), model.config.hidden_size), dim=-1
        )
    ids = tokenizer.get_vocab()
    header = tokenizer("assistant\n", add_special_tokens=False)["input_ids"][-1]
    chain = [[header], *[[ids[piece] for piece in place] for place in places], [ids[END]]]
    with torch.no_grad():
        embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
        embedding.copy_(directions * model.config.hidden_size**0.5)
        head.zero_()
        for before, after in itertools.pairwise(chain):
            for token in after:
                head[token] = SHARPNESS * directions[before].sum(dim=0)
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(1e-3)
    return model, tokenizer
