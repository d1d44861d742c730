"""The corpus that is committed: small, whole, as planned, and rebuilt by id to the byte by this library.

Where one of these fails after a change of rules, words, passages or gates, the corpus has to be built again:
python -m truthfirst.solvefirst.build data/corpora/vhd3300.yaml
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from truthfirst.paths import HOME
from truthfirst.solvefirst import manifest
from truthfirst.solvefirst.admit.gates import GATES, admit
from truthfirst.solvefirst.build_plan import places, plan_hash, read_plan_file
from truthfirst.solvefirst.build_report import entropy
from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.manifest import ManifestError, load_public, load_rejected, load_sealed, rebuild
from truthfirst.types import Form

CORPUS = HOME / "data" / "corpora" / "vhd3300"
PLAN = HOME / "data" / "corpora" / "vhd3300.yaml"
COMMITTED = {
    "build.json",
    "public/manifest.parquet",
    "sealed/truth.parquet",
    "sealed/rejected.parquet",
    "report/yield.parquet",
    "report/costs.parquet",
    "report/rejections.parquet",
}
MOST_BYTES = 2_500_000


@pytest.fixture(scope="module")
def public() -> pd.DataFrame:
    return load_public(CORPUS)


@pytest.fixture(scope="module")
def sealed() -> pd.DataFrame:
    return load_sealed(CORPUS)


def test_a_clone_holds_it_and_it_is_small():
    files = {file.relative_to(CORPUS).as_posix(): file for file in CORPUS.rglob("*") if file.is_file()}
    assert set(files) - {"candidates.jsonl"} == COMMITTED
    assert sum(files[name].stat().st_size for name in COMMITTED) <= MOST_BYTES
    if shutil.which("git") is None or not (HOME / ".git").exists():
        return
    for name in sorted(COMMITTED | {"candidates.jsonl"}):
        asked = ["git", "-C", str(HOME), "check-ignore", "-q", "--no-index", str(CORPUS / name)]
        ignored = subprocess.run(asked, check=False).returncode == 0
        assert ignored == (name == "candidates.jsonl"), name


def test_it_is_what_the_plan_asks_for(public: pd.DataFrame, sealed: pd.DataFrame):
    plan, built = read_plan_file(PLAN), json.loads((CORPUS / "build.json").read_text())
    assert built["plan_hash"] == plan_hash(plan)
    assert built["manifest_hash"] == manifest.manifest_hash(public, sealed)
    assert built["missed"] == []
    planned = places(plan)
    for name in ("family", "size", "split", "budget", "domain"):
        assert public[name].tolist() == [getattr(place, name) for place in planned]
    assert len(public) == 3300
    assert public["domain"].nunique() == 28
    assert entropy(public["domain"]) >= 0.997
    assert sealed["turns"].mean() >= 59.7
    assert {tuple(gates) for gates in public["gates"]} == {(*GATES, "unique")}


def test_no_two_share_a_view_or_an_instance_and_no_split_another_one(
    public: pd.DataFrame, sealed: pd.DataFrame
):
    assert public["id"].is_unique
    assert public["view_hash"].is_unique
    assert sealed["theta_hash"].is_unique
    prompts = public["prompt"].map(lambda prompt: prompt[0]["content"])
    of_split = {split: set(rows) for split, rows in prompts.groupby(public["split"])}
    assert sum(map(len, of_split.values())) == len(set().union(*of_split.values()))


def test_rejected_candidates_lie_beside_it():
    rejected = load_rejected(CORPUS)
    built = json.loads((CORPUS / "build.json").read_text())
    assert len(rejected) == built["rejected"] == built["candidates"] - 3300 > 0
    assert rejected["evidence"].notna().all()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_id_is_enough_to_build_it_again_to_the_byte(
    public: pd.DataFrame, sealed: pd.DataFrame, family: str
):
    """One of every family, of the sizes in turn; without its candidates and without a build."""
    rows = public[public["family"] == family]
    sizes = list(dict.fromkeys(public["size"]))
    row = rows[rows["size"] == sizes[list(FAMILIES).index(family) % len(sizes)]].iloc[-1]
    truth = sealed[sealed["id"] == row["id"]].iloc[0]
    environment = rebuild(CORPUS, row["id"])
    view = environment.view(Form.AGENTIC)
    assert [dict(message) for message in view.prompt] == list(row["prompt"])
    assert manifest.tools_text(view) == row["tools"]
    assert manifest.view_hash(view) == row["view_hash"]
    assert (environment.solution.u_star, environment.solution.u_zero) == (truth["u_star"], truth["u_zero"])
    assert environment.id == row["id"]


def test_a_rebuilt_environment_is_still_admitted(public: pd.DataFrame):
    row = public[(public["size"] == "small") & (public["split"] == "test")].iloc[0]
    verdict = admit(rebuild(CORPUS, row["id"]))
    assert verdict.admitted, (verdict.gate, verdict.evidence)


def test_a_player_cannot_read_what_is_sealed(public: pd.DataFrame, sealed: pd.DataFrame, tmp_path: Path):
    """The player's loader knows no sealed column, and needs no sealed file."""
    hidden = set(sealed.columns) - {"id"}
    assert not hidden & set(public.columns)
    for column in sorted(hidden):
        with pytest.raises(ManifestError, match=f"column '{column}' is sealed"):
            load_public(CORPUS, ["id", column])
    shutil.copytree(CORPUS / "public", tmp_path / "public")
    assert load_public(tmp_path).equals(public)
    with pytest.raises(ManifestError):
        load_public(CORPUS / "sealed" / "truth.parquet")
    with pytest.raises(ManifestError, match="build it first"):
        rebuild(tmp_path, public["id"].iloc[0])
