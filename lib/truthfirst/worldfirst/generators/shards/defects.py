"""The damage of a checkpoint: which shards, tensors and claims are wrong.

Every act leaves in the public tree what undoes it, under the rules that the prompt states:

    stale shards            shards of other steps lie among the current ones and claim the current step
    stale metadata          some current shards claim another step
    scrambled indices       file names are permuted over all shards; some shards claim another writer
    missing copies          replicated tensors dropped from all shards of their stage but one
    divergent copies        replicated tensors with other values in one shard of several
    foreign copies          replicated tensors with other values in expert shards of their stage
    dtype drift             tensors stored in a wider format
    schema drift            keys spelt as in an older version
    duplicates              shards that stand there twice
    lost order              the log shuffled

The log's checksums decide: each divided tensor has one that no other part with its name has, and of a replicated tensor
one copy at least stays as it was logged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...corrupt import Draft, text64
from ...tensors import RANGES, Tensor, decode, pack, unpack
from ...world import INPUT, Defect, Files
from .layout import Slot, slots
from .operators import OPERATORS, told
from .render import archive_path, shard_path
from .world import DENSE, EXPERT, UNDIVIDED, Checkpoint, Schema

__all__ = ["OPERATORS", "plan"]
WIDER = {"F32": "F64", "BF16": "F32", "F16": "F32", "I8": "I16"}


def plan(world: Checkpoint, files: Files, rng: np.random.Generator) -> tuple[Defect, ...]:
    """Draw the defect plan of a world."""
    draft = Draft(files, OPERATORS)
    current = [shard_path(world, number) for number in range(len(world.writers))]
    old = _stale(draft, world, len(current))
    _claims(draft, world, rng, current)
    _replicas(draft, world, rng)
    for path in (*current, *old):
        _widen(draft, rng, path)
    _rename(draft, world, rng, [*current, *old])
    copies = _twice(draft, world, rng, current, len(current) + len(old))
    shards = [*current, *old, *copies]
    draft.add(
        "scrambled shard indices", "permute_files", f"{INPUT}shards", names=shards, order=_moved(rng, shards)
    )
    _shuffle(draft, rng, f"{INPUT}save_log.csv")
    return tuple(draft.plan)


def _some(rng: np.random.Generator, pool: Sequence[int], count: int) -> list[int]:
    """Return `count` of the pool (all of it where there are fewer), in its order."""
    chosen = rng.choice(len(pool), size=min(count, len(pool)), replace=False)
    return [pool[n] for n in sorted(int(n) for n in chosen)]


def _moved(rng: np.random.Generator, shards: Sequence[str]) -> list[int]:
    """Return a permutation that leaves less than a third of the shards where they were."""
    while True:
        order = [int(n) for n in rng.permutation(len(shards))]
        if 3 * sum(place == number for place, number in enumerate(order)) < len(shards):
            return order


def _shuffle(draft: Draft, rng: np.random.Generator, path: str) -> None:
    order = [int(n) for n in rng.permutation(len(draft.table(path).rows))]
    draft.add("lost order", "permute_rows", path, order=order)


# --- shards -----------------------------------------------------------------------------------------------
def _stale(draft: Draft, world: Checkpoint, first: int) -> list[str]:
    """Move the shards of other steps among the current ones, under the next numbers; each claims the current step."""
    paths = []
    for number, shard in enumerate(world.old):
        paths.append(shard_path(world, first + number))
        draft.add("stale shards", "move_file", archive_path(shard.step, shard.writer), to=paths[-1])
        _claim(draft, "stale metadata", paths[-1], "step", str(world.step))
    return paths


def _claim(draft: Draft, kind: str, path: str, field: str, new: str) -> None:
    old = decode(draft.files[path]).metadata[field]
    if old != new:
        draft.add(kind, "edit_metadata", path, field=field, old=old, new=new)


def _claims(draft: Draft, world: Checkpoint, rng: np.random.Generator, current: list[str]) -> None:
    """Let a fifth of the current shards claim the older step, and a third of them, turned round, another's writer."""
    before = min(shard.step for shard in world.old)
    for number in _some(rng, range(len(current)), max(1, len(current) // 5)):
        _claim(draft, "stale metadata", current[number], "step", str(before))
    turned = _some(rng, range(len(current)), max(2, len(current) // 3))
    for number, other in zip(turned, turned[1:] + turned[:1], strict=True):
        _claim(draft, "scrambled shard indices", current[number], "writer", world.writers[other].id)


def _twice(
    draft: Draft, world: Checkpoint, rng: np.random.Generator, current: list[str], first: int
) -> list[str]:
    paths: list[str] = []
    for number in _some(rng, range(len(current)), max(1, len(current) // 8)):
        paths.append(shard_path(world, first + len(paths)))
        draft.add("duplicates", "copy_file", paths[-1], source=current[number])
    return paths


# --- copies of replicated tensors -------------------------------------------------------------------------
def _replicas(draft: Draft, world: Checkpoint, rng: np.random.Generator) -> None:
    """Drop, change or misplace copies: one of these a replicated tensor at most, and each once at least."""
    held = {writer: slots(world, writer) for writer in world.writers}
    dense = [writer for writer in world.writers if writer.group == DENSE and writer.rank == 0]
    pairs = [(writer.stage, slot) for writer in dense for slot in held[writer] if _replicated(slot)]
    order = [int(n) for n in rng.permutation(len(pairs))]
    acts = (_drop, _diverge, _misplace)
    for turn, number in enumerate(order[: max(len(acts), 3 * len(pairs) // 4)]):
        stage, slot = pairs[number]
        acts[turn % len(acts)](draft, world, rng, stage, slot)


def _replicated(slot: Slot) -> bool:
    return slot.parameter.group == DENSE and slot.parameter.axis == UNDIVIDED


def _paths(world: Checkpoint, group: str, stage: int) -> list[str]:
    return [
        shard_path(world, number)
        for number, writer in enumerate(world.writers)
        if (writer.group, writer.stage) == (group, stage)
    ]


def _drop(draft: Draft, world: Checkpoint, rng: np.random.Generator, stage: int, slot: Slot) -> None:
    paths = _paths(world, DENSE, stage)
    for number in _some(rng, range(len(paths)), len(paths) - 1):
        entry = told(decode(draft.files[paths[number]]), slot.local)
        draft.add("missing copies", "delete_tensors", paths[number], tensors=[entry])


def _diverge(draft: Draft, world: Checkpoint, rng: np.random.Generator, stage: int, slot: Slot) -> None:
    paths = _paths(world, DENSE, stage)
    for number in _some(rng, range(len(paths)), len(paths) // 2):
        tensor = decode(draft.files[paths[number]]).tensors[slot.local]
        entry = [slot.local, text64(tensor.data), text64(_other(rng, tensor))]
        draft.add("divergent copies", "replace_tensors", paths[number], tensors=[entry])


def _other(rng: np.random.Generator, tensor: Tensor) -> bytes:
    """Return a tensor's data with one value or more changed."""
    numbers = unpack(tensor.data, tensor.dtype).copy()
    for place in _some(rng, range(len(numbers)), max(1, len(numbers) // 4)):
        numbers[place] = (int(numbers[place]) + int(rng.integers(1, 100))) % RANGES[tensor.dtype]
    return pack(numbers, tensor.dtype)


def _misplace(draft: Draft, world: Checkpoint, rng: np.random.Generator, stage: int, slot: Slot) -> None:
    source = decode(draft.files[_paths(world, DENSE, stage)[0]]).tensors[slot.local]
    paths = _paths(world, EXPERT, stage)
    for number in _some(rng, range(len(paths)), 1):
        size = len(decode(draft.files[paths[number]]).tensors)
        entry = [
            int(rng.integers(size + 1)),
            slot.local,
            source.dtype,
            list(source.shape),
            text64(_other(rng, source)),
        ]
        draft.add("foreign copies", "insert_tensors", paths[number], tensors=[entry])


# --- tensors ----------------------------------------------------------------------------------------------
def _widen(draft: Draft, rng: np.random.Generator, path: str) -> None:
    """Store about a quarter of a shard's tensors, one at least, in the next wider format."""
    tensors = decode(draft.files[path]).tensors
    keys = list(tensors)
    casts = [
        [keys[n], tensors[keys[n]].dtype, WIDER[tensors[keys[n]].dtype]]
        for n in _some(rng, range(len(keys)), max(1, len(keys) // 4))
    ]
    draft.add("dtype drift", "cast_tensors", path, casts=casts)


def _rename(draft: Draft, world: Checkpoint, rng: np.random.Generator, paths: list[str]) -> None:
    """Spell the keys of about half of the shards as in an older version; each older version occurs."""
    older = [schema for schema in world.schemas if schema.segments]
    for turn, number in enumerate(_some(rng, range(len(paths)), max(len(older), len(paths) // 2))):
        archive = decode(draft.files[paths[number]])
        schema = older[turn % len(older)]
        names = {key: spelt for key in archive.tensors if (spelt := _spelt(key, schema)) != key}
        if names:
            draft.add("schema drift", "rename_tensors", paths[number], names=names)
        _claim(draft, "schema drift", paths[number], "schema", str(schema.version))


def _spelt(key: str, schema: Schema) -> str:
    back = {canonical: old for old, canonical in schema.segments}
    return ".".join(back.get(segment, segment) for segment in key.split("."))
