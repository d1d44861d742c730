"""Summary tables of the report: aggregates with n, each a function from stored frames to a tidy frame.

Raw frames are not printed. TABLES lists them; to add one, write a function and add its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..solvefirst.decontaminate import contamination
from ..study import ablations as ablation_study
from ..study import scaling as scaling_study
from ..study.stats import Estimate, bootstrap_mean
from ..study.store import beside_the_source, by_manager
from ..study.tables import form_table, gap_table
from ..types import Form
from .findings_policies import MAIN, gain, main_study
from .findings_studies import ABLATIONS, SCALING
from .findings_worlds import gain_over_seeds, share_over_seeds
from .stored import Frames, frame_of
from .words import interval, signed


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary table: its section, title, the frames it needs, and what computes it."""

    section: str
    title: str
    needs: tuple[str, ...]
    build: Callable[[Frames], pd.DataFrame]


def certification(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "certify")
    table = rows.groupby("family", sort=False).agg(
        sizes=("size", "nunique"),
        n=("verdict", "size"),
        proven=("verdict", lambda verdicts: int((verdicts == "proven").sum())),
        wide_enough=("clears_margin", "mean"),
        solve_ms=("solve_seconds", lambda seconds: 1000 * seconds.median()),
        proof_ms=("proof_seconds", lambda seconds: 1000 * seconds.median()),
    )
    return table.reset_index()


def references(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "references")
    rows = rows[rows["clears_margin"].astype(bool)]
    return _means(
        rows, "family", {"score_reach": "reachable", "score_plan": "no probe", "score_myopic": "myopic"}
    )


def _means(rows: pd.DataFrame, by: str, columns: dict[str, str]) -> pd.DataFrame:
    out = []
    for key, mine in rows.groupby(by, sort=False):
        row: dict[str, object] = {by: key, "n": len(mine)}
        for column, title in columns.items():
            found = bootstrap_mean(mine[column].dropna().to_numpy(float))
            row[title] = interval(found)
        out.append(row)
    return pd.DataFrame(out)


def solver_peers(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "solver_peers")
    table = rows.groupby("solver", sort=False).agg(
        families=("family", "nunique"),
        n=("verdict", "size"),
        solved=("verdict", lambda verdicts: int((verdicts == "optimal").sum())),
        median_ms=("seconds", lambda seconds: 1000 * seconds.median()),
        slowest_ms=("seconds", lambda seconds: 1000 * seconds.max()),
    )
    return table.reset_index()


def admission(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "admission").astype({"admitted": bool})
    keys = ["family", "size"]
    table = rows.groupby(keys, sort=False).agg(candidates=("admitted", "size"), admitted=("admitted", "sum"))
    gates = rows[~rows["admitted"]].groupby(keys)["gate"].agg(lambda names: ", ".join(sorted(set(names))))
    return table.join(gates.rename("rejected by")).reset_index()


def mutants(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "kill_table")
    table = pd.crosstab(rows["family"], rows["verdict"]).reindex(list(dict.fromkeys(rows["family"])))
    table.insert(0, "n", table.sum(axis=1))
    return table.reset_index().rename_axis(columns=None)


def first_objections(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "kill_table")
    killed = rows[rows["verdict"] == "killed"]
    table = killed.groupby("gate").agg(
        kills=("fault", "size"), faults=("fault", "nunique"), families=("family", "nunique")
    )
    return table.sort_values("kills", ascending=False, kind="stable").reset_index()


def corpus_yield(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "corpus_yield")
    kept = rows[rows["dimension"].isin(["setter", "size", "budget", "split"])]
    return kept.rename(columns={"value": "which"})[
        ["dimension", "which", "candidates", "admitted", "yield", "low", "high"]
    ]


def decontamination(frames: Frames) -> pd.DataFrame:
    return contamination(frame_of(frames, "decontamination"))


def setters(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "setters")
    kept = rows[rows["measure"] == "yield"]
    return kept.rename(columns={"count": "admitted", "value": "yield"})[
        ["setter", "n", "admitted", "yield", "low", "high"]
    ]


def forms(frames: Frames) -> pd.DataFrame:
    table = form_table(frame_of(frames, "forms"))
    score = [
        interval(Estimate(row["mean"], row["low"], row["high"], row["n"])) for row in table.to_dict("records")
    ]
    return table.assign(score=score)[["policy", "form", "n", "episodes", "score"]]


def losses(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "losses")
    acted = rows[rows["form"] == str(Form.AGENTIC)]
    table = acted.groupby(["budget", "policy"], sort=False).agg(
        n=("unclipped", "size"),
        score=("unclipped", "mean"),
        information=("information", "mean"),
        planning=("planning", "mean"),
        execution=("execution", "mean"),
    )
    return table.reset_index()


def gains(frames: Frames) -> pd.DataFrame:
    rows = main_study(frames)
    return pd.DataFrame([_gain(rows, form, {"form": form}) for form in map(str, Form)])


def _gain(rows: pd.DataFrame, form: str, labels: dict[str, object]) -> dict[str, object]:
    before, after, found = gain(rows, form)
    return labels | {
        "n": found.n,
        "before": before,
        "after": after,
        "gain": signed(found),
    }


def gaps(frames: Frames) -> pd.DataFrame:
    rows = main_study(frames)
    parts = {str(seed): mine for seed, mine in rows.groupby("seed")} | {"all": rows}
    out = []
    for seed, mine in parts.items():
        for row in gap_table(mine, "base", "trained").to_dict("records"):
            before = Estimate(row["before"], row["before_low"], row["before_high"], row["n"])
            after = Estimate(row["after"], row["after_low"], row["after_high"], row["n"])
            out.append(
                {
                    "gap": row["gap"],
                    "seed": seed,
                    "n": row["n"],
                    "before": interval(before),
                    "after": interval(after),
                    "closed": row["closed"],
                }
            )
    return pd.DataFrame(out).sort_values(["gap", "seed"], kind="stable")


def transfer(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "training_transfer")
    rows = rows[rows["study"] == MAIN]
    return pd.DataFrame(
        [
            _gain(mine, str(Form.AGENTIC), {"role": role, "family": family})
            for (role, family), mine in rows.groupby(["role", "family"], sort=False)
        ]
    )


def divergence(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "training_divergence")
    rows = rows[rows["study"] == MAIN]
    rows = rows.assign(nats=rows["kl"] * rows["tokens"])
    table = rows.groupby(["family", "form"], sort=False).agg(
        seeds=("seed", "nunique"),
        messages=("turn", "nunique"),
        tokens=("tokens", "sum"),
        nats=("nats", "sum"),
    )
    table["nats_a_token"] = table["nats"] / table["tokens"]
    return table.drop(columns="nats").reset_index()


def generation(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "generation")
    keys = ["engine", "turns"]
    columns = ["episodes", "sampled_tokens", "cpu_seconds", "seconds"]
    return rows.groupby(keys, sort=False)[columns].median().reset_index()


def training_speed(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "training_speed")
    keys = ["turns", "part", "trainer"]
    table = rows.groupby(keys, sort=False).agg(
        n=("cpu_seconds", "size"), cpu_seconds=("cpu_seconds", "median"), seconds=("seconds", "median")
    )
    return table.reset_index().sort_values(keys, kind="stable")


def worlds(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "worlds")
    rows = rows.assign(passed=rows["failed"].map(json.loads).map(len) == 0)
    table = rows.groupby(["generator", "tier"], sort=False).agg(
        n=("seed", "size"),
        passed=("passed", "sum"),
        files=("files", "median"),
        bytes=("bytes", "median"),
        defects=("defects", "median"),
        make_s=("make_seconds", "median"),
        grade_s=("grade_seconds", "median"),
        gates_s=("gates_seconds", "median"),
    )
    return table.reset_index()


def scaling(frames: Frames) -> pd.DataFrame:
    rows = _study(frames, SCALING)
    if rows.empty:
        return rows
    table = scaling_study.trained_by_size(rows, str(Form.AGENTIC))
    table["growing"] = table["growing"].replace("", "-")
    return _with_interval(table.rename(columns={"growing": "through"}), "gain")


def curriculum(frames: Frames) -> pd.DataFrame:
    rows = _study(frames, SCALING)
    if rows.empty:
        return rows
    return _with_interval(scaling_study.curriculum_against_fixed(rows, str(Form.AGENTIC)), "difference")


def ablations(frames: Frames) -> pd.DataFrame:
    rows = _study(frames, ABLATIONS)
    return rows if rows.empty else _with_interval(ablation_study.table(rows), "difference")


def _study(frames: Frames, name: str) -> pd.DataFrame:
    rows = frame_of(frames, "training_scores")
    return rows[rows["study"] == name]


def _with_interval(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table whose difference and its ends stand in one column of text."""
    told = [
        "-" if pd.isna(row[column]) else signed(Estimate(row[column], *_ends(row), int(row["n"])))
        for row in table.to_dict("records")
    ]
    return table.assign(**{column: told}).drop(columns=["low", "high"])


def _ends(row: Mapping[Any, Any]) -> tuple[float | None, float | None]:
    low, high = (None if pd.isna(row[end]) else float(row[end]) for end in ("low", "high"))
    return low, high


def store(frames: Frames) -> pd.DataFrame:
    table = by_manager(frame_of(frames, "store"))
    reward = [interval(Estimate(row["reward"], *_ends(row), row["n"])) for row in table.to_dict("records")]
    return table.assign(reward=reward).drop(columns=["low", "high"])


def store_beside_the_source(frames: Frames) -> pd.DataFrame:
    return beside_the_source(frame_of(frames, "store"))


def external(frames: Frames) -> pd.DataFrame:
    rows = frame_of(frames, "external")
    score = [
        "-" if pd.isna(row["score"]) else interval(Estimate(row["score"], *_ends(row), row["cases"]))
        for row in rows.to_dict("records")
    ]
    return rows.assign(score=score)[
        ["benchmark", "group", "category", "model", "status", "cases", "of", "score"]
    ]


def worlds_training(frames: Frames) -> pd.DataFrame:
    scores, steps = frame_of(frames, "worlds_scores"), frame_of(frames, "worlds_training")
    out = []
    for arm, mine in scores.astype({"passed": float}).groupby("arm", sort=False):
        before, after, found = gain_over_seeds(mine, "phi")
        failed, passed, more = gain_over_seeds(mine, "passed")
        own = steps[steps["arm"] == arm]
        row: dict[str, object] = {"arm": arm, "seeds": found.n, "phi_before": before, "phi_after": after}
        row |= {"phi_gain": signed(found), "pass_before": failed, "pass_after": passed}
        row |= {"pass_gain": signed(more), "starved": interval(share_over_seeds(own, "frac_reward_zero_std"))}
        out.append(row | {"starved_by_verdict": interval(share_over_seeds(own, "same/pass"))})
    return pd.DataFrame(out)


TABLES: Sequence[Summary] = (
    Summary("mechanisms", "Proofs by family", ("certify",), certification),
    Summary("mechanisms", "Scripted references by family, tight budget", ("references",), references),
    Summary("mechanisms", "Solvers on the same instances", ("solver_peers",), solver_peers),
    Summary("environments", "Admission of fresh candidates", ("admission",), admission),
    Summary("environments", "Planted faults by family", ("kill_table",), mutants),
    Summary("environments", "Which gate is the first to object", ("kill_table",), first_objections),
    Summary("environments", "Yield of the stored corpus", ("corpus_yield",), corpus_yield),
    Summary("environments", "Shared with evaluation texts", ("decontamination",), decontamination),
    Summary("environments", "Yield by setter", ("setters",), setters),
    Summary("comparisons", "Score by policy and form", ("forms",), forms),
    Summary("comparisons", "Score and losses of agentic episodes", ("losses",), losses),
    Summary("training", "Held-out score before and after training", ("training_scores",), gains),
    Summary("training", "Gaps between knowing and acting", ("training_scores",), gaps),
    Summary("transfer", "Agentic score in other families", ("training_transfer",), transfer),
    Summary("training", "Divergence from the base", ("training_divergence",), divergence),
    Summary("training", "Cost of generation", ("generation",), generation),
    Summary("training", "Cost of a training step", ("training_speed",), training_speed),
    Summary("scaling", "Agentic score by size of training", ("training_scores",), scaling),
    Summary("scaling", "Curriculum less fixed size, equal samples", ("training_scores",), curriculum),
    Summary("ablations", "Variants less the reference", ("training_scores",), ablations),
    Summary("store", "Managers of the store, net worth at the end", ("store",), store),
    Summary("store", "Balance beside the source's", ("store",), store_beside_the_source),
    Summary("worlds", "Worlds by generator and tier", ("worlds",), worlds),
    Summary("worlds", "Training on worlds by arm", ("worlds_scores", "worlds_training"), worlds_training),
    Summary("external", "External benchmarks by category", ("external",), external),
)
