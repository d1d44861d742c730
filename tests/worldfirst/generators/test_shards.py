"""The checkpoint: solvers agree, Phi is 1 exactly when the verifier accepts, exact credit, hostile tensors."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import zlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize

from truthfirst.worldfirst.corrupt import CorruptionError, corrupt, restore
from truthfirst.worldfirst.generators.shards import render, sample
from truthfirst.worldfirst.generators.shards.operators import OPERATORS
from truthfirst.worldfirst.generators.shards.progress import NODES
from truthfirst.worldfirst.instances import Instance, instance
from truthfirst.worldfirst.progress import ancestors
from truthfirst.worldfirst.tensors import Archive, Tensor, decode, encode, pack
from truthfirst.worldfirst.world import Defect, WorldError

Outputs = dict[str, bytes]
WHOLE_FILES = {  # node -> the file that is all of it
    "inventory": "inventory.csv",
    "replicas": "replicas.csv",
    "experts": "experts.safetensors",
    "index": "model.index.json",
    "provenance": "provenance.jsonl",
    "report": "report.json",
}


@pytest.fixture(scope="module")
def nano() -> tuple[Instance, Outputs]:
    made = instance("shards", 11, "nano")
    return made, made.generator.reference(made.files)


@pytest.mark.parametrize(
    ("tier", "seeds"), [("nano", range(6)), ("unit", range(2)), ("small", [0]), ("full", [0])]
)
def test_solvers_agree_and_pass(tier, seeds):
    for seed in seeds:
        made = instance("shards", seed, tier)
        outputs = made.generator.reference(made.files)
        assert outputs == made.generator.alternative(made.files)
        assert made.verify(outputs).passed
        assert made.potential(outputs) == 1
        assert made.potential({}) == made.potential(made.files) == 0


def test_sizes_are_those_of_the_tiers():
    sizes = {tier: instance("shards", 4, tier).files for tier in ("unit", "small", "full")}
    assert {tier: len(files) for tier, files in sizes.items()} == {"unit": 17, "small": 20, "full": 28}
    for tier, expected in {"unit": 51_000, "small": 168_000, "full": 586_000}.items():
        assert sum(map(len, sizes[tier].values())) == pytest.approx(expected, rel=0.15)


# --- known answers ----------------------------------------------------------------------------------------
def floats(entry: dict) -> list[float]:
    """Return a tensor's values, decoded bit by bit from the layout of its format."""
    data = bytes(entry["data"])
    if entry["dtype"] == "I8":
        return [byte - 256 if byte > 127 else byte for byte in data]
    fraction, bias, size = {"F32": (23, 127, 4), "BF16": (7, 127, 2), "F16": (10, 15, 2)}[entry["dtype"]]
    values = []
    for start in range(0, len(data), size):
        bits = int.from_bytes(data[start : start + size], "little")
        mantissa, rest = bits & ((1 << fraction) - 1), bits >> fraction
        exponent = rest & (2 * bias + 1)
        sign = -1 if bits >> (8 * size - 1) else 1
        values.append(
            sign
            * (mantissa + (1 << fraction if exponent else 0))
            * 2.0 ** (max(exponent, 1) - bias - fraction)
        )
    return values


def test_whole_tensors_hold_the_world(nano):
    made, outputs = nano
    found = {}
    for name in ("dense", "experts"):
        found |= dict(deserialize(outputs[f"output/{name}.safetensors"]))
    weights = {weight.name: weight for weight in made.sealed.world.weights}
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        scale = 1 if found[name]["dtype"] == "I8" else 64
        assert tuple(found[name]["shape"]) == weight.shape
        assert [value * scale for value in floats(found[name])] == list(weight.values)


def test_placement_and_provenance_hang_together(nano):
    made, outputs = nano
    world = made.sealed.world
    rows = list(csv.DictReader(io.StringIO(outputs["output/placement.csv"].decode())))
    assert {row["status"] for row in rows} == {"current", "duplicate", "stale", "partial"}
    steps = {row["status"]: int(row["step"]) for row in rows}
    assert steps["stale"] < steps["current"] == world.step == steps["duplicate"] < steps["partial"]
    for line in outputs["output/provenance.jsonl"].decode().splitlines():
        told = json.loads(line)
        ranks = [row["rank"] for file in told["sources"] for row in rows if row["file"] == file]
        assert len(ranks) == 1 or ranks == [str(rank) for rank in range(world.ranks)]
    tensors = dict(deserialize(outputs["output/dense.safetensors"]))
    told = {
        json.loads(line)["tensor"]: json.loads(line)
        for line in outputs["output/provenance.jsonl"].splitlines()
    }
    assert all(
        f"{zlib.crc32(bytes(one['data'])):08x}" == told[name]["crc32"] for name, one in tensors.items()
    )


# --- partial work -----------------------------------------------------------------------------------------
def blanked(data: bytes, columns: list[int]) -> bytes:
    """Return a table with some columns overwritten, the header aside."""
    header, *rows = csv.reader(io.StringIO(data.decode()))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([["?" if place in columns else cell for place, cell in enumerate(row)] for row in rows])
    return out.getvalue().encode()


def partial(made: Instance, outputs: Outputs, done: set[str]) -> Outputs:
    """Return what somebody has who did exactly these nodes."""
    kept = {f"output/{file}": outputs[f"output/{file}"] for node, file in WHOLE_FILES.items() if node in done}
    if done & {"names", "checksums"}:
        spoilt = [] if {"names", "checksums"} <= done else [5] if "names" in done else [2]
        kept["output/tensors.csv"] = blanked(outputs["output/tensors.csv"], spoilt)
    if done & {"ranks", "steps"}:
        spoilt = [] if {"ranks", "steps"} <= done else [1] if "ranks" in done else [2]
        kept["output/placement.csv"] = blanked(outputs["output/placement.csv"], spoilt)
    if done & {"divided", "replicated"}:
        axes = {parameter.name: parameter.axis for parameter in made.sealed.world.parameters}
        archive = decode(outputs["output/dense.safetensors"])
        tensors = {
            name: tensor
            for name, tensor in archive.tensors.items()
            if (
                "replicated"
                if axes[".".join("*" if p.isdigit() else p for p in name.split("."))] < 0
                else "divided"
            )
            in done
        }
        kept["output/dense.safetensors"] = encode(Archive({}, tensors))
    return kept


@given(st.sets(st.sampled_from([node.name for node in NODES])))
def test_closed_partial_work_earns_its_weights_exactly(nano, chosen):
    made, outputs = nano
    before = ancestors(NODES)
    done = set(chosen).union(*(before[name] for name in chosen))
    weight = sum(node.weight for node in NODES if node.name in done)
    state = partial(made, outputs, done)
    phi = made.potential(state)
    assert phi == Fraction(weight, sum(node.weight for node in NODES))
    assert (phi == 1) == (len(done) == len(NODES)) == made.verify(state).passed


@given(
    st.sets(st.sampled_from([node.name for node in NODES])), st.sampled_from([node.name for node in NODES])
)
def test_destroyed_work_costs(nano, chosen, lost):
    made, outputs = nano
    before = ancestors(NODES)
    done = set(chosen).union(*(before[name] for name in chosen), {lost}, before[lost])
    assert made.potential(partial(made, outputs, done - {lost})) < made.potential(
        partial(made, outputs, done)
    )


def test_a_part_of_the_tensors_earns_a_part(nano):
    made, outputs = nano
    archive = decode(outputs["output/experts.safetensors"])
    kept = dict(list(archive.tensors.items())[:-1])
    state = {**outputs, "output/experts.safetensors": encode(Archive({}, kept))}
    assert made.scores(state)["experts"] == 1 - Fraction(1, len(archive.tensors))
    foreign = {**archive.tensors, "foreign": Tensor("I8", (1,), b"1")}
    assert made.scores({**outputs, "output/experts.safetensors": encode(Archive({}, foreign))})["experts"] < 1


# --- any bytes --------------------------------------------------------------------------------------------
def header(data: bytes, change: bytes, to: bytes) -> bytes:
    """Return a safetensors file with a piece of its header replaced."""
    size = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + size].replace(change, to, 1)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


HOSTILE = [
    b"",
    b"\xff" * 8,
    (1 << 62).to_bytes(8, "little"),
    (2).to_bytes(8, "little") + b"{}",
    (100_000).to_bytes(8, "little") + b"[" * 100_000,
    (2).to_bytes(8, "little") + b"\xff\xff",
]
HEADERS = [
    (b"F32", b"I32"),
    (b"F32", b"F64"),
    (b'"shape":[', b'"shape":[1,'),
    (b'"shape":[', b'"shape":[true,'),
    (b'"shape":[', b'"shape":[9223372036854775807,'),
    (b'"data_offsets":[0,', b'"data_offsets":[4,'),
    (b"{", b'{"__metadata__":{"a":"b"},'),
    (b"{", b'{"__metadata__":{"a":1},'),
    (b"{", b'{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'),
    (b"{", b"{ "),
]


@pytest.mark.parametrize("file", ["dense", "experts"])
def test_graders_agree_on_hostile_tensors(nano, file):
    made, outputs = nano
    path = f"output/{file}.safetensors"
    states = [*HOSTILE, *(header(outputs[path], *change) for change in HEADERS), outputs[path] + b"\0"]
    passing = 0
    for data in states:
        passed = made.verify({**outputs, path: data}).passed
        assert (made.potential({**outputs, path: data}) == 1) == passed, data[:200]
        passing += passed
    assert passing >= 2  # metadata and spaces do not matter


@settings(max_examples=120)
@given(st.data())
def test_phi_is_one_exactly_when_the_verifier_accepts_whatever_is_written(nano, data):
    made, outputs = nano
    path = data.draw(st.sampled_from(sorted(outputs)))
    content = outputs[path]
    place = data.draw(st.integers(0, len(content) - 1))
    act = data.draw(st.sampled_from(["byte", "cut", "twice", "insert", "line twice", "line lost", "foreign"]))
    lines = content.split(b"\n")
    number = data.draw(st.integers(0, len(lines) - 1))
    if act == "byte":
        content = content[:place] + bytes([data.draw(st.integers(0, 255))]) + content[place + 1 :]
    elif act == "cut":
        content = content[:place]
    elif act == "twice":
        content += content
    elif act == "insert":
        piece = data.draw(
            st.sampled_from([b" ", b"\n", b"\r\n", b"\0", b"NaN", b"true", b'""', b"[" * 5_000])
        )
        content = content[:place] + piece + content[place:]
    elif act == "line twice":
        content = b"\n".join([*lines[:number], lines[number], *lines[number:]])
    elif act == "line lost":
        content = b"\n".join(lines[:number] + lines[number + 1 :])
    changed = {**outputs, path: content}
    if act == "foreign":
        changed["output/deep/report.json"] = b"{}"
    assert (made.potential(changed) == 1) == made.verify(changed).passed


@pytest.mark.parametrize("value", [b"1.0", b"true", b"NaN", b"1e0", b'"1"', b"01"])
def test_a_number_is_an_integer(nano, value):
    made, outputs = nano
    duplicates = b'"duplicate": 1'
    assert duplicates in outputs["output/report.json"]
    changed = {**outputs}
    changed["output/report.json"] = outputs["output/report.json"].replace(
        duplicates, b'"duplicate": ' + value
    )
    assert not made.verify(changed).passed
    assert made.potential(changed) < 1


# --- damage -----------------------------------------------------------------------------------------------
def test_every_kind_of_damage_is_in_every_tier_and_undone():
    kinds = {
        *("stale shards", "stale metadata", "scrambled shard indices", "missing copies", "divergent copies"),
        *("foreign copies", "dtype drift", "schema drift", "duplicates", "lost order"),
    }
    for tier in ("nano", "unit"):
        for seed in range(4):
            made = instance("shards", seed, tier)
            assert kinds == {defect.kind for defect in made.sealed.plan}
            clean = render.render(made.sealed.world)
            assert restore(corrupt(clean, made.sealed.plan, OPERATORS), made.sealed.plan, OPERATORS) == clean


FILE = "input/shards/a.safetensors"
SHARD = Archive(
    {"step": "3"}, {"x": Tensor("BF16", (2,), pack([1, 2], "BF16")), "y": Tensor("I8", (1,), b"\7")}
)


@pytest.mark.parametrize(
    ("operator", "parameters", "message"),
    [
        ("edit_metadata", {"field": "step", "old": "4", "new": "5"}, "not '4'"),
        ("rename_tensors", {"names": {"z": "w"}}, "no tensor 'z'"),
        ("rename_tensors", {"names": {"x": "y"}}, "one key"),
        ("cast_tensors", {"casts": [["x", "F16", "F32"]]}, "is BF16"),
        ("replace_tensors", {"tensors": [["y", "AAAA", "AAAA"]]}, "does not hold"),
        ("insert_tensors", {"tensors": [[9, "w", "I8", [1], "AA=="]]}, "cannot insert"),
        ("delete_tensors", {"tensors": [[0, "x", "I8", [1], "AA=="]]}, "as the plan tells"),
        ("copy_file", {"source": "input/none"}, "cannot copy"),
        ("permute_files", {"names": [FILE], "order": [1]}, "no permutation"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(operator, parameters, message):
    with pytest.raises(CorruptionError, match=message):
        corrupt({FILE: encode(SHARD)}, [Defect("", operator, FILE, parameters)], OPERATORS)


def test_a_permutation_puts_files_where_it_says():
    files = {name: name.encode() for name in "abc"}
    defect = Defect("", "permute_files", "", {"names": list("abc"), "order": [2, 0, 1]})
    damaged = corrupt(files, [defect], OPERATORS)
    assert damaged == {"a": b"c", "b": b"a", "c": b"b"}
    assert restore(damaged, [defect], OPERATORS) == files


# --- the world --------------------------------------------------------------------------------------------
def test_a_world_that_breaks_an_invariant_is_refused(nano):
    world = nano[0].sealed.world
    old = dataclasses.replace(world.old[0], step=world.step)
    for change, message in [
        ({"writers": (*world.writers[:1], *world.writers)}, "more than once"),
        ({"experts": ((0,), (0,))}, "one place each"),
        ({"weights": world.weights[1:]}, "parameter table"),
        ({"vocabulary": world.ranks * 3}, "divide"),
        ({"schemas": (dataclasses.replace(world.schemas[0], segments=(("a", "b"),)),)}, "one to one"),
        ({"old": (old, *world.old[1:])}, "incomplete"),
    ]:
        with pytest.raises(WorldError, match=message):
            sample.check(dataclasses.replace(world, **change))


def test_parts_that_cannot_be_told_apart_are_refused(nano):
    world = nano[0].sealed.world
    same = tuple(dataclasses.replace(weight, values=(1,) * len(weight.values)) for weight in world.weights)
    with pytest.raises(WorldError, match="one checksum"):
        sample.check(dataclasses.replace(world, weights=same))


def test_a_clean_tree_with_another_log_is_refused(nano):
    clean = render.render(nano[0].sealed.world)
    log = clean["input/save_log.csv"]
    with pytest.raises(WorldError, match="log does not agree"):
        render.recover(
            {**clean, "input/save_log.csv": log.replace(b"0", b"1", 1) if b"0" in log else log[:-2]}
        )


def test_every_seed_has_something_to_rename_and_a_copy_of_each_fate():
    for seed in range(12):
        made = instance("shards", seed, "nano")
        outputs = made.generator.reference(made.files)
        assert json.loads(outputs["output/report.json"])["renamed"] > 0
        copies = {tuple(row[1:]) for row in csv.reader(io.StringIO(outputs["output/replicas.csv"].decode()))}
        assert {("1", "1"), ("2", "1"), ("3", "2")} <= copies  # lost but one, one changed, one more elsewhere
