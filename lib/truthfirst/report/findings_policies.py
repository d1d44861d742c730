"""Findings on play and training: forms, losses, probes; gains, gaps, transfer, credit, divergence.

See findings.py for the rules. Differences are paired on instances and resampled within families and seeds.
"""

from __future__ import annotations

import pandas as pd

from ..sources import published
from ..study.stats import Estimate, bootstrap_mean, paired_difference
from ..study.tables import by_instance, gap_table
from ..types import Form
from .findings import Finding
from .stored import Frames, frame_of
from .words import (
    ELSEWHERE,
    INTERVAL,
    compared,
    count,
    interval,
    listed,
    moves,
    number,
    plural,
    share,
    signed,
    span,
)

MAIN, CREDIT = "learning", "credit"
SCALE = ("optimal", "default")  # the two policies that mark the scale
WRITTEN, AGENTIC = str(Form.WRITTEN), str(Form.AGENTIC)


# --- play -------------------------------------------------------------------------------------------------
def forms(frames: Frames) -> str:
    rows = frame_of(frames, "forms")
    scripted = rows[rows["messages"].isna()]
    said = [_by_form(scripted, name) for name in dict.fromkeys(scripted["policy"]) if name not in SCALE]
    reach = scripted.drop_duplicates("environment")
    return (
        f"On the same {plural(scripted['environment'].nunique(), 'instance')}, from {WRITTEN} to {AGENTIC}: "
        f"{'; '.join(said)}. The reachable reference is {number(reach['reach'].mean())}."
    )


def _by_form(rows: pd.DataFrame, policy: str) -> str:
    mine = rows[rows["policy"] == policy]
    mean = mine.groupby("form")["reward"].mean()
    moved = paired_difference(mine, "form", WRITTEN, AGENTIC, strata="family")
    ends = f"{number(mean[WRITTEN])} to {number(mean[AGENTIC])}"
    return f"{policy} {moves(moved)}, {ends} ({signed(moved)})"


def losses(frames: Frames) -> str:
    rows = frame_of(frames, "losses")
    acted = rows[(rows["form"] == AGENTIC) & rows["information"].notna()]
    said = []
    for policy, mine in acted.groupby("policy", sort=False):
        if policy in SCALE:
            continue
        parts = {name: float(mine[name].mean()) for name in ("information", "planning", "execution")}
        worst = max(parts, key=lambda name: parts[name])
        said.append(f"{policy} to {worst} ({number(parts[worst])} of {number(sum(parts.values()))})")
    gap = (acted[["unclipped", "information", "planning", "execution"]].sum(axis=1) - 1).abs().max()
    exact = "exactly" if gap < FINE else f"only up to {gap:.2g}"
    return (
        f"Score and losses of every agentic episode sum to one {exact} (n = {count(len(acted))}). The largest part of "
        f"what is lost goes, for {listed(said)}."
    )


FINE = 10**-9


def probes(frames: Frames) -> str:
    rows = frame_of(frames, "probes")
    said = []
    for budget, mine in rows.groupby("budget", sort=False):
        least, most = int(mine["k"].min()), int(mine["k"].max())
        ends = mine[mine["k"].isin([least, most])]
        moved = paired_difference(ends, "k", least, most, strata="family")
        means = ends.groupby("k")["reward"].mean()
        said.append(
            f"under the {budget} budget the planner {moves(moved)} from {number(means[least])} with {count(least)} "
            f"probes to {number(means[most])} with up to {count(most)} ({signed(moved)}, n = {count(moved.n)})"
        )
    return f"Looking first: {'; '.join(said)}."


def models(frames: Frames) -> str | None:
    rows = frame_of(frames, "models")
    spoken = rows[rows["messages"].notna()]
    if spoken.empty:
        return None
    said = []
    for (policy, form), mine in spoken.groupby(["policy", "form"], sort=False):
        values = by_instance(mine, ["policy"])
        found = bootstrap_mean(values["reward"].to_numpy(float), values["family"].tolist())
        said.append(f"{policy} {interval(found)} in {form} (n = {count(found.n)})")
    return f"Language models on the same instances: {listed(said)}."


# --- training ---------------------------------------------------------------------------------------------
def main_study(frames: Frames) -> pd.DataFrame:
    """Return the held-out episodes of the main study's first arm; empty where it is not stored."""
    scores = frame_of(frames, "training_scores")
    mine = scores[scores["study"] == MAIN]
    return mine[mine["arm"] == mine["arm"].iloc[0]] if len(mine) else mine


def gain(rows: pd.DataFrame, form: str) -> tuple[float, float, Estimate]:
    """Return mean before, mean after and the paired difference in one form, resampled within seed and family."""
    cells = rows[rows["form"] == form].assign(
        stratum=lambda frame: frame["seed"].astype(str) + "/" + frame["family"]
    )
    means = cells.groupby("policy")["reward"].mean()
    pair = ("environment", "seed")
    found = paired_difference(cells, "policy", "base", "trained", pair=pair, strata="stratum")
    return float(means["base"]), float(means["trained"]), found


def gains(frames: Frames) -> str | None:
    rows = main_study(frames)
    if rows.empty:
        return None
    told = published("vhd_play", "scores")
    said = []
    for form in map(str, Form):
        before, after, found = gain(rows, form)
        base, trained = told[form]
        said.append(
            f"{form} {moves(found)}, {number(before)} to {number(after)} ({signed(found)}, n = {count(found.n)}; "
            f"source {number(base)} to {number(trained)})"
        )
    return (
        f"Held-out score of the tiny policy before and after training ({plural(rows['seed'].nunique(), 'seed')}, "
        f"{plural(rows['family'].nunique(), 'family', 'families')}): {listed(said)}; n counts pairs of seed and "
        f"instance. The source is VHD-Play's large model: {ELSEWHERE}."
    )


def gaps_closed(frames: Frames) -> str | None:
    rows = main_study(frames)
    if rows.empty:
        return None
    told = published("vhd_play", "closed")
    table = gap_table(rows, "base", "trained")
    seeds = {seed: gap_table(mine, "base", "trained").set_index("gap") for seed, mine in rows.groupby("seed")}
    said = []
    for row in table.to_dict("records"):
        each = [float(found.loc[row["gap"], "closed"]) for found in seeds.values()]
        before = Estimate(row["before"], row["before_low"], row["before_high"], row["n"])
        after = Estimate(row["after"], row["after_low"], row["after_high"], row["n"])
        theirs = told[row["gap"]]
        said.append(
            f"of the {row['gap']} gap, {interval(before)} before and {interval(after)} after, training closes "
            f"{share(row['closed'])} (by seed {span(each)}), {compared(row['closed'], theirs)} the source's "
            f"{share(theirs)}"
        )
    return f"Between knowing and acting, {'; '.join(said)} ({INTERVAL}, n = {count(table['n'].iloc[0])}; {ELSEWHERE})."


def exploration(frames: Frames) -> str | None:
    rows = frame_of(frames, "training")
    mine = rows[rows["study"] == MAIN]
    if mine.empty:
        return None
    said = []
    for column, words in (
        ("entropy", "entropy of a sampled token, in nats,"),
        ("frac_reward_zero_std", "share of groups in which all episodes score alike"),
    ):
        by_seed = mine.sort_values("step").groupby("seed")[column]
        first, last = by_seed.apply(_head), by_seed.apply(_tail)
        found = bootstrap_mean((last - first).to_numpy(float))
        said.append(f"the {words} {moves(found)} from {number(first.mean())} to {number(last.mean())}")
    samples = mine.groupby("seed")["samples"].max()
    return (
        f"Over {count(samples.mean())} episodes a seed ({plural(len(samples), 'seed')}), {listed(said)} (means of the "
        f"first and the last tenth of the steps; the resampled unit is the seed)."
    )


def _head(values: pd.Series) -> float:
    return float(values.dropna().iloc[: max(1, len(values) // 10)].mean())


def _tail(values: pd.Series) -> float:
    return float(values.dropna().iloc[-max(1, len(values) // 10) :].mean())


def transfer(frames: Frames) -> str | None:
    rows = frame_of(frames, "training_transfer")
    mine = rows[rows["study"] == MAIN]
    if mine.empty:
        return None
    told = published("vhd_play", "gain")
    said = []
    for role, cells in mine.groupby("role", sort=False):
        before, after, found = gain(cells, AGENTIC)
        families = plural(cells["family"].nunique(), "family", "families")
        values = told.get(role, ())
        theirs = f"; source {', '.join(f'{value:+.2f}' for value in values)}" if values else ""
        said.append(
            f"{role} ({families}) {moves(found)}, {number(before)} to {number(after)} ({signed(found)}, "
            f"n = {count(found.n)}{theirs})"
        )
    return (
        f"Agentic score in families that were not trained on: {'; '.join(said)}. The source is {ELSEWHERE}."
    )


def credit(frames: Frames) -> str | None:
    rows = frame_of(frames, "training_scores")
    mine = rows[rows["study"] == CREDIT]
    if mine.empty:
        return None
    said = []
    for (size, arm), cells in mine.groupby(["size", "arm"], sort=False):
        form = str(cells["trained_forms"].iloc[0])[0]
        before, after, found = gain(cells, form)
        said.append(
            f"{arm} at {size} {moves(found)}, {number(before)} to {number(after)} ({signed(found)}, "
            f"{plural(cells['seed'].nunique(), 'seed')}, n = {count(found.n)})"
        )
    return f"Held-out score by the way of giving credit: {'; '.join(said)}."


def divergence(frames: Frames) -> str | None:
    rows = frame_of(frames, "training_divergence")
    rows = rows[rows["study"] == MAIN]
    if rows.empty:
        return None
    theirs = published("vhd_play", "divergence")
    seeds = [_weighted(mine) for _, mine in rows.groupby("seed")]
    first = _weighted(rows[rows["turn"] == rows["turn"].min()])
    later = _weighted(rows[rows["turn"] > rows["turn"].min()])
    mean = _weighted(rows)
    return (
        f"The trained policy lies {mean:.3f} nats a token from its base (by seed {span(seeds, 3)}; "
        f"{count(rows['tokens'].sum())} tokens), {compared(mean, theirs)} the source's {theirs:.3f} "
        f"({ELSEWHERE}); {first:.3f} in the first message of an episode and {later:.3f} in later ones."
    )


def _weighted(rows: pd.DataFrame) -> float:
    return float((rows["kl"] * rows["tokens"]).sum() / rows["tokens"].sum())


GRID = "make study GRID=data/grids/training.yaml"
FINDINGS = (
    Finding("forms", "comparisons", "Three forms, one truth", ("forms",), "make study", forms),
    Finding("losses", "comparisons", "Where a score is lost", ("losses",), "make study", losses),
    Finding("probes", "comparisons", "What a look is worth", ("probes",), "make study", probes),
    Finding(
        "models",
        "comparisons",
        "Language models",
        ("models",),
        "python -m truthfirst.runs NOTEBOOK -p model=NAME, with the comparisons notebook",
        models,
    ),
    Finding("gains", "training", "What training gains", ("training_scores",), GRID, gains),
    Finding("gaps_closed", "training", "Gaps closed", ("training_scores",), GRID, gaps_closed),
    Finding("exploration", "training", "Where learning stops", ("training",), GRID, exploration),
    Finding("transfer", "transfer", "Other families", ("training_transfer",), GRID, transfer),
    Finding(
        "credit",
        "training",
        "Which credit",
        ("training_scores",),
        "make study GRID=data/grids/credit.yaml",
        credit,
    ),
    Finding("divergence", "training", "How far the policy moved", ("training_divergence",), GRID, divergence),
)
