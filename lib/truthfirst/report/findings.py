"""Findings: each a function from stored frames to sentences whose every number is computed.

A finding is registered in a FINDINGS table of its file, findings_*.py; the abstract of the report tells all of them in
the order of FINDINGS here. To add one, write `def name(frames: Frames) -> str` beside its kin and add one line:

    Finding("name", "section", "What it is about", ("stored_frame",), "command that stores it", name)

Rules that a test keeps: no digit in a text of these files; a number reaches a sentence through a format only, and a
published figure through `sources.published`. Verbs of comparison come from `words.moves` or `words.compared`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from .stored import Frames

State = Literal["found", "not run", "unreadable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What can be said of some stored frames.

    section   key of the section it belongs to (`sections.SECTIONS`)
    needs     stored frames without which it is "not run yet"
    command   what stores them
    say       frames -> sentences; None where the frames hold nothing of it yet
    """

    name: str
    section: str
    title: str
    needs: tuple[str, ...]
    command: str
    say: Callable[[Frames], str | None]


@dataclass(frozen=True, slots=True)
class Told:
    """A finding as the report prints it."""

    name: str
    section: str
    title: str
    text: str
    state: State


def tell(finding: Finding, frames: Frames) -> Told:
    """Compute one finding; a frame that is missing, damaged or of another shape is said, not raised."""
    try:
        lacking = [name for name in finding.needs if frames(name) is None]
        text = None if lacking else finding.say(frames)
    except (
        OSError,
        RuntimeError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
    ) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"The stored rows do not fit ({reason}). Store them again: {finding.command}"
        return Told(finding.name, finding.section, finding.title, text, "unreadable")
    if text is None:
        said = f"Not run yet. To run it: {finding.command}"
        return Told(finding.name, finding.section, finding.title, said, "not run")
    return Told(finding.name, finding.section, finding.title, text, "found")


def tell_all(findings: Iterable[Finding], frames: Frames) -> tuple[Told, ...]:
    """Compute findings in their order."""
    return tuple(tell(finding, frames) for finding in findings)
