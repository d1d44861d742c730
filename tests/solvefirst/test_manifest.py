"""The manifest: rebuilt by id to the byte, sealed apart from public, and damage that is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from truthfirst.solvefirst import manifest
from truthfirst.solvefirst.build import Built
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.manifest import (
    PUBLIC,
    PUBLIC_FILE,
    SEALED,
    SEALED_FILE,
    ManifestError,
    load_public,
    load_sealed,
    manifest_hash,
    rebuild,
    view_hash,
)
from truthfirst.solvefirst.realize.setter import ReplaySetter
from truthfirst.types import Form


@pytest.fixture
def copy(small_corpus: Built, tmp_path: Path) -> Path:
    shutil.copytree(small_corpus.folder, tmp_path / "corpus")
    return tmp_path / "corpus"


def test_every_environment_is_rebuilt_by_its_id(small_corpus: Built):
    public, sealed = load_public(small_corpus.folder), load_sealed(small_corpus.folder)
    for row, truth in zip(public.to_dict("records"), sealed.to_dict("records"), strict=True):
        environment = rebuild(small_corpus.folder, row["id"])
        view = environment.view(Form.AGENTIC)
        assert [dict(m) for m in view.prompt] == list(row["prompt"])
        assert json.loads(row["tools"]) == [tool.openai() for tool in view.tools]
        assert (view.turn_budget, environment.budget) == (row["turn_budget"], row["budget"])
        solution = environment.solution
        assert (solution.u_star, solution.u_zero) == (truth["u_star"], truth["u_zero"])
        afresh = build_candidate(Recipe(**json.loads(truth["recipe"])))
        assert (solution, environment.theta) == (afresh.solution, afresh.theta)
        assert len(solution.plan) == truth["decisions"]


def test_a_stored_solution_that_does_not_hold_is_noticed(copy: Path):
    sealed = load_sealed(copy)
    changes = [("u_star", sealed["u_star"].iloc[0] + 1), ("u_zero", sealed["u_zero"].iloc[0] - 1)]
    changes += [("plan", "[]"), ("plan", '[["nothing", 1]]'), ("theta", sealed["theta"].iloc[1])]
    for column, value in changes:
        changed = sealed.copy()
        changed.loc[0, column] = value
        manifest.write_table(copy / SEALED_FILE, changed, SEALED)
        with pytest.raises(ManifestError, match=r"solution does not hold|is built as"):
            rebuild(copy, sealed["id"].iloc[0])


def test_a_player_needs_no_sealed_file_and_gets_no_sealed_column(copy: Path, tmp_path: Path):
    shutil.rmtree(copy / "sealed")
    shutil.copy(copy / PUBLIC_FILE, tmp_path / "elsewhere.parquet")
    for place in (copy, tmp_path / "elsewhere.parquet"):
        frame = load_public(place)
        assert list(frame.columns) == PUBLIC.names
        assert not set(frame.columns) & (set(SEALED.names) - {"id"})
    assert not {"u_star", "seed", "index", "recipe", "theta_hash"} & set(PUBLIC.names)


@pytest.mark.parametrize("column", [name for name in SEALED.names if name != "id"])
def test_a_sealed_column_cannot_be_asked_for(small_corpus: Built, column: str):
    with pytest.raises(ManifestError, match=f"column '{column}' is sealed"):
        load_public(small_corpus.folder, ["id", column])


def test_a_public_file_that_holds_more_is_refused(copy: Path):
    table = pq.read_table(copy / PUBLIC_FILE)
    pq.write_table(table.append_column("u_star", pa.array([1] * len(table))), copy / PUBLIC_FILE)
    with pytest.raises(ManifestError, match=r"not allowed \['u_star'\]"):
        load_public(copy)


def test_no_sealed_number_or_recipe_stands_in_the_public_file(copy: Path):
    """What rebuilds an environment is nowhere in the public rows, not even in the file's metadata."""
    table = pq.read_table(copy / PUBLIC_FILE)
    assert not table.schema.metadata
    text = json.dumps(table.drop(["prompt", "tools"]).to_pylist())
    for recipe in load_sealed(copy)["recipe"]:
        assert recipe not in text
    assert '"seed"' not in text


def test_the_hash_sees_every_value(small_corpus: Built):
    public, sealed = small_corpus.public, small_corpus.sealed
    assert (
        manifest_hash(load_public(small_corpus.folder), load_sealed(small_corpus.folder)) == small_corpus.hash
    )
    for frame, name in ((public, "title"), (sealed, "u_star"), (sealed, "reach_policy")):
        changed = frame.copy()
        changed.loc[3, name] = changed[name].iloc[3] + ("x" if frame[name].dtype != "int64" else 1)
        pair = (changed, sealed) if frame is public else (public, changed)
        assert manifest_hash(*pair) != small_corpus.hash
    assert manifest_hash(public.iloc[::-1], sealed.iloc[::-1]) != small_corpus.hash


def test_another_library_is_noticed_when_rebuilding(copy: Path):
    public = load_public(copy)
    public.loc[2, "view_hash"] = "0" * 32
    manifest.write_table(copy / PUBLIC_FILE, public, PUBLIC)
    with pytest.raises(ManifestError, match="differ from those that admitted it"):
        rebuild(copy, public["id"].iloc[2])
    assert rebuild(copy, public["id"].iloc[1]).id == public["id"].iloc[1]


def test_stored_words_are_used_where_no_recipe_can_write_them(copy: Path):
    """A spec that a language model wrote stands in the manifest; the environment is rebuilt from it."""
    public, sealed = load_public(copy), load_sealed(copy)
    recipe = Recipe(**json.loads(sealed["recipe"].iloc[0]))
    spec = build_candidate(recipe).spec.model_copy(
        update={"title": "A title of its own", "setter": "language:model-x"}
    )
    environment = build_candidate(recipe, ReplaySetter(spec))
    view = environment.view(Form.AGENTIC)
    assert environment.recipe["setter"] == "language:model-x"
    public.loc[0, ["id", "spec", "view_hash"]] = [environment.id, environment.recipe["spec"], view_hash(view)]
    sealed.loc[0, "id"] = environment.id
    manifest.write_table(copy / PUBLIC_FILE, public, PUBLIC)
    manifest.write_table(copy / SEALED_FILE, sealed, SEALED)
    assert "A title of its own" in rebuild(copy, environment.id).view(Form.AGENTIC).prompt[0]["content"]


def test_missing_and_damaged_files_say_what_to_do(copy: Path, tmp_path: Path):
    with pytest.raises(ManifestError, match="build the corpus"):
        load_public(tmp_path / "nowhere")
    with pytest.raises(ManifestError, match="build it first"):
        rebuild(tmp_path / "nowhere", "x")
    with pytest.raises(ManifestError, match="no environment 'x'"):
        rebuild(copy, "x")
    data = (copy / SEALED_FILE).read_bytes()
    (copy / SEALED_FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(ManifestError, match="damaged"):
        load_sealed(copy)


def test_writing_is_byte_stable(small_corpus: Built, tmp_path: Path):
    for name in ("a", "b"):
        manifest.write_table(tmp_path / name, load_public(small_corpus.folder), PUBLIC)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() == (small_corpus.folder / PUBLIC_FILE).read_bytes()
    assert isinstance(pd.read_parquet(tmp_path / "a")["prompt"].iloc[0][0]["content"], str)
