"""Decontamination: what the prompts of a corpus share with a folder of evaluation texts.

    python -m truthfirst.solvefirst.decontaminate data/corpora/vhd3300 path/to/evaluation/texts

For every prompt: whether it shares a run of 13, and of 8, lower-cased alphanumeric tokens with any evaluation text,
which text, which run, and the Jaccard similarity of its token set with the nearest evaluation text's. A prompt counts
as contaminated when it shares 13 tokens in a row.

A comparator that finds nothing must be shown to find something. Four controls run with it every time:

    itself       every evaluation text against all of them: found, with similarity 1
    planted 20   prompts, their tokens shuffled, with 20 tokens in a row of an evaluation text put in: found by both
    planted 10   the same with 10 tokens: found by 8 and not by 13
    shuffled     evaluation texts with their tokens shuffled: hardly ever found, although every token is shared

It sees neither paraphrase nor translation, and no text shorter than 13 (or 8) tokens can share a run of that length.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..overlap import NGramIndex, nearest, tokens
from ..streams import stream
from .diversity import prompt_text
from .manifest import PUBLIC_FILE, ManifestError, load_public

LONG, SHORT = 13, 8
PLANTED = (20, 10)
CONTROLS = 100  # texts in each control, at most
SUFFIXES = (".txt", ".md", ".json", ".jsonl", ".csv", ".parquet")


class EvaluationError(ValueError):
    """A folder of evaluation texts cannot be used; says why."""


class ControlError(RuntimeError):
    """A control shows that the comparator does not work; its verdict on the corpus means nothing."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluation texts: names (file, or file#row), token lists, and the documents that could not be read, with why."""

    names: tuple[str, ...]
    coded: tuple[tuple[str, ...], ...]
    skipped: tuple[tuple[str, str], ...] = ()


# --- reading ----------------------------------------------------------------------------------------------
def read_evaluation(folder: str | Path) -> Evaluation:
    """Read every text below a folder: .txt and .md as one text each, .json, .jsonl, .csv and .parquet row by row.

    All strings of a row, however deep, make its text. Raises EvaluationError if no text is found; files that cannot
    be read are listed in `skipped`, never passed over in silence.
    """
    root = Path(folder)
    if not root.is_dir():
        raise EvaluationError(f"{str(root)!r} is no folder: name one that holds {', '.join(SUFFIXES)} files")
    names, coded, skipped = [], [], []
    for file in sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".")):
        name = file.relative_to(root).as_posix()
        try:
            for label, text in _texts(file, name):
                if found := tokens(text):
                    names.append(label)
                    coded.append(tuple(found))
                else:
                    skipped.append((label, "no token"))
        except (
            OSError,
            ValueError,
            RecursionError,
        ) as error:  # includes what JSON, CSV and Arrow readers raise
            skipped.append((name, f"{type(error).__name__}: {str(error)[:200]}"))
    if not names:
        reasons = "; ".join(f"{name}: {why}" for name, why in skipped[:5]) or "it has no files"
        raise EvaluationError(f"folder {str(root)!r} holds no text that can be read ({reasons})")
    return Evaluation(tuple(names), tuple(coded), tuple(skipped))


def _texts(file: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of one file."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"not a text format (use {', '.join(SUFFIXES)})")
    if suffix in (".txt", ".md"):
        yield name, file.read_text(encoding="utf-8")
        return
    rows: list[Any]
    if suffix == ".parquet":
        rows = pd.read_parquet(file).to_dict("records")
    elif suffix == ".csv":
        rows = pd.read_csv(file, dtype=str, keep_default_na=False).to_dict("records")
    elif suffix == ".jsonl":
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    else:
        data = json.loads(file.read_text(encoding="utf-8"))
        rows = data if isinstance(data, list) else [data]
    for number, row in enumerate(rows):
        yield f"{name}#{number}", "\n".join(_strings(row))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, (list, tuple, np.ndarray)):
        for part in value:
            yield from _strings(part)


# --- comparing --------------------------------------------------------------------------------------------
class Comparator:
    """Evaluation texts, indexed for all three comparisons."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.long, self.short = NGramIndex(evaluation.coded, LONG), NGramIndex(evaluation.coded, SHORT)

    def compare(self, name: str, ids: Sequence[str], coded: Sequence[Sequence[str]]) -> pd.DataFrame:
        """Return one row a text.

        Columns: set (`name`), id, shared_13 and shared_8 (number of its n-grams that an evaluation text has), nearest
        (name of the nearest text), jaccard, document and evidence (of the first longest run found; null if none).
        """
        close = nearest([set(one) for one in coded], [set(one) for one in self.evaluation.coded])
        rows = []
        for label, text, index, similarity in zip(ids, coded, close.index, close.similarity, strict=True):
            long, short = self.long.matches(text), self.short.matches(text)
            first, length = (long[0], LONG) if long else (short[0], SHORT) if short else (None, 0)
            rows.append(
                {
                    "set": name,
                    "id": label,
                    "tokens": len(text),
                    "shared_13": len(long),
                    "shared_8": len(short),
                    "nearest": self.evaluation.names[index],
                    "jaccard": float(similarity),
                    "document": self.evaluation.names[first.document] if first else None,
                    "evidence": " ".join(text[first.position : first.position + length]) if first else None,
                }
            )
        return pd.DataFrame(rows)


def overlaps(public: pd.DataFrame, evaluation: Evaluation, *, seed: int = 0) -> pd.DataFrame:
    """Return `Comparator.compare` of every prompt (set "corpus") and of the four controls, in one frame.

    public   rows with id and prompt (`manifest.load_public`)
    """
    comparator = Comparator(evaluation)
    ids = public["id"].tolist()
    coded = [tokens(prompt_text(prompt)) for prompt in public["prompt"]]
    parts = [comparator.compare("corpus", ids, coded)]
    parts += [
        comparator.compare(name, *texts)
        for name, texts in _controls(ids, coded, evaluation, seed)
        if texts[0]
    ]
    return pd.concat(parts, ignore_index=True)


def _controls(
    ids: list[str], coded: list[list[str]], evaluation: Evaluation, seed: int
) -> Iterator[tuple[str, tuple[list[str], list[list[str]]]]]:
    """Yield (name, (ids, token lists)) of each control; a planted one needs evaluation texts that are long enough."""
    rng = stream(seed, "decontaminate", "controls")
    chosen = [int(i) for i in rng.permutation(len(evaluation.coded))[:CONTROLS]]
    texts = [list(evaluation.coded[i]) for i in chosen]
    names = [evaluation.names[i] for i in chosen]
    yield "itself", (names, texts)
    for length in PLANTED:
        sources = [text for text in evaluation.coded if len(text) >= length]
        hosts = [int(i) for i in rng.permutation(len(coded))[:CONTROLS]] if sources else []
        planted = []
        for host in hosts:
            source = sources[int(rng.integers(len(sources)))]
            start, at = int(rng.integers(len(source) - length + 1)), int(rng.integers(len(coded[host]) + 1))
            run = list(source[start : start + length])
            mixed = [coded[host][i] for i in rng.permutation(len(coded[host]))]
            planted.append([*mixed[:at], *run, *mixed[at:]])
        yield f"planted {length}", ([ids[i] for i in hosts], planted)
    yield "shuffled", (names, [[text[i] for i in rng.permutation(len(text))] for text in texts])


def contamination(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row a set of an `overlaps` frame: n, the shares found by 13 and by 8, similarity (median, highest).

    Raises ControlError when a control fails: a text is not found among themselves or is not its own nearest, or a
    planted run that 13 (20 tokens) or 8 (20 or 10 tokens) must find is missed.
    """
    grouped = frame.groupby("set", sort=False)
    table = pd.DataFrame(
        {
            "n": grouped.size(),
            "found_13": grouped["shared_13"].agg(lambda shared: float((shared > 0).mean())),
            "found_8": grouped["shared_8"].agg(lambda shared: float((shared > 0).mean())),
            "jaccard_median": grouped["jaccard"].median(),
            "jaccard_highest": grouped["jaccard"].max(),
        }
    ).reset_index()
    itself = frame[frame["set"] == "itself"]
    checks = {"itself": bool((itself["jaccard"] > 1 - 1e-6).all())}
    for n in (LONG, SHORT):
        checks[f"itself, {n}"] = bool((itself.loc[itself["tokens"] >= n, f"shared_{n}"] > 0).all())
        for length in PLANTED:
            planted = frame[frame["set"] == f"planted {length}"]
            if length >= n:
                checks[f"planted {length}, {n}"] = bool((planted[f"shared_{n}"] > 0).all())
    if failed := [name for name, passed in checks.items() if not passed]:
        raise ControlError(f"control {failed[0]!r} is not found by the comparator: its verdicts mean nothing")
    return table


# --- the command ------------------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    """Compare a corpus with a folder; exit code 0 if no 13-gram is shared, 1 if some are, 2 for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m truthfirst.solvefirst.decontaminate",
        description="Compare every prompt of a corpus with a folder of evaluation texts.",
    )
    parser.add_argument("manifest", type=Path, help="corpus folder, or its public/manifest.parquet")
    parser.add_argument("folder", type=Path, help=f"evaluation texts: {', '.join(SUFFIXES)}")
    parser.add_argument("--out", type=Path, default=None, help="write every row to this parquet file")
    options = parser.parse_args(arguments)
    try:
        public = load_public(options.manifest, ["id", "prompt"])
        evaluation = read_evaluation(options.folder)
        frame = overlaps(public, evaluation)
        table = contamination(frame)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            frame.to_parquet(options.out, index=False)
    except (ManifestError, EvaluationError, ControlError, OSError) as error:
        print(f"decontaminate: {error}", file=sys.stderr)
        return 2
    short = {n: sum(len(text) < n for text in evaluation.coded) for n in (LONG, SHORT)}
    print(
        f"{len(public):,} prompts ({PUBLIC_FILE.name}) against {len(evaluation.names):,} texts of {options.folder}; "
        f"{short[LONG]} are shorter than {LONG} tokens, {short[SHORT]} than {SHORT}; {len(evaluation.skipped)} skipped"
    )
    for name, why in evaluation.skipped[:10]:
        print(f"  skipped {name}: {why}")
    print(table.round(4).to_string(index=False))
    hits = frame[(frame["set"] == "corpus") & (frame["shared_13"] > 0)]
    for row in hits.head(10).itertuples():
        print(f"  {row.id} shares with {row.document}: {row.evidence!r}")
    print("contaminated" if len(hits) else "no prompt shares 13 tokens in a row with these texts")
    return 1 if len(hits) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
