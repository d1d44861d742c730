"""Orienteering: a tour from a base that collects prizes within a limit of travel time.

Sets        sites i = 1..n, parts k = 1..m of a site's prize
Parameters  prize r[i,k] >= 0 of part k of site i (hidden), time b[i] >= 0 between the base and site i (the
            same both ways), time d[i,j] >= 1 from site i to site j, travel limit L >= 0
Decision    which site to visit next, or to finish
Dynamics    the tour begins at the base. Visiting j from i takes d[i,j] (b[j] from the base) off the time left
            and gains r[j,1] + ... + r[j,m]; it is allowed once a site, and only if the time left then still
            covers b[j], the way home. Finishing goes home and ends the tour
Objective   maximise the total of the prizes; time left over is worth nothing. Whoever stops gets home in time

A set of sites can be collected if its quickest tour keeps within L, so a dynamic programme over (set, last
site) is exact.

Source: Tsiligirides, "Heuristic methods applied to orienteering", Journal of the OR Society 35,
1984; Golden, Levy and Vohra, "The orienteering problem", Naval Research Logistics 34, 1987; Held and
Karp, "A dynamic programming approach to sequencing problems", Journal of SIAM 10, 1962; arcs that carry the
time: Kara, Bicakci and Derya, "New formulations for the orienteering problem", 2016.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pulp

from .base import (
    Action,
    Entity,
    Family,
    Field,
    Interface,
    Key,
    Move,
    Optimum,
    Quantity,
    Slot,
    Texts,
    Verb,
    require,
    require_prior,
    require_table,
    skewed_table,
)

MOST_SITES = 16  # the dynamic programme holds 2^n n numbers
BASE = -1
FINISH = Action("finish")


@dataclass(frozen=True, slots=True)
class Orienteering:
    """Parameters; `prize` has shape (n, m), in money; its prior is one triple for all, or one a part.

    position, visited, home   where the tour stands: site or BASE, sites seen (ascending), 1 once it has ended
                              (residual problems only)
    """

    limit: int
    base_time: tuple[int, ...]
    travel_time: tuple[tuple[int, ...], ...]
    prize: tuple[tuple[int, ...], ...]
    prize_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    position: int = BASE
    visited: tuple[int, ...] = ()
    home: int = 0


class State(NamedTuple):
    position: int
    left: int
    visited: tuple[int, ...]
    home: int


def draw(
    rng: np.random.Generator, items: int, parts: int, high: int, rarity: int, span: int, share: int
) -> Orienteering:
    """Scatter sites over a square around the base; what lies far off is picked over less and worth more.

    high     highest prize of the first part; the other parts are lesser
    rarity   highest over usual prize
    span     side of the square, in time
    share    limit, in percent of the tour that always goes to the nearest site and sees them all
    """
    side = span + 1
    middle = np.array([span // 2, span // 2])
    free = np.delete(np.arange(side**2), middle[0] * side + middle[1])
    places = rng.choice(free, size=items, replace=False)
    spots = np.stack((places // side, places % side), axis=1)
    # rounding up keeps the triangle inequality
    travel = np.ceil(np.hypot(*(spots[:, None] - spots).transpose(2, 0, 1))).astype(int)
    base = np.ceil(np.hypot(*(spots - middle).T)).astype(int)
    tops = [max(2, high - high * k // (2 * parts)) for k in range(parts)]
    prior = tuple((0, top, max(1, top // rarity)) for top in tops)
    columns = [skewed_table(rng, triple, items) for triple in prior]
    prizes = sorted(zip(*columns, strict=True), key=sum)
    remoteness = base + rng.integers(0, span // 4 + 1, items)
    ranks = np.argsort(np.argsort(remoteness, kind="stable"))
    prize = tuple(prizes[rank] for rank in ranks)
    tour, here, left = 0, BASE, set(range(items))
    while left:
        times = base if here == BASE else travel[here]
        here = min(left, key=lambda j: (times[j], j))
        tour += int(times[here])
        left.remove(here)
    tour += int(base[here])
    return Orienteering(
        limit=max(2 * int(base.min()), tour * share // 100),
        base_time=tuple(base.tolist()),
        travel_time=tuple(map(tuple, travel.tolist())),
        prize=prize,
        prize_prior=prior,
    )


def check(theta: Orienteering) -> None:
    items = len(theta.prize)
    require(1 <= items <= MOST_SITES, "prize", items, f"needs 1 to {MOST_SITES} sites")
    parts = len(theta.prize[0])
    require(parts >= 1, "prize", theta.prize, "needs at least one part")
    require_table("prize", theta.prize, items, parts, low=0)
    require_prior("prize_prior", theta.prize_prior)
    if isinstance(theta.prize_prior[0], tuple):
        found = len(theta.prize_prior)
        require(found == parts, "prize_prior", found, f"expected one triple for each of {parts} parts")
    require_table("base_time", theta.base_time, items, low=0)
    require_table("travel_time", theta.travel_time, items, items, low=0)
    for i, row in enumerate(theta.travel_time):
        expected = "0 from a site to itself, at least 1 between two sites"
        require(all((time == 0) == (i == j) for j, time in enumerate(row)), "travel_time", row, expected)
    nearest = 2 * min(theta.base_time)
    require(theta.limit >= nearest, "limit", theta.limit, f"must allow a visit: at least {nearest}")
    for name, value in (("position", BASE), ("visited", ()), ("home", 0)):
        found = getattr(theta, name)
        require(found == value, name, found, f"must be {value!r}: only residual problems are under way")


def counts(theta: Orienteering) -> dict[str, int]:
    return {"item": len(theta.prize), "part": len(theta.prize[0])}


def leg(theta: Orienteering, position: int, item: int) -> int:
    """Return the time from `position` to a site."""
    return theta.base_time[item] if position == BASE else theta.travel_time[position][item]


def way_home(theta: Orienteering, position: int) -> int:
    return 0 if position == BASE else theta.base_time[position]


def in_reach(theta: Orienteering, state: State) -> list[int]:
    """Return the sites not visited that leave time for the way home."""
    return [
        j
        for j, back in enumerate(theta.base_time)
        if j not in state.visited and leg(theta, state.position, j) + back <= state.left
    ]


def start(theta: Orienteering) -> State:
    return State(theta.position, theta.limit, theta.visited, theta.home)


def legal(theta: Orienteering, state: State) -> tuple[Move, ...]:
    if state.home:
        return ()
    near = in_reach(theta, state)
    return (Move("visit", (tuple(near),)), Move("finish")) if near else (Move("finish"),)


def step(theta: Orienteering, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """A visit shows all parts of the site's prize."""
    if action == FINISH:
        left = state.left - way_home(theta, state.position)
        return State(BASE, left, state.visited, 1), 0, {}
    (item,) = action.args
    shown: dict[Key, int] = {("prize", item, k): worth for k, worth in enumerate(theta.prize[item])}
    left = state.left - leg(theta, state.position, item)
    return State(item, left, tuple(sorted((*state.visited, item))), 0), sum(theta.prize[item]), shown


def default(theta: Orienteering, state: State) -> Action:
    """Stay close to home: of the sites in reach, the one nearest to the base; home when there is none."""
    near = in_reach(theta, state)
    if not near:
        return FINISH
    return Action("visit", (min(near, key=lambda j: (theta.base_time[j], j)),))


def abandon(theta: Orienteering, state: State) -> int:
    return 0


def residual(theta: Orienteering, state: State) -> Orienteering:
    return dataclasses.replace(
        theta, limit=state.left, position=state.position, visited=state.visited, home=state.home
    )


def observe(theta: Orienteering, state: State) -> dict[str, int]:
    return {
        "here": state.position,
        "left": state.left,
        "way_home": way_home(theta, state.position),
        "seen": len(state.visited),
    }


@functools.cache
def lattice(n: int) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
    """Return the membership table (2^n, n) of all subsets, and the subsets by size."""
    members = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    sizes = members.sum(axis=1)
    return members, [np.flatnonzero(sizes == k) for k in range(n + 1)]


def optimum(theta: Orienteering) -> Optimum:
    """Dynamic programme over (set visited, last site): least time; then the richest set; O(2^n n^2)."""
    if theta.home:
        return Optimum(0, ())
    left = [i for i in range(len(theta.prize)) if i not in theta.visited]
    n = len(left)
    members, layers = lattice(n)
    bits = 1 << np.arange(n)
    first = np.array([leg(theta, theta.position, i) for i in left], dtype=np.int64)
    back = np.array([theta.base_time[i] for i in left], dtype=np.int64)
    travel = np.array([[theta.travel_time[i][j] for i in left] for j in left], dtype=np.int64)  # [to, from]
    never = np.iinfo(np.int64).max // 4
    time = np.full((2**n, n), never)
    before = np.full((2**n, n), -1)
    for size, layer in enumerate(layers[1:], start=1):
        if size == 1:
            fresh = np.where(members[layer], first, never)
        else:
            through = time[layer[:, None] & ~bits] + travel  # [set, to, from]
            before[layer] = through.argmin(axis=2)
            fresh = np.where(members[layer], through.min(axis=2), never)
        time[layer] = np.where(fresh + back <= theta.limit, fresh, never)
        if (time[layer] == never).all():
            break
    tour = (time + back).min(axis=1, initial=never)
    tour[0] = 0
    worth = members @ np.array([sum(theta.prize[i]) for i in left], dtype=np.int64)
    allowed = np.flatnonzero(tour < never)
    chosen = int(allowed[np.lexsort((-tour[allowed], worth[allowed]))[-1]])
    value, order = int(worth[chosen]), []
    last = int((time[chosen] + back).argmin()) if chosen else -1
    while chosen:
        order.append(last)
        chosen, last = chosen & ~(1 << last), int(before[chosen, last])
    return Optimum(value, (*(Action("visit", (left[j],)) for j in reversed(order)), FINISH))


def bound(theta: Orienteering) -> int:
    """Branch and bound, depth first: cut where all sites not visited cannot lift the tour above the best."""
    if theta.home:
        return 0
    worth = [sum(row) for row in theta.prize]
    best = 0
    latest: dict[tuple[frozenset[int], int], int] = {}  # most time left with which a branch was explored

    def explore(at: int, left: int, open_sites: frozenset[int], earned: int) -> None:
        nonlocal best
        best = max(best, earned)
        times = theta.base_time if at == BASE else theta.travel_time[at]
        near = [j for j in open_sites if times[j] + theta.base_time[j] <= left]
        if earned + sum(worth[j] for j in open_sites) <= best or latest.get((open_sites, at), -1) >= left:
            return
        latest[open_sites, at] = left
        # without the triangle inequality a site out of reach now may come into reach later: it stays open
        for j in sorted(near, key=lambda j: worth[j] / (times[j] + 1), reverse=True):
            explore(j, left - times[j], open_sites - {j}, earned + worth[j])

    everything = frozenset(range(len(worth))) - set(theta.visited)
    explore(theta.position, theta.limit, everything, 0)
    return best


def model(theta: Orienteering) -> pulp.LpProblem:
    """MILP over the arcs of the tour; `clock` of an arc is the time at its end, so no subtour can close."""
    problem = pulp.LpProblem("orienteering", pulp.LpMaximize)
    left = [i for i in range(len(theta.prize)) if i not in theta.visited] if not theta.home else []
    arcs_in: dict[int, list[pulp.LpVariable]] = {j: [] for j in left}
    arcs_out: dict[int, list[pulp.LpVariable]] = {j: [] for j in left}
    clocks_in: dict[int, list[pulp.LpVariable]] = {j: [] for j in left}
    spent_out: dict[int, list[pulp.LpAffineExpression]] = {j: [] for j in left}
    leaving, prizes = [], []
    for i in (BASE, *left):
        origin = theta.position if i == BASE else i
        name = "start" if i == BASE else str(i)
        for j in left:
            if i == j:
                continue
            time = leg(theta, origin, j)
            arc = problem.add_variable(f"arc_{name}_{j}", cat="Binary")
            clock = problem.add_variable(f"clock_{name}_{j}", lowBound=0)
            problem += clock <= max(0, theta.limit - theta.base_time[j]) * arc, f"in_time_{name}_{j}"
            if time + theta.base_time[j] > theta.limit:
                problem += arc == 0, f"out_of_reach_{name}_{j}"
            arcs_in[j].append(arc)
            clocks_in[j].append(clock)
            prizes.append(sum(theta.prize[j]) * arc)
            if i == BASE:
                leaving.append(arc)
                problem += clock == time * arc, f"first_{j}"
            else:
                arcs_out[i].append(arc)
                spent_out[i].append(clock - time * arc)
    problem += pulp.lpSum(prizes)
    problem += pulp.lpSum(leaving) <= 1, "leave_once"
    for j in left:
        home = problem.add_variable(f"home_{j}", cat="Binary")
        ended = problem.add_variable(f"ended_{j}", lowBound=0)
        problem += ended <= theta.limit * home, f"ended_in_{j}"
        problem += pulp.lpSum(arcs_in[j]) <= 1, f"visit_once_{j}"
        problem += pulp.lpSum(arcs_in[j]) == pulp.lpSum(arcs_out[j]) + home, f"go_on_{j}"
        problem += pulp.lpSum(clocks_in[j]) == pulp.lpSum(spent_out[j]) + ended, f"time_at_{j}"
    return problem


FAMILY = Family(
    name="orienteering",
    title="Orienteering: a tour of prizes within a travel limit",
    coupling="graph",
    solver="dynamic programming",
    certificate="depth-first branch and bound over tours",
    interface=Interface(
        entities=(Entity("item"), Entity("part")),
        scalars=(Quantity("limit", "time"),),
        fields=(
            Field("base_time", ("item",), "time"),
            Field("travel_time", ("item", "item"), "time"),
            Field("prize", ("item", "part"), "money", hidden=True),
        ),
        facts=(
            Quantity("here", "item"),
            Quantity("left", "time"),
            Quantity("way_home", "time"),
            Quantity("seen", "count"),
        ),
        verbs=(Verb("visit", (Slot("item", entity="item"),)), Verb("finish")),
    ),
    texts=Texts(
        rules=(
            (
                "You set out from a base that is not itself one of the {n_item} {items}. {tool_visit} "
                "takes you from where you are to the {item} you name; each {item} can be visited once. "
                "{tool_finish} takes you back to the base and ends everything.",
                "One round trip is yours to lay out, beginning and ending at the base. Name the next "
                "{item} with {tool_visit}, never the same one twice, for as long as you like; close the "
                "trip with {tool_finish}. The base is a place of its own beside the {n_item} {items}.",
                "Each call of {tool_visit} adds one {item} to your route, and no {item} may appear in it "
                "twice. The route starts at the base, which none of the {n_item} {items} is; "
                "{tool_finish} leads back there, after which nothing more can be done.",
            ),
            (
                'The way between the base and one {item} takes its "{label_base_time}", in either '
                'direction. From one {item} to another it takes the "{label_travel_time}" in the row of '
                "the first and the column of the second. Visits take no time of their own.",
                'Look up how long a way takes: "{label_base_time}" if one end of it is the base, '
                'whichever way you go; otherwise "{label_travel_time}", with the row for where you leave '
                "and the column for where you arrive. Nothing else uses {time}.",
                "Only travelling uses up {time}. Going from the base to the first {item}, or home from "
                'the last, costs that {item}\'s "{label_base_time}"; between two {items} read the '
                '"{label_travel_time}" across from the {item} you leave, under the one you go to.',
            ),
            (
                "The whole trip, the way home included, may take {limit} {time}; exactly that much is "
                "allowed. A visit is refused if, on arrival, too little would be left for the direct way "
                "home. Unused {time} has no worth.",
                "You have {limit} {time} until you must be back. Hence the {item} you name must be near "
                "enough: the way to it and the direct way from it to the base together must not exceed "
                "what is left. Arriving at the very last moment is fine, and arriving early brings "
                "nothing.",
                "What is left of the {limit} {time} must cover, at every visit, both the leg to the "
                "{item} and its direct way back to the base; otherwise that {item} is out of reach. "
                "Being back with {time} to spare is neither rewarded nor punished.",
            ),
            (
                "At each {item} you collect all {n_part} {parts} at once: their figures of "
                '"{label_prize}" are added up, in {money}, and become known. If you stop without '
                "{tool_finish}, you are brought home and keep what you have collected.",
                'A visit earns the sum of the "{label_prize}" of the {item} over all {n_part} {parts}, '
                "and shows those figures. Leaving off in mid-route loses nothing: you get home in time, "
                "with everything earned so far.",
                'Every {item} holds {n_part} {parts}, each with its own "{label_prize}". By going there '
                "you gain all of them together and see what each was. Ending without a call of "
                "{tool_finish} costs nothing; the way home was kept free.",
            ),
        ),
        goal=(
            "Bring home as many {money} as you can on the one trip.",
            "What counts is the sum of {money} collected at all the {items} you visit, and only that.",
            "Your result is the total of everything collected, in {money}; make it as large as the "
            "{limit} {time} permit.",
        ),
        status=(
            "{item} you are at (none means the base): {here}; {time} left: {left}; {time} needed for the "
            "direct way home: {way_home}; {items} visited: {seen}."
        ),
        outcomes={
            "visit": "{Item} visited: {item}; {money} collected: {gain}.",
            "finish": "Back at the base; {money} collected on the way: {gain}.",
        },
    ),
    sizes={
        "nano": {"items": 6, "parts": 1, "high": 9, "rarity": 3, "span": 6, "share": 80},
        "small": {"items": 6, "parts": 5, "high": 30, "rarity": 7, "span": 20, "share": 65},
        "medium": {"items": 8, "parts": 7, "high": 20, "rarity": 4, "span": 20, "share": 55},
        "large": {"items": 9, "parts": 9, "high": 20, "rarity": 4, "span": 20, "share": 55},
        "huge": {"items": 11, "parts": 11, "high": 20, "rarity": 4, "span": 20, "share": 55},
        "long": {"items": 10, "parts": 6, "high": 20, "rarity": 4, "span": 20, "share": 55},
    },
    theta_type=Orienteering,
    draw=draw,
    check=check,
    optimum=optimum,
    bound=bound,
    start=start,
    legal=legal,
    step=step,
    default=default,
    abandon=abandon,
    residual=residual,
    counts=counts,
    observe=observe,
    horizon=lambda theta: 0 if theta.home else len(theta.prize) - len(theta.visited) + 1,
    model=model,
)
