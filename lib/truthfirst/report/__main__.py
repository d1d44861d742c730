"""Write the report: `python -m truthfirst.report [--out FOLDER]`, or `make report`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import paths
from ..records import RecordError, write_atomic
from . import html
from .document import build

NAME = "report"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write report.html and report.pdf; return 1 where one could not be written."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.report",
        description="Make one HTML file and one PDF of the stored results, without a model and without a GPU.",
        epilog="Exit codes: 0 both are written, 1 one could not be written.",
    )
    parser.add_argument(
        "--out", type=Path, default=paths.OUTPUT / NAME, metavar="FOLDER", help="default: report/"
    )
    options = parser.parse_args(arguments)
    try:
        document = build()
        page = options.out / f"{NAME}.html"
        write_atomic(page, html.render(document))
        print(f"{page}: {len(document.abstract)} findings, {len(document.sections)} sections")
        from . import pdf  # a report in HTML needs no Typst

        sheet = page.with_suffix(".pdf")
        write_atomic(sheet, pdf.render(document))
        print(sheet)
    except ImportError as error:
        print(f"error: no PDF, since {error.name} is not installed: make setup", file=sys.stderr)
        return 1
    except (
        OSError,
        RuntimeError,
        RecordError,
    ) as error:  # Typst reports a page that it cannot set as a RuntimeError
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
