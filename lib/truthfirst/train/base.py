"""The base checkpoint of the tiny policy: good at written-out plans, poor at acting. `python -m truthfirst.train.base`

The recipe states everything that the checkpoint depends on: families, instances, how clerks behave, the model and its
training. The folder it fills holds the weights, the tokenizer, `recipe.json` and `metrics.json` (held-out score by
family and form, with the number of episodes). Building is resumable and takes about half an hour on two cores; the
repository holds the result, so that nobody waits for it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from tqdm.auto import tqdm

from .. import paths
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.families import ROLES
from ..streams import derive, stream
from ..types import Form
from . import sft, tiny
from .clerks import Habits, Messages, answer, clerk
from .evaluate import evaluate, instances, policy

TRAINED = tuple(name for name, role in ROLES.items() if role == "trained")
Dialogue = tuple[Messages, list[dict[str, Any]] | None, str]  # messages, tools, form


@dataclass(frozen=True, slots=True)
class BaseRecipe:
    """What builds a base checkpoint.

    families   trained on; instances: of each family's train stream, at `size`
    weights    how often a batch is of form F, I or A
    """

    families: tuple[str, ...] = TRAINED
    size: str = "nano"
    instances: int = 12_000
    weights: dict[str, float] = field(default_factory=lambda: {"F": 0.5, "I": 0.2, "A": 0.3})
    habits: Habits = field(default_factory=Habits)
    shape: tiny.Shape = field(default_factory=tiny.Shape)
    schedule: sft.Schedule = field(default_factory=sft.Schedule)
    seed: int = 0


def dialogues(recipe: BaseRecipe, family: str, indices: Sequence[int]) -> list[Dialogue]:
    """Return the conversations of some instances: an answer and one clerk in each of the forms I and A."""
    found: list[Dialogue] = []
    for index in indices:
        world = build_candidate(Recipe(family, recipe.size, seed=recipe.seed, index=index, setter="terse"))
        if world.solution.span < world.solution.required_margin:
            continue
        found.append((answer(world), None, str(Form.WRITTEN)))
        tools = [schema.openai() for schema in world.view(Form.AGENTIC).tools]
        for form in (Form.INFORMED, Form.AGENTIC):
            rng = stream(recipe.seed, "clerk", family, recipe.size, index, str(form))
            found.append((clerk(world, form, recipe.habits, rng), tools, str(form)))
    return found


def read_all(recipe: BaseRecipe, workers: int, progress: bool = True) -> tuple[Any, list[sft.Sample]]:
    """Return the tokenizer and every conversation in its tokens."""
    size = 250
    chunks = [
        (family, range(first, min(first + size, recipe.instances)))
        for first in range(0, recipe.instances, size)
        for family in recipe.families
    ]
    first = [dialogues(recipe, family, range(150)) for family in recipe.families]
    plain = tiny.build_tokenizer([])
    texts = [
        plain.apply_chat_template(messages, tools=tools, tokenize=False)
        for part in first
        for messages, tools, _ in part
    ]
    tokenizer = tiny.build_tokenizer(texts)
    jobs = (delayed(_encoded)(recipe, tokenizer, *chunk) for chunk in chunks)
    parts = tqdm(
        Parallel(n_jobs=workers, return_as="generator")(jobs),
        total=len(chunks),
        desc="transcripts",
        disable=not progress,
    )
    return tokenizer, [sample for part in parts for sample in part]


def _encoded(recipe: BaseRecipe, tokenizer: Any, family: str, indices: Sequence[int]) -> list[sft.Sample]:
    return [
        sft.Sample(*tiny.encode(tokenizer, messages, tools), form)
        for messages, tools, form in dialogues(recipe, family, indices)
    ]


def build(recipe: BaseRecipe, folder: Path, *, workers: int = 2, progress: bool = True) -> pd.DataFrame:
    """Build the checkpoint in `folder`, and return its held-out episodes; an interrupted build resumes."""
    work = folder.with_name(folder.name + ".building")
    work.mkdir(parents=True, exist_ok=True)
    stated = json.dumps(asdict(recipe), indent=2)
    kept = work / "recipe.json"
    if kept.exists() and kept.read_text(encoding="utf-8") != stated:
        raise ValueError(
            f"{work} holds an unfinished build of another recipe: remove it or choose another folder"
        )
    kept.write_text(stated, encoding="utf-8")
    tokenizer, samples = read_all(recipe, workers, progress)
    model = tiny.build_model(tokenizer, recipe.shape, derive(recipe.seed, "weights") % 2**32)
    losses = sft.train(
        model,
        tokenizer,
        samples,
        recipe.weights,
        recipe.schedule,
        recipe.seed,
        work / "steps",
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
    (work / "metrics.json").write_text(json.dumps(metrics, indent=2), encoding="utf-8")
    dtype = torch.bfloat16 if model.num_parameters() > 1_000_000 else torch.float32
    model.to(dtype).save_pretrained(work)
    tokenizer.save_pretrained(work)
    shutil.rmtree(work / "steps", ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)
    work.rename(folder)
    return frame


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the base checkpoint from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.train.base", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--folder", type=Path, default=paths.HOME / "data" / "checkpoints" / "tiny-base")
    parser.add_argument("--workers", type=int, default=2, help="processes that write transcripts")
    parser.add_argument("--steps", type=int, default=None, help="fewer steps for a trial")
    parser.add_argument("--instances", type=int, default=None, help="fewer instances for a trial")
    given = parser.parse_args(arguments)
    recipe = BaseRecipe()
    changes = {} if given.instances is None else {"instances": given.instances}
    if given.steps is not None:
        changes["schedule"] = sft.Schedule(steps=given.steps)
    frame = build(BaseRecipe(**(changes)), given.folder, workers=given.workers)  # type: ignore[arg-type]
    print(frame.groupby(["family", "form"])["reward"].agg(["mean", "size"]).round(3).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
