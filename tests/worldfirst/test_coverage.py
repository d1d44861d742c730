"""Coverage: labels follow from the environment, the greedy cover is a covering array, balance has known values."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import pytest

from truthfirst.worldfirst import coverage, labels
from truthfirst.worldfirst.coverage import Candidate, balance, balance_frame, cover, pair_frame, pairs
from truthfirst.worldfirst.grading import grade
from truthfirst.worldfirst.labels import AXES, Observed, band, facts
from truthfirst.worldfirst.scan import Scan
from truthfirst.worldfirst.world import WorldError

BINARY = ("subdomain", "scale tier", "corruption class")


def candidate(*values: str) -> Candidate:
    told = {axis: frozenset(value.split()) for axis, value in zip(BINARY, values, strict=False)}
    return Candidate(values[0], 0, "unit", told)


# --- the greedy cover -------------------------------------------------------------------------------------
def test_three_binary_axes_are_covered_by_four_rows():
    """The smallest strength-2 array on three binary factors has four rows, and greedy finds one."""
    pool = [candidate(*row) for row in itertools.product("ab", "cd", "ef")]
    found = cover(pool)
    assert len(found.chosen) == 4
    assert len(found.covered) == 12
    assert not found.uncovered
    assert not found.unattainable
    assert [added for _, added in found.chosen] == [3, 3, 3, 3]


def test_every_attainable_pair_is_covered_and_the_rest_is_listed():
    pool = [candidate("a", "c", "e"), candidate("b", "d", "e f"), candidate("a", "d", "f")]
    found = cover(pool)
    assert found.covered == pairs(pool[0].labels) | pairs(pool[1].labels) | pairs(pool[2].labels)
    assert found.unattainable == (
        (("subdomain", "b"), ("scale tier", "c")),
        (("scale tier", "c"), ("corruption class", "f")),
    )
    assert found.chosen[0][0] is pool[1]  # five pairs, the others have three


def test_a_limit_leaves_pairs_uncovered_and_says_which():
    pool = [candidate("a", "c"), candidate("b", "d")]
    found = cover(pool, limit=1)
    assert [one for one, _ in found.chosen] == pool[:1]
    assert found.uncovered == ((("subdomain", "b"), ("scale tier", "d")),)
    assert found.share == 1 / 2
    told = pair_frame(found)
    assert told["attainable"].tolist() == [True, False, False]
    assert told.iloc[0].tolist()[:4] == ["subdomain", "b", "scale tier", "d"]


def test_an_existing_corpus_is_extended_not_replaced():
    pool = [candidate("a", "c"), candidate("b", "d")]
    found = cover(pool, pool[1:])
    assert [one for one, _ in found.chosen] == pool[::-1]
    assert cover([], pool).share == 1
    with pytest.raises(WorldError, match="no candidates"):
        cover([])


def test_a_pair_is_of_two_axes_that_exist():
    assert len(pairs({"subdomain": frozenset("ab"), "scale tier": frozenset("cde")})) == 6
    with pytest.raises(WorldError, match="no axis 'colour'"):
        pairs({"colour": frozenset("a")})


# --- balance ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 5, 5], 1.0),
        ([7, 0], 1 / 2),
        ([3, 1], (4 / 3**0.75) / 2),  # exp(H) = 4 / 3^(3/4)
        ([1] * 7 + [0], 7 / 8),
    ],
)
def test_balance(counts, expected):
    assert balance(counts) == pytest.approx(expected, rel=1e-12)
    assert balance({str(place): count for place, count in enumerate(counts)}) == balance(counts)


@pytest.mark.parametrize("counts", [[], [0, 0], [2, -1]])
def test_balance_of_nothing_is_refused(counts):
    with pytest.raises(ValueError):
        balance(counts)


# --- labels -----------------------------------------------------------------------------------------------
def test_every_axis_has_values(made):
    assert len(AXES) == 19
    assert len({axis.name for axis in AXES}) == 19
    for name in ("warehouse", "shards"):
        told = labels.labels(made(name))
        assert [axis for axis, values in told.items() if not values] == []
        assert told["subdomain"] == {name}
        assert told["scale tier"] == {"nano"}
        assert told["source kind"] == {"seeded program"}


def test_labels_tell_generators_apart(made):
    warehouse, shards = labels.labels(made("warehouse")), labels.labels(made("shards"))
    assert "sqlite3" in warehouse["tool capability"] - shards["tool capability"]
    assert {"struct", "zlib"} <= shards["tool capability"] - warehouse["tool capability"]
    assert "dtype drift" in shards["corruption class"] - warehouse["corruption class"]
    assert "damaged safetensors" in shards["artifact role"] - warehouse["artifact role"]
    assert warehouse["curriculum layer"] == {"5"}
    assert shards["curriculum layer"] == {"7"}


def test_a_label_follows_the_environment(made):
    """Nothing is declared: without a kind of damage the label is gone; with other rollouts others are observed."""
    one = made("shards")
    plan = tuple(defect for defect in one.sealed.plan if defect.kind != "duplicates")
    changed = dataclasses.replace(one, sealed=dataclasses.replace(one.sealed, plan=plan))
    evidence = labels.Evidence(changed)
    derive = {axis.name: axis.derive for axis in AXES}
    assert "duplicates" not in derive["corruption class"](evidence)
    answer = one.generator.reference(one.files)
    passing = Observed(answer, grade(one, Scan(answer)))
    told = labels.labels(one, [passing])
    assert told["observed reward band"] == {"1"}
    assert told["outcome category"] == {"passed"}
    assert told["failure category"] == frozenset()
    hostile = Observed({}, grade(one, Scan({}, "a link")))
    assert labels.labels(one, [hostile])["failure category"] == {"unreadable"}


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(0, "0"), (1, "1-1"), (2, "2-3"), (3, "2-3"), (1_023, "512-1023"), (1_024, "1024-2047")],
)
def test_bands_are_powers_of_two(amount, expected):
    assert band(amount) == expected


def test_facts_are_counted():
    files = {
        "output/a.csv": b"x,y\n1,2\n3,4\n",
        "output/b.json": json.dumps({"k": [1, 2], "m": {"n": None}}).encode(),
        "output/c.jsonl": b"{}\n{}\n",
        "output/d.safetensors": (42).to_bytes(8, "little") + b'{"a":{"dtype":"I8"},"b":{"dtype":"I8"}}   ',
    }
    assert facts(files) == 2 + 3 + 2 + 2


def test_relations_are_read_off_shared_columns():
    people = {"id": ["1", "2"], "name": ["a", "b"]}
    visits = {"id": ["1", "1", "2"], "day": ["x", "y", "x"]}
    days = {"day": ["x", "x", "z"], "rain": ["0", "1", "0"]}
    assert labels._relations({"a": [people, visits]}) == {"one to many"}
    assert labels._relations({"a": [people, visits], "b": [days]}) == {"one to many", "many to many"}
    assert labels._relations({"a": [visits, visits]}) == {"parts of one table"}
    assert labels._relations({"a": [people], "b": [days]}) == {"none"}


def test_candidates_are_admitted_ones():
    found = coverage.candidates(["shards"], [0, 1], ["nano"], admit=lambda made: made.seed == 1)
    assert [(one.generator, one.seed, one.tier) for one in found] == [("shards", 1, "nano")]
    frame = balance_frame(found)
    assert frame["axis"].tolist() == [axis.name for axis in AXES]
    assert frame["balance"].between(0, 1 + 1e-12).all()
    assert math.isclose(frame.set_index("axis").loc["scale tier", "balance"], 1)


@pytest.mark.parametrize("arguments", [["nothing"], ["--seeds", "0"], ["--limit", "0"]])
def test_bad_arguments_end_with_a_line(arguments, capsys):
    assert coverage.main(arguments) == 2
    assert capsys.readouterr().err.startswith("coverage: ")


def test_the_command_prints_the_corpus(capsys):
    assert coverage.main(["shards", "--seeds", "1", "--tiers", "nano", "--ungated"]) == 0
    assert "1 of 1 environments cover" in capsys.readouterr().out
