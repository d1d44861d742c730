"""The atlas: one row a family, running gains that end at u, losses that are shares."""

from __future__ import annotations

import pytest

from truthfirst.solvefirst.families import FAMILIES
from truthfirst.study import atlas

QUICK = ["rationing", "bidding"]


def test_every_family_has_one_row_with_its_structure():
    table = atlas.family_table("nano")
    assert list(table["family"]) == list(FAMILIES)
    assert set(table["role"]) == {"trained", "near", "far", "unseen"}
    assert (table["turns_tight"] <= table["turns_ample"]).all()
    assert (table["hidden"] > 0).all()
    assert set(table["coupling"]) >= {"budget", "stock"}


@pytest.mark.parametrize("name", list(FAMILIES))
def test_curves_end_at_what_the_plans_earn(name):
    curves = atlas.plan_curves([name], "nano")
    last = curves.groupby("policy")["gain"].last()
    assert last["optimal"] == curves["u_star"].iloc[0]
    assert last["default"] == curves["u_zero"].iloc[0]
    assert last["myopic, all known"] <= last["optimal"]


def test_instances_carry_references_in_order():
    frame = atlas.instance_frame(QUICK, ["nano"], 6)
    assert len(frame) == 12
    for column in ("u_reach", "u_plan", "u_myopic", "u_random", "u_probe-all"):
        assert (frame[column] <= frame["u_star"]).all()
    assert frame.loc[~frame["clears_margin"], "score_plan"].isna().all()
    table = atlas.coupling_table(frame)
    assert set(table["family"]) == set(QUICK)
    assert (
        table["n"] == frame.groupby("family")["clears_margin"].sum().reindex(table["family"]).to_numpy()
    ).all()
