"""The progress of a checkpoint: twelve nodes, each graded against the world in exact fractions.

A table is graded by rows: c = max(0, right - wrong) / n, where a row is right when it is an expected one that was not
yet counted, and wrong when it is anything else; so c = 1 exactly when the rows are the expected ones, and spraying
guesses earns nothing. So with the lines of the provenance. Rows that need no repair (a key that is the name already, a
replicated tensor that nothing happened to) do not count as right but are missed when they are not there. Of things with
a name of their own (tensors, entries of JSON) those with a foreign name are wrong. What a safetensors file is the
safetensors package decides. `progress_truth.py` says what is expected.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from safetensors import SafetensorError, deserialize

from ...world import Files, Grade, Node, Sealed
from .progress_truth import Row, Truth

NODES = (
    Node("inventory", 2, "inventory-shards"),
    Node("names", 2, "normalize-tensors", ("inventory",)),
    Node("checksums", 3, "normalize-tensors", ("names",)),
    Node("ranks", 3, "place-shards", ("checksums",)),
    Node("steps", 2, "place-shards", ("checksums",)),
    Node("replicas", 2, "settle-replicas", ("ranks", "steps")),
    Node("divided", 4, "merge-dense", ("ranks", "steps")),
    Node("replicated", 2, "merge-dense", ("replicas",)),
    Node("experts", 3, "merge-experts", ("ranks", "steps")),
    Node("index", 1, "index-weights", ("divided", "replicated", "experts")),
    Node("provenance", 2, "index-weights", ("divided", "replicated", "experts")),
    Node("report", 1, "package-report", ("index", "provenance")),
)
_HEADERS = {
    "inventory.csv": "file,schema,step,writer,tensors,data_bytes",
    "tensors.csv": "file,key,name,stored_dtype,dtype,crc32",
    "placement.csv": "file,step,group,stage,rank,status",
    "replicas.csv": "tensor,copies,intact",
}
_FILES = {
    *_HEADERS,
    "dense.safetensors",
    "experts.safetensors",
    "model.index.json",
    "provenance.jsonl",
    "report.json",
}


def scorer(sealed: Sealed) -> Grade:
    """Return the scorer of one world."""
    truth = Truth(sealed.world, sealed.plan)

    def grade(outputs: Files) -> dict[str, Fraction]:
        def given(name: str) -> bytes:
            return outputs.get(f"output/{name}", b"")

        tables = {name: _read(given(name), header) for name, header in _HEADERS.items()}
        tensors, placement = tables["tensors.csv"], tables["placement.csv"]
        dense, experts = (_tensors(given(name)) for name in ("dense.safetensors", "experts.safetensors"))
        return {
            "inventory": _rows_score(tables["inventory.csv"], truth.inventory),
            "names": _rows_score(_columns(tensors, 0, 1, 2), truth.names, truth.names_as_stored),
            "checksums": _rows_score(tensors, truth.tensors),
            "ranks": _rows_score(_columns(placement, 0, 2, 3, 4), truth.ranks),
            "steps": _rows_score(_columns(placement, 0, 1, 5), truth.steps),
            "replicas": _rows_score(tables["replicas.csv"], truth.replicas, truth.replicas_untouched),
            "divided": _named_score(dense, truth.divided, truth.replicated.keys()),
            "replicated": _named_score(dense, truth.replicated, truth.divided.keys()),
            "experts": _named_score(experts, truth.experts),
            "index": _index_score(_load(given("model.index.json")), truth.where, truth.size),
            "provenance": _rows_score(_lines(given("provenance.jsonl")), truth.provenance),
            "report": _report_score(_load(given("report.json")), truth.report, outputs),
        }

    return grade


# --- reading what an agent wrote: None for anything that cannot be read -------------------------------------
def _read(data: bytes, header: str) -> list[Row] | None:
    """Return the rows of a table; a row of another width becomes one that is nowhere expected."""
    columns = header.split(",")
    try:
        first, *rows = csv.reader(io.StringIO(data.decode(), newline=None))  # any line end counts as one
    except (ValueError, csv.Error):  # also: not UTF-8, and no line at all
        return None
    if first != columns:
        return None
    return [tuple(row) if len(row) == len(columns) else (None,) * len(columns) for row in rows]


def _columns(rows: list[Row] | None, *places: int) -> list[Row] | None:
    return None if rows is None else [tuple(row[place] for place in places) for row in rows]


def _load(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        return None


def _lines(data: bytes) -> list[Row] | None:
    """Return (tensor, checksum, sources) of every line; one of another shape becomes a row that is nowhere expected."""
    try:
        values = [json.loads(line) for line in data.decode().split("\n") if line and not line.isspace()]
    except (ValueError, RecursionError):
        return None
    found: list[Row] = []
    for value in values:
        shaped = isinstance(value, dict) and value.keys() == {"tensor", "crc32", "sources"}
        sources = value["sources"] if shaped else None
        if shaped and isinstance(sources, list) and all(isinstance(one, str) for one in sources):
            texts = (value["tensor"], value["crc32"])
            found.append((*texts, tuple(sources)) if all(isinstance(one, str) for one in texts) else (None,))
        else:
            found.append((None,))
    return found


def _tensors(data: bytes) -> dict[str, Row] | None:
    try:
        entries = deserialize(data)
    except SafetensorError:
        return None
    return {name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"])) for name, entry in entries}


# --- grading ------------------------------------------------------------------------------------------------
def _share(right: int, wrong: int, total: int) -> Fraction:
    return Fraction(max(0, right - wrong), total)


def _rows_score(
    rows: Sequence[Hashable] | None, expected: frozenset[Row], free: frozenset[Row] = frozenset()
) -> Fraction:
    """Grade rows; `free` holds expected rows that are no work."""
    if rows is None:
        return Fraction(0)
    found = set(rows)
    wrong = len(rows) - len(found & expected) + len(free - found)
    return _share(len(found & (expected - free)), wrong, len(expected - free))


def _named_score(
    found: Mapping[str, Row] | None, expected: Mapping[str, Row], others: Any = frozenset()
) -> Fraction:
    """Grade tensors; `others` are names that may be there and are graded elsewhere."""
    if found is None:
        return Fraction(0)
    right = sum(found.get(name) == tensor for name, tensor in expected.items())
    return _share(right, len(found.keys() - expected.keys() - others), len(expected))


def _whole(value: Any, expected: int) -> bool:
    return type(value) is int and value == expected


def _index_score(value: Any, where: Mapping[str, str], size: int) -> Fraction:
    if not isinstance(value, dict) or value.keys() != {"metadata", "weight_map"}:
        return Fraction(0)
    metadata, found = value["metadata"], value["weight_map"]
    if not isinstance(metadata, dict) or metadata.keys() != {"total_size"} or not isinstance(found, dict):
        return Fraction(0)
    right = sum(found.get(name) == file for name, file in where.items()) + _whole(
        metadata["total_size"], size
    )
    return _share(right, len(found.keys() - where.keys()), len(where) + 1)


def _report_score(value: Any, expected: Mapping[str, Any], outputs: Files) -> Fraction:
    """Grade the counts; a foreign key, or a foreign file in output/, spoils the package."""
    if any(path.removeprefix("output/") not in _FILES for path in outputs):
        return Fraction(0)
    shards = value.get("shards") if isinstance(value, dict) else None
    if (
        not isinstance(shards, dict)
        or value.keys() - expected.keys()
        or shards.keys() - expected["shards"].keys()
    ):
        return Fraction(0)
    right = sum(_whole(shards.get(status), count) for status, count in expected["shards"].items())
    right += sum(_whole(value.get(key), count) for key, count in expected.items() if key != "shards")
    return _share(right, 0, len(expected["shards"]) + len(expected) - 1)
