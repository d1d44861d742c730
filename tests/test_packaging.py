"""The repository is what the README says: the same pins twice, the fixed top level, stripped notebooks."""

from __future__ import annotations

import itertools
import json
import re
import tomllib

import pytest
import yaml

from truthfirst.paths import HOME

TOP = ("notebooks", "lib", "data", "figures", "environment.yml", "papermill_runs", "tests")


def pins(lines: list[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        if match := re.fullmatch(r"([A-Za-z0-9-]+)==([\w.]+)", line):
            found[match.group(1).lower()] = match.group(2)
    return found


def test_pyproject_and_environment_yml_hold_the_same_pins():
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = pins([*project["dependencies"], *extras["train"], *extras["dev"]])
    conda = yaml.safe_load((HOME / "environment.yml").read_text())["dependencies"]
    theirs = pins(next(part["pip"] for part in conda if isinstance(part, dict)))
    assert len(ours) > 20
    assert ours == theirs


def test_every_dependency_is_pinned():
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    for line in itertools.chain(project["dependencies"], *extras):
        assert "==" in line, f"{line} has no pin"


@pytest.mark.parametrize("name", TOP)
def test_the_fixed_top_level_stands(name):
    assert (HOME / name).exists()


def test_the_readme_shows_the_two_commands():
    text = (HOME / "README.md").read_text()
    assert "make study" in text
    assert "make test" in text


@pytest.mark.parametrize("path", sorted((HOME / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_are_thin_stripped_and_parametrised(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert cells[0]["cell_type"] == "markdown"
    assert "Question" in "".join(cells[0]["source"])
    assert code[0]["metadata"].get("tags") == ["parameters"]
    assert any("preset" in line for line in code[0]["source"])
    for cell in code:
        lines = "".join(cell["source"]).splitlines()
        assert len(lines) <= 25, f"{path.name}: a cell of {len(lines)} lines"
        assert not cell["outputs"]
        assert cell["execution_count"] is None
        assert not any(line.lstrip().startswith("def ") for line in lines)
        assert not any(re.match(r"from \S+ import \*", line) for line in lines)
    assert sum(len("".join(cell["source"]).splitlines()) for cell in code) <= 200
