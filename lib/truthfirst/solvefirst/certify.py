"""The long proofs: `make certify`, or `python -m truthfirst.solvefirst.certify`.

Three stages, all resumable: interrupted and started again they go on where they were, and a family whose source has
changed is proven again.

optima   for every family and size, 200 instances: the plan replays to u_star, and methods that share nothing with the
         solver (the family's bound; at nano and small its PuLP model; at nano every plan by enumeration) agree. One
         row an instance in data/results/certify.parquet.
reach    for every family, size and budget, the scripted policy that is best on average, written to reachable.json
         beside this module: the reference of u_reach.
faults   every planted fault in one environment of every family at nano and small: data/results/kill_table.parquet.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from .. import paths
from ..records import append_jsonl, content_hash, read_jsonl, write_atomic, write_parquet
from ..streams import stream
from .admit.faults import FAULTS
from .admit.gates import admit
from .admit.mutations import kill_table
from .candidates import Recipe, build_candidate
from .certificates import CertificateError, certify
from .environment import BUDGETS, Environment
from .families import FAMILIES
from .families import family as find_family
from .families.base import SIZES
from .references import calibrate, needs_calibration
from .solve import SolverError, SolverTimeout

SEEDS = 200
BRUTE_FORCE = ("nano",)
FAULT_SIZES = ("nano", "small")
MODELS = ("nano", "small")
REACH_FILE = Path(__file__).with_name("reachable.json")


def source_hash(family_name: str) -> str:
    """Return the hash of a family's source file; a stored proof holds for this source only."""
    module = inspect.getmodule(find_family(family_name).draw)
    return content_hash(inspect.getsource(module).encode()) if module else "unknown"


def prove(family_name: str, size: str, seed: int) -> dict[str, object]:
    """Certify one instance; return its row. Timeouts are counted as rows of their own, never dropped."""
    family = find_family(family_name)
    theta = family.sample(stream(seed, "certify", family_name, size), size)
    row: dict[str, object] = {
        "family": family_name,
        "size": size,
        "seed": seed,
        "source": source_hash(family_name),
        "u_star": None,
        "solve_seconds": None,
        "verdict": "proven",
        "method": None,
        "bound": None,
        "proof_seconds": None,
        "evidence": None,
    }
    try:
        started = time.process_time()
        best = family.optimum(theta)
        row |= {"u_star": best.value, "solve_seconds": time.process_time() - started}
        proof = certify(family, theta, brute_force=size in BRUTE_FORCE, milp=size in MODELS)
    except SolverTimeout as error:
        return row | {"verdict": "timeout", "evidence": str(error)}
    except (CertificateError, SolverError) as error:
        return row | {"verdict": "failed", "evidence": str(error)}
    solution = family.solve(theta)
    return row | {
        "method": proof.method,
        "bound": proof.bound,
        "proof_seconds": proof.seconds,
        "u_zero": solution.u_zero,
        "clears_margin": solution.span >= solution.required_margin,
    }


def prove_all(families: list[str], seeds: int, workers: int, store: Path) -> pd.DataFrame:
    """Prove `seeds` instances of every family and size, keeping each row as it comes; return all rows."""
    hashes = {name: source_hash(name) for name in families}
    rows = [
        row
        for row in (read_jsonl(store) if store.exists() else ())
        if hashes.get(row["family"]) == row["source"]
    ]
    done = {(row["family"], row["size"], row["seed"]) for row in rows}
    jobs = [
        (name, size, seed)
        for name in families
        for size in SIZES
        for seed in range(seeds)
        if (name, size, seed) not in done
    ]
    found = Parallel(n_jobs=workers, return_as="generator_unordered")(delayed(prove)(*job) for job in jobs)
    for row in tqdm(found, total=len(jobs), desc="proofs", disable=None):
        append_jsonl(store, row)
        rows.append(row)
    frame = pd.DataFrame(rows).sort_values(["family", "size", "seed"]).reset_index(drop=True)
    _store("certify", frame)
    return frame


def _store(name: str, frame: pd.DataFrame) -> None:
    """Write a result frame, whole or not at all."""
    path = paths.RESULTS / f"{name}.parquet"
    if path.exists():  # the other families' rows stay
        old = pd.read_parquet(path)
        frame = pd.concat([old[~old["family"].isin(set(frame["family"]))], frame], ignore_index=True)
        order = frame["family"].map(list(FAMILIES).index)
        frame = frame.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
    write_parquet(path, frame)


def calibrate_all(families: list[str], workers: int, draws: int) -> dict[str, str]:
    """Find the reachable reference of every family and size under the tight budget; store and return the table."""
    stored = json.loads(REACH_FILE.read_text()) if REACH_FILE.exists() else {}
    table = {key: value for key, value in stored.get("policies", {}).items() if key.split("/")[0] in FAMILIES}
    known = dict(stored.get("sources", {}))
    for name in families:
        if known.get(name) != source_hash(name):
            table = {key: value for key, value in table.items() if key.split("/")[0] != name}
            known[name] = source_hash(name)
    jobs = [
        (name, size, budget)
        for name in families
        for size in FAMILIES[name].sizes
        for budget in BUDGETS
        if needs_calibration(FAMILIES[name], budget) and f"{name}/{size}/{budget}" not in table
    ]
    found = Parallel(n_jobs=workers, return_as="generator")(delayed(calibrate)(*job, draws) for job in jobs)
    progress = tqdm(found, total=len(jobs), desc="references", disable=None)
    for job, best in zip(jobs, progress, strict=True):
        table["/".join(job)] = best
        document = {
            "draws": draws,
            "policies": dict(sorted(table.items())),
            "sources": dict(sorted(known.items())),
        }
        write_atomic(REACH_FILE, json.dumps(document, indent=1) + "\n")
    return table


def healthy(family_name: str, size: str) -> Environment:
    """Return the first environment of a family and size that is admitted."""
    budget = BUDGETS[list(FAMILIES).index(family_name) % len(BUDGETS)]
    for index in range(100):
        environment = build_candidate(
            Recipe(family_name, size, index=index, split="validation", budget=budget)
        )
        if admit(environment).admitted:
            return environment
    raise AssertionError(
        f"none of 100 candidates of {family_name}, {size} is admitted: the sampler or a gate is wrong"
    )


def _kills(family_name: str, size: str) -> dict[str, object]:
    """Return one record: the kill table of one environment."""
    table = kill_table([healthy(family_name, size)], FAULTS).astype(object)
    rows = table.where(table.notna(), None).to_dict("records")
    return {"family": family_name, "size": size, "source": source_hash(family_name), "rows": rows}


def kill_all(families: list[str], workers: int, store: Path) -> pd.DataFrame:
    """Plant every fault in an environment of every family at nano and small; store and return the kill table."""
    stored = read_jsonl(store) if store.exists() else ()
    tables = [table for table in stored if table["source"] == source_hash(table["family"])]
    done = {(table["family"], table["size"]) for table in tables}
    jobs = [(name, size) for name in families for size in FAULT_SIZES if (name, size) not in done]
    found = Parallel(n_jobs=workers, return_as="generator")(delayed(_kills)(*job) for job in jobs)
    for table in tqdm(found, total=len(jobs), desc="planted faults", disable=None):
        append_jsonl(store, table)
        tables.append(table)
    frame = pd.DataFrame([row | {"size": table["size"]} for table in tables for row in table["rows"]])
    _store("kill_table", frame)
    return frame


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a family: instances, how many are proven, solve time, share that clears the margin."""
    grouped = frame.groupby("family", sort=False)
    return pd.DataFrame(
        {
            "instances": grouped.size(),
            "proven": grouped["verdict"].agg(lambda verdicts: int((verdicts == "proven").sum())),
            "failed": grouped["verdict"].agg(lambda verdicts: int((verdicts == "failed").sum())),
            "timeout": grouped["verdict"].agg(lambda verdicts: int((verdicts == "timeout").sum())),
            "ms_median_huge": frame[frame["size"] == "huge"].groupby("family")["solve_seconds"].median()
            * 1000,
            "margin_least": frame.groupby(["family", "size"])["clears_margin"].mean().groupby("family").min(),
        }
    )


def main(arguments: list[str]) -> int:
    """Run the stages and print a summary; exit code 1 if a proof failed or a planted fault survived."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.solvefirst.certify", description=__doc__.splitlines()[0]
    )
    parser.add_argument("families", nargs="*", help="families to prove (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="instances of each family and size")
    parser.add_argument("--draws", type=int, default=40, help="instances that choose the reachable reference")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.families if name not in FAMILIES]
    if unknown or options.seeds < 1 or options.draws < 1:
        problem = (
            f"unknown family {unknown[0]!r}: choose from {', '.join(FAMILIES)}"
            if unknown
            else "numbers must be >= 1"
        )
        print(f"certify: {problem}", file=sys.stderr)
        return 2
    names = options.families or list(FAMILIES)
    frame = prove_all(names, options.seeds, options.workers, paths.RESULTS / "certify.jsonl")
    calibrate_all(names, options.workers, options.draws)
    kills = kill_all(names, options.workers, paths.RESULTS / "kill_table.jsonl")
    print(summary(frame).round(2).to_string())
    print("planted faults:", kills["verdict"].value_counts().to_dict())
    sound = (frame["verdict"] != "failed").all() and (kills["verdict"] != "survived").all()
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
