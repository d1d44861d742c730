"""Figures of a corpus: drawn from the frames that the library makes, with the numbers that they hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from truthfirst.figures_corpus import CORPUS_FIGURES
from truthfirst.solvefirst.build_report import GATE_ORDER, costs, yields


def candidates(setters: tuple[str, ...]) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    rows = []
    for setter in setters:
        for n in range(40):
            admitted = bool(rng.random() < 0.8)
            rows.append(
                {
                    **{"family": "ab"[n % 2], "size": "small", "domain": "xyz"[n % 3], "budget": "ample"},
                    **{"split": "train", "setter": setter, "admitted": admitted},
                    **{"gate": None if admitted else GATE_ORDER[n % 5], "cpu_seconds": 0.1, "dollars": 0.0},
                }
            )
    return pd.DataFrame(rows)


def diversity(n: int = 50) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    parts = [
        pd.DataFrame({"measure": "nearest", "name": "i", "x": rng.integers(0, 2, n), "value": rng.random(n)})
    ]
    parts.append(pd.DataFrame({"measure": "passage", "name": "i", "x": 0, "value": rng.random(n) / 5}))
    for measure, k in (("domain", 5), ("family", 1)):
        parts.append(
            pd.DataFrame({"measure": measure, "name": list("abcde")[:k], "x": range(k), "value": n / k})
        )
    for measure in ("vocabulary", "tokens"):
        parts.append(
            pd.DataFrame({"measure": measure, "name": "", "x": [10, 30, n], "value": [100, 180, 220]})
        )
    return pd.concat(parts, ignore_index=True)


def overlap() -> pd.DataFrame:
    names = ["corpus", "itself", "planted 20", "planted 10", "shuffled"]
    rows = [
        {
            "set": name,
            "tokens": 12 if (name, n) == ("itself", 0) else 90,
            "shared_13": int(name in names[1:3]),
            "shared_8": int(name in names[1:4]),
            "jaccard": n / 10,
        }
        for name in names
        for n in range(10)
    ]
    return pd.DataFrame(rows)


FRAMES = {
    "corpus_yield": [yields(candidates(("template",))), yields(candidates(("template", "language:m")))],
    "corpus_costs": [costs(candidates(("template", "language:m")))],
    "corpus_diversity": [diversity(), diversity(2)],
    "decontamination": [overlap(), overlap().query("set == 'corpus'")],
}


def texts(figure: Figure) -> str:
    return "\n".join(
        [figure.get_suptitle()]
        + [t.get_text() for axis in figure.axes for t in (axis.title, axis.xaxis.label, *axis.texts)]
        + [
            label.get_text()
            for axis in figure.axes
            for label in (*axis.get_xticklabels(), *axis.get_yticklabels())
        ]
    )


def test_every_figure_has_a_frame_here():
    assert set(FRAMES) == set(CORPUS_FIGURES)


@pytest.mark.parametrize(("name", "frame"), [(name, f) for name, frames in FRAMES.items() for f in frames])
def test_a_figure_is_drawn_with_labelled_axes(name, frame):
    before = frame.copy()
    figure = CORPUS_FIGURES[name](frame)
    FigureCanvasAgg(figure).draw()
    for axis in figure.axes:
        assert axis.get_title() or axis.get_title(loc="left")
        assert axis.get_xlabel() or axis.get_ylabel()
    pd.testing.assert_frame_equal(frame, before)


def test_yields_show_n_and_no_cost_is_written_as_zero():
    shown = texts(CORPUS_FIGURES["corpus_yield"](FRAMES["corpus_yield"][0]))
    assert "40 candidates" in shown
    assert "20" in shown.split("\n")
    money = texts(CORPUS_FIGURES["corpus_costs"](FRAMES["corpus_costs"][0]))
    assert money.count("0 (calls no model)") == 2
    assert "Tev-Gym: median" in money


def test_the_diversity_figure_states_what_the_frame_holds():
    frame = diversity()
    shown = texts(CORPUS_FIGURES["corpus_diversity"](frame))
    close = frame.loc[frame["measure"] == "nearest", "value"]
    assert f"{(close >= 0.8).mean():.1%} at or above 0.8" in shown
    assert "220 words in 220 read" in shown


def test_the_decontamination_figure_states_every_share():
    shown = texts(CORPUS_FIGURES["decontamination"](overlap())).split("\n")
    assert shown.count("100.0%") == 5
    assert "planted 10" in " ".join(shown)
    assert "1 under 13 tokens" in shown
    assert "10 prompts" in shown[0]
