"""The report as one HTML file: figures within it, its own stylesheet, no request to anywhere, readable in print."""

from __future__ import annotations

import base64
import functools
from pathlib import Path

import jinja2

from .blocks import Paragraph, Picture, Table
from .document import Document
from .words import unbroken

TEMPLATES = Path(__file__).parent / "templates"
PIXELS_AN_INCH = 160  # of stored PNGs
SCREEN = 96  # CSS pixels an inch


def render(document: Document) -> str:
    """Return the HTML text; all texts are escaped, and equal documents give equal texts."""
    return _environment().get_template("report.html.j2").render(document=document)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"kind": kind, "embedded": embedded, "width": width, "unbroken": unbroken}
    return environment


def kind(block: Paragraph | Picture | Table) -> str:
    """Return what a block is, for the template."""
    return type(block).__name__.lower()


def embedded(path: Path) -> str:
    """Return a PNG as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def width(picture: Picture) -> int:
    """Return the width of a picture on the screen, in CSS pixels: its printed size."""
    return round(picture.size[0] * SCREEN / PIXELS_AN_INCH)
