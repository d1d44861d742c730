"""The figures of a built corpus, from what stands in its folder: yield, costs, diversity, decontamination.

    python -m truthfirst.study.corpus_figures                                     # of the corpus of the repository
    python -m truthfirst.study.corpus_figures corpora/mine --evaluation path/to/texts

Yield and costs are the build's own report; diversity is measured from the public rows; decontamination compares every
prompt with evaluation texts. By default those are the questions of reasoning-gym, a public collection of some hundred
generators of reasoning tasks (Stojanovski et al., "Reasoning Gym", 2025), TEXTS of each: `make bench` installs it. Any
folder of texts can take their place.

That a corpus is clean beside one collection says nothing of another one: name yours.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from .. import figures, paths
from ..overlap import tokens
from ..solvefirst.decontaminate import (
    ControlError,
    Evaluation,
    EvaluationError,
    contamination,
    overlaps,
    read_evaluation,
)
from ..solvefirst.diversity import diversity_frame, diversity_summary
from ..solvefirst.manifest import ManifestError, load_public

CORPUS = paths.HOME / "data" / "corpora" / "vhd3300"
GYM, GYM_SEED, TEXTS = "reasoning-gym", 0, 10
LEFT_OUT = (
    frozenset(  # `composite` mixes the others and has no default; a seed does not fix what the others ask
        {"composite", "isomorphic_strings", "list_functions", "polynomial_multiplication", "ransom_note"}
    )
)


def reasoning_gym_texts(texts: int = TEXTS) -> Evaluation:
    """Return the questions of every task of reasoning-gym but LEFT_OUT, `texts` of each.

    Raises EvaluationError where it is not installed.
    """
    try:
        gym = importlib.import_module("reasoning_gym")
        tasks = sorted(set(importlib.import_module("reasoning_gym.factory").DATASETS) - LEFT_OUT)
    except ImportError as error:
        raise EvaluationError(
            f"{GYM} is not installed: install it with make bench, or name a folder of texts with --evaluation"
        ) from error
    names, coded = [], []
    for task in tasks:
        with contextlib.redirect_stdout(io.StringIO()):  # some tasks print dots while they search
            items = gym.create_dataset(task, size=texts, seed=GYM_SEED)
            questions = [items[number]["question"] for number in range(texts)]
        names += [f"{task}#{number}" for number in range(texts)]
        coded += [tuple(tokens(question)) for question in questions]
    return Evaluation(tuple(names), tuple(coded))


def described(evaluation: Evaluation, folder: Path | None) -> str:
    """Say what the evaluation texts are, for the sidecar of the figure."""
    if folder is not None:
        return f"{len(evaluation.names)} texts of {folder.name}"
    return f"{GYM} {version(GYM)}, {len(evaluation.names)} questions, seed {GYM_SEED}"


def publish_all(corpus: Path, evaluation: Evaluation | None, origin: dict[str, Any]) -> dict[str, Any]:
    """Store and draw the figures of a corpus folder; return what they say, by name of the figure.

    evaluation   None leaves the figure `decontamination` as it is

    Raises ManifestError for a folder that holds no corpus, ControlError where the comparator is shown to be blind.
    """
    public = load_public(corpus)
    said: dict[str, Any] = {}
    for name, table in (("corpus_yield", "yield"), ("corpus_costs", "costs")):
        frame = _report(corpus, table)
        figures.publish(name, frame, origin)
        said[name] = f"{len(frame)} rows of the build's report"
    frame = diversity_frame(public, corpus=_passages(corpus))
    figures.publish("corpus_diversity", frame, origin)
    said["corpus_diversity"] = diversity_summary(frame)
    if evaluation is not None:
        frame = overlaps(public, evaluation)
        said["decontamination"] = contamination(frame)  # first: a blind comparator's figure is not drawn
        figures.publish("decontamination", frame, origin)
    return said


def _passages(corpus: Path) -> str | None:
    """Return the folder of passages that a corpus was built from, None for the built-in one."""
    file = corpus / "build.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))["plan"]["corpus"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ManifestError(
            f"{file} cannot be read ({error}): build the corpus again, finished work is kept"
        ) from error


def _report(corpus: Path, name: str) -> pd.DataFrame:
    file = corpus / "report" / f"{name}.parquet"
    if not file.exists():
        raise ManifestError(f"{file} is missing: build the corpus again, finished work is kept")
    return pd.read_parquet(file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Store and draw the figures of a corpus; exit code 1 if a prompt is contaminated, 2 for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.study.corpus_figures",
        description="Store and draw yield, costs, diversity and decontamination of a built corpus.",
    )
    parser.add_argument(
        "corpus", type=Path, nargs="?", default=CORPUS, help="its folder (default: the repository's)"
    )
    parser.add_argument(
        "--evaluation", type=Path, help="folder of evaluation texts (default: reasoning-gym's)"
    )
    options = parser.parse_args(arguments)
    origin = {"command": "python -m truthfirst.study.corpus_figures", "corpus": options.corpus.name}
    try:
        evaluation = _evaluation(options.evaluation)
        if evaluation is not None:
            origin["evaluation"] = described(evaluation, options.evaluation)
        said = publish_all(options.corpus, evaluation, origin)
    except (ManifestError, EvaluationError, ControlError) as error:
        print(f"corpus_figures: {error}", file=sys.stderr)
        return 2
    for name, what in said.items():
        print(f"{name}\n{what if isinstance(what, str) else what.round(4).to_string(index=False)}\n")
    if evaluation is None:
        return 0
    found = said["decontamination"]
    return int(found.loc[found["set"] == "corpus", "found_13"].iloc[0] > 0)


def _evaluation(folder: Path | None) -> Evaluation | None:
    """Return the texts of the named folder, else reasoning-gym's, else None, which is said."""
    if folder is not None:
        return read_evaluation(folder)
    try:
        return reasoning_gym_texts()
    except EvaluationError as error:
        print(f"decontamination is left as it is: {error}", file=sys.stderr)
        return None


if __name__ == "__main__":
    sys.exit(main())
