"""Damage to tensor shards: operators with exact inverses, in the form of `corrupt.py`.

Acts on one shard rewrite its archive in the canonical encoding; acts on files copy or exchange whole shards. Each one
checks, both ways, that it finds what the parameters say.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...corrupt import FILE_OPERATORS, TABLE_OPERATORS, CorruptionError, Operator, text64
from ...tensors import Archive, Tensor, cast, decode, encode

ArchiveAct = Callable[[Archive, dict[str, Any]], Archive]


def _on_shard(apply: ArchiveAct, invert: ArchiveAct) -> Operator:
    """Lift an act on an archive to an act on the file that holds it."""

    def lift(act: ArchiveAct) -> Callable[[dict[str, bytes], str, dict[str, Any]], dict[str, bytes]]:
        def on_files(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
            if path not in files:
                raise CorruptionError(f"no shard {path} to damage or restore")
            return files | {path: encode(act(decode(files[path]), parameters))}

        return on_files

    return Operator(lift(apply), lift(invert))


def _tensor(archive: Archive, key: str) -> Tensor:
    if key not in archive.tensors:
        raise CorruptionError(f"no tensor {key!r}: the shard holds {', '.join(archive.tensors)}")
    return archive.tensors[key]


def _edited(archive: Archive, field: str, old: str, new: str) -> Archive:
    if archive.metadata.get(field) != old:
        raise CorruptionError(f"metadata {field!r} is {archive.metadata.get(field)!r}, not {old!r}")
    return Archive({**archive.metadata, field: new}, archive.tensors)


def _renamed(archive: Archive, names: Mapping[str, str]) -> Archive:
    for key in names:
        _tensor(archive, key)
    tensors = {names.get(key, key): tensor for key, tensor in archive.tensors.items()}
    if len(tensors) != len(archive.tensors):
        raise CorruptionError(f"renaming by {dict(names)} would give two tensors one key")
    return Archive(archive.metadata, tensors)


def _cast(archive: Archive, casts: Sequence[Sequence[str]]) -> Archive:
    tensors = dict(archive.tensors)
    for key, old, new in casts:
        tensor = _tensor(archive, key)
        if tensor.dtype != old:
            raise CorruptionError(f"{key!r} is {tensor.dtype}, not {old}")
        tensors[key] = cast(tensor, new)
    return Archive(archive.metadata, tensors)


def _replaced(archive: Archive, tensors: Sequence[Sequence[str]]) -> Archive:
    made = dict(archive.tensors)
    for key, old, new in tensors:
        tensor = _tensor(archive, key)
        if tensor.data != base64.b64decode(old):
            raise CorruptionError(f"{key!r} does not hold what the plan says")
        made[key] = Tensor(tensor.dtype, tensor.shape, base64.b64decode(new))
    return Archive(archive.metadata, made)


def _inserted(archive: Archive, parameters: dict[str, Any]) -> Archive:
    entries = list(archive.tensors.items())
    for position, key, dtype, shape, data in parameters["tensors"]:
        if key in archive.tensors or not 0 <= position <= len(entries):
            raise CorruptionError(f"cannot insert {key!r} at {position} of {len(entries)} tensors")
        entries.insert(position, (key, Tensor(dtype, tuple(shape), base64.b64decode(data))))
    return Archive(archive.metadata, dict(entries))


def _deleted(archive: Archive, parameters: dict[str, Any]) -> Archive:
    entries = list(archive.tensors.items())
    for position, key, dtype, shape, data in reversed(parameters["tensors"]):
        expected = (key, Tensor(dtype, tuple(shape), base64.b64decode(data)))
        if not 0 <= position < len(entries) or entries[position] != expected:
            raise CorruptionError(f"tensor {position} is not {key!r} as the plan tells it")
        del entries[position]
    return Archive(archive.metadata, dict(entries))


def told(archive: Archive, key: str) -> list[Any]:
    """Return a tensor as insertions and deletions tell it: position, key, format, shape, data."""
    tensor = _tensor(archive, key)
    return [list(archive.tensors).index(key), key, tensor.dtype, list(tensor.shape), text64(tensor.data)]


# --- acts on files ---------------------------------------------------------------------------------------
def _copied(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
    if path in files or parameters["source"] not in files:
        raise CorruptionError(f"cannot copy {parameters['source']} to {path}")
    return {**files, path: files[parameters["source"]]}


def _uncopied(files: dict[str, bytes], path: str, parameters: dict[str, Any]) -> dict[str, bytes]:
    if path not in files or files[path] != files.get(parameters["source"]):
        raise CorruptionError(f"{path} is no copy of {parameters['source']}")
    return {name: data for name, data in files.items() if name != path}


def _permuted(files: dict[str, bytes], names: Sequence[str], order: Sequence[int]) -> dict[str, bytes]:
    if sorted(order) != list(range(len(names))) or any(name not in files for name in names):
        raise CorruptionError(f"order is no permutation of {len(names)} files, or one of them is not there")
    return files | {name: files[names[position]] for name, position in zip(names, order, strict=True)}


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


OPERATORS = {
    **TABLE_OPERATORS,
    **FILE_OPERATORS,
    "edit_metadata": _on_shard(  # a wrong claim. field, old, new
        lambda archive, told: _edited(archive, told["field"], told["old"], told["new"]),
        lambda archive, told: _edited(archive, told["field"], told["new"], told["old"]),
    ),
    "rename_tensors": _on_shard(  # schema drift. names: {old: new}, all at once
        lambda archive, told: _renamed(archive, told["names"]),
        lambda archive, told: _renamed(archive, {new: old for old, new in told["names"].items()}),
    ),
    "cast_tensors": _on_shard(  # dtype drift. casts: [[key, old, new], ...]
        lambda archive, told: _cast(archive, told["casts"]),
        lambda archive, told: _cast(archive, [(key, new, old) for key, old, new in told["casts"]]),
    ),
    "replace_tensors": _on_shard(  # diverged copies. tensors: [[key, old, new], ...], data in base64
        lambda archive, told: _replaced(archive, told["tensors"]),
        lambda archive, told: _replaced(archive, [(key, new, old) for key, old, new in told["tensors"]]),
    ),
    "insert_tensors": _on_shard(
        _inserted, _deleted
    ),  # foreign copies. tensors: [[position, key, dtype, shape, data]]
    "delete_tensors": _on_shard(
        _deleted, _inserted
    ),  # missing copies. tensors: the same, positions before, ascending
    "copy_file": Operator(_copied, _uncopied),  # a shard saved twice. source
    "permute_files": Operator(  # scrambled indices. names, order: names[i] gets what names[order[i]] held
        lambda files, path, told: _permuted(files, told["names"], told["order"]),
        lambda files, path, told: _permuted(files, told["names"], _inverse(told["order"])),
    ),
}
