"""Speed of a stored corpus beside named peers, in one run on one core: `make bench NAME=corpus`.

Ours: an environment of size small rebuilt by its id from the corpus of the repository (theta and solution read, words
and tables made again, the view compared with its hash, the solution replayed), and its form-A episode opened. Beside
it: the same candidates made afresh (sampled, solved, realized, admitted), and reasoning-gym generating one item of a
planning puzzle. The peer's item has no database, no tools and no stored optimum: the ratio says what an environment
costs beside a puzzle, not who is better. Times are CPU seconds of this process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import reasoning_gym
from tqdm.auto import tqdm

from truthfirst import paths
from truthfirst.solvefirst.admit.gates import admit
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.manifest import load_public, load_sealed, rebuild

CORPUS = paths.HOME / "data" / "corpora" / "vhd3300"
SIZE, EACH, REPEATS = "small", 4, 3
PEERS = ("shortest_path", "jugs", "knight_swap")


def milliseconds(work: Callable[[Any], object], things: Sequence[Any]) -> list[float]:
    """Return the CPU milliseconds of `work` on each thing, the least of REPEATS."""
    return [
        min(_once(work, thing) for _ in range(REPEATS)) for thing in tqdm(things, leave=False, disable=None)
    ]


def _once(work: Callable[[Any], object], thing: Any) -> float:
    started = time.process_time()
    work(thing)
    return 1000 * (time.process_time() - started)


def sample() -> pd.DataFrame:
    """Return id and recipe of the first EACH environments of every family at SIZE."""
    public = load_public(CORPUS, ["id", "family", "size"])
    chosen = public[public["size"] == SIZE].groupby("family", sort=False).head(EACH)
    return chosen.merge(load_sealed(CORPUS)[["id", "recipe"]], on="id")


def main() -> None:
    """Measure and print."""
    rows = sample()
    first = _once(lambda one: rebuild(CORPUS, one), rows["id"].iloc[0])
    recipes = [Recipe(**json.loads(text)) for text in rows["recipe"]]
    data = {task: reasoning_gym.create_dataset(task, size=10**6, seed=0) for task in PEERS}
    spent = {
        "rebuild by id": milliseconds(lambda one: rebuild(CORPUS, one), list(rows["id"])),
        "rebuild by id, open an episode": milliseconds(
            lambda one: rebuild(CORPUS, one).episode("A"), list(rows["id"])
        ),
        "afresh, not admitted": milliseconds(build_candidate, recipes),
        "afresh and admitted": milliseconds(lambda recipe: admit(build_candidate(recipe)), recipes),
    }
    spent |= {
        f"reasoning-gym {task}, one item": milliseconds(lambda i, task=task: data[task][i], range(100))
        for task in PEERS
    }
    table = pd.DataFrame(
        [
            {
                "what": name,
                "n": len(ms),
                "median ms": pd.Series(ms).median(),
                "95% below": pd.Series(ms).quantile(0.95),
            }
            for name, ms in spent.items()
        ]
    )
    table["over rebuild"] = table["median ms"] / table["median ms"].iloc[0]
    print(
        f"\n{len(rows)} environments of size {SIZE}, {EACH} a family, one core (target: rebuild under 20 ms)"
    )
    print(table.round(2).to_string(index=False))
    print(f"the first rebuild of a process also reads the manifest: {first:.0f} ms")


if __name__ == "__main__":
    main()
