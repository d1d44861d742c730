"""Tensors on the wire: safetensors files with one canonical encoding, and exact conversions between number formats.

A tensor holds integers k; floating formats store the value k / 64, so that every value is exact in every format that
has the range. `decode(encode(...))` and `encode(decode(...))` are identities for what is encoded here; that is what
makes damage to a file exactly invertible. For rendering and damage only: the graders and the solvers read files with
means of their own.

Source: the safetensors format (8 bytes little-endian length of the header, a JSON header, the data).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from .world import WorldError

METADATA = "__metadata__"
SCALE = 64  # a power of two: k / SCALE is exact
WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1}  # bytes an element
RANGES = {
    "F64": 2**40,
    "F32": 2**20,
    "BF16": 2**8,
    "F16": 2**11,
    "I16": 2**15 - 1,
    "I8": 2**7 - 1,
}  # largest |k|
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I16": "<i2", "I8": "<i1"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as it is stored: row-major bytes, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.dtype not in WIDTHS:
            raise WorldError(f"no number format {self.dtype!r}: there are {', '.join(WIDTHS)}")
        if len(self.data) != prod(self.shape) * WIDTHS[self.dtype]:
            raise WorldError(f"{len(self.data)} bytes are no {self.dtype} tensor of shape {self.shape}")


@dataclass(frozen=True, slots=True)
class Archive:
    """What a file holds: metadata and tensors by key, both in the order of the file."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, Tensor]


def encode(archive: Archive) -> bytes:
    """Return the canonical bytes: metadata first, keys in order, data without gaps, header padded to 8 bytes."""
    header: dict[str, object] = {METADATA: dict(archive.metadata)} if archive.metadata else {}
    end = 0
    for key, tensor in archive.tensors.items():
        begin, end = end, end + len(tensor.data)
        header[key] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(one.data for one in archive.tensors.values())


def decode(data: bytes) -> Archive:
    """Return what `encode` wrote."""
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    metadata = header.pop(METADATA, {})
    return Archive(
        metadata,
        {
            key: Tensor(told["dtype"], tuple(told["shape"]), body[slice(*told["data_offsets"])])
            for key, told in header.items()
        },
    )


def pack(numbers: Sequence[int] | np.ndarray, dtype: str) -> bytes:
    """Return integers k as bytes of a format. Raises WorldError when one is out of the format's exact range."""
    whole = np.asarray(numbers, dtype=np.int64)
    if whole.size and np.abs(whole).max() > RANGES[dtype]:
        raise WorldError(f"{np.abs(whole).max()} is out of the exact range of {dtype}, {RANGES[dtype]}")
    if dtype.startswith("I"):
        return whole.astype(_NUMPY[dtype]).tobytes()
    if dtype == "BF16":  # the upper half of the single-precision bits
        return ((whole / SCALE).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return (whole / SCALE).astype(_NUMPY[dtype]).tobytes()


def unpack(data: bytes, dtype: str) -> np.ndarray:
    """Return the integers k, shape (n,), that `pack` wrote. Raises WorldError for bytes that it did not write."""
    if dtype.startswith("I"):
        return np.frombuffer(data, _NUMPY[dtype]).astype(np.int64)
    if dtype == "BF16":
        raw = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        raw = np.frombuffer(data, _NUMPY[dtype])
    scaled = raw.astype(np.float64) * SCALE
    if not np.array_equal(scaled, np.rint(scaled)):
        raise WorldError(f"a {dtype} tensor holds values that are no multiple of 1/{SCALE}")
    return scaled.astype(np.int64)


def cast(tensor: Tensor, dtype: str) -> Tensor:
    """Return the tensor in another format of its kind (F to F, I to I), value by value the same."""
    if tensor.dtype.startswith("I") != dtype.startswith("I"):
        raise WorldError(f"{tensor.dtype} and {dtype} scale values differently")
    return Tensor(dtype, tensor.shape, pack(unpack(tensor.data, tensor.dtype), dtype))
