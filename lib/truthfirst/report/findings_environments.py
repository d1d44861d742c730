"""Findings on mechanisms and environments: proofs, solvers, admission, planted faults, corpus, contamination, setters.

See findings.py for the rules.
"""

from __future__ import annotations

import pandas as pd

from ..solvefirst.build_report import entropy
from ..solvefirst.decontaminate import LONG, PLANTED, contamination
from ..sources import published
from ..study.stats import bootstrap_mean
from .findings import Finding
from .stored import Frames, frame_of
from .words import ELSEWHERE, INTERVAL, count, interval, listed, plural, share, small, span


# --- mechanisms -------------------------------------------------------------------------------------------
def certification(frames: Frames) -> str:
    proofs = frame_of(frames, "certify")
    proven = proofs["verdict"] == "proven"
    others = proofs.loc[~proven, "verdict"].value_counts()
    rest = listed([f"{count(n)} {verdict}" for verdict, n in others.items()]) if len(others) else "none"
    return (
        f"{count(proven.sum())} of {plural(len(proofs), 'instance')} "
        f"({plural(proofs['family'].nunique(), 'family', 'families')}, {plural(proofs['size'].nunique(), 'size')}) "
        f"have an optimum that a method independent of the solver proves; of the others: {rest}. "
        f"{share(proofs['clears_margin'].mean())} of the draws leave enough to win for a reward scale."
    )


def price_of_not_knowing(frames: Frames) -> str:
    rows = frame_of(frames, "references")
    rows = rows[rows["clears_margin"].astype(bool)]
    strata = [f"{family}/{size}" for family, size in zip(rows["family"], rows["size"], strict=True)]
    said = []
    for column, words in (
        ("score_reach", "The best scripted policy that sees what an agent may see scores"),
        ("score_plan", "planning without a single probe"),
        ("score_myopic", "a policy that looks one step ahead"),
    ):
        found = bootstrap_mean(rows[column].dropna().to_numpy(float), _kept(strata, rows[column]))
        said.append(f"{words} {interval(found)}")
    return (
        f"{listed(said)}, on the scale where the default rule is zero and the optimum one (means of unclipped scores "
        f"and {INTERVAL}; n = {count(len(rows))}, {plural(rows['family'].nunique(), 'family', 'families')})."
    )


def _kept(strata: list[str], values: pd.Series) -> list[str]:
    return [stratum for stratum, there in zip(strata, values.notna(), strict=True) if there]


def solver_speed(frames: Frames) -> str:
    rows = frame_of(frames, "solver_peers")
    keys = ["family", "index"]
    ours = rows[(rows["solver"] == "ours") & (rows["verdict"] == "optimal")].set_index(keys)["seconds"]
    said = []
    for solver, theirs in rows[rows["solver"] != "ours"].groupby("solver", sort=False):
        solved = theirs[theirs["verdict"] == "optimal"].set_index(keys)["seconds"]
        ratio = (solved / ours).dropna()
        late = int((theirs["verdict"] != "optimal").sum())
        if len(ratio):
            said.append(
                f"{solver} takes {small(float(ratio.median()))} times as long at the median "
                f"(n = {count(len(ratio))}; {count(late)} stopped at the time limit)"
            )
    return f"Against each family's own solver, on the same instances of its largest size: {listed(said)}."


# --- environments -----------------------------------------------------------------------------------------
def mutants(frames: Frames) -> str:
    rows = frame_of(frames, "kill_table")
    counts = rows["verdict"].value_counts()
    killed, survived = int(counts.get("killed", 0)), int(counts.get("survived", 0))
    effective = killed + survived
    gates = rows.loc[rows["verdict"] == "killed", "gate"].nunique()
    return (
        f"Of {plural(len(rows), 'mutant')} ({plural(rows['fault'].nunique(), 'planted fault')}, "
        f"{plural(rows['family'].nunique(), 'family', 'families')}), {count(effective)} change what is seen or earned; "
        f"the gates kill {count(killed)} of these ({share(killed / effective)}) and {count(survived)} survive. "
        f"{count(counts.get('equivalent', 0))} are shown to change nothing and "
        f"{count(counts.get('not applicable', 0))} cannot apply. {plural(gates, 'gate')} had a first kill."
    )


def admission(frames: Frames) -> str:
    rows = frame_of(frames, "admission")
    gates = rows.loc[~rows["admitted"].astype(bool), "gate"].value_counts()
    reasons = listed([f"{count(n)} at the gate {gate}" for gate, n in gates.items()])
    return (
        f"{count(rows['admitted'].sum())} of {plural(len(rows), 'fresh candidate')} are admitted "
        f"({share(rows['admitted'].mean())}); rejected: {reasons}."
    )


def corpus(frames: Frames) -> str:
    rows, costs = frame_of(frames, "corpus_yield"), frame_of(frames, "corpus_costs")
    told, tev = published("vhd_play"), published("tev_gym")
    setters = rows[rows["dimension"] == "setter"]
    admitted, candidates = int(setters["admitted"].sum()), int(setters["candidates"].sum())
    domains = rows.loc[rows["dimension"] == "domain", "value"].nunique()
    families = rows.loc[rows["dimension"] == "family", "value"].nunique()
    own = costs[costs["n"].notna() & (costs["measure"] == "seconds")]
    text = (
        f"The stored corpus holds {plural(admitted, 'environment')} out of {plural(candidates, 'candidate')} "
        f"({share(admitted / candidates)}) in {plural(domains, 'domain')} and "
        f"{plural(families, 'family', 'families')}; VHD-Play built {count(told['environments'])} in "
        f"{count(told['domains'])} domains ({ELSEWHERE})."
    )
    if len(own):
        text += (
            f" One takes {small(float(own['value'].iloc[0]))} CPU seconds on average; Tev-Gym states a median of "
            f"{small(tev['seconds_median'])} ({ELSEWHERE}, other machines and tasks)."
        )
    return text


def diversity(frames: Frames) -> str:
    rows = frame_of(frames, "corpus_diversity")
    topics = rows[rows["measure"] == "domain"]
    even = entropy(
        [name for name, n in zip(topics["name"], topics["value"], strict=True) for _ in range(int(n))]
    )
    near = rows.loc[rows["measure"] == "nearest", "value"]
    theirs = published("vhd_play", "domain_entropy")
    return (
        f"The normalised entropy of {count(len(topics))} topics is {even:.3f} (VHD-Play {theirs:.3f}, {ELSEWHERE}). "
        f"The similarity of a prompt to its nearest neighbour in the corpus (Jaccard) is {share(near.median())} "
        f"at the median and {share(near.max())} at most (n = {count(len(near))})."
    )


def decontamination(frames: Frames) -> str:
    rows = frame_of(frames, "decontamination")
    ours = rows[rows["set"] == "corpus"]
    found = contamination(rows).set_index("set")[f"found_{LONG}"].to_dict()
    controls = [
        f"{share(found[f'planted {length}'])} of runs of {length} tokens planted on purpose"
        for length in PLANTED
        if length >= LONG
    ]
    hits = round(found["corpus"] * len(ours))
    return (
        f"{count(hits)} of {plural(len(ours), 'prompt')} share {LONG} tokens in a row with the evaluation texts; the "
        f"highest similarity to one is {share(ours['jaccard'].max())} (Jaccard). The comparator finds "
        f"{listed(controls)}."
    )


def setters(frames: Frames) -> str:
    rows = frame_of(frames, "setters")
    said = []
    for row in rows[rows["measure"] == "yield"].to_dict("records"):
        ends = f"{share(row['low'])} to {share(row['high'])}"
        said.append(f"{row['setter']} {share(row['value'])} ({ends}; n = {count(row['n'])})")
    return f"Yield by whoever writes the words, with Wilson intervals: {listed(said)}."


def generation_speed(frames: Frames) -> str:
    rows = frame_of(frames, "generation")
    table = rows.pivot_table(index="turns", columns="engine", values="cpu_seconds", aggfunc="median")
    ratio = table["trl"] / table["engine"]
    said = listed(
        [
            f"{small(float(value))} at {plural(turns, 'turn')}"
            for turns, value in zip(ratio.index.astype(int), ratio, strict=True)
        ]
    )
    return (
        f"TRL's own generation loop takes {span(ratio, 1)} times the CPU time of ours for the same tokens: {said} "
        f"({plural(rows['episodes'].max(), 'episode')} a measurement)."
    )


CORPUS_COMMAND = "python -m truthfirst.solvefirst.build PLAN, then python -m truthfirst.study.corpus_figures"
FINDINGS = (
    Finding("certification", "mechanisms", "Optima are proven", ("certify",), "make certify", certification),
    Finding(
        "price_of_not_knowing",
        "mechanisms",
        "What is there to win",
        ("references",),
        "make study",
        price_of_not_knowing,
    ),
    Finding(
        "solver_speed",
        "mechanisms",
        "Solvers beside general ones",
        ("solver_peers",),
        "make bench NAME=solvers",
        solver_speed,
    ),
    Finding("mutants", "environments", "Planted faults", ("kill_table",), "make certify", mutants),
    Finding("admission", "environments", "Admission", ("admission",), "make study", admission),
    Finding("corpus", "environments", "Corpus", ("corpus_yield", "corpus_costs"), CORPUS_COMMAND, corpus),
    Finding("diversity", "environments", "Diversity", ("corpus_diversity",), CORPUS_COMMAND, diversity),
    Finding(
        "decontamination",
        "environments",
        "Decontamination",
        ("decontamination",),
        CORPUS_COMMAND,
        decontamination,
    ),
    Finding(
        "setters", "environments", "Setters", ("setters",), "python -m truthfirst.study.setters", setters
    ),
)
SPEED = (
    Finding(
        "generation_speed",
        "training",
        "Cost of rollouts",
        ("generation",),
        "make bench NAME=generation",
        generation_speed,
    ),
)
