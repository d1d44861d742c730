"""Assignment: who does what, one worker a task and one task a worker.

Sets        workers i = 1..n, tasks j = 1..m
Parameters  value v[i,j] >= 0 of worker i at task j (hidden)
Decision    the next pair (i, j) of a free worker and a free task
Dynamics    the pair is made for good and pays v[i,j]; both are taken from then on
Objective   maximise the total of v[i,j] over the pairs made; who or what stays alone is worth nothing

The order of the pairs is free and does not matter. A linear programme whose vertices are integer (Birkhoff);
the optimal prices of workers and tasks, which no pair's value may exceed, prove the optimum.

Source: Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics Quarterly 2, 1955;
Koopmans and Beckmann, "Assignment problems and the location of economic activities", Econometrica 25, 1957.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pulp
from scipy.optimize import linear_sum_assignment, linprog

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
    published,
    require,
    require_prior,
    require_table,
    skewed_table,
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Parameters; `value` has shape (n, m), in money; its prior is one triple for all, or one a task.

    busy, filled   workers and tasks that are already taken, in rising order: residuals only
    """

    value: tuple[tuple[int, ...], ...]
    value_prior: tuple[tuple[int, int, int], ...] | tuple[int, int, int]
    busy: tuple[int, ...] = ()
    filled: tuple[int, ...] = ()


class State(NamedTuple):
    busy: tuple[int, ...]
    filled: tuple[int, ...]


def draw(rng: np.random.Generator, items: int, tasks: int, high: int) -> Assignment:
    """Draw skewed values: a worker is good at few tasks. The first tasks are the weightier ones.

    Where the baseline happens to come close to the optimum, draw again (at most five times).
    """
    tops = [high - high * j // (2 * tasks) for j in range(tasks)]
    prior = tuple((0, top, max(1, top * 3 // 10)) for top in tops)
    for _ in range(6):
        columns = [skewed_table(rng, triple, items) for triple in prior]
        theta = Assignment(tuple(zip(*columns, strict=True)), prior)
        solution = FAMILY.solve(theta)
        if solution.span >= solution.required_margin:
            break
    return theta


def check(theta: Assignment) -> None:
    require(len(theta.value) >= 1, "value", theta.value, "needs at least one worker")
    require(len(theta.value[0]) >= 1, "value", theta.value, "needs at least one task")
    items, tasks = len(theta.value), len(theta.value[0])
    require_table("value", theta.value, items, tasks, low=0)
    require_prior("value_prior", theta.value_prior)
    if isinstance(theta.value_prior[0], tuple):
        found = len(theta.value_prior)
        require(found == tasks, "value_prior", found, f"expected one triple for each of {tasks} tasks")
    for name, count in (("busy", items), ("filled", tasks)):
        taken = getattr(theta, name)
        valid = list(taken) == sorted(set(taken)) and all(0 <= k < count for k in taken)
        require(valid, name, taken, f"expected rising indices below {count}")
    require(len(theta.busy) == len(theta.filled), "filled", theta.filled, "must be as many as busy")


def counts(theta: Assignment) -> dict[str, int]:
    return {"item": len(theta.value), "task": len(theta.value[0])}


def free(theta: Assignment, state: State) -> tuple[list[int], list[int]]:
    """Return the free workers and the free tasks."""
    workers = [i for i in range(len(theta.value)) if i not in state.busy]
    return workers, [j for j in range(len(theta.value[0])) if j not in state.filled]


def start(theta: Assignment) -> State:
    return State(theta.busy, theta.filled)


def legal(theta: Assignment, state: State) -> tuple[Move, ...]:
    workers, tasks = free(theta, state)
    return (Move("assign", (workers, tasks)),) if workers and tasks else ()


def step(theta: Assignment, state: State, action: Action) -> tuple[State, int, dict[Key, int]]:
    i, j = action.args
    after = State(tuple(sorted((*state.busy, i))), tuple(sorted((*state.filled, j))))
    value = theta.value[i][j]
    return after, value, {("value", i, j): value}


def default(theta: Assignment, state: State) -> Action:
    """Down the list of workers: each takes the free task that is usually worth most."""
    workers, tasks = free(theta, state)
    best = max(tasks, key=lambda j: published(theta, ("value", workers[0], j))[2])
    return Action("assign", (workers[0], best))


def abandon(theta: Assignment, state: State) -> int:
    return 0


def residual(theta: Assignment, state: State) -> Assignment:
    return dataclasses.replace(theta, busy=state.busy, filled=state.filled)


def observe(theta: Assignment, state: State) -> dict[str, int]:
    workers, tasks = free(theta, state)
    return {"pairs": len(state.busy), "items_free": len(workers), "tasks_free": len(tasks)}


def optimum(theta: Assignment) -> Optimum:
    """The assignment LP by shortest augmenting paths (Jonker and Volgenant), O(n^3)."""
    workers, tasks = free(theta, start(theta))
    if not workers or not tasks:
        return Optimum(0, ())
    table = np.array(theta.value)[np.ix_(workers, tasks)]
    rows, columns = linear_sum_assignment(table, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    plan = tuple(Action("assign", (workers[r], tasks[c])) for r, c in pairs)
    return Optimum(int(table[rows, columns].sum()), plan)


def bound(theta: Assignment) -> int:
    """Weak duality: the least total of integer prices p[i], q[j] >= 0 with p[i] + q[j] >= v[i,j]."""
    workers, tasks = free(theta, start(theta))
    n, m = len(workers), len(tasks)
    if not n or not m:
        return 0
    table = np.array(theta.value)[np.ix_(workers, tasks)]
    rows = np.hstack((np.repeat(np.eye(n), m, axis=0), np.tile(np.eye(m), (n, 1))))
    found = linprog(np.ones(n + m), A_ub=-rows, b_ub=-table.ravel(), method="highs-ds")
    if found.status != 0:
        raise RuntimeError(f"assignment: the dual prices ended with {found.message!r}")
    prices = np.rint(np.asarray(found.x)).astype(np.int64)
    if prices.min() < 0 or (prices[:n, None] + prices[n:] < table).any():
        raise RuntimeError("assignment: the rounded dual prices are not feasible")
    return int(prices.sum())


def model(theta: Assignment) -> pulp.LpProblem:
    """LP with the share of every pair of a free worker and a free task."""
    problem = pulp.LpProblem("assignment", pulp.LpMaximize)
    workers, tasks = free(theta, start(theta))
    pairs = [
        (i, j, problem.add_variable(f"pair_{i}_{j}", lowBound=0, upBound=1)) for i in workers for j in tasks
    ]
    problem += pulp.lpSum(theta.value[i][j] * share for i, j, share in pairs)
    for i in workers:
        problem += pulp.lpSum(share for row, _, share in pairs if row == i) <= 1, f"worker_{i}"
    for j in tasks:
        problem += pulp.lpSum(share for _, column, share in pairs if column == j) <= 1, f"task_{j}"
    return problem


FAMILY = Family(
    name="assignment",
    title="Assignment: who does what",
    coupling="graph",
    solver="LP",
    certificate="integer dual prices of workers and tasks",
    interface=Interface(
        entities=(Entity("item"), Entity("task")),
        scalars=(),
        fields=(Field("value", ("item", "task"), "money", hidden=True),),
        facts=(Quantity("pairs", "count"), Quantity("items_free", "count"), Quantity("tasks_free", "count")),
        verbs=(Verb("assign", (Slot("item", "item"), Slot("task", "task"))),),
    ),
    texts=Texts(
        rules=(
            (
                "There are {n_item} {items} and {n_task} {tasks}. Each call of {tool_assign} joins one "
                "{item} that is still free to one {task} that is still free; in which order the pairs are "
                "made is up to you and changes nothing.",
                "Pairs are made one at a time with {tool_assign}, in any order: choose one of the {n_item} "
                "{items} and one of the {n_task} {tasks}, neither of them taken before. The order has no "
                "effect on what a pair is worth.",
                "{tool_assign} takes two names, that of one {item} and that of one {task}. {n_item} {items} "
                "and {n_task} {tasks} wait to be joined; nothing depends on which pair comes first.",
            ),
            (
                "No {item} can take more than one {task}, and no {task} can go to more than one {item}. A "
                "pair, once made, is never undone.",
                "Whoever and whatever has been paired is out of play for good: one {task} for each {item} "
                "at most, one {item} for each {task} at most.",
                "Both sides are used up by a pair. Neither the {item} nor the {task} is available again, "
                "and there is no way to take a pair back.",
            ),
            (
                'A pair pays once, at the moment it is made: the "{label_value}" of that very {item} with '
                "that very {task}, which you then see.",
                'What you get for joining one {item} and one {task} is their "{label_value}", a figure of '
                "its own for every combination; it is paid and shown as soon as they are joined.",
                'Every combination of one {item} and one {task} has its own "{label_value}". Making the '
                "pair reveals that figure and adds it to your total, and this is all the pair ever brings.",
            ),
            (
                "{Items} and {tasks} that stay without a partner bring nothing and cost nothing, so you may "
                "stop at any time; all is over when every {item} or every {task} has been taken.",
                "The work ends when no {item} or no {task} is free any more. Stopping sooner is allowed: "
                "what has not been joined counts 0.",
                "As long as one {item} and one {task} are free you may go on, but nothing forces you to. "
                "Nobody pays for those that are left alone, neither to you nor from you.",
            ),
        ),
        goal=(
            "Make the pairs so that the {money} they bring add up to as much as possible.",
            "Your result is the total of {money} over all pairs; the higher, the better.",
            "What counts in the end is one sum: the {money} paid for every pair you made. Make it large.",
        ),
        status="pairs made: {pairs}; {items} free: {items_free}; {tasks} free: {tasks_free}.",
        outcomes={"assign": "{Item}: {item}; {Task}: {task}; {money} earned: {gain}."},
    ),
    sizes={
        "nano": {"items": 4, "tasks": 2, "high": 9},
        "small": {"items": 6, "tasks": 5, "high": 30},
        "medium": {"items": 8, "tasks": 7, "high": 30},
        "large": {"items": 9, "tasks": 9, "high": 40},
        "huge": {"items": 11, "tasks": 11, "high": 40},
        "long": {"items": 14, "tasks": 6, "high": 30},
    },
    theta_type=Assignment,
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
    horizon=lambda theta: min(len(theta.value), len(theta.value[0])) - len(theta.busy),
    model=model,
)
