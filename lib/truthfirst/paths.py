"""Where things lie: the repository that holds this package, or the folder named by TRUTHFIRST_HOME."""

from __future__ import annotations

import os
from pathlib import Path

HOME = Path(os.environ.get("TRUTHFIRST_HOME") or Path(__file__).resolve().parents[2])
CORPUS = HOME / "data" / "corpus"
RESULTS = HOME / "data" / "results"
FIGURES = HOME / "figures"
NOTEBOOKS = HOME / "notebooks"
RUNS = HOME / "papermill_runs"
