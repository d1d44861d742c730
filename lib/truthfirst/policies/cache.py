"""A key-value cache for conversations of unequal length that live across turns.

The usual cache keeps a batch as one rectangle and appends to all rows alike, so rows of unequal length fill up with
padding and every token copies the whole. Here each row (slot) has its own length in buffers that are allocated ahead:

    keys, values  [slots, heads, capacity + 1, head size] a layer; row b holds `lengths[b]` tokens from column 0

Feeding q new tokens to row b writes columns lengths[b] ... lengths[b] + q - 1 in place. Tokens are right-aligned in the
fed block, so that the last column is every row's last token; the padding before them is written to the spare last
column, which nothing attends to. A query at position p sees columns 0 ... p, minus what a sliding window hides.

The rows in use are slots 0 ... n - 1, so that attention reads views, not copies; `swap` keeps them together when rows
drop out. Sequences share nothing: row contents never depend on the other rows.

Only models whose layers all are full or sliding-window attention fit (`fits`); recurrent layers cannot be fed ragged
rows, and paged or quantised caches are a server's business.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

BLOCK = 256  # columns; capacity grows by doubling, in whole blocks


def fits(model: Any) -> str | None:
    """Return None when `model` can be fed through a RaggedCache, else the reason why not."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        return f"layers of kind {', '.join(sorted(kinds - {'full_attention', 'sliding_attention'}))}"
    if getattr(config, "is_encoder_decoder", False):
        return "an encoder-decoder"
    if getattr(config, "num_kv_shared_layers", 0):
        return "layers that share keys and values"
    implementation = getattr(config, "_attn_implementation", None)
    if implementation not in ("sdpa", "eager"):
        return f"attention implementation {implementation!r} takes no mask a row: load with attn_implementation='sdpa'"
    return None


class RaggedLayer(CacheLayerMixin):
    """Keys and values of one layer; where to write is said by the cache before each forward pass."""

    def __init__(self, cache: RaggedCache) -> None:
        super().__init__()
        self.cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._empty(key_states)
        self.values = self._empty(value_states)
        self.is_initialized = True

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        # Zeros, not uninitialised memory: a masked column still takes part in the product, and 0 * nan is nan.
        shape = (self.cache.slots, like.shape[1], self.cache.capacity + 1, like.shape[3])
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def grow(self) -> None:
        """Copy the rows into buffers of the cache's present size."""
        if not self.is_initialized or self.keys is None or self.values is None:
            return
        old_keys, old_values = self.keys, self.values
        self.keys, self.values = self._empty(old_keys), self._empty(old_values)
        rows, columns = old_keys.shape[0], old_keys.shape[2] - 1
        self.keys[:rows, :, :columns] = old_keys[:, :, :columns]
        self.values[:rows, :, :columns] = old_values[:, :, :columns]

    def copy(self, sources: torch.Tensor, targets: torch.Tensor, length: int) -> None:
        """Copy the first `length` columns of rows `sources` over rows `targets`, all at once."""
        for buffer in (self.keys, self.values):
            if buffer is not None:
                buffer[targets, :, :length] = buffer[sources, :, :length]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        rows, columns, width, first, same = self.cache.plan
        length = self.cache.reach
        if same is not None:  # one token at the same column in every row: a plain slice is the fastest write
            self.keys[first : first + width, :, same : same + 1] = key_states
            self.values[first : first + width, :, same : same + 1] = value_states
        else:
            self.keys[rows, :, columns] = key_states.transpose(1, 2)
            self.values[rows, :, columns] = value_states.transpose(1, 2)
        part = slice(first, first + width)
        return self.keys[part, :, :length], self.values[part, :, :length]

    def get_seq_length(self) -> int:
        return max(self.cache.lengths, default=0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1


class RaggedCache(Cache):
    """The cache of one model; `lengths[b]` tokens are held of the conversation in slot b."""

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        self.slots, self.capacity = 0, 0
        self.lengths: list[int] = []
        self.plan: tuple[torch.Tensor, torch.Tensor, int, int, int | None]
        self.reach = 0
        self._device = model.device
        self._additive = config._attn_implementation != "sdpa"
        self._dtype = model.dtype
        kinds = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None)
        self._by_kind = kinds is not None and "sliding_attention" in kinds
        self._window = window if self._by_kind or kinds is None else None
        self.ragged = [RaggedLayer(self) for _ in range(config.num_hidden_layers)]
        super().__init__(layers=list(self.ragged))

    def reserve(self, slots: int, columns: int) -> None:
        """Make room for `slots` rows of `columns` tokens; what is held stays."""
        if slots <= self.slots and columns <= self.capacity:
            return
        self.slots = max(slots, self.slots)
        if columns > self.capacity:
            self.capacity = -(-max(columns, 2 * self.capacity) // BLOCK) * BLOCK
        self.lengths += [0] * (self.slots - len(self.lengths))
        for layer in self.ragged:
            layer.grow()

    def swap(self, one: int, other: int) -> None:
        """Exchange two rows."""
        self._copy([one, other], [other, one])
        self.lengths[one], self.lengths[other] = self.lengths[other], self.lengths[one]

    def copy(self, source: int, targets: list[int]) -> None:
        """Make rows `targets` hold what row `source` holds."""
        self._copy([source] * len(targets), targets)
        for target in targets:
            self.lengths[target] = self.lengths[source]

    def _copy(self, sources: list[int], targets: list[int]) -> None:
        length = max(self.lengths[row] for row in sources)
        index = torch.tensor([sources, targets], device=self._device)
        for layer in self.ragged:
            layer.copy(index[0], index[1], length)

    def prepare(self, first: int, counts: list[int]) -> dict[str, Any]:
        """Say that the next forward pass feeds `counts[i]` tokens to slot first + i; return its keyword arguments.

        counts  one entry a row of the fed block, which is max(counts) wide and right-aligned; 0 feeds only padding
        """
        width, block = len(counts), max(counts)
        held = self.lengths[first : first + width]
        self.reach = max(length + count for length, count in zip(held, counts, strict=True))
        self.reserve(first + width, self.reach)
        rows = torch.arange(first, first + width, device=self._device)[:, None]
        starts = torch.tensor([h + c - block for h, c in zip(held, counts, strict=True)], device=self._device)
        places = starts[:, None] + torch.arange(block, device=self._device)[None, :]
        if min(counts) == block:
            columns, positions = places, places
        else:
            real = places >= torch.tensor(held, device=self._device)[:, None]
            columns = torch.where(real, places, self.capacity)
            # A padding query must see some key, or its softmax is nan; what it gives is never used.
            positions = torch.where(real, places, 0)
        same = held[0] if block == 1 and min(counts) == 1 and min(held) == max(held) else None
        self.plan = (rows, columns, width, first, same)
        for offset, count in enumerate(counts):
            self.lengths[first + offset] += count
        return {"position_ids": positions, "attention_mask": self._masks(positions), "past_key_values": self}

    def _masks(self, positions: torch.Tensor) -> Any:
        keys = torch.arange(self.reach, device=self._device)
        full = keys[None, None, :] <= positions[:, :, None]
        if self._window is None:
            return self._finished(full)
        near = full & (keys[None, None, :] > positions[:, :, None] - self._window)
        if not self._by_kind:
            return self._finished(near)
        return {"full_attention": self._finished(full), "sliding_attention": self._finished(near)}

    def _finished(self, seen: torch.Tensor) -> torch.Tensor:
        if not self._additive:
            return seen[:, None]
        lowest = torch.finfo(self._dtype).min
        return torch.zeros(seen.shape, dtype=self._dtype, device=self._device).masked_fill(~seen, lowest)[
            :, None
        ]
