"""Runs: solvers agree, answers by hand, exact credit, Phi is 1 exactly when the verifier accepts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoil import Outputs, mutate, partial

from truthfirst.worldfirst.corrupt import CorruptionError, corrupt, restore
from truthfirst.worldfirst.generators.runs import alternative, reference, render, sample, verifier
from truthfirst.worldfirst.generators.runs.defects import OPERATORS
from truthfirst.worldfirst.generators.runs.lineage import effects, kept, origin
from truthfirst.worldfirst.generators.runs.progress import NODES
from truthfirst.worldfirst.generators.runs.world import Change, Checkpoint, Job, Point, Run, Setting
from truthfirst.worldfirst.instances import Instance, instance
from truthfirst.worldfirst.progress import ancestors
from truthfirst.worldfirst.world import Defect, Sealed, WorldError

PARTS = {
    "profile": "logs.csv",
    "lineage": "lineage.csv",
    "duplicates": "repairs.csv:duplicate",
    "restored": "repairs.csv:restored",
    "settings": "settings.csv",
    "waste": "waste.tsv",
    "curve": "curve.csv",
    "onset": "divergence.json#onset+best",
    "cause": "divergence.json#cause",
    "phases": "phases.tsv",
    "manifest": "manifest.json",
}
NAMES = st.sampled_from([node.name for node in NODES])


@pytest.fixture(scope="module")
def nano() -> tuple[Instance, Outputs]:
    made = instance("runs", 11, "nano")
    return made, made.generator.reference(made.files)


def lines(outputs: Outputs, name: str) -> list[str]:
    return outputs[f"output/{name}"].decode().splitlines()[1:]


@pytest.mark.parametrize(
    ("tier", "seeds"), [("nano", range(6)), ("unit", range(2)), ("small", [0]), ("full", [0])]
)
def test_solvers_agree_and_pass(made, tier, seeds):
    for seed in seeds:
        one = made("runs", seed, tier)
        outputs = one.generator.reference(one.files)
        assert outputs == one.generator.alternative(one.files)
        assert one.verify(outputs).passed
        assert one.potential(outputs) == 1
        assert one.potential({}) == one.potential(one.files) == 0


def test_sizes_are_those_of_the_tiers(made):
    """JSON lines take twice the room of CSV, and which jobs are lost is drawn: sizes differ by a quarter."""
    for tier, files, expected in (("unit", 17, 51_000), ("small", 20, 168_000)):
        sizes = [made("runs", seed, tier).files for seed in range(5)]
        assert {len(tree) for tree in sizes} == {files}
        assert median(sum(map(len, tree.values())) for tree in sizes) == pytest.approx(expected, rel=0.2)
    full = made("runs", 0, "full").files
    assert len(full) == 28
    assert sum(map(len, full.values())) == pytest.approx(586_000, rel=0.25)


# --- a run by hand ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def by_hand(nano) -> Run:
    """Return three jobs: b resumed from a at step 6, c was thrown away; the learning rate goes wrong at step 9 of b."""
    drawn: Run = nano[0].sealed.world
    told = {"batch_size": "2", "seq_len": "10", "grad_accum": "1", "lr": "0.0003", "log_every": "2"}
    base = tuple(Setting(one.key, told.get(one.key, one.value)) for one in drawn.base)
    jobs = (
        Job("ja", 1_000, "", 1, 8, 2, "failed", True, (), ()),
        Job("jc", 5_000, "cka6", 7, 9, 4, "failed", False, (Setting("lr", "0.006"),), ()),
        Job(
            "jb",
            9_000,
            "auto",
            7,
            16,
            2,
            "failed",
            False,
            (Setting("lr", "0.1"),),
            (Setting("batch_size", "3"), Setting("lr", "0.0003")),
        ),
    )
    losses = {
        "ja": (10, 8, 13, 6, 99),  # step 6: 13 is a spike of one point; step 10 was never reached
        "jc": (99,),
        "jb": (6, 7, 8, 9, None),  # steps 8 to 16
    }
    steps = {"ja": (2, 4, 6, 8), "jc": (8,), "jb": (8, 10, 12, 14, 16)}
    points = tuple(
        Point(
            job.id,
            step,
            "train",
            job.launched + step,
            None if loss is None else 1_000_000 * loss,
            None if loss is None else 5,
        )
        for job in jobs
        for step, loss in zip(steps[job.id], losses[job.id], strict=False)
    )
    return replace(
        drawn,
        final_job="jb",
        high_percent=15,
        high_points=3,
        base=base,
        jobs=jobs,
        checkpoints=(
            Checkpoint("cka6", "ja", 6, 1_500, True),
            Checkpoint("cka8", "ja", 8, 1_600, False),  # not complete: auto passes it over
        ),
        changes=(
            Change("ja", 3, "grad_accum", "4"),
            Change("jb", 9, "lr", "0.006"),
            Change("jb", 15, "dropout", "0.3"),
        ),
        points=points,
    )


def test_a_run_by_hand(by_hand):
    sample.check(by_hand)
    files = render.render(by_hand)
    assert render.recover(files) == by_hand
    dropout = next(one.value for one in by_hand.base if one.key == "dropout")
    for solver in (reference, alternative):
        outputs = solver.solve(files)
        assert lines(outputs, "lineage.csv") == ["1,ja,1,6,", "2,jb,7,16,cka6"]
        assert lines(outputs, "waste.tsv") == ["ja\t8\t6\t4", "jb\t10\t10\t0", "jc\t3\t0\t12"]
        found = [
            line
            for line in lines(outputs, "settings.csv")
            if line.split(",")[0] in ("batch_size", "grad_accum", "lr", "dropout")
        ]
        assert found == [
            "batch_size,1,6,2,base",
            "batch_size,7,16,3,flag",
            f"dropout,1,14,{dropout},base",
            "dropout,15,16,0.3,hot",
            "grad_accum,1,2,1,base",
            "grad_accum,3,6,4,hot",  # a restart forgets it
            "grad_accum,7,16,1,base",
            "lr,1,8,0.0003,base",  # the file of jb says 0.1, its command line knows better
            "lr,9,16,0.006,hot",
        ]
        assert lines(outputs, "curve.csv") == [
            "2,ja,40,10.000000,0.0005",  # 2 steps of 2 * 10 * 1
            "4,ja,200,8.000000,0.0005",  # 2 steps of 2 * 10 * 4 more
            "6,ja,360,13.000000,0.0005",
            "8,jb,420,6.000000,0.0005",  # 2 steps of 3 * 10 * 1 more; what ja logged there was thrown away
            "10,jb,480,7.000000,0.0005",
            "12,jb,540,8.000000,0.0005",
            "14,jb,600,9.000000,0.0005",
            "16,jb,660,nan,nan",
        ]
        assert json.loads(outputs["output/divergence.json"]) == {
            "onset_step": 10,
            "onset_job": "jb",
            "best_step": 8,
            "best_loss": "6.000000",
            "cause_step": 9,
            "cause_key": "lr",
            "cause_before": "0.0003",
            "cause_after": "0.006",
            "cause_layer": "hot",
        }
        assert lines(outputs, "phases.tsv") == [
            "1\t2\t1\t10.000000\t0.0005\t40",
            "3\t6\t2\t8.000000\t0.0005\t320",
            "7\t8\t1\t6.000000\t0.0005\t60",
            "9\t14\t3\t7.000000\t0.0005\t180",
            "15\t16\t1\t\t\t60",
        ]
        assert verifier.verifier(Sealed(by_hand, ()))(outputs).passed


def test_lineage_by_hand(by_hand):
    assert [(job.id, first, last) for job, first, last in kept(by_hand)] == [("ja", 1, 6), ("jb", 7, 16)]
    assert origin(by_hand.jobs[2], by_hand.checkpoints) == by_hand.checkpoints[0]
    assert [(step, key) for step, key, *_ in effects(by_hand)] == [
        (3, "grad_accum"),
        (7, "batch_size"),
        (7, "grad_accum"),
        (9, "lr"),
        (15, "dropout"),
    ]


def test_the_reference_runs_by_stages_in_a_workspace(nano, tmp_path):
    made, outputs = nano
    for path, data in made.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    for stages in (reference.STAGES[:4], reference.STAGES[4:]):
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


def test_when_and_why_are_graded_apart(nano):
    made, outputs = nano
    path = "output/divergence.json"
    told = json.loads(outputs[path])
    wrong = made.scores({**outputs, path: json.dumps(told | {"cause_key": "seed"}).encode()})
    assert (wrong["onset"], wrong["cause"]) == (1, Fraction(4, 5))
    foreign = made.scores({**outputs, path: json.dumps(told | {"confidence": 1}).encode()})
    assert (foreign["onset"], foreign["cause"]) == (0, 0)
    text = made.scores({**outputs, path: json.dumps(told | {"onset_step": str(told["onset_step"])}).encode()})
    assert text["onset"] == Fraction(3, 4)


def test_a_count_counts_in_its_place_only(nano):
    made, outputs = nano
    path = "output/manifest.json"
    told = json.loads(outputs[path])
    moved = told | {"rows/logs.csv": told["rows"].pop("logs.csv")}
    assert made.scores({**outputs, path: json.dumps(moved).encode()})["manifest"] == 0


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
    count = str(json.loads(outputs[path])["last_step"]).encode()
    changed = {**outputs, path: outputs[path].replace(b'"last_step": ' + count, b'"last_step": ' + value)}
    assert changed != outputs
    assert not made.verify(changed).passed
    assert made.scores(changed)["manifest"] == Fraction(8, 9)


# --- world and damage -------------------------------------------------------------------------------------------
def test_a_world_that_breaks_an_invariant_is_refused(by_hand):
    first, *others = by_hand.jobs
    with pytest.raises(WorldError, match="does not start after"):
        sample.check(replace(by_hand, jobs=(replace(first, first=2), *others)))
    with pytest.raises(WorldError, match="more than once"):
        sample.check(replace(by_hand, jobs=(first, *by_hand.jobs)))
    with pytest.raises(WorldError, match="did not log"):
        sample.check(replace(by_hand, points=by_hand.points[1:]))
    with pytest.raises(WorldError, match="no single cause"):
        sample.check(replace(by_hand, changes=(*by_hand.changes, Change("jb", 9, "beta2", "0.5"))))
    calm = tuple(replace(point, loss=1_000_000, norm=1) for point in by_hand.points)
    with pytest.raises(WorldError, match="does not diverge"):
        sample.check(replace(by_hand, points=calm))


def test_every_kind_of_damage_is_in_every_tier(made):
    kinds = {
        *(
            "lost files",
            "missing rows",
            "duplicates",
            "merged logs",
            "lost order",
            "schema drift",
            "unit drift",
        ),
        *("foreign lines", "key drift"),
    }
    for tier in ("nano", "unit"):
        for seed in range(4):
            assert kinds <= {defect.kind for defect in made("runs", seed, tier).sealed.plan}


def test_operators_are_inverted_and_refuse_what_they_do_not_find():
    files = {"input/a.csv": b"job,loss\nja,2.500000\n", "input/b.jsonl": b'{"job": "jb", "loss": "nan"}\n'}
    plan = [
        Defect("merged logs", "merge_file", "input/a.csv", {"other": "input/b.jsonl", "rows": 1}),
        Defect(
            "unit drift",
            "scale_column",
            "input/a.csv",
            {"column": "loss", "factors": [4, 4], "before": 6, "after": 3},
        ),
    ]
    damaged = corrupt(files, plan, OPERATORS)
    assert damaged == {"input/a.csv": b"job,loss\nja,10000.000\njb,nan\n"}
    assert restore(damaged, plan, OPERATORS) == files
    with pytest.raises(CorruptionError, match="no multiple"):
        restore({"input/a.csv": b"job,loss\nja,10000.001\njb,nan\n"}, plan, OPERATORS)
    with pytest.raises(CorruptionError, match="does not fit"):
        corrupt(
            files, [Defect("", "merge_file", "input/a.csv", {"other": "input/b.jsonl", "rows": 2})], OPERATORS
        )
    edit = Defect("key drift", "replace_lines", "input/c.json", {"lines": [[1, ' "lr": 1', ' "rate": 1e0']]})
    configuration = {"input/c.json": b'{\n "lr": 1\n}\n'}
    assert restore(corrupt(configuration, [edit], OPERATORS), [edit], OPERATORS) == configuration
    with pytest.raises(CorruptionError, match="line 1"):
        restore(configuration, [edit], OPERATORS)
