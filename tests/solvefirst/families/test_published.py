"""Published instances: what the literature and the source report, solved by our families.

The data stand in data/published with their sources, and the published value with them: nothing here is computed by
our own solvers and then compared with itself.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truthfirst.solvefirst import published
from truthfirst.solvefirst.certificates import certify
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Action, ThetaError
from truthfirst.solvefirst.published import Published, published_instances, read_entries, read_instance
from truthfirst.solvefirst.score import reward
from truthfirst.streams import stream

INSTANCES = {instance.name: instance for instance in published_instances()}
every_instance = pytest.mark.parametrize("instance", INSTANCES.values(), ids=list(INSTANCES))


@every_instance
def test_the_published_optimum_is_found(instance: Published) -> None:
    member = FAMILIES[instance.family]
    solution = member.solve(instance.theta)  # the plan is replayed
    assert solution.u_star == instance.u_star
    assert solution.u_zero <= solution.u_star


# the branch and bound that certifies orienteering is made for sampled sizes: tours are closed from below instead
CERTIFIED = [name for name, instance in INSTANCES.items() if instance.family != "orienteering"]


@pytest.mark.parametrize("name", CERTIFIED)
def test_the_published_optimum_is_certified(name: str) -> None:
    instance = INSTANCES[name]
    assert certify(FAMILIES[instance.family], instance.theta).bound == instance.u_star


@pytest.mark.parametrize("name", [n for n, i in INSTANCES.items() if i.family == "orienteering"])
def test_a_tour_below_the_published_length_cannot_see_every_city(name: str) -> None:
    instance = INSTANCES[name]
    member, cities = FAMILIES["orienteering"], len(instance.theta.prize)
    shorter = dataclasses.replace(instance.theta, limit=instance.theta.limit - 1)
    assert member.optimum(instance.theta).value == cities
    assert member.optimum(shorter).value < cities


def test_what_the_issue_names_is_there_and_more_over_six_families() -> None:
    named = {"wagner-whitin-1958": 864, "burma14": 3323, "ulysses16": 6859, "assign100": 305}
    assert {name: INSTANCES[name].published for name in named} == named
    further = [instance for name, instance in INSTANCES.items() if name not in named]
    assert len(further) >= 8
    assert len({instance.family for instance in further}) >= 6
    assert all(len(instance.source) > 40 for instance in INSTANCES.values())


def test_the_policy_of_wagner_and_whitin_costs_864() -> None:
    """They produce in months 1, 3, 5, 8, 10 and 11 (an optimal plan need not be the only one)."""
    amounts = {1: 98, 3: 97, 5: 121, 8: 112, 10: 67, 11: 135}
    plan = [Action("make", (amounts.get(month, 0),)) for month in range(1, 13)]
    assert FAMILIES["lot_sizing"].replay(INSTANCES["wagner-whitin-1958"].theta, plan) == -864


def test_plans_that_the_sources_print_earn_what_they_say() -> None:
    plans = {
        "silver-meal-example": [("make", x) for x in (84, 0, 0, 130, 283, 0, 140, 0, 124, 160, 279, 0)],
        "hillier-lieberman-airplanes": [("make", x) for x in (5, 0, 5, 0)],
        "pinedo-total-tardiness": [("run", job - 1) for job in (1, 2, 4, 5, 3)],
        "world-health-council": [("pick", teams - 1) for teams in (1, 3, 1)],
        "powerco": [
            *(("ship", 0, 1, 10), ("ship", 0, 2, 25), ("ship", 1, 0, 45)),
            *(("ship", 1, 2, 5), ("ship", 2, 1, 10), ("ship", 2, 3, 30)),
        ],
        "lorie-savage": [
            ("accept" if project in (1, 3, 4, 6, 9) else "decline",) for project in range(1, 10)
        ],
        "matrix-sum-5": [
            ("assign", 0, 4),
            ("assign", 1, 1),
            ("assign", 2, 2),
            ("assign", 3, 3),
            ("assign", 4, 0),
        ],
    }
    for name, plan in plans.items():
        instance = INSTANCES[name]
        actions = [Action(verb, tuple(args)) for verb, *args in plan]
        assert FAMILIES[instance.family].replay(instance.theta, actions) == instance.u_star, name


# --- reading them -----------------------------------------------------------------------------------------
def test_distances_are_those_of_tsplib() -> None:
    """Symmetry, the length of a known leg, and what the definition makes of no way at all."""
    places = next(
        e for e in read_entries(published.PUBLISHED / "orienteering.yaml") if e["name"] == "burma14"
    )
    first, second = places["coordinates"][:2]
    assert published.geographical(first, second) == published.geographical(second, first) == 153
    assert published.geographical(first, first) == 1  # rounding up, as the definition has it


def entry(name: str) -> dict[str, Any]:
    files = sorted(published.PUBLISHED.glob("*.yaml"))
    return next(e for file in files for e in read_entries(file) if e["name"] == name)


@pytest.mark.parametrize("field", ["name", "family", "source", "published", "theta", "u_star"])
def test_an_entry_without_a_field_names_it(field: str) -> None:
    data = entry("powerco")
    del data[field]
    with pytest.raises(ThetaError) as caught:
        read_instance(data)
    assert caught.value.field == field


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    text = (published.PUBLISHED / "transport.yaml").read_text(encoding="utf-8")
    file = tmp_path / "transport.yaml"
    file.write_text(
        text.replace("    shortage: 100\n", "    shortage: 100\n    supply: [1, 1]\n", 1), encoding="utf-8"
    )
    with pytest.raises(ThetaError, match="stands twice") as caught:
        read_entries(file)
    assert caught.value.field == "supply"


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("burma14", {"format": "tours"}, "format"),
        ("burma14", {"published": 10}, "limit"),
        ("gr17", {"lower_triangle": [[], [1, 2]]}, "lower_triangle"),
        ("or-tools-assignment", {"costs": [[1, 2, 3]]}, "costs"),
        ("cap71", {"file": "assign100.txt"}, "file"),
    ],
)
def test_a_broken_published_instance_names_the_field(name: str, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ThetaError) as caught:
        read_instance(entry(name) | change)
    assert caught.value.field == field


# --- rationing: the trajectory of the source, 7 periods and 29 units --------------------------------------
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
