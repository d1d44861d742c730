"""Comparison: policies on the same instances in the forms F, I and A, as one tidy frame.

One row an episode. A comparison that is interrupted resumes: finished episodes are read back from their traces, which
are kept as JSONL beside the frame and can be scored again without any policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from ..episode import load_traces, save_trace
from ..records import RecordError
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.references import play, policy, u_reach
from ..solvefirst.score import regret_ledger, score_trace
from ..types import Form, Trace


def episode_row(trace: Trace, *, losses: bool = True) -> dict[str, object]:
    """Return the tidy row of one trace; `losses` adds the loss split (null where there is no plan to split)."""
    score = score_trace(trace)
    header = trace.header
    row: dict[str, object] = {
        "environment": header["environment"],
        "family": header["family"],
        "size": header["size"],
        "budget": header["budget"],
        "policy": header["policy"],
        "form": header["form"],
        "seed": header.get("seed", 0),
        "reward": score.reward,
        **score.detail,
    }
    possible = score.detail["probes_possible"]
    row["coverage"] = score.detail["probes_new"] / possible if possible and header["form"] == "A" else None
    split: dict[str, float | None] = dict.fromkeys(("information", "planning", "execution"))
    if losses and score.detail["u"] is not None:
        shares = regret_ledger(trace, credit=False).losses()
        split = {name: float(shares[name]) for name in split}
    return row | split


def compare(
    policies: Sequence[str],
    recipes: Sequence[Recipe],
    forms: Sequence[str] = tuple(Form),
    n: int = 1,
    *,
    traces: Path | None = None,
    workers: int = 1,
    losses: bool = True,
) -> pd.DataFrame:
    """Play every scripted policy on every environment in every form, `n` episodes each.

    traces    JSONL file that keeps every episode; episodes found there are not played again
    workers   joblib processes

    Returns one row an episode (see data/README.md), with u_reach of each instance and budget.
    """
    for name in policies:
        policy(name)
    asked = [Form.parse(form) for form in forms]
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    done = {_address(trace): trace for trace in _stored(traces)}
    jobs = [
        (name, recipe, form, seed)
        for recipe in recipes
        for name in policies
        for form in asked
        for seed in range(n)
        if (name, recipe, str(form), seed) not in done
    ]
    batches: dict[Recipe, list[tuple[str, Form, int]]] = {}
    for name, recipe, form, seed in jobs:
        batches.setdefault(recipe, []).append((name, form, seed))
    runner = Parallel(n_jobs=workers, return_as="generator")
    played = runner(delayed(_play_batch)(recipe, batch) for recipe, batch in batches.items())
    for batch in tqdm(played, total=len(batches), desc="environments", disable=None):
        for trace in batch:
            done[_address(trace)] = trace
            if traces is not None:
                save_trace(traces, trace)
    wanted = [
        done[(name, r, str(f), s)] for r in recipes for name in policies for f in forms for s in range(n)
    ]
    rows = Parallel(n_jobs=workers)(delayed(episode_row)(trace, losses=losses) for trace in wanted)
    frame = pd.DataFrame(rows)
    reach = {recipe: _reach(recipe) for recipe in recipes}
    frame["u_reach"] = [reach[r] for r in recipes for _ in policies for _ in asked for _ in range(n)]
    frame["reach"] = ((frame["u_reach"] - frame["u_zero"]) / (frame["u_star"] - frame["u_zero"])).clip(0, 1)
    return frame


def _play_batch(recipe: Recipe, batch: Iterable[tuple[str, Form, int]]) -> list[Trace]:
    environment = build_candidate(recipe)
    traces = []
    for name, form, seed in batch:
        trace = play(policy(name), environment, form, seed)
        traces.append(Trace(trace.header | {"seed": seed}, trace.turns, trace.stop, trace.answer))
    return traces


def _address(trace: Trace) -> tuple[str, Recipe, str, int]:
    header = trace.header
    return header["policy"], Recipe(**header["recipe"]), header["form"], header.get("seed", 0)


def _stored(path: Path | None) -> list[Trace]:
    if path is None or not path.exists():
        return []
    try:
        return load_traces(path)
    except RecordError as error:
        raise RecordError(f"{error}; remove the damaged line or the file, and compare again") from error


def _reach(recipe: Recipe) -> int:
    environment = build_candidate(recipe)
    return u_reach(environment.family, environment.theta, recipe.size, recipe.budget)


def recipe_columns(recipe: Recipe) -> dict[str, object]:
    """Return a recipe as columns of a tidy frame."""
    return asdict(recipe)
