"""The atlas of mechanisms: what each family is, and what its references earn, as tidy frames."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from ..solvefirst.environment import Position, turn_budget
from ..solvefirst.families import FAMILIES, role
from ..solvefirst.families import family as find_family
from ..solvefirst.families.base import Action, Family, Theta
from ..solvefirst.references import POLICIES, Policy, simulate, u_reach
from ..streams import stream

REFERENCES = ("myopic", "random", "plan", "probe-all")


def family_table(size: str = "small", seed: int = 0) -> pd.DataFrame:
    """Return one row a family, read off the code and one instance of `size`: its structure and its solver."""
    rows = []
    for name, family in FAMILIES.items():
        theta = family.sample(stream(seed, "atlas", name, size), size)
        counts = family.counts(theta)
        rows.append(
            {
                "family": name,
                "role": role(name),
                "title": family.title,
                "coupling": family.coupling,
                "horizon": family.horizon(theta),
                "hidden": len(family.keys(theta)),
                "probes": len(family.probe_keys(theta)),
                "entities": ", ".join(f"{count} {kind}" for kind, count in counts.items()),
                "verbs": ", ".join(verb.name for verb in family.interface.verbs),
                "solver": family.solver,
                "certificate": family.certificate,
                "turns_ample": turn_budget(family, theta, "ample"),
                "turns_tight": turn_budget(family, theta, "tight"),
            }
        )
    return pd.DataFrame(rows)


def coupling_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to each family what a myopic policy and planning without probes lose (1 - mean unclipped score).

    frame   of instance_frame; one row a family and size, instances that clear the margin only
    """
    kept = frame[frame["clears_margin"]]
    losses = kept.groupby(["family", "size"], sort=False).agg(
        n=("u_star", "size"),
        myopic_loses=("score_myopic", lambda scores: 1 - scores.mean()),
        no_probes_loses=("score_plan", lambda scores: 1 - scores.mean()),
        reach=("score_reach", "mean"),
    )
    clears = frame.groupby(["family", "size"], sort=False)["clears_margin"].mean().rename("clears_margin")
    return losses.join(clears).reset_index()


def instance_frame(
    families: Sequence[str],
    sizes: Sequence[str],
    n: int,
    *,
    budget: str = "tight",
    seed: int = 0,
    workers: int = 1,
) -> pd.DataFrame:
    """Return one row an instance: u_star, u_zero, u_reach and what the scripted references earn in form A.

    Scores (columns score_*) are unclipped; instances whose margin fails keep null scores and clears_margin False.
    """
    jobs = [(name, size, index) for name in families for size in sizes for index in range(n)]
    for name, size, _ in jobs:
        find_family(name).sample(stream(seed, "check", name, size), size)
    runner = Parallel(n_jobs=workers, return_as="generator")
    rows = runner(delayed(_instance)(name, size, index, budget, seed) for name, size, index in jobs)
    return pd.DataFrame(list(tqdm(rows, total=len(jobs), desc="instances", disable=None)))


def plan_curves(families: Sequence[str], size: str = "small", seed: int = 0) -> pd.DataFrame:
    """Return the running gain of the optimal, default and myopic plan of one instance a family (figures.atlas).

    One row a decision with columns family, policy, step (0 is the start), gain (running total, with what the dynamics
    force at the end), u_star, u_zero, title. Among the first 20 draws the first that clears the margin is shown.
    """
    rows = []
    for name in families:
        family = find_family(name)
        for index in range(20):
            theta = family.sample(stream(seed, "curves", name, size, index), size)
            solution = family.solve(theta)
            if solution.span >= solution.required_margin:
                break
        for label, policy in (
            ("optimal", "optimal"),
            ("default", "default"),
            ("myopic, all known", "myopic"),
        ):
            gains = running_gains(POLICIES[policy], family, theta)
            rows += [
                {
                    "family": name,
                    "policy": label,
                    "step": step,
                    "gain": gain,
                    "u_star": solution.u_star,
                    "u_zero": solution.u_zero,
                    "title": family.title.split(":")[0],
                }
                for step, gain in enumerate(gains)
            ]
    return pd.DataFrame(rows)


def running_gains(policy: Policy, family: Family, theta: Theta) -> list[int]:
    """Return the running total of a policy that knows all of theta: 0, then after each decision, then the end."""
    public, hidden, state = family.expected(theta, {}), family.hidden(theta), family.start(theta)
    rng = stream(0, "curves", policy.name)
    totals = [0]
    while family.legal(theta, state):
        choice = policy.decide(Position(family, public, state, hidden, 10**6, 10**6), rng)
        if not isinstance(choice, Action):
            break
        state, gain, _ = family.play(theta, state, choice)
        totals.append(totals[-1] + gain)
    return [*totals, totals[-1] + family.abandon(theta, state)]


def _instance(name: str, size: str, index: int, budget: str, seed: int) -> dict[str, object]:
    family = find_family(name)
    theta = family.sample(stream(seed, "atlas", name, size, index), size)
    solution = family.solve(theta)
    clears = solution.span >= solution.required_margin
    earned = {policy: simulate(POLICIES[policy], family, theta, budget, index) for policy in REFERENCES}
    earned["reach"] = u_reach(family, theta, size, budget)
    scores = {
        f"score_{key}": (u - solution.u_zero) / solution.span if clears else None for key, u in earned.items()
    }
    return {
        "family": name,
        "size": size,
        "index": index,
        "budget": budget,
        "u_star": solution.u_star,
        "u_zero": solution.u_zero,
        "span": solution.span,
        "clears_margin": clears,
        "decisions": len(solution.plan),
        "probes": len(family.probe_keys(theta)),
        **{f"u_{key}": u for key, u in earned.items()},
        **scores,
    }
