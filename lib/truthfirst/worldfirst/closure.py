"""Role independence, audited by walking imports.

The closure of a module is every module of this package that importing it runs: its imports, wherever they stand in the
file, theirs, and the `__init__` of every package on the way. Verifier, progress, reference and alternative of a
generator are independent when none is in another's closure and two closures share nothing but modules of types: the
wing's `world.py`, the generator's own, and packages that hold constants. What is shared is itself audited: it may
define classes without methods that do anything, and constants, and nothing else. Ways around an import statement
(`importlib`, `exec`, ...) are refused.

What it does not promise: it says nothing about two people who write down the same mistake.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

INDEPENDENT = ("verifier", "progress", "reference", "alternative")
LIBRARY = Path(__file__).resolve().parents[2]
PACKAGE = "truthfirst"
_WING = f"{PACKAGE}.worldfirst"
_BACK_DOORS = frozenset(
    {"importlib", "runpy", "pkgutil", "imp", "subprocess", "multiprocessing", "ctypes", "inspect"}
)
_CALLS = frozenset({"__import__", "exec", "eval", "compile", "globals"})


@functools.cache
def audit(generator: str, library: Path = LIBRARY) -> tuple[str, ...]:
    """Return what is wrong with the independence of a generator's roles; empty when nothing is.

    library   the folder that holds the package (another one in tests)
    """
    folder = f"{_WING}.generators.{generator}"
    allowed = {f"{_WING}.world", f"{folder}.world"}
    closures = {role: closure(f"{folder}.{role}", library) for role in INDEPENDENT}
    problems = []
    for one, other in itertools.permutations(INDEPENDENT, 2):
        if f"{folder}.{other}" in closures[one]:
            problems.append(f"{one} imports {other}")
    for one, other in itertools.combinations(INDEPENDENT, 2):
        for module in sorted(closures[one] & closures[other]):
            path = _file(module, library)
            assert path is not None
            if module not in allowed and path.name != "__init__.py":
                problems.append(f"{one} and {other} share {module}")
            elif behaviour := behaving(path):
                problems.append(f"{one} and {other} share {module}, which is more than types: {behaviour}")
    for role in INDEPENDENT:
        for module in sorted(closures[role]):
            problems += [f"{role}: {module} {what}" for what in _back_doors(module, library)]
    return tuple(dict.fromkeys(problems))


def closure(module: str, library: Path = LIBRARY) -> frozenset[str]:
    """Return the names of all modules of this package that importing `module` runs, itself included.

    Raises ModuleNotFoundError when there is no such file.
    """
    if _file(module, library) is None:
        raise ModuleNotFoundError(f"no module {module} in {library}", name=module)
    found: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        path = _file(name, library)
        if name in found or path is None:
            continue
        found.add(name)
        left += [".".join(name.split(".")[:depth]) for depth in range(1, name.count(".") + 1)]
        left += _imported(ast.parse(path.read_text(encoding="utf-8")), name, path.name == "__init__.py")
    return frozenset(found)


def _file(module: str, library: Path) -> Path | None:
    base = library.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _imported(tree: ast.Module, module: str, package: bool) -> Iterator[str]:
    """Yield the names of this package that a module imports; names that are no modules are sorted out later."""
    parts = module.split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            up = node.level - package
            base = parts[: len(parts) - up] if node.level else []
            whole = [*base, *(node.module.split(".") if node.module else [])]
            if whole[0] == PACKAGE:
                yield ".".join(whole)
                yield from (".".join([*whole, alias.name]) for alias in node.names)


def behaving(path: Path) -> str | None:
    """Return the first thing in a module that is neither a type nor a constant, or None."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return f"function {node.name}"
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not _one_line(part):
                    return f"method {node.name}.{part.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if any(isinstance(part, ast.Lambda | ast.ListComp | ast.Call) for part in ast.walk(node)):
                return f"computed constant on line {node.lineno}"
        elif not isinstance(node, ast.Import | ast.ImportFrom) and not _text(node):
            return f"statement on line {node.lineno}"
    return None


def _one_line(method: ast.FunctionDef) -> bool:
    body = [part for part in method.body if not _text(part)]
    return len(body) == 1 and isinstance(body[0], ast.Return)


def _text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _back_doors(module: str, library: Path) -> Iterator[str]:
    """Yield the ways around an import statement that a module has."""
    path = _file(module, library)
    assert path is not None
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        yield from (f"imports {name}" for name in names if name.split(".")[0] in _BACK_DOORS)
        if isinstance(node, ast.Name) and node.id in _CALLS:
            yield f"uses {node.id}"
        if isinstance(node, ast.Attribute) and node.attr == "modules":
            yield "reaches into sys.modules"
