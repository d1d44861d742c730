"""Solving PuLP models: HiGHS in process, CBC as the fallback, and a typed error for anything but an optimum."""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Literal

import pulp

SolverName = Literal["highs", "cbc"]


class SolverError(RuntimeError):
    """A solver did not prove an optimum; names the problem, the solver and the status."""

    def __init__(self, problem: str, solver: str, status: str) -> None:
        super().__init__(f"{problem}: {solver} ended with status {status!r}, not with a proven optimum")
        self.problem, self.solver, self.status = problem, solver, status


class SolverTimeout(SolverError):
    """A solver ran out of its time limit."""


TIME_LIMIT = 60.0  # seconds; every model of ours takes well under one


def solve_model(
    problem: pulp.LpProblem,
    solver: SolverName | None = None,
    time_limit: float = TIME_LIMIT,
    *,
    interior: bool = False,
) -> float:
    """Solve a PuLP model to proven optimality and return its objective value.

    solver       "highs" (in process) or "cbc"; by default HiGHS where it is installed, else CBC
    time_limit   seconds
    interior     let HiGHS use its interior point method with crossover, which large linear programs are faster with

    Raises SolverTimeout at the time limit, SolverError for any other status but optimal.
    """
    name = solver or ("highs" if pulp.HiGHS().available() else "cbc")
    started = time.monotonic()
    problem.solve(_engine(name, time_limit, interior))
    status = pulp.LpStatus.get(problem.status, str(problem.status))
    if problem.status == pulp.LpStatusOptimal and problem.sol_status == pulp.LpSolutionOptimal:
        return float(pulp.value(problem.objective) or 0.0)
    if time.monotonic() - started >= 0.9 * time_limit:
        raise SolverTimeout(problem.name, name, f"time limit of {time_limit} s")
    raise SolverError(problem.name, name, status)


def _engine(name: str, time_limit: float, interior: bool) -> pulp.LpSolver:
    if name == "highs":
        _hush_highs()
        more = {"solver": "ipm"} if interior else {}
        return pulp.HiGHS(msg=False, gapRel=0.0, timeLimit=time_limit, **more)
    if name == "cbc":
        bundled = hasattr(pulp, "PULP_CBC_CMD")  # PuLP 4 bundles no CBC
        command = pulp.PULP_CBC_CMD if bundled else pulp.COIN_CMD
        return command(msg=False, gapRel=0.0, timeLimit=time_limit)
    raise ValueError(f"unknown solver {name!r}: choose highs or cbc")


@functools.lru_cache(maxsize=1)
def _hush_highs() -> None:
    """Let HiGHS print its banner, once a process and past every option, into nothing."""
    import highspy

    sys.stdout.flush()
    screen = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        highspy.Highs()
    finally:
        os.dup2(screen, 1)
        os.close(screen)
        os.close(nothing)
