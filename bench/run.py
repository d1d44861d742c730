"""Run the benchmarks named on the command line, or all: `python bench/run.py [spine ...]`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    """Run each benchmark module of this folder; unknown names are an error."""
    folder = Path(__file__).parent
    known = sorted(file.stem for file in folder.glob("*.py") if file.stem != "run")
    for name in names:
        if name not in known:
            print(f"bench: unknown benchmark {name!r}: choose from {', '.join(known)}", file=sys.stderr)
            return 2
    sys.path.insert(0, str(folder))
    for name in names or known:
        print(f"== {name}")
        importlib.import_module(name).main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
