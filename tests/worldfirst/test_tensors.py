"""Tensors on the wire: known bit patterns, exact inverses, the safetensors package reads what we write."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize

from truthfirst.worldfirst.tensors import RANGES, Archive, Tensor, cast, decode, encode, pack, unpack
from truthfirst.worldfirst.world import WorldError

# IEEE 754 and bfloat16 bits of 1, 2.5 and -0.015625, little-endian, from the published layouts
BITS = {
    "F64": "000000000000f03f000000000000044000000000000090bf",
    "F32": "0000803f00002040000080bc",
    "BF16": "803f204080bc",
    "F16": "003c004100a4",
    "I16": "4000a000ffff",
}


@pytest.mark.parametrize(("dtype", "bits"), BITS.items())
def test_known_bits(dtype, bits):
    assert pack([64, 160, -1], dtype).hex() == bits
    assert unpack(bytes.fromhex(bits), dtype).tolist() == [64, 160, -1]


@given(st.sampled_from(sorted(RANGES)), st.data())
def test_packing_is_exact_over_the_whole_range(dtype, data):
    numbers = data.draw(st.lists(st.integers(-RANGES[dtype], RANGES[dtype]), max_size=20))
    assert unpack(pack(numbers, dtype), dtype).tolist() == numbers


@pytest.mark.parametrize("dtype", sorted(RANGES))
def test_a_number_beyond_the_exact_range_is_refused(dtype):
    with pytest.raises(WorldError, match="exact range"):
        pack([RANGES[dtype] + 1], dtype)


@pytest.mark.parametrize(("narrow", "wide"), [("F32", "F64"), ("BF16", "F32"), ("F16", "F32"), ("I8", "I16")])
def test_casting_there_and_back_changes_nothing(narrow, wide):
    numbers = np.arange(-100, 100)
    tensor = Tensor(narrow, (200,), pack(numbers, narrow))
    wider = cast(tensor, wide)
    assert unpack(wider.data, wide).tolist() == numbers.tolist()
    assert cast(wider, narrow) == tensor
    with pytest.raises(WorldError, match="scale values"):
        cast(tensor, "I8" if narrow != "I8" else "F32")


def test_the_safetensors_package_reads_what_is_written():
    archive = Archive(
        {"step": "7"},
        {"b": Tensor("I8", (3,), b"\1\2\3"), "a": Tensor("BF16", (1, 2), pack([64, -3], "BF16"))},
    )
    data = encode(archive)
    assert decode(data) == archive
    assert encode(decode(data)) == data
    assert int.from_bytes(data[:8], "little") % 8 == 0
    read = {
        name: (told["dtype"], tuple(told["shape"]), bytes(told["data"])) for name, told in deserialize(data)
    }
    assert read == {key: (one.dtype, one.shape, one.data) for key, one in archive.tensors.items()}


def test_a_tensor_of_the_wrong_size_or_format_is_refused():
    with pytest.raises(WorldError, match="no F32 tensor"):
        Tensor("F32", (2,), b"1234")
    with pytest.raises(WorldError, match="no number format"):
        Tensor("F8", (1,), b"1")
