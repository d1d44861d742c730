"""The contract of a generator: a folder of small files, one a role, whose names are the roles.

    world.py        the types of this domain, frozen, nothing else
    sample.py       SIZES; sample(rng, tier) -> W; check(W) raises WorldError where an invariant of W is broken
    workflow.py     stages(W) -> (Stage, ...): the DAG, with semantic work from the scale of W
    render.py       render(W) -> clean files; recover(files) -> W, exactly
    defects.py      OPERATORS; plan(W, files, rng) -> (Defect, ...)
    prompt.py       DELIVERABLES; prompt(files) -> the text an agent reads (from public files only)
    verifier.py     COMPONENTS; verifier(sealed) -> Verify
    progress.py     NODES; scorer(sealed) -> Grade
    reference.py    STAGES; run_stage(name, files) -> new files; solve(files) -> files under output/.
                    Standard library only and nothing of ours: it also runs as a program in the agent's sandbox
    alternative.py  solve(files), written independently: other methods, other libraries
    suite.py        causes(outputs) -> {component: outputs that lose it}; counterfactuals(sealed, files, outputs) ->
                    {name: plausible outputs that must fail}: with `metamorphic.py` the hidden suite

`worldfirst/README.md` walks through one. The table GENERATORS (in `generators/`) names every generator and its domain.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from .corrupt import Operator
from .generators import GENERATORS
from .world import Defect, Deliverable, Files, Grade, Node, Sealed, Stage, Verify

ROLES = (
    *("world", "sample", "workflow", "render", "defects", "prompt"),
    *("verifier", "progress", "reference", "alternative", "suite"),
)
PACKAGE = f"{__package__}.generators"


class UnknownGenerator(ValueError):
    """No generator has this name."""


@dataclass(frozen=True)
class Generator:
    """A generator's roles, gathered; see the module docstring for what each must do.

    revision   counts changes that alter what a seed gives
    """

    name: str
    domain: str
    revision: int
    tiers: tuple[str, ...]
    deliverables: tuple[Deliverable, ...]
    components: tuple[str, ...]
    nodes: tuple[Node, ...]
    reference_stages: tuple[str, ...]
    operators: Mapping[str, Operator]
    sample: Callable[[np.random.Generator, str], Any]
    check: Callable[[Any], None]
    stages: Callable[[Any], tuple[Stage, ...]]
    render: Callable[[Any], dict[str, bytes]]
    recover: Callable[[Files], Any]
    plan: Callable[[Any, Files, np.random.Generator], tuple[Defect, ...]]
    prompt: Callable[[Files], str]
    verifier: Callable[[Sealed], Verify]
    scorer: Callable[[Sealed], Grade]
    run_stage: Callable[[str, Files], dict[str, bytes]]
    reference: Callable[[Files], dict[str, bytes]]
    alternative: Callable[[Files], dict[str, bytes]]
    causes: Callable[[Files], dict[str, dict[str, bytes]]]
    counterfactuals: Callable[[Sealed, Files, Files], dict[str, dict[str, bytes]]]


@cache
def generator(name: str) -> Generator:
    """Return the generator of this name. Raises UnknownGenerator, which lists the names."""
    if name not in GENERATORS:
        raise UnknownGenerator(f"no generator {name!r}: choose one of {', '.join(GENERATORS)}")
    roles = {role: importlib.import_module(f"{PACKAGE}.{name}.{role}") for role in ROLES}
    return assemble(name, GENERATORS[name], roles)


def assemble(name: str, domain: str, roles: Mapping[str, ModuleType]) -> Generator:
    """Gather the role modules of a generator. An AttributeError names what a role does not define."""
    return Generator(
        name=name,
        domain=domain,
        revision=roles["sample"].REVISION,
        tiers=tuple(roles["sample"].SIZES),
        deliverables=roles["prompt"].DELIVERABLES,
        components=roles["verifier"].COMPONENTS,
        nodes=roles["progress"].NODES,
        reference_stages=roles["reference"].STAGES,
        operators=roles["defects"].OPERATORS,
        sample=roles["sample"].sample,
        check=roles["sample"].check,
        stages=roles["workflow"].stages,
        render=roles["render"].render,
        recover=roles["render"].recover,
        plan=roles["defects"].plan,
        prompt=roles["prompt"].prompt,
        verifier=roles["verifier"].verifier,
        scorer=roles["progress"].scorer,
        run_stage=roles["reference"].run_stage,
        reference=roles["reference"].solve,
        alternative=roles["alternative"].solve,
        causes=roles["suite"].causes,
        counterfactuals=roles["suite"].counterfactuals,
    )
