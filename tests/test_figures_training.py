"""Figures of training draw what the stored rows say."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.figures import draw
from truthfirst.figures_training import SOURCE


def history(arm: str = "outcome", size: str = "nano") -> pd.DataFrame:
    rows = [
        {"study": "s", "arm": arm, "seed": seed, "size": size, "trained_forms": "AI", "step": step}
        | {"samples": 8 * step, "score/A": 0.1 * step, "score/I": 0.05 * step, "probes/A": 1.0 * step}
        for seed in (0, 1)
        for step in range(1, 9)
    ]
    return pd.DataFrame(rows)


def scores() -> pd.DataFrame:
    rows = [
        {"seed": seed, "family": "rationing", "policy": policy, "form": form, "reward": value + 0.01 * i}
        | {"probes": 1 if policy == "base" else 4, "probes_possible": 4}
        for seed in (0, 1)
        for policy, values in (("base", (0.9, 0.2, 0.1)), ("trained", (0.9, 0.8, 0.7)))
        for form, value in zip("FIA", values, strict=True)
        for i in range(5)
    ]
    return pd.DataFrame(rows)


def test_the_curve_has_a_line_a_seed_and_their_mean() -> None:
    axis = draw("learning_curve", history()).axes[0]
    assert len(axis.lines) == 2 * (2 + 1)  # forms A and I: two seeds and a mean each
    assert axis.lines[2].get_ydata()[0] == pytest.approx(0.1)


def test_the_gap_has_bars_of_the_means_beside_the_source() -> None:
    figure = draw("gap", scores())
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == pytest.approx([0.92, 0.92, 0.22, 0.82, 0.12, 0.72])
    marks = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert marks == pytest.approx([value for form in "FIA" for value in SOURCE[form]])
    assert [bar.get_height() for bar in figure.axes[1].patches] == pytest.approx([0.25, 1.0])


def test_credit_has_a_panel_a_horizon() -> None:
    frame = pd.concat(
        [
            history(arm, size).assign(decisions=n)
            for arm in ("outcome", "regret")
            for size, n in (("nano", 4), ("b", 16))
        ]
    )
    figure = draw("credit", frame.assign(trained_forms="I"))
    assert [axis.get_title(loc="left") for axis in figure.axes] == [
        "4 decisions (2 seeds)",
        "16 decisions (2 seeds)",
    ]
    assert all(len(axis.lines) == 2 for axis in figure.axes)


def test_the_mean_divergence_weighs_tokens() -> None:
    rows = [
        {"family": "rationing", "form": "A", "seed": 0, "turn": t, "kl": kl, "tokens": n}
        for t, kl, n in ((0, 0.4, 1), (1, 0.1, 3))
    ]
    texts = [text.get_text() for text in draw("divergence", pd.DataFrame(rows)).axes[0].texts]
    assert " mean 0.175" in texts


def test_transfer_has_a_line_a_family_and_the_gain_in_numbers() -> None:
    frame = pd.concat([scores().assign(role="trained"), scores().assign(role="near", family="storage")])
    texts = [text.get_text() for text in draw("transfer", frame).axes[0].texts]
    assert texts.count("+0.60") == 2
    assert any("near (source: +0.63)" in text for text in texts)
