"""Where things lie.

HOME is the repository that holds this package, or the folder named by TRUTHFIRST_HOME. What is written (runs,
figures, results) goes below HOME too, or below TRUTHFIRST_OUTPUT, so that a trial never overwrites stored results.
"""

from __future__ import annotations

import os
from pathlib import Path

HOME = Path(os.environ.get("TRUTHFIRST_HOME") or Path(__file__).resolve().parents[2])
OUTPUT = Path(os.environ.get("TRUTHFIRST_OUTPUT") or HOME)

CORPUS = HOME / "data" / "corpus"
NOTEBOOKS = HOME / "notebooks"
STORED = HOME / "data" / "results"

RESULTS = OUTPUT / "data" / "results"
FIGURES = OUTPUT / "figures"
RUNS = OUTPUT / "papermill_runs"
