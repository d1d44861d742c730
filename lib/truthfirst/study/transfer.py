"""Transfer: what training on three families does to the other fourteen.

Base and trained policy play the same held-out instances with the same draws, in the forms F (written out) and A
(agentic), over several training seeds. A gain is the paired difference on (instance, seed); families are grouped by the
role that the table of families gives them: trained, near, far, unseen.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..sources import published
from .stats import paired_difference

ROLE_ORDER = ("trained", "near", "far", "unseen")
COLUMNS = ("base", "trained", "gain", "low", "high", "n")


def source_gains() -> dict[str, str]:
    """Return, by role, what VHD-Play's large model gained in the agentic form: another experiment, beside ours."""
    gained = published("vhd_play", "gain")
    told = {role: " and ".join(f"{value:+.2f}" for value in values) for role, values in gained.items()}
    unseen = published("vhd_play", "unseen_families")
    return told | {"unseen": f"{unseen} of {unseen} families improved"}


def gains(episodes: pd.DataFrame, by: Sequence[str] = ("role", "family"), form: str = "A") -> pd.DataFrame:
    """Return mean scores of base and trained, and the gain with its 95% interval and pairs, a row a group of `by`.

    episodes   rows of training_scores.parquet and training_transfer.parquet, one arm
    Intervals resample instances within family and seed. Groups come in the order of ROLE_ORDER.
    """
    own = episodes[episodes["form"] == form]
    own = own.assign(cell=own["family"].astype(str) + "/" + own["seed"].astype(str))
    rows = []
    for key, part in own.groupby(list(by), sort=False):
        found = paired_difference(
            part, "policy", "base", "trained", pair=("environment", "seed"), strata="cell"
        )
        means = part.groupby("policy")["reward"].mean()
        values = (means["base"], means["trained"], found.mean, found.low, found.high, found.n)
        rows.append(dict(zip(by, key, strict=True)) | dict(zip(COLUMNS, values, strict=True)))
    table = pd.DataFrame(rows, columns=[*by, *COLUMNS])
    return table.sort_values(
        "role", key=lambda role: role.map(ROLE_ORDER.index), kind="stable", ignore_index=True
    )


def by_role(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return the agentic gain of every role, how many of its families improved, and what the source reports."""
    table = gains(episodes, ("role",))
    families = gains(episodes)
    improved = families.groupby("role").agg(
        families=("family", "size"), improved=("low", lambda low: int((low > 0).sum()))
    )
    table = table.join(improved, on="role")
    return table.assign(source=table["role"].map(source_gains()))


def competence(episodes: pd.DataFrame) -> pd.DataFrame:
    """Return for each family what the base can do written out (F) beside what training did to its agentic score.

    Columns: role, family, written (base, F), agentic (base, A), gain, low, high, n. A policy can carry over to acting
    only what it can do written out.
    """
    written = gains(episodes, form="F").set_index("family")["base"]
    table = gains(episodes)
    table = table.assign(written=table["family"].map(written)).rename(columns={"base": "agentic"})
    return table[["role", "family", "written", "agentic", "gain", "low", "high", "n"]]
