"""One candidate's work: what the library hash covers, what rejects, what is measured."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from truthfirst.solvefirst import build_work
from truthfirst.solvefirst.build_work import (
    PACKAGE,
    BuildError,
    Job,
    imported_code,
    library_hash,
    work,
)
from truthfirst.solvefirst.candidates import SETTERS, Recipe, build_candidate
from truthfirst.solvefirst.realize.database import Ledger
from truthfirst.solvefirst.realize.setter import TemplateSetter
from truthfirst.solvefirst.realize.spec import SpecError
from truthfirst.solvefirst.solve import SolverError

RECIPE = Recipe("pricing", "nano", domain="dairy")
JOB = Job(("pricing", "nano", "ample"), RECIPE, "probe-all")


def test_the_library_hash_covers_what_a_candidate_needs(tmp_path):
    """Against a second method: the modules of ours that are really loaded in a process that does one job."""
    code = (
        "import sys; from truthfirst.solvefirst import build_work as b;"
        "from truthfirst.solvefirst.candidates import Recipe;"
        "b.work(b.Job(('pricing', 'nano', 'ample'), Recipe('pricing', 'nano'), 'probe-all'));"
        "print(*[m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'truthfirst'])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    files = {Path(name).resolve() for name in loaded.split() if name.endswith(".py")}
    assert {PACKAGE / "solvefirst" / "admit" / "gates.py", PACKAGE / "streams.py"} <= files
    covered = imported_code(PACKAGE / "solvefirst" / "build_work.py")
    empty = {
        file for file in files - covered if not ast.parse(file.read_text()).body[1:]
    }  # folders' own docstrings
    assert files - covered <= empty
    assert not {file.stem for file in covered} & {"build", "backends", "build_report", "figures"}


def test_imports_are_followed_through_folders_and_parents(tmp_path):
    package = tmp_path / "p"
    (package / "q").mkdir(parents=True)
    for name, text in {
        "a.py": "from .q import (b,\n c)\nimport json",
        "q/__init__.py": "",
        "q/b.py": "def f():\n    from ..d import x",
        "q/c.py": "from . import e as g",
        "q/e.py": "",
        "d.py": "from .a import y",
        "unused.py": "",
    }.items():
        (package / name).write_text(text)
    found = imported_code(package / "a.py")
    assert {file.relative_to(package).as_posix() for file in found} == {
        *("a.py", "d.py"),
        *("q/__init__.py", "q/b.py", "q/c.py", "q/e.py"),
    }


def test_the_library_hash_sees_code_passages_and_versions(tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.txt").write_text("one")
    hashes = {library_hash.__wrapped__(), library_hash.__wrapped__(str(own))}
    (own / "a.txt").write_text("two")
    hashes.add(library_hash.__wrapped__(str(own)))
    monkeypatch.setattr(build_work, "package_versions", lambda: {"numpy": "0"})
    hashes.add(library_hash.__wrapped__())
    monkeypatch.setattr(build_work, "imported_code", lambda start: {start})
    hashes.add(library_hash.__wrapped__())
    assert len(hashes) == 5
    assert library_hash.__wrapped__() in hashes


def test_an_admitted_candidate_says_what_it_is_and_what_it_took():
    record = work(JOB)
    assert record["gate"] is None
    assert record["u_zero"] < record["u_reach"] <= record["u_star"]
    environment = build_candidate(RECIPE)
    assert record["turns"] == record["decisions"] + len(environment.family.probe_keys(environment.theta))
    assert (record["dollars"], record["tokens"], record["spec"]) == (0.0, 0, None)
    assert record["cpu_seconds"] > 0
    assert record["key"] == JOB.key
    same = {name: value for name, value in work(JOB).items() if "seconds" not in name and name != "peak_mib"}
    assert same.items() <= record.items()


@pytest.mark.parametrize(
    ("error", "gate"),
    [(SpecError("columns must be unique"), "setter"), (SolverError("p", "highs", "Infeasible"), "solve")],
)
def test_an_unusable_spec_and_an_unproven_optimum_reject(monkeypatch, error, gate):
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(build_work, "build_candidate", fail)
    record = work(JOB)
    assert (record["gate"], record["evidence"], record["passed"]) == (gate, str(error), [])


def test_a_defect_ends_the_build_and_names_the_recipe(monkeypatch):
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(build_work, "build_candidate", fail)
    with pytest.raises(BuildError, match=r"family='pricing'.*ZeroDivisionError: by zero"):
        work(JOB)


def test_a_setter_that_costs_money_is_accounted_for(monkeypatch):
    class Paid(TemplateSetter):
        dollars, tokens = 0.0, 0

        def write(self, task, rng):
            self.dollars, self.tokens = 0.025, 1200
            return super().write(task, rng)

    monkeypatch.setitem(SETTERS, "template", Paid)
    record = work(JOB)
    assert (record["dollars"], record["tokens"]) == (0.025, 1200)


def test_work_leaves_no_episode_behind():
    """A build plays some sixty episodes a candidate; one kept database each would fill the memory."""
    work(JOB)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Ledger)]
