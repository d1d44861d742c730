"""Solving: PuLP models with checked statuses, and certificates of optimality.

An optimum is certified without the solver that found it: feasibility by replaying the plan through `step`
(done on every solve), optimality by the family's `bound` (a dual or a second method), by the PuLP model where
there is one, and by brute force at nano size.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import pulp

from .families.base import Family, Theta, enumerate_optimum

SolverName = Literal["highs", "cbc"]


class SolverError(RuntimeError):
    """A solver did not prove an optimum; names the problem, the solver and the status."""

    def __init__(self, problem: str, solver: str, status: str) -> None:
        super().__init__(f"{problem}: {solver} ended with status {status!r}, not with a proven optimum")
        self.problem, self.solver, self.status = problem, solver, status


class SolverTimeout(SolverError):
    """A solver ran out of its time limit."""


class CertificateError(AssertionError):
    """A solution fails its certificate: a defect of the family, never of the agent."""


def solve_model(
    problem: pulp.LpProblem, solver: SolverName | None = None, time_limit: float | None = None
) -> float:
    """Solve a PuLP model to proven optimality and return its objective value.

    solver       "highs" (in process) or "cbc"; by default HiGHS where it is installed, else CBC
    time_limit   seconds

    Raises SolverTimeout at the time limit, SolverError for any other status but optimal.
    """
    name = solver or ("highs" if pulp.HiGHS().available() else "cbc")
    started = time.monotonic()
    problem.solve(_engine(name, time_limit))
    status = pulp.LpStatus.get(problem.status, str(problem.status))
    if problem.status == pulp.LpStatusOptimal and problem.sol_status == pulp.LpSolutionOptimal:
        return float(pulp.value(problem.objective) or 0.0)
    if time_limit is not None and time.monotonic() - started >= 0.9 * time_limit:
        raise SolverTimeout(problem.name, name, f"time limit of {time_limit} s")
    raise SolverError(problem.name, name, status)


def _engine(name: str, time_limit: float | None) -> pulp.LpSolver:
    if name == "highs":
        return pulp.HiGHS(msg=False, gapRel=0.0, timeLimit=time_limit)
    if name == "cbc":
        command = (
            pulp.PULP_CBC_CMD if hasattr(pulp, "PULP_CBC_CMD") else pulp.COIN_CMD
        )  # PuLP 4 bundles no CBC
        return command(msg=False, gapRel=0.0, timeLimit=time_limit)
    raise ValueError(f"unknown solver {name!r}: choose highs or cbc")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Evidence that u_star is optimal.

    method   how the bound was found
    u_star   the replayed value of the plan
    bound    the least upper bound found by the independent methods
    seconds  time the proof took
    """

    method: str
    u_star: int
    bound: int
    seconds: float


def certify(family: Family, theta: Theta, *, brute_force: bool = False, milp: bool = False) -> Certificate:
    """Prove the optimum of theta by methods other than its solver, or raise CertificateError.

    brute_force   also enumerate every plan (nano sizes only: exponential)
    milp          also solve the family's PuLP model, where it has one
    """
    started = time.monotonic()
    solution = family.solve(theta)
    evidence = {family.certificate: family.bound(theta)}
    if milp and family.model is not None:
        evidence["PuLP model"] = round(solve_model(family.model(theta)))
    if brute_force:
        evidence["enumeration of every plan"] = enumerate_optimum(family, theta)
    for method, value in evidence.items():
        if not solution.u_star <= value <= solution.u_star + family.epsilon:
            raise CertificateError(f"{family.name}: u_star = {solution.u_star}, but {method} gives {value}")
    return Certificate(
        "; ".join(evidence), solution.u_star, min(evidence.values()), time.monotonic() - started
    )
