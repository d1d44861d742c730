"""A checkpoint under construction: its folder states the recipe, and takes the checkpoint's place when all is there.

work = begin(folder, recipe)             # folder.building, to be gone on with after an interruption
finish(folder, model, tokenizer, metrics)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..records import write_atomic

SAMPLES, STEPS = "samples.parquet", "steps"  # of a building folder; a finished one has neither
LARGE = 1_000_000  # parameters from which weights are kept in bfloat16


def building(folder: Path) -> Path:
    """Return where the checkpoint `folder` is built."""
    return folder.with_name(folder.name + ".building")


def begin(folder: Path, recipe: Any) -> Path:
    """Make the building folder and state the recipe, a dataclass, in it. ValueError where it holds another recipe."""
    work = building(folder)
    stated = json.dumps(asdict(recipe), indent=2)
    kept = work / "recipe.json"
    if kept.exists() and kept.read_text(encoding="utf-8") != stated:
        raise ValueError(
            f"{work} holds an unfinished build of another recipe: remove it or choose another folder"
        )
    write_atomic(kept, stated)
    return work


def finish(folder: Path, model: Any, tokenizer: Any, metrics: Mapping[str, Any]) -> None:
    """Keep weights, tokenizer and metrics, and let the built checkpoint take the place of an earlier one."""
    work = building(folder)
    write_atomic(work / "metrics.json", json.dumps(metrics, indent=2))
    torch.nn.Module.to(model, torch.bfloat16 if model.num_parameters() > LARGE else torch.float32)
    model.save_pretrained(work)
    tokenizer.save_pretrained(work)
    shutil.rmtree(work / STEPS, ignore_errors=True)
    (work / SAMPLES).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    work.rename(folder)
