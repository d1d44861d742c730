"""What the grader of a task needs from us: modules of this package, and packages from the registry.

Both come from walking imports (`worldfirst/closure.py`): the grader, and the verifier, progress and world of one
generator, with all that they import. So a task carries neither a solver nor a sampler among its tests. Packages are
pinned to the versions that are installed here.
"""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path

from ..worldfirst.closure import LIBRARY, PACKAGE, closure
from . import grader


def sources(generator: str) -> dict[str, bytes]:
    """Return the modules that travel: path below the folder that holds the package -> source."""
    names = set(closure(grader.__name__))
    for module in grader.role_modules(generator):
        names |= closure(module)
    return {path.relative_to(LIBRARY).as_posix(): path.read_bytes() for path in sorted(map(_file, names))}


def _file(module: str) -> Path:
    base = LIBRARY.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def packages(files: dict[str, bytes]) -> dict[str, str]:
    """Return the packages of the registry that some modules import -> the version installed here.

    Raises importlib.metadata.PackageNotFoundError where one is not installed under the name it is imported by.
    """
    names: set[str] = set()
    for source in files.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    foreign = sorted(names - sys.stdlib_module_names - {PACKAGE})
    return {name: importlib.metadata.version(name) for name in foreign}


def installed(package: str) -> dict[str, Path]:
    """Return what an installed package put into the folder of packages: name -> file or folder."""
    distribution = importlib.metadata.distribution(package)
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    return {name: Path(str(distribution.locate_file(name))) for name in sorted(names)}
