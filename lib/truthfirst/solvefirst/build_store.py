"""The store of finished candidates that a build resumes from: append-only JSONL, one record a line.

A record counts only under the library hash that it carries (`build_work.py`); records of other hashes stay in the file
and are not read. A last line that was not written to its end is cut off. Any other line that is no whole record means
that the file was changed by somebody else: the build stops and names it, for what it lacks cannot be guessed.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ..records import RecordError, append_jsonl, read_jsonl
from .build_work import BuildError
from .candidates import Recipe

REMEDY = "take that line out, and what it stood for is done again"


class Finished(BaseModel):
    """What every record holds; `work` of build_work.py says what it means."""

    model_config = ConfigDict(strict=True, frozen=True)

    key: str
    code: str
    worker: str
    peak_mib: int
    seconds: float
    cpu_seconds: float


class Reference(Finished):
    """The choice of a cell's reference policy."""

    policy: str


class Rejected(Finished):
    """A candidate that a gate rejected."""

    recipe: dict[str, Any]
    gate: str | None
    evidence: str | None
    passed: list[str]
    dollars: float
    tokens: int


class Admitted(Rejected):
    """A candidate that passed every gate."""

    id: str
    view_hash: str
    theta: str
    theta_hash: str
    spec_hash: str
    spec: str | None
    u_star: int
    u_zero: int
    u_reach: int
    reach_policy: str
    plan: str
    decisions: int
    turns: int


def damage(record: Any) -> str | None:
    """Say what is wrong with a stored record, None where it is whole."""
    if not isinstance(record, dict):
        return "is no record"
    admitted = record.get("gate", "") is None
    kind = Reference if "policy" in record else Admitted if admitted else Rejected
    try:
        kind.model_validate(record)
        if kind is not Reference:
            Recipe(**record["recipe"])
    except ValidationError as error:
        first = error.errors()[0]
        return f"{first['loc'][0]}: {first['msg']}"
    except (TypeError, ValueError) as error:
        return f"recipe: {error}"
    return None


class Store:
    """Finished records by key: everything in the file that carries the wanted library hash.

    Raises BuildError that names the first line that is no whole record.
    """

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self.records: dict[str, dict[str, Any]] = {}
        self.stale = 0
        self.torn = _cut_torn_line(path)
        for record in self._read():
            self.records[record["key"]] = record

    def _read(self) -> Iterator[dict[str, Any]]:
        """Yield the whole records of this library, in the order of the file."""
        if not self.path.exists():
            return
        try:
            for number, record in enumerate(read_jsonl(self.path), start=1):
                if isinstance(record, dict) and record.get("code", self.code) != self.code:
                    self.stale += 1
                elif wrong := damage(record):
                    raise BuildError(f"{self.path}, record {number}: {wrong}: {REMEDY}")
                else:
                    yield record
        except RecordError as error:
            raise BuildError(f"{error}: {REMEDY}") from error

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record, on disk before in memory; raise BuildError if another library made it."""
        if record["code"] != self.code:
            raise BuildError(
                f"worker {record['worker']} runs another library or corpus ({record['code']}) than this build "
                f"({self.code}): install the same version on every node"
            )
        append_jsonl(self.path, record)
        self.records[record["key"]] = record


def _cut_torn_line(path: Path) -> bool:
    """Cut off a last line that was not written to its end (power was lost); return whether there was one."""
    if not path.exists():
        return False
    with open(path, "r+b") as file:
        data = file.read()
        if not data or data.endswith(b"\n"):
            return False
        file.truncate(data.rfind(b"\n") + 1)
    return True


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the store for one build; raise BuildError while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(
                f"another build is writing to {path}: wait for it, or name another --out"
            ) from error
        yield
