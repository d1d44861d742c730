"""Workflows: critical path, width and work against hand-made graphs; what is no workflow is refused."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.worldfirst.workflow import graph, workflow
from truthfirst.worldfirst.world import Stage, WorldError

DIAMOND = (
    Stage("a", (), 1),
    Stage("b", ("a",), 5),
    Stage("c", ("a",), 2),
    Stage("d", ("b", "c"), 1),
    Stage("e", ("d",), 1),
    Stage("f", ("e",), 1),
)


def test_a_diamond():
    made = workflow(DIAMOND)
    assert made.critical == ("a", "b", "d", "e", "f")
    assert (made.width, made.work, made.critical_work) == (2, 11, 9)
    assert made.parallelism == pytest.approx(11 / 9)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (DIAMOND[:4], "critical path"),
        ((*DIAMOND, Stage("a", (), 1)), "repeat"),
        ((Stage("z", ("y",), 1), *DIAMOND), "'y'"),
        ((*DIAMOND[:-1], Stage("f", ("e",), 0)), "work 0"),
        ((Stage("a", ("f",), 1), *DIAMOND[1:]), "does not stand before it"),
    ],
)
def test_what_is_no_workflow_is_refused(stages, message):
    with pytest.raises(WorldError, match=message):
        workflow(stages)


@given(st.lists(st.tuples(st.sets(st.integers(0, 8), max_size=3), st.integers(1, 9)), min_size=9, max_size=9))
def test_against_enumeration(drawn):
    stages = [
        Stage(str(number), tuple(str(before) for before in sorted(after) if before < number), work)
        for number, (after, work) in enumerate(drawn)
    ]
    made = graph(stages)
    paths = [
        path
        for start, end in itertools.product(made, made)
        for path in ([[start]] if start == end else nx.all_simple_paths(made, start, end))
    ]
    longest = max(map(len, paths))
    if longest < 5:
        with pytest.raises(WorldError, match="critical path"):
            workflow(stages)
        return
    works = {stage.name: stage.work for stage in stages}
    found = workflow(stages)
    assert len(found.critical) == longest
    assert list(found.critical) in paths
    assert found.critical_work == max(sum(works[name] for name in path) for path in paths)
    reachable = nx.transitive_closure_dag(made)
    independent = [
        chosen
        for size in range(1, 10)
        for chosen in itertools.combinations(made, size)
        if not any(
            reachable.has_edge(a, b) or reachable.has_edge(b, a) for a, b in itertools.combinations(chosen, 2)
        )
    ]
    assert found.width == max(map(len, independent))
