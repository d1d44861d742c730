"""Faults of what is sealed: the optimum, the plan, the baseline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ....streams import stream
from ... import candidates
from ...environment import Environment
from ...families.base import Action, Family, Optimum, State, Theta
from .base import Fault, NotApplicable, Patch, Patches, around, listed_in, of_family

FAULTS: list[Fault] = []
fault = listed_in(FAULTS)


@fault
def second_best_plan(environment: Environment) -> Patches:
    """The solver stops at a feasible plan one decision away from the best, and everybody trusts it."""
    family, theta, solution = environment.family, environment.theta, environment.solution
    state, sofar = family.start(theta), 0
    head: tuple[Action, ...] = ()
    for right in solution.plan:
        found: list[tuple[int, tuple[Action, ...]]] = []
        options = [action for move in family.legal(theta, state) for action in move if action != right]
        for action in options[:: 1 + len(options) // 30]:
            after, gain, _ = family.step(theta, state, action)
            rest, tail = _follow_optimum(family, theta, after)
            worse = dataclasses.replace(solution, u_star=sofar + gain + rest)
            if worse.u_star < solution.u_star - family.epsilon and worse.span >= worse.required_margin:
                found.append((worse.u_star, (*head, action, *tail)))
        if found:
            return of_family(environment, optimum=_stopping_early(family, theta, Optimum(*max(found))))
        state, gain, _ = family.step(theta, state, right)
        sofar, head = sofar + gain, (*head, right)
    return NotApplicable("no worse plan one decision away from the optimal one leaves a reward scale")


def _stopping_early(family: Family, where: Theta, found: Optimum) -> Callable[[Theta], Optimum]:
    return lambda theta: found if theta == where else family.optimum(theta)


def _follow_optimum(family: Family, theta: Theta, state: State) -> tuple[int, tuple[Action, ...]]:
    total, plan = 0, tuple[Action, ...]()
    while steps := family.optimum(family.residual(theta, state)).plan:
        state, gain, _ = family.step(theta, state, steps[0])
        total, plan = total + gain, (*plan, steps[0])
    return total + family.abandon(theta, state), plan


@fault
def relaxation_sealed(environment: Environment) -> Patches:
    """The optimum of a relaxation, a little above what any plan earns, is sealed as u_star."""
    best = environment.solution.u_star
    return [_sealing(u_star=best + 1 + environment.family.epsilon)]


def _sealing(**changes: Any) -> Patch:
    """Seal something else than what was solved."""

    def build(original: Any, *args: Any) -> Environment:
        built = original(*args)
        return dataclasses.replace(built, solution=dataclasses.replace(built.solution, **changes))

    return around(candidates, "build_candidate", build)


@fault
def baseline_of_doing_nothing(environment: Environment) -> Patches:
    """u_zero is taken from an agent that never acts instead of from the default policy."""
    idle = environment.family.replay(environment.theta, ())
    if idle == environment.solution.u_zero:
        return NotApplicable("never acting earns exactly what the default policy earns")
    return [_sealing(u_zero=idle)]


@fault
def baseline_that_peeks(environment: Environment) -> Patches:
    """The default policy reads the hidden entries, so the baseline is the optimum and the reward has no scale."""
    family = environment.family

    def default(theta: Theta, state: State) -> Action:
        plan = family.optimum(family.residual(theta, state)).plan
        return plan[0] if plan else family.default(theta, state)

    return of_family(environment, default=default)


@fault
def solution_of_an_older_draw(environment: Environment) -> Patches:
    """Hidden entries were drawn anew after solving, and the old solution was kept."""
    family, rng = environment.family, stream(0, "older-draw", environment.id)
    olds = (family.solve(family.redraw(environment.theta, rng)) for _ in range(10))
    old = next((solution for solution in olds if solution != environment.solution), None)
    if old is None:
        return NotApplicable("ten other draws have the very same solution")
    return [_sealing(u_star=old.u_star, u_zero=old.u_zero, plan=old.plan)]
