"""The grader that travels with an exported task: a workspace in, one reward file out.

    reward   1 where the strict verifier accepts what lies under output/, else 0
    phi      the progress potential Phi of the workspace, in [0, 1]

The rollout return is R = reward + lambda phi, lambda = 1/4. The workspace is read by the same bounded scan as in this
package's own episodes; what the scan refuses, and a workspace that is gone, is worth 0 and 0. An exception out of a
verifier or a scorer is a defect of ours: it is raised and no reward file is written.

It runs from a copy of the modules that it imports, with the packages that these need (`vendor.py` lists both).
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..worldfirst.progress import potential
from ..worldfirst.scan import Bounds, Scan, scan_folder
from .sealed import decode

REWARD_FILE = "reward.json"
ROLES = ("world", "verifier", "progress")


def role_modules(generator: str) -> tuple[str, ...]:
    """Return the names of a generator's modules that a grader imports, in the order of ROLES."""
    wing = f"{__package__.rpartition('.')[0]}.worldfirst"
    return tuple(f"{wing}.generators.{generator}.{role}" for role in ROLES)


@dataclass(frozen=True, slots=True)
class Reward:
    """What a workspace is worth, and what the verifier said to it."""

    reward: int
    phi: Fraction
    components: dict[str, bool]
    reasons: tuple[str, ...]


def grade(task: dict[str, Any], scan: Scan) -> Reward:
    """Grade what a scan found; `task` is the content of sealed.json."""
    if scan.problem is not None:
        return Reward(0, Fraction(0), {}, (scan.problem,))
    world, verifier, progress = map(importlib.import_module, role_modules(task["generator"]))
    sealed = decode(task["sealed"], world)
    verdict = verifier.verifier(sealed)(scan.files)
    phi = potential(progress.NODES, progress.scorer(sealed)(scan.files))
    return Reward(int(verdict.passed), phi, verdict.components, verdict.reasons)


def scanned(workspace: Path, bounds: Bounds) -> Scan:
    """Scan a workspace, which may be gone."""
    try:
        return scan_folder(workspace, bounds)
    except OSError as error:
        return Scan({}, f"the workspace cannot be opened ({error.strerror})")


def main(workspace: str, sealed: str, logs: str) -> None:
    """Grade a workspace folder, print the verdict and write the reward file into the folder `logs`."""
    task = json.loads(Path(sealed).read_text(encoding="utf-8"))
    found = grade(task, scanned(Path(workspace), Bounds(**task["bounds"])))
    told = {
        "task": task["task"],
        "phi": str(found.phi),
        "components": found.components,
        "reasons": [reason[:300] for reason in found.reasons[:8]],
    }
    print(json.dumps(told, indent=1, ensure_ascii=True))
    folder = Path(logs)
    folder.mkdir(parents=True, exist_ok=True)
    reward = json.dumps({"reward": found.reward, "phi": float(found.phi)})
    (folder / REWARD_FILE).write_text(f"{reward}\n", encoding="utf-8")
