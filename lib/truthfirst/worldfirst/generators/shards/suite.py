"""The hidden suite of a checkpoint: what must cost each component, and plausible answers that must fail."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import numpy as np

from ...tables import Table, decode, encode
from ...tensors import Archive, Tensor, cast
from ...tensors import decode as decode_shard
from ...tensors import encode as encode_shard
from ...world import INPUT, OUTPUT, Files, Sealed
from .layout import names
from .world import EVERY, UNDIVIDED, Checkpoint

_TURNED = str.maketrans("0123456789abcdef", "123456789abcdef0")
DENSE_FILE, EXPERT_FILE = f"{OUTPUT}dense.safetensors", f"{OUTPUT}experts.safetensors"


def causes(outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return for each component the outputs with its cause spoilt."""
    dense = decode_shard(outputs[DENSE_FILE]).tensors
    last = list(dense)[-1]
    tensor = dense[last]
    flipped = Tensor(tensor.dtype, tensor.shape, bytes([tensor.data[0] ^ 1]) + tensor.data[1:])
    index = json.loads(outputs[f"{OUTPUT}model.index.json"])
    index["weight_map"][last] = "experts.safetensors"
    return {
        "inventory": _edit(outputs, "inventory.csv", "data_bytes"),
        "tensors": _edit(outputs, "tensors.csv", "crc32"),
        "placement": _edit(outputs, "placement.csv", "step"),
        "replicas": _edit(outputs, "replicas.csv", "intact"),
        "weights": _with(outputs, DENSE_FILE, {**dense, last: flipped}),
        "index": {**outputs, f"{OUTPUT}model.index.json": json.dumps(index).encode()},
        "package": {**outputs, f"{OUTPUT}notes.txt": b"done\n"},
    }


def _edit(outputs: Files, name: str, column: str) -> dict[str, bytes]:
    """Return the outputs with the last cell of a column changed."""
    path = OUTPUT + name
    table = decode(outputs[path], path)
    position, last = table.column(column), list(table.rows[-1])
    last[position] = str(last[position]).translate(_TURNED)
    return {**outputs, path: encode(Table(table.columns, (*table.rows[:-1], tuple(last))), path)}


def _with(outputs: Files, path: str, tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    return {**outputs, path: encode_shard(Archive({}, tensors))}


def counterfactuals(sealed: Sealed, files: Files, outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return answers of somebody who skipped one rule; each must fail."""
    world: Checkpoint = sealed.world
    dense, experts = (decode_shard(outputs[path]).tensors for path in (DENSE_FILE, EXPERT_FILE))
    parameters = dict(names(world))
    placement = decode(outputs[f"{OUTPUT}placement.csv"], "placement.csv")
    status = placement.column("status")

    def renumbered(tensors: Mapping[str, Tensor], place: int, order: list[int]) -> dict[str, Tensor]:
        """Return tensors under the numbers that local order would suggest."""
        return {_numbered(name, place, order): tensor for name, tensor in tensors.items()}

    layers = _flat(world.stages)
    found = {
        "ranks by file name": _with(
            outputs,
            DENSE_FILE,
            {name: _turned(t, parameters[name].axis, world.ranks) for name, t in dense.items()},
        ),
        "padding kept": _with(
            outputs,
            DENSE_FILE,
            {
                name: _padded(tensor, world.ranks)
                if parameters[name].stages != EVERY and parameters[name].axis == 0
                else tensor
                for name, tensor in dense.items()
            },
        ),
        "layers in local order": _with(outputs, DENSE_FILE, renumbered(dense, 0, layers)),
        "experts in local order": _with(outputs, EXPERT_FILE, renumbered(experts, 1, _flat(world.experts))),
        "stored formats kept": _with(
            outputs,
            DENSE_FILE,
            {
                name: cast(t, "F64") if parameters[name].axis == UNDIVIDED and t.dtype == "F32" else t
                for name, t in dense.items()
            },
        ),
        "diverged copy taken": _with(outputs, DENSE_FILE, {**dense, **_diverged(sealed, dense)}),
        "every shard current": {
            **outputs,
            f"{OUTPUT}placement.csv": encode(
                Table(placement.columns, tuple((*row[:status], "current") for row in placement.rows)),
                "placement.csv",
            ),
        },
        "claimed steps believed": _claimed(files, outputs, placement),
        "old index trusted": {
            **outputs,
            f"{OUTPUT}model.index.json": json.dumps(
                {
                    "metadata": json.loads(outputs[f"{OUTPUT}model.index.json"])["metadata"],
                    "weight_map": {
                        name: sources[0] for name, sources in json.loads(files[f"{INPUT}index.json"]).items()
                    },
                }
            ).encode(),
        },
        "last logged step": {
            **outputs,
            f"{OUTPUT}report.json": outputs[f"{OUTPUT}report.json"].replace(
                b'"step": %d' % world.step, b'"step": %d' % max(shard.step for shard in world.old)
            ),
        },
    }
    return {name: changed for name, changed in found.items() if changed != outputs}


def _flat(groups: tuple[tuple[int, ...], ...]) -> list[int]:
    return [number for group in groups for number in group]


def _numbered(name: str, place: int, order: list[int]) -> str:
    segments = name.split(".")
    places = [position for position, segment in enumerate(segments) if segment.isdigit()]
    if place < len(places):
        segments[places[place]] = str(order.index(int(segments[places[place]])))
    return ".".join(segments)


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor's raw elements in its shape."""
    width = len(tensor.data) // int(np.prod(tensor.shape))
    return np.frombuffer(tensor.data, f"V{width}").reshape(tensor.shape)


def _turned(tensor: Tensor, axis: int, ranks: int) -> Tensor:
    """Return a divided tensor with its parts turned round by one."""
    if axis == UNDIVIDED:
        return tensor
    step = -(-tensor.shape[axis] // ranks)
    return Tensor(tensor.dtype, tensor.shape, np.roll(_array(tensor), step, axis=axis).tobytes())


def _padded(tensor: Tensor, ranks: int) -> Tensor:
    rows = -tensor.shape[0] % ranks
    zeros = bytes(rows * len(tensor.data) // tensor.shape[0])
    return Tensor(tensor.dtype, (tensor.shape[0] + rows, *tensor.shape[1:]), tensor.data + zeros)


def _diverged(sealed: Sealed, dense: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a replicated tensor as a shard of the plan holds it after the change, under its global name."""
    for defect in sealed.plan:
        if defect.kind == "divergent copies":
            for _, old, new in defect.parameters["tensors"]:
                for name, tensor in dense.items():
                    if tensor.data == base64.b64decode(old):
                        return {name: Tensor(tensor.dtype, tensor.shape, base64.b64decode(new))}
    return {}


def _claimed(files: Files, outputs: Files, placement: Table) -> dict[str, bytes]:
    """Return the outputs with the step of every shard as its metadata claims it."""
    claimed = {
        path.rpartition("/")[2]: decode_shard(data).metadata["step"]
        for path, data in files.items()
        if path.endswith(".safetensors")
    }
    step = placement.column("step")
    rows = tuple((*row[:step], claimed[str(row[0])], *row[step + 1 :]) for row in placement.rows)
    return {**outputs, f"{OUTPUT}placement.csv": encode(Table(placement.columns, rows), "placement.csv")}
