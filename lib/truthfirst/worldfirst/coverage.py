r"""Coverage of a corpus: a strength-2 covering array over the nineteen axes, extended greedily, and its balance.

A pair is two values of two different axes. An environment covers every pair of its labels (an axis may have several
values at once). The candidates are generator x seed x tier; the pairs that some candidate covers are attainable, and
the corpus must cover all of them. It is extended by the candidate that covers most pairs still uncovered (ties: the
first), which is the greedy of set cover: at most 1 + ln(number of pairs) times the smallest corpus.

    balance = exp(H) / K,   H = -sum_k p_k log p_k over the K values      in [1/K, 1], 1 when all are equally frequent

Source: Tev (2026), appendix A.3; Chvatal, "A greedy heuristic for the set-covering problem", 1979. Pairs that no
candidate attains are listed, not hidden: some contradict each other, others ask for another generator.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
from tqdm.auto import tqdm

from ..interrupts import INTERRUPTED, STOPPED, terminable
from .gates import qualify
from .generators import GENERATORS
from .instances import Instance, instance
from .labels import AXES, Labels, labels
from .world import TIERS, WorldError

Value = tuple[str, str]  # axis, value
Pair = tuple[Value, Value]  # axes in the order of AXES
_POSITION = {axis.name: position for position, axis in enumerate(AXES)}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An environment that may be chosen, with its labels."""

    generator: str
    seed: int
    tier: str
    labels: Labels = field(repr=False)


@dataclass(frozen=True, slots=True)
class Coverage:
    """A corpus and what it covers.

    chosen        in the order of choice, with the number of pairs that each one added
    covered       pairs
    uncovered     attainable pairs that the corpus lacks, in order
    unattainable  pairs of known values that no candidate has together, in order
    """

    chosen: tuple[tuple[Candidate, int], ...]
    covered: frozenset[Pair] = field(repr=False)
    uncovered: tuple[Pair, ...] = field(repr=False)
    unattainable: tuple[Pair, ...] = field(repr=False)

    @property
    def share(self) -> float:
        """Share of the attainable pairs that the corpus covers."""
        return len(self.covered) / (len(self.covered) + len(self.uncovered))


def candidates(
    names: Iterable[str],
    seeds: Iterable[int],
    tiers: Iterable[str],
    *,
    admit: Callable[[Instance], bool] | None = None,
) -> tuple[Candidate, ...]:
    """Make and label generator x seed x tier.

    admit   decides which instances count; None: those that pass the eight gates
    """
    asked = list(itertools.product(names, seeds, tiers))
    found = []
    for name, seed, tier in tqdm(asked, desc="labels", disable=None):
        made = instance(name, seed, tier)
        if admit(made) if admit else all(gate.passed for gate in qualify(made)):
            found.append(Candidate(name, seed, tier, labels(made)))
    return tuple(found)


def pairs(told: Labels) -> frozenset[Pair]:
    """Return every pair of values of two different axes. Raises WorldError for an axis that is none of the nineteen."""
    if unknown := told.keys() - _POSITION.keys():
        raise WorldError(f"no axis {sorted(unknown)[0]!r}: the axes are {', '.join(_POSITION)}")
    axes = sorted(told, key=_POSITION.__getitem__)
    values = [[(axis, value) for value in told[axis]] for axis in axes]
    return frozenset(
        pair for left, right in itertools.combinations(values, 2) for pair in itertools.product(left, right)
    )


def cover(
    pool: Sequence[Candidate], corpus: Sequence[Candidate] = (), *, limit: int | None = None
) -> Coverage:
    """Extend `corpus` greedily from `pool` until every attainable pair is covered, or `limit` more are chosen.

    Raises WorldError where there is nothing to choose from.
    """
    if not pool and not corpus:
        raise WorldError("there are no candidates: none was made, or none was admitted")
    held = {id(one): pairs(one.labels) for one in (*corpus, *pool)}
    attainable = frozenset().union(*held.values())
    covered: frozenset[Pair] = frozenset()
    chosen: list[tuple[Candidate, int]] = []

    def take(one: Candidate) -> None:
        nonlocal covered
        chosen.append((one, len(held[id(one)] - covered)))
        covered |= held[id(one)]

    for one in corpus:
        take(one)
    left = [one for one in pool if not any(one is other for other in corpus)]
    while left and covered != attainable and (limit is None or len(chosen) < len(corpus) + limit):
        best = max(left, key=lambda one: len(held[id(one)] - covered))  # of equals the first
        take(best)
        left.remove(best)
    return Coverage(
        tuple(chosen), covered, _sorted(attainable - covered), _sorted(_product(held.values()) - attainable)
    )


def _product(held: Iterable[frozenset[Pair]]) -> frozenset[Pair]:
    """Return all pairs of values that occur, whether together or not."""
    values: dict[str, set[Value]] = {}
    for pair in itertools.chain.from_iterable(held):
        for value in pair:
            values.setdefault(value[0], set()).add(value)
    axes = sorted(values, key=_POSITION.__getitem__)
    return frozenset(
        pair
        for left, right in itertools.combinations(axes, 2)
        for pair in itertools.product(values[left], values[right])
    )


def _sorted(found: Iterable[Pair]) -> tuple[Pair, ...]:
    return tuple(sorted(found, key=lambda pair: tuple((_POSITION[axis], value) for axis, value in pair)))


# --- balance ----------------------------------------------------------------------------------------------
def balance(counts: Mapping[str, int] | Sequence[int]) -> float:
    """Return exp(H) / K of the counts of K values; values that never occur count in K. Raises ValueError for none."""
    numbers = list(counts.values()) if isinstance(counts, Mapping) else list(counts)
    total = sum(numbers)
    if total < 1 or min(numbers) < 0:
        raise ValueError(f"balance needs counts of at least one thing, none negative, got {numbers}")
    entropy = -sum(number / total * math.log(number / total) for number in numbers if number)
    return math.exp(entropy) / len(numbers)


def balance_frame(corpus: Sequence[Candidate], pool: Sequence[Candidate] = ()) -> pd.DataFrame:
    """Return one row an axis: axis, values (K, of corpus and pool together), balance over the corpus."""
    rows = []
    for axis in AXES:
        counts = Counter({value: 0 for one in (*corpus, *pool) for value in one.labels[axis.name]})
        counts.update(value for one in corpus for value in one.labels[axis.name])
        rows.append((axis.name, len(counts), balance(counts)))
    return pd.DataFrame(rows, columns=["axis", "values", "balance"])


def pair_frame(found: Coverage) -> pd.DataFrame:
    """Return one row a pair that the corpus lacks: axis, value, other_axis, other_value, attainable."""
    rows = [
        (*left, *right, attainable)
        for attainable, listed in ((True, found.uncovered), (False, found.unattainable))
        for left, right in listed
    ]
    return pd.DataFrame(rows, columns=["axis", "value", "other_axis", "other_value", "attainable"])


def main(arguments: list[str]) -> int:
    """Label candidates, choose a corpus, print it and the pairs that it lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.worldfirst.coverage", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("generators", nargs="*", help="generators (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each generator and tier")
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=["unit", "small", "full"])
    parser.add_argument(
        "--limit", type=int, help="largest corpus (default: until every attainable pair is covered)"
    )
    parser.add_argument("--ungated", action="store_true", help="do not run the gates: count every instance")
    options = parser.parse_args(arguments)
    names = options.generators or list(GENERATORS)
    if unknown := [name for name in names if name not in GENERATORS]:
        print(f"coverage: no generator {unknown[0]!r}: choose from {', '.join(GENERATORS)}", file=sys.stderr)
        return 2
    if options.seeds < 1 or (options.limit is not None and options.limit < 1):
        print("coverage: --seeds and --limit must be at least 1", file=sys.stderr)
        return 2
    try:
        with terminable():
            everyone = (lambda made: True) if options.ungated else None
            pool = candidates(names, range(options.seeds), options.tiers, admit=everyone)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    found = cover(pool, limit=options.limit)
    for one, added in found.chosen:
        print(f"{one.generator:>12} {one.tier:>6} seed {one.seed:<6} {added:>6} pairs more")
    print(balance_frame([one for one, _ in found.chosen], pool).round(3).to_string(index=False))
    for (axis, value), (other, second) in found.uncovered:
        print(f"uncovered: {axis} = {value}, {other} = {second}")
    print(
        f"{len(found.chosen)} of {len(pool)} environments cover {len(found.covered)} of "
        f"{len(found.covered) + len(found.uncovered)} attainable pairs; {len(found.unattainable)} pairs of values "
        f"never stand together"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
