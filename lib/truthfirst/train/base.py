"""The base checkpoint of the tiny policy: good at written-out plans, poor at acting. `python -m truthfirst.train.base`

The recipe states everything that the checkpoint depends on: families, instances, how clerks behave, the model and its
training. The folder it fills holds the weights, the tokenizer, `recipe.json` and `metrics.json` (held-out score by
family and form, with the number of episodes). Building is resumable and takes about half an hour on two cores; the
repository holds the result, so that nobody waits for it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from .. import paths
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.families import FAMILIES, ROLES
from ..streams import derive, stream
from ..types import Form
from . import building, sft, tiny
from .checks import SetupError, load_policy
from .clerks import Habits, Messages, answer, clerk
from .evaluate import evaluate, instances, policy

TRAINED = tuple(name for name, role in ROLES.items() if role == "trained")
OTHER = "other"
UNTOUCHED = (
    100_000  # first index of a train stream that reinforcement learning uses; a base has seen lower ones
)
CHUNK = 250  # instances a process writes at a time
OTHERS = (*((name, "nano", 600) for name in FAMILIES if name not in TRAINED), ("rationing", "nano16", 2_000))
Dialogue = tuple[Messages, list[dict[str, Any]] | None, str]  # messages, tools, form


@dataclass(frozen=True, slots=True)
class BaseRecipe:
    """What builds a base checkpoint.

    families   that training will be about; instances: of each one's train stream, at `size` and each of `more_sizes`
    others     (family, size, instances) seen a little, so that the base can be measured there too
    weights    how often a batch is of form F, I or A, or about the others
    start      name of a checkpoint beside this one to go on from, with its tokenizer and shape; None begins afresh
    """

    families: tuple[str, ...] = TRAINED
    size: str = "nano"
    more_sizes: tuple[str, ...] = ()
    instances: int = 8_000
    others: tuple[tuple[str, str, int], ...] = OTHERS
    weights: dict[str, float] = field(default_factory=lambda: {"F": 0.5, "I": 0.12, "A": 0.25, OTHER: 0.13})
    habits: Habits = field(default_factory=Habits)
    shape: tiny.Shape = field(default_factory=tiny.Shape)
    schedule: sft.Schedule = field(default_factory=sft.Schedule)
    start: str | None = None
    seed: int = 0

    @property
    def main(self) -> list[tuple[str, str, int]]:
        """What training will be about, as (family, size, instances) like `others`."""
        sizes = (self.size, *self.more_sizes)
        return [(family, size, self.instances) for family in self.families for size in sizes]


# What the command builds by name; a checkpoint that another starts from is built first. A base whose careful clerks do
# not write down their plan learns to ask, but hardly to plan while it acts; and one that writes its plan badly after
# asking sets the ceiling of all later training (LOG): hence three stages, of which the last is long. tiny-long learns
# episodes of 4 to 16 decisions for studies of horizon. Of that length it learns neither to act without a written plan
# nor to follow a plan of sixteen entries (LOG), so its careful clerks plan four decisions at a time, and more often
# than not take them at random instead: a long episode goes well only where that choice goes well again and again.
# tiny-sizes goes from tiny-base to other sizes and to timed selection; up to eight decisions, a whole plan is followed.
FEW_OTHERS = tuple((family, size, min(number, 200)) for family, size, number in OTHERS)
CHECKPOINTS: dict[str, BaseRecipe] = {
    "tiny-written": BaseRecipe(habits=Habits(plans=False)),
    "tiny-planned": BaseRecipe(
        instances=6_000,
        others=FEW_OTHERS,
        weights={"F": 0.2, "I": 0.22, "A": 0.5, OTHER: 0.08},
        habits=Habits(careful=0.3),
        schedule=sft.Schedule(steps=1_300, learning_rate=7e-4),
        start="tiny-written",
        seed=1,
    ),
    "tiny-base": BaseRecipe(
        instances=10_000,
        others=FEW_OTHERS,
        weights={"F": 0.2, "I": 0.35, "A": 0.4, OTHER: 0.05},
        habits=Habits(careful=0.32),
        schedule=sft.Schedule(steps=2_500, learning_rate=7e-4),
        start="tiny-planned",
        seed=3,
    ),
    "tiny-long": BaseRecipe(
        families=("rationing",),
        size="nano16",
        instances=4_000,
        others=tuple(("rationing", size, 2_000) for size in ("nano", "nano8", "nano12")),
        weights={"F": 0.25, "I": 0.25, "A": 0.2, OTHER: 0.3},
        habits=Habits(careful=0.8, ahead=4, slip=0.6),
        schedule=sft.Schedule(steps=1_300, learning_rate=7e-4),
        start="tiny-base",
        seed=2,
    ),
    "tiny-sizes": BaseRecipe(
        families=("timed_selection", "rationing", "lot_sizing"),
        size="nano8",
        more_sizes=("nano", "nano5", "nano6"),
        instances=5_000,
        others=(("pricing", "nano", 200),),
        weights={"F": 0.4, "I": 0.1, "A": 0.49, OTHER: 0.01},
        habits=Habits(careful=0.4),
        schedule=sft.Schedule(steps=2_500, learning_rate=1e-3),
        start="tiny-base",
        seed=4,
    ),
}


def dialogues(recipe: BaseRecipe, family: str, size: str, indices: Sequence[int]) -> list[Dialogue]:
    """Return the conversations of some instances: an answer and one clerk in each of the forms I and A."""
    found: list[Dialogue] = []
    for index in indices:
        world = build_candidate(Recipe(family, size, seed=recipe.seed, index=index, setter="terse"))
        if world.solution.span < world.solution.required_margin:
            continue
        found.append((answer(world), None, str(Form.WRITTEN)))
        tools = [schema.openai() for schema in world.view(Form.AGENTIC).tools]
        for form in (Form.INFORMED, Form.AGENTIC):
            rng = stream(recipe.seed, "clerk", family, size, index, str(form))
            found.append((clerk(world, form, recipe.habits, rng), tools, str(form)))
    return found


def make_tokenizer(recipe: BaseRecipe) -> Any:
    """Return the tokenizer whose phrases are those of the first conversations of every family."""
    plain: Any = tiny.build_tokenizer([])
    talks = [
        talk
        for family, size, number in (*recipe.main, *recipe.others)
        for talk in dialogues(recipe, family, size, range(min(60, number)))
    ]
    return tiny.build_tokenizer(
        plain.apply_chat_template(messages, tools=tools, tokenize=False) for messages, tools, _ in talks
    )


def read_all(recipe: BaseRecipe, tokenizer: Any, workers: int, progress: bool = True) -> list[sft.Sample]:
    """Return every conversation in its tokens."""
    wanted = [(*own, False) for own in recipe.main]
    wanted += [(*other, True) for other in recipe.others]
    jobs = [
        (family, size, range(first, min(first + CHUNK, number)), other)
        for family, size, number, other in wanted
        for first in range(0, number, CHUNK)
    ]
    parts = tqdm(
        Parallel(n_jobs=workers, return_as="generator")(
            delayed(_encoded)(recipe, tokenizer, *job) for job in jobs
        ),
        total=len(jobs),
        desc="transcripts",
        disable=not progress,
    )
    return [sample for part in parts for sample in part]


def _encoded(
    recipe: BaseRecipe, tokenizer: Any, family: str, size: str, indices: Sequence[int], other: bool
) -> list[sft.Sample]:
    return [
        sft.Sample(*tiny.encode(tokenizer, messages, tools), OTHER if other else form)
        for messages, tools, form in dialogues(recipe, family, size, indices)
    ]


def build(recipe: BaseRecipe, folder: Path, *, workers: int = 2, progress: bool = True) -> pd.DataFrame:
    """Build the checkpoint in `folder`, and return its held-out episodes; an interrupted build resumes."""
    work = building.begin(folder, recipe)
    if recipe.start is None:
        tokenizer = make_tokenizer(recipe)
        model = tiny.build_model(tokenizer, recipe.shape, derive(recipe.seed, "weights") % 2**32)
    else:
        model, tokenizer = load_policy(str(folder.parent / recipe.start))
    written = work / building.SAMPLES
    if written.exists():
        samples = sft.load_samples(written)
    else:
        samples = read_all(recipe, tokenizer, workers, progress)
        sft.save_samples(written, samples)
    torch.set_num_threads(workers)
    losses = sft.train(
        model,
        tokenizer,
        samples,
        recipe.weights,
        recipe.schedule,
        recipe.seed,
        work / building.STEPS,
        progress=progress,
    )
    held_out = instances(recipe.families, recipe.size, 100, seed=recipe.seed)
    frame = evaluate(policy(model.eval(), tokenizer, "base", seed=recipe.seed), held_out)
    means = frame.groupby(["family", "form"])["reward"].agg(["mean", "sem", "size"]).reset_index()
    metrics = {
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
        "conversations": len(samples),
        "last_loss": losses[-1]["loss"] if losses else None,
        "held_out": means.to_dict("records"),
    }
    building.finish(folder, model, tokenizer, metrics)
    return frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a checkpoint from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.train.base", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("name", nargs="?", default="tiny-base", choices=sorted(CHECKPOINTS))
    parser.add_argument(
        "--folder", type=Path, default=paths.HOME / "data" / "checkpoints", help="where it goes"
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="processes that write transcripts, threads that train"
    )
    parser.add_argument("--steps", type=int, default=None, help="fewer steps, for a trial")
    parser.add_argument("--instances", type=int, default=None, help="fewer instances, for a trial")
    given = parser.parse_args(arguments)
    recipe = CHECKPOINTS[given.name]
    if recipe.start is not None and not (given.folder / recipe.start).exists():
        print(f"{given.name} goes on from {recipe.start}, which is built first")
        if code := main([recipe.start, "--folder", str(given.folder), "--workers", str(given.workers)]):
            return code
    if given.instances is not None:
        recipe = replace(
            recipe,
            instances=given.instances,
            others=tuple((*o[:2], min(o[2], given.instances)) for o in recipe.others),
        )
    if given.steps is not None:
        recipe = replace(recipe, schedule=replace(recipe.schedule, steps=given.steps))
    try:
        with terminable():
            frame = build(recipe, given.folder / given.name, workers=given.workers)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    except (SetupError, ValueError) as error:
        print(f"base: {error}", file=sys.stderr)
        return 2
    print(frame.groupby(["family", "form"])["reward"].agg(["mean", "size"]).round(3).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
