"""The code tool: Python in the sandbox, offered beside an environment's own tools where its recipe asks for it.

The name is fixed (no setter casts it). A run sees nothing but its own code: no database, no earlier run, no truth;
that lives in this process, and the sandbox has no way to it. Each use costs one turn: in forms I and A of the budget
that all tools share, in form F, where the answer itself is still written, of `WRITTEN_TURNS` of its own.

The texts state their bounds in words: a digit in a prompt or a reply must be accounted for by theta (`admit/`).
What it does not promise: that a program which hits its bound on a busy machine is cut at the same place twice.
"""

from __future__ import annotations

from typing import Any

from ...episode import printable
from ...sandbox import Limits, Result, python_program, run
from ...types import Form, ToolSchema
from .spec import CODE_TOOL
from .tools import Refusal

WRITTEN_TURNS = 8
MAX_CODE_CHARACTERS = 8_000
OUTPUT_BYTES = 4_000
# Processor time is the bound that is stated; the wall clock, which a busy machine moves, is far behind it.
LIMITS = Limits(wall_seconds=30.0, processor_seconds=5, memory_bytes=512 << 20, output_bytes=OUTPUT_BYTES)

SCHEMA = ToolSchema(
    CODE_TOOL,
    "Run a Python program and get what it prints. It has the standard library, no network and no files of yours, "
    "about five seconds and half a gigabyte; every run starts afresh.",
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "the whole program; print what you want to see"}
        },
        "required": ["code"],
        "additionalProperties": False,
    },
    "code",
)

_ENDS = {
    "processor": "The program was stopped: it used up its processor time.",
    "wall": "The program was stopped: it did not end in time.",
    "memory": "The program was stopped: its processes used too much memory.",
    "output": "The program was stopped: it printed without end.",
}
_KEPT = {"\n", "\t"}
_CONTROLS = {n: "\N{REPLACEMENT CHARACTER}" for n in (*range(32), *range(127, 160)) if chr(n) not in _KEPT}


def with_code_tool(prompt: tuple[dict[str, str], ...], form: Form, turns: int) -> tuple[dict[str, str], ...]:
    """Return an environment's prompt with the code tool's paragraph under its instructions.

    turns   form F: the budget of the code tool
    """
    system, *others = prompt
    line = f"- {CODE_TOOL}(code): {SCHEMA.description}"
    if form is Form.WRITTEN:
        told = (
            f"Before you answer you may run code. You have {turns} turns for that. Every call costs one turn, a "
            f"refused one too; your first message without a call is your answer.\n{line}"
        )
    else:
        told = f"You may also run code; a call costs one of your turns, like any other.\n{line}"
    return ({**system, "content": f"{system['content']}\n\nCode\n{told}"}, *others)


def read_code(arguments: Any) -> str:
    """Return the program of a call; raise Refusal with what was wrong."""
    if not isinstance(arguments, dict) or set(arguments) != {"code"}:
        raise Refusal(f"the arguments of {CODE_TOOL} must be a JSON object with code and nothing else")
    code = arguments["code"]
    if not isinstance(code, str):
        raise Refusal(f"code must be text, got {type(code).__name__}")
    if len(code) > MAX_CODE_CHARACTERS:
        raise Refusal(f"code has {len(code)} characters; at most {MAX_CODE_CHARACTERS} are read")
    return code


def run_code(code: str) -> tuple[str, dict[str, Any]]:
    """Run a program; return the reply and the turn's detail. Raises SandboxError where the sandbox itself breaks."""
    result = run(python_program(code, LIMITS))
    detail = {
        "code": printable(code),
        "reason": result.reason,
        "exit_status": result.exit_status,
        "cut": result.stdout_cut or result.stderr_cut,
    }
    return reply(result), detail


def reply(result: Result) -> str:
    """Say what a program printed and, where it did not end well, how it ended."""
    output = _shown(result.stdout, result.stdout_cut)
    parts = [f"Output:\n{output}" if output else "The program printed nothing."]
    if errors := _shown(result.stderr, result.stderr_cut):
        parts.append(f"Errors:\n{errors}")
    if result.reason in _ENDS:
        parts.append(_ENDS[result.reason])
    elif result.exit_status:
        parts.append(f"Exit status {result.exit_status}.")
    return "\n".join(parts)


def _shown(text: str, cut: bool) -> str:
    shown = text.translate(_CONTROLS).strip("\n")
    return f"{shown}\n[cut here]" if cut else shown
