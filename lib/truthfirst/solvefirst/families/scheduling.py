"""Scheduling: jobs with due times on one machine, each made of several stages.

Sets        jobs i = 1..n, stages k = 1..m
Parameters  duration p[i,k] >= 0 of stage k of job i (hidden), weight w[i] >= 0, due time d[i] >= 0, time
            c >= 0 on the clock at the start
Decision    which job that has not been run yet goes next
Dynamics    running job i moves the clock from c to c + p[i,1] + ... + p[i,m]; no idle time, no interruption.
            Jobs left when decisions stop are run one after another in the order of their indices
Objective   maximise minus the sum of w[i] max(0, C[i] - d[i]), where C[i] is the clock when job i is finished

This is 1 || sum w T, strongly NP-hard. Whatever the order, the jobs of a set S that go first are finished at
c + p(S), so a dynamic programme over sets is exact.

Source: Held and Karp, "A dynamic programming approach to sequencing problems", Journal of SIAM 10, 1962;
Lawler, "A pseudopolynomial algorithm for sequencing jobs to minimize total tardiness", 1977; the time-indexed
model: Sousa and Wolsey, "A time indexed formulation of non-preemptive single machine scheduling problems",
1992.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
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

MOST_JOBS = 18  # the dynamic programme holds 2^n n numbers


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Parameters; `duration` has shape (n, m), in time; its prior is one triple for all, or one a stage.

    done   jobs that are finished already, ascending (residual problems only)
    """

    clock: int
    weight: tuple[int, ...]
    due: tuple[int, ...]
    duration: tuple[tuple[int, ...], ...]
    duration_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    done: tuple[int, ...] = ()


class State(NamedTuple):
    clock: int
    done: tuple[int, ...]


def draw(rng: np.random.Generator, items: int, stages: int, high: int, heaviest: int) -> Scheduling:
    """Draw jobs of skewed length and due times too early for everyone to meet; heavy jobs may be due later.

    high   longest that the first stage can take; the other stages are shorter
    """
    tops = [max(2, high - high * k // (2 * stages)) for k in range(stages)]
    prior = tuple((1, top, 1 + top // 6) for top in tops)
    duration = tuple(zip(*(skewed_table(rng, triple, items) for triple in prior), strict=True))
    weight = rng.integers(2, heaviest + 1, items)
    usual = items * sum(mean for _, _, mean in prior)
    latest = np.maximum(1, 2 * usual * (weight + 1) // (5 * (heaviest + 1)))
    return Scheduling(
        clock=0,
        weight=tuple(weight.tolist()),
        due=tuple(rng.integers(1, latest + 1).tolist()),
        duration=duration,
        duration_prior=prior,
    )


def check(theta: Scheduling) -> None:
    items = len(theta.duration)
    require(1 <= items <= MOST_JOBS, "duration", items, f"needs 1 to {MOST_JOBS} jobs")
    require(len(theta.duration[0]) >= 1, "duration", theta.duration, "needs at least one stage")
    stages = len(theta.duration[0])
    require_table("duration", theta.duration, items, stages, low=0)
    require_prior("duration_prior", theta.duration_prior)
    if isinstance(theta.duration_prior[0], tuple):
        found = len(theta.duration_prior)
        require(found == stages, "duration_prior", found, f"expected one triple for each of {stages} stages")
    require_table("weight", theta.weight, items, low=0)
    require_table("due", theta.due, items, low=0)
    require(theta.clock >= 0, "clock", theta.clock, "must be at least 0")
    require(theta.done == (), "done", theta.done, "must be empty: only residual problems have finished jobs")


def counts(theta: Scheduling) -> dict[str, int]:
    return {"item": len(theta.duration), "stage": len(theta.duration[0])}


def waiting(theta: Scheduling, done: tuple[int, ...]) -> list[int]:
    """Return the jobs that have not been run, in the order of their indices."""
    return [i for i in range(len(theta.weight)) if i not in done]


def start(theta: Scheduling) -> State:
    return State(theta.clock, theta.done)


def legal(theta: Scheduling, state: State) -> tuple[Move, ...]:
    left = waiting(theta, state.done)
    return (Move("run", (tuple(left),)),) if left else ()


def step(theta: Scheduling, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    """Every stage of the job is clocked as it runs."""
    (item,) = action.args
    finish = state.clock + sum(theta.duration[item])
    late = max(0, finish - theta.due[item])
    shown: dict[Key, int] = {("duration", item, k): time for k, time in enumerate(theta.duration[item])}
    return State(finish, tuple(sorted((*state.done, item)))), -theta.weight[item] * late, shown


def default(theta: Scheduling, state: State) -> Action:
    """Earliest due time first; of equally urgent jobs the heavier one."""
    left = waiting(theta, state.done)
    return Action("run", (min(left, key=lambda i: (theta.due[i], -theta.weight[i], i)),))


def abandon(theta: Scheduling, state: State) -> int:
    """Jobs that nobody orders are run all the same, as they stand on the list."""
    total = 0
    for item in waiting(theta, state.done):
        state, gain, _ = step(theta, state, Action("run", (item,)))
        total += gain
    return total


def residual(theta: Scheduling, state: State) -> Scheduling:
    return dataclasses.replace(theta, clock=state.clock, done=state.done)


def observe(theta: Scheduling, state: State) -> dict[str, int]:
    return {"now": state.clock, "waiting": len(theta.weight) - len(state.done), "finished": len(state.done)}


@functools.cache
def lattice(n: int) -> tuple[npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
    """Return the membership table (2^n, n) of all subsets, and the subsets by size."""
    members = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    sizes = members.sum(axis=1)
    return members, [np.flatnonzero(sizes == k) for k in range(n + 1)]


def optimum(theta: Scheduling) -> Optimum:
    """Dynamic programme over the sets of jobs that go first, layer by layer; O(2^n n)."""
    left = waiting(theta, theta.done)
    n = len(left)
    members, layers = lattice(n)
    lengths = np.array([sum(theta.duration[i]) for i in left], dtype=np.int64)
    weights = np.array([theta.weight[i] for i in left], dtype=np.int64)
    dues = np.array([theta.due[i] for i in left], dtype=np.int64)
    finish = theta.clock + members @ lengths
    best = np.zeros(2**n, dtype=np.int64)  # least cost of the jobs of a set when they go first
    final = np.zeros(2**n, dtype=np.int64)  # the job that goes last among them
    bits = 1 << np.arange(n)
    beyond = np.iinfo(np.int64).max
    for layer in layers[1:]:
        late = weights * np.maximum(0, finish[layer, None] - dues)
        costs = np.where(members[layer], best[layer[:, None] & ~bits] + late, beyond)
        final[layer] = costs.argmin(axis=1)
        best[layer] = costs.min(axis=1)
    order, rest = [], 2**n - 1
    while rest:
        order.append(int(final[rest]))
        rest ^= 1 << order[-1]
    return Optimum(-int(best[-1]), tuple(Action("run", (left[j],)) for j in reversed(order)))


def bound(theta: Scheduling) -> int:
    """Shortest path from all jobs to none, placing the last job first: Dijkstra, as no cost is negative."""
    everyone = frozenset(range(len(theta.weight))) - set(theta.done)
    settled: set[frozenset[int]] = set()
    queue: list[tuple[int, int, frozenset[int]]] = [(0, 0, everyone)]
    pushed = 0
    while queue:
        cost, _, unplaced = heapq.heappop(queue)
        if not unplaced:
            return -cost
        if unplaced in settled:
            continue
        settled.add(unplaced)
        end = theta.clock + sum(sum(theta.duration[i]) for i in unplaced)
        for i in unplaced:
            if (before := unplaced - {i}) not in settled:
                pushed += 1
                late = max(0, end - theta.due[i])
                heapq.heappush(queue, (cost + theta.weight[i] * late, pushed, before))
    raise AssertionError("scheduling: the empty set is always reached")


def model(theta: Scheduling) -> pulp.LpProblem:
    """Time-indexed MILP: begin[i,t] says that job i begins at time t."""
    problem = pulp.LpProblem("scheduling", pulp.LpMaximize)
    left = waiting(theta, theta.done)
    lengths = {i: sum(theta.duration[i]) for i in left}
    total = sum(lengths.values())
    costs = []
    busy: list[list[pulp.LpVariable]] = [[] for _ in range(total)]
    for i in left:
        begins = []
        for t in range(total - lengths[i] + 1):
            begin = problem.add_variable(f"begin_{i}_{t}", cat="Binary")
            begins.append(begin)
            costs.append(theta.weight[i] * max(0, theta.clock + t + lengths[i] - theta.due[i]) * begin)
            for u in range(t, t + lengths[i]):
                busy[u].append(begin)
        problem += pulp.lpSum(begins) == 1, f"once_{i}"
    for u, running in enumerate(busy):
        problem += pulp.lpSum(running) <= 1, f"machine_{u}"
    problem += -pulp.lpSum(costs)
    return problem


FAMILY = Family(
    name="scheduling",
    title="Scheduling: weighted lateness on one machine",
    coupling="order",
    solver="dynamic programming",
    certificate="shortest path over sets of jobs, last job first (Dijkstra)",
    interface=Interface(
        entities=(Entity("item"), Entity("stage")),
        scalars=(Quantity("clock", "time"),),
        fields=(
            Field("weight", ("item",), "money"),
            Field("due", ("item",), "time"),
            Field("duration", ("item", "stage"), "time", hidden=True),
        ),
        facts=(Quantity("now", "time"), Quantity("waiting", "count"), Quantity("finished", "count")),
        verbs=(Verb("run", (Slot("item", entity="item"),)),),
    ),
    texts=Texts(
        rules=(
            (
                "All {n_item} {items} share one place of work, so they go one after another. Each call of "
                "{tool_run} names the {item} that goes next; it is then carried through without a break, "
                "and none goes twice.",
                "You fix a sequence. With {tool_run} you name one {item} that has not had its turn; it "
                "occupies everything until it is finished, and then you name another, until all {n_item} "
                "are through.",
                "Only one {item} can be worked on at any moment. {tool_run} begins the one you choose among "
                "those still waiting and ends when it is complete: nothing is interrupted, repeated, or run "
                "side by side. There are {n_item} in all.",
            ),
            (
                "The clock stands at {clock} {time} before the first {item}. Each {item} passes through all "
                '{n_stage} {stages}, and its figures of "{label_duration}" for the single {stages} add up: '
                "by that sum the clock moves on. There is no waiting in between, and afterwards you see how "
                "long every {stage} took.",
                "Time counts from {clock} {time} and advances only while work is done. One {item} takes the "
                'sum of its {n_stage} figures of "{label_duration}", one for each {stage}; the next one '
                "begins at once. What each {stage} took is known when the {item} is finished.",
                'How long does one {item} take? Add its "{label_duration}" over the {n_stage} {stages}. '
                "Starting at {clock} {time}, every {item} begins at the moment the one before it ends, and "
                "once it has gone through you know all its figures.",
            ),
            (
                'Finishing by the "{label_due}" of the {item} costs nothing and earns nothing. Finishing '
                'later costs its "{label_weight}", in {money}, once for each unit of {time} beyond it.',
                'At the end of each {item}, compare the clock with that {item}\'s "{label_due}". If the '
                'clock shows more, the excess times the "{label_weight}" is charged in {money}; if it shows '
                "the same or less, nothing is.",
                'The charge for one {item} is its "{label_weight}" in {money}, multiplied by the {time} that '
                'its end lies after its "{label_due}". There is no reward for being early, and exactly on '
                "time is free.",
            ),
            (
                "If you stop while some {items} have not had their turn, those go last by themselves, in the "
                "order in which the tables list them, and are charged in the same way.",
                "Whatever you do not call is done all the same: when your decisions end, the remaining "
                "{items} follow in the order of the list, each with its usual charge for lateness.",
                "Leaving off early saves nothing. The {items} never called are worked through after the "
                "others, from the top of the list to the bottom, and every late end is charged.",
            ),
        ),
        goal=(
            "All gains are charges, so none is above zero: make the loss in {money} over all {n_item} "
            "{items} as small as you can.",
            "Your result is minus the {money} charged for lateness, taken over every {item}. Bring it as "
            "near to zero as possible.",
            "Keep the whole charge for late {items} low. It counts against you one for one, in {money}.",
        ),
        status="{time} on the clock: {now}; {items} waiting: {waiting}; {items} finished: {finished}.",
        outcomes={"run": "{Item} finished: {item}; {money} gained: {gain}."},
    ),
    sizes={
        "nano": {"items": 5, "stages": 1, "high": 9, "heaviest": 6},
        "small": {"items": 6, "stages": 5, "high": 16, "heaviest": 6},
        "medium": {"items": 8, "stages": 7, "high": 16, "heaviest": 6},
        "large": {"items": 9, "stages": 9, "high": 16, "heaviest": 6},
        "huge": {"items": 11, "stages": 11, "high": 16, "heaviest": 6},
        "long": {"items": 10, "stages": 6, "high": 16, "heaviest": 6},
    },
    theta_type=Scheduling,
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
    horizon=lambda theta: len(theta.weight) - len(theta.done),
    model=model,
)
