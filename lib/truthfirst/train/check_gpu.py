"""Check the presets for GPUs as far as a machine without one can, and run ten steps where there is one.

    python -m truthfirst.train.check_gpu [NAME ...] [--steps 10]

The checks are those of `preset_checks.py`. What they cannot show is listed under the table, and is never counted as
checked.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace

import torch

from ..interrupts import INTERRUPTED, STOPPED
from ..paths import HOME
from .memory import estimate
from .preset_checks import CHECKS, NOT_CHECKED, examine
from .presets import PRESETS, Preset, UnknownPreset, resolve


def ten_steps(preset: Preset, steps: int) -> int:
    """Train a preset for a few steps on the cards of this machine, and return the exit code of its launch line."""
    brief = replace(preset, groups=preset.cards * max(1, 4 // preset.cards))
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(preset.launch())
        words[words.index("--out") + 1] = folder
        for field, value in (
            ("steps", steps),
            ("groups", brief.groups),
            ("accumulation", brief.accumulation),
            ("save_every", 0),
            ("report_to", "none"),
        ):
            words += ["-p", f"{field}={value}"]
        print(f"== {shlex.join(words)}", flush=True)
        return subprocess.run([*words, "--instances", "20"], cwd=HOME, check=False).returncode


def fitting(presets: Sequence[Preset]) -> Preset | None:
    """Return the first preset that the cards of this machine can run without a server, or None."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for preset in presets:
        if preset.vllm.mode == "colocate" and 0 < preset.cards <= cards:
            total = torch.cuda.get_device_properties(0).total_memory / 2**30
            if estimate(preset).peak < total:
                return preset
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Check from the command line; 0 where everything that could be checked is right."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.train.check_gpu", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="presets; all of them where none is named")
    parser.add_argument("--steps", type=int, default=10, help="to run where there is a GPU, 0 for none")
    given = parser.parse_args(arguments)
    try:
        chosen = [resolve(name) for name in given.names] or list(PRESETS.values())
        failed = 0
        for preset in chosen:
            print(f"{preset.name}: {preset.model.name} on {preset.cards} × {preset.card}", flush=True)
            for name, (passed, text) in examine(preset).items():
                failed += not passed
                print(f"  {'ok    ' if passed else 'FAILED'}  {name:<9}  {text}", flush=True)
    except UnknownPreset as error:
        print(f"check-gpu: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    print("what was checked:")
    for name, check in CHECKS.items():
        print(f"  {name:<9}  {check.__doc__}")
    usable = fitting(chosen) if given.steps else None
    print("not checked:" if usable is None else "not checked by this table:")
    for line in NOT_CHECKED:
        print(f"  {line}")
    if usable is None:
        print("no GPU here that a preset could run on: no steps were taken")
    elif ten_steps(usable, given.steps):
        failed += 1
        print(f"FAILED: {given.steps} steps of {usable.name} on this machine's cards")
    else:
        print(f"ok: {given.steps} steps of {usable.name} on this machine's cards")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
