"""Real papermill executions of tiny notebooks: results, failures, kills, interrupts and rivals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import numpy as np
import pytest
from tiny import alive, lines, notebook, wait_for

from truthfirst import paths, runs, runs_execute
from truthfirst.runs import list_runs, read_run
from truthfirst.runs_cli import main
from truthfirst.runs_execute import execute
from truthfirst.runs_plan import plan_run


@pytest.mark.notebook
def test_a_run_holds_all_that_the_contract_names_and_is_not_repeated(home: Path) -> None:
    path = notebook(
        home,
        "01_small",
        "seed = 3\nrate = 1.0\nnames = ['a']",
        "import os\ntotal = seed * rate\nprint('working in', os.getcwd())",
        "from truthfirst.runs import current_run, record_metrics\n"
        "record_metrics(total=total, missing=float('nan'), names=names, run=current_run())",
    )
    plan = plan_run(path, {"rate": 2, "names": ["b", "c"]})
    assert execute(plan) == runs_execute.Outcome(plan, "finished")
    assert execute(plan) == runs_execute.Outcome(plan, "skipped")
    names = {file.name for file in plan.folder.iterdir()}
    assert names == {*runs.RESULT_FILES, "claim.json", "status.json", "log.txt"}
    run = read_run(plan.folder)
    assert run.metrics == {"total": 6.0, "missing": None, "names": ["b", "c"], "run": plan.run_id}
    parameters = json.loads((plan.folder / "parameters.json").read_text())
    assert parameters == {"seed": 3, "rate": 2.0, "names": ["b", "c"]}
    assert json.loads((plan.folder / "run.json").read_text())["seed"] == 3
    versions = json.loads((plan.folder / "versions.json").read_text())
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["packages"]["numpy"] == np.__version__
    assert versions["git"] is None
    assert f"working in {path.parent}" in (plan.folder / "log.txt").read_text()
    executed = nbformat.read(plan.folder / "executed.ipynb", as_version=4)
    assert [cell.metadata.tags for cell in executed.cells[:2]] == [["parameters"], ["injected-parameters"]]
    assert str(home) not in json.dumps(executed.metadata)
    timing = json.loads((plan.folder / "timing.json").read_text())
    assert len(timing["cells"]) == 4
    assert timing["seconds"] >= sum(timing["cells"]) > 0
    assert "TRUTHFIRST_RUN" not in os.environ


def test_threads_of_a_kernel_wait_asleep_unless_the_user_says_otherwise(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = runs.Claim(home / "run", "attempt")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with runs_execute._environment(mine, single_thread=False):
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with runs_execute._environment(mine, single_thread=False):
        assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.notebook
def test_a_study_ends_with_a_table_and_mends_only_what_is_broken(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(
        home,
        "01_good",
        "preset = 'cpu'",
        "import json\nfrom pathlib import Path\nfrom truthfirst.runs import current_run, record_metrics\n"
        "Path('../figures').mkdir()\n"
        "Path('../figures/curve.json').write_text(json.dumps({'run': current_run()}))\n"
        "record_metrics(finding='all well', gap=1 / 3, missing=None)",
    )
    notebook(home, "02_bad", "preset = 'cpu'", "open('needed.txt').read()")
    notebook(home, "draft", None, "raise AssertionError('a draft is no part of the study')")
    assert main(["study", "--preset", "smoke"]) == 1
    captured = capsys.readouterr()
    good, bad = list_runs()
    assert "cell [3]: FileNotFoundError: [Errno 2] No such file or directory: 'needed.txt'" in bad.reason
    assert bad.reason in " ".join(captured.out.split()) or bad.reason in captured.err
    for expected in ("finding = all well", "gap = 0.3333", "missing = -", good.run_id, "figures/curve.png"):
        assert expected in captured.out
    assert (
        "FileNotFoundError"
        in (bad.folder / "log.txt").read_text() + (bad.folder / "partial.ipynb").read_text()
    )
    assert "Traceback" not in captured.err
    (home / "notebooks" / "needed.txt").write_text("here")
    assert main(["study", "--preset", "smoke"]) == 0
    out = capsys.readouterr().out
    assert "finished before" in out
    assert [run.state for run in list_runs()] == ["finished", "finished"]
    assert [read_run(f).reason for f in (paths.RUNS / "aside").iterdir()] == [bad.reason]
    assert main(["status"]) == 0
    assert good.run_id in capsys.readouterr().out


@pytest.mark.notebook
def test_a_notebook_that_exits_early_or_loses_its_kernel_is_broken(home: Path) -> None:
    early = plan_run(notebook(home, "01_early", None, "import sys; sys.exit(0)", "raise ValueError"), {})
    assert "stopped early: cell 1 of 2" in execute(early).reason
    dead = plan_run(notebook(home, "02_dead", None, "import os; os.kill(os.getpid(), 9)"), {})
    assert "the kernel died" in execute(dead).reason
    assert [run.state for run in list_runs()] == ["broken", "broken"]


@pytest.mark.notebook
def test_a_killed_run_is_done_again_and_a_code_change_meanwhile_is_noted(
    home: Path, start: Callable[..., subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(
        home,
        "01_slow",
        "seed = 0",
        "import os, pathlib, time\n"
        "before = pathlib.Path('../started.txt').exists()\n"
        "with open('../started.txt', 'a') as out: out.write(f'{os.getpid()}\\n')\n"
        "time.sleep(0 if before else 600)",
        "pathlib.Path('../lib/truthfirst/edited.py').write_text('x = 1')",
    )
    started = home / "started.txt"
    first = start("01_slow", "-p", "seed=5")
    wait_for(lambda: lines(started))
    (run,) = list_runs()
    assert (run.state, run.reason) == ("running", f"process {first.pid} on {socket.gethostname()}")
    first.kill()
    first.communicate()
    (killed,) = list_runs()
    assert (killed.state, killed.reason) == ("broken", f"{run.reason} ended without a final status")
    assert main(["01_slow", "-p", "seed=5"]) == 0
    assert "the code was edited meanwhile" in " ".join(capsys.readouterr().out.split())
    (done,) = list_runs()
    assert (done.run_id, done.state, done.library_changed) == (run.run_id, "finished", True)
    (aside,) = (paths.RUNS / "aside").iterdir()
    assert json.loads((aside / "status.json").read_text()) == {"state": "broken", "reason": killed.reason}
    wait_for(lambda: not alive(int(lines(started)[0])), 10)  # the orphaned kernel has gone


@pytest.mark.notebook
def test_an_interrupted_grid_goes_on_and_rivals_share_it(
    home: Path, start: Callable[..., subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(
        home,
        "01_cell",
        "seed = 0\nkind = ''",
        "import os, pathlib, time\nfrom truthfirst.runs import record_metrics\n"
        "with open('../started.txt', 'a') as out: out.write(f'{seed}\\n')\n"
        "while seed > 1 and not pathlib.Path(f'../go{seed}').exists(): time.sleep(0.05)",
        "from truthfirst import paths\n"
        "record_metrics(threads=os.environ['OMP_NUM_THREADS'], home=str(paths.HOME))",
    )
    (home / "grid.yaml").write_text(
        "notebook: 01_cell\nworkers: 2\nproduct: {seed: [1, 2, 3]}\ncells: [{seed: 1, kind: ''}]\n"
    )
    first = start("grid", "grid.yaml")
    wait_for(lambda: sorted(lines(home / "started.txt")) == ["1", "2", "3"])
    wait_for(lambda: any(run.state == "finished" for run in list_runs()))
    first.send_signal(signal.SIGINT)
    out, err = first.communicate()
    assert (first.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped; the same command goes on where this one ended"
    wait_for(lambda: [run.state for run in list_runs()].count("broken") == 2)
    rival = start("grid", "grid.yaml", "--workers", "1")
    wait_for(lambda: len(lines(home / "started.txt")) == 4)  # it waits in the cell of seed 2
    (home / "go3").write_text("")
    capsys.readouterr()
    assert main(["grid", str(home / "grid.yaml"), "--workers", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "finished before" in out
    assert f"process {rival.pid} on" in out
    (home / "go2").write_text("")
    out, err = rival.communicate()
    assert (rival.returncode, "Traceback" in err) == (0, False)
    assert sorted(lines(home / "started.txt")) == ["1", "2", "2", "3", "3"]
    assert [run.state for run in list_runs()] == ["finished"] * 3
    (quick,) = (run for run in list_runs() if "-seed=1-" in run.run_id)
    assert quick.metrics == {"threads": "1", "home": str(home)}


def test_what_broke_a_run_is_one_line_that_ends_with_a_word() -> None:
    said = runs_execute.describe(RuntimeError("there is no 'stepz':\n  choose among " + "alphabet " * 200))
    assert said.startswith("RuntimeError: there is no 'stepz': choose among alphabet")
    assert said.endswith(" alphabet ... (whole in partial.ipynb)")
    assert len(said) <= runs_execute.REASON
    assert runs_execute.describe(ValueError("short")) == "ValueError: short"
