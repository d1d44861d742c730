"""Findings on worlds: the eight gates over seeds, sizes and costs of an instance. See findings.py for the rules."""

from __future__ import annotations

from .findings import Finding
from .stored import Frames, frame_of, sources
from .words import ELSEWHERE, count, plural, share, small


def certified(frames: Frames) -> str:
    rows = frame_of(frames, "worlds")
    clean = rows["failed"].map(len) == 0
    made = rows[clean]
    told = sources()["tev_gym"]
    seconds = made[["make_seconds", "reference_seconds", "alternative_seconds", "gates_seconds"]].sum(axis=1)
    return (
        f"{count(clean.sum())} of {plural(len(rows), 'world')} ({plural(rows['generator'].nunique(), 'generator')}, "
        f"{plural(rows['tier'].nunique(), 'tier')}) pass every gate ({share(clean.mean())}). The median instance has "
        f"{small(float(made['files'].median()))} files and {small(float(made['bytes'].median()))} bytes and costs "
        f"{small(float(seconds.median()))} CPU seconds with both solvers and all gates; Tev-Gym states "
        f"{small(told['files_median'])} files, {small(told['bytes_median'])} bytes and "
        f"{small(told['seconds_median'])} seconds ({ELSEWHERE})."
    )


FINDINGS = (
    Finding(
        "certified",
        "worlds",
        "Worlds pass every gate",
        ("worlds",),
        "python -m truthfirst.worldfirst.certify",
        certified,
    ),
)
