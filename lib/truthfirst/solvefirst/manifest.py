"""The manifest of a corpus: what a player may have of each environment, and, apart from it, the sealed truth.

A corpus is a folder::

    public/manifest.parquet   one row an environment, columns PUBLIC: all that a player may read
    sealed/truth.parquet      one row an environment, columns SEALED: recipe, u_star, u_zero, u_reach, ...
    sealed/rejected.parquet   one row a rejected candidate, with its gate and the evidence (which names sealed numbers)

`load_public` opens the first file only and refuses a file that holds any other column. `rebuild` makes an environment
again from its sealed recipe and compares it with what the public row says, to the byte.

A prompt is stored once, in form A; forms I and F and the database are made when an environment is rebuilt. An id
ends in a hash of prompt and parameters: it names an environment, and gives nothing away that a reader of prompts
could use, but whoever runs this library could test guesses at a nano instance against it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..records import canonical_json, content_hash, write_atomic
from ..types import Form, PublicView
from .candidates import Recipe, build_candidate
from .environment import Environment
from .families import family as find_family
from .families.base import Action, IllegalAction, Solution

PUBLIC_FILE = Path("public/manifest.parquet")
SEALED_FILE = Path("sealed/truth.parquet")
REJECTED_FILE = Path("sealed/rejected.parquet")

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
PUBLIC = pa.schema(
    [
        ("id", pa.string()),
        ("family", pa.string()),
        ("size", pa.string()),
        ("domain", pa.string()),  # folder of the corpus; topic: the label that the spec gives it
        ("topic", pa.string()),
        ("title", pa.string()),
        ("passage", pa.string()),  # id of the passage in the corpus
        ("split", pa.string()),
        ("budget", pa.string()),
        ("turn_budget", pa.int64()),  # T, calls of any kind
        ("probes", pa.int64()),  # entries that a probe can reveal
        ("setter", pa.string()),  # who wrote the spec; for a language setter: which model
        ("code_tool", pa.bool_()),  # whether Python in the sandbox is offered too
        ("prompt", _MESSAGES),  # form A
        ("tools", pa.string()),  # JSON list of function-calling schemas, form A
        ("spec", pa.string()),  # JSON of the words where no recipe can have them written again, else null
        ("spec_hash", pa.string()),
        ("view_hash", pa.string()),  # of prompt, tools, turn budget and files in form A
        ("gates", pa.list_(pa.string())),  # admission gates passed, in order
    ]
)
SEALED = pa.schema(
    [
        ("id", pa.string()),
        ("seed", pa.int64()),
        ("index", pa.int64()),  # position in the instance stream (seed, family, size, split)
        ("recipe", pa.string()),  # JSON; with the spec, where one is stored, it rebuilds the environment
        ("theta", pa.string()),  # JSON: the parameters
        ("theta_hash", pa.string()),
        ("u_star", pa.int64()),
        ("u_zero", pa.int64()),
        ("u_reach", pa.int64()),
        ("reach_policy", pa.string()),  # the scripted policy that earns u_reach
        ("plan", pa.string()),  # JSON: the optimal plan, a list of [verb, argument, ...]
        ("decisions", pa.int64()),  # of the optimal plan
        ("turns", pa.int64()),  # of an optimal episode that first makes every probe
    ]
)
REJECTED = pa.schema(
    [
        ("family", pa.string()),
        ("size", pa.string()),
        ("domain", pa.string()),
        ("split", pa.string()),
        ("budget", pa.string()),
        ("setter", pa.string()),
        ("seed", pa.int64()),
        ("index", pa.int64()),
        ("gate", pa.string()),
        ("evidence", pa.string()),
    ]
)


class ManifestError(ValueError):
    """A manifest is missing, damaged, or does not fit this library; says what to do."""


# --- hashes -----------------------------------------------------------------------------------------------
def view_hash(view: PublicView) -> str:
    """Return the hash of a whole public view, files included."""
    files = {name: content_hash(data, 64) for name, data in view.files.items()}
    tools = [[tool.openai(), tool.kind] for tool in view.tools]
    return content_hash([view.prompt, tools, view.turn_budget, files], 32)


def theta_hash(environment: Environment) -> str:
    """Return the hash of an instance: its family and its parameters, whatever words are put to them."""
    return content_hash([environment.family_name, environment.family.to_json(environment.theta)], 32)


def spec_hash(environment: Environment) -> str:
    """Return the hash of what the setter wrote."""
    return content_hash(environment.spec.model_dump(mode="json"))


def tools_text(view: PublicView) -> str:
    """Return the tools of a view as the manifest stores them."""
    return canonical_json([tool.openai() for tool in view.tools])


def manifest_hash(public: pd.DataFrame, sealed: pd.DataFrame) -> str:
    """Return the hash of a corpus: every public and sealed value, in the order of the rows."""
    return content_hash([_plain(public, PUBLIC), _plain(sealed, SEALED)], 32)


def _plain(frame: pd.DataFrame, schema: pa.Schema) -> list[Any]:
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False).to_pylist()


# --- writing and loading ----------------------------------------------------------------------------------
def write_table(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Write a frame with exactly the columns of `schema`; prompts repeat much, so the strongest zstd is used."""
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata(None)
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="zstd", compression_level=19, data_page_size=1 << 26)
    write_atomic(path, buffer.getvalue())


def load_public(corpus: str | Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the public rows of a corpus: what a player, a prompt set or a trainer may read.

    corpus    its folder, or the path of its public/manifest.parquet (which may have been copied elsewhere)
    columns   some of PUBLIC; all by default

    Raises ManifestError when the file is missing or damaged, holds a column that is not public, or when a column is
    asked for that is not public.
    """
    path = Path(corpus)
    path = path / PUBLIC_FILE if path.is_dir() else path
    wanted = list(PUBLIC.names if columns is None else columns)
    for name in wanted:
        if name not in PUBLIC.names:
            kind = "sealed" if name in SEALED.names else "unknown"
            raise ManifestError(f"column {name!r} is {kind}: the public ones are {', '.join(PUBLIC.names)}")
    return _load(path, PUBLIC)[wanted]


def load_sealed(corpus: str | Path) -> pd.DataFrame:
    """Return the sealed rows of a corpus folder; for scoring and studies, never for a player."""
    return _load(Path(corpus) / SEALED_FILE, SEALED)


def load_rejected(corpus: str | Path) -> pd.DataFrame:
    """Return the rejected candidates of a corpus folder, with gate and evidence."""
    return _load(Path(corpus) / REJECTED_FILE, REJECTED)


def _load(path: Path, schema: pa.Schema) -> pd.DataFrame:
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise ManifestError(
            f"{path} does not exist: build the corpus with python -m truthfirst.solvefirst.build PLAN.yaml"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise ManifestError(
            f"{path} is damaged ({error}): build the corpus again, finished work is kept"
        ) from error
    if table.schema.names != schema.names:
        extra, lacking = (
            set(table.schema.names) - set(schema.names),
            set(schema.names) - set(table.schema.names),
        )
        raise ManifestError(
            f"{path} does not have the columns it should: not allowed {sorted(extra)}, missing {sorted(lacking)}"
        )
    return table.to_pandas()


# --- rebuilding -------------------------------------------------------------------------------------------
def rebuild(corpus: str | Path, environment_id: str) -> Environment:
    """Build an environment of a corpus folder again, byte for byte.

    Parameters and solution are the stored ones, so that neither a sampler nor a solver of another version matters; the
    solution is replayed.

    Raises ManifestError when the id is unknown, or when what this library builds is not what was admitted.
    """
    row = _index(str(corpus), _stamp(corpus)).get(environment_id)
    if row is None:
        raise ManifestError(f"corpus {str(corpus)!r} has no environment {environment_id!r}")
    recipe_text, spec, wanted, theta, plan, u_star, u_zero = row
    recipe = Recipe(**json.loads(recipe_text) | {"spec": spec})
    actions = tuple(Action(verb, tuple(arguments)) for verb, *arguments in json.loads(plan))
    solution = Solution(int(u_star), int(u_zero), actions)
    truth = find_family(recipe.family).build(json.loads(theta)), solution
    environment = build_candidate(recipe, truth=truth)
    found = view_hash(environment.view(Form.AGENTIC))
    holds = _holds(environment)
    if environment.id != environment_id or found != wanted or not holds:
        solved = "its stored solution holds" if holds else "its stored solution does not hold"
        raise ManifestError(
            f"{environment_id} is built as {environment.id} with view {found}, the manifest has view {wanted}; "
            f"{solved}: this library or its passages differ from those that admitted it; build the corpus again"
        )
    return environment


def _holds(environment: Environment) -> bool:
    """Say whether the solution of an environment earns what it says: its plan u_star, the default policy u_zero."""
    family, theta, solution = environment.family, environment.theta, environment.solution
    try:
        earned = family.replay(theta, solution.plan)
    except IllegalAction:
        return False
    return (earned, family.follow(theta, family.default)[0]) == (solution.u_star, solution.u_zero)


def _stamp(corpus: str | Path) -> tuple[int, int]:
    """Say when the two files last changed, so that an index in memory is never stale."""
    try:
        return tuple((Path(corpus) / file).stat().st_mtime_ns for file in (PUBLIC_FILE, SEALED_FILE))  # type: ignore[return-value]
    except OSError as error:
        raise ManifestError(
            f"corpus {str(corpus)!r} cannot be read ({error.strerror}: {error.filename}): build it first"
        ) from error


@functools.lru_cache(maxsize=8)
def _index(corpus: str, stamp: tuple[int, int]) -> dict[str, tuple[Any, ...]]:
    """Return id -> (recipe, spec or None, view hash, theta, plan, u_star, u_zero)."""
    public, sealed = load_public(corpus, ["id", "spec", "view_hash"]), load_sealed(corpus)
    if public["id"].tolist() != sealed["id"].tolist():
        raise ManifestError(f"corpus {corpus!r}: public and sealed rows differ; build the corpus again")
    specs = [text if isinstance(text, str) else None for text in public["spec"]]
    truth = (sealed[name] for name in ("theta", "plan", "u_star", "u_zero"))
    rows = zip(sealed["recipe"], specs, public["view_hash"], *truth, strict=True)
    return dict(zip(public["id"], rows, strict=True))
