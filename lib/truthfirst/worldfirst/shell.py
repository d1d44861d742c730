"""One bash command on a workspace: an archive in, a reply and an archive out.

A workspace between two calls is a value, a tar archive in canonical form (files by name, times reset), and a call is a
transaction: a command that ends leaves what it wrote, a command that is stopped at a bound leaves nothing. Everything
it starts ends with it. So an episode can be copied, graded and played again, and a shell may remember what a command
did to a workspace, which training over few commands makes good use of.

What is not promised: commands that read clocks, process numbers or random devices may differ when played again (and
are frozen by remembering), and the tools in /usr/bin are those of the machine.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ..records import content_hash
from ..sandbox import Limits, Program, Result, run

OUTPUT_BYTES = 6_000
# Processor time is the bound that is stated; the wall clock, which a busy machine moves, is far behind it.
LIMITS = Limits(
    wall_seconds=60.0,
    processor_seconds=10,
    memory_bytes=1 << 30,
    file_bytes=16 << 20,
    workspace_bytes=48 << 20,
    files=1_000,
    output_bytes=OUTPUT_BYTES,
)
_ENDS = {
    "processor": "The command was stopped: it used up its processor time.",
    "wall": "The command was stopped: it did not end in time.",
    "memory": "The command was stopped: its processes used too much memory.",
    "output": "The command was stopped: it printed without end.",
}
_UNDONE = "The workspace is as it was before this command."
_KEPT = {"\n", "\t"}
_CONTROLS = {n: "\N{REPLACEMENT CHARACTER}" for n in (*range(32), *range(127, 160)) if chr(n) not in _KEPT}


@dataclass(frozen=True, slots=True)
class Step:
    """What a command came to: the reply, the workspace after it, how it ended, and whether its effects were kept."""

    reply: str
    tree: bytes = field(repr=False)
    tree_hash: str
    reason: str
    exit_status: int | None
    cut: bool
    kept: bool


class Shell:
    """Runs commands; remembers the last `remember` different ones (workspace and command), 0: none.

    A step that ended at a bound of time is never remembered: a busy machine must not decide what a command does.
    """

    def __init__(self, limits: Limits = LIMITS, remember: int = 0) -> None:
        self.limits, self.remember = limits, remember
        self.steps: OrderedDict[tuple[str, str], Step] = OrderedDict()
        self.executed = 0

    def run(self, tree: bytes, command: str) -> Step:
        """Run a command on a workspace; whatever it does is a step. Raises SandboxUnavailable or SandboxError."""
        before = content_hash(tree, 32)
        if (before, command) in self.steps:
            self.steps.move_to_end((before, command))
            return self.steps[before, command]
        self.executed += 1
        result = run(Program(("/bin/bash", "-c", command), tree=tree, shell=True, limits=self.limits))
        after = tree if result.tree is None else result.tree
        step = Step(
            _reply(result),
            after,
            content_hash(after, 32),
            result.reason,
            result.exit_status,
            result.stdout_cut or result.stderr_cut,
            result.tree is not None,
        )
        if self.remember and result.reason in ("exited", "signal"):
            self.steps[before, command] = step
            while len(self.steps) > self.remember:
                self.steps.popitem(last=False)
        return step


def _reply(result: Result) -> str:
    """Say what a command printed and, where it did not end well, how it ended."""
    parts = [shown] if (shown := _shown(result.stdout, result.stdout_cut)) else []
    if errors := _shown(result.stderr, result.stderr_cut):
        parts.append(f"Errors:\n{errors}")
    if result.reason in _ENDS:
        parts.append(f"{_ENDS[result.reason]} {_UNDONE}")
    elif result.tree is None:
        parts.append(f"The workspace grew beyond its bound or cannot be read. {_UNDONE}")
    if result.exit_status:
        parts.append(f"Exit status {result.exit_status}.")
    return "\n".join(parts) or "The command printed nothing."


def _shown(text: str, cut: bool) -> str:
    shown = text.translate(_CONTROLS).strip("\n")
    return f"{shown}\n[cut here]" if cut else shown
