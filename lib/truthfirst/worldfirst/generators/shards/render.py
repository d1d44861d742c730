"""Rendering: a checkpoint world as clean files, a pure function with an exact inverse.

    input/config.json                       run, vocabulary, ranks, layers of each stage, experts of each rank
    input/parameters.csv                    name, group, dtype, axis, stages
    input/schema.json                       version of the names -> {segment: canonical segment}
    input/writers.tsv                       writer, group, stage, rank
    input/save_log.csv                      step, writer, tensor (local name), CRC-32 of its bytes
    input/index.json                        global name -> shard files
    input/shards/<run>-<number>.safetensors shards of the step, in order of the writers
    input/archive/...                       shards of other steps, which the damage moves among the others

`recover` reads the world back from these files; log and index are derived and must agree with it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...tables import Table, decode, encode
from ...tensors import Archive, Tensor, pack, unpack
from ...tensors import decode as decode_shard
from ...tensors import encode as encode_shard
from ...world import INPUT, Files, WorldError
from .layout import Slot, join, names, part, slots, whole
from .world import UNDIVIDED, Checkpoint, OldShard, Parameter, Schema, Weight, Writer

SHARDS, ARCHIVE = f"{INPUT}shards/", f"{INPUT}archive/"


def shard_path(world: Checkpoint, number: int) -> str:
    """Return the path of a shard by its number."""
    return f"{SHARDS}{world.run}-{number:05d}.safetensors"


def archive_path(step: int, writer: str) -> str:
    """Return where a shard of another step lies in the clean tree."""
    return f"{ARCHIVE}{step}-{writer}.safetensors"


def render(world: Checkpoint) -> dict[str, bytes]:
    """Return the clean files."""
    archives = _archives(world)
    tables = {
        "parameters.csv": Table(
            ("name", "group", "dtype", "axis", "stages"),
            tuple((p.name, p.group, p.dtype, _axis(p.axis), p.stages) for p in world.parameters),
        ),
        "writers.tsv": Table(
            ("writer", "group", "stage", "rank"),
            tuple((w.id, w.group, str(w.stage), str(w.rank)) for w in world.writers),
        ),
        "save_log.csv": _log(archives),
    }
    files = {INPUT + name: encode(table, name) for name, table in tables.items()}
    files[f"{INPUT}config.json"] = _json(
        {
            "run": world.run,
            "vocab_size": world.vocabulary,
            "tensor_parallel": world.ranks,
            "pipeline_layers": world.stages,
            "expert_placement": world.experts,
        }
    )
    files[f"{INPUT}schema.json"] = _json({str(one.version): dict(one.segments) for one in world.schemas})
    files[f"{INPUT}index.json"] = _json(_index(world))
    for path, archive in archives.items():
        files[path] = encode_shard(archive)
    return files


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _axis(axis: int) -> str:
    return "" if axis == UNDIVIDED else str(axis)


def _archives(world: Checkpoint) -> dict[str, Archive]:
    """Return every shard by path: those of the step, then those of other steps."""
    weights = {weight.name: whole(weight) for weight in world.weights}
    held = {writer.id: slots(world, writer) for writer in world.writers}
    found = {
        shard_path(world, number): _archive(
            world,
            world.step,
            writer.id,
            held[writer.id],
            [part(weights[slot.name], slot) for slot in held[writer.id]],
        )
        for number, writer in enumerate(world.writers)
    }
    for shard in world.old:
        shapes = [part(weights[slot.name], slot).shape for slot in held[shard.writer]]
        arrays = [np.array(values).reshape(shape) for values, shape in zip(shard.values, shapes, strict=True)]
        path = archive_path(shard.step, shard.writer)
        found[path] = _archive(world, shard.step, shard.writer, held[shard.writer], arrays)
    return found


def _archive(
    world: Checkpoint, step: int, writer: str, held: tuple[Slot, ...], arrays: list[np.ndarray]
) -> Archive:
    metadata = {"step": str(step), "writer": writer, "schema": str(world.schemas[-1].version)}
    return Archive(
        metadata,
        {
            slot.local: Tensor(slot.parameter.dtype, array.shape, pack(array, slot.parameter.dtype))
            for slot, array in zip(held, arrays, strict=True)
        },
    )


def _log(archives: Mapping[str, Archive]) -> Table:
    """Return what the writers logged, by step, then in the order in which the shards stand."""
    rows = []
    for archive in sorted(archives.values(), key=lambda one: int(one.metadata["step"])):
        told = archive.metadata["step"], archive.metadata["writer"]
        rows += [(*told, key, f"{zlib.crc32(tensor.data):08x}") for key, tensor in archive.tensors.items()]
    return Table(("step", "writer", "tensor", "crc32"), tuple(rows))


def _index(world: Checkpoint) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name, _ in names(world)}
    for number, writer in enumerate(world.writers):
        for slot in slots(world, writer):
            found[slot.name].append(shard_path(world, number).removeprefix(SHARDS))
    return found


# --- the way back -----------------------------------------------------------------------------------------
def recover(files: Files) -> Checkpoint:
    """Return the world whose clean files these are. Raises WorldError where log or index do not agree with it."""
    config = json.loads(files[f"{INPUT}config.json"])
    shards = {path: decode_shard(files[path]) for path in sorted(files) if path.startswith(SHARDS)}
    archives = {path: decode_shard(files[path]) for path in files if path.startswith(ARCHIVE)}
    (step,) = {int(archive.metadata["step"]) for archive in shards.values()}
    world = Checkpoint(
        run=config["run"],
        step=step,
        vocabulary=config["vocab_size"],
        ranks=config["tensor_parallel"],
        stages=tuple(map(tuple, config["pipeline_layers"])),
        experts=tuple(map(tuple, config["expert_placement"])),
        parameters=tuple(
            Parameter(str(name), str(group), str(dtype), int(str(axis or UNDIVIDED)), str(stages))
            for name, group, dtype, axis, stages in decode(
                files[f"{INPUT}parameters.csv"], "parameters.csv"
            ).rows
        ),
        schemas=tuple(
            Schema(int(version), tuple(segments.items()))
            for version, segments in json.loads(files[f"{INPUT}schema.json"]).items()
        ),
        writers=tuple(
            Writer(str(identity), str(group), int(str(stage)), int(str(rank)))
            for identity, group, stage, rank in decode(files[f"{INPUT}writers.tsv"], "writers.tsv").rows
        ),
        weights=(),
        old=tuple(
            OldShard(
                int(archive.metadata["step"]),
                archive.metadata["writer"],
                tuple(
                    tuple(unpack(tensor.data, tensor.dtype).tolist()) for tensor in archive.tensors.values()
                ),
            )
            for archive in archives.values()
        ),
    )
    world = replace(world, weights=_weights(world, list(shards.values())))
    if decode(files[f"{INPUT}save_log.csv"], "save_log.csv") != _log(shards | archives):
        raise WorldError("the clean log does not agree with the shards")
    if json.loads(files[f"{INPUT}index.json"]) != _index(world):
        raise WorldError("the clean index does not agree with the shards")
    return world


def _weights(world: Checkpoint, shards: list[Archive]) -> tuple[Weight, ...]:
    """Return the whole tensors, put together from the shards in order of the writers."""
    parts: dict[str, list[np.ndarray]] = {}
    for writer, archive in zip(world.writers, shards, strict=True):
        for slot in slots(world, writer):
            tensor = archive.tensors[slot.local]
            parts.setdefault(slot.name, []).append(unpack(tensor.data, tensor.dtype).reshape(tensor.shape))
    made = []
    for name, parameter in names(world):
        array = join(parts[name], parameter, world.vocabulary)
        made.append(Weight(name, array.shape, tuple(array.ravel().tolist())))
    return tuple(made)
