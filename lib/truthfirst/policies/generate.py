"""Fast multi-turn generation: each turn feeds only what is new.

A conversation that is re-read at every turn costs the square of its turns. `Engine.generate` takes whole sequences,
like any generator, but keeps the keys and values of the ones it has just continued: a sequence that extends one of
them costs only its new tokens (the tool's reply and the template's markup). From outside the engine has no state but
speed: the same sequences and streams give the same tokens and log-probabilities, to float accuracy, as a full re-read.

    engine = Engine(model, stop_ids)
    samples = engine.generate(sequences, limits=[64] * n, streams=[Stream(seed) for seed in seeds])

A sampled token is the inverse of the cumulative distribution at a uniform draw of its row's own stream, so what a
conversation samples depends on its stream and not on which others share the batch. The log-probability is that of the
distribution at this temperature before top-k and top-p, which is what TRL's trainer computes again.

Models that a ragged cache does not fit (recurrent layers, ...) are re-read at every turn instead; `Engine.why_reread`
says why. After a model's weights change, call `reset`.

TRL's trainer gets the cache by overriding one method, `_generate_single_turn`, with a call of `generate` on the ids
that it is given (`tests/policies/test_trl_parity.py` shows it): keep one engine, reset it before each batch of
rollouts, and never give a row the same draws twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from ..streams import derive
from .base import Sampling
from .cache import RaggedCache, fits

FEED_TOKENS = 16_384  # at most this many tokens (padding included) in one forward pass, or one row
NARROW = 0.75  # rows whose message has ended leave the batch when at most this share still writes


class GenerationError(RuntimeError):
    """The model cannot generate: it gives no finite distribution, or is given nothing to read."""


class Stream:
    """The uniform draws of one conversation."""

    def __init__(self, seed: int, *labels: str | int) -> None:
        self._generator = torch.Generator()
        self._generator.manual_seed(derive(seed, "generate", *labels) % 2**63)
        self._ready: list[float] = []

    def draw(self) -> float:
        """Return the next draw in [0, 1)."""
        if not self._ready:  # drawn in blocks: one tensor operation for many tokens
            self._ready = torch.rand(256, generator=self._generator, dtype=torch.float64).tolist()[::-1]
        return self._ready.pop()


@dataclass(slots=True)
class Sample:
    """What one row wrote: token ids, their log-probabilities, and whether it ended by a stop token."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False


@dataclass(slots=True)
class Account:
    """Tokens since the engine was made: fed to the model (padding not counted), found in the cache, sampled."""

    fed: int = 0
    reused: int = 0
    sampled: int = 0


def draw_tokens(
    logits: torch.Tensor, uniforms: Sequence[float], how: Sampling
) -> tuple[list[int], list[float]]:
    """Sample one token a row from `logits` (rows, vocabulary); return ids and log-probabilities."""
    scaled = logits.float() / (how.temperature or 1.0)
    log_probabilities = torch.log_softmax(scaled, dim=-1)
    if how.temperature == 0:
        chosen = scaled.argmax(dim=-1, keepdim=True)
    else:
        weights = log_probabilities.exp().double()
        if how.top_k or how.top_p < 1:
            weights = weights * _kept(log_probabilities, how)
        cumulative = weights.cumsum(dim=-1)
        targets = (
            torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
        )
        chosen = torch.searchsorted(cumulative, targets, right=True).clamp(max=logits.shape[-1] - 1)
    picked = log_probabilities.gather(-1, chosen)[:, 0].tolist()
    if not all(map(math.isfinite, picked)):
        raise GenerationError(
            "the model gives no finite distribution: its weights hold nan or infinite values"
        )
    return chosen[:, 0].tolist(), picked


def _kept(log_probabilities: torch.Tensor, how: Sampling) -> torch.Tensor:
    """Return True where a token survives top-k, then top-p (the fewest likely ones that reach that mass)."""
    ordered, order = log_probabilities.sort(dim=-1, descending=True)
    mass = ordered.exp().double()
    keep = torch.ones_like(order, dtype=torch.bool)
    if how.top_k:
        keep[:, how.top_k :] = False
        mass = mass * keep
    before = mass.cumsum(dim=-1) - mass
    keep &= before < how.top_p * mass.sum(dim=-1, keepdim=True)
    return torch.zeros_like(keep).scatter(-1, order, keep)


class Engine:
    """Continues token sequences with one model; see the module docstring.

    reuse  False re-reads every sequence in full (for comparison); True insists on the cache; None decides by `fits`
    """

    def __init__(
        self,
        model: Any,
        stop_ids: Sequence[int],
        sampling: Sampling | None = None,
        *,
        reuse: bool | None = None,
    ) -> None:
        self.model, self.sampling = model, sampling or Sampling()
        self.stop_ids = frozenset(stop_ids)
        self.why_reread = "asked for" if reuse is False else fits(model)
        if reuse and self.why_reread:
            raise GenerationError(
                f"this model cannot keep a cache across turns ({self.why_reread}): use reuse=None"
            )
        self.account = Account()
        self._checked = self.why_reread is not None
        self._reader: _CachedReader | _PlainReader
        self.reset()

    def reset(self) -> None:
        """Forget every conversation; needed after the model's weights have changed."""
        self._reader = _PlainReader(self) if self.why_reread else _CachedReader(self)

    @torch.no_grad()
    def generate(
        self, sequences: Sequence[list[int]], limits: Sequence[int], streams: Sequence[Stream]
    ) -> list[Sample]:
        """Continue each sequence until a stop token (kept in the sample) or its limit of new tokens.

        sequences  token ids, at least one each; those that extend a sequence of the last call and its sample, in the
                   same order, cost only what is new
        limits     new tokens a sequence, at least 1
        streams    one a sequence; a conversation's own over all its turns
        """
        if not sequences:
            return []
        if any(not ids for ids in sequences) or any(limit < 1 for limit in limits):
            raise GenerationError(
                "every sequence needs at least one token, and a limit of at least 1 new token"
            )
        if not len(sequences) == len(limits) == len(streams):
            raise GenerationError(f"{len(sequences)} sequences, {len(limits)} limits, {len(streams)} streams")
        samples = [Sample() for _ in sequences]
        with _evaluating(self.model):
            if not self._checked:
                self._check()
            logits = self._reader.open(sequences)
            live = list(range(len(sequences)))
            while True:
                tokens, logprobs = draw_tokens(logits, [streams[row].draw() for row in live], self.sampling)
                going: list[int] = []
                for row, token, logprob in zip(live, tokens, logprobs, strict=True):
                    sample = samples[row]
                    sample.ids.append(token)
                    sample.logprobs.append(logprob)
                    sample.stopped = token in self.stop_ids
                    if not sample.stopped and len(sample.ids) < limits[row]:
                        going.append(row)
                if not going:
                    break
                live = going
                logits = self._reader.step(live, [samples[row].ids[-1] for row in live])
        self._reader.close([ids + sample.ids for ids, sample in zip(sequences, samples, strict=True)])
        self.account.sampled += sum(len(sample.ids) for sample in samples)
        return samples

    def _check(self) -> None:
        """Read two short sequences in pieces and in full; a model whose logits differ is re-read from then on."""
        self._checked = True
        size = min(self.model.config.get_text_config().vocab_size, 1_000)
        rows = [[(7 * n + 3) % size for n in range(9)], [(11 * n + 5) % size for n in range(4)]]
        account, self.account = self.account, Account()
        pieces, whole = _CachedReader(self), _PlainReader(self)
        pieces.open([row[:-3] or row[:1] for row in rows])
        pieces.close(rows)
        got, expected = pieces.open(rows).float(), whole.open(rows).float()
        self.account = account
        tolerance = 1e-3 if self.model.dtype in (torch.float32, torch.float64) else 0.1
        error = float((got - expected).abs().max() / expected.abs().max().clamp(min=1.0))
        if not error <= tolerance and bool(expected.isfinite().all()):
            self.why_reread = f"reading in pieces changes the logits by {error:.1e} of their size"
            self.reset()


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch dropout off, and back on if it was on."""
    training = model.training
    if training:
        model.eval()
    try:
        yield
    finally:
        if training:
            model.train()


class _CachedReader:
    """Feeds sequences through a RaggedCache that outlives the call.

    slot   of each row of this call; rows that still write have the lowest slots
    held   (sequence, slot) of the last call's rows, in its order
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.model = engine, engine.model
        self.cache = RaggedCache(engine.model)
        self.slot: list[int] = []
        self.row_at: list[int] = []  # the row in each slot
        self.held: list[tuple[list[int], int]] = []
        self.width = 0

    def open(self, sequences: Sequence[list[int]]) -> torch.Tensor:
        """Read what is new of every sequence; return the logits after each, (rows, vocabulary)."""
        found = self._match(sequences)
        continued = [row for row, slot in enumerate(found) if slot is not None]
        self._gather([slot for slot in found if slot is not None], continued)
        twins: dict[tuple[int, ...], list[int]] = {}  # equal fresh sequences (a group's prompt) are read once
        for row in sorted(
            (row for row, slot in enumerate(found) if slot is None), key=lambda row: len(sequences[row])
        ):
            twins.setdefault(tuple(sequences[row]), []).append(row)
        to_read = len(continued) + len(twins)
        self.row_at += [group[0] for group in twins.values()] + [row for g in twins.values() for row in g[1:]]
        self.width = len(sequences)
        self.slot = [0] * self.width
        for slot, row in enumerate(self.row_at):
            self.slot[row] = slot
        self.cache.reserve(self.width, max(map(len, sequences)) + 1)
        self.cache.lengths[len(continued) : self.width] = [0] * (self.width - len(continued))
        logits: dict[int, torch.Tensor] = {}
        for first, last in self._blocks(sequences, len(continued), to_read):
            rows, held = self.row_at[first:last], self.cache.lengths[first:last]
            self.engine.account.reused += sum(held)
            result = self._forward(first, [sequences[row][n:] for row, n in zip(rows, held, strict=True)])
            logits |= dict(zip(rows, result, strict=True))
        for original, *others in twins.values():
            if others:
                self.cache.copy(self.slot[original], [self.slot[row] for row in others])
                self.engine.account.reused += len(others) * len(sequences[original])
                logits |= dict.fromkeys(others, logits[original])
        return torch.stack([logits[row] for row in range(self.width)])

    def _match(self, sequences: Sequence[list[int]]) -> list[int | None]:
        """Return for each sequence the slot whose content it extends: the held ones are tried in order, once."""
        found: list[int | None] = []
        waiting = list(self.held)
        for ids in sequences:
            slot = None
            for number, (past, place) in enumerate(waiting):
                if len(past) <= len(ids) and ids[: len(past)] == past:
                    slot = place
                    # A sequence without anything new still needs its last token read for the logits.
                    self.cache.lengths[place] = min(self.cache.lengths[place], len(ids) - 1)
                    waiting = waiting[number + 1 :]
                    break
            found.append(slot)
        self.held = []
        return found

    def _gather(self, slots: list[int], rows: list[int]) -> None:
        """Bring the rows in `slots` into slots 0 ... n - 1."""
        n = len(slots)
        holes = iter(sorted(set(range(n)) - set(slots)))
        self.row_at = [-1] * n
        for slot, row in zip(slots, rows, strict=True):
            target = slot if slot < n else next(holes)
            if target != slot:
                self.cache.swap(slot, target)
            self.row_at[target] = row

    def _blocks(
        self, sequences: Sequence[list[int]], continued: int, total: int
    ) -> Iterator[tuple[int, int]]:
        """Yield ranges of slots to read together: continued rows apart from fresh ones, and no block too wide."""
        new = [len(sequences[self.row_at[slot]]) - self.cache.lengths[slot] for slot in range(total)]
        first = 0
        while first < total:
            last = first + 1
            while last < total and (last < continued) == (first < continued):
                block = new[first : last + 1]
                if max(block) * len(block) > FEED_TOKENS or max(block) > 4 * max(min(block), 32):
                    break
                last += 1
            yield first, last
            first = last

    def _forward(self, first: int, new: list[list[int]]) -> torch.Tensor:
        """Feed `new[i]` to slot first + i, right-aligned; return the logits after each row's last token."""
        block = max(map(len, new))
        ids = torch.tensor([[0] * (block - len(row)) + row for row in new], device=self.model.device)
        arguments = self.cache.prepare(first, [len(row) for row in new])
        self.engine.account.fed += sum(map(len, new))
        return self.model(input_ids=ids, use_cache=True, logits_to_keep=1, **arguments).logits[:, -1]

    def step(self, live: list[int], tokens: list[int]) -> torch.Tensor:
        """Read one more token of each row in `live`; return the logits after it, in the order of `live`."""
        if len(live) <= NARROW * self.width:
            self._narrow(live)
        fed: list[list[int]] = [[] for _ in range(self.width)]
        for row, token in zip(live, tokens, strict=True):
            fed[self.slot[row]] = [token]
        logits = self._forward(0, fed)
        if len(live) == self.width and all(self.slot[row] == place for place, row in enumerate(live)):
            return logits
        return logits[[self.slot[row] for row in live]]

    def _narrow(self, live: list[int]) -> None:
        """Move the rows that still write to the lowest slots and leave the others alone from here on."""
        n = len(live)
        kept = {self.slot[row] for row in live}
        holes = [slot for slot in range(n) if slot not in kept]
        for source, target in zip(sorted(slot for slot in kept if slot >= n), holes, strict=True):
            self.cache.swap(source, target)
            one, other = self.row_at[source], self.row_at[target]
            self.row_at[source], self.row_at[target] = other, one
            self.slot[one], self.slot[other] = target, source
        self.width = n

    def close(self, sequences: list[list[int]]) -> None:
        """Remember what each slot holds: everything read, which is all but the last sampled token."""
        self.held = [
            (ids[: self.cache.lengths[self.slot[row]]], self.slot[row]) for row, ids in enumerate(sequences)
        ]


class _PlainReader:
    """Reads every sequence in full at each call, through the model's own cache, left-padded."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.model = engine, engine.model

    def open(self, sequences: Sequence[list[int]]) -> torch.Tensor:
        block = max(map(len, sequences))
        device = self.model.device
        ids = torch.tensor([[0] * (block - len(row)) + row for row in sequences], device=device)
        self.mask = torch.tensor(
            [[0] * (block - len(row)) + [1] * len(row) for row in sequences], device=device
        )
        self.places = torch.tensor([len(row) for row in sequences], device=device)
        positions = (self.mask.cumsum(dim=-1) - 1).clamp(min=0)
        self.engine.account.fed += sum(map(len, sequences))
        output = self.model(
            input_ids=ids, attention_mask=self.mask, position_ids=positions, use_cache=True, logits_to_keep=1
        )
        self.past = output.past_key_values
        return output.logits[:, -1]

    def step(self, live: list[int], tokens: list[int]) -> torch.Tensor:
        ids = torch.zeros((len(self.places), 1), dtype=torch.long, device=self.model.device)
        ids[live, 0] = torch.tensor(tokens, device=ids.device)
        self.mask = torch.cat([self.mask, torch.ones_like(ids)], dim=-1)
        self.engine.account.fed += len(live)
        output = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=self.places[:, None],
            past_key_values=self.past,
            use_cache=True,
        )
        self.places = self.places + 1
        return output.logits[live, -1]

    def close(self, sequences: list[list[int]]) -> None:
        self.past = None
