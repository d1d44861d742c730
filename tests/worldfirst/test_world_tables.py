"""Tables on the wire: one encoding each way, and back."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.worldfirst.tables import Table, decode, decode_sqlite, encode, encode_sqlite
from truthfirst.worldfirst.world import WorldError

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6) | st.sampled_from(
    ["", '"', ",", "\t", "a\nb"]
)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=5)


@pytest.mark.parametrize("path", ["t.csv", "t.tsv", "t.json", "t.jsonl", "t.log"])
@given(rows=ROWS)
def test_round_trip_of_text(path, rows):
    table = Table(("a", "b", "c"), tuple(rows))
    data = encode(table, path)
    assert decode(data, path) == table
    assert encode(decode(data, path), path) == data


def test_logfmt_quotes_what_it_must():
    table = Table(("at", "name", "url"), (("7", "add to basket", "/p?q=1"), ("8", "", "/cart")))
    data = b'at=7 name="add to basket" url="/p?q=1"\nat=8 name= url=/cart\n'
    assert encode(table, "t.log") == data
    assert decode(data, "t.log") == table


@given(
    st.lists(
        st.tuples(st.integers(), TEXT | st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=1,
    )
)
def test_json_keeps_numbers_and_null(rows):
    table = Table(("a", "b", "c"), tuple(rows))
    assert decode(encode(table, "t.json"), "t.json") == table


@given(st.dictionaries(TEXT, st.tuples(st.integers(-(2**62), 2**62), TEXT), max_size=5))
def test_sqlite_round_trip(entries):
    table = Table(
        ("k", "n", "t"), tuple((key, *entries[key]) for key in sorted(entries, key=lambda key: key.encode()))
    )
    data = encode_sqlite(
        {"one": table, "two": table}, {"one": ("TEXT", "INTEGER", "TEXT")} | {"two": ("TEXT",) * 3}
    )
    assert decode_sqlite(data)["one"] == table
    base = sqlite3.connect(":memory:")
    base.deserialize(data)
    assert base.execute("SELECT count(*) FROM two").fetchone() == (len(entries),)
    base.close()


def test_errors_name_what_is_wrong():
    with pytest.raises(WorldError, match="2 cells"):
        Table(("a", "b"), (("x",),))
    with pytest.raises(WorldError, match="no column 'c'"):
        Table(("a", "b"), ()).column("c")
    with pytest.raises(WorldError, match="would lose its columns"):
        encode(Table(("a",), ()), "t.json")
    with pytest.raises(WorldError, match="its ending must be"):
        decode(b"", "t.parquet")
    with pytest.raises(WorldError, match="differ in their keys"):
        decode(b'[{"a": 1}, {"b": 1}]', "t.json")
