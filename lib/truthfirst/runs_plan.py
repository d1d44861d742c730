"""Plans: what a run will do, checked in full before anything is written.

A plan is a notebook's text, its parameters (the given ones over the declared defaults) and the run's id. The id is the
notebook's name, the preset and what differs from the defaults in short, and a hash of name, all parameters, the
notebook's source (cells and tags, not outputs) and the code: this package's Python files and data/corpus/. An edited
notebook, library or corpus therefore gets a new run, and a result is never taken for one of newer code. Not in the
hash, but recorded with the run: versions of Python and packages, and the git commit. Files that a notebook reads from
data/results/ or from a corpus of the caller's own are in neither; use `--redo` after they change.

Parameters are the literals assigned in the notebook's cell tagged `parameters`, with papermill's meaning: the given
values are injected in a cell after it. Three names are checked here because a wrong value would waste a run:
`preset`, and `seed` (also `..._seed` and every number of `seeds`).
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from . import __version__, paths, presets
from .records import content_hash
from .runs import RunError
from .streams import check_seed

PACKAGE = Path(__file__).parent
MAX_LABEL = 60


@dataclass(frozen=True)
class Plan:
    """One run to do.

    run_id        name of the run's folder
    notebook      absolute path; the kernel works in its folder, as JupyterLab does
    source        the notebook as JSON text, as it was when the run was planned
    given         parameters to inject, typed
    parameters    all parameters: given over declared
    varied        names of those that differ from their defaults, the preset not counted; a study has none
    source_hash   of the notebook's cells
    code_hash     of the package and the corpus
    folder        papermill_runs/<run_id>, absolute
    """

    run_id: str
    notebook: Path
    source: str
    given: dict[str, Any]
    parameters: dict[str, Any]
    source_hash: str
    code_hash: str
    folder: Path
    varied: tuple[str, ...] = ()

    def documents(self) -> dict[str, Any]:
        """Return the JSON documents with which the run's folder appears, by file name."""
        seed = self.parameters.get("seed")
        run = {
            "run_id": self.run_id,
            "notebook": self.notebook.name,
            "given": self.given,
            "seed": seed,
            "source_hash": self.source_hash,
            "code_hash": self.code_hash,
        }
        return {"run.json": run, "parameters.json": self.parameters, "versions.json": versions()}


def plan_run(notebook: str | Path, given: Mapping[str, Any], code: str | None = None) -> Plan:
    """Plan a run of `notebook` (a path, or a name under notebooks/) with the given parameters.

    code   the code's hash where it is known already (`code_hash`)

    Raises RunError for a missing or unreadable notebook, a parameter that it does not declare or a value of another
    type; UnknownPreset; SeedError.
    """
    path = find_notebook(notebook)
    node = read_notebook(path)
    declared = declared_parameters(node, path.name)
    unknown = [name for name in given if name not in declared]
    if unknown:
        names = ", ".join(declared) or "none: it has no cell tagged 'parameters'"
        raise RunError(f"{path.name} declares no parameter {', '.join(unknown)}; it declares {names}")
    typed = {
        name: _placed(name, _fit(name, given[name], default))
        for name, default in declared.items()
        if name in given
    }
    parameters = declared | typed
    for name, value in parameters.items():
        _check_value(name, value)
    source_hash = content_hash(
        [
            [cell.cell_type, cell.source, sorted(cell.metadata.get("tags", []))]
            for cell in node.cells
            if cell.source.strip()
        ]
    )
    code = code or code_hash()
    identity = {"notebook": path.stem, "parameters": parameters, "source": source_hash, "code": code}
    varied = tuple(n for n, v in parameters.items() if n != "preset" and v != declared[n])
    telling = {n: v for n, v in parameters.items() if n == "preset" or n in varied}
    parts = (_slug(path.stem), label(telling), content_hash(identity, 12))
    run_id = "-".join(part for part in parts if part)
    source = nbformat.writes(node)
    folder = (paths.RUNS / run_id).absolute()
    return Plan(run_id, path, source, typed, parameters, source_hash, code, folder, varied)


def find_notebook(notebook: str | Path) -> Path:
    """Return the absolute path of a notebook named by path, or by its name or stem under notebooks/."""
    name = Path(notebook)
    for place in (name, paths.NOTEBOOKS / name):
        for path in (place, place.with_name(f"{place.name}.ipynb")) if place.name else ():
            if path.is_file():
                return path.absolute()
    known = ", ".join(path.stem for path in study_notebooks()) or "none"
    raise RunError(f"no notebook {str(notebook)!r} here or in {paths.NOTEBOOKS.name}/; there: {known}")


def study_notebooks() -> list[Path]:
    """Return the numbered notebooks of notebooks/, in order."""
    return sorted(paths.NOTEBOOKS.glob("[0-9]*.ipynb"))


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a notebook in format 4; raise RunError when the file is none."""
    try:
        node = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(node)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as error:
        reason = " ".join(str(error).split())[:120]
        raise RunError(f"{path.name} is not a notebook that can be read ({reason})") from error
    return node


def declared_parameters(node: nbformat.NotebookNode, name: str) -> dict[str, Any]:
    """Return the parameters that a notebook declares, with their defaults as JSON values.

    Raises RunError when the cell tagged `parameters` holds anything but assignments of literals, since only literals
    can be recorded with the run.
    """
    cells = [cell for cell in node.cells if "parameters" in cell.metadata.get("tags", [])]
    if not cells:
        return {}
    if len(cells) > 1:
        raise RunError(f"{name} has {len(cells)} cells tagged 'parameters': keep one")
    declared: dict[str, Any] = {}
    try:
        statements = ast.parse(cells[0].source).body
    except SyntaxError as error:
        raise RunError(f"{name}, parameters cell, line {error.lineno}: {error.msg}") from error
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=expression):
                pass
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as expression):
                pass
            case _:
                raise _not_literal(name, statement)
        try:
            value = ast.literal_eval(expression)
            declared[target] = json.loads(json.dumps(value, allow_nan=False))
        except (ValueError, TypeError, RecursionError) as error:
            raise _not_literal(name, statement) from error
    return declared


def _not_literal(name: str, statement: ast.stmt) -> RunError:
    text = ast.unparse(statement).splitlines()[0][:60]
    return RunError(
        f"{name}, parameters cell, line {statement.lineno}: {text!r} does not assign a literal to a name; "
        "derive values in the next cell"
    )


def _fit(name: str, value: Any, default: Any) -> Any:
    """Return a given value as the declared default's type has it; raise RunError when it cannot be."""
    try:
        value = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RunError(f"parameter {name} = {value!r}: give finite JSON values") from error
    if default is None or value is None:
        return value
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool):
        return value
    kind = {"str": "text", "int": "an integer", "float": "a number", "bool": "true or false"}
    expected = kind.get(type(default).__name__, f"a {type(default).__name__}")
    raise RunError(f"parameter {name} = {value!r}: expected {expected}, such as the default {default!r}")


FOLDERS = {"corpus": "texts", "policy": "a checkpoint"}  # parameters that name a folder of the caller's


def _placed(name: str, value: Any) -> Any:
    """Return a given value; a folder of the caller's as an absolute path, since the kernel works in another folder.

    A relative path is the caller's, ~ is the home folder. Raises RunError where there is no such folder.
    """
    if name not in FOLDERS or value is None or (name == "policy" and value == ""):
        return value
    if not isinstance(value, str) or not value.strip():
        raise RunError(f"parameter {name} = {value!r}: give the path of a folder with {FOLDERS[name]}")
    try:
        folder = Path(value).expanduser().absolute()
    except RuntimeError as error:  # ~ of a user who is not known here
        raise RunError(f"parameter {name} = {value!r}: {error}") from error
    if folder.is_file():
        raise RunError(f"parameter {name} = {value!r} is a file, not a folder")
    if not folder.is_dir():
        raise RunError(f"parameter {name} = {value!r}: there is no folder {folder}")
    return str(folder)


def _check_value(name: str, value: Any) -> None:
    """Check the parameters whose meaning is fixed; see the module docstring."""
    if name == "preset":
        presets.resolve(value)
    if name == "seed" or name.endswith("_seed"):
        if value is not None:
            check_seed(value)
    elif name == "seeds":
        for seed in value if isinstance(value, list) else [value]:
            check_seed(seed)


def label(parameters: Mapping[str, Any]) -> str:
    """Return parameters as a short piece of a folder name, such as `preset=cpu-seed=7`."""
    pieces = []
    for name, value in parameters.items():
        items = value if isinstance(value, list) else [value]
        if name in FOLDERS and isinstance(value, str) and value:
            items = [Path(value).name]  # where it lies is in the hash
        texts = [item if isinstance(item, str) else json.dumps(item) for item in items]
        pieces.append(f"{name}={_slug('+'.join(texts))[:24]}")
    return "-".join(pieces)[:MAX_LABEL].rstrip("-_.=+")


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.=+]+", "_", text).strip("_")


# --- what the code was ------------------------------------------------------------------------------------
def code_hash() -> str:
    """Return the hash of this package's Python files and of the corpus, names and contents."""
    files = {f"code/{f.relative_to(PACKAGE).as_posix()}": f for f in PACKAGE.rglob("*.py")}
    if paths.CORPUS.is_dir():
        for file in paths.CORPUS.rglob("*"):
            if file.is_file() and not file.name.startswith("."):
                files[f"corpus/{file.relative_to(paths.CORPUS).as_posix()}"] = file
    return content_hash([[name, content_hash(files[name].read_bytes())] for name in sorted(files)])


def versions() -> dict[str, Any]:
    """Return Python, platform, installed packages and the git commit (None outside a repository)."""
    packages = {dist.name: dist.version for dist in importlib.metadata.distributions()}
    return {
        "truthfirst": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": git_state(paths.HOME),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def git_state(home: Path) -> dict[str, Any] | None:
    """Return commit and whether files differ from it; None when `home` is not the root of a git work tree."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(home), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != home.resolve():
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
