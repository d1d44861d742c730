"""Export to Harbor's task format: `python -m truthfirst.export.harbor --out FOLDER`.

A task is a folder under FOLDER/tasks, named like the instance:

    instruction.md    the public contract
    task.toml         recipe, versions, limits, resources
    environment/      Dockerfile, and the public tree under input/
    solution/         solve.sh, solve.py: the reference solver
    tests/            test.sh, grade.py, sealed.json (world and defect plan), lib/ (the grader's modules), Dockerfile

The content is a pure function of the instance, this source and the versions of the grader's packages. Before a task
appears it is tried in the sandbox (`trial.py`): the oracle must earn 1 and the no-op 0, else it is refused. FOLDER/
index.jsonl holds one row a task. Interrupted and started again it goes on where it was; a task whose files or whose
source have changed is made again.

Source: Harbor, https://www.harborframework.com/docs/tasks. What it does not promise: that the images build; without
Docker they are not tried.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from .. import __version__
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..records import canonical_json, content_hash, read_jsonl, write_atomic
from ..sandbox import SandboxUnavailable, require_sandbox
from ..worldfirst.certify import source_hash
from ..worldfirst.contract import PACKAGE
from ..worldfirst.generators import GENERATORS
from ..worldfirst.instances import Instance, instance
from ..worldfirst.scan import Bounds
from ..worldfirst.world import TIERS, WorldError
from . import harbor_texts as texts
from . import trial, vendor
from .sealed import decode, encode

SEEDS = "0-4"
MOST_SEEDS = 10_000  # a run
_INDEX = "index.jsonl"
_PROGRAMS = frozenset({"solution/solve.sh", "tests/test.sh"})
Job = tuple[str, str, int]  # generator, tier, seed


class ExportError(RuntimeError):
    """A task is refused; the message names it and says why."""


# --- one task ---------------------------------------------------------------------------------------------
def task_files(instance: Instance) -> dict[str, bytes]:
    """Return the whole task: path within its folder -> content. Raises ExportError where the truth is no JSON."""
    name = instance.generator.name
    modules = vendor.sources(name)
    packages = vendor.packages(modules)
    files = {
        "instruction.md": texts.instruction(instance).encode(),
        "task.toml": texts.configuration(instance).encode(),
        "environment/Dockerfile": texts.agent_image(packages).encode(),
        "solution/solve.sh": texts.SOLVE.encode(),
        "solution/solve.py": _module(f"{PACKAGE}.{name}.reference").read_bytes(),
        "tests/Dockerfile": texts.verifier_image(packages).encode(),
        "tests/test.sh": texts.TEST.encode(),
        "tests/grade.py": texts.GRADE.encode(),
        "tests/sealed.json": _sealed(instance).encode(),
    }
    files |= {f"environment/{path}": data for path, data in instance.files.items()}
    return files | {f"tests/lib/{path}": data for path, data in modules.items()}


def _module(name: str) -> Path:
    file = sys.modules[name].__file__
    assert file is not None
    return Path(file)


def _sealed(instance: Instance) -> str:
    """Return sealed.json; keys stay in their order, which the parameters of a defect may depend on."""
    task = {
        "task": instance.id,
        "generator": instance.generator.name,
        "bounds": asdict(Bounds.of(instance.files)),
        "sealed": encode(instance.sealed),
    }
    text = json.dumps(task, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    told = json.loads(text)["sealed"]
    back = decode(told, sys.modules[f"{PACKAGE}.{instance.generator.name}.world"])
    if back != instance.sealed or json.dumps(encode(back)) != json.dumps(encode(instance.sealed)):
        raise ExportError(f"{instance.id}: the sealed world does not come back from JSON as it was")
    return f"{text}\n"


def export_task(instance: Instance, folder: Path) -> dict[str, Any]:
    """Write one task folder, whole or not at all, after oracle and no-op; return its row of the index.

    A folder of that name is replaced. Raises ExportError where the oracle does not earn 1 or the no-op not 0, and
    SandboxUnavailable where neither can be tried.
    """
    files = task_files(instance)
    packages = tuple(vendor.packages(vendor.sources(instance.generator.name)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp") as made:
        task = Path(made) / folder.name
        _write(files, task)
        found = _tried(instance, task, packages)
        if folder.exists():
            folder.rename(Path(made) / "replaced")
        task.rename(folder)
    return {
        **instance.recipe,
        "id": instance.id,
        "truthfirst": __version__,
        "files": len(files),
        "bytes": sum(map(len, files.values())),
        "content": _content(files),
        **found,
    }


def _tried(instance: Instance, task: Path, packages: tuple[str, ...]) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, play, due in (("oracle", trial.oracle, 1), ("no_op", trial.no_op, 0)):
        try:
            found = play(task, packages)
        except trial.TrialError as error:
            raise ExportError(f"{instance.id}, seed {instance.seed}: {name}: {error}") from error
        if found.reward != due:
            why = f"the {name} reward is {found.reward}, not {due}: {found.said[:800]}"
            raise ExportError(f"{instance.id}, seed {instance.seed}: {why}")
        row |= {name: found.reward, f"{name}_phi": found.phi, f"{name}_seconds": round(found.seconds, 3)}
    return row


def _write(files: dict[str, bytes], folder: Path) -> None:
    for path, data in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o755 if path in _PROGRAMS else 0o644)


def _content(files: dict[str, bytes]) -> str:
    return content_hash({path: content_hash(data, 64) for path, data in files.items()})


# --- many tasks -------------------------------------------------------------------------------------------
def export_all(jobs: Iterable[Job], out: Path) -> list[str]:
    """Export tasks that are not there yet, and keep index.jsonl; return what was refused, one line each."""
    jobs, index = list(jobs), out / _INDEX
    rows = {_job(row): row for row in (read_jsonl(index) if index.exists() else ())}
    sources = {name: _source(name) for name in {name for name, _, _ in jobs}}
    refused = []
    for job in tqdm(jobs, desc="tasks", disable=None):
        name, tier, seed = job
        if job in rows and rows[job]["source"] == sources[name] and _stands(rows[job], out):
            continue
        try:
            made = instance(name, seed, tier)
            row = export_task(made, out / "tasks" / made.id)
        except (ExportError, WorldError) as error:
            refused.append(f"{name}, {tier}, seed {seed}: {error}")
            continue
        if job in rows and rows[job]["id"] != made.id:
            shutil.rmtree(out / "tasks" / rows[job]["id"], ignore_errors=True)
        rows[job] = row | {"source": sources[name]}
        write_atomic(index, "".join(f"{canonical_json(rows[key])}\n" for key in sorted(rows)))
    return refused


def _job(row: dict[str, Any]) -> Job:
    return row["generator"], row["tier"], row["seed"]


def _source(name: str) -> str:
    own = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))}
    return content_hash([source_hash(name), own, vendor.packages(vendor.sources(name))])


def _stands(row: dict[str, Any], out: Path) -> bool:
    """Say whether the task of a row is there as it was written."""
    root = out / "tasks" / row["id"]
    found = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    return _content(found) == row["content"]


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last or first) + 1)
    except ValueError:
        found = range(0)
    if not found or found[-1] - found[0] >= MOST_SEEDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a seed nor a range of at most {MOST_SEEDS} seeds, as in 0-4"
        )
    return list(found)


def main(arguments: Sequence[str]) -> int:
    """Export tasks and print what was refused; exit code 1 if anything was."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.export.harbor", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of tasks/ and index.jsonl")
    parser.add_argument("--generators", nargs="+", choices=list(GENERATORS), default=list(GENERATORS))
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS))
    parser.add_argument(
        "--seeds", type=_seeds, default=_seeds(SEEDS), help=f"a seed or a range (default: {SEEDS})"
    )
    options = parser.parse_args(arguments)
    jobs = [
        (name, tier, seed) for name in options.generators for tier in options.tiers for seed in options.seeds
    ]
    try:
        require_sandbox("trying oracle and no-op of a task")
        with terminable():
            refused = export_all(jobs, options.out)
    except SandboxUnavailable as error:
        print(f"harbor: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    print("\n".join(refused) or f"{len(jobs)} tasks in {options.out / 'tasks'}: oracle 1 and no-op 0 in each")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
