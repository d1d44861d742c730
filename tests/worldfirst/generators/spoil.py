"""What an agent may leave of an answer: parts of it, or the whole with something wrong in it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping

from hypothesis import strategies as st

Outputs = dict[str, bytes]
ACTS = (
    *(
        "delete",
        "cut",
        "byte",
        "insert",
        "line twice",
        "line lost",
        "reversed",
        "cell",
        "foreign",
        "number",
        "whole",
    ),
)
CELLS = st.sampled_from(
    ["", "NaN", "inf", "-0", "1.0", "true", "0", "x", " 1", "\u2028", '"', "1e999", "٣", "a\nb"]
)
PIECES = st.sampled_from([b" ", b"\n", b"\r\n", b"\r", b"\0", b'""', b"\xff", b"[" * 5_000, b"\xef\xbb\xbf"])
NUMBERS = st.sampled_from([b": 1.0", b": 01", b": true", b": NaN", b":1", b": 1e0", b': "1"'])
WHOLES = st.sampled_from(
    [b"", b"\xff", b"[" * 100_000, b"1" * 5_000, b"null", b"{}", b"[]", b"\r", b'"', b'{"a": 1}']
)


def partial(outputs: Outputs, parts: Mapping[str, str], done: set[str]) -> Outputs:
    """Return what somebody has who did exactly these nodes.

    parts   node -> "file", "file:kind" (rows of a table by their first cell) or "file#prefix" (keys of an object)
    """
    kept: Outputs = {}
    rows: dict[str, set[str]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for node in sorted(done):
        name, colon, kind = parts[node].partition(":")
        name, mark, prefix = name.partition("#")
        path = f"output/{name}"
        kept[path] = outputs[path]
        if colon:
            rows.setdefault(path, set()).add(kind)
        if mark:
            keys[path] = (*keys.get(path, ()), *prefix.split("+"))
    for path, kinds in rows.items():
        header, *lines = outputs[path].decode().splitlines(keepends=True)
        kept[path] = "".join([header, *(line for line in lines if line.partition(",")[0] in kinds)]).encode()
    for path, prefixes in keys.items():
        told = json.loads(outputs[path])
        kept[path] = json.dumps(
            {key: value for key, value in told.items() if key.startswith(prefixes)}
        ).encode()
    return kept


def mutate(data: st.DataObject, outputs: Outputs) -> Outputs:
    """Change an answer in one way."""
    path, act = data.draw(st.sampled_from(sorted(outputs))), data.draw(st.sampled_from(ACTS))
    content = outputs[path]
    lines = content.splitlines(keepends=True)
    place, number = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, max(0, len(lines) - 1)))
    if act == "delete":
        return {name: kept for name, kept in outputs.items() if name != path}
    if act == "foreign":
        return {
            **outputs,
            data.draw(st.sampled_from(["output/x", "output/deep/" + path.rpartition("/")[2]])): content,
        }
    if act == "cut":
        content = content[:place]
    elif act == "byte":
        content = content[:place] + bytes([data.draw(st.integers(0, 255))]) + content[place + 1 :]
    elif act == "insert":
        content = content[:place] + data.draw(PIECES) + content[place:]
    elif act == "line twice":
        content = b"".join([*lines, *lines[number : number + 1]])
    elif act == "line lost":
        content = b"".join(lines[:number] + lines[number + 1 :])
    elif act == "reversed":
        content = b"".join([*lines[:1], *lines[:0:-1]])
    elif act == "cell" and lines:
        content = b"".join([*lines[:number], _celled(data, lines[number], path), *lines[number + 1 :]])
    elif act == "number":
        content = content.replace(b": 1", data.draw(NUMBERS), 1)
    elif act == "whole":
        content = data.draw(WHOLES)
    return {**outputs, path: content}


def _celled(data: st.DataObject, line: bytes, path: str) -> bytes:
    """Return a line of a table with another cell in it."""
    delimiter = "\t" if path.endswith(".tsv") else ","
    cells = line.decode("utf-8", "replace").rstrip("\n").split(delimiter)
    cells[data.draw(st.integers(0, len(cells) - 1))] = data.draw(CELLS)
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerow(cells)
    return out.getvalue().encode()
