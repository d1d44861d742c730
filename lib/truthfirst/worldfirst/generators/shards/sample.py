"""Sampling of a checkpoint world, and its invariants.

The words that names are made of, the layers of a stage, the placement of experts, writers' identities, formats and the
order of the parameter table are drawn. Every tier holds each case that the damage needs: three replicated tensors or
more, an axis that the ranks do not divide, shards of an older step and of a newer one that not every writer saved.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...tensors import RANGES, pack
from ...world import WorldError
from .layout import names, part, slots, whole
from .world import (
    DENSE,
    EVERY,
    EXPERT,
    FIRST,
    LAST,
    UNDIVIDED,
    Checkpoint,
    OldShard,
    Parameter,
    Schema,
    Weight,
    Writer,
)

REVISION = 1


@dataclass(frozen=True, slots=True)
class Size:
    """How large a world is.

    ranks, stages, expert_ranks   tensor-, pipeline- and expert-parallel degrees
    layers, experts               a pipeline stage's, an expert rank's
    hidden, inner                 widths; vocabulary: rows of the embedding, about
    older, newer                  shards of an older step, and of a newer one
    """

    ranks: int
    stages: int
    expert_ranks: int
    layers: int
    experts: int
    hidden: int
    inner: int
    vocabulary: int
    older: int
    newer: int


SIZES = {
    "nano": Size(2, 1, 2, 1, 1, 4, 6, 8, 1, 1),
    "unit": Size(2, 2, 2, 2, 2, 12, 12, 40, 1, 1),
    "small": Size(2, 2, 3, 3, 3, 16, 16, 90, 2, 1),
    "full": Size(4, 2, 4, 3, 2, 36, 36, 180, 3, 1),
}

_WORDS = {  # what a segment of a name means -> words for it; no word has two meanings
    "root": "model backbone net trunk decoder",
    "layers": "layers blocks stack units",
    "embed": "embed_tokens wte tok_embeddings lookup",
    "mixer": "attention self_attn attn mix",
    "fused": "qkv query_key_value in_proj c_attn",
    "out": "o_proj out_proj dense_out c_proj",
    "norm": "input_norm ln_1 pre_norm norm_in",
    "sparse": "moe sparse_mlp block_sparse ffn",
    "router": "router gate_net switch dispatcher",
    "experts": "experts specialists local_experts expert_bank",
    "up": "up w1 fc_in expand",
    "down": "down w2 fc_out contract",
    "final": "final_norm ln_f norm_out last_norm",
    "head": "lm_head output_head unembed logits",
}
_POOLS = {meaning: tuple(words.split()) for meaning, words in _WORDS.items()}
_CONSONANTS = "bcdfghjklmnpqrstvwz"
RENAMED = 5  # segments that an older version of the names spells in another way


def sample(rng: np.random.Generator, tier: str) -> Checkpoint:
    """Draw a world of a tier."""
    size = SIZES[tier]
    words = {meaning: _pick(rng, pool) for meaning, pool in _POOLS.items()}
    spread = rng.permutation(size.stages * size.layers).reshape(size.stages, size.layers)
    placed = rng.permutation(size.expert_ranks * size.experts).reshape(size.expert_ranks, size.experts)
    gap = 50 * int(rng.integers(2, 20))
    columns = size.vocabulary // size.ranks + int(rng.integers(4))
    vocabulary = size.ranks * columns + int(rng.integers(1, size.ranks))  # never a multiple of the ranks
    table = _parameters(rng, words, size, vocabulary)
    world = Checkpoint(
        run=f"{''.join(_pick(rng, _CONSONANTS) for _ in range(5))}-{int(rng.integers(16**4)):04x}",
        step=gap * int(rng.integers(4, 60)),
        vocabulary=vocabulary,
        ranks=size.ranks,
        stages=tuple(tuple(sorted(map(int, layers))) for layers in spread),
        experts=tuple(tuple(map(int, experts)) for experts in placed),
        parameters=tuple(table),
        schemas=_schemas(rng, words),
        writers=_writers(rng, size),
        weights=(),
        old=(),
    )
    shapes = {name: table[parameter] for name, parameter in names(world)}
    world = replace(world, weights=_weights(rng, world, shapes))
    older, newer = ((world.step + sign * gap, count) for sign, count in ((-1, size.older), (1, size.newer)))
    return replace(world, old=(*_old(rng, world, *older), *_old(rng, world, *newer)))


def _pick(rng: np.random.Generator, pool: tuple[str, ...] | str) -> str:
    return pool[int(rng.integers(len(pool)))]


def _parameters(
    rng: np.random.Generator, words: dict[str, str], size: Size, vocabulary: int
) -> dict[Parameter, tuple[int, ...]]:
    """Return the parameter table, in a drawn order, with the shape of a whole tensor; formats are drawn, too."""
    block = f"{words['root']}.{words['layers']}.*"
    mixer, sparse = f"{block}.{words['mixer']}", f"{block}.{words['sparse']}"
    expert = f"{sparse}.{words['experts']}.*"
    half, other = (("BF16", "F16")[int(n)] for n in rng.permutation(2))
    up, down = (("I8", half)[int(n)] for n in rng.permutation(2))
    wide, inner = size.hidden, size.inner
    experts = size.expert_ranks * size.experts
    made = [
        (Parameter(f"{words['root']}.{words['embed']}.weight", DENSE, half, 0, FIRST), (vocabulary, wide)),
        (Parameter(f"{mixer}.{words['fused']}.weight", DENSE, other, 0, EVERY), (3 * wide, wide)),
        (Parameter(f"{mixer}.{words['fused']}.bias", DENSE, "F32", 0, EVERY), (3 * wide,)),
        (Parameter(f"{mixer}.{words['out']}.weight", DENSE, half, 1, EVERY), (wide, wide)),
        (Parameter(f"{block}.{words['norm']}.weight", DENSE, "F32", UNDIVIDED, EVERY), (wide,)),
        (Parameter(f"{sparse}.{words['router']}.weight", DENSE, "F32", UNDIVIDED, EVERY), (experts, wide)),
        (Parameter(f"{expert}.{words['up']}.weight", EXPERT, up, UNDIVIDED, EVERY), (inner, wide)),
        (Parameter(f"{expert}.{words['down']}.weight", EXPERT, down, UNDIVIDED, EVERY), (wide, inner)),
        (Parameter(f"{words['root']}.{words['final']}.weight", DENSE, other, UNDIVIDED, LAST), (wide,)),
        (Parameter(f"{words['head']}.weight", DENSE, other, 0, LAST), (vocabulary, wide)),
    ]
    return dict(made[int(n)] for n in rng.permutation(len(made)))


def _schemas(rng: np.random.Generator, words: dict[str, str]) -> tuple[Schema, ...]:
    """Return three versions, the canonical one last; the oldest one exchanges the words of the two expert tensors."""
    latest = int(rng.integers(3, 10))
    exchanged = ((words["up"], words["down"]), (words["down"], words["up"]))
    made = []
    for age, fixed in ((2, exchanged), (1, ())):
        able = [meaning for meaning in _POOLS if not fixed or meaning not in ("up", "down")]
        chosen = sorted(int(n) for n in rng.choice(len(able), size=RENAMED, replace=False))
        pairs = []
        for meaning in (able[n] for n in chosen):
            others = tuple(word for word in _POOLS[meaning] if word != words[meaning])
            pairs.append((_pick(rng, others), words[meaning]))
        made.append(Schema(latest - age, (*pairs, *fixed)))
    return (*made, Schema(latest, ()))


def _writers(rng: np.random.Generator, size: Size) -> tuple[Writer, ...]:
    places = [(DENSE, stage, rank) for stage in range(size.stages) for rank in range(size.ranks)]
    places += [(EXPERT, stage, rank) for stage in range(size.stages) for rank in range(size.expert_ranks)]
    numbers = rng.choice(16**4, size=len(places), replace=False)
    return tuple(Writer(f"n{int(number):04x}", *place) for number, place in zip(numbers, places, strict=True))


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    return tuple(rng.integers(-RANGES[dtype], RANGES[dtype], size=prod(shape), endpoint=True).tolist())


def _weights(
    rng: np.random.Generator, world: Checkpoint, shapes: dict[str, tuple[int, ...]]
) -> tuple[Weight, ...]:
    return tuple(
        Weight(name, shapes[name], _values(rng, shapes[name], parameter.dtype))
        for name, parameter in names(world)
    )


def _old(rng: np.random.Generator, world: Checkpoint, step: int, count: int) -> tuple[OldShard, ...]:
    """Return the shards of `count` writers at another step; writers of one step agree on what they share."""
    then: dict[str, np.ndarray] = {}
    weights = {weight.name: weight for weight in world.weights}
    made = []
    for number in sorted(int(n) for n in rng.choice(len(world.writers), size=count, replace=False)):
        writer = world.writers[number]
        saved = []
        for slot in slots(world, writer):
            shape = weights[slot.name].shape
            if slot.name not in then:
                then[slot.name] = whole(Weight(slot.name, shape, _values(rng, shape, slot.parameter.dtype)))
            saved.append(tuple(part(then[slot.name], slot).ravel().tolist()))
        made.append(OldShard(step, writer.id, tuple(saved)))
    return tuple(made)


# --- invariants -------------------------------------------------------------------------------------------
def check(world: Checkpoint) -> None:
    """Raise WorldError unless identities are unique, layers and experts have one place each, and parts tell apart."""
    _once("writer", (writer.id for writer in world.writers))
    _once("place of a writer", ((writer.group, writer.stage, writer.rank) for writer in world.writers))
    _once("old shard", ((shard.step, shard.writer) for shard in world.old))
    _once("weight", (weight.name for weight in world.weights))
    for what, groups in (("layers", world.stages), ("experts", world.experts)):
        flat = sorted(number for group in groups for number in group)
        if flat != list(range(len(flat))):
            raise WorldError(f"{what} {groups} are not 0, 1, ... with one place each")
    if [name for name, _ in names(world)] != [weight.name for weight in world.weights]:
        raise WorldError("the weights are not those that the parameter table and the topology give")
    if world.vocabulary % world.ranks == 0:
        raise WorldError(
            f"{world.ranks} ranks divide {world.vocabulary} rows: a case that the damage needs is missing"
        )
    segments = {part for parameter in world.parameters for part in parameter.name.split(".")}
    for schema in world.schemas:
        spelt = dict(schema.segments)
        unchanged = segments - set(spelt.values())
        if (
            len(set(spelt.values())) != len(spelt)
            or unchanged & set(spelt)
            or not set(spelt.values()) <= segments
        ):
            raise WorldError(f"version {schema.version} does not rename one to one: {schema.segments}")
    saved = Counter(shard.step for shard in world.old)
    if (
        world.step in saved
        or max(saved.values()) >= len(world.writers)
        or not min(saved) < world.step < max(saved)
    ):
        raise WorldError(
            f"steps {dict(saved)} beside {world.step}: others must be incomplete, before and after"
        )
    _told_apart(world)


def _once(what: str, keys: Iterable[object]) -> None:
    if repeated := [key for key, count in Counter(keys).items() if count > 1]:
        raise WorldError(f"{what} {repeated[0]!r} occurs more than once: it must be unique")


def _told_apart(world: Checkpoint) -> None:
    """Raise WorldError unless no two parts with one local name have the same checksum, whatever their step and rank."""
    weights = {weight.name: whole(weight) for weight in world.weights}
    old = {(shard.step, shard.writer): shard.values for shard in world.old}
    seen: dict[tuple[str, int], tuple[int, str]] = {}
    for writer in world.writers:
        held = slots(world, writer)
        shards = {(world.step, writer.id): [part(weights[slot.name], slot) for slot in held]}
        shards |= {key: list(map(np.array, values)) for key, values in old.items() if key[1] == writer.id}
        for key, arrays in shards.items():
            for slot, array in zip(held, arrays, strict=True):
                if slot.parameter.group == DENSE and slot.parameter.axis == UNDIVIDED:
                    continue
                mark = slot.local, zlib.crc32(pack(array, slot.parameter.dtype))
                if seen.setdefault(mark, key) != key:
                    raise WorldError(f"{slot.local} of {key} and of {seen[mark]} have one checksum")
