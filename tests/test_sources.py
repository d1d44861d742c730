"""Published figures stand in data/sources.yaml: names are checked, values cannot be changed, nothing stands twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from truthfirst import sources
from truthfirst.core_yaml import YamlError
from truthfirst.sources import Group, SourceError, published
from truthfirst.study.transfer import source_gains

READERS = ("figures_training", "figures_ablations", "study/transfer", "study/scaling", "study/strata", "study/store", "solvefirst/build_report")  # fmt: skip  # noqa: E501


def test_a_figure_is_reached_by_its_names():
    assert published("vhd_play", "scores", "F") == (0.962, 0.992)
    assert published("vhd_play", "divergence") == 0.089
    assert dict(Group("vhd_play", "strata")) == {"total": 0.443, "composition": 0.03, "within": 0.413}
    assert "elsewhere" not in Group("vhd_play", "strata")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("vhd",), "'vhd' in sources.yaml: choose among vhd_play, tev_gym"),
        (("tev_gym", "second"), "'second' in sources.yaml.tev_gym: choose among environments, "),
        (("tev_gym", "gates", "first"), "'first' in sources.yaml.tev_gym.gates: it is one figure"),
    ],
)
def test_an_unknown_name_is_said_with_those_that_are_there(names, said):
    with pytest.raises(SourceError) as caught:
        published(*names)
    assert said in str(caught.value)


def test_nobody_can_change_a_published_figure():
    with pytest.raises(TypeError):
        published("vhd_play")["divergence"] = 0.0


def test_a_missing_or_damaged_file_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SOURCES", tmp_path / "none.yaml")
    group = Group("vhd_play", "strata")  # reads nothing yet
    with pytest.raises(SourceError, match="set TRUTHFIRST_HOME"):
        group["total"]
    damaged = tmp_path / "damaged.yaml"
    damaged.write_text("a: 1\na: 2\n")
    monkeypatch.setattr(sources, "SOURCES", damaged)
    with pytest.raises(YamlError, match="stands twice"):
        published("a")


def test_published_figures_agree_with_each_other():
    first, last = published("vhd_play", "scaling").values()
    gains = published("vhd_play", "scaling_gains")
    assert (first[1] - first[0], last[1] - last[0]) == pytest.approx((gains[0], gains[-1]), abs=0.0015)
    split = published("vhd_play", "strata")
    assert split["composition"] + split["within"] == pytest.approx(split["total"])
    base, trained = published("vhd_play", "scores", "A")
    assert base < trained


def test_gains_by_role_read_as_text():
    assert source_gains() == {
        "trained": "+0.56",
        "near": "+0.63",
        "far": "+0.24 and +0.16",
        "unseen": "8 of 8 families improved",
    }


@pytest.mark.parametrize("name", READERS)
def test_no_reader_has_a_published_figure_of_its_own(name):
    text = (Path(sources.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    for figure in (
        "0.962",
        "0.875",
        "0.815",
        "0.089",
        "0.63",
        "0.432",
        "0.551",
        "0.443",
        "0.413",
        "182_844",
        "82.0",
    ):
        assert figure not in text
