"""Base and trained policy on one instance, step by step, and where in an episode the two policies differ.

Which instance is shown is decided by a rule and never by hand. Of the instances that both policies of a run finished
(every decision made), once each, take those whose gain, trained minus base, is the lower median of the family; of
these the first by environment id, then by run. What is shown of the pair is set beside the optimal plan and beside
the means over all instances, so that nobody has to trust one instance.

Divergence comes from `study/divergence.py`: nats a token of D_KL(trained || base) on the trained policy's episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ..solvefirst.environment import Environment
from ..types import Form, StopReason
from .episodes import decision_rows
from .strata import ARMS, pairs

OPTIMUM = "optimum"
POLICIES = (OPTIMUM, *ARMS)
RUN = ("run", "environment")  # an episode's place in the stored tables, beside its policy and form


# --- instances ---------------------------------------------------------------------------------------------
def held_out(scores: pd.DataFrame, most: int | None = None) -> list[Environment]:
    """Build the held-out instances of stored score rows again, the first `most` of each family (all by default).

    Raises ValueError where the rows have instances that are not the first of the test stream.
    """
    from ..train.evaluate import instances  # torch is slow

    found: list[Environment] = []
    keys = ["family", "size", *(["setter"] if "setter" in scores else [])]
    for key, rows in scores.groupby(keys, sort=False):
        family, size, setter = [*map(str, key), "terse"][:3]
        number = int(rows.groupby([c for c in ("run", "policy", "form") if c in rows]).size().max())
        worlds = instances([family], size, min(number, most or number), setter=setter)
        known = set(rows["environment"])
        if strange := [world.id for world in worlds if world.id not in known]:
            raise ValueError(
                f"the rows of {family}, {size} lack instance {strange[0]} of the test stream: they come from "
                "another stream or version; score the policies again"
            )
        found += worlds
    return list({world.id: world for world in found}.values())


# --- choosing a pair -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Pair:
    """The instance that the rule chose, with the agentic scores on it; `among` counts those it chose from."""

    family: str
    environment: str
    run: str
    base: float
    trained: float
    among: int

    @property
    def gain(self) -> float:
        return self.trained - self.base


def choose_pair(scores: pd.DataFrame, family: str, form: str = "A") -> Pair:
    """Return the pair that the rule of this module chooses among the rows of one family.

    scores   columns of training_scores.parquet: run, policy, family, environment, form, reward, stop

    Raises ValueError where no instance was finished by both policies.
    """
    rows = scores[(scores["family"] == family) & (scores["form"] == form)]
    once = rows[~rows.duplicated([*RUN, "policy"], keep=False)]
    finished = once[once["stop"] == str(StopReason.COMPLETED)]
    table = finished.pivot(index=list(RUN), columns="policy", values="reward").reindex(columns=list(ARMS))
    table = table.dropna()
    if table.empty:
        raise ValueError(f"no {family} instance of form {form} was finished by both {ARMS[0]} and {ARMS[1]}")
    gain = (table[ARMS[1]] - table[ARMS[0]]).round(9)
    median = gain.sort_values().iloc[(len(gain) - 1) // 2]
    run, environment = min(gain[gain == median].index, key=lambda at: (at[1], at[0]))
    base, trained = table.loc[(run, environment)]
    return Pair(family, environment, run, float(base), float(trained), len(table))


# --- what was spent when ---------------------------------------------------------------------------------------
def optimal_decisions(environment: Environment) -> pd.DataFrame:
    """Return the decisions of an optimal plan, in the columns of `episodes.DECISION_COLUMNS`."""
    episode = environment.episode(Form.WRITTEN, OPTIMUM)
    episode.answer(episode.write_plan(environment.solution.plan))
    return pd.DataFrame(decision_rows(episode.trace()))


def by_period(decisions: pd.DataFrame) -> pd.DataFrame:
    """Return one row an episode and period: value, and quantity, what value counts.

    The value is the amount decided on (units spent, made ...); where some decision of the family has no amount, as
    a choice from a menu has none, it is what was earned. Where the mechanism has no periods, decisions are numbered.
    Columns: those of RUN that there are, policy, family, period, value, quantity.
    """
    parts = []
    for _, rows in decisions.groupby("family", sort=False):
        counted = bool(rows["amount"].notna().all())
        period = rows["period"] if rows["period"].notna().all() else rows["decision"]
        rows = rows.assign(
            period=period.astype(int),
            value=(rows["amount"] if counted else rows["gain"]).astype(float),
            quantity="amount" if counted else "earned",
        )
        keys = [*(name for name in RUN if name in rows), "policy", "family", "period", "quantity"]
        parts.append(rows.groupby(keys, sort=False, as_index=False, dropna=False)[["value"]].sum())
    return pd.concat(parts, ignore_index=True)


def trajectory(
    pair: Pair, scores: pd.DataFrame, decisions: pd.DataFrame, environment: Environment, form: str = "A"
) -> pd.DataFrame:
    """Return the pair beside the optimum, one row a policy and period.

    Columns: view ("pair"), family, environment, policy, period, value, quantity, reward, probes_first (before the
    first decision; missing where the rows do not have it), among. Raises ValueError where decisions of the pair are
    not stored.
    """
    if environment.id != pair.environment:
        raise ValueError(f"the pair is about {pair.environment}, the environment is {environment.id}")
    mine = _of(decisions, pair, form)
    if lacking := set(ARMS) - set(mine["policy"]):
        raise ValueError(
            f"no decisions of {', '.join(sorted(lacking))} on {pair.environment} in run {pair.run} are stored: "
            "scores and decisions must come from the same runs"
        )
    told = by_period(pd.concat([optimal_decisions(environment), mine], ignore_index=True))
    told["view"], told["environment"], told["among"] = "pair", pair.environment, pair.among
    rewards = {OPTIMUM: 1.0, ARMS[0]: pair.base, ARMS[1]: pair.trained}
    played = _of(scores, pair, form).set_index("policy")
    probes = played["probes_first"] if "probes_first" in played else pd.Series(dtype=float)
    told["reward"] = told["policy"].map(rewards)
    told["probes_first"] = told["policy"].map(probes.to_dict()).astype(float)
    return _every_period(told)


def _of(frame: pd.DataFrame, pair: Pair, form: str) -> pd.DataFrame:
    here = (frame["run"] == pair.run) & (frame["environment"] == pair.environment) & (frame["form"] == form)
    return frame[here & frame["policy"].isin(ARMS)]


def _every_period(told: pd.DataFrame) -> pd.DataFrame:
    """Add the periods in which a policy decided nothing any more, with the value 0."""
    last = int(told["period"].max())
    parts = []
    for _, rows in told.groupby("policy", sort=False):
        rows = rows.set_index("period").reindex(range(1, last + 1))
        rows["value"] = rows["value"].fillna(0.0)
        parts.append(rows.ffill().bfill().reset_index())
    return pd.concat(parts, ignore_index=True)


def mean_by_period(
    scores: pd.DataFrame, decisions: pd.DataFrame, worlds: Mapping[str, Environment], form: str = "A"
) -> pd.DataFrame:
    """Return means over all instances of `worlds`: one row a family, policy and period, in the columns of `trajectory`.

    A period that an episode never reached counts as 0; the optimum is weighed as often as the policies played it.
    """
    scores = scores[(scores["form"] == form) & scores["environment"].isin(list(worlds))]
    scores = scores[scores["run"].isin(decisions["run"].unique())]
    base, _ = pairs(scores)
    played = decisions[(decisions["form"] == form) & decisions["environment"].isin(list(worlds))]
    best = {name: optimal_decisions(worlds[name]) for name in base["environment"].unique()}
    plans = pd.concat([best[name] for name in base["environment"]], ignore_index=True)
    sums = by_period(
        pd.concat([played[played["policy"].isin(ARMS)], plans], ignore_index=True).drop(columns="run")
    )
    totals = sums.groupby(["family", "policy", "period", "quantity"], as_index=False)[["value"]].sum()
    episodes = scores.groupby(["family", "policy"]).agg(
        number=("reward", "size"),
        reward=("reward", "mean"),
        **({"probes_first": ("probes_first", "mean")} if "probes_first" in scores else {}),
    )
    number = base.groupby("family").size()
    rows = []
    for row in totals.to_dict("records"):
        family, policy = row["family"], row["policy"]
        known = (family, policy) in episodes.index
        here = episodes.loc[(family, policy)] if known else {"number": number[family], "reward": 1.0}
        row["value"] /= here["number"]
        rows.append(
            row
            | {"view": "mean", "environment": "", "among": int(number[family]), "reward": here["reward"]}
            | {"probes_first": here.get("probes_first")}
        )
    return pd.DataFrame(rows).astype({"probes_first": float})


def trajectories(
    scores: pd.DataFrame, decisions: pd.DataFrame, worlds: Sequence[Environment], form: str = "A"
) -> pd.DataFrame:
    """Return the pair and the means of every family of `worlds` (figures_strata.trajectories).

    Of the score rows those count that belong to runs whose decisions are there.
    """
    table = {world.id: world for world in worlds}
    there = scores["environment"].isin(list(table)) & scores["run"].isin(decisions["run"].unique())
    scores = scores[there]
    found = []
    for family in dict.fromkeys(world.family_name for world in worlds):
        pair = choose_pair(scores, family, form)
        found.append(trajectory(pair, scores, decisions, table[pair.environment], form))
    return pd.concat([*found, mean_by_period(scores, decisions, table, form)], ignore_index=True)


def early(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share of all amounts that was decided on in the first half of the periods, a column a policy.

    table   of `trajectories`; families without amounts are left out. Missing where nothing was decided on at all.
    """
    counted = table[table["quantity"] == "amount"]
    last = counted.groupby("family")["period"].transform("max")
    keys = ["family", "view", "policy"]
    sums = counted.groupby(keys, sort=False)["value"].sum()
    first = counted[counted["period"] <= last / 2].groupby(keys, sort=False)["value"].sum()
    return (first / sums.where(sums > 0)).unstack("policy").reindex(columns=list(POLICIES)).reset_index()


# --- where the policies differ -----------------------------------------------------------------------------------
def by_message(divergence: pd.DataFrame) -> pd.DataFrame:
    """Return the divergence by message: family, turn, tokens, kl (mean nats a token), and shares of the family's sums.

    divergence   training_divergence.parquet, or the token rows of `divergence_frame`
    """
    rows = _weighed(divergence)
    table = rows.groupby(["family", "turn"], as_index=False)[["tokens", "nats"]].sum()
    sums = table.groupby("family")[["tokens", "nats"]].transform("sum")
    table["kl"] = table["nats"] / table["tokens"]
    table["share_tokens"] = table["tokens"] / sums["tokens"]
    table["share_nats"] = table["nats"] / sums["nats"]
    return table.drop(columns="nats")


def concentration(divergence: pd.DataFrame, share: float = 0.5) -> pd.DataFrame:
    """Return, for each family, the fewest messages that hold `share` of the divergence, and their share of the tokens.

    Columns: family, messages (how many), of, turns (which, 1-based, the heaviest first), share_nats, share_tokens.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    rows = []
    for family, table in by_message(divergence).groupby("family", sort=False):
        heaviest = table.sort_values("share_nats", ascending=False, kind="stable")
        needed = int((heaviest["share_nats"].cumsum() < share - 1e-12).sum()) + 1
        top = heaviest.head(needed)
        rows.append(
            {"family": family, "messages": needed, "of": len(table)}
            | {"turns": ", ".join(str(turn + 1) for turn in top["turn"])}
            | {"share_nats": float(top["share_nats"].sum()), "share_tokens": float(top["share_tokens"].sum())}
        )
    return pd.DataFrame(rows)


def with_parts(tokens: pd.DataFrame) -> pd.DataFrame:
    """Add the column part to the token rows of `divergence_frame`: the first or last token of a message, or inner.

    A message of one token is its first.
    """
    last = tokens.groupby(["environment", "form", "turn"])["place"].transform("max")
    part = pd.Series("inner", index=tokens.index)
    part[tokens["place"] == last] = "last"
    part[tokens["place"] == 0] = "first"
    return tokens.assign(part=part)


def by_part(divergence: pd.DataFrame) -> pd.DataFrame:
    """Return the divergence by part of the message: family, part, tokens, kl; empty where no parts are stored."""
    columns = ["family", "part", "tokens", "kl"]
    if "part" not in divergence:
        return pd.DataFrame(columns=columns)
    table = _weighed(divergence).groupby(["family", "part"], as_index=False)[["tokens", "nats"]].sum()
    return table.assign(kl=table["nats"] / table["tokens"])[columns]


def _weighed(divergence: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with their tokens (1 for a token row) and nats in all."""
    tokens = divergence.get("tokens", 1)
    return divergence.assign(tokens=tokens).assign(nats=divergence["kl"] * tokens)
