"""Published instances: what the literature and the source report, solved by our families.

Other families' published examples stand in tests of their own; here are those that issue 2 names.
"""

from __future__ import annotations

import numpy as np
import pytest

from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Action
from truthfirst.solvefirst.score import reward
from truthfirst.solvefirst.solve import solve_model
from truthfirst.streams import stream


# --- rationing: the trajectory of the source, 7 periods and 29 units -----------------------------------------
def test_the_source_preset_has_7_periods_and_29_units() -> None:
    member = FAMILIES["rationing"]
    for seed in range(20):
        theta = member.sample(stream(seed, "source"), "source")
        assert member.counts(theta)["period"] == 7
        assert theta.budget == 29
        assert theta.limit * member.counts(theta)["item"] >= 9  # so that 27 units fit into three periods


def test_spending_27_of_29_in_three_periods_is_near_zero_and_planning_scores_one() -> None:
    """The source's base policy did the former and scored 0, its trained one planned all periods and scored 1."""
    member, rushed = FAMILIES["rationing"], []
    for seed in range(40):
        theta = member.sample(stream(seed, "source"), "source")
        solution = member.solve(theta)
        if solution.span < solution.required_margin:
            continue
        u = member.replay(theta, [Action("spend", (amount,)) for amount in (9, 9, 9, 2, 0, 0, 0)])
        rushed.append(reward(u, solution.u_star, solution.u_zero))
        assert reward(member.replay(theta, solution.plan), solution.u_star, solution.u_zero) == 1
    assert len(rushed) >= 30
    assert np.median(rushed) == 0
    assert np.mean(rushed) < 0.1


def test_rationing_by_hand() -> None:
    """Two claimants, two periods, 3 units: worths 9, 7, 5 and 8 (limit 2, decline 2); the three best are 9 + 8 + 7."""
    member = FAMILIES["rationing"]
    theta = member.build({"value": [[9, 5], [8, 1]], "budget": 3, "limit": 2, "decline": 2})
    solution = member.solve(theta)
    assert (solution.u_star, solution.plan) == (24, (Action("spend", (2,)), Action("spend", (1,))))
    assert solution.u_zero == 9 + (8 + 6)  # one unit, then the two that are left
    assert theta.value_prior == (1, 9, 5)  # lowest, highest and mean of the table


# --- lot sizing: Wagner and Whitin, Management Science 5 (1958), table 1 -----------------------------------
DEMAND = (69, 29, 36, 61, 61, 26, 34, 67, 45, 67, 79, 56)
SETUP = (85, 102, 102, 101, 98, 114, 105, 86, 119, 110, 98, 114)


@pytest.mark.skipif("lot_sizing" not in FAMILIES, reason="lot_sizing is not registered")
def test_wagner_and_whitin_costs_864() -> None:
    member = FAMILIES["lot_sizing"]
    total = sum(DEMAND)
    theta = member.build(
        {
            "demand": [[d] for d in DEMAND],
            "setup": SETUP,
            "unit_cost": [0] * 12,
            "capacity": [total] * 12,  # none in the paper
            "stock": 0,
            "holding": 1,
            "shortage": total,  # dearer than any plan that meets the demand
        }
    )
    solution = member.solve(theta)
    assert solution.u_star == -864
    assert member.bound(theta) == -864
    assert member.model is not None
    assert round(solve_model(member.model(theta))) == -864
    # The paper's policy produces in months 1, 3, 5, 8, 10 and 11 (an optimal plan need not be the only one).
    amounts = {1: 98, 3: 97, 5: 121, 8: 112, 10: 67, 11: 135}
    plan = [Action("make", (amounts.get(month, 0),)) for month in range(1, 13)]
    assert sum(amounts.values()) == total
    assert member.replay(theta, plan) == -864
