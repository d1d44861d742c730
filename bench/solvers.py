"""Solve times of the mechanism families, alone and beside peers: `make bench NAME=solvers`.

huge      every family at size huge: its own solver on 15 instances
scaling   every family at n = 4 .. 14: n items and n periods where the mechanism has both, else 2 n of what it has
peers     the first 3 huge instances again, in the same run: the family's PuLP model by HiGHS and by CBC, and a model of
          OR-Tools CP-SAT where constraint programming applies

Every solver runs on one thread. Times are CPU seconds of this process and of its children (CBC is one), building the
model included, which a busy machine disturbs least. Peers may take LIMIT seconds of wall time (so a busy machine stops
them earlier) and then count as a timeout. An optimum that differs from ours stops the run. Rows go to
data/results/solver_times.parquet (figures: solver_scaling, solver_peers).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pandas as pd
from ortools.sat.python import cp_model
from tqdm.auto import tqdm

from truthfirst import figures, paths
from truthfirst.records import write_atomic
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Family, Theta
from truthfirst.solvefirst.solve import SolverTimeout, solve_model
from truthfirst.streams import stream

HUGE, SCALING, PEERS, LIMIT = 15, 5, 3, 5.0
STEPS = range(4, 15, 2)
TARGET_MS = {"dynamic programming": 5.0}  # 50 ms for every other solver
SCALE: dict[str, Callable[[int], dict[str, int]]] = {
    "rationing": lambda n: {"periods": n, "items": n, "budget": 2 * n + 2, "limit": 4, "high": 40},
    "lot_sizing": lambda n: {"periods": n, "items": n, "high": 12, "holding": 1, "shortage": 12, "setup": 2},
    "pricing": lambda n: {
        "periods": n,
        "items": n,
        "high": 20,
        "cheap": 12,
        "fall": 60,
        "wobble": 15,
        "share": 65,
    },
    "storage": lambda n: {"periods": 2 * n, "high": 40, "rate": 6, "capacity": 2 * n, "loss": 1, "swing": 50},
    "scheduling": lambda n: {"items": n, "stages": n, "high": 16, "heaviest": 6},
    "orienteering": lambda n: {"items": n, "parts": n, "high": 20, "rarity": 4, "span": 20, "share": 55},
    "timed_selection": lambda n: {
        "items": n,
        "periods": n,
        "high": 30,
        "dearest": 5,
        "share": 70,
        "change": 20,
    },
    "replacement": lambda n: {"periods": 2 * n, "items": n, "ages": n, "price": 60, "high": 80},
    "search": lambda n: {"periods": n, "items": n, "high": 40, "spread": 5},
    "knapsack": lambda n: {"items": 2 * n, "need": 7, "rate": 2, "fill": 45},
    "assignment": lambda n: {"items": n, "tasks": n, "high": 40},
    "transport": lambda n: {"items": n, "sinks": n, "high": 40, "units": 20, "shortage": 40},
    "harvest": lambda n: {"periods": 2 * n, "levels": 3 * n, "speed": 65, "high": 30, "swing": 50},
    "project_selection": lambda n: {"periods": n, "items": n, "high": 30},
    "bidding": lambda n: {"periods": n, "items": n, "high": 24, "fill": 70},
    "facility": lambda n: {"items": n, "customers": n, "high": 40, "charge": 30},
    "advertising": lambda n: {"items": 2 * n, "budget": 5000, "high": 40},
}


# --- CP-SAT models ----------------------------------------------------------------------------------------
Model = tuple[cp_model.CpModel, Any]  # and the expression of u


def knapsack(theta: Theta) -> Model:
    model = cp_model.CpModel()
    yes = [model.new_bool_var("") for _ in theta.value]
    for k, room in enumerate(theta.capacity):
        model.add(sum(row[k] * y for row, y in zip(theta.need, yes, strict=True)) <= room)
    return model, sum(value * y for value, y in zip(theta.value, yes, strict=True))


def assignment(theta: Theta) -> Model:
    model = cp_model.CpModel()
    pair = [[model.new_bool_var("") for _ in row] for row in theta.value]
    for line in (*pair, *zip(*pair, strict=True)):
        model.add_at_most_one(line)
    gains = (
        v * x for values, row in zip(theta.value, pair, strict=True) for v, x in zip(values, row, strict=True)
    )
    return model, sum(gains)


def facility(theta: Theta) -> Model:
    model = cp_model.CpModel()
    runs = [model.new_bool_var("") for _ in theta.opening]
    cost = sum(charge * y for charge, y in zip(theta.opening, runs, strict=True))
    for k in range(len(theta.service[0])):
        serves = [model.new_bool_var("") for _ in runs]
        model.add_exactly_one(serves)
        for x, y in zip(serves, runs, strict=True):
            model.add_implication(x, y)
        cost += sum(row[k] * x for row, x in zip(theta.service, serves, strict=True))
    return model, -cost


def lot_sizing(theta: Theta) -> Model:
    model = cp_model.CpModel()
    total = theta.stock + sum(map(sum, theta.demand))
    before, cost = theta.stock, 0
    for row, setup, unit, capacity in zip(
        theta.demand, theta.setup, theta.unit_cost, theta.capacity, strict=True
    ):
        run = model.new_bool_var("")
        made, left, missing = (model.new_int_var(0, top, "") for top in (capacity, total, sum(row)))
        model.add(made <= capacity * run)
        model.add(before + made + missing - left == sum(row))
        cost += setup * run + unit * made + theta.holding * left + theta.shortage * missing
        before = left
    return model, -cost


def timed_selection(theta: Theta) -> Model:
    """`last[t][i]`: item i was the last one picked before period t."""
    model = cp_model.CpModel()
    items = len(theta.fee)
    last = [0] * items
    spent = gain = 0
    for row in theta.value:
        picks = [model.new_bool_var("") for _ in range(items)]
        model.add_at_most_one(picks)
        change = model.new_bool_var("")
        after = [model.new_bool_var("") for _ in range(items)]
        model.add_at_most_one(after)
        for i, pick in enumerate(picks):
            model.add(after[i] >= pick)
            model.add(after[i] >= last[i] - sum(picks))
            model.add(after[i] <= last[i] + pick)
            model.add(change >= pick + sum(last) - last[i] - 1)
        spent += sum(fee * pick for fee, pick in zip(theta.fee, picks, strict=True))
        gain += sum(v * pick for v, pick in zip(row, picks, strict=True)) - theta.switching * change
        last = after
    model.add(spent <= theta.budget)
    return model, gain


def scheduling(theta: Theta) -> Model:
    model = cp_model.CpModel()
    lengths = [sum(row) for row in theta.duration]
    end = theta.clock + sum(lengths)
    intervals, cost = [], 0
    for length, weight, due in zip(lengths, theta.weight, theta.due, strict=True):
        begin, late = model.new_int_var(theta.clock, end - length, ""), model.new_int_var(0, end, "")
        intervals.append(model.new_fixed_size_interval_var(begin, length, ""))
        model.add(late >= begin + length - due)
        cost += weight * late
    model.add_no_overlap(intervals)
    return model, -cost


def orienteering(theta: Theta) -> Model:
    """A circuit through the base and the sites seen; a site left out has an arc to itself."""
    model = cp_model.CpModel()
    n = len(theta.prize)
    arcs, time_spent, gain = [], 0, 0
    for i in range(n):
        out = model.new_bool_var("")
        arcs.append((i + 1, i + 1, out))
        gain += sum(theta.prize[i]) * (1 - out)
        for tail, head, length in (
            (0, i + 1, theta.base_time[i]),
            (i + 1, 0, theta.base_time[i]),
            *((i + 1, j + 1, theta.travel_time[i][j]) for j in range(n) if j != i),
        ):
            used = model.new_bool_var("")
            arcs.append((tail, head, used))
            time_spent += length * used
    nowhere = model.new_bool_var("")
    arcs.append((0, 0, nowhere))
    for tail, head, out in arcs[:-1]:
        if tail == head:
            model.add_implication(nowhere, out)
    model.add_circuit(arcs)
    model.add(time_spent <= theta.limit)
    return model, gain


CP_SAT = {
    f.__name__: f
    for f in (knapsack, assignment, facility, lot_sizing, timed_selection, scheduling, orienteering)
}


# --- measuring --------------------------------------------------------------------------------------------
def by_cp_sat(family: Family, theta: Theta) -> int:
    """Return the optimum of the CP-SAT model, on one worker."""
    model, gain = CP_SAT[family.name](theta)
    model.maximize(gain)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = LIMIT
    status = solver.solve(model)
    if status != cp_model.OPTIMAL:
        raise SolverTimeout(family.name, "cp-sat", solver.status_name(status))
    return round(solver.objective_value)


SOLVERS: dict[str, Callable[[Family, Theta], int]] = {
    "ours": lambda family, theta: family.optimum(theta).value,
    "PuLP + HiGHS": lambda family, theta: round(solve_model(family.model(theta), "highs", LIMIT)),  # type: ignore[misc]
    "PuLP + CBC": lambda family, theta: round(solve_model(family.model(theta), "cbc", LIMIT)),  # type: ignore[misc]
    "OR-Tools CP-SAT": by_cp_sat,
}


def cpu_seconds() -> float:
    """Return CPU seconds of this process and of its finished children."""
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


def measure(
    study: str, family: Family, theta: Theta, solver: str, repeats: int = 1, **labels: Any
) -> dict[str, Any]:
    """Solve once or several times; return a row with the least time."""
    best, value, verdict = float("inf"), None, "optimal"
    for _ in range(repeats):
        started = cpu_seconds()
        try:
            value = SOLVERS[solver](family, theta)
        except SolverTimeout:
            verdict = "timeout"
        best = min(best, cpu_seconds() - started)
    kind = family.solver if solver == "ours" else None
    return {"study": study, "family": family.name, "solver": solver, "kind": kind, **labels} | {
        "seconds": best,
        "verdict": verdict,
        "u_star": value,
    }


def applies(family: Family, solver: str) -> bool:
    return solver == "ours" or (
        family.name in CP_SAT if solver == "OR-Tools CP-SAT" else family.model is not None
    )


def measure_family(name: str) -> list[dict[str, Any]]:
    """Return the rows of one family, all three studies; raise AssertionError where optima differ."""
    family, rows = FAMILIES[name], []
    family.optimum(family.sample(stream(0, "bench", name), "nano"))  # imports and caches are not measured
    for index in range(HUGE):
        theta = family.sample(stream(index, "bench-solvers", name, "huge"), "huge")
        own = measure("huge", family, theta, "ours", 3, n=None, index=index)
        rows.append(own)
        for solver in SOLVERS if index < PEERS else ():
            if applies(family, solver):
                row = (
                    own if solver == "ours" else measure("peers", family, theta, solver, n=None, index=index)
                )
                if row["verdict"] == "optimal" and row["u_star"] != own["u_star"]:
                    raise AssertionError(
                        f"{name} {index}: {solver} finds {row['u_star']}, ours {own['u_star']}"
                    )
                rows.append(row | {"study": "peers"})
    for n in STEPS:
        for index in range(SCALING):
            theta = family.draw(stream(index, "bench-solvers", name, n), **SCALE[name](n))
            family.validate(theta)
            rows.append(measure("scaling", family, theta, "ours", 2, n=n, index=index))
    return rows


def main() -> None:
    """Measure, store and print."""
    rows = [row for name in tqdm(FAMILIES, desc="families", disable=None) for row in measure_family(name)]
    frame = pd.DataFrame(rows)
    frame["n"] = frame["n"].astype("Int64")
    frame["u_star"] = frame["u_star"].astype("Int64")
    buffer = BytesIO()
    frame.to_parquet(buffer, index=False)
    write_atomic(paths.RESULTS / "solver_times.parquet", buffer.getvalue())
    for name, studies in (("solver_scaling", ["scaling"]), ("solver_peers", ["peers"])):
        if name in figures.FIGURES_BY_NAME:
            figures.publish(
                name, frame[frame["study"].isin(studies)].reset_index(drop=True), {"limit_s": LIMIT}
            )
    huge = (
        frame[frame["study"] == "huge"].groupby(["family", "kind"], sort=False)["seconds"].median().mul(1000)
    )
    table = huge.rename("median ms").reset_index()
    table["target ms"] = table["kind"].map(TARGET_MS).fillna(50.0)
    table["met"] = table["median ms"] < table["target ms"]
    print(f"\nown solver at huge, median of {HUGE}\n{table.round(2).to_string(index=False)}")
    scaling = (
        frame[frame["study"] == "scaling"].pivot_table("seconds", "family", "n", "median", sort=False) * 1000
    )
    print(f"\nown solver against n, median ms of {SCALING}\n{scaling.round(2).to_string()}")
    peers = frame[frame["study"] == "peers"]
    medians = peers.pivot_table("seconds", "family", "solver", "median", sort=False)[list(SOLVERS)] * 1000
    print(
        f"\nthe same {PEERS} huge instances, median ms (timeouts at {LIMIT:.0f} s)\n{medians.round(1).to_string()}"
    )
    late = peers[peers["verdict"] == "timeout"].groupby(["family", "solver"], sort=False).size()
    print(f"\ntimeouts: {late.to_dict() or 'none'}")


if __name__ == "__main__":
    main()
