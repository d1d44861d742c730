"""Policies stand beside the wings: they import neither, and a server needs no torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import truthfirst.policies

FOLDER = Path(truthfirst.policies.__file__).parent
BELOW = {"episode", "records", "streams", "types"}


def imported(path: Path) -> set[str]:
    """Return the modules a file imports: ours as relative names, others by their top name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_only_the_floors_below_are_imported(path: Path) -> None:
    names = imported(path)
    assert {name[2:] for name in names if name.startswith("..")} <= BELOW
    assert not {name for name in names if name.split(".")[0] in ("truthfirst", "trl")}


def test_the_endpoint_and_the_contract_need_no_torch() -> None:
    seen, waiting = set(), [FOLDER / "endpoint.py", FOLDER / "__init__.py"]
    while waiting:
        path = waiting.pop()
        seen.add(path.name)
        names = imported(path)
        assert not names & {"torch", "transformers", "jinja2"}, path.name
        parts = [
            FOLDER / f"{name[1:]}.py" for name in names if name.startswith(".") and not name.startswith("..")
        ]
        waiting += [part for part in parts if part.name not in seen]
    assert {"base.py", "calls.py", "dialogue.py", "endpoint.py"} <= seen
