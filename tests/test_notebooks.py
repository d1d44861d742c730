"""Every notebook runs at preset "smoke" and records its metrics; nothing is written outside the run's own output."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from truthfirst.paths import NOTEBOOKS

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb"))


@pytest.mark.notebook
@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_runs_at_smoke(name, tmp_path):
    command = [sys.executable, "-m", "truthfirst.runs", name, "-p", "preset=smoke"]
    environment = os.environ | {"TRUTHFIRST_OUTPUT": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (run,) = [p for p in (tmp_path / "papermill_runs").iterdir() if p.name.startswith(name)]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    drawn = list((run / "figures").glob("*.png"))
    assert drawn
    assert not (tmp_path / "figures").exists()  # a trial fills no empty place
    assert (run / "executed.ipynb").read_text().count('"image/png"') >= len(drawn)  # a reader sees them
    for figure in drawn:
        assert json.loads(figure.with_suffix(".json").read_text())["run"] == run.name
