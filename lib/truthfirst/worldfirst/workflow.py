"""The workflow graph: stages with dependencies, its critical path, its parallelism, its semantic work.

The critical path is the longest chain of dependent stages. Its length in stages is the structural horizon of a task,
which no detour of an agent inflates; its weight is the semantic work along the heaviest chain. Parallelism is the
largest number of stages of which none depends on another (Dilworth: a largest antichain), and average parallelism is
work over the heaviest chain (Brent, "The parallel evaluation of general arithmetic expressions", 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from .world import Stage, WorldError

LEAST_CRITICAL = 5


@dataclass(frozen=True, slots=True)
class Workflow:
    """A checked workflow.

    stages       in the order given, which is a topological order
    critical     names along the longest chain (ties: the earliest in `stages`)
    width        largest number of mutually independent stages
    work         sum over stages; critical_work: along the heaviest chain
    """

    stages: tuple[Stage, ...]
    critical: tuple[str, ...]
    width: int
    work: int
    critical_work: int

    @property
    def parallelism(self) -> float:
        return self.work / self.critical_work


def graph(stages: Sequence[Stage]) -> nx.DiGraph:
    """Return the graph with an edge from each stage to those that need it; node attribute `work`."""
    made: nx.DiGraph = nx.DiGraph()
    for stage in stages:
        made.add_node(stage.name, work=stage.work)
    for stage in stages:
        made.add_edges_from((before, stage.name) for before in stage.after)
    return made


def workflow(stages: Sequence[Stage]) -> Workflow:
    """Check stages and measure them. Raises WorldError on repeated names, unknown prerequisites, cycles or no work."""
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names):
        raise WorldError(f"stage names repeat in {names}: every stage needs a name of its own")
    for position, stage in enumerate(stages):
        if missing := [name for name in stage.after if name not in names[:position]]:
            raise WorldError(
                f"stage {stage.name!r} needs {missing[0]!r}, which does not stand before it: "
                f"list the stages in an order in which they can be done"
            )
        if stage.work < 1:
            raise WorldError(f"stage {stage.name!r} has work {stage.work}: it must be at least 1")
    made = graph(stages)
    if (least := len(critical := _longest(stages, dict.fromkeys(names, 1)))) < LEAST_CRITICAL:
        raise WorldError(
            f"the critical path {critical} has {least} stages: a task needs {LEAST_CRITICAL} or more"
        )
    weights = {stage.name: stage.work for stage in stages}
    heaviest = _longest(stages, weights)
    width = max(len(chain) for chain in nx.antichains(made))
    return Workflow(
        tuple(stages),
        critical,
        width,
        sum(weights.values()),
        sum(weights[name] for name in heaviest),
    )


def _longest(stages: Sequence[Stage], weights: dict[str, int]) -> tuple[str, ...]:
    """Return the heaviest chain; networkx weighs edges, so an edge carries the weight of the stage that it enters."""
    made: nx.DiGraph = nx.DiGraph()
    for stage in stages:
        for before in stage.after or ("",):  # "" stands before every stage that needs nothing
            made.add_edge(before, stage.name, weight=weights[stage.name])
    return tuple(nx.dag_longest_path(made, weight="weight"))[1:]
