"""Where every figure and table comes from: sidecars, stored files with their hashes, versions, commit.

Nothing here depends on the time, the host or the folder of the checkout, so that equal results give equal bytes.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .. import __version__, paths
from ..records import content_hash
from ..runs_plan import git_state
from ..runs_publish import preset_of, read_sidecar

_DEVELOPMENT = re.compile(r"""extra == ["'](dev|bench)["']""")


def figure_rows(names: Sequence[str], folder: Path | None = None) -> pd.DataFrame:
    """Return one row a drawn figure: data file, rows, content hash, run or command, preset, package version."""
    rows = []
    for name in names:
        sidecar = read_sidecar((folder or paths.FIGURES) / f"{name}.json")
        if sidecar is not None:
            rows.append(
                {
                    "figure": name,
                    "rows": sidecar.get("rows"),
                    "content": sidecar.get("content"),
                    "run": maker(sidecar),
                    "preset": preset_of(sidecar) or "-",
                    "truthfirst": sidecar.get("truthfirst"),
                    "matplotlib": sidecar.get("matplotlib"),
                }
            )
    return pd.DataFrame(rows)


def maker(sidecar: dict[str, Any]) -> str:
    """Return the id of the run that made a figure's data, or the command that did."""
    return str(sidecar.get("run") or (sidecar.get("parameters") or {}).get("command") or "by hand")


def stored_rows(folder: Path | None = None) -> pd.DataFrame:
    """Return one row a stored file: rows and the hash of its bytes; a damaged one has no rows."""
    files = sorted(
        path for path in (folder or paths.RESULTS).glob("*") if path.suffix in (".parquet", ".csv")
    )
    return pd.DataFrame(
        {
            "table": [path.name for path in files],
            "rows": [_rows(path) for path in files],
            "content": [content_hash(path.read_bytes()) for path in files],
        }
    )


def _rows(path: Path) -> int | None:
    try:
        return len(pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path))
    except (OSError, ValueError):
        return None


def version_rows() -> pd.DataFrame:
    """Return Python, this package and every dependency of use and training that is installed, with versions."""
    asked = [
        line for line in importlib.metadata.requires("truthfirst") or () if not _DEVELOPMENT.search(line)
    ]
    names = dict.fromkeys(re.split(r"[=<>;\[ ]", line)[0] for line in asked)
    rows = [("Python", platform.python_version()), ("truthfirst", __version__)]
    for name in sorted(names, key=str.lower):
        try:
            rows.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return pd.DataFrame(rows, columns=["package", "version"])


def commit() -> str:
    """Return the commit of this checkout, and whether files differ from it; a dash outside a repository."""
    state = git_state(paths.HOME)
    if state is None:
        return "-"
    return f"{state['commit']}{', with changes' if state['dirty'] else ''}"
