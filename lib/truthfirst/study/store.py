"""The study of the store: every scripted manager on the same seeds, and how tight the bound is.

    python -m truthfirst.study.store                     # 20 seeds of a year; resumable

One row an episode goes to data/results/store.parquet, one row a day of the first seeds to store_days.parquet. A row
holds for the source of the store that made it only; after a change of source it is played again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from .. import paths
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..policies import roll_out
from ..records import append_jsonl, content_hash, read_jsonl, write_parquet
from ..sources import published
from ..store.environment import Environment, build_environment
from ..store.managers import MANAGERS, REFERENCE, manager
from ..store.score import score_trace
from ..store.theta import YEAR, StoreError
from ..types import Trace
from .stats import bootstrap_mean

SEEDS = 20
FIRST = 1_000  # first seed of the study: managers were written while looking at low ones
SHOWN = 3  # seeds of which every day is kept
EPISODE_COLUMNS = (
    *("environment", "policy", "seed", "horizon", "goods", "turn_budget", "reward", "unclipped"),
    *(
        "u",
        "u_bar",
        "u_zero",
        "days",
        "bankrupt",
        "stop",
        "turns",
        "decisions",
        "probes",
        "queries",
        "refused",
    ),
    "bound_seconds",
)
DAY_COLUMNS = ("policy", "seed", "day", "worth", "bankrupt", "u_bar", "u_zero")
_PACKAGE = Path(__file__).resolve().parents[1] / "store"


def source_hash() -> str:
    """Return the hash of the store's own source."""
    files = sorted(_PACKAGE.glob("*.py"))
    return content_hash({path.name: path.read_text(encoding="utf-8") for path in files})


# --- rows -------------------------------------------------------------------------------------------------
def episode_row(trace: Trace, environment: Environment) -> dict[str, Any]:
    """Return the row of one episode; money in cents. Columns: data/README.md."""
    stated = environment.recipe
    score = score_trace(trace)
    return {
        "environment": environment.id,
        "policy": trace.header["policy"],
        "seed": stated["seed"],
        "horizon": stated["days"],
        "goods": stated["goods"],
        "turn_budget": environment.turn_budget,
        "reward": score.reward,
        **score.detail,
    }


def day_rows(trace: Trace) -> list[dict[str, Any]]:
    """Return net worth at the start and after each call that ended days; money in cents."""
    header = trace.header
    told = {name: header[name] for name in ("policy", "u_bar", "u_zero")} | {"seed": header["recipe"]["seed"]}
    lost = -header["limit"]
    rows = [told | {"day": 0, "worth": header["u_zero"], "bankrupt": False}]
    for turn in trace.turns:
        if turn.detail["day"] > rows[-1]["day"]:
            worth = turn.detail["worth"]
            rows.append(told | {"day": turn.detail["day"], "worth": worth, "bankrupt": worth == lost})
    return rows


def play(
    environment: Environment, names: Sequence[str] = tuple(MANAGERS)
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the frames of episodes and of days of some managers in one store."""
    traces = [roll_out(manager(name), [environment.episode()])[0] for name in names]
    episodes = pd.DataFrame([episode_row(trace, environment) for trace in traces])
    return episodes, pd.DataFrame([row for trace in traces for row in day_rows(trace)])


def _job(seed: int, days: int, goods: int, source: str) -> dict[str, Any]:
    """Play every manager on one seed; return what is kept of it, JSON."""
    environment = build_environment(seed, days, goods)
    began = time.process_time()
    u_bar = environment.bound.u_bar
    seconds = time.process_time() - began
    episodes, by_day = play(environment)
    episodes = episodes.assign(bound_seconds=seconds)
    return {
        "key": [seed, days, goods],
        "source": source,
        "u_bar": u_bar,
        "episodes": episodes.to_dict("records"),
        "days": by_day.to_dict("records") if seed < FIRST + SHOWN else [],
    }


def run(seeds: int, days: int, goods: int, workers: int, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play what is not stored yet, keep each seed as it comes; return the frames of episodes and of days."""
    store, source = folder / "store.jsonl", source_hash()
    known = {
        tuple(record["key"]): record
        for record in (read_jsonl(store) if store.exists() else ())
        if record["source"] == source
    }
    asked = [(seed, days, goods) for seed in range(FIRST, FIRST + seeds)]
    jobs = [key for key in asked if key not in known]
    found = Parallel(n_jobs=workers, return_as="generator_unordered")(
        delayed(_job)(*key, source) for key in jobs
    )
    for record in tqdm(found, total=len(jobs), desc="stores", disable=None):
        append_jsonl(store, record)
        known[tuple(record["key"])] = record
    episodes = [row for key in asked for row in known[key]["episodes"]]
    by_day = [row for key in asked for row in known[key]["days"]]
    return pd.DataFrame(episodes, columns=list(EPISODE_COLUMNS)), pd.DataFrame(
        by_day, columns=list(DAY_COLUMNS)
    )


# --- tables -----------------------------------------------------------------------------------------------
def stored(name: str) -> pd.DataFrame:
    """Return a stored frame, store or store_days. Raises StoreError that names the command that makes it."""
    path = paths.STORED / f"{name}.parquet"
    if not path.exists():
        raise StoreError(f"{path.name} is not stored: run python -m truthfirst.study.store")
    return pd.read_parquet(path)


def by_manager(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a manager: mean reward with its interval over seeds, bankruptcies, turns, and net worth."""
    rows = []
    for name, group in frame.groupby("policy", sort=False):
        estimate = bootstrap_mean(group["reward"].to_numpy(float))
        rows.append(
            {
                "manager": name,
                "reward": estimate.mean,
                "low": estimate.low,
                "high": estimate.high,
                "n": estimate.n,
                "bankrupt": int(group["bankrupt"].sum()),
                "days": group["days"].mean(),
                "turns": group["turns"].mean(),
                "net worth": group["u"].mean() / 100,
            }
        )
    return pd.DataFrame(rows)


def tightness(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a seed: what the full-information plan, and the best manager without it, reach of u_bar - u0."""
    wide = frame.pivot(index="seed", columns="policy", values="unclipped")
    return pd.DataFrame(
        {
            "seed": wide.index,
            "planner": wide[REFERENCE].to_numpy(),
            "manager": wide.drop(columns=REFERENCE).max(axis=1).to_numpy(),
        }
    )


def beside_the_source(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the source's figures beside ours; they are different stores, and no numbers to compare."""
    rows: list[dict[str, object]] = [
        {"experiment": "E-Commerce Bench", "who": who, "balance": told["balance"], "finished": finished(told)}
        for who, told in published("ecommerce_bench").items()
    ]
    for row in by_manager(frame).to_dict("records"):
        ended = f"{row['n'] - row['bankrupt']} of {row['n']} in {row['turns']:,.0f} turns on average"
        figures = {"balance": round(row["net worth"]), "finished": ended}
        rows.append({"experiment": "this store", "who": row["manager"], **figures})
    return pd.DataFrame(rows)


def finished(figures: Mapping[str, Any]) -> str | None:
    """Say how many published episodes came to their end, as far as that is stated."""
    if "finished" not in figures:
        return None
    lost = f", {figures['bankrupt']} bankrupt" if "bankrupt" in figures else ""
    turns = " in {:,} to {:,} turns".format(*figures["turns"]) if "turns" in figures else ""
    return f"{figures['finished']} of {figures['played']}{lost}{turns}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and store its frames; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.study.store", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--days", type=int, default=YEAR, help="horizon of the store")
    parser.add_argument("--goods", type=int, default=6)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=paths.RESULTS, help="folder of the stored frames")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.workers < 1:
        print("store: --seeds and --workers must be at least 1", file=sys.stderr)
        return 2
    try:
        with terminable():
            episodes, by_day = run(options.seeds, options.days, options.goods, options.workers, options.out)
    except StoreError as error:
        print(f"store: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    write_parquet(options.out / "store.parquet", episodes)
    write_parquet(options.out / "store_days.parquet", by_day)
    print(by_manager(episodes).round(3).to_string(index=False))
    reached = tightness(episodes)["planner"]
    print(
        f"full-information plan: {reached.min():.3f} to {reached.max():.3f} of u_bar - u0, {len(reached)} seeds"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
