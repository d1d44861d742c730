"""The contract of a mechanism family.

A family f is one file that states its formulation and gives plain functions of frozen, integer-only
parameters theta. The deterministic decision process D(theta) = (S, legal, step) is what an agent later
plays; its total gain is u. Realised randomness is drawn into theta, so that the optimum u_star is exact.

Fixed rules:

- a hidden field `x` of theta (a nested tuple of integers) is published only as its prior `x_prior`: one
  (low, high, mean) triple, or one triple for each value of the field's last index. Every entry may take every
  integer of its range independently, so redrawing hidden entries gives a valid theta;
- `legal` and `default` use public or already shown entries only;
- `residual(theta, state)` is an instance of the same family, so value_to_go(s) is its optimum; residuals
  may be empty or short of capacity;
- an episode may stop early: `abandon` is the gain that the dynamics then still give.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import pulp

LARGEST_MONEY = 10**12  # bound on the money of theta
SIZES = ("nano", "small", "medium", "large", "huge", "long")
Unit = str  # "money", "goods", "time", "count", or an entity kind: the value is a reference to it
Key = tuple[Any, ...]  # a hidden entry: (field, index, index, ...), indices 0-based
Theta = Any  # the family's frozen dataclass
State = Any  # the family's NamedTuple


class ThetaError(ValueError):
    """Parameters break an assumption of their family; names the field, the value and what is right."""

    def __init__(self, field: str, value: Any, expected: str) -> None:
        super().__init__(f"{field} = {value!r}: {expected}")
        self.field, self.value, self.expected = field, value, expected


class UnknownName(ValueError):
    """A family, size or other name does not exist; the message lists those that do."""

    def __init__(self, what: str, name: object, known: Sequence[str]) -> None:
        super().__init__(f"unknown {what} {name!r}: choose one of {', '.join(known)}")


class IllegalAction(ValueError):
    """An action is not legal in this state."""


class Action(NamedTuple):
    """One decision: a verb of the family and its integer arguments (amounts, or 0-based entity indices)."""

    verb: str
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """The legal actions of one verb: the product of the choices of its arguments."""

    verb: str
    choices: tuple[Sequence[int], ...] = ()

    def __contains__(self, action: Action) -> bool:
        return (
            action.verb == self.verb
            and len(action.args) == len(self.choices)
            and all(value in allowed for value, allowed in zip(action.args, self.choices, strict=True))
        )

    def __iter__(self) -> Iterator[Action]:
        return (Action(self.verb, args) for args in itertools.product(*self.choices))

    def __len__(self) -> int:
        return int(np.prod([len(allowed) for allowed in self.choices], dtype=int))


@dataclass(frozen=True)
class Entity:
    """A kind of thing; ordinal kinds are numbered from 1, others bear names."""

    kind: str
    ordinal: bool = False


@dataclass(frozen=True)
class Quantity:
    """A public constant of theta, or a fact of the public state."""

    name: str
    unit: Unit


@dataclass(frozen=True)
class Field:
    """A table of integers in theta, indexed by entity kinds (outermost first)."""

    name: str
    index: tuple[str, ...]
    unit: Unit
    hidden: bool = False
    probe: bool = True  # a hidden field without a probe is revealed by decisions alone


@dataclass(frozen=True)
class Slot:
    """One argument of a verb: a member of an entity kind, or an integer amount (entity None)."""

    name: str
    entity: str | None = None
    unit: Unit = "goods"


@dataclass(frozen=True)
class Verb:
    """A decision tool."""

    name: str
    slots: tuple[Slot, ...] = ()


@dataclass(frozen=True)
class Interface:
    """What an agent can meet of a family: the names a setter must fill with words."""

    entities: tuple[Entity, ...]
    scalars: tuple[Quantity, ...]
    fields: tuple[Field, ...]
    facts: tuple[Quantity, ...]
    verbs: tuple[Verb, ...]

    @property
    def hidden_fields(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.hidden)

    @property
    def probes(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.hidden and f.probe)

    def verb(self, name: str) -> Verb:
        return next(v for v in self.verbs if v.name == name)


@dataclass(frozen=True)
class Texts:
    """The family's own sentences, filled with a setter's words.

    Placeholders: {item} {items} {Item} {Items} for every entity kind, {n_item} for its count, {money}
    {goods} {time}, every scalar and fact by name, {tool_x} for the tool of verb or probe x, {label_x} for
    the label of field or scalar x; in `outcomes` also the verb's arguments and {gain}.

    rules     for each rule of the mechanism its alternative phrasings; together exact and complete
    goal      alternative phrasings of what u counts
    status    one line that states every fact
    outcomes  verb -> one line that says what a decision did; shown entries are appended by the environment
    """

    rules: tuple[tuple[str, ...], ...]
    goal: tuple[str, ...]
    status: str
    outcomes: Mapping[str, str]


class Optimum(NamedTuple):
    """The best total gain from the start of theta, and a plan that earns it."""

    value: int
    plan: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """The solution z of theta: u_star, u_zero (what `default` earns) and an optimal plan. Sealed."""

    u_star: int
    u_zero: int
    plan: tuple[Action, ...]

    @property
    def span(self) -> int:
        """u_star - u_zero, the denominator of the reward."""
        return self.u_star - self.u_zero

    @property
    def required_margin(self) -> int:
        """The least span an environment must have: max(2, 5% of |u_star|), rounded up."""
        return max(2, -(-abs(self.u_star) // 20))


@dataclass(frozen=True)
class Family:
    """One mechanism family: its functions, its interface to an agent, and what a reader should know.

    coupling     what ties decisions together: budget, stock, order, graph or position
    solver       how `optimum` works; one of the solver kinds of DESIGN §3
    certificate  how `bound` proves optimality without that solver
    epsilon      0, or the stated tolerance of a continuous family
    largest      bound on amounts, times and counts of theta, so that no solver is asked for a monstrous state space
    """

    name: str
    title: str
    coupling: str
    solver: Literal[
        "closed form", "enumeration", "dynamic programming", "LP", "MILP", "numerical optimisation"
    ]
    certificate: str
    interface: Interface
    texts: Texts
    sizes: Mapping[str, Mapping[str, Any]]
    theta_type: type
    draw: Callable[..., Theta]  # draw(rng, **sizes[size])
    check: Callable[[Theta], None]  # raises ThetaError; strict: for sampled and published instances
    optimum: Callable[[Theta], Optimum]
    bound: Callable[[Theta], int]  # an upper bound on u by another method than `optimum`
    start: Callable[[Theta], State]
    legal: Callable[[Theta, State], tuple[Move, ...]]
    step: Callable[[Theta, State, Action], tuple[State, int, dict[Key, int]]]
    default: Callable[[Theta, State], Action]
    abandon: Callable[[Theta, State], int]
    residual: Callable[[Theta, State], Theta]
    counts: Callable[[Theta], dict[str, int]]  # entity kind -> how many
    observe: Callable[[Theta, State], dict[str, int]]  # fact -> value, public
    horizon: Callable[[Theta], int]  # decisions that an optimal plan may need
    model: Callable[[Theta], pulp.LpProblem] | None = None  # PuLP model whose optimum is u_star
    epsilon: int = 0
    largest: int = (
        10_000  # largest amount, time or count: they span state spaces, and theta may come from a file
    )

    # --- sampling ---------------------------------------------------------------------------------
    def sample(self, rng: np.random.Generator, size: str) -> Theta:
        """Draw checked parameters of a named size."""
        if size not in self.sizes:
            raise UnknownName(f"size of {self.name}", size, tuple(self.sizes))
        theta = self.draw(rng, **self.sizes[size])
        self.validate(theta)
        return theta

    def build(self, data: Mapping[str, Any]) -> Theta:
        """Build theta from plain data, such as a published instance; raise ThetaError that names the field.

        A missing prior `x_prior` is taken from the table `x` itself: its lowest, highest and mean entry.
        """
        data = dict(data)
        for name in (f.name for f in self.interface.hidden_fields):
            if name in data and f"{name}_prior" not in data:
                entries = list(_flat(_freeze(name, data[name])))
                if entries:
                    data[f"{name}_prior"] = (min(entries), max(entries), sum(entries) // len(entries))
        names = [f.name for f in dataclasses.fields(self.theta_type)]
        required = {f.name for f in dataclasses.fields(self.theta_type) if f.default is dataclasses.MISSING}
        for name in data:
            if name not in names:
                raise ThetaError(name, data[name], f"is no parameter of {self.name}: {', '.join(names)}")
        for name in names:
            if name in required and name not in data:
                raise ThetaError(name, None, f"is missing from this {self.name} instance")
        frozen = {name: _freeze(name, value) for name, value in data.items()}
        theta = self.theta_type(**frozen)
        self.validate(theta)
        return theta

    def validate(self, theta: Theta) -> None:
        """Raise ThetaError unless theta is integers only, within its ranges, and passes `check`."""
        for name in (f.name for f in dataclasses.fields(theta)):
            _freeze(name, getattr(theta, name))
        for name, depths in _shapes(self.theta_type).items():  # first of all: `check` may then index freely
            value = getattr(theta, name)
            fits = any(_is_nested(value, depth) for depth in depths)
            require(fits, name, value, f"expected a table of {' or '.join(map(str, depths))} indices")
        parts: tuple[Quantity | Field, ...] = (*self.interface.scalars, *self.interface.fields)
        for part in parts:
            most = LARGEST_MONEY if part.unit == "money" else self.largest
            extreme = max((abs(number) for number in _numbers(getattr(theta, part.name))), default=0)
            require(extreme <= most, part.name, extreme, f"must not exceed {most}")
        self.check(theta)
        for field in self.interface.hidden_fields:
            prior, wanted = getattr(theta, f"{field.name}_prior"), self.counts(theta)[field.index[-1]]
            fits = not isinstance(prior[0], tuple) or len(prior) == wanted
            require(fits, f"{field.name}_prior", prior, f"expected one triple, or {wanted}")
        for key, (low, high, _) in self.prior(theta).items():
            if not low <= entry(theta, key) <= high:
                raise ThetaError(
                    str(key[0]), entry(theta, key), f"must lie in its published range {low}..{high}"
                )

    def to_json(self, theta: Theta) -> dict[str, Any]:
        """Return theta as plain data; `build` reads it back."""
        return {f.name: getattr(theta, f.name) for f in dataclasses.fields(theta)}

    # --- what is hidden ---------------------------------------------------------------------------
    def keys(self, theta: Theta, fields: Sequence[Field] | None = None) -> list[Key]:
        """List the entries of `fields` (the hidden ones by default) in index order."""
        counts = self.counts(theta)
        chosen = self.interface.hidden_fields if fields is None else fields
        return [
            (f.name, *index)
            for f in chosen
            for index in itertools.product(*(range(counts[k]) for k in f.index))
        ]

    def hidden(self, theta: Theta) -> dict[Key, int]:
        """Return every hidden entry with its true value."""
        return {key: entry(theta, key) for key in self.keys(theta)}

    def probe_keys(self, theta: Theta) -> list[Key]:
        """List the entries that a probe can reveal."""
        return self.keys(theta, self.interface.probes)

    def prior(self, theta: Theta) -> dict[Key, tuple[int, int, int]]:
        """Return what is published of each hidden entry: lowest, highest and mean value (an integer)."""
        return {key: published(theta, key) for key in self.keys(theta)}

    def substitute(self, theta: Theta, values: Mapping[Key, int]) -> Theta:
        """Return theta with some hidden entries replaced."""
        tables: dict[str, Any] = {}
        for (name, *index), value in values.items():
            table = tables.get(name)
            if table is None:
                table = tables[name] = _thaw(getattr(theta, name))
            for i in index[:-1]:
                table = table[i]
            table[index[-1]] = value
        return dataclasses.replace(theta, **{name: _refreeze(table) for name, table in tables.items()})

    def expected(self, theta: Theta, known: Mapping[Key, int]) -> Theta:
        """Return theta as one sees it who knows `known`: every other hidden entry at its prior mean."""
        return self.substitute(
            theta, {k: known.get(k, mean) for k, (_, _, mean) in self.prior(theta).items()}
        )

    def redraw(self, theta: Theta, rng: np.random.Generator, keep: Mapping[Key, int] | None = None) -> Theta:
        """Return theta with every hidden entry outside `keep` drawn anew from its published range."""
        kept = keep or {}
        draws = {
            key: int(rng.integers(low, high + 1))
            for key, (low, high, _) in self.prior(theta).items()
            if key not in kept
        }
        return self.substitute(theta, draws)

    # --- playing ----------------------------------------------------------------------------------
    def is_legal(self, theta: Theta, state: State, action: Action) -> bool:
        """Say whether `action` is legal in `state`."""
        return any(action in move for move in self.legal(theta, state))

    def play(self, theta: Theta, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
        """Step after checking; raise IllegalAction if the action is not legal."""
        if not self.is_legal(theta, state, action):
            raise IllegalAction(f"{self.name}: {action} is not legal in {state}")
        return self.step(theta, state, action)

    def replay(self, theta: Theta, plan: Sequence[Action]) -> int:
        """Return u of a plan: its gains, then what the dynamics give when nobody decides any more."""
        state, total = self.start(theta), 0
        for action in plan:
            state, gain, _ = self.play(theta, state, action)
            total += gain
        return total + self.abandon(theta, state)

    def follow(
        self, theta: Theta, policy: Callable[[Theta, State], Action]
    ) -> tuple[int, tuple[Action, ...]]:
        """Play a policy to the end; return u and the plan it made."""
        state, total, plan = self.start(theta), 0, []
        while self.legal(theta, state):
            action = policy(theta, state)
            state, gain, _ = self.play(theta, state, action)
            total += gain
            plan.append(action)
        return total + self.abandon(theta, state), tuple(plan)

    def value_to_go(self, theta: Theta, state: State) -> int:
        """Return V*(state): the best gain that is still to be had."""
        return self.optimum(self.residual(theta, state)).value

    def solve(self, theta: Theta) -> Solution:
        """Solve theta; the plan is replayed, so that u_star is what the dynamics really pay."""
        best = self.optimum(theta)
        earned = self.replay(theta, best.plan)
        if earned != best.value:
            raise AssertionError(f"{self.name}: plan earns {earned}, solver says {best.value}")
        u_zero, _ = self.follow(theta, self.default)
        return Solution(best.value, u_zero, best.plan)


def entry(theta: Theta, key: Key) -> int:
    """Return one entry of a field of theta."""
    value = getattr(theta, key[0])
    for index in key[1:]:
        value = value[index]
    return value


def published(theta: Theta, key: Key) -> tuple[int, int, int]:
    """Return the published prior (low, high, mean) of a hidden entry."""
    prior = getattr(theta, f"{key[0]}_prior")
    low, high, mean = prior if isinstance(prior[0], Integral) else prior[key[-1]]
    return low, high, mean


def require(condition: bool, field: str, value: Any, expected: str) -> None:
    """Raise ThetaError unless `condition` holds."""
    if not condition:
        raise ThetaError(field, value, expected)


def require_table(field: str, table: Any, *shape: int, low: int | None = None) -> None:
    """Raise ThetaError unless `table` is nested tuples of the given shape with entries of at least `low`."""

    def walk(part: Any, sizes: tuple[int, ...]) -> None:
        if not sizes:
            require(low is None or part >= low, field, part, f"every entry must be at least {low}")
            return
        require(
            isinstance(part, tuple) and len(part) == sizes[0],
            field,
            part,
            f"expected a table of shape {shape}",
        )
        for child in part:
            walk(child, sizes[1:])

    walk(table, shape)


def require_prior(field: str, prior: Any, low: int = 0) -> None:
    """Raise ThetaError unless `prior` is a (low, high, mean) triple, or a tuple of such triples."""
    if isinstance(prior, tuple) and prior and isinstance(prior[0], tuple):
        for triple in prior:
            require_prior(field, triple, low)
        return
    require(
        isinstance(prior, tuple) and len(prior) == 3 and low <= prior[0] <= prior[2] <= prior[1],
        field,
        prior,
        f"expected (low, high, mean) with {low} <= low <= mean <= high",
    )


@functools.lru_cache(maxsize=64)
def _shapes(theta_type: type) -> dict[str, list[int]]:
    """Return for each field of theta how many indices it may have."""
    return {name: _depths(hint) for name, hint in get_type_hints(theta_type).items()}


def _depths(hint: Any) -> list[int]:
    """Return how deep tuples of a type may be nested: [0] for an integer, several for a union."""
    parts = get_args(hint)
    if get_origin(hint) is tuple:
        return [1 + depth for depth in _depths(parts[0])]
    return [depth for part in parts for depth in _depths(part)] if parts else [0]


def _is_nested(value: Any, depth: int) -> bool:
    """Say whether `value` is tuples nested `depth` deep with integers at the bottom."""
    if depth == 0 or not isinstance(value, tuple):
        return depth == 0 and not isinstance(value, tuple)
    return all(_is_nested(part, depth - 1) for part in value)


def skewed_table(rng: np.random.Generator, prior: tuple[int, int, int], *shape: int) -> Any:
    """Draw nested tuples of independent integers in low..high whose mean is about `mean`.

    An entry is low + floor((high - low + 1) U^p) with U uniform and p set by the mean: p = 1 is the uniform
    distribution, p > 1 makes high entries rare.
    """
    low, high, _ = prior
    draws = low + np.floor((high - low + 1) * rng.random(shape) ** skew_power(prior)).astype(np.int64)
    return _refreeze(np.minimum(draws, high).tolist())


def skew_power(prior: tuple[int, int, int]) -> float:
    """Return the p of `skewed_table`."""
    low, high, mean = prior
    return max(0.05, (high - low + 1) / (mean - low + 0.5) - 1)


def enumerate_optimum(family: Family, theta: Theta) -> int:
    """Return u_star by trying every plan: the brute-force certificate at nano size."""

    def best(state: State) -> int:
        options = [
            gain + best(after)
            for move in family.legal(theta, state)
            for action in move
            for after, gain, _ in [family.step(theta, state, action)]
        ]
        return max([family.abandon(theta, state), *options])

    return best(family.start(theta))


def _freeze(field: str, value: Any) -> Any:
    """Turn lists into tuples; raise ThetaError for anything that is not an integer."""
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(field, part) for part in value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ThetaError(field, value, "must be an integer (theta holds integers only)")
    return int(value)


def _flat(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _require_depth(field: str, value: Any, depth: int) -> None:
    """Raise ThetaError unless `value` is integers nested `depth` tuples deep."""
    if depth == 0:
        require(isinstance(value, Integral), field, value, "must be one integer")
        return
    require(isinstance(value, tuple), field, value, f"must be a table of {depth} dimension(s)")
    for part in value:
        _require_depth(field, part, depth - 1)


def _numbers(value: Any) -> Iterator[int]:
    """Yield the integers of nested tuples."""
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    else:
        yield value


def _thaw(value: Any) -> Any:
    return [_thaw(part) for part in value] if isinstance(value, tuple) else value


def _refreeze(value: Any) -> Any:
    return tuple(_refreeze(part) for part in value) if isinstance(value, list) else value
