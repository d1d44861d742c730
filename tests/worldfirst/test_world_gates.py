"""The eight gates: passed by real instances, and each failed by a planted fault, with evidence that names it."""

from __future__ import annotations

import dataclasses
import inspect
from fractions import Fraction
from typing import Any

import pytest

from truthfirst.worldfirst import gates
from truthfirst.worldfirst.contract import generator
from truthfirst.worldfirst.gates import GATES, Audit, other_seeds, qualify
from truthfirst.worldfirst.generators import GENERATORS
from truthfirst.worldfirst.generators.warehouse import reference
from truthfirst.worldfirst.grading import grade
from truthfirst.worldfirst.instances import Instance
from truthfirst.worldfirst.probes import PROBES, Target
from truthfirst.worldfirst.scan import Bounds, pack, scan_archive
from truthfirst.worldfirst.world import Verdict


def broken(made: Instance, **roles: Any) -> Instance:
    """Return an instance whose generator has other roles."""
    return dataclasses.replace(made, generator=dataclasses.replace(made.generator, **roles))


def problems(gate: str, made: Instance) -> str:
    return "; ".join(GATES[gate](Audit(made)))


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("tier", ["nano", "unit"])
def test_real_instances_pass_every_gate(made, name, tier):
    found = qualify(made(name, 1, tier))
    assert [gate.name for gate in found] == list(GATES)
    assert len(found) == 8
    assert [gate for gate in found if not gate.passed] == []


# --- probes ---------------------------------------------------------------------------------------------
def test_there_are_fourteen_probes():
    assert len(PROBES) == 14
    assert all(inspect.getdoc(probe) for probe in PROBES.values())


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_earns_nothing_and_is_no_empty_threat(made, name, probe):
    one = made(name, 2, "nano")
    foreign = made(name, other_seeds(one)[0], "nano")
    target = Target(one.prompt, one.files, one.generator.deliverables, one.generator.reference(foreign.files))
    entries = PROBES[probe](target)
    assert entries
    graded = grade(one, scan_archive(pack(entries), Bounds.of(one.files)))
    assert (graded.passed, graded.potential) == (False, 0)
    assert graded.reasons


# --- every gate fails for a fault of its own --------------------------------------------------------------
def test_causality_fails_for_a_component_that_nothing_can_lose(made):
    good = made()
    causes = good.generator.causes
    unspoilt = broken(good, causes=lambda outputs: causes(outputs) | {"facts": dict(outputs)})
    assert "facts stands although its cause is spoilt" in problems("reward causality", unspoilt)
    fewer = broken(good, causes=lambda outputs: {k: v for k, v in causes(outputs).items() if k != "facts"})
    assert "are not the components" in problems("reward causality", fewer)


def test_resistance_fails_for_a_scorer_that_pays_for_form(made):
    good = made()

    def naive(sealed):
        honest = good.generator.scorer(sealed)
        return lambda files: {
            name: max(score, Fraction(any(b"," in data for data in files.values()), 3))
            for name, score in honest(files).items()
        }

    found = problems("exploit resistance", broken(good, scorer=naive))
    for probe in ("schema_only", "copied_input", "sprayed_rows", "other_seed"):
        assert f"{probe} earns 1/3" in found
    lenient = broken(good, verifier=lambda sealed: lambda files: Verdict({"all": True}))
    assert "the untouched tree passes" in problems("exploit resistance", lenient)


def test_independence_fails_where_the_audit_finds_something(made, monkeypatch):
    monkeypatch.setattr(gates, "audit", lambda name: (f"{name}: verifier imports reference",))
    assert "verifier imports reference" in problems("role independence", made())


def test_agreement_fails_for_one_other_byte(made):
    good = made()

    def careless(files):
        outputs = good.generator.alternative(files)
        return outputs | {"output/customers.csv": outputs["output/customers.csv"] + b"\n"}

    assert "disagree on output/customers.csv" in problems(
        "solver agreement", broken(good, alternative=careless)
    )
    wrong = broken(good, reference=careless, alternative=careless)
    found = problems("solver agreement", wrong)
    assert "refuses the reference" in found
    assert "has Phi = " in found


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda scores: dict.fromkeys(scores, Fraction(1)), "runs from 1 to 1"),
        (lambda scores: scores | {"manifest": Fraction(0)}, "to 23/24"),
        (lambda scores: scores | {"customers": Fraction(min(scores.values()) == 1)}, "does not rise"),
        (lambda scores: scores | {"profile": Fraction(1)}, "late stages without the first"),
        (lambda scores: {name: Fraction(scores["facts"] > 0) for name in scores}, "not strictly between"),
        (lambda scores: scores | {"manifest": scores["margins"]}, "does not fall when output/manifest.json"),
    ],
)
def test_progress_validity_fails(made, fault, message):
    good = made()

    def scorer(sealed):
        honest = good.generator.scorer(sealed)
        return lambda files: fault(honest(files))

    assert message in problems("progress validity", broken(good, scorer=scorer))


def test_invariance_fails_for_a_verifier_of_bytes_and_for_a_lenient_one(made):
    good = made()
    right = good.generator.reference(good.files)
    strict = broken(good, verifier=lambda sealed: lambda files: Verdict({"all": files == right}, ("bytes",)))
    assert "rewrite 'rows reversed' is refused: bytes" in problems("metamorphic invariance", strict)
    lenient = broken(good, verifier=lambda sealed: lambda files: Verdict({"all": True}))
    assert "counterfactual 'stale cache' passes" in problems("metamorphic invariance", lenient)
    few = broken(good, counterfactuals=lambda *_: {})
    assert "only 0 counterfactuals" in problems("metamorphic invariance", few)


def test_diversity_fails_when_seeds_are_ignored(made, monkeypatch):
    monkeypatch.setattr(gates, "instance", lambda name, seed, tier: made(name, 0, tier))
    found = problems("six-seed diversity", made())
    assert "6 seeds give 1 different worlds" in found
    assert "public trees" in found
    assert "names" in found


def test_hygiene_fails_for_leaks(made):
    good = made()
    answer = good.generator.reference(good.files)["output/manifest.json"]
    line = inspect.getsource(reference.load_facts).splitlines()[3].strip()
    for files, prompt, message in (
        ({**good.files, "input/old.json": b"x" + answer}, good.prompt, "input/old.json holds the answer"),
        (
            {**good.files, "tests/check.py": b""},
            good.prompt,
            "tests/check.py is in the public tree and no input",
        ),
        (good.files, good.prompt + inspect.getsource(reference), "the prompt holds a line of reference"),
        (good.files, good.prompt.replace("manifest.json", "m.json"), "does not name output/manifest.json"),
        (good.files, good.prompt * 2, "at most 944"),
    ):
        assert message in problems("contract hygiene", dataclasses.replace(good, files=files, prompt=prompt))
    assert line


def test_generators_are_named():
    with pytest.raises(ValueError, match=r"choose one of .*warehouse"):
        generator("no such")
