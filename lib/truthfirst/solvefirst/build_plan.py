"""The plan of a corpus: from a short YAML file to an even list of places, each filled by one admitted environment.

A place fixes family, size, split, budget, setter and domain. Counts follow the weights of the plan in two steps.
Cumulative rounding: over the cells in their fixed order, a cell whose share ends at x of N gets round(x) less what
went before, so the total is exactly N and every family's count is within one of its share. Largest remainder
(Hamilton's method; Balinski and Young, "Fair representation", 1982) then says how many places each size, split, budget
and setter is due; where the cells are too many for N and one of them is off by more than a hundredth of its due, places
move along that axis alone, family and all other marks kept, until every value has its due. A value whose share is at
least one place therefore never goes without.

Domains are dealt in shuffled rounds: each run of K places holds each of the K domains once, so no two domains differ by
more than one, and domain is independent of size and budget.

Instances come from streams (seed, family, size, split). The i-th of the n places of a stream tries the indices i,
i + n, i + 2n, ...: no two places share an instance, no split shares one with another, and what a place becomes does
not depend on the order in which places are worked on.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..core_yaml import YamlError, load_yaml
from ..records import content_hash
from ..streams import stream
from .candidates import SPLITS, Recipe, check_setter, read_corpus
from .environment import BUDGETS
from .families import FAMILIES, SIZES
from .families.base import UnknownName

MOST_WEIGHT = 1_000_000  # weights are relative; a bound keeps every product of them finite
Number = Annotated[float, Field(ge=0, le=MOST_WEIGHT, allow_inf_nan=False)]
Weights = Annotated[dict[str, Number], Field(min_length=1)]
TOLERANCE = 0.01  # of what a value of an axis is due: less than this is left as cumulative rounding has it


class PlanError(ValueError):
    """A plan cannot be used; names the file, the entry and what would be right."""


class Requirements(BaseModel):
    """What the finished corpus must reach; None asks for nothing.

    domain_entropy   of the domains' shares, over log K, in [0, 1]
    mean_turns       of an optimal episode that first gathers every piece of information
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    domain_entropy: Annotated[float, Field(ge=0, le=1)] | None = None
    mean_turns: Number | None = None


class CorpusPlan(BaseModel):
    """What a plan file may say.

    name          of the corpus: letters, digits, '-' and '_'
    environments  N, admitted ones
    families, domains   names, or "all"
    sizes, budgets, splits, setters   name -> relative weight
    setters       template, or language:MODEL (`realize/language_setter.py` says how a model is reached)
    code_tool     whether Python in the sandbox is offered beside an environment's own tools
    corpus        a user's own folder of passages; None is the built-in corpus
    attempts      candidates tried for one place
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    environments: Annotated[int, Field(ge=1, le=10_000_000)]
    seed: Annotated[int, Field(ge=0)] = 0
    families: Literal["all"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all"
    domains: Literal["all"] | Annotated[tuple[str, ...], Field(min_length=1)] = "all"
    sizes: Weights
    budgets: Weights = {"ample": 1.0, "tight": 1.0}
    splits: Weights = {"train": 8.0, "validation": 1.0, "test": 1.0}
    setters: Weights = {"template": 1.0}
    code_tool: bool = False
    corpus: str | None = None
    attempts: Annotated[int, Field(ge=1, le=10_000)] = 60
    require: Requirements = Requirements()

    @field_validator("sizes", "budgets", "splits", "setters")
    @classmethod
    def _some_weight(cls, weights: dict[str, float]) -> dict[str, float]:
        if not any(weights.values()):
            raise ValueError("at least one weight must be above 0")
        return weights

    @field_validator("families", "domains")
    @classmethod
    def _named_once(cls, names: str | tuple[str, ...]) -> str | tuple[str, ...]:
        twice = [] if isinstance(names, str) else [n for n, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is named twice")
        return names

    def family_names(self) -> tuple[str, ...]:
        """Return the families of this plan in the order of their table; "all" is every registered one."""
        return tuple(name for name in FAMILIES if self.families == "all" or name in self.families)

    def domain_names(self) -> tuple[str, ...]:
        """Return the domains of this plan by name; "all" is every domain of its corpus."""
        known = sorted(read_corpus(self.corpus).by_domain())
        return tuple(name for name in known if self.domains == "all" or name in self.domains)


@dataclass(frozen=True, slots=True)
class Place:
    """One environment to be: everything but the instance.

    number         in the order of the plan, from 0
    first, stride  the instances it may become have the indices first, first + stride, ...
    """

    number: int
    family: str
    size: str
    split: str
    budget: str
    setter: str
    domain: str
    first: int
    stride: int

    def recipe(self, plan: CorpusPlan, attempt: int) -> Recipe:
        """Return the recipe of the candidate that is tried at this attempt (from 0)."""
        return Recipe(
            self.family,
            self.size,
            seed=plan.seed,
            index=self.first + attempt * self.stride,
            split=self.split,
            budget=self.budget,
            setter=self.setter,
            domain=self.domain,
            corpus=plan.corpus,
            code_tool=plan.code_tool,
        )


def read_plan_file(file: str | Path) -> CorpusPlan:
    """Read and check a plan (`core_yaml.py`: no key twice); raise PlanError that names the file and the entry."""
    path = Path(file)
    try:
        data = load_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise PlanError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except YamlError as error:
        raise PlanError(str(error)) from error
    if not isinstance(data, dict):
        raise PlanError(f"{path}: must be a mapping with name, environments and sizes")
    return check_plan(data, str(path))


def check_plan(data: dict[str, Any], source: str = "plan") -> CorpusPlan:
    """Return the plan that plain data describe; raise PlanError that names `source` and the entry."""
    try:
        plan = CorpusPlan.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "plan"
        raise PlanError(
            f"{source}: {where}: {first['msg']} (found {str(first.get('input'))[:80]})"
        ) from error
    for name in plan.setters:
        try:
            check_setter(name)
        except UnknownName as error:
            raise PlanError(f"{source}: {error}") from error
    known_domains = sorted(read_corpus(plan.corpus).by_domain())
    for what, names, known in (
        ("family", () if plan.families == "all" else plan.families, tuple(FAMILIES)),
        ("domain", () if plan.domains == "all" else plan.domains, known_domains),
        ("budget", plan.budgets, BUDGETS),
        ("split", plan.splits, SPLITS),
        *(
            (f"size of {name}", plan.sizes, tuple(FAMILIES[name].sizes))
            for name in plan.family_names()
            if name in FAMILIES
        ),
    ):
        for name in names:
            if name not in known:
                raise PlanError(f"{source}: unknown {what} {name!r}: choose from {', '.join(known)}")
    return plan


def places(plan: CorpusPlan) -> list[Place]:
    """Return the N places of a plan, in order."""
    shares = [  # in an order of ours, so that a plan means the same however its file is ordered
        {name: weights[name] for name in order if name in weights}
        for weights, order in (
            (plan.sizes, [*SIZES, *sorted(plan.sizes.keys() - set(SIZES))]),
            (plan.splits, SPLITS),
            (plan.budgets, BUDGETS),
            (plan.setters, sorted(plan.setters)),
        )
    ]
    families = plan.family_names()
    cells = list(itertools.product(families, *(list(weights) for weights in shares)))
    mass = [1.0] * len(cells)
    for axis, weights in enumerate(shares, start=1):
        total = sum(weights.values())
        mass = [m * weights[cell[axis]] / total for m, cell in zip(mass, cells, strict=True)]
    counts = _evened(cells, mass, _rounded(mass, plan.environments), shares, plan.environments)
    filled = [cell for cell, count in zip(cells, counts, strict=True) for _ in range(count)]
    streams = Counter(cell[:3] for cell in filled)
    domains = _dealt(plan, len(filled))
    taken: Counter[tuple[str, ...]] = Counter()
    made = []
    for number, (cell, domain) in enumerate(zip(filled, domains, strict=True)):
        family, size, split, budget, setter = cell
        key = cell[:3]
        made.append(Place(number, family, size, split, budget, setter, domain, taken[key], streams[key]))
        taken[key] += 1
    return made


def _rounded(mass: list[float], total: int) -> list[int]:
    """Return integers that sum to `total`, proportional to `mass`, by cumulative rounding."""
    scale = total / sum(mass)
    ends = [round(scale * reached) for reached in itertools.accumulate(mass)]
    ends[-1] = total
    return [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _evened(
    cells: list[tuple[str, ...]],
    mass: list[float],
    counts: list[int],
    shares: list[dict[str, float]],
    total: int,
) -> list[int]:
    """Return counts that give every value of every axis what it is due, families as they were.

    cells    (family, one value of each axis); mass: their shares of `total`; counts: places, by cumulative rounding
    shares   of each axis, value -> weight

    A place moves to the cell that differs in one value only, so that no move along one axis changes what another one
    has; of all such moves it is the one from where there is most too much to where most is missing (ties: the first).
    """
    scale = total / sum(mass)
    spare = {cell: count - scale * m for cell, m, count in zip(cells, mass, counts, strict=True)}
    has = dict(zip(cells, counts, strict=True))
    for axis, weights in enumerate(shares, start=1):
        due = dict(zip(weights, _largest_remainder(list(weights.values()), total), strict=True))
        over = {value: -d for value, d in due.items()}
        for cell, count in has.items():
            over[cell[axis]] += count
        if all(abs(over[value]) <= TOLERANCE * d for value, d in due.items()):
            continue
        while any(over.values()):
            giver, taker = max(over, key=over.__getitem__), min(over, key=over.__getitem__)
            moves = [
                (cell, (*cell[:axis], taker, *cell[axis + 1 :]))
                for cell in cells
                if cell[axis] == giver and has[cell]
            ]
            source, target = max(moves, key=lambda move: spare[move[0]] - spare[move[1]])
            for change, cell, value in ((-1, source, giver), (1, target, taker)):
                has[cell] += change
                spare[cell] += change
                over[value] += change
    return [has[cell] for cell in cells]


def _largest_remainder(weights: list[float], total: int) -> list[int]:
    """Return integers that sum to `total`: shares rounded down, one more where most is cut off (ties: the first)."""
    exact = [Fraction(weight) for weight in weights]
    shares = [total * weight / sum(exact) for weight in exact]
    whole = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))
    for i in order[: total - sum(whole)]:
        whole[i] += 1
    return whole


def _dealt(plan: CorpusPlan, count: int) -> list[str]:
    """Deal `count` domains in rounds, each a shuffle of all of them."""
    names = plan.domain_names()
    dealt: list[str] = []
    while len(dealt) < count:
        order = stream(plan.seed, "plan", "domains", len(dealt)).permutation(len(names))
        dealt += [names[i] for i in order]
    return dealt[:count]


def plan_hash(plan: CorpusPlan) -> str:
    """Return the hash of everything a plan asks for, families and domains written out."""
    asked = plan.model_dump(mode="json") | {"families": plan.family_names(), "domains": plan.domain_names()}
    return content_hash(asked)
