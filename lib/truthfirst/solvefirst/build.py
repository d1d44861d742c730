"""Build a corpus of environments: `python -m truthfirst.solvefirst.build data/corpora/vhd3300.yaml`.

Every place of the plan (`build_plan.py`) is filled by the first candidate of its instances that passes every admission
gate and repeats neither the public view nor the instance of another place. Work goes in rounds: a round tries one
candidate for every place that is still open, then the plan's order decides who came first. The result depends on the
plan and the library alone, not on the backend, the number of workers, or interruptions.

Finished candidates are kept in candidates.jsonl as they come; the same command goes on where it was. At the end every
admitted environment is built once more, in this process, and must have the view that its worker saw.

    DIR/public/ and DIR/sealed/   the manifest (`manifest.py`)
    DIR/report/                   yield and cost as tidy tables (`build_report.py`)
    DIR/build.json                plan, manifest hash, counts, versions, what was measured
    DIR/candidates.jsonl          every finished candidate; may be deleted once the build is done
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from .. import __version__, paths
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..records import canonical_json, write_atomic
from ..types import Form
from . import build_report, manifest
from .backends import BACKENDS, BackendError, check_workers, run
from .build_plan import CorpusPlan, Place, PlanError, places, plan_hash, read_plan_file
from .build_store import Store, only_writer
from .build_work import (
    BuildError,
    Job,
    known_reference,
    library_hash,
    package_versions,
    peak_memory,
    this_worker,
    work,
)
from .candidates import Recipe, build_candidate

Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Built:
    """A finished corpus.

    folder      where it lies
    public, sealed, rejected   its tables, in the order of the plan
    candidates  one row a candidate that was tried: recipe, gate or None, seconds, dollars (`build_report.py`)
    hash        of public and sealed values (`manifest.manifest_hash`)
    summary     what build.json says
    """

    folder: Path
    public: pd.DataFrame
    sealed: pd.DataFrame
    rejected: pd.DataFrame
    candidates: pd.DataFrame
    hash: str
    summary: dict[str, Any]


def build(
    plan: CorpusPlan,
    folder: Path,
    *,
    backend: str = "joblib",
    workers: int | None = None,
    address: str | None = None,
    progress: bool = True,
    watch: Watch | None = None,
) -> Built:
    """Build the corpus of a plan into `folder`, going on with what is already there.

    workers  processes (all CPUs by default); for an existing Ray cluster its own CPUs count
    watch    is called with each new record after it is stored

    Raises BuildError when a place cannot be filled or the corpus misses a requirement of its plan, BackendError when
    workers keep dying or their number makes no sense (`backends.check_workers`).
    """
    started = time.perf_counter()
    workers = check_workers(os.cpu_count() or 1 if workers is None else workers)
    with only_writer(folder / "candidates.jsonl"):
        store = Store(folder / "candidates.jsonl", library_hash(plan.corpus))
        session = _Session(store, backend, workers, address, progress, watch)
        filled, tried = _fill(plan, session)
        built = _assemble(plan, folder, filled, tried, progress)
    built.summary.update(_measured(session, tried, time.perf_counter() - started))
    write_atomic(folder / "build.json", json.dumps(built.summary, indent=2, sort_keys=True) + "\n")
    for name, frame in build_report.tables(built.candidates).items():
        path = folder / "report" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path, index=False)
    if built.summary["missed"]:
        raise BuildError(
            f"{plan.name} is built, but misses what its plan requires: {'; '.join(built.summary['missed'])}"
        )
    return built


# --- filling the places -----------------------------------------------------------------------------------
@dataclass
class _Session:
    """How this build does its jobs, and what it did itself."""

    store: Store
    backend: str
    workers: int
    address: str | None
    progress: bool
    watch: Watch | None
    done: int = 0

    def finish(self, jobs: list[Job], label: str) -> list[dict[str, Any]]:
        """Return the records of the jobs in their order, doing those that the store lacks."""
        missing = [job for job in jobs if job.key not in self.store.records]
        bar = tqdm(
            total=len(jobs),
            initial=len(jobs) - len(missing),
            desc=label,
            disable=None if self.progress else True,
        )
        results = run(self.backend, work, missing, self.workers, self.address)
        with bar, closing(results):  # type: ignore[type-var]
            for record in results:
                self.store.add(record)
                self.done += 1
                bar.update()
                if self.watch:
                    self.watch(record)
        return [self.store.records[job.key] for job in jobs]


def _fill(
    plan: CorpusPlan, session: _Session
) -> tuple[list[tuple[Place, dict[str, Any]]], list[dict[str, Any]]]:
    """Return the admitted record of every place, and every verdict that was passed, in the order of the plan."""
    planned = places(plan)
    cells = list(dict.fromkeys((place.family, place.size, place.budget) for place in planned))
    reach = {cell: known_reference(cell) or "" for cell in cells}
    missing = [cell for cell, name in reach.items() if not name]
    for cell, record in zip(
        missing, session.finish([Job(cell) for cell in missing], "references"), strict=True
    ):
        reach[cell] = record["policy"]
    views: dict[str, str] = {}
    instances: dict[str, str] = {}
    filled: dict[int, dict[str, Any]] = {}
    tried: list[tuple[int, int, dict[str, Any]]] = []
    still = planned
    for attempt in range(plan.attempts):
        jobs = [_job(place, plan, attempt, reach) for place in still]
        label = plan.name if attempt == 0 else f"{plan.name}, again {attempt}"
        records = session.finish(jobs, label)
        for place, record in zip(still, records, strict=True):
            verdict = _unique(record, views, instances)
            tried.append((place.number, attempt, verdict))
            if verdict["gate"] is None:
                filled[place.number] = verdict
                views[verdict["view_hash"]] = instances[verdict["theta_hash"]] = verdict["id"]
        still = [place for place in still if place.number not in filled]
        if not still:
            break
    if still:
        worst = still[0]
        last = next(verdict for number, _, verdict in reversed(tried) if number == worst.number)
        raise BuildError(
            f"{len(still)} places are open after {plan.attempts} candidates each; the first is {worst.family}, "
            f"{worst.size}, {worst.budget} in {worst.domain}, last rejected by {last['gate']}: {last['evidence']}"
        )
    tried.sort(key=lambda entry: entry[:2])
    return [(place, filled[place.number]) for place in planned], [verdict for _, _, verdict in tried]


def _job(place: Place, plan: CorpusPlan, attempt: int, reach: dict[tuple[str, str, str], str]) -> Job:
    cell = (place.family, place.size, place.budget)
    return Job(cell, place.recipe(plan, attempt), reach[cell])


def _unique(record: dict[str, Any], views: dict[str, str], instances: dict[str, str]) -> dict[str, Any]:
    """Reject, under the gate `unique`, an admitted candidate with the view or the instance of an earlier one."""
    if record["gate"] is not None:
        return record
    for what, known, key in (("public view", views, "view_hash"), ("instance", instances, "theta_hash")):
        if record[key] in known:
            return record | {"gate": "unique", "evidence": f"has the {what} of {known[record[key]]}"}
    return record


# --- the manifest -----------------------------------------------------------------------------------------
def _assemble(
    plan: CorpusPlan,
    folder: Path,
    filled: list[tuple[Place, dict[str, Any]]],
    tried: list[dict[str, Any]],
    progress: bool,
) -> Built:
    """Build every admitted environment once more, and write the manifest."""
    public, sealed = [], []
    for place, record in tqdm(filled, desc="manifest", disable=None if progress else True):
        one, other = _rows(place, record)
        public.append(one)
        sealed.append(other)
    frames = (
        pd.DataFrame(public, columns=manifest.PUBLIC.names),
        pd.DataFrame(sealed, columns=manifest.SEALED.names),
    )
    rejected = pd.DataFrame(
        [
            {**r["recipe"], "gate": r["gate"], "evidence": r["evidence"]}
            for r in tried
            if r["gate"] is not None
        ],
        columns=manifest.REJECTED.names,
    )
    manifest.write_table(folder / manifest.PUBLIC_FILE, frames[0], manifest.PUBLIC)
    manifest.write_table(folder / manifest.SEALED_FILE, frames[1], manifest.SEALED)
    manifest.write_table(folder / manifest.REJECTED_FILE, rejected, manifest.REJECTED)
    found = manifest.manifest_hash(*frames)
    summary = {
        "name": plan.name,
        "plan": plan.model_dump(mode="json"),
        "plan_hash": plan_hash(plan),
        "library_hash": library_hash(plan.corpus),
        "manifest_hash": found,
        "environments": len(filled),
        "candidates": len(tried),
        "rejected": len(rejected),
        "families": int(frames[0]["family"].nunique()),
        "domains": int(frames[0]["domain"].nunique()),
        "domain_entropy": round(build_report.entropy(frames[0]["domain"]), 6),
        "family_entropy": round(build_report.entropy(frames[0]["family"]), 6),
        "mean_turns": round(float(frames[1]["turns"].mean()), 3),
        "splits": {str(k): int(v) for k, v in frames[0]["split"].value_counts().items()},
        "versions": {"truthfirst": __version__, "python": sys.version.split()[0]} | package_versions(),
    }
    summary["missed"] = _missed(plan, summary)
    return Built(folder, *frames, rejected, build_report.candidate_frame(tried), found, summary)


def _rows(place: Place, record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the public and the sealed row of an environment, built again here and compared."""
    environment = build_candidate(Recipe(**record["recipe"] | {"spec": record["spec"]}))
    view = environment.view(Form.AGENTIC)
    found = manifest.view_hash(view)
    if environment.id != record["id"] or found != record["view_hash"]:
        raise BuildError(
            f"{record['id']} was admitted with view {record['view_hash']}; built again here it is {environment.id} "
            f"with view {found}: its recipe {record['recipe']} does not determine it"
        )
    family = environment.family
    public = {
        "id": environment.id,
        "family": place.family,
        "size": place.size,
        "domain": place.domain,
        "topic": environment.spec.domain,
        "title": environment.spec.title,
        "passage": environment.spec.passage,
        "split": place.split,
        "budget": place.budget,
        "turn_budget": view.turn_budget,
        "probes": len(family.probe_keys(environment.theta)),
        "setter": environment.spec.setter,
        "code_tool": environment.code_tool,
        "prompt": [dict(message) for message in view.prompt],
        "tools": manifest.tools_text(view),
        "spec": record["spec"],
        "spec_hash": record["spec_hash"],
        "view_hash": record["view_hash"],
        "gates": [*record["passed"], "unique"],
    }
    sealed = {name: record[name] for name in manifest.SEALED.names if name in record}
    sealed |= {name: record["recipe"][name] for name in ("seed", "index")}
    return public, sealed | {"recipe": canonical_json(record["recipe"])}


def _missed(plan: CorpusPlan, summary: dict[str, Any]) -> list[str]:
    """Return what the plan requires and the corpus does not reach."""
    wanted = plan.require.model_dump()
    return [
        f"{name} is {summary[name]}, required is at least {least}"
        for name, least in wanted.items()
        if least is not None and summary[name] < least
    ]


def _measured(session: _Session, tried: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Return what this build took: time of this session, CPU time of every candidate, peak memory of its processes."""
    peaks = {this_worker(): peak_memory()}
    for record in session.store.records.values():
        peaks[record["worker"]] = max(peaks.get(record["worker"], 0), record["peak_mib"])
    largest = sorted(peaks.values(), reverse=True)[: session.workers + 1]
    return {
        "backend": session.backend,
        "workers": session.workers,
        "seconds": round(seconds, 1),
        "jobs_done_now": session.done,
        "cpu_seconds": round(float(np.sum([record["cpu_seconds"] for record in tried])), 1),
        "peak_mib": sum(largest),
    }


# --- the command ------------------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    """Build the corpus of a plan file and print its report.

    Exit codes: 0 built, 1 a failed build, 2 wrong input (nothing is written), 130 interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.solvefirst.build",
        description="Build a corpus of admitted environments; resumable, the same result on every backend.",
    )
    parser.add_argument("plan", type=Path, help="YAML file such as data/corpora/vhd3300.yaml")
    parser.add_argument("--backend", choices=tuple(BACKENDS), default="joblib")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: all CPUs)")
    parser.add_argument(
        "--address", default=None, help="of a Ray cluster (default: RAY_ADDRESS, or a running one)"
    )
    parser.add_argument("--out", type=Path, default=None, help="folder (default: data/corpora/NAME)")
    options = parser.parse_args(arguments)
    try:
        if options.workers is not None:
            check_workers(options.workers)
        plan = read_plan_file(options.plan)
    except (PlanError, BackendError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 2
    folder = options.out or paths.OUTPUT / "data" / "corpora" / plan.name
    try:
        with terminable():
            built = build(
                plan, folder, backend=options.backend, workers=options.workers, address=options.address
            )
    except (BuildError, BackendError, OSError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    print(build_report.text(built.summary, built.candidates))
    print(f"written to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
