"""The long proofs of the world-first wing: `python -m truthfirst.worldfirst.certify [GENERATOR ...]`.

For every generator and tier, 50 seeds: the instance is made, both solvers run, and every gate must hold (the six-seed
gate once a tier; over all seeds, worlds, public trees and names must differ). One row an instance with what it cost in
CPU seconds, in data/results/worlds.parquet. Resumable: interrupted and started again it goes on where it was, and a
generator whose source, or the wing's own, has changed is proven again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from .. import paths
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..overlap import tokens
from ..records import append_jsonl, content_hash, read_jsonl, write_parquet
from .contract import generator
from .gates import qualify
from .generators import GENERATORS
from .instances import Instance, instance
from .similarity import registered, require_new
from .world import TIERS, WorldError

SEEDS = 50
_HERE = Path(__file__).parent


def source_hash(name: str) -> str:
    """Return the hash of the wing's own source and a generator's; a stored proof holds for this source only."""
    files = sorted([*_HERE.glob("*.py"), *(_HERE / "generators" / name).glob("*.py")])
    return content_hash({str(path.relative_to(_HERE)): path.read_text(encoding="utf-8") for path in files})


def measure(name: str, tier: str, seed: int) -> tuple[Instance, dict[str, Any]]:
    """Make an instance, solve it twice and grade it twice; return it with its sizes and the CPU seconds of each.

    Raises WorldError where the generator breaks its contract.
    """
    clock = time.process_time
    begin = clock()
    made = instance(name, seed, tier)
    made_at = clock()
    reference = made.generator.reference(made.files)
    solved_at = clock()
    made.generator.alternative(made.files)
    solved_again_at = clock()
    made.verify(reference), made.potential(reference)  # the first time, graders derive what is right
    ready_at = clock()
    made.verify(reference), made.potential(reference)
    graded_at = clock()
    return made, {
        "files": len(made.files),
        "bytes": sum(map(len, made.files.values())),
        "prompt_words": len(tokens(made.prompt)),
        "nodes": len(made.generator.nodes),
        "components": len(made.generator.components),
        "stages": len(made.workflow.stages),
        "critical_stages": len(made.workflow.critical),
        "work": made.workflow.work,
        "defects": len(made.sealed.plan),
        "defect_kinds": len({defect.kind for defect in made.sealed.plan}),
        "make_seconds": made_at - begin,
        "reference_seconds": solved_at - made_at,
        "alternative_seconds": solved_again_at - solved_at,
        "prepare_seconds": ready_at - solved_again_at,
        "grade_seconds": graded_at - ready_at,
    }


def prove(name: str, tier: str, seed: int, source: str) -> dict[str, Any]:
    """Make an instance, run both solvers and the gates; return its row."""
    row: dict[str, Any] = {"generator": name, "tier": tier, "seed": seed, "source": source, "failed": []}
    try:
        made, measured = measure(name, tier, seed)
        begin = time.process_time()
        gates = qualify(made, without=() if seed == 0 else ("six-seed diversity",))
    except WorldError as error:
        return row | {"failed": [f"instance: {error}"]}
    return row | {
        "failed": [f"{gate.name}: {gate.evidence}" for gate in gates if not gate.passed],
        "id": made.id,
        "world": made.world_hash,
        "tree": made.tree_hash,
        **measured,
        "gates_seconds": time.process_time() - begin,
    }


def prove_all(
    names: Sequence[str], tiers: Sequence[str], seeds: int, workers: int, folder: Path
) -> pd.DataFrame:
    """Prove `seeds` instances of every generator and tier, keeping each row as it comes; return all rows asked for."""
    store = folder / "worlds.jsonl"
    sources = {name: source_hash(name) for name in names}
    known = {
        (row["generator"], row["tier"], row["seed"]): row
        for row in (read_jsonl(store) if store.exists() else ())
        if sources.get(row["generator"]) == row["source"]
    }
    asked = [(name, tier, seed) for name in names for tier in tiers for seed in range(seeds)]
    jobs = [job for job in asked if job not in known]
    found = Parallel(n_jobs=workers, return_as="generator_unordered")(
        delayed(prove)(*job, sources[job[0]]) for job in jobs
    )
    for row in tqdm(found, total=len(jobs), desc="worlds", disable=None):
        append_jsonl(store, row)
        known[row["generator"], row["tier"], row["seed"]] = row
    return pd.DataFrame([known[job] for job in asked])


def repeated(frame: pd.DataFrame) -> list[str]:
    """Return what two seeds of a generator and tier share that must be their own."""
    problems = []
    for key, group in frame.groupby(["generator", "tier"], sort=False):
        for column in ("world", "tree", "id"):
            values = group[column].dropna() if column in group else pd.Series(dtype=str)
            if values.duplicated().any():
                problems.append(f"{'/'.join(map(str, key))}: two seeds share one {column}")
    return problems


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a generator and tier: instances, how many fail, median sizes and CPU seconds."""
    grouped = frame.groupby(["generator", "tier"], sort=False)
    whole = (
        frame["make_seconds"]
        + frame["reference_seconds"]
        + frame["alternative_seconds"]
        + frame["gates_seconds"]
    )
    return pd.DataFrame(
        {
            "instances": grouped.size(),
            "failed": grouped["failed"].agg(lambda failed: sum(map(bool, failed))),
            "files": grouped["files"].median(),
            "kB": grouped["bytes"].median() / 1000,
            "defects": grouped["defects"].median(),
            "make_s": grouped["make_seconds"].median(),
            "solve_s": (frame["reference_seconds"] + frame["alternative_seconds"])
            .groupby([frame["generator"], frame["tier"]], sort=False)
            .median(),
            "grade_ms": grouped["grade_seconds"].median() * 1000,
            "whole_s_max": whole.groupby([frame["generator"], frame["tier"]], sort=False).max(),
        }
    )


def main(arguments: list[str]) -> int:
    """Run the proofs and print a summary; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.worldfirst.certify", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("generators", nargs="*", help="generators to prove (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="instances of each generator and tier")
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=paths.RESULTS, help="folder of worlds.jsonl and worlds.parquet"
    )
    options = parser.parse_args(arguments)
    names = options.generators or list(GENERATORS)
    if unknown := [name for name in names if name not in GENERATORS]:
        print(f"certify: no generator {unknown[0]!r}: choose from {', '.join(GENERATORS)}", file=sys.stderr)
        return 2
    if options.seeds < 1 or options.workers < 1:
        print("certify: --seeds and --workers must be at least 1", file=sys.stderr)
        return 2
    try:
        with terminable():
            frame = prove_all(names, options.tiers, options.seeds, options.workers, options.out)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    problems = repeated(frame) + [
        f"{row['generator']}/{row['tier']}, seed {row['seed']}: {problem}"
        for row in frame.to_dict("records")
        for problem in row["failed"]
    ]
    problems += [
        f"{name}: tiers {generator(name).tiers} are not {TIERS}"
        for name in names
        if generator(name).tiers != TIERS
    ]
    for name in names:
        try:
            require_new(registered(name))
        except WorldError as error:  # too similar, or not to be made
            problems.append(str(error))
    write_parquet(options.out / "worlds.parquet", frame.assign(failed=frame["failed"].map(json.dumps)))
    if "make_seconds" in frame:
        print(summary(frame).round(3).to_string())
    print("\n".join(problems[:20]) or f"{len(frame)} instances, nothing wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
