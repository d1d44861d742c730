"""A tiny policy: a Qwen3-architecture model of about a million parameters, and the tokenizer that makes it possible.

A chat that shows tools is almost wholly constant text: the rules of a family, the JSON schemas, the template's markup.
`build_tokenizer` finds those constant phrases in sample conversations and makes each a token of its own, so that an
episode of eight calls costs two hundred tokens instead of five thousand, and most of them carry a number or a choice.

    phrase     a stretch of text between two cuts that stands in enough of the samples
    cuts       around every digit, every name of capitals (A, B, ...), every end of a message, and after the header
               that a prompt ends with: what the model writes can then never merge with what it was given
    the rest   bytes, so that any text has tokens, only more of them

The chat template is byte for byte the one of Qwen2.5 that TRL knows, so that tool calls are read in training as they
are in a comparison.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed

_TEMPLATES = Path(trl.__file__).parent / "chat_templates"
TEMPLATE = (_TEMPLATES / "qwen2_5.jinja").read_text(encoding="utf-8")

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
HEADER = f"{START}assistant\n"
_CUTS = re.compile(rf"({re.escape(HEADER)}|{re.escape(END)}|\d|\b[A-Z]{{1,2}}\b)")


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the model; `positions` is the longest conversation in tokens."""

    layers: int = 3
    hidden: int = 128
    heads: int = 4
    positions: int = 2_048


def phrases(texts: Iterable[str], share: float = 0.005) -> list[str]:
    """Return the constant phrases of `texts`: those of two characters or more in at least this share of them."""
    counts: Counter[str] = Counter()
    number = 0
    for text in texts:
        number += 1
        counts.update({piece for piece in _CUTS.split(text) if len(piece) > 1 and piece != END})
    least = max(2, round(share * number))
    return sorted(piece for piece, count in counts.items() if count >= least)


def build_tokenizer(texts: Iterable[str], share: float = 0.005) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes and the constant phrases of sample conversations, rendered by `TEMPLATE`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        padding_side="left",
    )
    found = sorted({HEADER, *phrases(texts, share)})
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in found])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def build_model(tokenizer: Any, shape: Shape, seed: int) -> Qwen3ForCausalLM:
    """Return a freshly initialised model for `tokenizer`, in float32."""
    set_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=3 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype=torch.float32,
    )
    return Qwen3ForCausalLM(config)


def encode(
    tokenizer: Any, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> tuple[list[int], list[int]]:
    """Return (ids, mask) of a whole conversation; the mask is 1 on what the assistant wrote, its end included.

    The template's own marks go by characters, and a phrase may begin with the line break that follows a message; so
    the mask is read from the ids: all that stands between an assistant's header and the end of its message.
    """
    ids = tokenizer.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=True)["input_ids"]
    header, end = tokenizer.convert_tokens_to_ids(HEADER), tokenizer.convert_tokens_to_ids(END)
    mask, writing = [], False
    for token in ids:
        mask.append(int(writing))
        writing = token == header or (writing and token != end)
    return ids, mask
