r"""The progress potential: prerequisite-gated credit, an exact fraction.

    c~_v(s) = min of c_u(s) over u = v and all its ancestors
    Phi(s)  = sum_v w_v c~_v(s) / sum_v w_v          integers w_v > 0, so that 1 is exactly 1

    r_t = Phi(s_t) - Phi(s_(t-1))         R = 1[submitted and passes] + lambda Phi(s_T),  lambda = 1/4

Source: prerequisite-gated progress as in Tev (2026), section 3; shaping by differences of a potential as in Ng, Harada
and Russell, "Policy invariance under reward transformations", 1999, except that the last potential is kept, which
changes the objective on purpose: R ranks every passing rollout above every failing one, since Phi <= 1 < 1 / lambda.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import networkx as nx

from .world import Node, Stage, WorldError

LAMBDA = Fraction(1, 4)
LEAST_NODES = 8


def check_nodes(nodes: Sequence[Node], stages: Sequence[Stage]) -> None:
    """Raise WorldError unless the nodes are enough, well ordered, positively weighted and cover the stages."""
    names = [node.name for node in nodes]
    if len(set(names)) != len(names) or len(names) < LEAST_NODES:
        raise WorldError(f"progress needs {LEAST_NODES} or more nodes with names of their own, got {names}")
    for position, node in enumerate(nodes):
        if missing := [name for name in node.after if name not in names[:position]]:
            raise WorldError(
                f"node {node.name!r} needs {missing[0]!r}, which does not stand before it: list prerequisites first"
            )
        if node.weight < 1:
            raise WorldError(f"node {node.name!r} has weight {node.weight}: it must be a positive integer")
    told, known = {node.stage for node in nodes}, {stage.name for stage in stages}
    if told != known:
        raise WorldError(f"nodes and stages disagree on {sorted(told ^ known)}: every stage needs a node")


def ancestors(nodes: Sequence[Node]) -> dict[str, frozenset[str]]:
    """Return for each node all its direct and indirect prerequisites."""
    made: nx.DiGraph = nx.DiGraph()
    made.add_nodes_from(node.name for node in nodes)
    made.add_edges_from((before, node.name) for node in nodes for before in node.after)
    return {node.name: frozenset(nx.ancestors(made, node.name)) for node in nodes}


def gated(nodes: Sequence[Node], scores: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return c~_v of every node. Raises WorldError when a score is missing, superfluous, inexact or out of [0, 1]."""
    if set(scores) != {node.name for node in nodes}:
        raise WorldError(
            f"scores {sorted(scores)} are not those of the nodes {[node.name for node in nodes]}"
        )
    for name, score in scores.items():
        if not isinstance(score, Fraction | int) or not 0 <= score <= 1:
            raise WorldError(f"score of node {name!r} is {score!r}: it must be an exact fraction in [0, 1]")
    found: dict[str, Fraction] = {}
    for (
        node
    ) in nodes:  # prerequisites stand first, and the minimum over them is the minimum over all ancestors
        found[node.name] = min(
            Fraction(scores[node.name]), *(found[before] for before in node.after), Fraction(1)
        )
    return found


def potential(nodes: Sequence[Node], scores: Mapping[str, Fraction]) -> Fraction:
    """Return Phi, exactly."""
    credit = gated(nodes, scores)
    return sum((node.weight * credit[node.name] for node in nodes), Fraction(0)) / sum(
        node.weight for node in nodes
    )


def increments(potentials: Sequence[Fraction]) -> list[Fraction]:
    """Return r_t = Phi(s_t) - Phi(s_(t-1)), Phi(s_0) = 0, for the potentials after each call; they sum to the last."""
    return [after - before for before, after in zip([Fraction(0), *potentials], potentials, strict=False)]


def rollout_return(passed: bool, last: Fraction, weight: Fraction = LAMBDA) -> Fraction:
    """Return R = 1[pass] + lambda Phi(s_T)."""
    return Fraction(int(passed)) + weight * last
