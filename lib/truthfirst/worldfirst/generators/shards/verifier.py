"""The strict verifier of a checkpoint: every deliverable against the world, all or nothing.

What is right follows from the world and the defect plan alone: every shard is made anew in memory, tensor by tensor,
and the plan is followed on it. Tables are compared as multisets of rows of text, JSON as values (1.0 and true are not
1), tensors by name, format, shape and bytes; so the order of rows, keys and tensors, quoting, line ends, spaces and
safetensors metadata do not matter. What a safetensors file is the safetensors package decides.
"""

from __future__ import annotations

import base64
import copy
import csv
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from ...world import Defect, Files, Sealed, Verdict, Verify, WorldError
from .world import DENSE, EVERY, EXPERT, FIRST, UNDIVIDED, Checkpoint, Parameter, Weight, Writer

COMPONENTS = ("inventory", "tensors", "placement", "replicas", "weights", "index", "package")
_TABLES = {  # file -> (component, header)
    "inventory.csv": ("inventory", ["file", "schema", "step", "writer", "tensors", "data_bytes"]),
    "tensors.csv": ("tensors", ["file", "key", "name", "stored_dtype", "dtype", "crc32"]),
    "placement.csv": ("placement", ["file", "step", "group", "stage", "rank", "status"]),
    "replicas.csv": ("replicas", ["tensor", "copies", "intact"]),
}
_ARCHIVES = ("dense.safetensors", "experts.safetensors")
_OTHERS = {"model.index.json": "index", "provenance.jsonl": "index", "report.json": "package"}
_WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1}
_Whole = tuple[str, list[int], bytes]  # format, shape, data


def verifier(sealed: Sealed) -> Verify:
    """Return the verifier of one world."""
    truth = _Truth(sealed.world, sealed.plan)

    def verify(outputs: Files) -> Verdict:
        components, reasons = dict.fromkeys(COMPONENTS, True), []
        given = {path.removeprefix("output/"): data for path, data in outputs.items()}
        foreign = sorted(given.keys() - _TABLES.keys() - _OTHERS.keys() - set(_ARCHIVES))
        found: list[tuple[str, str, str | None]] = [("package", name, "no deliverable") for name in foreign]
        found += [
            (component, name, _rows(given.get(name), header, truth.tables[name]))
            for name, (component, header) in _TABLES.items()
        ]
        found += [("weights", name, _tensors(given.get(name), truth.archives[name])) for name in _ARCHIVES]
        found += [
            ("index", "model.index.json", _object(given.get("model.index.json"), truth.index)),
            ("index", "provenance.jsonl", _lines(given.get("provenance.jsonl"), truth.provenance)),
            ("package", "report.json", _object(given.get("report.json"), truth.report)),
        ]
        for component, name, problem in found:
            if problem is not None:
                components[component] = False
                reasons.append(f"{name!r}: {problem}")
        return Verdict(components, tuple(reasons))

    return verify


# --- comparing: each returns what is wrong, or None ---------------------------------------------------------
def _rows(data: bytes | None, header: list[str], expected: Counter[tuple[str, ...]]) -> str | None:
    if data is None:
        return "missing"
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        return f"not a table ({type(error).__name__})"
    if not lines or lines[0] != header:
        return "another header"
    found = Counter(map(tuple, lines[1:]))
    if found == expected:
        return None
    return f"{(expected - found).total()} rows missing, {(found - expected).total()} rows too many"


def _object(data: bytes | None, expected: dict[str, Any]) -> str | None:
    if data is None:
        return "missing"
    try:
        found = json.dumps(json.loads(data.decode("utf-8")), sort_keys=True)
    except (ValueError, TypeError, RecursionError) as error:
        return f"not JSON ({type(error).__name__})"
    return None if found == json.dumps(expected, sort_keys=True) else "other values"


def _lines(data: bytes | None, expected: Counter[str]) -> str | None:
    """Compare JSON lines as a multiset of values; blank lines do not count."""
    if data is None:
        return "missing"
    try:
        lines = [json.loads(line) for line in data.decode("utf-8").split("\n") if line.strip()]
        found = Counter(json.dumps(value, sort_keys=True) for value in lines)
    except (ValueError, TypeError, RecursionError) as error:
        return f"not JSON lines ({type(error).__name__})"
    return None if found == expected else "other lines"


def _tensors(data: bytes | None, expected: dict[str, _Whole]) -> str | None:
    if data is None:
        return "missing"
    try:
        entries = deserialize(data)
    except SafetensorError as error:
        return f"not a safetensors file ({error})"
    found = dict(entries)
    if found.keys() != expected.keys():
        return f"{len(expected.keys() - found.keys())} tensors missing, {len(found.keys() - expected.keys())} too many"
    for name, (dtype, shape, content) in expected.items():
        entry = found[name]
        if entry["dtype"] != dtype or list(entry["shape"]) != shape:
            return f"{name} is {entry['dtype']} {list(entry['shape'])}, not {dtype} {shape}"
        if entry["data"] != content:
            return f"{name} has other values"
    return None


# --- what is right ----------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Stored:
    """A tensor of a shard: its local and its global name, format declared and stored, checksum, elements."""

    name: str
    tensor: str
    parameter: Parameter
    stored: str
    crc: str
    count: int


@dataclass(slots=True)
class _Shard:
    """A shard in memory: whose it is, and what it claims and holds by key."""

    of: tuple[int, Writer]
    claims: dict[str, str]
    tensors: dict[str, _Stored]


class _Truth:
    """Everything that is expected."""

    def __init__(self, world: Checkpoint, plan: tuple[Defect, ...]) -> None:
        self.world = world
        self.arrays = {weight.name: _array(weight) for weight in world.weights}
        self.logged: dict[str, str] = {}  # checksum of each whole tensor that is saved undivided
        shards = {
            f"{world.run}-{number:05d}.safetensors": self._saved(writer)
            for number, writer in enumerate(world.writers)
        }
        by_id = {writer.id: writer for writer in world.writers}
        shards |= {
            f"{old.step}-{old.writer}.safetensors": self._saved(by_id[old.writer], old.step, old.values)
            for old in world.old
        }
        for defect in plan:
            shards = _follow(shards, defect, self)
        self.shards = dict(sorted(shards.items()))
        self.status = self._statuses()
        current = {file: shard for file, shard in self.shards.items() if self.status[file] == "current"}
        self.archives, parameters = self._archives()
        self.tables = self._tables(current)
        self.index, self.provenance = self._index(current, parameters)
        self.report = self._report()

    def _saved(
        self, writer: Writer, step: int | None = None, values: tuple[tuple[int, ...], ...] = ()
    ) -> _Shard:
        """Return the shard of a writer, at the step of the world or with the values of another."""
        world, tensors = self.world, {}
        for number, (local, name, parameter) in enumerate(_held(world, writer)):
            array = self.arrays[name]
            if parameter.group == DENSE and parameter.axis != UNDIVIDED:
                lack = -array.shape[parameter.axis] % world.ranks
                widths = [(0, lack * (place == parameter.axis)) for place in range(array.ndim)]
                array = np.split(np.pad(array, widths), world.ranks, axis=parameter.axis)[writer.rank]
            crc = _crc(_bytes(array if step is None else np.array(values[number]), parameter.dtype))
            if step is None:
                self.logged[name] = crc
            tensors[local] = _Stored(local, name, parameter, parameter.dtype, crc, array.size)
        step = world.step if step is None else step
        claims = {"schema": str(max(schema.version for schema in world.schemas)), "step": str(step)}
        return _Shard((step, writer), claims | {"writer": writer.id}, tensors)

    def _statuses(self) -> dict[str, str]:
        found, seen = {}, set()
        for file, shard in self.shards.items():
            step, writer = shard.of
            if step != self.world.step:
                found[file] = "stale" if step < self.world.step else "partial"
            else:
                found[file] = "duplicate" if writer.id in seen else "current"
                seen.add(writer.id)
        return found

    def _tables(self, current: dict[str, _Shard]) -> dict[str, Counter[tuple[str, ...]]]:
        inventory, tensors, placement = [], [], []
        for file, shard in self.shards.items():
            size = sum(one.count * _WIDTHS[one.stored] for one in shard.tensors.values())
            told = (shard.claims[field] for field in ("schema", "step", "writer"))
            inventory.append((file, *told, str(len(shard.tensors)), str(size)))
            tensors += [
                (file, key, one.name, one.stored, one.parameter.dtype, one.crc)
                for key, one in shard.tensors.items()
            ]
            step, writer = shard.of
            where = (writer.group, str(writer.stage), str(writer.rank))
            placement.append((file, str(step), *where, self.status[file]))
        copies: Counter[str] = Counter()
        intact: Counter[str] = Counter()
        for shard in current.values():
            for one in shard.tensors.values():
                if _replicated(one.parameter):
                    copies[one.tensor] += 1
                    intact[one.tensor] += one.crc == self.logged[one.tensor]
        replicas = [(name, str(count), str(intact[name])) for name, count in copies.items()]
        return {
            "inventory.csv": Counter(inventory),
            "tensors.csv": Counter(tensors),
            "placement.csv": Counter(placement),
            "replicas.csv": Counter(replicas),
        }

    def _archives(self) -> tuple[dict[str, dict[str, _Whole]], dict[str, Parameter]]:
        parameters = {
            name: parameter
            for writer in self.world.writers
            for _, name, parameter in _held(self.world, writer)
        }
        made: dict[str, dict[str, _Whole]] = {name: {} for name in _ARCHIVES}
        for name, array in self.arrays.items():
            parameter = parameters[name]
            content = _bytes(array, parameter.dtype)
            made[_ARCHIVES[parameter.group == EXPERT]][name] = (parameter.dtype, list(array.shape), content)
        return made, parameters

    def _index(
        self, current: dict[str, _Shard], parameters: dict[str, Parameter]
    ) -> tuple[dict[str, Any], Counter[str]]:
        sources: dict[str, list[tuple[int, str]]] = {}
        for file, shard in current.items():
            for one in shard.tensors.values():
                if not _replicated(one.parameter):
                    sources.setdefault(one.tensor, []).append((shard.of[1].rank, file))
                elif one.crc == self.logged[one.tensor]:
                    sources.setdefault(one.tensor, [(0, file)])
        wholes = {name: (file, whole) for file, held in self.archives.items() for name, whole in held.items()}
        lines = [
            {"tensor": name, "crc32": _crc(whole[2]), "sources": [file for _, file in sorted(sources[name])]}
            for name, (_, whole) in wholes.items()
        ]
        index = {
            "metadata": {"total_size": sum(len(whole[2]) for _, whole in wholes.values())},
            "weight_map": {name: file for name, (file, _) in wholes.items()},
        }
        return index, Counter(json.dumps(line, sort_keys=True) for line in lines)

    def _report(self) -> dict[str, Any]:
        every = [(key, one) for shard in self.shards.values() for key, one in shard.tensors.items()]
        return {
            "step": self.world.step,
            "shards": Counter(self.status.values()),
            "renamed": sum(key != one.name for key, one in every),
            "converted": sum(one.stored != one.parameter.dtype for _, one in every),
            "tensors": len(self.arrays),
            "parameters": sum(array.size for array in self.arrays.values()),
        }


def _follow(shards: dict[str, _Shard], defect: Defect, truth: _Truth) -> dict[str, _Shard]:
    """Return the shards, by file name, after a defect. Raises WorldError for an operator that is not known here."""
    file, told = defect.path.rpartition("/")[2], defect.parameters
    if defect.operator == "permute_rows":  # the log's order: nothing depends on it
        return shards
    if defect.operator == "move_file":
        return {
            told["to"].rpartition("/")[2] if name == file else name: shard for name, shard in shards.items()
        }
    if defect.operator == "copy_file":
        return {**shards, file: copy.deepcopy(shards[told["source"].rpartition("/")[2]])}
    if defect.operator == "permute_files":
        names = [name.rpartition("/")[2] for name in told["names"]]
        return {name: shards[names[position]] for name, position in zip(names, told["order"], strict=True)}
    shard = shards[file]
    if defect.operator == "edit_metadata":
        shard.claims[told["field"]] = told["new"]
    elif defect.operator == "rename_tensors":
        shard.tensors = {told["names"].get(key, key): one for key, one in shard.tensors.items()}
    elif defect.operator == "cast_tensors":
        for key, _, new in told["casts"]:
            shard.tensors[key].stored = new
    elif defect.operator == "replace_tensors":
        for key, _, new in told["tensors"]:
            shard.tensors[key].crc = _crc(base64.b64decode(new))
    elif defect.operator == "delete_tensors":
        for _, key, *_ in told["tensors"]:
            del shard.tensors[key]
    elif defect.operator == "insert_tensors":
        stage = shard.of[1].stage
        beside = {
            local: (name, parameter)
            for writer in truth.world.writers
            if writer.stage == stage
            for local, name, parameter in _held(truth.world, writer)
        }
        for _, key, dtype, shape, data in told["tensors"]:
            shard.tensors[key] = _Stored(key, *beside[key], dtype, _crc(base64.b64decode(data)), prod(shape))
    else:
        raise WorldError(f"the verifier does not know the operator {defect.operator!r}")
    return shards


def _held(world: Checkpoint, writer: Writer) -> Iterator[tuple[str, str, Parameter]]:
    """Yield (local name, global name, parameter) of what a writer saves, in order."""
    for parameter in world.parameters:
        if parameter.group != writer.group:
            continue
        if parameter.stages != EVERY:
            if writer.stage == (0 if parameter.stages == FIRST else len(world.stages) - 1):
                yield parameter.name, parameter.name, parameter
            continue
        experts = list(enumerate(world.experts[writer.rank])) if writer.group == EXPERT else [(0, 0)]
        for layer in enumerate(world.stages[writer.stage]):
            for expert in experts:
                local, name = (
                    parameter.name.replace("*", str(layer[side]), 1).replace("*", str(expert[side]))
                    for side in (0, 1)
                )
                yield local, name, parameter


def _replicated(parameter: Parameter) -> bool:
    return parameter.group == DENSE and parameter.axis == UNDIVIDED


def _array(weight: Weight) -> np.ndarray:
    return np.array(weight.values).reshape(weight.shape)


def _bytes(array: np.ndarray, dtype: str) -> bytes:
    """Return integers k, or k / 64 in floating formats, as little-endian bytes."""
    if dtype == "I8":
        return array.astype("<i1").tobytes()
    exact = array / 64
    if dtype == "BF16":
        return exact.astype("<f4").view("<u2")[..., 1::2].tobytes()  # the upper half of every number
    return exact.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def _crc(content: bytes) -> str:
    return format(zlib.crc32(content), "08x")
