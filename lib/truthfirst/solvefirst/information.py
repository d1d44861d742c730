"""What the best policy earns on average when it sees only what an agent may see.

u_star assumes full information. Here the expectation of the exact optimum under the information of an agent is
computed, which bounds the mean of u_reach, of any scripted policy and of any agent from above (on one instance luck
may pass it). Two methods:

search            Weitzman's rule is optimal in every round: with reservation price s[i] of box i, where
                  E max(0, p[i] - s[i]) = f[i], its expected value is E max(0, max over i of min(p[i], s[i])).
                  No limit of turns is assumed, so it bounds both budgets
belief dynamic    over (state, entries known, turns left): a turn probes one entry or takes one decision, whose
programming       outcome reveals entries as well; whoever stops gets what the dynamics then give. Exact for a given
                  number of turns. The state space grows as values to the power of probes: nano sizes only

Both need the law by which entries are drawn: independent, each as `skewed_table` draws it from its published prior
(INDEPENDENT lists the families whose samplers do just that; the others reorder entries, or draw again until the
margin is met). An agent that is told only low, high and mean knows less than this law, so the bound holds for it too.

Source: Weitzman, "Optimal search for the best alternative", Econometrica 47, 1979; the capped form of the value:
Kleinberg, Waggoner and Weyl, "Descending price optimally coordinates search", 2016; belief states: Astrom, "Optimal
control of Markov processes with incomplete state information", 1965.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from .families.base import Action, Family, Key, State, Theta, skew_power
from .families.search import FAMILY as SEARCH
from .families.search import Search, best_seen

Law = tuple[tuple[float, float], ...]  # (value, probability), values ascending

INDEPENDENT = (
    "rationing",
    "lot_sizing",
    "pricing",
    "storage",
    "scheduling",
    "replacement",
    "search",
    "knapsack",
    "harvest",
    "bidding",
)


# what stopping brings does not depend on anything hidden
PUBLIC_END = ("rationing", "pricing", "storage", "search", "knapsack", "harvest", "bidding")


class UnknownLaw(ValueError):
    """The entries of a family are not drawn independently."""


def entry_law(prior: tuple[int, int, int]) -> Law:
    """Return the exact law of one entry drawn by `skewed_table` from its prior (low, high, mean)."""
    low, high, _ = prior
    width = high - low + 1
    root = 1 / skew_power(prior)
    below = [(k / width) ** root for k in range(width + 1)]  # of being less than low + k
    return tuple((low + k, below[k + 1] - below[k]) for k in range(width))


def laws(family: Family, theta: Theta) -> dict[Key, Law]:
    """Return the law of every hidden entry, given what is public; raise UnknownLaw where they are dependent."""
    if family.name not in INDEPENDENT:
        raise UnknownLaw(
            f"{family.name}: entries are not drawn independently; the law is known of {', '.join(INDEPENDENT)}"
        )
    return {key: entry_law(prior) for key, prior in family.prior(theta).items()}


def draw_hidden(family: Family, theta: Theta, rng: np.random.Generator) -> Theta:
    """Return theta with every hidden entry drawn anew by its law, all that is public being the same."""
    values = {
        key: int(rng.choice([value for value, _ in law], p=[weight for _, weight in law]))
        for key, law in laws(family, theta).items()
    }
    return family.substitute(theta, values)


# --- Weitzman's rule --------------------------------------------------------------------------------------
def reservation_price(fee: float, law: Law) -> float:
    """Return s with E max(0, X - s) = fee: the sure prize at which opening the box is just not worth its fee."""
    mass = total = 0.0
    for value, weight in sorted(law, reverse=True):
        if mass and (total - fee) / mass >= value:
            break
        mass += weight
        total += weight * value
    return (total - fee) / mass


def pandora_value(fees: Sequence[float], prizes: Sequence[Law]) -> float:
    """Return the expected gain of Weitzman's rule over closed boxes, with nothing in hand and stopping free."""
    capped = [
        [(min(value, price), weight) for value, weight in law]
        for law, price in ((law, reservation_price(fee, law)) for fee, law in zip(fees, prizes, strict=True))
    ]
    levels = sorted({0.0} | {value for law in capped for value, _ in law if value > 0})
    below = [
        math.prod(math.fsum(w for value, w in law if value <= level) for law in capped) for level in levels
    ]
    return math.fsum(
        level * (now - before) for level, now, before in zip(levels, below, [0.0, *below[:-1]], strict=True)
    )


def search_value(theta: Search) -> float:
    """Return what Weitzman's rule earns on average over all rounds, given what is public of theta."""
    table = laws(SEARCH, theta)
    boxes = [table["prize", 0, i] for i in range(len(theta.fee))]  # the same law in every round
    return len(theta.prize) * pandora_value(theta.fee, boxes)


def reservation_rule(theta: Search, state: State, prizes: Sequence[Law]) -> Action:
    """Open the closed box of the highest reservation price while it exceeds the best prize seen, else take."""
    prices = [reservation_price(fee, law) for fee, law in zip(theta.fee, prizes, strict=True)]
    closed = [i for i in range(len(prices)) if i not in state.opened]
    if closed:
        best = max(closed, key=lambda i: (prices[i], -i))
        if prices[best] > best_seen(theta, state):
            return Action("open", (best,))
    return Action("take")


# --- belief dynamic programming ---------------------------------------------------------------------------
class Beliefs:
    """The belief dynamic programme of one instance, as far as it is public.

    A belief is a tuple with the known value of every hidden entry, None where it is unknown or has ceased to matter.
    """

    def __init__(self, family: Family, theta: Theta) -> None:
        self.family = family
        self.public = family.expected(theta, {})
        self.keys = family.keys(theta)
        self.index = {key: i for i, key in enumerate(self.keys)}
        table = laws(family, theta)
        self.laws = [tuple((int(v), w) for v, w in table[key] if w > 0) for key in self.keys]
        self.probes = [self.index[key] for key in family.probe_keys(theta)]
        self._matters: dict[State, frozenset[int]] = {}
        self._outcomes: dict[tuple, tuple] = {}
        self._values: dict[tuple, float] = {}
        self._choices: dict[State, list[Action]] = {}
        self._ends: dict[tuple, float] = {}

    def value(self, turns: int) -> float:
        """Return the greatest expected gain from the start in at most `turns` turns."""
        return self._value(self.family.start(self.public), (None,) * len(self.keys), frozenset(), turns)

    def _value(self, state: State, known: tuple[int | None, ...], seen: frozenset[int], turns: int) -> float:
        actions = self._actions(state)
        if turns == 0 or not actions:
            return self._stopping(state, known)
        case = (state, known, turns)  # what decisions have shown follows from the state
        if case in self._values:
            return self._values[case]
        best = self._stopping(state, known)
        matters = self._relevant(state)
        # whoever learns something in the last turn can only stop, which is worth the same on average
        for i in self.probes if turns > 1 else ():
            if i in matters and known[i] is None:
                after = (
                    weight * self._value(state, (*known[:i], value, *known[i + 1 :]), seen, turns - 1)
                    for value, weight in self.laws[i]
                )
                best = max(best, math.fsum(after))
        for action in actions:
            gain, outcomes = self._act(state, action, known, seen)
            for weight, after, shown in outcomes:
                left = self._relevant(after)
                belief = [value if i in left else None for i, value in enumerate(known)]
                for i, value in shown:
                    belief[i] = value
                gain += weight * self._value(
                    after, tuple(belief), (seen & left) | {i for i, _ in shown}, turns - 1
                )
            best = max(best, gain)
        self._values[case] = best
        return best

    def _actions(self, state: State) -> list[Action]:
        if state not in self._choices:
            moves = self.family.legal(self.public, state)
            self._choices[state] = list(itertools.chain.from_iterable(moves))
        return self._choices[state]

    def _stopping(self, state: State, known: tuple[int | None, ...]) -> float:
        """Return what stopping brings on average."""
        if self.family.name in PUBLIC_END:
            return float(self.family.abandon(self.public, state))
        if (state, known) not in self._ends:
            free = [i for i in sorted(self._relevant(state)) if known[i] is None]
            fixed = {self.keys[i]: value for i, value in enumerate(known) if value is not None}
            total = 0.0
            for combination in itertools.product(*(self.laws[i] for i in free)):
                values = fixed | {
                    self.keys[i]: value for i, (value, _) in zip(free, combination, strict=True)
                }
                theta = self.family.substitute(self.public, values)
                total += math.prod(weight for _, weight in combination) * self.family.abandon(theta, state)
            self._ends[state, known] = total
        return self._ends[state, known]

    def _relevant(self, state: State) -> frozenset[int]:
        """Return the entries that the rest of the problem still holds."""
        if state not in self._matters:
            rest = self.family.residual(self.public, state)
            found = set()
            for i, key in enumerate(self.keys):
                for value in (self.laws[i][0][0], self.laws[i][-1][0]):
                    if self.family.residual(self.family.substitute(self.public, {key: value}), state) != rest:
                        found.add(i)
            self._matters[state] = frozenset(found)
        return self._matters[state]

    def _act(
        self, state: State, action: Action, known: tuple[int | None, ...], seen: frozenset[int]
    ) -> tuple[float, list[tuple[float, State, tuple[tuple[int, int], ...]]]]:
        """Return the expected gain of an action and its outcomes: weight, state after, entries it has revealed.

        By the families' contract an outcome depends on public entries and on those that decisions have shown, this
        one included.
        """
        shown = sorted(self.index[key] for key in self.family.step(self.public, state, action)[2])
        given = sorted({*shown, *seen})
        case = (state, action, tuple(known[i] for i in given), tuple(given))
        if case in self._outcomes:
            return self._outcomes[case]
        ranges: list[tuple[tuple[int, float], ...]] = []
        for i in given:
            value = known[i]
            ranges.append(self.laws[i] if value is None else ((value, 1.0),))
        total = 0.0
        weights: dict[tuple[State, tuple[tuple[int, int], ...]], float] = {}
        for combination in itertools.product(*ranges):
            weight = math.prod(w for _, w in combination)
            values = {i: v for i, (v, _) in zip(given, combination, strict=True)}
            theta = self.family.substitute(self.public, {self.keys[i]: v for i, v in values.items()})
            after, gain, _ = self.family.step(theta, state, action)
            total += weight * gain
            left = self._relevant(after)
            case_after = (after, tuple((i, values[i]) for i in shown if i in left))
            weights[case_after] = weights.get(case_after, 0.0) + weight
        outcomes = [(weight, after, revealed) for (after, revealed), weight in weights.items()]
        self._outcomes[case] = (total, outcomes)
        return total, outcomes


def informed_value(family: Family, theta: Theta, turns: int) -> float:
    """Return the expected gain of the best policy that sees only what an agent may see, in `turns` turns.

    For `search` this is Weitzman's value, whatever the turns; else belief dynamic programming (nano sizes only).
    """
    return search_value(theta) if family.name == "search" else Beliefs(family, theta).value(turns)
