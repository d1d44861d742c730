"""Starvation: the formulas by hand, simulation within its error of theory, real partial work under both rewards."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln

from truthfirst import paths
from truthfirst.sources import published
from truthfirst.study import starvation
from truthfirst.study.starvation import PROGRESS, TERMINAL, Cell, State, probabilities, wasted
from truthfirst.train.active import expected_waste
from truthfirst.worldfirst.instances import instance

# a -> b: nothing, a alone, both; with p = 1/4 each stage succeeds with 1/2
CHAIN = (
    State(frozenset(), 1, False, Fraction(0)),
    State(frozenset("a"), 1, False, Fraction(1, 3)),
    State(frozenset("ab"), 0, True, Fraction(1)),
)


@pytest.fixture(scope="module")
def parts() -> tuple[State, ...]:
    return starvation.states(instance("runs", 3, "nano"))


def test_known_answers():
    assert probabilities(CHAIN, np.array([0.25])).tolist() == [[0.5, 0.25, 0.25]]
    assert wasted(CHAIN, TERMINAL, np.array([0.25]), 2) == pytest.approx(0.75**2 + 0.25**2)
    assert wasted(CHAIN, PROGRESS, np.array([0.25]), 2) == pytest.approx(0.5**2 + 2 * 0.25**2)
    for p, size, share in published("tev_gym", "starvation"):  # the source prints whole per cents
        assert wasted(CHAIN, TERMINAL, np.array([p]), size) == pytest.approx(share, abs=0.005)


def test_idle_rollouts_set_a_floor():
    assert probabilities(CHAIN, np.array([0.125]), 0.5).tolist() == [[0.75, 0.125, 0.125]]
    for idle in (0.2, 0.9):
        assert wasted(CHAIN, PROGRESS, np.array([0.01]), 8, idle) > idle**8
    with pytest.raises(ValueError, match=r"idle = 0\.5 .* 0\.6"):
        probabilities(CHAIN, np.array([0.6]), 0.5)


def test_states_are_the_closed_parts_of_a_real_world(parts):
    made = instance("runs", 3, "nano")
    before = {stage.name: set(stage.after) for stage in made.workflow.stages}
    done = [one.stages for one in parts]
    assert len(set(done)) == len(done)
    assert all(before[stage] <= one.stages for one in parts for stage in one.stages)
    assert [one.phi for one in parts if len(one.stages) in (0, len(before))] == [0, 1]
    assert [one.passed for one in parts] == [one.phi == 1 for one in parts]
    for one in parts:  # more work is worth more
        assert all(other.phi > one.phi for other in parts if other.stages > one.stages)


@given(st.floats(0, 1), st.sampled_from([0.0, 0.5]))
def test_probabilities_are_a_distribution_with_pass_probability_p(parts, share, idle):
    p = share * (1 - idle)
    chances = probabilities(parts, np.array([p]), idle)[0]
    assert chances.sum() == pytest.approx(1)
    assert chances[[one.passed for one in parts]].sum() == pytest.approx(p, abs=1e-12)


@given(st.floats(0.001, 0.999), st.integers(2, 24))
def test_terminal_waste_is_the_formula_and_phi_never_wastes_more(parts, p, size):
    terminal = wasted(parts, TERMINAL, np.array([p]), size)
    assert terminal == pytest.approx(expected_waste([p], size))
    assert wasted(parts, PROGRESS, np.array([p]), size) <= terminal + 1e-12


@pytest.mark.parametrize(("mean", "rho", "size"), [(0.05, 0.3, 8), (0.5, 0.1, 4), (0.01, 0.3, 24)])
def test_a_spread_is_the_beta_mean(mean, rho, size):
    a, b = mean * (1 / rho - 1), (1 - mean) * (1 / rho - 1)
    exact = np.exp(betaln(a, b + size) - betaln(a, b)) + np.exp(betaln(a + size, b) - betaln(a, b))
    assert wasted(CHAIN, TERMINAL, starvation.spread(mean, rho), size) == pytest.approx(exact, abs=0.002)


def test_simulation_agrees_with_theory(parts):
    groups = 3_000
    design = [Cell(0.05, 8), Cell(0.3, 4), Cell(0.05, 8, 0.3), Cell(0.01, 4, 0.0, 0.8)]
    key = ["reward", "p", "group_size", "rho", "idle"]
    simulated = starvation.simulated_table(parts, design, groups, 1)
    both = starvation.theory_table(parts, design).merge(simulated, on=key, suffixes=("", "_drawn"))
    assert len(both) == 8
    error = np.sqrt(both["wasted"] * (1 - both["wasted"]) / groups)
    assert ((both["wasted_drawn"] - both["wasted"]).abs() <= 4 * error + 0.002).all()
    assert simulated.equals(starvation.simulated_table(parts, design, groups, 1))


def test_training_is_added_where_it_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "STORED", tmp_path)
    assert starvation.measured_table().empty
    rows = pd.DataFrame({"arm": "outcome", "seed": 0, "step": [1, 2], "frac_reward_zero_std": [0.5, None]})
    rows.to_parquet(tmp_path / starvation.TRAINING)
    found = starvation.measured_table()
    assert found.to_dict("records") == [
        {"kind": "measured", "wasted": 0.5, "arm": "outcome", "seed": 0, "step": 1}
    ]
    rows.drop(columns="arm").to_parquet(tmp_path / starvation.TRAINING)
    with pytest.raises(ValueError, match="lacks arm"):
        starvation.measured_table()


def test_worlds_side_by_side():
    table = starvation.by_world([instance("warehouse", 1, "nano")])
    row = table.iloc[0]
    assert (row["stages"], row["states"], row["different_phi"]) == (6, 8, 8)
    assert row[TERMINAL] == pytest.approx(0.95**8 + 0.05**8)
    assert row[PROGRESS] < 0.01
