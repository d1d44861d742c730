"""Rewrites of an answer that mean the same: none may change its grade.

What means the same follows from the formats of the deliverables. Delimited text: rows in another order (unless order is
part of the answer), carriage returns at line ends, no line end at the end, every cell quoted. JSON: other spaces, keys
in another order, escapes for letters beyond ASCII. safetensors: a header with other spaces and order of keys.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from .world import Deliverable, Files

Rewrite = Callable[[bytes], bytes]


def transforms(deliverables: Sequence[Deliverable], outputs: Files) -> dict[str, dict[str, bytes]]:
    """Return, by name, the outputs with every file to which a rewrite applies rewritten; no rewrite changes nothing."""
    found: dict[str, dict[str, bytes]] = {}
    for name in dict.fromkeys(name for one in deliverables for name in _rewrites(one)):
        changed = {
            one.path: _rewrites(one)[name](outputs[one.path])
            for one in deliverables
            if name in _rewrites(one)
        }
        if any(outputs[path] != data for path, data in changed.items()):
            found[name] = {**outputs, **changed}
    return found


def _rewrites(one: Deliverable) -> dict[str, Rewrite]:
    """Return the rewrites that apply to a deliverable."""
    if one.format in ("csv", "tsv"):
        delimiter = "," if one.format == "csv" else "\t"
        made: dict[str, Rewrite] = {
            "carriage returns": lambda data: data.replace(b"\n", b"\r\n"),
            "no line end at the end": lambda data: data.removesuffix(b"\n"),
            "every cell quoted": lambda data: _quoted(data, delimiter),
        }
        return made if one.ordered else made | {"rows reversed": _header_then_reversed}
    if one.format == "json":
        return {
            "compact": _compact,
            "keys reversed": _keys_reversed,
            "spaces": lambda data: b"\n " + data + b"\t\n",
        }
    if one.format == "jsonl" and not one.ordered:
        return {"rows reversed": lambda data: b"".join(reversed(data.splitlines(keepends=True)))}
    if one.format == "safetensors":
        return {"header rewritten": _header_rewritten}
    return {}


def _quoted(data: bytes, delimiter: str) -> bytes:
    out = io.StringIO()
    rows = csv.reader(io.StringIO(data.decode(), newline=""), delimiter=delimiter)
    csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue().encode()


def _header_then_reversed(data: bytes) -> bytes:
    header, *rows = data.splitlines(keepends=True)
    return header + b"".join(reversed(rows))


def _compact(data: bytes) -> bytes:
    return json.dumps(json.loads(data), separators=(",", ":"), ensure_ascii=True).encode()


def _keys_reversed(data: bytes) -> bytes:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(entry) for entry in value] if isinstance(value, list) else value

    return json.dumps(turned(json.loads(data)), indent=2).encode()


def _header_rewritten(data: bytes) -> bytes:
    """Return a safetensors file with its header's keys reversed and padded; tensors stay where they are."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    text = json.dumps({key: header[key] for key in reversed(header)}, indent=1).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]
