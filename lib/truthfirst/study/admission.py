"""Admission as a study: how many candidates pass, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from ..solvefirst.admit.gates import admit
from ..solvefirst.candidates import Recipe, build_candidate


def recipes(
    families: Sequence[str],
    sizes: Sequence[str],
    n: int,
    *,
    budgets: Sequence[str] = ("ample", "tight"),
    seed: int = 0,
    split: str = "train",
    corpus: str | None = None,
) -> list[Recipe]:
    """Return n recipes for every family, size and budget."""
    return [
        Recipe(family, size, seed=seed, index=index, split=split, budget=budget, corpus=corpus)
        for family in families
        for size in sizes
        for budget in budgets
        for index in range(n)
    ]


def admission_frame(candidates: Sequence[Recipe], *, workers: int = 1) -> pd.DataFrame:
    """Return one row a candidate: its recipe, whether it was admitted, and the gate and evidence if not."""
    runner = Parallel(n_jobs=workers, return_as="generator")
    rows = runner(delayed(_admission)(recipe) for recipe in candidates)
    return pd.DataFrame(list(tqdm(rows, total=len(candidates), desc="candidates", disable=None)))


def _admission(recipe: Recipe) -> dict[str, object]:
    environment = build_candidate(recipe)
    verdict = admit(environment)
    return {
        **asdict(recipe),
        "environment": environment.id if verdict.admitted else None,
        "topic": environment.spec.domain,
        "admitted": verdict.admitted,
        "gate": verdict.gate,
        "evidence": verdict.evidence,
        "turn_budget": environment.turn_budget,
    }


def admitted_recipes(frame: pd.DataFrame) -> list[Recipe]:
    """Return the recipes of the admitted rows of an admission frame."""
    columns = frame.loc[frame["admitted"], [f.name for f in fields(Recipe)]].astype(object)
    rows = columns.where(columns.notna(), None).to_dict("records")
    return [Recipe(**{str(name): value for name, value in row.items()}) for row in rows]
