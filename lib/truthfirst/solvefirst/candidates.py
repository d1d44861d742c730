"""From a recipe to a candidate environment: sample, solve, realize.

A `Recipe` is all it takes to build an environment again, byte for byte. Candidates become environments of a corpus
only after admission (`admit/gates.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from ..records import canonical_json
from ..streams import check_seed, stream
from .environment import BUDGETS, Environment
from .families import family as find_family
from .families.base import Solution, Theta, UnknownName
from .realize.corpus import Corpus, CorpusError, Passage, load_corpus
from .realize.setter import ReplaySetter, Setter, SetterTask, TemplateSetter
from .realize.spec import WorldSpec
from .realize.terse import TerseSetter

# Setters that write the same words again from the same recipe. A recipe may also name "language:MODEL"; its words are
# then kept in `Recipe.spec`, since nobody can have them written again.
SETTERS: dict[str, Callable[[], Setter]] = {"template": TemplateSetter, "terse": TerseSetter}
LANGUAGE = "language:"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What builds an environment.

    seed      of the study, at least 0; together with split and index it names the instance stream
    split     instance stream: train, validation or test
    index     position in the stream, at least 0
    domain    of the passage; None draws one from the corpus
    corpus    a user's own folder of passages; None is the built-in corpus
    setter    template, terse, or language:MODEL; how to reach the model is configuration, not identity
    spec      JSON of the words themselves, where the setter cannot write them again; building then asks nobody
    code_tool whether Python in the sandbox is offered beside the environment's own tools, in every form
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
    spec: str | None = None
    code_tool: bool = False

    def __post_init__(self) -> None:
        family = find_family(self.family)
        for what, value, known in (
            (f"size of {family.name}", self.size, tuple(family.sizes)),
            ("budget", self.budget, BUDGETS),
            ("split", self.split, SPLITS),
        ):
            if value not in known:
                raise UnknownName(what, value, known)
        if self.spec is None:
            check_setter(self.setter)
        if not (self.corpus is None or isinstance(self.corpus, str)):
            raise CorpusError(f"corpus = {self.corpus!r}: give the path of a folder as text, or None")
        if not isinstance(self.code_tool, bool):
            raise UnknownName("code_tool", self.code_tool, ("True", "False"))
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


def check_setter(name: str) -> str:
    """Return the name of a setter; raise UnknownName unless it is one of SETTERS or language:MODEL."""
    language = isinstance(name, str) and name.startswith(LANGUAGE) and len(name) > len(LANGUAGE)
    if name not in SETTERS and not language:
        raise UnknownName("setter", name, (*SETTERS, f"{LANGUAGE}MODEL"))
    return name


def find_setter(name: str) -> Setter:
    """Return a fresh setter; one that asks a model is configured by a settings file (`realize/language_setter.py`)."""
    if check_setter(name) in SETTERS:
        return SETTERS[name]()
    from .realize.language_setter import from_settings  # httpx comes with an extra

    return from_settings(name)


def build_candidate(
    recipe: Recipe, setter: Setter | None = None, truth: tuple[Theta, Solution] | None = None
) -> Environment:
    """Sample theta, solve it, and only then have it told as an environment.

    setter   writes the words; by default whoever the recipe names, or nobody where the recipe holds them
    truth    theta and its solution where they are stored: neither sampled nor solved again, but taken at their word

    The environment's recipe names who wrote, and holds the words unless that setter writes them again by itself.
    """
    family = find_family(recipe.family)
    if truth is None:
        theta = family.sample(stream(recipe.seed, *recipe.labels, "theta"), recipe.size)
        truth = theta, family.solve(theta)
    theta, solution = truth
    task = SetterTask(draw_passage(recipe), family, family.counts(theta))
    if setter is None:
        kept = recipe.spec
        setter = (
            find_setter(recipe.setter) if kept is None else ReplaySetter(WorldSpec.model_validate_json(kept))
        )
    spec = setter.write(task, stream(recipe.seed, *recipe.labels, "setter"))
    words = None if spec.setter in SETTERS else canonical_json(spec.model_dump(mode="json"))
    recipe = replace(recipe, setter=spec.setter, spec=words)
    names = (recipe.family, recipe.size, recipe.budget)
    return Environment(*names, asdict(recipe), spec, theta, solution, recipe.code_tool)


def rebuild(recipe: dict[str, object]) -> Environment:
    """Build an environment again from the recipe that it carries."""
    return build_candidate(Recipe(**recipe))  # type: ignore[arg-type]
