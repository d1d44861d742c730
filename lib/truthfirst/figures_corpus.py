"""Figures of a corpus of environments: yield, cost, diversity, decontamination.

One function a figure, a tidy frame in and a matplotlib Figure out, like `figures.py`, which publishes them.
The frames come from build_report.py, diversity.py and decontaminate.py of solvefirst. CORPUS_FIGURES names them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, YELLOW, canvas


def corpus_yield(frame: pd.DataFrame) -> Figure:
    """Share of candidates that pass, by gate, family, size, domain and setter, with 95% Wilson intervals and n.

    frame: solvefirst.build_report.yields; one colour a setter where there are several.
    """
    dimensions = [
        d for d in ("gate", "family", "size", "domain", "setter") if (frame["dimension"] == d).any()
    ]
    setters = list(dict.fromkeys(frame["setter"]))
    setters = setters if len(setters) == 1 else [name for name in setters if name != "all"]
    rows = {d: list(dict.fromkeys(frame.loc[frame["dimension"] == d, "value"])) for d in dimensions}
    most = max(map(len, rows.values()))
    figure, axes = canvas(1, len(dimensions), 2.9 * len(dimensions), 0.2 * most + 1.6)
    least = min(0.95, float(frame["low"].min()) - 0.02)  # one scale for all panels; n stands right of 1
    beyond = 1 + 0.04 * (1 - least)
    for axis, dimension in zip(axes[0], dimensions, strict=True):
        for number, (setter, colour) in enumerate(
            zip(setters, (BLUE, ORANGE, GREEN, PINK, RED, SKY), strict=False)
        ):
            cells = frame[(frame["dimension"] == dimension) & (frame["setter"] == setter)]
            y = np.array([rows[dimension].index(value) for value in cells["value"]]) + 0.16 * number
            share = cells["yield"].to_numpy(float)
            error = [share - cells["low"].to_numpy(float), cells["high"].to_numpy(float) - share]
            axis.errorbar(
                share,
                y,
                xerr=np.maximum(0, error),
                fmt="o",
                ms=3.5,
                color=colour,
                lw=1,
                capsize=1.5,
                label=setter,
            )
            for at, n in zip(y, cells["candidates"], strict=True):
                axis.text(beyond, at, f"{n:,}", fontsize=5.5, va="center", color=GREY)
        axis.set_yticks(
            range(len(rows[dimension])), [str(v).replace("_", " ") for v in rows[dimension]], fontsize=6.5
        )
        axis.set_ylim(most - 0.5, -0.8)
        axis.set_xlim(least, 1 + 0.25 * (1 - least))
        axis.set_title(f"by {dimension}")
        axis.set_xlabel(
            "share passed (of those that reached the gate)" if dimension == "gate" else "share admitted"
        )
    if len(setters) > 1:
        axes[0][0].legend(fontsize=7, loc="lower left")
    total = frame[(frame["dimension"] == "gate")].groupby("setter")["candidates"].max()
    figure.suptitle(f"Yield of admission ({int(total.max()):,} candidates; 95% intervals; grey: n)")
    return figure


def corpus_costs(frame: pd.DataFrame) -> Figure:
    """Seconds and dollars per admitted environment, by setter, beside what the sources published.

    frame: solvefirst.build_report.costs. A cost of exactly 0 is written, since a logarithmic axis cannot show it.
    """
    figure, axes = canvas(1, 2, 9.2, 0.42 * frame["builder"].nunique() + 1.9)
    labels = {"seconds": "CPU seconds per environment", "dollars": "US dollars per environment"}
    for axis, (measure, label) in zip(axes[0], labels.items(), strict=True):
        cells = frame[frame["measure"] == measure].reset_index(drop=True)
        axis.set_xscale("log")
        drawn = cells[["value", "low", "high"]].to_numpy(float)
        drawn = drawn[drawn > 0]
        if len(drawn):
            axis.set_xlim(drawn.min() / 4, drawn.max() * 4)
        for y, row in enumerate(cells.to_dict("records")):
            ours = not pd.isna(row["n"])
            colour = BLUE if ours else ORANGE
            ends = [row[name] for name in ("low", "value", "high") if not pd.isna(row[name])]
            if not any(ends):
                axis.text(
                    0.02,
                    y,
                    "0 (calls no model)",
                    transform=axis.get_yaxis_transform(),
                    va="center",
                    fontsize=8,
                )
                continue
            axis.plot([min(ends), max(ends)], [y, y], color=colour, lw=3, solid_capstyle="butt")
            if not pd.isna(row["value"]):
                axis.plot(row["value"], y, "o", color=colour)
        names = [
            f"{r['builder']}: {r['statistic']}" + ("" if pd.isna(r["n"]) else f" of {int(r['n']):,}")
            for r in cells.to_dict("records")
        ]
        axis.set_yticks(range(len(cells)), names, fontsize=8)
        axis.set_ylim(len(cells) - 0.5, -0.5)
        axis.set_xlabel(label)
    axes[0][0].set_title("Time")
    axes[0][1].set_title("Money")
    figure.suptitle(
        "What an admitted environment costs (blue: ours; orange: as published, on other machines)"
    )
    return figure


def corpus_diversity(frame: pd.DataFrame) -> Figure:
    """Topics, nearest neighbours, vocabulary growth and the passage's share of a corpus.

    frame: solvefirst.diversity.diversity_frame.
    """
    figure, axes = canvas(2, 2, 9.6, 6.6)
    of = {str(name): group for name, group in frame.groupby("measure", sort=False)}
    _topics(axes[0][0], of)
    close = of["nearest"]
    bins = np.linspace(0, 1, 51)
    groups = [close.loc[close["x"] == same, "value"] for same in (1, 0)]
    axes[0][1].hist(
        groups, bins=bins, stacked=True, color=[BLUE, ORANGE], label=["same family", "another family"]
    )
    axes[0][1].axvline(0.8, color=RED, lw=0.8, ls="--")
    axes[0][1].set_title(f"Nearest neighbour: {(close['value'] >= 0.8).mean():.1%} at or above 0.8")
    axes[0][1].set_xlabel("Jaccard similarity of token sets with the nearest prompt")
    axes[0][1].set_ylabel("prompts")
    axes[0][1].legend(fontsize=8)
    words, total = of["vocabulary"], of["tokens"]
    axes[1][0].plot(words["x"], words["value"], color=BLUE, marker="o", ms=2.5)
    axes[1][0].set_title(
        f"Vocabulary: {words['value'].iloc[-1]:,.0f} words in {total['value'].iloc[-1]:,.0f} read"
    )
    axes[1][0].set_xlabel("prompts read, in shuffled order")
    axes[1][0].set_ylabel("distinct words")
    axes[1][0].set_ylim(bottom=0)
    shares = of["passage"]["value"]
    axes[1][1].hist(shares, bins=40, color=GREEN)
    axes[1][1].axvline(shares.mean(), color=BLACK, lw=0.8)
    axes[1][1].set_title(f"Taken from the passage: {shares.mean():.1%} on average")
    axes[1][1].set_xlabel("share of a prompt's tokens in runs of 5 of its passage")
    axes[1][1].set_ylabel("prompts")
    figure.suptitle(f"Diversity of {len(close):,} environments")
    return figure


def _topics(axis: Axes, of: dict[str, pd.DataFrame]) -> None:
    for y, (measure, colour) in enumerate((("domain", BLUE), ("family", ORANGE))):
        counts = of[measure]["value"].to_numpy(float)
        shares = counts / counts.sum()
        level = float(-(shares * np.log(shares)).sum() / np.log(len(shares))) if len(shares) > 1 else 1.0
        label = f"{len(counts)} {'domains' if measure == 'domain' else 'families'}, entropy {level:.4f}"
        axis.plot(np.sort(counts)[::-1] / counts.mean(), color=colour, marker="os"[y], ms=3.5, label=label)
    axis.set_ylim(0, 2)
    axis.set_title("Topics")
    axis.set_xlabel("rank")
    axis.set_ylabel("environments, over the mean")
    axis.legend(fontsize=8, loc="lower left")


def decontamination(frame: pd.DataFrame) -> Figure:
    """What prompts share with evaluation texts, and the controls that show the comparator at work.

    frame: solvefirst.decontaminate.overlaps.
    """
    sets = list(dict.fromkeys(frame["set"]))
    figure, axes = canvas(1, 2, 10.4, 3.6)
    left, right = axes[0]
    x = np.arange(len(sets))
    for offset, (column, colour) in enumerate((("shared_13", RED), ("shared_8", ORANGE))):
        shares = [float((frame.loc[frame["set"] == name, column] > 0).mean()) for name in sets]
        bars = left.bar(
            x + 0.38 * (offset - 0.5), shares, 0.36, color=colour, label=f"{column[7:]} tokens in a row"
        )
        left.bar_label(bars, [f"{share:.1%}" for share in shares], fontsize=6.5)
    left.set_xticks(x, [_set_label(name, frame[frame["set"] == name]) for name in sets], fontsize=7)
    left.set_ylim(0, 1.3)
    left.set_yticks(np.linspace(0, 1, 6))
    left.set_ylabel("share of texts that share a run")
    left.set_title("Runs shared with an evaluation text")
    left.legend(fontsize=7, loc="upper left", ncols=2)
    looks = ((BLUE, "-"), (BLACK, "-"), (ORANGE, "--"), (PINK, ":"), (YELLOW, "--"))  # some lines coincide
    for name, (colour, line) in zip(sets, looks, strict=False):
        values = np.sort(frame.loc[frame["set"] == name, "jaccard"].to_numpy(float))
        share = np.arange(1, len(values) + 1) / len(values)
        right.step(values, share, where="post", color=colour, ls=line, label=name)
    right.set_xlim(0, 1.02)
    right.set_xlabel("Jaccard similarity with the nearest evaluation text")
    right.set_ylabel("share of texts, cumulative")
    right.set_title("Nearest evaluation text")
    right.legend(fontsize=7)
    prompts = int((frame["set"] == "corpus").sum())
    figure.suptitle(f"Decontamination: {prompts:,} prompts, and the controls of the comparator")
    return figure


def _set_label(name: str, rows: pd.DataFrame) -> str:
    """Return the name of a set with n, and how many of its texts are too short to share a run of 13 tokens."""
    short = int((rows["tokens"] < 13).sum())
    return f"{name}\nn = {len(rows):,}" + (f"\n{short:,} under 13 tokens" if short else "")


CORPUS_FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "corpus_yield": corpus_yield,
    "corpus_costs": corpus_costs,
    "corpus_diversity": corpus_diversity,
    "decontamination": decontamination,
}
