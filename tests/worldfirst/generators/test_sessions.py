"""Sessions: solvers agree, answers by hand, exact credit, Phi is 1 exactly when the verifier accepts."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoil import Outputs, mutate, partial

from truthfirst.worldfirst.corrupt import CorruptionError, corrupt, restore
from truthfirst.worldfirst.generators.sessions import alternative, reference, render, sample, verifier
from truthfirst.worldfirst.generators.sessions.defects import OPERATORS
from truthfirst.worldfirst.generators.sessions.progress import NODES
from truthfirst.worldfirst.generators.sessions.world import Campaign, Event, Link, Merge, Traffic
from truthfirst.worldfirst.instances import Instance, instance
from truthfirst.worldfirst.progress import ancestors
from truthfirst.worldfirst.world import Defect, Sealed, WorldError

PARTS = {
    "profile": "sources.csv",
    "clocks": "clocks.csv",
    "visitors": "visitors.csv",
    "duplicates": "repairs.csv:duplicate",
    "restored": "repairs.csv:restored",
    "late": "repairs.csv:late",
    "events": "events.csv",
    "sessions": "sessions.csv",
    "attribution": "attribution.csv",
    "daily": "daily.tsv",
    "channels": "channels.json",
    "manifest": "manifest.json",
}
NAMES = st.sampled_from([node.name for node in NODES])
MINUTE = 60_000


@pytest.fixture(scope="module")
def nano() -> tuple[Instance, Outputs]:
    made = instance("sessions", 11, "nano")
    return made, made.generator.reference(made.files)


def rows(outputs: Outputs, name: str) -> list[dict[str, str]]:
    text = io.StringIO(outputs[f"output/{name}"].decode())
    return list(csv.DictReader(text, delimiter="\t" if name.endswith(".tsv") else ","))


@pytest.mark.parametrize(
    ("tier", "seeds"), [("nano", range(6)), ("unit", range(2)), ("small", [0]), ("full", [0])]
)
def test_solvers_agree_and_pass(made, tier, seeds):
    for seed in seeds:
        one = made("sessions", seed, tier)
        outputs = one.generator.reference(one.files)
        assert outputs == one.generator.alternative(one.files)
        assert one.verify(outputs).passed
        assert one.potential(outputs) == 1
        assert one.potential({}) == one.potential(one.files) == 0


def test_sizes_are_those_of_the_tiers(made):
    sizes = {tier: made("sessions", 0, tier).files for tier in ("unit", "small", "full")}
    assert {tier: len(files) for tier, files in sizes.items()} == {"unit": 17, "small": 20, "full": 28}
    for tier, expected in {"unit": 51_000, "small": 168_000, "full": 586_000}.items():
        assert sum(map(len, sizes[tier].values())) == pytest.approx(expected, rel=0.15)


# --- a day by hand ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def by_hand(nano) -> Traffic:
    """Return one day of two people, with a timeout of 30 minutes and a lookback of one hour."""
    drawn: Traffic = nano[0].sealed.world
    day, spring = sample.milliseconds("2024-05-06"), "spring & sale"

    def event(number, source, token, minutes, kind="view", campaign="", cents=0, more=0, refused=False):
        time = day + 10 * 60 * MINUTE + minutes * MINUTE + more
        page = {"view": "/p/7?c=1", "cart": "/cart", "purchase": "/pay"}[kind]
        node = f"n{source}"
        return Event(f"e{number:06x}", source, node, token, time, kind, page, campaign, cents, refused)

    events = (
        event(1, "web", "ck1", 0, campaign=spring),
        event(2, "app", "dv1", 30),  # exactly the timeout
        event(3, "web", "ck1", 60, more=1),  # a millisecond more
        event(4, "api", "ac1", 61, "purchase", cents=500),  # an hour and a minute after the campaign
        event(5, "web", "ck1", 62, campaign="brand"),  # another campaign
        event(6, "web", "ck1", 62, "cart", campaign="brand"),  # the same, at the same time
        event(7, "api", "ac3", 63, "purchase", cents=250),  # of the account that the first one went into
        event(8, "api", "ac3", 64, "purchase", cents=999, refused=True),
        event(9, "web", "ck9", 65, campaign=spring),  # a stranger
        event(10, "web", "ckx", 66, "cart"),  # staff, by its account
        event(11, "app", "dv1", 200),
    )
    return replace(
        drawn,
        timeout=30,
        lookback=1,
        days=("2024-05-06",),
        nodes=("napi", "napp", "nweb"),
        beats=("2024-05-06T04:00:00.000Z",),
        links=(Link("ck1", "ac1"), Link("ckx", "acx"), Link("dv1", "ac2")),
        merges=(Merge("ac1", "ac2"), Merge("ac2", "ac3")),
        internal=("acx",),
        campaigns=(Campaign(spring, "email", 100), Campaign("brand", "search", 20)),
        cache=(),
        events=events,
    )


def test_a_day_by_hand(by_hand):
    sample.check(by_hand)
    files = render.render(by_hand)
    assert render.recover(files) == by_hand
    files["input/cache/daily.tsv"] = b"day\n"
    for solver in (reference, alternative):
        outputs = solver.solve(files)
        assert outputs["output/sessions.csv"].decode().splitlines()[1:] == [
            "ac3/1,ac3,2024-05-06T10:00:00.000Z,2024-05-06T10:30:00.000Z,2,/p/7,spring & sale,0",
            "ac3/2,ac3,2024-05-06T11:00:00.001Z,2024-05-06T11:01:00.000Z,2,/p/7,direct,500",
            "ac3/3,ac3,2024-05-06T11:02:00.000Z,2024-05-06T11:03:00.000Z,3,/p/7,brand,250",
            "ac3/4,ac3,2024-05-06T13:20:00.000Z,2024-05-06T13:20:00.000Z,1,/p/7,direct,0",
            "ck9/1,ck9,2024-05-06T11:05:00.000Z,2024-05-06T11:05:00.000Z,1,/p/7,spring & sale,0",
        ]
        assert outputs["output/attribution.csv"].decode().splitlines()[1:] == [
            "e000004,ac3/2,direct,500",
            "e000007,ac3/3,brand,250",
        ]
        assert outputs["output/daily.tsv"].decode().splitlines()[1:] == ["2024-05-06\t2\t5\t2\t2\t750"]
        assert json.loads(outputs["output/channels.json"]) == {
            "direct": {"sessions": 2, "orders": 1, "revenue_cents": 500, "spend_cents": 0},
            "email": {"sessions": 2, "orders": 0, "revenue_cents": 0, "spend_cents": 100},
            "search": {"sessions": 1, "orders": 1, "revenue_cents": 250, "spend_cents": 20},
        }
        assert verifier.verifier(Sealed(by_hand, ()))(outputs).passed


def test_a_wrong_clock_by_hand(by_hand):
    """A node that is 90 seconds ahead: stamps go back by as much, in the log's own format, and the lead is told."""
    files = render.render(by_hand)
    path = next(path for path in files if "/app-" in path)
    stamps = [line.split(b",")[2] for line in files[path].splitlines()[1:]]
    for stamp in stamps:
        files[path] = files[path].replace(stamp, str(int(stamp) + 90_000).encode())
    files["input/heartbeats.tsv"] = files["input/heartbeats.tsv"].replace(
        b"napp\t2024-05-06T04:00:00.000Z\t2024-05-06T04:00:00.000Z",
        b"napp\t2024-05-06T04:00:00.000Z\t2024-05-06T04:01:30.000Z",
    )
    for solver in (reference, alternative):
        outputs = solver.solve(files)
        assert rows(outputs, "clocks.csv") == [
            {"node": "napp", "since": "2024-05-06T04:00:00.000Z", "lead_ms": "90000"}
        ]
        assert rows(outputs, "sessions.csv") == rows(solver.solve(render.render(by_hand)), "sessions.csv")


def test_the_reference_runs_by_stages_in_a_workspace(nano, tmp_path):
    made, outputs = nano
    for path, data in made.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    for stages in (reference.STAGES[:3], reference.STAGES[3:]):
        subprocess.run([sys.executable, "-I", reference.__file__, *stages], cwd=tmp_path, check=True)
    assert {f"output/{path.name}": path.read_bytes() for path in (tmp_path / "output").iterdir()} == outputs


# --- partial work -----------------------------------------------------------------------------------------------
@given(st.sets(NAMES))
def test_closed_partial_work_earns_its_weights_exactly(nano, chosen):
    made, outputs = nano
    before = ancestors(NODES)
    done = set(chosen).union(*(before[name] for name in chosen))
    state = partial(outputs, PARTS, done)
    assert made.potential(state) == Fraction(
        sum(node.weight for node in NODES if node.name in done), sum(node.weight for node in NODES)
    )
    assert made.verify(state).passed == (len(done) == len(NODES))


@given(st.sets(NAMES), NAMES)
def test_destroyed_work_costs(nano, chosen, lost):
    made, outputs = nano
    before = ancestors(NODES)
    done = set(chosen).union(*(before[name] for name in chosen), {lost}, before[lost])
    less, more = (made.potential(partial(outputs, PARTS, nodes)) for nodes in (done - {lost}, done))
    assert less < more


def test_guesses_cost_as_much_as_hits_earn(nano):
    made, outputs = nano
    path = "output/events.csv"
    lines = outputs[path].splitlines(keepends=True)
    size = len(lines) - 1
    guesses = [b"e%06d,2024-01-01T00:00:00.000Z,v,web,view,/,,0\n" % number for number in range(3)]
    assert made.scores({**outputs, path: b"".join([*lines, *guesses])})["events"] == Fraction(size - 3, size)
    assert made.scores({**outputs, path: b"".join([*lines, lines[1]])})["events"] == Fraction(size - 1, size)
    assert made.scores({**outputs, path: b"".join(lines[:-2])})["events"] == Fraction(size - 2, size)


# --- any bytes --------------------------------------------------------------------------------------------------
@settings(max_examples=250)
@given(st.data())
def test_phi_is_one_exactly_when_the_verifier_accepts_whatever_is_written(nano, data):
    made, outputs = nano
    for _ in range(data.draw(st.integers(1, 2))):
        outputs = mutate(data, outputs) if outputs else outputs
    assert (made.potential(outputs) == 1) == made.verify(outputs).passed


@pytest.mark.parametrize("value", [b"1.0", b"true", b'"1"', b"NaN", b"1e0"])
def test_a_number_is_an_integer(nano, value):
    made, outputs = nano
    path = "output/manifest.json"
    count = str(json.loads(outputs[path])["sessions"]).encode()
    changed = {**outputs, path: outputs[path].replace(b'"sessions": ' + count, b'"sessions": ' + value)}
    assert changed != outputs
    assert not made.verify(changed).passed
    assert made.scores(changed)["manifest"] == Fraction(9, 10)


# --- world and damage -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"node": "n?"}, "does not exist"),
        ({"campaign": "?"}, "does not exist"),
        ({"cents": 5}, "an amount without a purchase"),
        ({"time": 0}, "does not exist"),
    ],
)
def test_a_world_that_breaks_an_invariant_is_refused(by_hand, change, message):
    first, *others = by_hand.events
    with pytest.raises(WorldError, match=message):
        sample.check(replace(by_hand, events=(replace(first, **change), *others)))
    with pytest.raises(WorldError, match="more than once"):
        sample.check(replace(by_hand, events=(first, *by_hand.events)))
    with pytest.raises(WorldError, match="merged into itself"):
        sample.check(replace(by_hand, merges=(Merge("a", "b"), Merge("b", "a"))))
    beat = replace(first, time=sample.milliseconds("2024-05-06") + 4 * 60 * MINUTE + 9 * MINUTE)
    with pytest.raises(WorldError, match="too close to a heartbeat"):
        sample.check(replace(by_hand, events=(beat, *others)))


def test_every_kind_of_damage_is_in_every_tier(made):
    kinds = {
        *("lost files", "missing rows", "duplicates", "late events", "event renaming", "clock skew"),
        *("lost order", "schema drift", "format drift", "unit drift", "torn lines"),
    }
    for tier in ("nano", "unit"):
        for seed in range(4):
            assert {defect.kind for defect in made("sessions", seed, tier).sealed.plan} == kinds


def test_operators_are_inverted_and_refuse_what_they_do_not_find():
    path = "input/logs/a.csv"
    files = {path: b"id,at\ne1,2024-05-06T00:00:00.000Z\n"}
    act = {"column": "at", "stamps": "iso", "leads": [[0, -1500]]}
    plan = [
        Defect("clock skew", "shift_clock", path, act),
        Defect("format drift", "recode_stamps", path, {"column": "at", "before": "iso", "after": "s"}),
    ]
    damaged = corrupt(files, plan, OPERATORS)
    assert damaged == {path: b"id,at\ne1,1714953598.500\n"}
    assert restore(damaged, plan, OPERATORS) == files
    with pytest.raises(CorruptionError, match="does not survive"):
        corrupt({path: b"id,at\ne1,2024-05-06T00:00:00Z\n"}, plan[1:], OPERATORS)
