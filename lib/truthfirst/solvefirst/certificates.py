"""Certificates of optimality, found without the solver that found the optimum.

Feasibility is shown by replaying the plan through `step` (done on every solve); optimality by the family's `bound` (a
dual or a second method), by the PuLP model where there is one, and by brute force at nano size.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from .families.base import Family, Theta, enumerate_optimum
from .solve import solve_model


class CertificateError(AssertionError):
    """A solution fails its certificate: a defect of the family, never of the agent."""


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
