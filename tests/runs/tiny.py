"""Tiny notebooks and runs, and waiting for what other processes do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import nbformat

from truthfirst import runs
from truthfirst.runs import claim
from truthfirst.runs_plan import Plan, plan_run


def notebook(home: Path, name: str, parameters: str | None, *cells: str) -> Path:
    node = nbformat.v4.new_notebook()
    if parameters is not None:
        node.cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    node.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = home / "notebooks" / f"{name}.ipynb"
    nbformat.write(node, path)
    return path


def finished(home: Path, library_changed: bool = False) -> Plan:
    """Make a finished run without a kernel."""
    plan = plan_run(notebook(home, "01_small", "seed = 0", "seed"), {})
    mine = claim(plan.folder, plan.documents)
    assert isinstance(mine, runs.Claim)
    runs.write_json(plan.folder / "metrics.json", {"score": 0.5})
    (plan.folder / "executed.ipynb").write_text(plan.source)
    mine.finish({"seconds": 1.0}, (), library_changed)
    return plan


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
