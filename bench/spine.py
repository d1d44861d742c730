"""Speed of the spine beside named peers, in one run on one core: `make bench` or `python bench/run.py spine`.

Ours: sample -> solve -> realize -> admit; bare mechanism steps; wrapped tool calls with their database; reset. Peers:
reasoning-gym generating and scoring items of planning puzzles; Gymnasium stepping Taxi, whose step is a table look-up.
A peer does less (no database, no certificates, no gates): the ratios say what our guarantees cost, not who is better.
Times are CPU seconds of this process, which a busy machine disturbs least.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import gymnasium
import pandas as pd
import reasoning_gym

from truthfirst.solvefirst.admit.gates import GATES, GateFailure, admit
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.references import POLICIES, random
from truthfirst.streams import stream

TRAINED = ("rationing", "lot_sizing", "pricing")
SIZE = "small"


def rate(work: Callable[[], int], seconds: float = 3.0) -> float:
    """Return units a second of `work`, which returns how many units it did, over at least `seconds`."""
    work()
    done, started = 0, time.process_time()
    while time.process_time() - started < seconds:
        done += work()
    return done / (time.process_time() - started)


def admissions(family: str) -> float:
    """Candidates sampled, solved, realized and admitted a second."""
    indices = iter(range(10**6))

    def work() -> int:
        admit(build_candidate(Recipe(family, SIZE, seed=1, index=next(indices))))
        return 1

    return rate(work)


def mechanism_steps(name: str) -> float:
    """Bare steps a second of random legal play."""
    family = FAMILIES[name]
    theta = family.sample(stream(0, "bench", name), SIZE)
    rng = stream(1, "bench", name)
    plans = []
    for _ in range(50):
        state, plan = family.start(theta), []
        while moves := family.legal(theta, state):
            move = moves[int(rng.integers(len(moves)))]
            action = list(move)[int(rng.integers(len(move)))]
            plan.append(action)
            state = family.step(theta, state, action)[0]
        plans.append(plan)

    def work() -> int:
        steps = 0
        for plan in plans:
            state = family.start(theta)
            for action in plan:
                state = family.step(theta, state, action)[0]
            steps += len(plan)
        return steps

    return rate(work)


def wrapped_calls(name: str) -> float:
    """Tool calls a second of an episode that probes everything and then plays a plan, database included."""
    environment = build_candidate(Recipe(name, SIZE, seed=2))
    episode = environment.episode("A")
    calls = []
    rng = stream(0, "bench")
    while not episode.done:
        position = episode.position()
        choice = POLICIES["probe-all"].decide(position, rng) or random(position, rng)
        assert choice is not None
        calls.append(episode.write(choice))
        episode.call(*calls[-1])

    def work() -> int:
        episode = environment.episode("A")
        for tool, arguments in calls:
            episode.call(tool, arguments)
        return len(calls)

    return rate(work)


def resets(name: str) -> float:
    """Milliseconds of a reset: a new episode of a built environment, its database loaded."""
    environment = build_candidate(Recipe(name, SIZE, seed=3))

    def work() -> int:
        environment.episode("A")
        return 1

    return 1000 / rate(work, 1.0)


def gate_costs(name: str, n: int = 20) -> pd.DataFrame:
    """Mean milliseconds of building and of each gate: what dominates."""
    spent: dict[str, float] = {}
    for index in range(n):
        started = time.process_time()
        environment = build_candidate(Recipe(name, SIZE, seed=4, index=index))
        spent["build"] = spent.get("build", 0) + time.process_time() - started
        for gate, check in GATES.items():
            started = time.process_time()
            try:
                check(environment)
            except GateFailure:
                break
            finally:
                spent[gate] = spent.get(gate, 0) + time.process_time() - started
    rows = [{"family": name, "part": part, "ms": 1000 * total / n} for part, total in spent.items()]
    return pd.DataFrame(rows).sort_values("ms", ascending=False)


def reasoning_gym_items(task: str) -> float:
    """Items a second: generate one and score its own answer."""
    data = reasoning_gym.create_dataset(task, size=10**6, seed=0)
    indices = iter(range(10**6))

    def work() -> int:
        item = data[next(indices)]
        data.score_answer(str(item["answer"]), item)
        return 1

    return rate(work)


def gymnasium_steps() -> float:
    """Steps a second of Taxi-v4 under random actions."""
    world = gymnasium.make("Taxi-v4")
    world.reset(seed=0)
    actions = [int(a) for a in stream(0, "taxi").integers(0, 6, size=2_000)]

    def work() -> int:
        for action in actions:
            _, _, over, cut, _ = world.step(action)
            if over or cut:
                world.reset()
        return len(actions)

    return rate(work)


def main() -> None:
    """Print the tables."""
    rows = []
    for name in TRAINED:
        rows.append(
            {
                "family": name,
                "admitted/s (>= 25)": admissions(name),
                "steps/s (>= 50,000)": mechanism_steps(name),
                "calls/s (>= 3,000)": wrapped_calls(name),
                "reset ms (< 5)": resets(name),
            }
        )
    ours = pd.DataFrame(rows).set_index("family")
    print(f"\ntruthfirst, size {SIZE}, one core\n{ours.round(1).to_string()}")
    puzzles = {task: reasoning_gym_items(task) for task in ("shortest_path", "jugs", "knight_swap")}
    taxi = gymnasium_steps()
    print()
    for task, value in puzzles.items():
        print(f"admitted candidates against reasoning-gym {task}: {ours.iloc[:, 0].mean() / value:.3g}")
    print(
        f"mechanism steps against Gymnasium Taxi-v4 steps ({taxi:,.0f}/s): {ours.iloc[:, 1].mean() / taxi:.3g}"
    )
    print(f"wrapped calls against Gymnasium Taxi-v4 steps: {ours.iloc[:, 2].mean() / taxi:.3g}")
    print("\nwhat an admission is made of, ms")
    parts = pd.concat([gate_costs(name) for name in TRAINED])
    print(
        parts.pivot(index="part", columns="family", values="ms")
        .sort_values(TRAINED[0], ascending=False)
        .round(1)
    )


if __name__ == "__main__":
    main()
