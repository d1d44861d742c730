"""What a finished run publishes: its figures and their frames, from its own folder into the repository's.

While a run goes on, its figures and frames lie in its own folder alone (figures/ and results/ there), so that a run
that breaks changes nothing outside. When it has finished, a figure and its frame are copied to figures/ and
data/results/ if

- the run sets no parameter beside the preset: one that does is an exploration, and
- nothing is stored under the figure's name (and the preset is not `smoke`, whose few instances would pass for a study),
  or what is stored was drawn at the same preset.

What is not copied stays in the run's folder, and the table of runs says why. To have a figure stored at another preset,
remove its three files from figures/ first. Files are copied whole, the sidecar last, so that a sidecar never speaks of
a picture that is not there yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import paths
from .records import write_atomic

FIGURE_FOLDER, FRAME_FOLDER = "figures", "results"  # in a run's folder
TRIAL = "smoke"  # a preset that shows that everything runs
_PRESET = re.compile(r"-preset=([A-Za-z0-9_]+)-")


@dataclass(frozen=True, slots=True)
class Publication:
    """Names of the figures that a run publishes, and why others stay in its folder (empty when none does)."""

    names: tuple[str, ...] = ()
    kept: str = ""


def preset_of(sidecar: Mapping[str, Any]) -> str | None:
    """Return the preset at which a figure was drawn, from its parameters or its run's id; None where neither says."""
    parameters = sidecar.get("parameters")
    named = parameters.get("preset") if isinstance(parameters, Mapping) else None
    if isinstance(named, str):
        return named
    match = _PRESET.search(str(sidecar.get("run") or ""))
    return match[1] if match else None


def obstacle(figures: Path, name: str, preset: str | None) -> str | None:
    """Say why a figure of this preset may not take the place of the one stored in `figures`; None where it may."""
    sidecar = read_sidecar(figures / f"{name}.json")
    if sidecar is None:
        return None
    stored = preset_of(sidecar)
    if stored == preset:
        return None
    return f"the stored {name} is {_drawn(stored)}, this one is {_drawn(preset)}"


def _drawn(preset: str | None) -> str:
    return "not of a preset" if preset is None else f"of preset {preset}"


def read_sidecar(path: Path) -> dict[str, Any] | None:
    """Return a figure's sidecar; None when it is missing or damaged: drawing the figure again mends it."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def plan_publication(folder: Path, varied: Sequence[str], preset: str | None) -> Publication:
    """Say what the run in `folder` publishes once it has finished; nothing is written.

    varied   its parameters that differ from the notebook's defaults, the preset not counted
    """
    drawn = sorted(path.stem for path in (folder / FIGURE_FOLDER).glob("*.json"))
    if not drawn:
        return Publication()
    if varied:
        return Publication((), f"an exploration ({', '.join(varied)}): its figures stay in its folder")
    reasons = {name: obstacle(paths.FIGURES, name, preset) for name in drawn}
    if preset == TRIAL:
        empty = [name for name in drawn if not (paths.FIGURES / f"{name}.json").exists()]
        reasons |= {name: f"{name} is not stored yet, and {TRIAL} is for trying" for name in empty}
    kept = [reason for reason in reasons.values() if reason]
    more = f" (and {len(kept) - 1} more)" if len(kept) > 1 else ""
    return Publication(
        tuple(name for name, reason in reasons.items() if reason is None),
        f"{kept[0]}{more}: it stays in the run's folder" if kept else "",
    )


def publish_run(folder: Path, publication: Publication) -> None:
    """Copy a finished run's figures and frames to figures/ and data/results/. Raises OSError as the disk does."""
    for name in publication.names:
        frame = folder / FRAME_FOLDER / f"{name}.parquet"
        if frame.exists():
            write_atomic(paths.RESULTS / frame.name, frame.read_bytes())
        for suffix in ("png", "svg", "json"):
            source = folder / FIGURE_FOLDER / f"{name}.{suffix}"
            write_atomic(paths.FIGURES / source.name, source.read_bytes())
