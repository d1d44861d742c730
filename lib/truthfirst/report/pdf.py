"""The report as a PDF, set by Typst: a compiler in one pip wheel, with its fonts, without a browser or system library.

The document goes to templates/report.typ as JSON, so that no text of it is ever read as markup. Figures are SVG; their
letters are set in the fonts that matplotlib brings. No date is written, so that equal documents give equal bytes.

Source: Mädje and Haug, Typst (https://typst.app); typst-py binds it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib
import typst

from .blocks import Picture
from .document import Document
from .words import unbroken

TEMPLATE = Path(__file__).parent / "templates" / "report.typ"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
_BREAKS = re.compile(r"(?<=[-_=/.,])")  # where a long name may be broken
SOFT = "\u200b"


def render(document: Document) -> bytes:
    """Return the bytes of the PDF."""
    pictures = [b for section in document.sections for b in section.blocks if isinstance(b, Picture)]
    files = {f"{picture.name}.svg": picture.svg.read_bytes() for picture in pictures}
    sources: Any = {  # typst takes a dictionary of files; its type stubs do not say so
        "main.typ": TEMPLATE.read_bytes(),
        "document.json": json.dumps(plain(document), ensure_ascii=False).encode(),
        **files,
    }
    return bytes(typst.compile(sources, format="pdf", font_paths=[str(FONTS)], ignore_system_fonts=True))


def plain(document: Document) -> dict[str, Any]:
    """Return the document as JSON values; each block names its kind, and names of the code may be broken."""
    sections = [
        {
            "key": section.key,
            "title": section.title,
            "notebook": section.notebook,
            "blocks": [
                {"kind": type(block).__name__.lower(), **_block(asdict(block))} for block in section.blocks
            ],
        }
        for section in document.sections
    ]
    abstract = [asdict(told) | {"text": unbroken(told.text)} for told in document.abstract]
    return {
        "title": document.title,
        "lead": document.lead,
        "commit": document.commit,
        "abstract": abstract,
        "sections": sections,
    }


def _block(values: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in values.items() if not isinstance(value, Path)}
    if "text" in values:
        values["text"] = unbroken(values["text"])
    if "rows" in values:
        code = values["code"]
        values["rows"] = [
            [breakable(cell) if code[i] else cell for i, cell in enumerate(row)] for row in values["rows"]
        ]
        values["longest"] = [
            max(map(len, (name, *(row[i] for row in values["rows"]))))
            for i, name in enumerate(values["columns"])
        ]
    if "origin" in values:
        values["origin"] = breakable(values["origin"])
    return values


def breakable(text: str) -> str:
    """Return a long name with places where a line may end."""
    return _BREAKS.sub(SOFT, text)
