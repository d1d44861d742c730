"""From a recipe to a candidate environment: sample, solve, realize.

A `Recipe` is all it takes to build an environment again, byte for byte. Candidates become environments of a corpus
only after admission (`admit/gates.py`).
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass

from ..streams import check_seed, stream
from .environment import BUDGETS, Environment
from .families import family as find_family
from .families.base import UnknownName
from .realize.corpus import Corpus, Passage, load_corpus
from .realize.setter import Setter, SetterTask, TemplateSetter

SETTERS: dict[str, type[TemplateSetter]] = {"template": TemplateSetter}
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What builds an environment.

    seed      of the study, at least 0; together with split and index it names the instance stream
    split     instance stream: train, validation or test
    index     position in the stream, at least 0
    domain    of the passage; None draws one from the corpus
    corpus    a user's own folder of passages; None is the built-in corpus
    """

    family: str
    size: str
    seed: int = 0
    index: int = 0
    split: str = "train"
    budget: str = "ample"
    setter: str = "template"
    domain: str | None = None
    corpus: str | None = None

    def __post_init__(self) -> None:
        family = find_family(self.family)
        for what, value, known in (
            (f"size of {family.name}", self.size, tuple(family.sizes)),
            ("budget", self.budget, BUDGETS),
            ("split", self.split, SPLITS),
            ("setter", self.setter, tuple(SETTERS)),
        ):
            if value not in known:
                raise UnknownName(what, value, known)
        check_seed(self.seed)
        check_seed(self.index)

    @property
    def labels(self) -> tuple[str | int, ...]:
        """The address of this instance's random streams."""
        return (self.family, self.size, self.split, self.index)


@functools.lru_cache(maxsize=4)
def read_corpus(path: str | None) -> Corpus:
    """Return a corpus, read once a process."""
    return load_corpus(path)


def draw_passage(recipe: Recipe) -> Passage:
    """Draw the passage of a recipe: a domain first, then one of its passages."""
    domains = read_corpus(recipe.corpus).by_domain()
    rng = stream(recipe.seed, *recipe.labels, "passage")
    names = sorted(domains)
    domain = recipe.domain or names[int(rng.integers(len(names)))]
    if domain not in domains:
        raise UnknownName("domain", domain, names)
    passages = domains[domain]
    return passages[int(rng.integers(len(passages)))]


def build_candidate(recipe: Recipe, setter: Setter | None = None) -> Environment:
    """Sample theta, solve it, and only then have it told as an environment."""
    family = find_family(recipe.family)
    theta = family.sample(stream(recipe.seed, *recipe.labels, "theta"), recipe.size)
    solution = family.solve(theta)
    task = SetterTask(draw_passage(recipe), family, family.counts(theta))
    writer = setter or SETTERS[recipe.setter]()
    spec = writer.write(task, stream(recipe.seed, *recipe.labels, "setter"))
    return Environment(recipe.family, recipe.size, recipe.budget, asdict(recipe), spec, theta, solution)


def rebuild(recipe: dict[str, object]) -> Environment:
    """Build an environment again from the recipe that it carries."""
    return build_candidate(Recipe(**recipe))  # type: ignore[arg-type]
