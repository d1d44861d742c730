"""The potential: exact, gated by all ancestors, telescoping."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.worldfirst.progress import (
    LAMBDA,
    ancestors,
    check_nodes,
    gated,
    increments,
    potential,
    rollout_return,
)
from truthfirst.worldfirst.world import Node, Stage, WorldError

NODES = (
    Node("a", 1, "s"),
    Node("b", 2, "s", ("a",)),
    Node("c", 3, "s", ("a",)),
    Node("d", 1, "s", ("b", "c")),
)
HALF, ONE = Fraction(1, 2), Fraction(1)


def test_known_answers():
    assert potential(NODES, {"a": ONE, "b": ONE, "c": ONE, "d": ONE}) == 1
    assert potential(NODES, {"a": 0, "b": ONE, "c": ONE, "d": ONE}) == 0
    assert potential(NODES, {"a": ONE, "b": HALF, "c": ONE, "d": ONE}) == Fraction(1 + 1 + 3, 7) + Fraction(
        1, 14
    )
    assert gated(NODES, {"a": HALF, "b": ONE, "c": Fraction(1, 3), "d": ONE}) == {
        "a": HALF,
        "b": HALF,
        "c": Fraction(1, 3),
        "d": Fraction(1, 3),
    }


@given(st.lists(st.fractions(0, 1, max_denominator=9), min_size=4, max_size=4))
def test_credit_is_the_minimum_over_all_ancestors(values):
    scores = dict(zip("abcd", values, strict=True))
    credit = gated(NODES, scores)
    for name, before in ancestors(NODES).items():
        assert credit[name] == min(scores[other] for other in {name, *before})
    assert potential(NODES, scores) == sum(node.weight * credit[node.name] for node in NODES) / Fraction(7)


@given(st.lists(st.fractions(0, 1, max_denominator=30), min_size=1, max_size=12), st.booleans())
def test_steps_telescope_and_a_pass_outranks_every_failure(potentials, passed):
    assert sum(increments(potentials)) == potentials[-1]
    total = rollout_return(passed, potentials[-1])
    assert total == LAMBDA * sum(increments(potentials)) + passed
    assert (total >= 1) == passed


@pytest.mark.parametrize(
    "scores",
    [
        {"a": ONE},
        {"a": ONE, "b": ONE, "c": ONE, "d": ONE, "e": ONE},
        {"a": ONE, "b": ONE, "c": ONE, "d": Fraction(8, 7)},
        {"a": ONE, "b": ONE, "c": ONE, "d": -HALF},
        {"a": ONE, "b": ONE, "c": ONE, "d": 0.5},
        {"a": ONE, "b": ONE, "c": ONE, "d": float("nan")},
    ],
)
def test_a_broken_scorer_raises(scores):
    with pytest.raises(WorldError):
        potential(NODES, scores)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nodes: nodes[:7], "8 or more"),
        (lambda nodes: (*nodes[:7], nodes[0]), "8 or more"),
        (lambda nodes: (*nodes[:7], Node("x", 0, "s")), "weight 0"),
        (lambda nodes: (*nodes[:7], Node("x", 1, "s", ("y",))), "'y'"),
        (lambda nodes: (*nodes[:7], Node("x", 1, "t")), "disagree"),
    ],
)
def test_nodes_that_are_no_contract_are_refused(change, message):
    nodes = tuple(Node(f"n{number}", 1, "s") for number in range(8))
    check_nodes(nodes, (Stage("s", (), 1),))
    with pytest.raises(WorldError, match=message):
        check_nodes(change(nodes), (Stage("s", (), 1),))
