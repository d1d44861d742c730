"""Ablations: what a run differs in, and differences paired on instances, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.study import ablations

LABELS = {"arm": "outcome", "trained_forms": "AI", "instances": None, "setter": "terse", "domain": None}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ("reference", "reference")),
        ({"arm": "regret"}, ("credit", "regret")),
        ({"arm": "dppo"}, ("algorithm", "dppo")),
        ({"trained_forms": "I"}, ("probes", "without probes (form I)")),
        ({"instances": 4.0}, ("data", "4 instances of each family")),
        ({"domain": "banking"}, ("data", "one domain (banking)")),
        ({"setter": "template"}, ("data", "template setter")),
    ],
)
def test_a_run_is_named_by_what_it_differs_in(changed, expected) -> None:
    assert ablations.variant(pd.Series(LABELS | changed, dtype=object)) == expected


def episodes(run: str, arm: str, trained: dict[str, float]) -> list[dict[str, object]]:
    shared = LABELS | {"run": run, "arm": arm, "seed": 0, "family": "f"}
    return [
        shared
        | {"policy": policy, "form": form, "environment": name, "reward": value * (policy == "trained")}
        for policy in ("base", "trained")
        for form in "FIA"
        for name, value in trained.items()
    ]


def test_differences_are_paired_on_instances() -> None:
    frame = pd.DataFrame(
        episodes("r0", "outcome", {"x": 0.5, "y": 1.0})
        + episodes("r1", "regret", {"x": 0.75, "y": 1.0, "z": 0.0})
    )
    table = ablations.table(frame).set_index(["variant", "form"])
    row = table.loc["regret", "A"]
    assert row["difference"] == pytest.approx(0.125)  # z has no partner
    assert row["n"] == 2
    assert row["trained"] == pytest.approx(1.75 / 3)
    assert pd.isna(table.loc["reference", "A"]["difference"])
    assert table.index[0][0] == "reference"


def test_the_reference_has_the_setter_of_most_runs() -> None:
    runs = [episodes(f"r{i}", arm, {"x": 0.5}) for i, arm in enumerate(("outcome", "regret"))]
    frame = pd.DataFrame(runs[0] + runs[1]).assign(setter="template")
    frame = pd.concat([frame, pd.DataFrame(episodes("r2", "outcome", {"x": 0.25}))])
    named = ablations.with_variants(frame).drop_duplicates("run").set_index("run")["variant"]
    assert named.to_dict() == {"r0": "reference", "r1": "regret", "r2": "terse setter"}


def test_without_a_reference_nothing_can_be_compared() -> None:
    with pytest.raises(ValueError, match="no run of the reference"):
        ablations.table(pd.DataFrame(episodes("r1", "regret", {"x": 1.0})))


def test_every_axis_is_one_of_an_arm() -> None:
    from truthfirst.study.learning import ARMS

    assert set(ablations.AXES) <= set(ARMS)
    assert set(ARMS) - set(ablations.AXES) == {"outcome"}
