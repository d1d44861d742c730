"""Figures of what a gain is made of: decomposition, gain by stratum, one pair of episodes, and divergence by place.

One function a figure, a tidy frame in and a matplotlib Figure out; the frames come from `study/strata.py` and
`study/trajectories.py`. Numbers of the source are hollow marks: another experiment. FIGURES names them all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, canvas, families_in, headline
from .study.strata import SOURCE, STRATIFIERS
from .study.trajectories import POLICIES, by_message, by_part

TERM_COLOURS = {"composition": ORANGE, "within": GREEN, "interaction": PINK}
POLICY_STYLES = {"optimum": (BLACK, "optimal plan"), "base": (GREY, "base"), "trained": (GREEN, "trained")}
FAMILY_COLOURS = (BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY)
PARTS = ("first", "inner", "last")
OURS = ("code_tool", "plan", "coverage")  # strata that a policy chooses, the source's first
MOST_STRATA = 12  # rows of one panel; of more strata the largest are drawn, and the panel says so


def _title(name: str) -> str:
    return STRATIFIERS[name].title if name in STRATIFIERS else name


# --- decomposition ---------------------------------------------------------------------------------------------
def strata(frame: pd.DataFrame) -> Figure:
    """Composition, within-stratum gain and interaction under each stratifier, with intervals; the source's on top.

    frame: study.strata.decompose of several stratifiers.
    """
    names = list(dict.fromkeys(frame["stratifier"]))
    names.sort(key=lambda name: OURS.index(name) if name in OURS else len(OURS))
    figure, axes = canvas(1, 1, 8.6, 0.66 * (len(names) + 1) + 1.5)
    axis = axes[0][0]
    for offset, term in ((-0.13, "composition"), (0.13, "within")):
        axis.plot(SOURCE[term], offset, "D", mfc="none", mec=TERM_COLOURS[term], ms=7, ls="none")
        _note(axis, f"{SOURCE[term]:+.3f}", SOURCE[term], offset, 8)
    labels = [f"source, use of the code tool\n(another experiment, total {SOURCE['total']:+.3f})"]
    for y, name in enumerate(names, start=1):
        table = frame[frame["stratifier"] == name].set_index("term")
        labels.append(_decomposition(axis, y, name, table))
    axis.axvline(0, color=BLACK, lw=0.8)
    axis.axhline(0.5, color=GREY, lw=0.6, ls=":")
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.margins(x=0.1)
    axis.set_xlabel("difference of mean scores, with 95% interval over instances")
    for term, colour in TERM_COLOURS.items():
        axis.barh(0, 0, color=colour, label=term)
    axis.plot([], [], "D", mfc="none", mec=BLACK, ms=7, ls="none", label="source")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    total = frame[frame["term"] == "total"].iloc[0]
    spread = "" if pd.isna(total["low"]) else f" [{total['low']:+.3f}, {total['high']:+.3f}]"
    gain = f"Agentic gain {total['value']:+.3f}{spread} of {total['n']} instances"
    headline(figure, f"{gain} = composition + within + interaction")
    return figure


def _decomposition(axis: Axes, y: int, name: str, table: pd.DataFrame) -> str:
    """Draw the terms of one stratifier, and return its label."""
    settled = name in STRATIFIERS and STRATIFIERS[name].settled
    for offset, (term, colour) in zip((-0.26, 0, 0.26), TERM_COLOURS.items(), strict=True):
        row: dict[str, Any] = dict(table.loc[term])
        if settled and term != "within":
            continue
        axis.barh(y + offset, row["value"], 0.24, color=colour)
        edge = max(0.0, row["value"])
        if pd.notna(row["low"]):
            axis.plot([row["low"], row["high"]], [y + offset] * 2, color=BLACK, lw=1)
            edge = max(edge, row["high"])
        _note(axis, f"{row['value']:+.3f}", edge, y + offset, 4)
    below = "of the instance: no composition"
    if not settled:
        below = f"{table['common'].iloc[0]:.0%} of episodes in strata of both"
    return f"{_title(name)}\n({below})"


def _note(axis: Axes, text: str, x: float, y: float, shift: int) -> None:
    axis.annotate(text, (x, y), (shift, 0), textcoords="offset points", va="center", fontsize=7.5)


def strata_gain(frame: pd.DataFrame) -> Figure:
    """Mean score of base and trained policy in every stratum, a panel a stratifier; gain and shares at the right.

    frame: study.strata.by_stratum of several stratifiers.
    """
    tables = {str(name): rows for name, rows in frame.groupby("stratifier", sort=False)}
    shown = {name: _largest(rows) for name, rows in tables.items()}
    heights = [len(table) + 0.4 for table in shown.values()]
    shape = {"height_ratios": heights, "width_ratios": (5, 3), "sharex": "col", "sharey": "row"}
    figure, axes = canvas(len(shown), 2, 9.2, 0.25 * sum(heights) + 0.45 * len(shown) + 1.1, **shape)
    for (axis, beside), (name, table) in zip(axes, shown.items(), strict=True):
        _arrows(axis, beside, table)
        cut = f" (the {len(table)} largest of {len(tables[name])})" if len(table) < len(tables[name]) else ""
        axis.set_title(_title(name) + cut, fontsize=9)
        beside.axis("off")
    axes[0][1].set_title("gain and 95% interval          episodes", fontsize=8, fontweight="normal")
    axes[-1][0].set_xlabel("mean score; grey: base, green: trained; area: share of episodes")
    axes[-1][0].set_xlim(-0.03, 1.03)
    headline(figure, "Gain by stratum")
    return figure


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    if len(table) <= MOST_STRATA:
        return table
    kept = (table["n0"] + table["n1"]).nlargest(MOST_STRATA).index
    return table.loc[table.index.isin(kept)]


def _arrows(axis: Axes, beside: Axes, table: pd.DataFrame) -> None:
    for y, row in enumerate(table.to_dict("records")):
        if pd.notna(row["gain"]):
            axis.plot([row["m0"], row["m1"]], [y, y], color=SKY, lw=2, zorder=1)
        for mean, share, colour in ((row["m0"], row["w0"], GREY), (row["m1"], row["w1"], GREEN)):
            if pd.notna(mean):
                axis.scatter(mean, y, s=14 + 80 * share, color=colour, zorder=2)
        spread = "" if pd.isna(row["low"]) else f" [{row['low']:+.2f}, {row['high']:+.2f}]"
        gain = "one policy only" if pd.isna(row["gain"]) else f"{row['gain']:+.2f}{spread}"
        moved = row["n0"] != row["n1"]
        shares = f"{row['w0']:.0%} → {row['w1']:.0%}" if moved else f"{row['w0']:.0%}"
        beside.text(0.02, y, gain, va="center", fontsize=8)
        beside.text(0.66, y, shares, va="center", fontsize=8)
    names = [
        textwrap.shorten(str(name).replace("_", " "), 34, placeholder=" ...") for name in table["stratum"]
    ]
    axis.set_yticks(range(len(table)), names, fontsize=8)
    axis.set_ylim(len(table) - 0.4, -0.6)
    beside.set_xlim(0, 1)


# --- one pair of episodes ------------------------------------------------------------------------------------------
def trajectories(frame: pd.DataFrame) -> Figure:
    """What was spent when: the pair that the rule chose at the left, means over all instances at the right.

    frame: study.trajectories.trajectories.
    """
    families = families_in(frame)
    figure, axes = canvas(len(families), 2, 8.6, 2.5 * len(families) + 0.8)
    for line, family in zip(axes, families, strict=True):
        for axis, view in zip(line, ("pair", "mean"), strict=True):
            rows = frame[(frame["family"] == family) & (frame["view"] == view)]
            _periods(axis, rows)
            chosen = (
                f"median gain of {rows['among'].iloc[0]} pairs"
                if view == "pair"
                else f"mean of {rows['among'].iloc[0]} pairs"
            )
            axis.set_title(f"{family.replace('_', ' ')}: {chosen}", fontsize=9)
        earned = frame[frame["family"] == family]["quantity"].iloc[0] == "earned"
        line[0].set_ylabel("earned" if earned else "amount decided on")
    for axis in axes[-1]:
        axis.set_xlabel("period")
    handles = [axes[0][0].containers[i] for i in range(len(POLICIES))]
    names = [POLICY_STYLES[name][1] for name in POLICIES]
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)
    headline(
        figure,
        "What was decided when, one pair and all of them (score; figures asked for before the first decision)",
    )
    return figure


def _periods(axis: Axes, rows: pd.DataFrame) -> None:
    lines = []
    for number, policy in enumerate(POLICIES):
        mine = rows[rows["policy"] == policy].sort_values("period")
        colour, label = POLICY_STYLES[policy]
        x = mine["period"].to_numpy(float) + (number - 1) * 0.27
        axis.bar(x, mine["value"], 0.25, color=colour)
        if policy != "optimum" and len(mine):
            asked = mine["probes_first"].iloc[0]
            probes = "" if pd.isna(asked) else f"; asked {asked:.3g}"
            lines.append(f"{label}: {mine['reward'].iloc[0]:.2f}{probes}")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.3 * (high - low))
    axis.text(0.99, 0.98, "\n".join(lines), ha="right", va="top", fontsize=7.5, transform=axis.transAxes)
    axis.axhline(0, color=BLACK, lw=0.8)
    axis.set_xticks(sorted(rows["period"].unique()))


# --- where policies differ -------------------------------------------------------------------------------------------
def divergence_place(frame: pd.DataFrame) -> Figure:
    """Share of the divergence and of the tokens by message of the episode; by part of the message where it is stored.

    frame: training_divergence.parquet, one arm, form A.
    """
    parts, table = by_part(frame), by_message(frame)
    families = families_in(frame)
    columns = len(families) + (not parts.empty)
    figure, axes = canvas(1, columns, 2.7 * columns + 0.6, 3.3, sharey=False)
    most = float(table[["share_nats", "share_tokens"]].to_numpy().max())
    for axis, family, colour in zip(axes[0], families, FAMILY_COLOURS, strict=False):
        rows = table[table["family"] == family]
        axis.bar(rows["turn"] + 1, rows["share_nats"], 0.8, color=colour, label="of the divergence")
        edges = [*(rows["turn"] + 0.5), rows["turn"].max() + 1.5]
        axis.stairs(rows["share_tokens"], edges, color=BLACK, lw=1, label="of the tokens")
        axis.set_title(family.replace("_", " "))
        axis.set_xticks(rows["turn"] + 1)
        axis.set_ylim(0, 1.3 * most)
        axis.legend(fontsize=7.5, loc="upper left")
        axis.set_xlabel("message")
    axes[0][0].set_ylabel("share")
    if not parts.empty:
        _by_part(axes[0][-1], parts, families)
    tokens, mean = (
        int(table["tokens"].sum()),
        float((table["kl"] * table["tokens"]).sum() / table["tokens"].sum()),
    )
    headline(
        figure,
        f"Where in the episode the policy changed (form A, {tokens:,} tokens, mean {mean:.3f} nats a token)",
    )
    return figure


def _by_part(axis: Axes, parts: pd.DataFrame, families: list[str]) -> None:
    for number, (family, colour) in enumerate(zip(families, FAMILY_COLOURS, strict=False)):
        means = parts[parts["family"] == family].set_index("part")["kl"].reindex(list(PARTS))
        axis.bar(np.arange(len(PARTS)) + (number - (len(families) - 1) / 2) * 0.26, means, 0.24, color=colour)
    axis.set_xticks(range(len(PARTS)), PARTS)
    axis.set_title("by token of a message")
    axis.set_ylabel("nats a token")


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "strata": strata,
    "strata_gain": strata_gain,
    "trajectories": trajectories,
    "divergence_place": divergence_place,
}
