"""Worlds on show: tables of the truth, the damage, Phi along agents, gates that hold and fail, probes worth nothing."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst import paths
from truthfirst.sandbox import available
from truthfirst.study import worlds
from truthfirst.worldfirst.contract import UnknownGenerator
from truthfirst.worldfirst.generators import GENERATORS
from truthfirst.worldfirst.instances import Instance, instance


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance("warehouse", 5, "nano")


def test_latent_tables_hold_every_record(made):
    tables = worlds.latent_tables(made)
    world = made.sealed.world
    assert len(tables["sales"]) == len(world.sales)
    assert tables["sales"]["id"].tolist() == [sale.id for sale in world.sales]
    assert tables["constants"].to_dict("records") == [{"name": "store", "value": world.store}]


@pytest.mark.parametrize("name", GENERATORS)
def test_defects_and_excerpts(name):
    made = instance(name, 5, "nano")
    table = worlds.defect_table(made)
    assert table["kind"].tolist() == [one.kind for one in made.sealed.plan]
    assert table["place"].str.len().between(1, 200).all()
    shown = worlds.excerpt(made)
    assert (shown["before"] != shown["after"]).any()
    assert (shown[["before", "after"]].map(len) <= worlds.WINDOW + 3).all(axis=None)
    kinds = {one.kind for one in made.sealed.plan if one.path == shown["file"].iloc[0]}
    assert len(kinds) - 1 <= len(set(shown["kind"]) & kinds)  # recoding a column of blanks changes nothing
    assert set(shown["kind"]) <= kinds
    with pytest.raises(ValueError, match="no defect touches 'input/none'"):
        worlds.excerpt(made, "input/none")


def test_the_workflow_as_a_table(made):
    table = worlds.dag_table(made).set_index("stage")
    assert table["level"].to_dict()["package-sidecars"] == 4
    assert set(table.index[table["critical"]]) == set(made.workflow.critical)
    assert table["work"].sum() == made.workflow.work
    assert table.loc["load-facts", "after"] == "reconcile-facts, normalize-dimensions"


@pytest.mark.skipif(not available(), reason=available().reason or "there is a sandbox")
def test_phi_along_the_agents(made):
    table = worlds.potential_table(made)
    last = table.groupby("agent")["phi"].last()
    assert last["reference"] == last["never-submits"] == 1
    assert 0 < last["half-done"] < 1
    assert (table[table["call"] == 0]["phi"] == 0).all()
    falling = table.loc[table["agent"] == "saboteur", "phi"]
    assert (falling.max(), falling.iloc[-1]) == (1, 0)
    assert (falling.loc[falling.idxmax() :].diff().dropna() <= 0).all()
    passing = table.groupby("agent")["passed"].all()
    assert passing[passing].index.tolist() == ["reference"]
    weights = pd.Series({f"credit/{node.name}": node.weight for node in made.generator.nodes})
    assert ((table[weights.index] * weights).sum(axis=1) / weights.sum()).to_numpy() == pytest.approx(
        table["phi"]
    )


def test_gates_hold_and_a_planted_fault_is_told(made):
    gates, probes = worlds.audit([made])
    assert gates["asks"].notna().all()
    held = gates.pivot(index="gate", columns="subject", values="passed")
    assert held["warehouse"].all()
    failed = held.index[~held["warehouse, planted fault"]]
    assert set(failed) == {"reward causality", "exploit resistance", "metamorphic invariance"}
    earned = probes.set_index("probe")
    assert earned.loc[worlds.RIGHT, ["phi", "passed"]].tolist() == [1, True]
    others = earned.drop(worlds.RIGHT)
    assert len(others) == 15
    assert (others["phi"] == 0).all()
    assert not others["passed"].any()
    assert (others["reason"] != "").all()
    assert (earned["ungated"] >= earned["phi"]).all()


def test_sizes_and_costs_stand_beside_the_source():
    _, row = worlds.measure("warehouse", 5, "unit")
    frame = pd.DataFrame([row, row | {"files": 19}])
    sizes = worlds.size_table(frame)
    assert sizes["whose"].tolist() == ["warehouse", "source, median"]
    assert sizes["files"].tolist() == [(row["files"] + 19) / 2, 17]
    assert sizes["instances"].tolist()[0] == 2
    assert sizes["kB"].tolist() == [row["bytes"] / 1000, 51]
    costs = worlds.cost_table(frame.assign(gates_seconds=2.0)).set_index("whose")
    alone = worlds.cost_table(frame).set_index("whose")
    assert costs.loc["warehouse", "whole_s"] == pytest.approx(alone.loc["warehouse", "whole_s"] + 2)
    assert costs.loc["source, median", "grade_s"] == 0.3
    nano = worlds.size_table(frame.assign(tier="nano"))
    assert nano["whose"].tolist() == ["warehouse"]  # the source has no such tier
    assert worlds.size_table(pd.DataFrame()).empty
    assert worlds.cost_table(pd.DataFrame()).empty


def test_stored_proofs(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "STORED", tmp_path)
    assert worlds.certified().empty
    pd.DataFrame({"generator": ["a", "b"], "make_seconds": [1.0, None]}).to_parquet(
        tmp_path / worlds.CERTIFIED
    )
    assert worlds.certified()["generator"].tolist() == ["a"]


def test_who_takes_part():
    assert worlds.cast("smoke", "runs") == ("runs",)
    assert worlds.cast("cpu", "runs")[0] == "runs"
    assert set(worlds.cast("cpu", "runs")) == set(GENERATORS)
    with pytest.raises(UnknownGenerator, match="no generator 'x'"):
        worlds.cast("cpu", "x")
