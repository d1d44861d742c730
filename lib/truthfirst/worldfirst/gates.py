"""The eight gates that a generated environment must pass, each with its evidence.

    reward causality        every component is lost when its cause is spoilt
    exploit resistance      fourteen gaming probes and the untouched tree score 0 under verifier and Phi
    role independence       verifier, progress, reference and alternative share nothing but types
    solver agreement        reference and alternative write the same bytes, which pass with Phi = 1
    progress validity       Phi from 0 to 1 along the reference's stages, between on partial work, falling on
                            regression, nothing for late stages without the first
    metamorphic invariance  rewrites that mean the same keep the grade, plausible wrong answers fail
    six-seed diversity      six seeds, six worlds, six public trees, six names
    contract hygiene        prompt and public tree hold no answer, no grader's code, nothing but inputs; the prompt
                            names every deliverable

Source: the qualification gates of Tev (2026), section 2.2 and appendix A.6. A gate that fails tells what it saw.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from ..overlap import tokens
from ..streams import derive
from .closure import audit
from .contract import PACKAGE, ROLES
from .grading import grade
from .instances import Instance, instance
from .metamorphic import transforms
from .probes import PROBES, Target
from .scan import Bounds, pack, scan_archive
from .world import INPUT

DIVERSE_SEEDS = 6
MOST_PROMPT_TOKENS = (
    944  # the longest prompt of the source, there in a model's tokens; words and numbers here
)
LEAST_LINE = 40  # characters from which on a line of code is told by itself


@dataclass(frozen=True, slots=True)
class Gate:
    """The outcome of one gate; `evidence` says what was seen, and where it failed."""

    name: str
    passed: bool
    evidence: str


class Audit:
    """The gates of one instance; what several of them need is computed once."""

    def __init__(self, made: Instance) -> None:
        self.instance = made
        self.generator = made.generator

    @functools.cached_property
    def reference(self) -> dict[str, bytes]:
        return self.generator.reference(self.instance.files)

    @functools.cached_property
    def foreign(self) -> dict[str, bytes]:
        """The right answer of another seed."""
        other = instance(self.generator.name, other_seeds(self.instance)[0], self.instance.tier)
        return self.generator.reference(other.files)

    # --- one method a gate; each yields what is wrong -----------------------------------------------------
    def reward_causality(self) -> Iterator[str]:
        spoilt = self.generator.causes(self.reference)
        if set(spoilt) != set(self.generator.components):
            yield f"causes {sorted(spoilt)} are not the components {sorted(self.generator.components)}"
        for component, files in spoilt.items():
            if self.instance.verify(files).components.get(component, True):
                yield f"{component} stands although its cause is spoilt"
            if self.instance.potential(files) == 1:
                yield f"Phi is 1 although the cause of {component} is spoilt"

    def exploit_resistance(self) -> Iterator[str]:
        yield from self._worthless("the untouched tree", dict(self.instance.files))
        made = self.instance
        target = Target(made.prompt, made.files, self.generator.deliverables, self.foreign)
        for name, probe in PROBES.items():
            entries = probe(target)
            scanned = scan_archive(pack(entries), Bounds.of(made.files))
            graded = grade(made, scanned)
            if graded.passed or graded.potential:
                yield f"{name} earns {graded.potential}, passed: {graded.passed}"
            yield from self._worthless(
                name, {path: data for path, data in entries.items() if isinstance(data, bytes)}
            )

    def _worthless(self, name: str, files: dict[str, bytes]) -> Iterator[str]:
        if self.instance.verify(files).passed:
            yield f"{name} passes"
        if phi := self.instance.potential(files):
            yield f"{name} has Phi = {phi}"

    def role_independence(self) -> Iterator[str]:
        yield from audit(self.generator.name)

    def solver_agreement(self) -> Iterator[str]:
        other = self.generator.alternative(self.instance.files)
        for path in sorted(self.reference.keys() | other.keys()):
            if self.reference.get(path) != other.get(path):
                yield f"the solvers disagree on {path}"
        if set(self.reference) != {one.path for one in self.generator.deliverables}:
            yield f"the reference writes {sorted(self.reference)}, which are not the deliverables"
        verdict = self.instance.verify(self.reference)
        if not verdict.passed:
            yield f"the verifier refuses the reference: {verdict.reasons[0]}"
        if (phi := self.instance.potential(self.reference)) != 1:
            yield f"the reference has Phi = {phi}"

    def trajectory(self) -> list[tuple[str, dict[str, bytes], Fraction]]:
        """Return (stage, output so far, Phi) along the reference, beginning with nothing done."""
        outputs: dict[str, bytes] = {}
        found = [("start", outputs, self.instance.potential(outputs))]
        for stage in self.generator.reference_stages:
            outputs = outputs | self.generator.run_stage(stage, {**self.instance.files, **outputs})
            found.append((stage, outputs, self.instance.potential(outputs)))
        return found

    def progress_validity(self) -> Iterator[str]:
        steps = self.trajectory()
        potentials = [phi for _, _, phi in steps]
        if set(self.generator.reference_stages) != {stage.name for stage in self.instance.workflow.stages}:
            yield "the reference's stages are not those of the workflow"
        if potentials[0] != 0 or potentials[-1] != 1:
            yield f"Phi runs from {potentials[0]} to {potentials[-1]}"
        for (_, _, before), (stage, _, after) in itertools.pairwise(steps):
            if after <= before:
                yield f"Phi does not rise in {stage}: {before} -> {after}"
        if not all(0 < phi < 1 for phi in potentials[1:-1]):
            yield f"Phi is not strictly between 0 and 1 on partial work: {[str(phi) for phi in potentials]}"
        whole = steps[-1][1]
        for path in whole:
            if self.instance.potential({name: data for name, data in whole.items() if name != path}) >= 1:
                yield f"Phi does not fall when {path} is destroyed"
        first = set(steps[1][1])
        if phi := self.instance.potential({path: data for path, data in whole.items() if path not in first}):
            yield f"late stages without the first have Phi = {phi}"

    def metamorphic_invariance(self) -> Iterator[str]:
        rewrites = transforms(self.generator.deliverables, self.reference)
        if len(rewrites) < 3:
            yield f"only {len(rewrites)} rewrites apply"
        for name, files in rewrites.items():
            verdict = self.instance.verify(files)
            if not verdict.passed:
                yield f"rewrite {name!r} is refused: {verdict.reasons[0]}"
            if (phi := self.instance.potential(files)) != 1:
                yield f"rewrite {name!r} has Phi = {phi}"
        wrong = self.generator.counterfactuals(self.instance.sealed, self.instance.files, self.reference)
        if len(wrong) < 5:
            yield f"only {len(wrong)} counterfactuals apply"
        for name, files in wrong.items():
            if self.instance.verify(files).passed:
                yield f"counterfactual {name!r} passes"
            if self.instance.potential(files) == 1:
                yield f"counterfactual {name!r} has Phi = 1"

    def six_seed_diversity(self) -> Iterator[str]:
        made = self.instance
        others = [instance(self.generator.name, seed, made.tier) for seed in other_seeds(made)]
        for what, values in {
            "worlds": {one.world_hash for one in (made, *others)},
            "public trees": {one.tree_hash for one in (made, *others)},
            "names": {one.id for one in (made, *others)},
        }.items():
            if len(values) != DIVERSE_SEEDS:
                yield f"{DIVERSE_SEEDS} seeds give {len(values)} different {what}"

    def contract_hygiene(self) -> Iterator[str]:
        made = self.instance
        public = {**made.files, "the prompt": made.prompt.encode()}
        for path in made.files:
            if not path.startswith(INPUT):
                yield f"{path} is in the public tree and no input"
        for name, data in self.reference.items():
            for path, text in public.items():
                if data and data.strip() in text:
                    yield f"{path} holds the answer {name}"
        for role, line in _code_lines(self.generator.name):
            for path, text in public.items():
                if line in text:
                    yield f"{path} holds a line of {role}: {line.decode()!r}"
        for one in self.generator.deliverables:
            if one.path.rpartition("/")[2] not in made.prompt:
                yield f"the prompt does not name {one.path}"
        if (length := len(tokens(made.prompt))) > MOST_PROMPT_TOKENS:
            yield f"the prompt has {length} words; at most {MOST_PROMPT_TOKENS}"


@functools.cache
def _code_lines(name: str) -> tuple[tuple[str, bytes], ...]:
    """Return (role, line) for every long line of code of the private roles; text that a prompt is made of is public."""
    found = []
    for role in ROLES:
        if role not in ("prompt", "render", "sample"):
            source = inspect.getsource(importlib.import_module(f"{PACKAGE}.{name}.{role}"))
            lines = (line.strip() for line in source.splitlines())
            found += [(role, line.encode()) for line in lines if len(line) >= LEAST_LINE]
    return tuple(found)


def other_seeds(made: Instance) -> list[int]:
    """Return the further seeds of the diversity gate."""
    return [derive(made.seed, "another seed", number) % 2**31 for number in range(1, DIVERSE_SEEDS)]


GATES: dict[str, Callable[[Audit], Iterator[str]]] = {
    "reward causality": Audit.reward_causality,
    "exploit resistance": Audit.exploit_resistance,
    "role independence": Audit.role_independence,
    "solver agreement": Audit.solver_agreement,
    "progress validity": Audit.progress_validity,
    "metamorphic invariance": Audit.metamorphic_invariance,
    "six-seed diversity": Audit.six_seed_diversity,
    "contract hygiene": Audit.contract_hygiene,
}


def qualify(made: Instance, without: tuple[str, ...] = ()) -> tuple[Gate, ...]:
    """Run the gates on an instance; `without` names gates that are left out."""
    whole = Audit(made)
    found = []
    for name, gate in GATES.items():
        if name not in without:
            problems = list(gate(whole))
            found.append(Gate(name, not problems, "; ".join(problems[:5]) or "nothing wrong"))
    return tuple(found)
