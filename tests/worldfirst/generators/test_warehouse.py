"""The warehouse: solvers agree, Phi is 1 exactly when the verifier accepts, exact credit for closed partial work."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truthfirst.worldfirst.generators.warehouse import sample
from truthfirst.worldfirst.generators.warehouse.progress import NODES
from truthfirst.worldfirst.generators.warehouse.world import Sale
from truthfirst.worldfirst.instances import Instance, instance
from truthfirst.worldfirst.progress import ancestors
from truthfirst.worldfirst.world import WorldError

FILES = {  # node -> what it needs: a file, or lines of a kind in one
    "profile": "profile.csv",
    "customers": "customers.csv",
    "products": "products.csv",
    "duplicates": "repairs.csv:duplicate",
    "restored": "repairs.csv:restored",
    "repriced": "repairs.csv:repriced",
    "voided": "repairs.csv:voided",
    "facts": "transactions.csv",
    "monthly": "monthly_revenue.tsv",
    "margins": "segment_margin.json",
    "manifest": "manifest.json",
}


@pytest.fixture(scope="module")
def nano() -> tuple[Instance, dict[str, bytes]]:
    made = instance("warehouse", 11, "nano")
    return made, made.generator.reference(made.files)


@pytest.mark.parametrize(
    ("tier", "seeds"), [("nano", range(6)), ("unit", range(2)), ("small", [0]), ("full", [0])]
)
def test_solvers_agree_and_pass(tier, seeds):
    for seed in seeds:
        made = instance("warehouse", seed, tier)
        outputs = made.generator.reference(made.files)
        assert outputs == made.generator.alternative(made.files)
        assert made.verify(outputs).passed
        assert made.potential(outputs) == 1
        assert made.potential({}) == made.potential(made.files) == 0


def test_sizes_are_those_of_the_tiers():
    sizes = {tier: instance("warehouse", 4, tier).files for tier in ("unit", "small", "full")}
    assert {tier: len(files) for tier, files in sizes.items()} == {"unit": 17, "small": 20, "full": 28}
    for tier, expected in {"unit": 51_000, "small": 168_000, "full": 586_000}.items():
        assert sum(map(len, sizes[tier].values())) == pytest.approx(expected, rel=0.15)


def test_a_total_by_hand(nano):
    made, outputs = nano
    world = made.sealed.world
    total = sum(sale.quantity * sale.price for sale in world.sales if not sale.void)
    assert json.loads(outputs["output/manifest.json"])["revenue_cents"] == total
    margins = json.loads(outputs["output/segment_margin.json"])
    costs = {product.id: product.cost for product in world.products}
    assert sum(entry["margin_cents"] for entry in margins.values()) == sum(
        sale.quantity * (sale.price - costs[sale.product]) for sale in world.sales if not sale.void
    )


# --- partial work ---------------------------------------------------------------------------------------
def partial(outputs: dict[str, bytes], done: set[str]) -> dict[str, bytes]:
    """Return what somebody has who did exactly these nodes."""
    kept = {}
    kinds = [FILES[name].partition(":")[2] for name in done if ":" in FILES[name]]
    for name in done:
        path = f"output/{FILES[name].partition(':')[0]}"
        kept[path] = outputs[path]
    if kinds:
        header, *lines = outputs["output/repairs.csv"].decode().splitlines(keepends=True)
        lines = [line for line in lines if line.partition(",")[0] in kinds]
        kept["output/repairs.csv"] = "".join([header, *lines]).encode()
    return kept


@given(st.sets(st.sampled_from([node.name for node in NODES])))
def test_closed_partial_work_earns_its_weights_exactly(nano, chosen):
    made, outputs = nano
    before = ancestors(NODES)
    done = set(chosen).union(*(before[name] for name in chosen))
    weight = sum(node.weight for node in NODES if node.name in done)
    phi = made.potential(partial(outputs, done))
    assert phi == Fraction(weight, sum(node.weight for node in NODES))
    assert (phi == 1) == (len(done) == len(NODES)) == made.verify(partial(outputs, done)).passed


@given(
    st.sets(st.sampled_from([node.name for node in NODES])), st.sampled_from([node.name for node in NODES])
)
def test_destroyed_work_costs(nano, chosen, lost):
    made, outputs = nano
    before = ancestors(NODES)
    done = set(chosen).union(*(before[name] for name in chosen), {lost}, before[lost])
    assert made.potential(partial(outputs, done - {lost})) < made.potential(partial(outputs, done))


def test_work_without_its_prerequisites_earns_nothing(nano):
    made, outputs = nano
    assert made.potential({path: data for path, data in outputs.items() if path != "output/profile.csv"}) == 0
    assert made.potential({"output/transactions.csv": outputs["output/transactions.csv"]}) == 0


# --- any bytes ------------------------------------------------------------------------------------------
CELLS = st.sampled_from(["", "NaN", "inf", "-0", "1.0", "true", "0", "x", " 1", "\u2028", '"', "1e999", "٣"])


def mutate(data: st.DataObject, outputs: dict[str, bytes]) -> dict[str, bytes]:
    """Change an answer in one way that an agent might."""
    path = data.draw(st.sampled_from(sorted(outputs)))
    act = data.draw(
        st.sampled_from(
            [
                "delete",
                "cut",
                "byte",
                "line twice",
                "line lost",
                "lines swapped",
                "cell",
                "foreign",
                "number",
                "text",
            ]
        )
    )
    content = outputs[path]
    lines = content.splitlines(keepends=True)
    number = data.draw(st.integers(0, max(0, len(lines) - 1)))
    if act == "delete":
        return {name: kept for name, kept in outputs.items() if name != path}
    if act == "cut":
        content = content[: data.draw(st.integers(0, len(content)))]
    elif act == "byte" and content:
        place = data.draw(st.integers(0, len(content) - 1))
        content = content[:place] + bytes([data.draw(st.integers(0, 255))]) + content[place + 1 :]
    elif act == "line twice" and lines:
        content = b"".join([*lines, lines[number]])
    elif act == "line lost" and lines:
        content = b"".join(lines[:number] + lines[number + 1 :])
    elif act == "lines swapped" and lines:
        content = b"".join([*lines[:1], *lines[:0:-1]])
    elif act == "cell" and lines:
        cells = (
            lines[number]
            .decode("utf-8", "replace")
            .rstrip("\n")
            .split("\t" if path.endswith(".tsv") else ",")
        )
        cells[data.draw(st.integers(0, len(cells) - 1))] = data.draw(CELLS)
        content = b"".join([*lines[:number], ",".join(cells).encode() + b"\n", *lines[number + 1 :]])
    elif act == "foreign":
        return {**outputs, data.draw(st.sampled_from(["output/x", "output/deep/profile.csv"])): b""}
    elif act == "number":
        content = content.replace(
            b": 1", data.draw(st.sampled_from([b": 1.0", b": 01", b": true", b": NaN", b":1"])), 1
        )
    elif act == "text":
        content = data.draw(
            st.sampled_from([b"", b"\xff", b"[" * 100_000, b"1" * 5_000, b"null", b"{}", b"\r", b'"'])
        )
    return {**outputs, path: content}


@settings(max_examples=300)
@given(st.data())
def test_phi_is_one_exactly_when_the_verifier_accepts_whatever_is_written(nano, data):
    made, outputs = nano
    for _ in range(data.draw(st.integers(1, 3))):
        outputs = mutate(data, outputs) if outputs else outputs
    assert (made.potential(outputs) == 1) == made.verify(outputs).passed


def test_rows_in_any_order_and_keys_in_any_order_pass(nano):
    made, outputs = nano
    header, *rows = csv.reader(io.StringIO(outputs["output/transactions.csv"].decode()))
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows([header, *rows[::-1]])
    changed = {**outputs, "output/transactions.csv": text.getvalue().encode()}
    value = json.loads(outputs["output/manifest.json"])
    changed["output/manifest.json"] = json.dumps(
        {key: value[key] for key in reversed(value)}, indent=3
    ).encode()
    assert made.verify(changed).passed
    assert made.potential(changed) == 1


@pytest.mark.parametrize("value", [b"1.0", b"true", b'"1"', b"NaN", b"Infinity", b"1e0"])
def test_a_number_is_an_integer(nano, value):
    made, outputs = nano
    total = str(json.loads(outputs["output/manifest.json"])["transactions"]).encode()
    changed = {**outputs}
    changed["output/manifest.json"] = outputs["output/manifest.json"].replace(
        b'"transactions": ' + total, b'"transactions": ' + value
    )
    assert changed != outputs
    assert not made.verify(changed).passed
    assert made.potential(changed) == Fraction(23, 24) + Fraction(7, 8 * 24)


def test_reasons_are_told(nano):
    made, outputs = nano
    verdict = made.verify({**outputs, "output/x": b"", "output/profile.csv": b"\xff"})
    assert verdict.components["package"] is False
    assert any("'x' is no deliverable" in reason for reason in verdict.reasons)
    assert any("profile.csv: not a table" in reason for reason in verdict.reasons)


# --- the world ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"customer": "C0"}, "does not exist"),
        ({"quantity": 0}, "no positive quantity"),
        ({"day": "1999-01-01"}, "does not exist"),
        ({"price": -5}, "no positive quantity"),
    ],
)
def test_a_world_that_breaks_an_invariant_is_refused(nano, change, message):
    world = nano[0].sealed.world
    first = world.sales[0]
    entries = {name: getattr(first, name) for name in Sale.__slots__} | change
    fields = {name: getattr(world, name) for name in type(world).__slots__}
    with pytest.raises(WorldError, match=message):
        sample.check(type(world)(**(fields | {"sales": (Sale(**entries), *world.sales[1:])})))
    with pytest.raises(WorldError, match="more than once"):
        sample.check(type(world)(**(fields | {"sales": (first, *world.sales)})))


def test_every_kind_of_damage_is_in_every_tier():
    kinds = {
        *(
            "missing rows",
            "duplicates",
            "missing values",
            "identity drift",
            "categorical drift",
            "schema drift",
        ),
        *("lost order", "stale cache"),
    }
    for tier in ("nano", "unit"):
        for seed in range(4):
            plan = instance("warehouse", seed, tier).sealed.plan
            assert kinds <= {defect.kind for defect in plan}
