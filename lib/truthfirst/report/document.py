"""The document: findings first, then a section a notebook with findings, figures and tables, grids and provenance.

A figure is taken from figures/ when its sidecar names the content of the stored frame; otherwise it is drawn again
first, so that no picture is older than its data. Figures are sorted into sections by PLACES; whoever
registers one in `figures.FIGURES_BY_NAME` finds it here, in the last of them if nothing places it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import matplotlib.image
import pandas as pd

from .. import figures, paths
from ..runs import RunRecord, list_runs
from ..runs_publish import read_sidecar
from . import (
    findings_benchmarks,
    findings_environments,
    findings_policies,
    findings_studies,
    findings_worlds,
)
from .blocks import Block, Paragraph, Picture, Section, table_of
from .findings import Finding, Told, tell_all
from .grids import grid_blocks
from .provenance import commit, figure_rows, maker, stored_rows, version_rows
from .stored import Frames, stored_frames
from .tables import TABLES, Summary
from .words import INTERVAL, count, plural

TITLE = "truthfirst: environments whose truth is made before the environment"
FINDINGS: tuple[Finding, ...] = (
    *findings_environments.FINDINGS,
    *findings_policies.FINDINGS,
    *findings_environments.SPEED,
    *findings_benchmarks.FINDINGS,
    *findings_worlds.FINDINGS,
    *findings_studies.FINDINGS,
)
SECTIONS: dict[str, tuple[str, str, str]] = {  # key -> title, notebook, what it asks
    "mechanisms": (
        "Mechanisms",
        "01_mechanisms",
        "What is decided before there is any environment, and how much is there to win?",
    ),
    "environments": (
        "Environments",
        "02_environments",
        "What does an agent meet, and how is it known that it meets the truth?",
    ),
    "comparisons": (
        "Comparisons",
        "03_comparisons",
        "Where is a score lost: in what a policy does not know, in how it plans, or in carrying the plan through?",
    ),
    "training": (
        "Training",
        "04_training",
        "Does reinforcement learning on environments whose optimum is known close the gap between knowing and acting?",
    ),
    "transfer": (
        "Transfer",
        "05_transfer",
        "What does training on a few families do to the families that it never saw?",
    ),
    "strata": ("Strata", "06_strata", "What is a gain made of, and where in an episode does it arise?"),
    "scaling": (
        "Scaling",
        "07_scaling",
        "What grows with the size of an instance, and what does training do there?",
    ),
    "ablations": ("Ablations", "08_ablations", "Which part of the training is the gain owed to?"),
    "store": (
        "Store",
        "09_store",
        "How much of a proven bound does a manager earn in a store that runs for a year?",
    ),
    "worlds": ("Worlds", "10_worlds", "Which latent worlds are there, and which gates do they pass?"),
    "external": (
        "External benchmarks",
        "",
        "Which suites of other groups run here, and what do the scripted ends of their scale score?",
    ),
    "further": ("Further studies", "", "What else is stored."),
    "grids": ("Grids and runs", "", "Every stored training cell and every finished run of this checkout."),
}
PLACES = {  # name of a figure, else the file that draws it -> section
    "transfer": "transfer",
    "competence": "transfer",
    "scaling": "scaling",
    "scaling_policies": "scaling",
    "figures": "environments",
    "figures_mechanisms": "mechanisms",
    "figures_solvers": "mechanisms",
    "figures_admission": "environments",
    "figures_corpus": "environments",
    "figures_setters": "environments",
    "figures_comparison": "comparisons",
    "figures_generation": "training",
    "figures_training": "training",
    "figures_strata": "strata",
    "figures_ablations": "ablations",
    "figures_store": "store",
    "figures_worlds": "worlds",
    "figures_worlds_training": "worlds",
}


@dataclass(frozen=True, slots=True)
class Document:
    """The whole report: abstract (findings in order), sections, and the commit it was made at (a dash if unknown)."""

    title: str
    lead: str
    abstract: tuple[Told, ...]
    sections: tuple[Section, ...]
    commit: str


def build(
    frames: Frames | None = None,
    records: Sequence[RunRecord] | None = None,
    findings: Iterable[Finding] = FINDINGS,
    tables: Iterable[Summary] = TABLES,
    names: Sequence[str] | None = None,
) -> Document:
    """Make the document of what is stored.

    frames    name -> stored frame (default: data/results/)
    records   papermill runs (default: those of this checkout)
    names     figures to show (default: all that are registered)
    """
    frames = frames or stored_frames()
    names = tuple(figures.FIGURES_BY_NAME) if names is None else tuple(names)
    states = {name: refresh(name, frames) for name in names}
    told = tell_all(findings, frames)
    tables = tuple(tables)
    runs = list_runs() if records is None else records
    extra = {"grids": grid_blocks(frames, runs)}
    sections = [
        _section(
            key,
            told,
            states,
            [*_tables(key, tables, frames), *extra.get(key, ())],
        )
        for key in SECTIONS
    ]
    sections.append(_provenance(names))
    found = [finding for finding in told if finding.state == "found"]
    waiting = len(told) - len(found)
    lead = (
        f"{plural(len(found), 'finding')}, each computed from the stored results; {count(waiting)} more wait for runs "
        f"that are not stored. Brackets hold the {INTERVAL}; n counts what was resampled. Numbers of other systems "
        "are those they published, from other experiments; they stand beside and are never mixed in."
    )
    return Document(TITLE, lead, told, tuple(section for section in sections if section.blocks), commit())


# --- figures ----------------------------------------------------------------------------------------------
def refresh(name: str, frames: Frames) -> str:
    """Draw a figure again unless it stands in figures/ for the stored frame; return "" or why there is none."""
    try:
        frame = frames(name)
    except (OSError, ValueError) as error:
        return (
            f"{figures.FAILED}: {name}.parquet cannot be read ({type(error).__name__}); run its study again"
        )
    sidecar = read_sidecar(paths.FIGURES / f"{name}.json")
    there = all((paths.FIGURES / f"{name}.{suffix}").exists() for suffix in ("png", "svg"))
    if frame is not None and there and sidecar and sidecar.get("content") == figures.frame_hash(frame):
        return ""
    done = figures.redraw([name])[name]
    return "" if done == "drawn" else done


def section_of(name: str) -> str:
    """Return the section of a figure, by its name or by the file that draws it; "further" where neither is placed."""
    file = figures.FIGURES_BY_NAME[name].__module__.rpartition(".")[2]
    return PLACES.get(name) or PLACES.get(file, "further")


def caption(name: str) -> str:
    """Return a figure's caption: the first line of the docstring of the function that draws it."""
    text = (inspect.getdoc(figures.FIGURES_BY_NAME[name]) or name).splitlines()[0]
    return text if text.endswith(".") else f"{text}."


def picture(name: str) -> Picture:
    """Return a stored figure with its caption and origin."""
    sidecar = read_sidecar(paths.FIGURES / f"{name}.json") or {}
    png = paths.FIGURES / f"{name}.png"
    height, width = matplotlib.image.imread(png).shape[:2]
    rows = sidecar.get("rows")
    origin = f"data/results/{name}.parquet, {count(rows or 0)} rows; made by {maker(sidecar)}"
    return Picture(name, caption(name), origin, png, png.with_suffix(".svg"), (int(width), int(height)))


# --- sections ---------------------------------------------------------------------------------------------
def _section(key: str, told: Sequence[Told], states: dict[str, str], tables: Sequence[Block]) -> Section:
    title, notebook, question = SECTIONS[key]
    drawn: list[Block] = [
        Paragraph(f"Figure {name}: {why}", missing=True) if why else picture(name)
        for name, why in states.items()
        if section_of(name) == key
    ]
    said = [Paragraph(one.text, one.state != "found", one.title) for one in told if one.section == key]
    if not (drawn or said or tables):
        return Section(key, title, notebook, ())
    return Section(key, title, notebook, (Paragraph(question), *said, *drawn, *tables))


def _tables(key: str, tables: Sequence[Summary], frames: Frames) -> list[Block]:
    return [block for summary in tables if summary.section == key for block in _table(summary, frames)]


def _table(summary: Summary, frames: Frames) -> list[Block]:
    """Return a summary table; nothing where its frames are not stored, a line where they do not fit."""
    try:
        if any(frames(name) is None for name in summary.needs):
            return []
        frame = summary.build(frames)
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        return [
            Paragraph(
                f"Table {summary.title}: the stored rows do not fit ({type(error).__name__})", missing=True
            )
        ]
    return [table_of(summary.title, frame)] if len(frame) else []


def _provenance(names: Sequence[str]) -> Section:
    parts: list[tuple[str, pd.DataFrame]] = [
        ("Figures", figure_rows(names)),
        ("Stored tables (data/results), with the hash of the file", stored_rows()),
        ("Versions", version_rows()),
    ]
    blocks = [table_of(title, frame) for title, frame in parts if len(frame)]
    said = Paragraph(
        "A run id names a folder in papermill_runs, whose hash covers notebook, parameters and code. "
        "make figures draws every figure again from these tables, without a model and without a GPU."
    )
    return Section("provenance", "Provenance", "", (said, *blocks))
