"""The base checkpoint for worlds: writes the lines of `world_lines.py`, and seldom in a way that gets anywhere.

`python -m truthfirst.train.world_base` builds data/checkpoints/tiny-worlds: weights, tokenizer, `recipe.json` (all that
the checkpoint depends on) and `metrics.json` (held-out Phi and pass rate, with the number of episodes). It learns from
transcripts of clerks on the training instances, of whom few look before they write; what they played in the sandbox is
kept in a file of `kept_shell.py` beside the checkpoint's folder while it is built, or in the one that `--steps-file`
names, and costs most of the time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from .. import paths
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..policies import roll_out
from ..policies.language import LanguagePolicy
from ..streams import derive, stream
from ..worldfirst.environment import TOOLS, WorkspaceEpisode
from . import building, sft, tiny
from .evaluate import policy
from .kept_shell import KeptShell
from .world_lines import LINES, Habits, LineEnvironment, Messages, clerk, line_environment

NAME, KIND = "tiny-worlds", "A"
HELD_OUT = 1_000_000  # first seed of held-out instances; training uses lower ones
STEPS_FILE = paths.OUTPUT / "data" / "training" / "worlds-steps.sqlite"


@dataclass(frozen=True, slots=True)
class WorldBaseRecipe:
    """What builds the checkpoint.

    instances  training instances, seeds 0, 1, ...; clerks: transcripts of each
    held_out   instances, and episodes of each, that the finished base plays
    """

    instances: int = 24
    clerks: int = 60
    held_out: tuple[int, int] = (16, 4)
    habits: Habits = field(default_factory=Habits)
    shape: tiny.Shape = field(default_factory=lambda: tiny.Shape(layers=3, hidden=96, positions=1_024))
    schedule: sft.Schedule = field(
        default_factory=lambda: sft.Schedule(steps=900, batch=16, learning_rate=2e-3, save_every=300)
    )
    seed: int = 0


def transcripts(recipe: WorldBaseRecipe, instance: int, steps: Path) -> list[Messages]:
    """Return the conversations of the clerks of one training instance."""
    environment = line_environment(instance, KeptShell(steps))
    return [
        clerk(environment, recipe.habits, stream(recipe.seed, "world-clerk", instance, number))
        for number in range(recipe.clerks)
    ]


def all_transcripts(
    recipe: WorldBaseRecipe, steps: Path, workers: int, progress: bool = True
) -> list[Messages]:
    """Return the conversations of all instances, in order; threads wait for the sandbox together."""
    KeptShell(steps)  # makes the file
    parts = tqdm(
        Parallel(n_jobs=workers, backend="threading", return_as="generator")(
            delayed(transcripts)(recipe, number, steps) for number in range(recipe.instances)
        ),
        total=recipe.instances,
        desc="clerks",
        disable=not progress,
    )
    return [messages for part in parts for messages in part]


def evaluate(player: LanguagePolicy, environments: Sequence[LineEnvironment], n: int) -> pd.DataFrame:
    """Play every environment `n` times; one row an episode.

    Columns: policy, environment, instance (its seed), episode (number on its instance), phi, passed, return, submitted,
    turns, refused, looked (both looks came before any profile), known (share of commands that are lines of the toolbox,
    null without commands), stop.
    """
    episodes = [world.episode() for world in environments for _ in range(n)]
    rows = []
    for number, _ in enumerate(roll_out(player, episodes)):
        rows.append({"policy": player.name, "episode": number % n} | episode_row(episodes[number]))
    return pd.DataFrame(rows)


def episode_row(episode: WorkspaceEpisode) -> dict[str, object]:
    """Return what a finished episode came to; see `evaluate`."""
    score, trace = episode.score(), episode.trace()
    names = {line: name for name, line in LINES.items()}
    commands = [turn.detail["command"] for turn in trace.turns if "command" in turn.detail]
    played = [names.get(command, "") for command in commands]
    first = next((place for place, name in enumerate(played) if name.startswith("profile")), len(played))
    return {
        "environment": episode.environment.id,
        "instance": episode.environment.instance.seed,
        **{name: score.detail[name] for name in ("phi", "passed", "return", "submitted", "turns", "refused")},
        "looked": {"dates", "money"} <= set(played[:first]),
        "known": sum(map(bool, played)) / len(played) if played else None,
        "stop": str(trace.stop),
    }


def build(
    recipe: WorldBaseRecipe, folder: Path, steps: Path, *, workers: int = 8, progress: bool = True
) -> pd.DataFrame:
    """Build the checkpoint in `folder`, and return its held-out episodes; an interrupted build resumes."""
    work = building.begin(folder, recipe)
    talks = all_transcripts(recipe, steps, workers, progress)
    tools = [tool.openai() for tool in TOOLS]
    plain: Any = tiny.build_tokenizer([])
    tokenizer = tiny.build_tokenizer(
        plain.apply_chat_template(messages, tools=tools, tokenize=False) for messages in talks
    )
    samples = [sft.Sample(*tiny.encode(tokenizer, messages, tools), KIND) for messages in talks]
    model = tiny.build_model(tokenizer, recipe.shape, derive(recipe.seed, "weights") % 2**32)
    losses = sft.train(
        model,
        tokenizer,
        samples,
        {KIND: 1.0},
        recipe.schedule,
        recipe.seed,
        work / building.STEPS,
        progress=progress,
    )
    number, each = recipe.held_out
    shell = KeptShell(steps)
    worlds = [line_environment(HELD_OUT + seed, shell) for seed in range(number)]
    frame = evaluate(policy(model.eval(), tokenizer, "base", seed=recipe.seed), worlds, each)
    lengths = [len(sample.ids) for sample in samples]
    metrics = {
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
        "conversations": len(samples),
        "tokens_of_a_conversation": {
            "mean": sum(lengths) / len(lengths),
            "written": sum(sum(sample.mask) for sample in samples) / len(samples),
            "longest": max(lengths),
        },
        "last_loss": losses[-1]["loss"] if losses else None,
        "held_out": {
            name: float(frame[name].mean()) for name in ("phi", "passed", "looked", "known", "turns")
        }
        | {"episodes": len(frame)},
    }
    building.finish(folder, model, tokenizer, metrics)
    return frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the checkpoint from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.train.world_base", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--folder", type=Path, default=paths.HOME / "data" / "checkpoints" / NAME)
    parser.add_argument("--steps-file", type=Path, default=STEPS_FILE, help="what the sandbox did, kept")
    parser.add_argument("--workers", type=int, default=8, help="threads that wait for the sandbox")
    given = parser.parse_args(arguments)
    try:
        with terminable():
            frame = build(WorldBaseRecipe(), given.folder, given.steps_file, workers=given.workers)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    except ValueError as error:
        print(f"world_base: {error}", file=sys.stderr)
        return 2
    print(frame[["phi", "passed", "looked", "known", "turns"]].mean().round(3).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
