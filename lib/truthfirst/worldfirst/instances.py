"""An instance: one world of a generator, with its files, its damage, its prompt and its graders.

`instance(name, seed, tier)` goes through every stage and asserts what makes the ground truth correct by construction:
the world keeps its invariants, the clean files give it back exactly, the damage has an exact inverse, and the stages,
nodes and deliverables fit together. It is a pure function of its three arguments; no model takes part.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from ..records import content_hash
from ..streams import stream
from .contract import Generator, generator
from .corrupt import corrupt, restore
from .progress import check_nodes, potential
from .workflow import Workflow, workflow
from .world import INPUT, OUTPUT, Files, Grade, Sealed, Verdict, Verify, WorldError


@dataclass(frozen=True)
class Instance:
    """One task.

    files      the public tree s0, all under input/
    sealed     the world and the defect plan; never shown to a player
    prompt     the public contract, the only description that an agent gets
    """

    generator: Generator
    seed: int
    tier: str
    files: Mapping[str, bytes] = field(repr=False)
    prompt: str = field(repr=False)
    workflow: Workflow = field(repr=False)
    sealed: Sealed = field(repr=False)

    @property
    def recipe(self) -> dict[str, Any]:
        """JSON that rebuilds the instance."""
        return {
            "generator": self.generator.name,
            "revision": self.generator.revision,
            "seed": self.seed,
            "tier": self.tier,
        }

    @functools.cached_property
    def world_hash(self) -> str:
        """Identity of the latent world."""
        return content_hash(asdict(self.sealed.world))

    @functools.cached_property
    def tree_hash(self) -> str:
        """Identity of the public tree."""
        return tree_hash(self.files)

    @functools.cached_property
    def id(self) -> str:
        """Name of the task: generator, tier and a hash of world, damage and prompt."""
        sealed = [self.world_hash, [asdict(defect) for defect in self.sealed.plan], self.prompt]
        return f"{self.generator.name}-{self.tier}-{content_hash(sealed, 12)}"

    @functools.cached_property
    def _verifier(self) -> Verify:
        return self.generator.verifier(self.sealed)

    @functools.cached_property
    def _scorer(self) -> Grade:
        return self.generator.scorer(self.sealed)

    def verify(self, files: Files) -> Verdict:
        """Return the strict verdict on a workspace's files; whatever is outside output/ does not count."""
        return self._verifier(outputs(files))

    def scores(self, files: Files) -> dict[str, Fraction]:
        """Return the partial score c_v of every node, before gating."""
        return self._scorer(outputs(files))

    def potential(self, files: Files) -> Fraction:
        """Return Phi of a workspace's files, exactly."""
        return potential(self.generator.nodes, self.scores(files))


def outputs(files: Files) -> dict[str, bytes]:
    """Return the files that are graded."""
    return {path: data for path, data in files.items() if path.startswith(OUTPUT)}


def tree_hash(files: Files) -> str:
    """Return the content hash of a file tree."""
    return content_hash({path: content_hash(data, 64) for path, data in files.items()})


def instance(name: str, seed: int, tier: str) -> Instance:
    """Make an instance. Raises UnknownGenerator, SeedError, or WorldError where the generator breaks its contract."""
    made = generator(name)
    if tier not in made.tiers:
        raise WorldError(f"generator {name!r} has no tier {tier!r}: choose one of {', '.join(made.tiers)}")
    world = made.sample(stream(seed, "world", name, tier), tier)
    made.check(world)
    graph = workflow(made.stages(world))
    check_nodes(made.nodes, graph.stages)
    clean = made.render(world)
    if stray := [path for path in clean if not path.startswith(INPUT)]:
        raise WorldError(f"{stray[0]} is not under {INPUT}: the public tree holds inputs only")
    if made.recover(clean) != world:
        raise WorldError(f"{name}, seed {seed}, {tier}: the clean files do not give the world back")
    plan = made.plan(world, clean, stream(seed, "defects", name, tier))
    damaged = corrupt(clean, plan, made.operators)
    if restore(damaged, plan, made.operators) != clean:
        raise WorldError(f"{name}, seed {seed}, {tier}: the damage is not undone by its own plan")
    if damaged == clean:
        raise WorldError(f"{name}, seed {seed}, {tier}: the plan damages nothing")
    return Instance(made, seed, tier, damaged, made.prompt(damaged), graph, Sealed(world, plan))
