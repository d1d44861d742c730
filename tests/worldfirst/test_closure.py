"""Role independence: the audit passes for every generator and fails when one role reaches another."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from truthfirst.worldfirst.closure import INDEPENDENT, LIBRARY, audit, behaving, closure
from truthfirst.worldfirst.generators import GENERATORS

FOLDER = "truthfirst/worldfirst/generators/warehouse"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the wing's sources, to plant faults in."""
    for path in (LIBRARY / "truthfirst" / "worldfirst").rglob("*.py"):
        target = tmp_path / path.relative_to(LIBRARY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copy(LIBRARY / "truthfirst" / "__init__.py", tmp_path / "truthfirst")
    return tmp_path


def plant(library: Path, name: str, line: str) -> None:
    path = library / FOLDER / f"{name}.py"
    path.write_text(path.read_text() + f"\n\n{line}\n")


@pytest.mark.parametrize("name", GENERATORS)
def test_roles_are_independent(name):
    assert audit(name) == ()


def test_a_closure_holds_what_importing_runs():
    found = closure("truthfirst.worldfirst.generators.warehouse.verifier")
    assert found == {
        "truthfirst",
        "truthfirst.worldfirst",
        "truthfirst.worldfirst.world",
        "truthfirst.worldfirst.generators",
        "truthfirst.worldfirst.generators.warehouse",
        "truthfirst.worldfirst.generators.warehouse.world",
        "truthfirst.worldfirst.generators.warehouse.verifier",
    }
    assert "truthfirst.worldfirst.verifier" not in found
    with pytest.raises(ModuleNotFoundError):
        closure("truthfirst.worldfirst.no_such")


def test_the_copy_is_clean(copied):
    assert audit("warehouse", copied) == ()


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(INDEPENDENT, 2)))
def test_one_role_importing_another_fails(copied, one, other):
    plant(copied, one, f"def late():\n    from .{other} import NOTHING\n")
    assert f"{one} imports {other}" in audit("warehouse", copied)


@pytest.mark.parametrize(
    ("plants", "message"),
    [
        (
            [
                ("helper", "def help(): ..."),
                ("verifier", "from . import helper"),
                ("progress", "from .helper import help"),
            ],
            "verifier and progress share truthfirst.worldfirst.generators.warehouse.helper",
        ),
        (
            [
                ("verifier", "from .render import render"),
                ("reference", "import truthfirst.worldfirst.tables"),
            ],
            "verifier and reference share truthfirst.worldfirst.tables",
        ),
        ([("world", "def total(): ...")], "which is more than types: function total"),
        ([("world", "class C:\n    def total(self):\n        x = 1\n        return x")], "method C.total"),
        ([("world", "TABLE = dict(a=1)")], "computed constant"),
        ([("__init__", "print(1)")], "statement on line"),
        ([("reference", "import importlib")], "imports importlib"),
        ([("progress", "exec('')")], "uses exec"),
        ([("alternative", "import sys\nsys.modules")], "sys.modules"),
    ],
)
def test_what_is_shared_and_back_doors_are_found(copied, plants, message):
    (copied / FOLDER / "helper.py").write_text("")
    for name, line in plants:
        plant(copied, name, line)
    assert any(message in problem for problem in audit("warehouse", copied)), audit("warehouse", copied)


def test_types_behave_in_no_way(tmp_path):
    assert behaving(LIBRARY / "truthfirst/worldfirst/world.py") is None
    assert behaving(LIBRARY / "truthfirst/worldfirst/tables.py") is not None
