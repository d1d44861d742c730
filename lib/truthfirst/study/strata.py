"""Where a gain comes from: composition and within-stratum gain at fixed strata, with the interaction written out.

Base and trained policy play the same instances. A stratifier gives every episode a stratum s; with w0[s], w1[s] the
shares of base and trained episodes in s, and m0[s], m1[s] their mean scores there, exactly

    M1 - M0  =  sum (w1 - w0) m0   composition   episodes that moved to other strata, at the base's scores
             +  sum w0 (m1 - m0)   within        better scores in the same stratum, at the base's shares
             +  sum (w1 - w0)(m1 - m0)   interaction   episodes that moved to where scores also changed

(three terms: Winsborough and Dickinson, 1971). Two-term accounts have to put the interaction somewhere; Kitagawa,
"Components of a Difference Between Two Rates", 1955, gives half of it to either term. Both are reported.

A stratum that one policy never entered has no mean on that side. Convention: it takes the mean of the other side, so
that its within and interaction terms are 0 and all of its share falls into composition. `common` is the share of all
episodes that lie in strata which both policies entered; where it is low the split says little.

Strata of the instance (family, size, domain, information needed) are settled before anybody plays: paired episodes
share them, w1 = w0, and composition and interaction are exactly 0. Strata of what a policy did (code tool, plan,
coverage) are chosen by the policy: the split describes who was where, it does not say what a stratum causes.

Intervals: percentile bootstrap over instances, all episodes of an instance together, within design groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..solvefirst.environment import Environment
from ..solvefirst.score import planner_earnings
from ..sources import Group
from ..streams import stream
from .stats import LEVEL, REPLICATES

ARMS = ("base", "trained")
PAIR = ("study", "arm", "run", "environment", "budget", "form")  # what tells episodes of one policy apart
TERMS = ("total", "composition", "within", "interaction", "composition_half", "within_half")
SOURCE = Group("vhd_play", "strata")  # by use of the code tool


# --- stratifiers -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Stratifier:
    """A way to sort episodes into strata.

    title     for a reader
    columns   of episode rows that `label` needs
    label     episode rows -> one text each
    settled   whether the stratum is the instance's own, the same for both policies
    order     of the strata, as far as it is known beforehand
    """

    title: str
    columns: tuple[str, ...]
    label: Callable[[pd.DataFrame], pd.Series]
    settled: bool
    order: tuple[str, ...] = ()


def code_tool(frame: pd.DataFrame) -> pd.Series:
    """Say whether an episode ran code (column `code`, executed calls of the code tool)."""
    return _named(frame["code"] > 0, "ran code", "no code")


def plan(frame: pd.DataFrame) -> pd.Series:
    """Say whether something was written before the first decision (column `planned`)."""
    return _named(frame["planned"].astype(bool), "wrote first", "acted at once")


def coverage(frame: pd.DataFrame) -> pd.Series:
    """Say how many of the hidden figures were asked for: none, part or all (new probes of those possible)."""
    asked = frame["probes_new"] if "probes_new" in frame else frame["probes"]
    label = pd.Series("part", index=frame.index)
    label[asked == 0] = "none"
    label[(asked > 0) & (asked >= frame["probes_possible"])] = "all"
    return label


def needed(frame: pd.DataFrame) -> pd.Series:
    """Say how many of the hidden figures matter: none, up to half, over half (column `needed`, a share)."""
    share = frame["needed"]
    label = pd.Series("up to half", index=frame.index)
    label[share == 0] = "none"
    label[share > 0.5] = "over half"
    return label


def _named(flags: pd.Series, yes: str, no: str) -> pd.Series:
    return flags.map({True: yes, False: no})


def _column(name: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame[name].astype(str)


STRATIFIERS: dict[str, Stratifier] = {
    "code_tool": Stratifier("use of the code tool", ("code",), code_tool, False, ("no code", "ran code")),
    "plan": Stratifier(
        "writing before the first decision", ("planned",), plan, False, ("acted at once", "wrote first")
    ),
    "coverage": Stratifier(
        "hidden figures asked for",
        ("probes", "probes_possible"),
        coverage,
        False,
        ("none", "part", "all"),
    ),
    "needed": Stratifier(
        "hidden figures that matter", ("needed",), needed, True, ("none", "up to half", "over half")
    ),
    "family": Stratifier("family", ("family",), _column("family"), True),
    "size": Stratifier("size", ("size",), _column("size"), True),
    "domain": Stratifier("domain", ("instance_domain",), _column("instance_domain"), True),
}


def usable(frame: pd.DataFrame) -> list[str]:
    """List the stratifiers whose columns the rows have, with a value in every row."""
    return [
        name
        for name, stratifier in STRATIFIERS.items()
        if all(column in frame and frame[column].notna().all() for column in stratifier.columns)
    ]


def find_stratifier(name: str, frame: pd.DataFrame) -> Stratifier:
    """Return a stratifier that the rows allow; raise ValueError that lists those which they do."""
    if name not in STRATIFIERS:
        raise ValueError(f"unknown stratifier {name!r}: choose one of {', '.join(STRATIFIERS)}")
    if name not in usable(frame):
        wanted = ", ".join(STRATIFIERS[name].columns)
        raise ValueError(
            f"stratifier {name!r} needs a value of {wanted} in every row; these rows allow "
            f"{', '.join(usable(frame)) or 'none'}"
        )
    return STRATIFIERS[name]


# --- what an instance asks of a player ----------------------------------------------------------------------
def share_needed(environment: Environment) -> float:
    """Return the share of hidden figures that matter on this instance.

    A figure matters if the reference planner, told every other hidden figure and shown this one only by its own
    decisions, earns less than u_star when it plans with the published mean instead. Figures that matter only
    together are not counted, nor is one that happens to lie at its mean.
    """
    family, theta = environment.family, environment.theta
    hidden = family.hidden(theta)
    if not hidden:
        return 0.0
    lacking = ({key: value for key, value in hidden.items() if key != left} for left in hidden)
    begin, best = family.start(theta), environment.solution.u_star
    return sum(planner_earnings(family, theta, begin, known) < best for known in lacking) / len(hidden)


def instance_facts(environments: Sequence[Environment]) -> pd.DataFrame:
    """Return one row an instance: environment, instance_domain, needed (share of hidden figures that matter)."""
    unique = {environment.id: environment for environment in environments}
    rows = [
        {"environment": name, "instance_domain": world.spec.domain, "needed": share_needed(world)}
        for name, world in unique.items()
    ]
    return pd.DataFrame(rows, columns=["environment", "instance_domain", "needed"])


# --- pairs ---------------------------------------------------------------------------------------------------
def pairs(frame: pd.DataFrame, arms: tuple[str, str] = ARMS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of both policies in the same order, episode by episode on the same instance.

    Rows are matched on those of PAIR that the frame has; of several episodes of one instance the first goes with the
    first. Rows without a partner are left out. Raises ValueError where nothing can be paired.
    """
    keys = [name for name in PAIR if name in frame]
    sides = [frame[frame["policy"] == arm] for arm in arms]
    matched = [
        side.assign(_n=side.groupby(keys, dropna=False).cumcount()).set_index([*keys, "_n"]).sort_index()
        for side in sides
    ]
    common = matched[0].index.intersection(matched[1].index)
    if common.empty:
        raise ValueError(
            f"no instance was played by both {arms[0]!r} and {arms[1]!r}: the rows have the policies "
            f"{sorted(map(str, frame['policy'].unique()))}; pairs are matched on {', '.join(keys)}"
        )
    first, second = (side.loc[common].reset_index() for side in matched)
    return first.drop(columns="_n"), second.drop(columns="_n")


# --- the decomposition -----------------------------------------------------------------------------------------
Cells = Mapping[str, np.ndarray]  # of shape (..., strata): n0, n1 episodes, and s0, s1 sums of scores


@dataclass(frozen=True)
class _Split:
    """Cells of the sample, shape (strata,), and of its bootstrap replicates, shape (replicates, strata)."""

    name: str
    strata: list[str]
    cells: Cells
    replicates: Cells
    instances: int


def _moments(cells: Cells) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return w0, w1, m0, m1; a mean that one side lacks is the other's, one that both lack is 0."""
    n0, n1 = cells["n0"], cells["n1"]
    m0, m1 = cells["s0"] / np.maximum(n0, 1), cells["s1"] / np.maximum(n1, 1)
    m0, m1 = np.where(n0 > 0, m0, m1), np.where(n1 > 0, m1, m0)
    return n0 / n0.sum(axis=-1, keepdims=True), n1 / n1.sum(axis=-1, keepdims=True), m0, m1


def _parts(cells: Cells) -> dict[str, np.ndarray]:
    """Return composition, within and interaction of every stratum."""
    w0, w1, m0, m1 = _moments(cells)
    return {"composition": (w1 - w0) * m0, "within": w0 * (m1 - m0), "interaction": (w1 - w0) * (m1 - m0)}


def _terms(cells: Cells) -> dict[str, np.ndarray]:
    """Return TERMS, summed over strata."""
    part = {name: values.sum(axis=-1) for name, values in _parts(cells).items()}
    half = part["interaction"] / 2
    halves = {"composition_half": part["composition"] + half, "within_half": part["within"] + half}
    return {"total": sum(part.values(), np.zeros_like(half))} | part | halves


def _split(frame: pd.DataFrame, name: str, arms: tuple[str, str], value: str, seed: int) -> _Split:
    stratifier = find_stratifier(name, frame)
    sides = pairs(frame, arms)
    labels = [stratifier.label(side).astype(str) for side in sides]
    if stratifier.settled and not labels[0].equals(labels[1]):
        raise ValueError(
            f"stratum {name!r} belongs to the instance, but differs between the two policies on one: "
            "the rows of an instance must agree in " + ", ".join(stratifier.columns)
        )
    seen = {str(label) for label in pd.concat(labels)}
    strata = [s for s in stratifier.order if s in seen]
    strata += sorted(seen - set(strata))
    units, unit_names = pd.factorize(sides[0]["environment"])
    shape = (len(unit_names), len(strata))
    cells = {}
    for number, (side, label) in enumerate(zip(sides, labels, strict=True)):
        scores = side[value].to_numpy(float)
        if not np.isfinite(scores).all():
            raise ValueError(f"column {value!r} has missing or infinite values; drop these episodes first")
        at = (units, label.map(strata.index).to_numpy(int))
        for letter, weight in (("n", np.ones(len(side))), ("s", scores)):
            cells[f"{letter}{number}"] = np.zeros(shape)
            np.add.at(cells[f"{letter}{number}"], at, weight)
    groups = sides[0]["family"] if "family" in sides[0] else pd.Series("", index=sides[0].index)
    weights = _resampled(groups.groupby(units).first().to_numpy(), seed)
    whole = {key: table.sum(axis=0) for key, table in cells.items()}
    drawn = {key: weights @ table for key, table in cells.items()}
    return _Split(name, strata, whole, drawn, len(unit_names))


def _resampled(groups: np.ndarray, seed: int) -> np.ndarray:
    """Return how often each instance was drawn, shape (replicates, instances), within the groups."""
    rng = stream(seed, "strata")
    weights = np.zeros((REPLICATES, len(groups)))
    for group in pd.unique(groups):
        members = np.flatnonzero(groups == group)
        chances = np.full(len(members), 1 / len(members))
        weights[:, members] = rng.multinomial(len(members), chances, size=REPLICATES)
    return weights


def _interval(replicates: np.ndarray) -> tuple[float, float]:
    found = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(found[0]), float(found[1])


def decompose(
    frame: pd.DataFrame, name: str, *, arms: tuple[str, str] = ARMS, value: str = "reward", seed: int = 0
) -> pd.DataFrame:
    """Return the terms of the gain under one stratifier: stratifier, term, value, low, high, n, common.

    frame    episode rows with policy, environment, `value`, and what the stratifier needs
    n        instances; low and high are missing where there is one only

    Raises ValueError for an unknown stratifier, missing columns, or rows that cannot be paired.
    """
    split = _split(frame, name, arms, value, seed)
    found, drawn = _terms(split.cells), _terms(split.replicates)
    both = (split.cells["n0"] > 0) & (split.cells["n1"] > 0)
    counted = split.cells["n0"] + split.cells["n1"]
    common = float(counted[both].sum() / counted.sum())
    rows = []
    for term in TERMS:
        low, high = _interval(drawn[term]) if split.instances > 1 else (np.nan, np.nan)
        row = {"stratifier": name, "term": term, "value": float(found[term]), "low": low, "high": high}
        rows.append(row | {"n": split.instances, "common": common})
    return pd.DataFrame(rows)


def by_stratum(
    frame: pd.DataFrame, name: str, *, arms: tuple[str, str] = ARMS, value: str = "reward", seed: int = 0
) -> pd.DataFrame:
    """Return one row a stratum: n0, n1, w0, w1, m0, m1, gain = m1 - m0 with low and high, and its three terms.

    m0, m1 and gain are missing where a policy never entered the stratum; the terms follow the convention above. The
    interval is over the replicates that have the stratum on both sides, and missing where those are under 95%.
    """
    split = _split(frame, name, arms, value, seed)
    cells, drawn = split.cells, split.replicates
    w0, w1, m0, m1 = _moments(cells)
    parts = _parts(cells)
    _, _, lower, upper = _moments(drawn)
    rows = []
    for s, stratum in enumerate(split.strata):
        here = (bool(cells["n0"][s]), bool(cells["n1"][s]))
        kept = (drawn["n0"][:, s] > 0) & (drawn["n1"][:, s] > 0)
        told = kept.mean() >= LEVEL and split.instances > 1
        low, high = _interval((upper - lower)[kept, s]) if told else (np.nan, np.nan)
        row = {"stratifier": name, "stratum": stratum, "n0": int(cells["n0"][s]), "n1": int(cells["n1"][s])}
        row |= {"w0": w0[s], "w1": w1[s], "m0": m0[s] if here[0] else np.nan}
        row |= {"m1": m1[s] if here[1] else np.nan, "gain": m1[s] - m0[s] if all(here) else np.nan}
        rows.append(row | {"low": low, "high": high} | {term: part[s] for term, part in parts.items()})
    return pd.DataFrame(rows)


def every(
    table: Callable[..., pd.DataFrame], frame: pd.DataFrame, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return `decompose` or `by_stratum` under several stratifiers, by default all that the rows allow."""
    chosen = usable(frame) if names is None else names
    return pd.concat([table(frame, name) for name in chosen], ignore_index=True)


# --- a case whose answer is known ----------------------------------------------------------------------------
def known_case(
    shares: tuple[float, float],
    base: tuple[float, float],
    trained: tuple[float, float],
    *,
    number: int = 400,
    spread: float = 0.2,
) -> pd.DataFrame:
    """Return episodes of two policies on `number` instances whose decomposition by the code tool is arithmetic.

    shares          of episodes with the code tool, of base and trained; `number` times each must be whole
    base, trained   exact mean score (without the tool, with it)
    spread          of single scores around their mean

    With shares p0, p1: composition = (p1 - p0)(base[1] - base[0]), within = (1 - p0)(trained[0] - base[0]) +
    p0 (trained[1] - base[1]), and interaction = (p1 - p0)((trained[1] - base[1]) - (trained[0] - base[0])).
    """
    parts = []
    for policy, share, means in zip(ARMS, shares, (base, trained), strict=True):
        users = round(share * number)
        if abs(users - share * number) > 1e-9:
            raise ValueError(f"share {share} of {number} instances is {share * number}, not a whole number")
        around = [
            mean + np.linspace(-spread, spread, n) * (n > 1)
            for mean, n in zip(means, (number - users, users), strict=True)
        ]
        rows = {"environment": [f"case-{i:04d}" for i in range(number)], "form": "A", "policy": policy}
        code = np.repeat([0, 1], [number - users, users])
        parts.append(pd.DataFrame(rows | {"code": code, "reward": np.concatenate(around)}))
    return pd.concat(parts, ignore_index=True)
