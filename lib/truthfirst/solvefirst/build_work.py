"""One candidate of a corpus: built, admitted, measured.

What a worker returns is a flat JSON record that any machine can add to the store (`build_store.py`). It carries the
hash of the library that made it (`library_hash`: this file and every module of ours that it imports, the passages, and
the versions of the packages that draw numbers or solve), so that changed code never passes off old verdicts as its own.
"""

from __future__ import annotations

import ast
import functools
import os
import resource
import socket
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import paths
from ..records import canonical_json, content_hash
from ..types import Form
from .admit.gates import admit
from .candidates import Recipe, build_candidate, find_setter
from .families import family as find_family
from .manifest import spec_hash, theta_hash, view_hash
from .realize.spec import SpecError
from .references import needs_calibration, policy, reach_table, reachable_policy, simulate
from .solve import SolverError

PACKAGE = Path(__file__).resolve().parents[1]
PACKAGES = ("numpy", "scipy", "pulp", "highspy", "pydantic")


class BuildError(RuntimeError):
    """A build cannot go on; names the candidate, place or file and what to do."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does: a candidate, or (recipe None) the choice of the reference policy of a cell.

    reach   name of the scripted policy that earns u_reach in the candidate's cell
    cell    (family, size, budget)
    """

    cell: tuple[str, str, str]
    recipe: Recipe | None = None
    reach: str | None = None

    @property
    def key(self) -> str:
        """What the store files the job's record under."""
        return canonical_json(list(self.cell) if self.recipe is None else [asdict(self.recipe), self.reach])


@functools.lru_cache(maxsize=4)
def library_hash(corpus: str | None = None) -> str:
    """Return the hash of the code, data, passages and package versions that a record depends on.

    corpus   a user's own folder of passages, hashed beside the built-in one (whose voices it uses)
    """
    files = {f"code/{f.relative_to(PACKAGE).as_posix()}": f for f in imported_code(Path(__file__).resolve())}
    files |= {f"code/{f.relative_to(PACKAGE).as_posix()}": f for f in PACKAGE.glob("solvefirst/**/*.json")}
    folders = {"corpus": paths.CORPUS} | ({"own": Path(corpus)} if corpus else {})
    for label, folder in folders.items():
        for file in folder.rglob("*"):
            if file.is_file() and not file.name.startswith("."):
                files[f"{label}/{file.relative_to(folder).as_posix()}"] = file
    hashes = [[name, content_hash(files[name].read_bytes())] for name in sorted(files)]
    return content_hash([hashes, package_versions()])


def imported_code(start: Path) -> set[Path]:
    """Return the files of this package that `start` imports, however far down, and itself.

    Read from the source, so that what else happens to be loaded in a process makes no difference.
    """
    found: set[Path] = set()
    todo = [start]
    while todo:
        file = todo.pop()
        if file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for target in (base, *(base / alias.name for alias in node.names)):
                    todo += [f for f in (target.with_suffix(".py"), target / "__init__.py") if f.is_file()]
    return found


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that draw numbers, solve or check."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


# --- the work of one job ----------------------------------------------------------------------------------
def work(job: Job) -> dict[str, Any]:
    """Do one job and return its record.

    A setter that writes an unusable spec, or a solver without a proven optimum, rejects the candidate under the gate
    `setter` or `solve`. Anything else that is raised is a defect and ends the build: BuildError names the recipe.
    """
    started, spent = time.perf_counter(), time.process_time()
    try:
        found = _reference(job) if job.recipe is None else _candidate(job.recipe, str(job.reach))
    except Exception as error:
        what = job.recipe or f"reference policy of {'/'.join(job.cell)}"
        raise BuildError(f"{what}: {type(error).__name__}: {error}") from error
    return found | {
        "key": job.key,
        "code": library_hash(job.recipe.corpus if job.recipe else None),
        "seconds": round(time.perf_counter() - started, 6),
        "cpu_seconds": round(time.process_time() - spent, 6),
        "peak_mib": peak_memory(),
        "worker": this_worker(),
    }


def this_worker() -> str:
    """Return what tells this process from every other of a cluster."""
    return f"{socket.gethostname()}:{os.getpid()}"


def peak_memory() -> int:
    """Return the most memory this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)


def known_reference(cell: tuple[str, str, str]) -> str | None:
    """Return the reference policy of a cell (family, size, budget) where it is known without any work, else None."""
    family, _, budget = cell
    known = not needs_calibration(find_family(family), budget) or "/".join(cell) in reach_table()
    return reachable_policy(*cell).name if known else None


def _reference(job: Job) -> dict[str, Any]:
    return {"policy": reachable_policy(*job.cell).name}


def _candidate(recipe: Recipe, reach: str) -> dict[str, Any]:
    """Build and judge one candidate; `dollars` and `tokens` are what its setter says it has spent."""
    writer = find_setter(recipe.setter)
    row: dict[str, Any] = {"recipe": asdict(recipe), "gate": None, "evidence": None}
    try:
        environment = build_candidate(recipe, writer)
    except (SpecError, SolverError) as error:
        gate = "setter" if isinstance(error, SpecError) else "solve"
        return row | _spent(writer) | {"gate": gate, "evidence": str(error)[:2000], "passed": []}
    verdict = admit(environment)
    row |= {"gate": verdict.gate, "evidence": verdict.evidence, "passed": list(verdict.passed)}
    row |= _spent(writer)
    if not verdict.admitted:
        return row
    family, theta, solution = environment.family, environment.theta, environment.solution
    probes = len(family.probe_keys(theta))
    return row | {
        "id": environment.id,
        "view_hash": view_hash(environment.view(Form.AGENTIC)),
        "theta": canonical_json(family.to_json(theta)),
        "theta_hash": theta_hash(environment),
        "spec_hash": spec_hash(environment),
        "spec": environment.recipe["spec"],
        "u_star": solution.u_star,
        "u_zero": solution.u_zero,
        "u_reach": simulate(policy(reach), family, theta, recipe.budget, 0),
        "reach_policy": reach,
        "plan": canonical_json([[action.verb, *action.args] for action in solution.plan]),
        "decisions": len(solution.plan),
        "turns": len(solution.plan) + probes,
    }


def _spent(writer: object) -> dict[str, Any]:
    """Return what a setter has spent on this candidate; one that calls no model has spent nothing."""
    return {"dollars": float(getattr(writer, "dollars", 0.0)), "tokens": int(getattr(writer, "tokens", 0))}
