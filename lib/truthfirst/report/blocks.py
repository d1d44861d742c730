"""What a document is made of: plain values that html.py and pdf.py set in type.

Every text is plain: whoever renders it escapes it. Files are named, not held.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; `missing` marks one that says what is not there, `head` opens it in bold."""

    text: str
    missing: bool = False
    head: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A stored figure.

    caption   one sentence, from the docstring of the function that draws it
    origin    where its data are, how many rows, which run made it
    size      width and height of the PNG in pixels
    """

    name: str
    caption: str
    origin: str
    png: Path
    svg: Path
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text cells; `numeric` says which columns are numbers, `code` which are names of the code."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    code: tuple[bool, ...]


Block = Paragraph | Picture | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A section with a key for links, a title, the notebook it follows (empty where none) and its blocks."""

    key: str
    title: str
    notebook: str
    blocks: tuple[Block, ...]


CODE = ("run", "content", "data", "parameters", "figure", "table", "package")


def table_of(title: str, frame: pd.DataFrame) -> Table:
    """Return a frame as a table: three decimals for scores, separators in counts, a dash where a value is missing."""
    columns = [_column(frame[name]) for name in frame.columns]
    return Table(
        title,
        tuple(str(name).replace("_", " ") for name in frame.columns),
        tuple(zip(*columns, strict=True)),
        tuple(bool(pd.api.types.is_numeric_dtype(frame[name])) for name in frame.columns),
        tuple(str(name) in CODE for name in frame.columns),
    )


def _column(values: pd.Series) -> list[str]:
    there = values.dropna()
    if pd.api.types.is_bool_dtype(values):
        return ["yes" if value else "no" for value in values]
    if pd.api.types.is_numeric_dtype(values):
        whole = bool((there % 1 == 0).all())
        return ["-" if pd.isna(value) else _number(float(value), whole) for value in values]
    return ["-" if pd.isna(value) else str(value) for value in values]


def _number(value: float, whole: bool) -> str:
    if whole or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
