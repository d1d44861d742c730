"""One candidate's work and the store: what the library hash covers, what rejects, what is kept."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

from truthfirst.records import append_jsonl, read_jsonl
from truthfirst.solvefirst import build_work
from truthfirst.solvefirst.build_work import PACKAGE, SOURCES, BuildError, Job, Store, library_hash, work
from truthfirst.solvefirst.candidates import Recipe
from truthfirst.solvefirst.realize.database import Ledger
from truthfirst.solvefirst.realize.spec import SpecError
from truthfirst.solvefirst.solve import SolverError

RECIPE = Recipe("pricing", "nano", domain="dairy")
JOB = Job(("pricing", "nano", "ample"), RECIPE, "probe-all")


def closure(name: str) -> set[str]:
    """Return the package's own modules that a module imports, however far down, as paths relative to it."""
    seen: set[str] = set()
    todo = [PACKAGE / name]
    while todo:
        file = todo.pop()
        relative = file.relative_to(PACKAGE).as_posix()
        if relative in seen:
            continue
        seen.add(relative)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = file.parents[node.level - 1]
                target = base / Path(*node.module.split(".")) if node.module else base
                for candidate in (target, *(target / alias.name for alias in node.names)):
                    todo += [
                        f for f in (candidate.with_suffix(".py"), candidate / "__init__.py") if f.is_file()
                    ]
    return seen


def test_the_library_hash_covers_everything_that_the_work_imports():
    """Left out are what cannot change a record: folders' own __init__, paths, and the version string."""
    allowed = {"__init__.py", "paths.py", "solvefirst/__init__.py"}
    covered = {
        file.relative_to(PACKAGE).as_posix()
        for name in SOURCES
        for file in ([PACKAGE / name] if name.endswith((".py", ".json")) else (PACKAGE / name).rglob("*.py"))
    }
    reached = closure("solvefirst/build_work.py")
    assert {"solvefirst/admit/gates.py", "solvefirst/families/search.py", "streams.py"} <= reached
    assert reached - covered - allowed - {"solvefirst/admit/__init__.py"} == set()


def test_the_library_hash_sees_code_passages_and_versions(tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.txt").write_text("one")
    hashes = {library_hash.__wrapped__(), library_hash.__wrapped__(str(own))}
    (own / "a.txt").write_text("two")
    hashes.add(library_hash.__wrapped__(str(own)))
    monkeypatch.setattr(build_work, "package_versions", lambda: {"numpy": "0"})
    hashes.add(library_hash.__wrapped__())
    monkeypatch.setattr(build_work, "SOURCES", SOURCES[1:])
    hashes.add(library_hash.__wrapped__())
    assert len(hashes) == 5


def test_an_admitted_candidate_says_what_it_is_and_what_it_took():
    record = work(JOB)
    assert record["gate"] is None
    assert record["u_zero"] < record["u_reach"] <= record["u_star"]
    assert record["turns"] == record["decisions"] + 5
    assert (record["dollars"], record["tokens"], record["spec"]) == (0.0, 0, None)
    assert 0 < record["cpu_seconds"]
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
    class Paid(type(build_work.SETTERS["template"]())):  # type: ignore[misc]
        dollars, tokens = 0.0, 0

        def write(self, task, rng):
            self.dollars, self.tokens = 0.025, 1200
            return super().write(task, rng)

    monkeypatch.setitem(build_work.SETTERS, "template", Paid)
    record = work(JOB)
    assert (record["dollars"], record["tokens"]) == (0.025, 1200)


def test_work_leaves_no_episode_behind():
    """A build plays some sixty episodes a candidate; one kept database each would fill the memory."""
    work(JOB)
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Ledger)]


def test_the_store_keeps_what_carries_its_hash_and_cuts_a_torn_line(tmp_path):
    path = tmp_path / "store.jsonl"
    for key, code in (("a", "old"), ("b", "new")):
        append_jsonl(path, {"key": key, "code": code})
    with open(path, "ab") as file:
        file.write(b'{"key": "c", "co')
    store = Store(path, "new")
    assert (list(store.records), store.stale, store.torn) == (["b"], 1, True)
    store.add({"key": "d", "code": "new", "worker": "w"})
    assert [record["key"] for record in read_jsonl(path)] == ["a", "b", "d"]
    assert list(Store(path, "new").records) == ["b", "d"]
    assert not Store(path, "new").torn


def test_a_record_of_a_node_with_other_code_is_refused(tmp_path):
    store = Store(tmp_path / "store.jsonl", "ours")
    with pytest.raises(BuildError, match="worker far:1 runs another library"):
        store.add({"key": "a", "code": "theirs", "worker": "far:1"})
    assert not (tmp_path / "store.jsonl").exists()
