"""A gain split into composition, within and interaction: identities, hand-worked numbers, conventions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.study import strata

SETTLED = [name for name, stratifier in strata.STRATIFIERS.items() if stratifier.settled]


def episodes(cells: dict[tuple[str, str], list[tuple[int, float]]]) -> pd.DataFrame:
    """Return rows from {(policy, family): [(code, reward), ...]}; the n-th episodes of a family are of one instance."""
    return pd.DataFrame(
        [
            {"policy": policy, "family": family, "environment": f"{family}-{n}", "form": "A"}
            | {"code": code, "reward": reward, "probes": 2 * code, "probes_possible": 4, "size": "nano"}
            for (policy, family), played in cells.items()
            for n, (code, reward) in enumerate(played)
        ]
    )


def terms(frame: pd.DataFrame, name: str = "code_tool") -> pd.Series:
    return strata.decompose(frame, name).set_index("term")["value"]


def test_the_sources_numbers_come_out_of_a_case_that_is_built_for_them() -> None:
    """From 60% to 70% use of a tool worth 0.3, and 0.413 more in either stratum: 0.030 + 0.413, nothing between."""
    found = terms(strata.known_case((0.6, 0.7), (0.05, 0.35), (0.463, 0.763)))
    assert found[["total", "composition", "within", "interaction"]].to_list() == pytest.approx(
        [strata.SOURCE["total"], strata.SOURCE["composition"], strata.SOURCE["within"], 0], abs=1e-9
    )


def test_an_interaction_is_reported_and_not_hidden() -> None:
    """By hand: 0.25 -> 0.75 users; without the tool 0.2 -> 0.3, with it 0.4 -> 0.8.

    composition 0.5 (0.4 - 0.2) = 0.1; within 0.75 * 0.1 + 0.25 * 0.4 = 0.175; interaction 0.5 (0.4 - 0.1) = 0.15.
    """
    frame = strata.known_case((0.25, 0.75), (0.2, 0.4), (0.3, 0.8))
    found = terms(frame)
    assert found.to_dict() == pytest.approx(
        {"total": 0.425, "composition": 0.1, "within": 0.175, "interaction": 0.15}
        | {"composition_half": 0.175, "within_half": 0.25}
    )
    table = strata.by_stratum(frame, "code_tool").set_index("stratum")
    assert table["w0"].to_list() == [0.75, 0.25]
    assert table["gain"].to_list() == pytest.approx([0.1, 0.4])
    assert table["composition"].to_list() == pytest.approx([-0.1, 0.2])
    assert table[["composition", "within", "interaction"]].sum().to_list() == pytest.approx(
        [0.1, 0.175, 0.15]
    )


played = st.lists(
    st.tuples(*[st.tuples(st.integers(0, 2), st.floats(0, 1, allow_nan=False))] * 2), min_size=1, max_size=12
)


@settings(max_examples=12, deadline=None)
@given(played)
def test_the_terms_sum_to_the_gain_exactly(rows) -> None:
    frame = episodes(
        {("base", "a"): [base for base, _ in rows], ("trained", "a"): [after for _, after in rows]}
    )
    gain = np.mean([after[1] - base[1] for base, after in rows])
    for name in ("code_tool", "coverage", "family", "size"):
        table = strata.decompose(frame, name)
        found = table.set_index("term")["value"]
        assert found["total"] == pytest.approx(gain, abs=1e-9)
        assert found[["composition", "within", "interaction"]].sum() == pytest.approx(gain, abs=1e-9)
        assert found[["composition_half", "within_half"]].sum() == pytest.approx(gain, abs=1e-9)
        parts = strata.by_stratum(frame, name)[["composition", "within", "interaction"]].sum()
        assert parts.to_list() == pytest.approx(
            found[["composition", "within", "interaction"]].to_list(), abs=1e-9
        )
        assert table["low"].isna().all() == (len(rows) == 1)


def test_a_stratum_that_one_policy_never_entered_is_all_composition() -> None:
    frame = episodes({("base", "a"): [(0, 0.2), (0, 0.4)], ("trained", "a"): [(1, 0.8), (1, 1.0)]})
    table = strata.decompose(frame, "code_tool")
    assert table.set_index("term")["value"][
        ["composition", "within", "interaction"]
    ].to_list() == pytest.approx([0.6, 0, 0])
    assert table["common"].iloc[0] == 0
    sides = strata.by_stratum(frame, "code_tool")
    assert sides["gain"].isna().all()
    assert sides["m0"].isna().to_list() == [False, True]


def test_half_of_the_episodes_in_shared_strata_is_said() -> None:
    frame = episodes({("base", "a"): [(0, 0.2), (0, 0.4)], ("trained", "a"): [(0, 0.5), (1, 1.0)]})
    assert strata.decompose(frame, "code_tool")["common"].iloc[0] == 0.75


@pytest.mark.parametrize("name", SETTLED)
def test_what_an_instance_is_has_no_composition_in_any_replicate(name) -> None:
    rng = np.random.default_rng(0)
    cells = {
        (policy, family): [(0, float(rng.random())) for _ in range(n)]
        for policy in strata.ARMS
        for family, n in (("a", 5), ("b", 9))
    }
    frame = episodes(cells)
    drawn = {environment: i for i, environment in enumerate(frame["environment"].unique())}
    number = frame["environment"].map(drawn)
    frame = frame.assign(
        size=np.where(number % 2, "nano", "small"),
        instance_domain=(number % 3).astype(str),
        needed=number / 14,
    )
    table = strata.decompose(frame, name).set_index("term")
    columns = ["value", "low", "high"]
    assert (table.loc[["composition", "interaction"], columns] == 0).to_numpy().all()
    assert table.loc["within", columns].to_list() == pytest.approx(table.loc["total", columns].to_list())
    assert len(strata.by_stratum(frame, name)) >= 2


def test_a_settled_stratum_that_differs_between_the_policies_is_an_error() -> None:
    frame = episodes({("base", "a"): [(0, 0.2)], ("trained", "a"): [(0, 0.4)]})
    frame["needed"] = [0.0, 1.0]
    with pytest.raises(ValueError, match="belongs to the instance"):
        strata.decompose(frame, "needed")


def test_pairs_leave_out_who_has_no_partner_and_match_repetitions_in_order() -> None:
    frame = pd.DataFrame(
        [
            ("base", "x", 0.1),
            ("base", "x", 0.2),
            ("base", "y", 0.3),
            ("trained", "x", 0.5),
            ("trained", "x", 0.6),
        ],
        columns=["policy", "environment", "reward"],
    )
    base, trained = strata.pairs(frame)
    assert base["reward"].to_list() == [0.1, 0.2]
    assert trained["reward"].to_list() == [0.5, 0.6]
    with pytest.raises(ValueError, match=r"'base' and 'other'.*\['base', 'trained'\]"):
        strata.pairs(frame, ("base", "other"))


def test_the_interval_is_over_instances_and_not_over_episodes() -> None:
    """Eight repetitions of every instance tell no more than one where an instance always scores the same."""
    one = strata.known_case((0.5, 0.5), (0.2, 0.2), (0.5, 0.5), number=20)
    many = pd.concat([one.assign(run=str(i)) for i in range(8)])
    wide, narrow = (strata.decompose(frame, "code_tool").iloc[0] for frame in (one, many))
    assert narrow["n"] == wide["n"] == 20
    assert narrow[["value", "low", "high"]].to_list() == pytest.approx(
        wide[["value", "low", "high"]].to_list()
    )


def test_the_interval_covers_a_known_answer() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for repetition in range(25):
        frame = strata.known_case((0.25, 0.75), (0.2, 0.4), (0.3, 0.8), number=80, spread=0)
        order = pd.Series(rng.permutation(80), index=sorted(frame["environment"].unique()))
        frame = frame.assign(reward=(rng.random(len(frame)) < frame["reward"]).astype(float))
        frame = frame[frame["environment"].map(order) < 60]
        row = strata.decompose(frame, "code_tool", seed=repetition).set_index("term").loc["within"]
        covered += row["low"] <= 0.175 <= row["high"]
    assert covered >= 19  # of 25; an honest interval has fewer with a chance below 1 in 1,000


def test_stratifiers_sort_episodes() -> None:
    frame = pd.DataFrame(
        {"code": [0, 2, 1], "planned": [True, False, True], "probes": [0, 3, 4], "probes_possible": 4}
        | {"needed": [0.0, 0.5, 0.75]}
    )
    assert strata.code_tool(frame).to_list() == ["no code", "ran code", "ran code"]
    assert strata.plan(frame).to_list() == ["wrote first", "acted at once", "wrote first"]
    assert strata.coverage(frame).to_list() == ["none", "part", "all"]
    assert strata.coverage(frame.assign(probes_new=[4, 0, 1])).to_list() == ["all", "none", "part"]
    assert strata.needed(frame).to_list() == ["none", "up to half", "over half"]


def test_only_stratifiers_whose_columns_are_there_are_usable() -> None:
    frame = episodes({("base", "a"): [(0, 0.2)], ("trained", "a"): [(0, 0.4)]})
    assert strata.usable(frame) == ["code_tool", "coverage", "family", "size"]
    assert strata.usable(frame.assign(planned=[True, None])) == ["code_tool", "coverage", "family", "size"]
    assert list(strata.every(strata.decompose, frame)["stratifier"].unique()) == strata.usable(frame)
    with pytest.raises(
        ValueError, match=r"'plan' needs a value of planned .* code_tool, coverage, family, size"
    ):
        strata.decompose(frame, "plan")
    with pytest.raises(ValueError, match="unknown stratifier 'mood'"):
        strata.decompose(frame, "mood")


def test_scores_that_are_missing_are_named() -> None:
    frame = episodes({("base", "a"): [(0, np.nan)], ("trained", "a"): [(0, 0.4)]})
    with pytest.raises(ValueError, match="'reward' has missing"):
        strata.decompose(frame, "family")


def test_figures_that_matter_are_those_whose_absence_costs() -> None:
    """Rationing of one unit over two periods with one claimant; by hand.

    Worth 9 and 2, mean 3 published for both: without the first the planner weighs 3 against 2 and still picks it;
    without the second it weighs 9 against 3. Neither matters. Worth 1 and 2: without the first it weighs 3 against 2
    and picks wrongly; without the second it weighs 1 against 3 and is right. One of two matters.
    """
    world = build_candidate(Recipe("rationing", "nano"))
    family = world.family
    for worth, share in (((9, 2), 0.0), ((1, 2), 0.5)):
        theta = family.build(
            {"value": [[v] for v in worth], "value_prior": (0, 9, 3), "budget": 1, "limit": 1, "decline": 0}
        )
        there = type(world)("rationing", "nano", "ample", {}, world.spec, theta, family.solve(theta))
        assert strata.share_needed(there) == share


def test_facts_of_instances_are_one_row_each() -> None:
    world = build_candidate(Recipe("lot_sizing", "nano", setter="terse"))
    table = strata.instance_facts([world, world])
    assert table["environment"].to_list() == [world.id]
    assert table["instance_domain"].to_list() == [world.spec.domain]


def test_a_known_case_needs_whole_numbers() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        strata.known_case((0.333, 0.5), (0.1, 0.2), (0.3, 0.4), number=10)
