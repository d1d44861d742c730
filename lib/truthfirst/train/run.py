"""A run of training that survives: checkpoints, resuming, and one command. `python -m truthfirst.train.run --help`

A run is a folder: `plan.json` (what it does), `metrics.parquet` (a row for each logged step), checkpoints by step and,
at the end, `model/`. A run that was killed at any moment goes on from its last whole checkpoint with `--resume`, and
its curve is that of an unbroken run to float accuracy: weights, optimizer, order of the data and every random draw are
as they would have been. What differs in `plan.json` is refused, except what changes no step (`FREE`).

    python -m truthfirst.train.run --model data/checkpoints/tiny-base --out runs/one -p credit=regret -p save_every=10
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from accelerate import PartialState

from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..records import RecordError, canonical_json, write_atomic
from .checks import SetupError, load_policy
from .environments import TaskError, task_set
from .history import read_history
from .plan import Plan, PlanError
from .presets import resolve

PLAN_FILE = "plan.json"
FREE = ("steps", "keep", "log_every", "report_to", "cpu")  # fields that a resumed run may change
WHOLE = (
    "*.safetensors",
    "optimizer*",
    "scheduler.pt",
    "rng_state*.pth",
)  # what a checkpoint has beside its state


class RunError(RuntimeError):
    """A run cannot begin or go on in this folder; the message says what to change."""


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint of a run that is whole: one that a kill left half-written is passed over."""
    found = [
        (int(path.name.rpartition("-")[2]), path)
        for path in Path(folder).glob("checkpoint-*")
        if path.name.rpartition("-")[2].isdigit()
    ]
    for step, path in sorted(found, reverse=True):
        try:  # the state is written last
            state = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if state.get("global_step") == step and all(any(path.glob(name)) for name in WHOLE):
            return path
    return None


def train(trainer: Any, *, resume: bool = False) -> pd.DataFrame:
    """Train to the end of the plan and return the metrics; with `resume`, from the last checkpoint if there is one.

    Raises RunError when the folder holds another run, or one that `resume` would be needed for.
    """
    folder = Path(trainer.args.output_dir)
    checkpoint = last_checkpoint(folder)
    _claim(folder, trainer.plan, checkpoint, resume)
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint and resume else None)
    finally:  # transformers leaves the bar of a run that was stopped open, and the next line would stand behind it
        for callback in trainer.callback_handler.callbacks:
            bar = getattr(callback, "training_bar", None)
            if bar is not None:
                bar.close()
    return read_history(folder)


def _claim(folder: Path, plan: Plan, checkpoint: Path | None, resume: bool) -> None:
    """Write what the run does, or compare it with what has been written."""
    path = folder / PLAN_FILE
    stated = json.loads(canonical_json(asdict(plan)))
    if checkpoint is not None and not resume:
        raise RunError(f"{folder} holds a run with {checkpoint.name}: resume it, or choose another folder")
    if checkpoint is not None and path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [name for name in stated if name not in FREE and before.get(name) != stated[name]]
        if changed:
            name = changed[0]
            raise RunError(
                f"{folder} was begun with {name} = {before.get(name)!r}, and is to be resumed with {stated[name]!r}: "
                "resume it as it was, or choose another folder"
            )
    write_atomic(path, json.dumps(stated, indent=2))


# --- the command ------------------------------------------------------------------------------------------
def read_plan(texts: Sequence[str], base: Plan | None = None) -> Plan:
    """Return the plan of `name=value` texts, the rest as in `base`; `options` are added to those of `base`.

    Raises PlanError for an unknown name, or a value that is no YAML.
    """
    known = {field.name for field in fields(Plan)}
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in known:
            raise PlanError(
                f"-p {text}: write it as name=value, with one of the names {', '.join(sorted(known))}"
            )
        try:
            given[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise PlanError(f"-p {text}: {value!r} is no YAML value ({error})") from error
    if base is None:
        return Plan(**given)
    if "options" in given:
        given["options"] = {**base.options, **given["options"]}
    return replace(base, **given)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.train.run", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--preset", help="of presets.py, for a GPU; what is given beside it comes first")
    parser.add_argument("--server", help="where a preset with a vLLM server finds it, http://HOST:PORT")
    parser.add_argument("--model", help="folder or hub name of the base checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--families", nargs="+", default=["rationing", "lot_sizing", "pricing"])
    parser.add_argument("--forms", nargs="+", default=["A"], help="F, I, A or several")
    parser.add_argument("--size", default="nano")
    parser.add_argument("--instances", type=int, default=1_000, help="of each family's train stream")
    parser.add_argument("--setter", default="terse", help="who words the environments: terse or template")
    parser.add_argument("-p", action="append", default=[], metavar="NAME=VALUE", help="a field of the plan")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.set_defaults(plan=None, peft_config=None)
    given = parser.parse_args(arguments)
    if given.preset:
        parser.set_defaults(**resolve(given.preset).defaults(given.server))
        given = parser.parse_args(arguments)
    elif not given.model:
        parser.error("give --model, or --preset")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Train from the command line."""
    try:
        given = _arguments(arguments)
        plan = read_plan(given.p, given.plan)
        with terminable():
            if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                PartialState()  # before the weights: where processes share them, only one a node reads them
            model, tokenizer = load_policy(given.model, plan.precision)
            from ..solvefirst.candidates import Recipe
            from .base import UNTOUCHED
            from .evaluate import instances
            from .grpo import Trainer
            from .recipes import open_recipe, recipe_keys

            drawn = instances(
                given.families,
                given.size,
                given.instances,
                split="train",
                seed=plan.seed,
                first=UNTOUCHED,
                setter=given.setter,
            )
            keys = recipe_keys([Recipe(**world.recipe) for world in drawn])
            tasks = task_set(keys, given.forms, open_recipe)
            trainer = Trainer(model, tokenizer, tasks, plan, given.out, peft_config=given.peft_config)
            history = train(trainer, resume=given.resume)
            trainer.save_model(str(given.out / "model"))
    except (PlanError, SetupError, TaskError, RunError, RecordError, ValueError, OSError) as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(STOPPED.replace("the same command", "the same command with --resume"), file=sys.stderr)
        return INTERRUPTED
    print(f"{len(history)} logged steps in {given.out / 'metrics.parquet'}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
