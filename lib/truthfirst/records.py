"""Records: canonical JSON, content hashes, atomic files and append-only JSONL.

Everything that is stored goes through here, so that equal things have equal bytes and a crash or a
full disk leaves either the old file or the new one, never half of one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class RecordError(ValueError):
    """A stored record cannot be read; the message names file, line and reason."""


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`: sorted keys, no spaces, no NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any, length: int = 16) -> str:
    """Return the first `length` hex digits of the SHA-256 of bytes, or of a value's canonical JSON."""
    data = value if isinstance(value, bytes) else canonical_json(value).encode()
    return hashlib.sha256(data).hexdigest()[:length]


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing: a temporary sibling is synced and then renamed over `path`.

    Raises OSError as the file system does (a full disk, say), after removing the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data.encode() if isinstance(data, str) else data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame as parquet without its index, whole or not at all; see `write_atomic`."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_atomic(path, buffer.getvalue())


def append_jsonl(path: Path, record: Any) -> None:
    """Append one record as one line; on failure (a full disk) the file is cut back to what it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = (canonical_json(record) + "\n").encode()
    with open(path, "ab", buffering=0) as out:  # unbuffered: closing must not write what a full disk refused
        before = out.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[out.write(line) :]
            os.fsync(out.fileno())
        except BaseException:
            out.truncate(before)
            raise


def numbered_jsonl(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yield (line number, record) of a JSONL file; raise RecordError that names the first unreadable line."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path}, line {number}: not a JSON record ({error})") from error


def read_jsonl(path: str | Path) -> Iterator[Any]:
    """Yield the records of a JSONL file; see `numbered_jsonl`."""
    return (record for _, record in numbered_jsonl(path))
