"""The corpus: passages that give an environment its domain, names and tone.

The built-in corpus has one folder a domain with passages (`*.md`, YAML front matter) and a `voice.yaml`: the
domain's vocabulary and, for every family, a casting of its mechanism in the domain's own words. A user's own
folder of .txt, .md, .jsonl or .parquet files replaces the passages; each of its documents then speaks with the
voice of the built-in domain whose vocabulary is nearest.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...paths import CORPUS

MIN_WORDS = 40
MAX_CHARACTERS = 20_000
SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")


class CorpusError(ValueError):
    """A corpus has no usable passage, or a voice file is broken."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One document: `terms` lists concrete things of the text by kind (places, goods, roles, units, times)."""

    id: str
    domain: str
    title: str
    text: str
    terms: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        return [s.strip() for s in re.split(r"(?<=[.!?])\s+", " ".join(self.text.split())) if s.strip()]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A document that was not used, and why."""

    document: str
    reason: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Passages in the order of their ids, and the documents that were left out."""

    passages: tuple[Passage, ...]
    skipped: tuple[Skipped, ...] = ()

    def by_domain(self) -> dict[str, list[Passage]]:
        domains: dict[str, list[Passage]] = {}
        for passage in self.passages:
            domains.setdefault(passage.domain, []).append(passage)
        return domains


def load_corpus(path: str | Path | None = None) -> Corpus:
    """Read every passage below the folder `path` (the built-in corpus by default; ~ is the home folder).

    Documents that are empty, binary, undecodable, malformed, shorter than 40 words or not in Latin script are skipped
    and named in `skipped`. Raises CorpusError when there is no such folder or nothing usable is left in it.
    """
    root = CORPUS if path is None else corpus_folder(path)
    passages: list[Passage] = []
    skipped: list[Skipped] = []
    for file in sorted(p for p in root.rglob("*") if p.is_file()):
        name = file.relative_to(root).as_posix()
        if file.name == "voice.yaml":
            continue
        for document, result in _documents(file, name):
            if isinstance(result, Passage):
                passages.append(result)
            else:
                skipped.append(Skipped(document, result))
    if not passages:
        reasons = "; ".join(f"{s.document}: {s.reason}" for s in skipped[:5]) or "it has no files"
        raise CorpusError(f"corpus folder {str(root)!r} has no usable passage ({reasons})")
    return Corpus(tuple(sorted(passages, key=lambda p: p.id)), tuple(skipped))


def corpus_folder(path: str | Path) -> Path:
    """Return the folder of a corpus with ~ expanded; raise CorpusError that says what is there instead."""
    try:
        root = Path(path).expanduser()
    except RuntimeError as error:  # ~ of a user who is not known here
        raise CorpusError(f"corpus folder {str(path)!r} cannot be found: {error}") from error
    wanted = f"name a folder of {', '.join(SUFFIXES)} files"
    if root.is_file():
        raise CorpusError(f"corpus {str(root)!r} is a file, not a folder: {wanted}")
    if not root.is_dir():
        raise CorpusError(f"corpus folder {str(root)!r} does not exist: {wanted}")
    return root


def _documents(file: Path, name: str) -> Iterator[tuple[str, Passage | str]]:
    """Yield (document name, passage or reason for skipping it) of one file."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        yield name, f"not a corpus format (use {', '.join(SUFFIXES)})"
        return
    try:
        if suffix == ".parquet":
            rows = pd.read_parquet(file).to_dict("records")
            if not rows:
                yield name, "empty"
            for number, row in enumerate(rows):
                yield (
                    f"{name}#{number}",
                    _passage(f"{name}#{number}", {str(key): value for key, value in row.items()}),
                )
            return
        data = file.read_bytes()
    except Exception as error:  # noqa: BLE001 - a reader's many errors all mean: this file cannot be used
        yield name, f"cannot be read ({type(error).__name__}: {error})"
        return
    if not data.strip():
        yield name, "empty"
        return
    if b"\x00" in data:
        yield name, "binary"
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield name, f"not UTF-8 text (byte {error.start})"
        return
    if suffix == ".jsonl":
        for number, line in enumerate(
            text.split("\n"), start=1
        ):  # other separators may stand inside a string
            if line.strip():
                yield f"{name}#{number}", _json_line(f"{name}#{number}", line)
        return
    meta: dict[str, Any] = {}
    if suffix == ".md" and text.startswith("---"):
        try:
            _, front, text = text.split("---", 2)
            meta = yaml.safe_load(front) or {}
            if not isinstance(meta, dict):
                raise ValueError("front matter is not a mapping")
        except (ValueError, yaml.YAMLError) as error:
            yield name, f"broken front matter ({str(error).splitlines()[0]})"
            return
    yield name, _passage(name, {**meta, "text": text})


def _json_line(name: str, line: str) -> Passage | str:
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # escaped lone surrogates are no text
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"
    return _passage(name, row) if isinstance(row, dict) else "not a JSON object with a text field"


def _passage(name: str, row: dict[str, Any]) -> Passage | str:
    text = row.get("text")
    if not isinstance(text, str) or not text.strip():
        return "no text"
    count = len(_WORD.findall(text))
    if count < MIN_WORDS:
        if (script := _other_script(text)) is not None:
            return f"its script is {script}: only texts in Latin letters are read, whose words can be counted"
        return f"too short ({count} words, at least {MIN_WORDS} needed)"
    text = text.strip()[:MAX_CHARACTERS]
    title = (
        row.get("title")
        if isinstance(row.get("title"), str)
        else Path(name).stem.replace("_", " ").replace("-", " ")
    )
    domain = row["domain"] if isinstance(row.get("domain"), str) else nearest_domain(text)
    terms = {
        kind: tuple(str(term) for term in row[kind])
        for kind in ("places", "goods", "roles", "units", "times")
        if isinstance(row.get(kind), list)
    }
    return Passage(name, domain, str(title), text, terms)


def _other_script(text: str) -> str | None:
    """Return the script of most letters of a text as Unicode calls it (CYRILLIC, CJK, ...), None where it is Latin."""
    scripts = Counter(
        unicodedata.name(letter, "an unnamed one").split()[0]
        for letter in text[:MAX_CHARACTERS]
        if letter.isalpha()
    )
    if not scripts:
        return None
    script, _ = scripts.most_common(1)[0]
    names = {"LATIN": None, "CJK": "Chinese or Japanese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese"}
    return names.get(script, script.capitalize())


# --- voices -------------------------------------------------------------------------------------------
Words = Annotated[str, Field(min_length=1, max_length=400)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EntityCasting(_Model):
    singular: Words
    plural: Words
    pool: str | None = None
    names: tuple[str, ...] = ()


class ToolCasting(_Model):
    name: Words
    does: Words


class FieldCasting(_Model):
    column: Words
    label: Words


class Casting(_Model):
    """One family's mechanism in one domain's words."""

    title: Words
    brief: Annotated[str, Field(max_length=2000)]
    money: Words
    goods: str = "units"
    time: str = "minutes"
    entities: dict[str, EntityCasting]
    tools: dict[str, ToolCasting]
    fields: dict[str, FieldCasting]


class Voice(_Model):
    """A domain's vocabulary and its castings by family."""

    label: Words
    organisations: tuple[Words, ...]
    roles: tuple[Words, ...]
    ledger: Words
    readings: Words
    terms: Words
    money: tuple[Words, ...]
    pools: dict[str, tuple[str, ...]]
    openings: tuple[str, ...]
    closings: tuple[str, ...]
    castings: dict[str, Casting]


@functools.lru_cache(maxsize=1)
def load_voices() -> dict[str, Voice]:
    """Return the built-in voices by domain; raise CorpusError that names a broken file."""
    voices = {}
    for file in sorted(CORPUS.glob("*/voice.yaml")):
        try:
            voices[file.parent.name] = Voice.model_validate(yaml.load(file.read_text(), Loader=_LOADER))
        except (yaml.YAMLError, ValidationError) as error:
            raise CorpusError(f"voice of domain {file.parent.name!r} is broken: {error}") from error
    if not voices:
        raise CorpusError(f"no voice.yaml below {str(CORPUS)!r}: the built-in corpus is missing")
    return voices


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.lru_cache(maxsize=1)
def _vocabularies() -> dict[str, Counter[str]]:
    """Return the word counts of each built-in domain's passages, less the words that most domains share."""
    counts: dict[str, Counter[str]] = {}
    for folder in sorted(p for p in CORPUS.iterdir() if p.is_dir()):
        words: Counter[str] = Counter()
        for file in sorted(folder.glob("*.md")):
            words.update(_WORD.findall(file.read_text().lower()))
        counts[folder.name] = words
    spread = Counter(word for words in counts.values() for word in words)
    return {
        domain: Counter({w: n for w, n in words.items() if spread[w] <= len(counts) // 4})
        for domain, words in counts.items()
    }


def nearest_domain(text: str) -> str:
    """Return the built-in domain that shares the most distinctive words with `text` (ties: first by name)."""
    words = set(_WORD.findall(text.lower()))
    overlap = {domain: len(words & vocabulary.keys()) for domain, vocabulary in _vocabularies().items()}
    return max(sorted(overlap), key=overlap.__getitem__)
