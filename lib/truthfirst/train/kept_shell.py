"""A shell that remembers on disk what a command did to a workspace, so that runs share what was executed once.

Training over few lines plays the same command on the same workspace thousands of times, in every seed and every arm of
a study. `KeptShell` is `worldfirst.shell.Shell` with an SQLite file behind its memory: a step is a pure function of
(workspace, command) by that module's contract, and only steps that it would remember are kept. Several processes may
share a file. It belongs to one machine (the tools of /usr/bin are its own) and to no repository.
"""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path

from ..records import content_hash
from ..worldfirst.shell import LIMITS, Shell, Step

REMEMBERED = 200_000
_TABLES = """
CREATE TABLE IF NOT EXISTS trees (hash TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    tree TEXT, command TEXT, reply TEXT, after TEXT, reason TEXT, status INTEGER, cut INTEGER, kept INTEGER,
    PRIMARY KEY (tree, command)
);
"""


class KeptShell(Shell):
    """See the module docstring. `executed` counts what this process ran in the sandbox, `asked` every command."""

    def __init__(self, path: Path) -> None:
        super().__init__(LIMITS, REMEMBERED)
        self.asked = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._base.executescript(_TABLES)

    def run(self, tree: bytes, command: str) -> Step:
        """Run a command on a workspace, or remember what it did."""
        self.asked += 1
        before = content_hash(tree, 32)
        key = (before, command)
        if key in self.steps:
            return self.steps[key]
        if (found := self._read(*key)) is not None:
            self.steps[key] = found
            return found
        step = super().run(tree, command)
        if key in self.steps:
            self._write(before, command, step)
        return step

    def _read(self, before: str, command: str) -> Step | None:
        row = self._base.execute(
            "SELECT reply, data, after, reason, status, cut, kept FROM steps JOIN trees ON trees.hash = after "
            "WHERE tree = ? AND command = ?",
            (before, command),
        ).fetchone()
        if row is None:
            return None
        reply, data, after, reason, status, cut, kept = row
        return Step(reply, zlib.decompress(data), after, reason, status, bool(cut), bool(kept))

    def _write(self, before: str, command: str, step: Step) -> None:
        row = (
            before,
            command,
            step.reply,
            step.tree_hash,
            step.reason,
            step.exit_status,
            step.cut,
            step.kept,
        )
        self._base.execute("BEGIN IMMEDIATE")
        self._base.execute(
            "INSERT OR IGNORE INTO trees VALUES (?, ?)", (step.tree_hash, zlib.compress(step.tree))
        )
        self._base.execute("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._base.execute("COMMIT")
