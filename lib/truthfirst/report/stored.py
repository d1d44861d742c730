"""What the report reads: stored frames by name.

Frames are read once each. A frame that is absent or damaged is None here: whoever needs it says "not run yet" or
"cannot be read".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from .. import paths
from ..records import RecordError

Frames = Callable[[str], pd.DataFrame | None]


def stored_frames(folder: Path | None = None) -> Frames:
    """Return a function from a name to its stored frame: None where the file is missing, RecordError if damaged."""
    folder = folder or paths.RESULTS

    @functools.cache
    def read(name: str) -> pd.DataFrame | None:
        for suffix, reader in ((".parquet", pd.read_parquet), (".csv", pd.read_csv)):
            file = folder / f"{name}{suffix}"
            if file.exists():
                try:
                    frame = reader(file)
                except (OSError, ValueError) as error:
                    why = " ".join(str(error).split())[:80]
                    raise RecordError(
                        f"{file.name} is damaged ({why}): restore it, or run its study again"
                    ) from error
                return frame if len(frame) else None
        return None

    return read


def given_frames(frames: Mapping[str, pd.DataFrame]) -> Frames:
    """Return the same function over frames at hand."""
    return lambda name: frames.get(name)


def frame_of(frames: Frames, name: str) -> pd.DataFrame:
    """Return a frame that a finding needs; KeyError where it is absent."""
    frame = frames(name)
    if frame is None:
        raise KeyError(name)
    return frame
