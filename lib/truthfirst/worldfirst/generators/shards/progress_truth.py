"""What the progress of a checkpoint is graded against: the plan is asked what became of every tensor of every shard.

Belongs to `progress.py` alone. Bytes are made with struct and cut as bytes, so that nothing here is done as the
verifier does it.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ...world import Defect
from .world import DENSE, EVERY, EXPERT, LAST, UNDIVIDED, Checkpoint, Parameter, Writer

Row = tuple[Any, ...]
_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1}


# --- the plan, asked by tensor ------------------------------------------------------------------------------
class _Damage:
    """What the plan did to each shard and tensor, under the shard's number before the files were exchanged."""

    def __init__(self, plan: tuple[Defect, ...]) -> None:
        self.moved: dict[str, str] = {}  # <step>-<writer> -> file
        self.copied: dict[str, str] = {}  # file -> what it is a copy of
        self.final: dict[str, str] = {}  # file -> its name in the end
        self.claims: dict[tuple[str, str], str] = {}
        self.gone: set[tuple[str, str]] = set()
        self.changed: dict[tuple[str, str], str] = {}  # -> checksum
        self.foreign: dict[str, list[tuple[str, int, str]]] = defaultdict(
            list
        )  # -> (name, elements, checksum)
        self.stored: dict[tuple[str, str], str] = {}  # -> format
        self.spelt: dict[tuple[str, str], str] = {}  # -> key
        for defect in plan:
            self._note(defect.operator, defect.path.rpartition("/")[2], defect.parameters)

    def _note(self, operator: str, file: str, told: Mapping[str, Any]) -> None:
        match operator:
            case "move_file":
                self.moved[file.removesuffix(".safetensors")] = told["to"].rpartition("/")[2]
            case "copy_file":
                self.copied[file] = told["source"].rpartition("/")[2]
            case "permute_files":
                names = [path.rpartition("/")[2] for path in told["names"]]
                self.final = {
                    names[position]: name for name, position in zip(names, told["order"], strict=True)
                }
            case "edit_metadata":
                self.claims[file, told["field"]] = told["new"]
            case "delete_tensors":
                self.gone |= {(file, key) for _, key, *_ in told["tensors"]}
            case "replace_tensors":
                self.changed |= {
                    (file, key): _checksum(base64.b64decode(new)) for key, _, new in told["tensors"]
                }
            case "insert_tensors":
                for _, key, _, shape, data in told["tensors"]:
                    self.foreign[file].append((key, prod(shape), _checksum(base64.b64decode(data))))
            case "cast_tensors":
                self.stored |= {(file, key): new for key, _, new in told["casts"]}
            case "rename_tensors":
                self.spelt |= {(file, old): new for old, new in told["names"].items()}


# --- the truth ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Found:
    """A tensor that lies in a shard: key, local name, global name, parameter, stored format, checksum, elements."""

    key: str
    name: str
    tensor: str
    parameter: Parameter
    stored: str
    crc: str
    size: int

    @property
    def replicated(self) -> bool:
        return self.parameter.group == DENSE and self.parameter.axis == UNDIVIDED


class Truth:
    """What each node is graded against."""

    def __init__(self, world: Checkpoint, plan: tuple[Defect, ...]) -> None:
        self.world, self.damage = world, _Damage(plan)
        self.parameters = {parameter.name: parameter for parameter in world.parameters}
        self.packed = {
            weight.name: (weight.shape, _packed(weight.values, self._parameter(weight.name).dtype))
            for weight in world.weights
        }
        shards = self._shards()
        statuses = dict(zip(sorted(shards), self._statuses(shards), strict=True))
        self.steps = frozenset((file, str(shards[file][0]), status) for file, status in statuses.items())
        self.ranks = frozenset(
            (file, w.group, str(w.stage), str(w.rank)) for file, (_, w, _, _) in shards.items()
        )
        self.inventory = frozenset(
            (file, *claims, str(len(found)), str(sum(one.size * _BYTES[one.stored] for one in found)))
            for file, (_, _, claims, found) in shards.items()
        )
        listed = [(file, one) for file, (_, _, _, found) in shards.items() for one in found]
        self.tensors = frozenset(
            (file, one.key, one.name, one.stored, one.parameter.dtype, one.crc) for file, one in listed
        )
        self.names = frozenset((file, one.key, one.name) for file, one in listed)
        self.names_as_stored = frozenset(row for row in self.names if row[1] == row[2])
        current = {file: shards[file] for file, status in sorted(statuses.items()) if status == "current"}
        self._wholes()
        self._copies(current)
        self.provenance = self._provenance(current)
        counts: dict[str, int] = defaultdict(int)
        for status in statuses.values():
            counts[status] += 1
        self.report = {
            "step": world.step,
            "shards": dict(counts),
            "renamed": len(self.names - self.names_as_stored),
            "converted": sum(one.stored != one.parameter.dtype for _, one in listed),
            "tensors": len(world.weights),
            "parameters": sum(len(weight.values) for weight in world.weights),
        }

    def _parameter(self, name: str) -> Parameter:
        return self.parameters[".".join("*" if segment.isdigit() else segment for segment in name.split("."))]

    def _wholes(self) -> None:
        """Note the whole tensors by kind, where they belong, and how many bytes they have."""
        self.divided: dict[str, Row] = {}
        self.replicated: dict[str, Row] = {}
        self.experts: dict[str, Row] = {}
        for name, (shape, data) in self.packed.items():
            parameter = self._parameter(name)
            undivided = self.replicated if parameter.axis == UNDIVIDED else self.divided
            kind = self.experts if parameter.group == EXPERT else undivided
            kind[name] = (parameter.dtype, shape, data)
        self.where = {
            name: "experts.safetensors" if name in self.experts else "dense.safetensors"
            for name in self.packed
        }
        self.size = sum(len(data) for _, data in self.packed.values())

    def _copies(self, current: Mapping[str, Any]) -> None:
        """Note the replicas, and which of them nothing happened to."""
        found: dict[str, list[bool]] = defaultdict(list)
        for _, _, _, tensors in current.values():
            for one in tensors:
                if one.replicated:
                    found[one.tensor].append(one.crc == _checksum(self.packed[one.tensor][1]))
        self.replicas = frozenset((name, str(len(good)), str(sum(good))) for name, good in found.items())
        untouched = str(self.world.ranks)
        self.replicas_untouched = frozenset(row for row in self.replicas if row[1:] == (untouched, untouched))

    def _provenance(self, current: Mapping[str, Any]) -> frozenset[Row]:
        """Return (tensor, checksum, sources) of every whole tensor; `current` is in order of file names."""
        sources: dict[str, dict[int, str]] = defaultdict(dict)
        for file, (_, writer, _, tensors) in current.items():
            for one in tensors:
                whole = _checksum(self.packed[one.tensor][1])
                if not one.replicated:
                    sources[one.tensor][writer.rank] = file
                elif one.crc == whole:
                    sources[one.tensor].setdefault(0, file)
        return frozenset(
            (name, _checksum(data), tuple(file for _, file in sorted(sources[name].items())))
            for name, (_, data) in self.packed.items()
        )

    def _statuses(self, shards: Mapping[str, Any]) -> Iterator[str]:
        """Yield the status of every shard in order of file names."""
        seen = set()
        for file in sorted(shards):
            step, writer, _, _ = shards[file]
            if step == self.world.step:
                yield "duplicate" if writer in seen else "current"
                seen.add(writer)
            else:
                yield "partial" if step > self.world.step else "stale"

    def _shards(self) -> dict[str, tuple[int, Writer, tuple[str, ...], list[_Found]]]:
        """Return by final file name: step and writer, what is claimed (schema, step, writer), what lies there."""
        world, damage = self.world, self.damage
        writers = {writer.id: writer for writer in world.writers}
        origins: dict[str, tuple[int, Writer, tuple[tuple[int, ...], ...] | None]] = {
            f"{world.run}-{number:05d}.safetensors": (world.step, writer, None)
            for number, writer in enumerate(world.writers)
        }
        origins |= {
            damage.moved[f"{old.step}-{old.writer}"]: (old.step, writers[old.writer], old.values)
            for old in world.old
        }
        version = str(world.schemas[-1].version)
        made = {}
        for file in [*origins, *damage.copied]:
            source = damage.copied.get(file, file)
            step, writer, values = origins[source]
            untold = {"schema": version, "step": str(step), "writer": writer.id}
            claims = tuple(damage.claims.get((source, field), default) for field, default in untold.items())
            made[damage.final[file]] = (step, writer, claims, list(self._lying(source, writer, values)))
        return made

    def _lying(
        self, file: str, writer: Writer, values: tuple[tuple[int, ...], ...] | None
    ) -> Iterator[_Found]:
        """Yield the tensors that lie in a shard after the damage."""
        damage = self.damage
        for number, (name, tensor) in enumerate(self._saved(writer)):
            if (file, name) not in damage.gone:
                parameter = self._parameter(name)
                data = (
                    self._part(tensor, writer) if values is None else _packed(values[number], parameter.dtype)
                )
                crc = damage.changed.get((file, name)) or _checksum(data)
                yield self._after(file, name, tensor, len(data) // _BYTES[parameter.dtype], crc)
        for name, size, crc in damage.foreign.get(file, ()):
            yield self._after(file, name, self._global(name, writer), size, crc)

    def _after(self, file: str, name: str, tensor: str, size: int, crc: str) -> _Found:
        parameter = self._parameter(name)
        stored = self.damage.stored.get((file, name), parameter.dtype)
        return _Found(self.damage.spelt.get((file, name), name), name, tensor, parameter, stored, crc, size)

    def _saved(self, writer: Writer) -> Iterator[tuple[str, str]]:
        """Yield (local name, global name) of what a writer saves: by parameter, layer, expert."""
        last = len(self.world.stages) - 1
        for parameter in self.world.parameters:
            if parameter.group == writer.group:
                if parameter.stages == EVERY:
                    for layer in range(len(self.world.stages[writer.stage])):
                        held = len(self.world.experts[writer.rank]) if writer.group == EXPERT else 1
                        for expert in range(held):
                            name = parameter.name.replace("*", str(layer), 1).replace("*", str(expert))
                            yield name, self._global(name, writer)
                elif writer.stage == (last if parameter.stages == LAST else 0):
                    yield parameter.name, parameter.name

    def _global(self, name: str, writer: Writer) -> str:
        numbers = [self.world.stages[writer.stage]]
        if self._parameter(name).group == EXPERT:
            numbers.append(self.world.experts[writer.rank])
        segments = name.split(".")
        places = [place for place, segment in enumerate(segments) if segment.isdigit()]
        for place, told in zip(places, numbers, strict=False):
            segments[place] = str(told[int(segments[place])])
        return ".".join(segments)

    def _part(self, tensor: str, writer: Writer) -> bytes:
        """Return a writer's part of a whole tensor, cut out of its bytes."""
        shape, data = self.packed[tensor]
        parameter = self._parameter(tensor)
        if parameter.group == EXPERT or parameter.axis == UNDIVIDED:
            return data
        inner = len(data) // prod(shape[: parameter.axis + 1])  # bytes of one step along the axis
        width = -(-shape[parameter.axis] // self.world.ranks) * inner
        rows = prod(shape[: parameter.axis])
        line = len(data) // rows
        begin = writer.rank * width
        cut = [data[row * line + begin : row * line + min(begin + width, line)] for row in range(rows)]
        return b"".join(piece + bytes(width - len(piece)) for piece in cut)


def _packed(values: Sequence[int], dtype: str) -> bytes:
    """Return integers k, or k / 64 in floating formats, as little-endian bytes."""
    if dtype == "I8":
        return struct.pack(f"<{len(values)}b", *values)
    exact = [value / 64 for value in values]
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *exact)
    single = struct.pack(f"<{len(values)}f", *exact)
    if dtype == "F32":
        return single
    upper = bytearray(len(single) // 2)  # BF16: the two upper bytes of each number
    upper[::2], upper[1::2] = single[2::4], single[3::4]
    return bytes(upper)


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
