"""Records: one text a value, whole files or none, and damage that is named."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.records import (
    RecordError,
    append_jsonl,
    canonical_json,
    content_hash,
    read_jsonl,
    write_atomic,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=5), part, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_canonical_json_is_read_back_and_is_one_line(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert "\n" not in text
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(max_size=5), st.integers(), min_size=2, max_size=6))
def test_canonical_json_ignores_the_order_of_keys(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": math.nan}])
def test_canonical_json_refuses_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json(value)


def test_content_hash_is_sha256() -> None:
    # FIPS 180-4, appendix: the digest of "abc" is ba7816bf 8f01cfea ...
    assert content_hash(b"abc") == "ba7816bf8f01cfea"
    assert content_hash(b"abc", 8) == "ba7816bf"
    assert content_hash({"b": 1, "a": 2}) == content_hash(b'{"a":2,"b":1}')


# --- whole files ------------------------------------------------------------------------------------------
def test_write_atomic_replaces_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    write_atomic(path, "old")
    write_atomic(path, b"new")
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["record.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.usefixtures("full_disk")
def test_write_atomic_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_atomic(tmp_path / "record.json", "text")
    assert os.listdir(tmp_path) == []


def test_write_atomic_on_a_full_disk_keeps_the_old_file(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "record.json"
    write_atomic(path, "old")
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_write_atomic_cleans_up_when_it_cannot_rename(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_atomic(tmp_path / "taken", "text")
    assert os.listdir(tmp_path) == ["taken"]


# --- append-only files ------------------------------------------------------------------------------------
def test_append_jsonl_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    records = [{"n": n, "text": "zwölf\nlines\u2028"} for n in range(3)]
    for record in records:
        append_jsonl(path, record)
    assert list(read_jsonl(path)) == records
    assert path.read_bytes().count(b"\n") == 3


def test_append_jsonl_on_a_full_disk_cuts_back(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "log.jsonl"
    append_jsonl(path, {"n": 1})
    before = path.read_bytes()
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        append_jsonl(path, {"n": 2})
    assert path.read_bytes() == before


def test_append_jsonl_cuts_back_a_line_that_fits_only_in_part(tmp_path: Path) -> None:
    # A real partial write: the kernel takes 10 more bytes and then refuses, as a disk does when it fills up.
    resource = pytest.importorskip("resource")
    path = tmp_path / "log.jsonl"
    append_jsonl(path, {"n": 1})
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(OSError):
            append_jsonl(path, {"text": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    append_jsonl(path, {"n": 2})
    assert list(read_jsonl(path)) == [{"n": 1}, {"n": 2}]


def test_append_jsonl_writes_nothing_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    append_jsonl(path, {"n": 1})
    before = path.read_bytes()
    for value in (math.nan, {1, 2}, "\ud800"):
        with pytest.raises((ValueError, TypeError)):
            append_jsonl(path, value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [b'{"n": 2', b"\xff\xfe\x00", b"[" * 100_000, b"7" * 5_000, b"not json", b'{"n": 2}{"n": 3}'],
    ids=["cut", "undecodable", "nested", "huge-number", "text", "two-in-one"],
)
def test_read_jsonl_names_file_and_line_of_the_damage(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n": 1}\n\n' + damage + b"\n")
    records = read_jsonl(path)
    assert next(records) == {"n": 1}
    with pytest.raises(RecordError, match=r"log\.jsonl, line 3: not a JSON record"):
        next(records)


def test_read_jsonl_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"missing\.jsonl: cannot be read"):
        list(read_jsonl(tmp_path / "missing.jsonl"))
    with pytest.raises(RecordError, match="cannot be read"):
        list(read_jsonl(tmp_path))
