"""Grading one workspace: the strict verdict and the progress potential, or 0 with the reason.

A workspace that cannot be read safely and a file that means nothing are malformed answers and score 0. An exception out
of a verifier or a scorer is a defect of ours and is raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from .instances import Instance
from .progress import gated, potential
from .scan import Scan


@dataclass(frozen=True, slots=True)
class Grading:
    """What a workspace is worth.

    passed      the strict verifier accepts it
    potential   Phi, exact
    components  of the verifier; nodes: gated credit of every node; both empty where the workspace cannot be read
    reasons     why it does not pass
    """

    passed: bool
    potential: Fraction
    components: dict[str, bool]
    nodes: dict[str, Fraction]
    reasons: tuple[str, ...]


def grade(instance: Instance, scan: Scan) -> Grading:
    """Grade what a scan found."""
    if scan.problem is not None:
        return Grading(False, Fraction(0), {}, {}, (scan.problem,))
    verdict = instance.verify(scan.files)
    nodes = instance.generator.nodes
    scores = instance.scores(scan.files)
    return Grading(
        verdict.passed,
        potential(nodes, scores),
        verdict.components,
        gated(nodes, scores),
        verdict.reasons,
    )
