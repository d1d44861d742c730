"""Figures of comparisons: forms, what a look is worth, regret by turn, and where the loss comes from.

One function a figure, a tidy frame in and a matplotlib Figure out, like `figures.py`, which publishes them. FIGURES
names them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import (
    BLACK,
    BLUE,
    FORM_COLOURS,
    FORM_NAMES,
    GREEN,
    GREY,
    LOSS_COLOURS,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    canvas,
    families_in,
)
from .study.stats import summarise
from .study.tables import form_table

WASTE = {
    "unknown_tools": ("unknown tool", RED),
    "unreadable": ("unreadable call", PINK),
    "refused_otherwise": ("refused otherwise", ORANGE),
    "repeated": ("probe of a known entry", SKY),
}
STOPS = {
    "completed": ("all decisions made", GREEN),
    "budget": ("turns spent", BLUE),
    "stopped": ("stopped by itself", ORANGE),
    "done": ("said DONE", SKY),
    "no_call": ("no call in a message", YELLOW),
    "empty": ("empty message", PINK),
    "cut": ("message cut", RED),
    "token_limit": ("token limit", GREY),
    "context_full": ("context full", BLACK),
    "server": ("server failed", "#5A3A2A"),
}
WIDEST = 2.0  # shares of the span that a bar may take either way; a worse loss is cut, and says so


def forms(frame: pd.DataFrame) -> Figure:
    """Mean reward of each policy in the forms F, I and A, with intervals; the reachable mean as a tick."""
    policies = list(dict.fromkeys(frame["policy"]))
    budgets = list(dict.fromkeys(frame["budget"]))
    figure, axes = canvas(1, len(budgets), 4.9 * len(budgets) + 0.4, 4.2, sharey=True)
    for axis, budget in zip(axes[0], budgets, strict=True):
        rows = frame[frame["budget"] == budget]
        table = form_table(rows)
        for offset, (form, colour) in enumerate(FORM_COLOURS.items()):
            cells = (
                table[table["form"] == form]
                .set_index("policy")
                .reindex(policies)
                .astype(float, errors="ignore")
            )
            x = np.arange(len(policies)) + (offset - 1) * 0.26
            mean = cells["mean"].to_numpy(float)
            error = [mean - cells["low"].to_numpy(float), cells["high"].to_numpy(float) - mean]
            axis.bar(x, mean, 0.24, color=colour, label=FORM_NAMES[form])
            axis.errorbar(
                x, mean, yerr=np.maximum(0, error), fmt="none", ecolor=BLACK, elinewidth=1, capsize=2
            )
        reach = float(rows.drop_duplicates("environment")["reach"].mean())
        axis.axhline(1, color=BLACK, lw=0.8)
        axis.axhline(reach, color=GREEN, lw=1, ls=":")
        axis.text(
            len(policies) - 0.5, reach - 0.015, f"mean u_reach {reach:.2f}", ha="right", va="top", fontsize=8
        )
        n = rows["environment"].nunique()
        axis.set_title(f"{budget} budget ({n} instances)")
        axis.set_xticks(range(len(policies)), policies, rotation=35, ha="right")
        axis.set_ylim(0, 1.08)
    axes[0][0].set_ylabel("reward, mean and 95% interval")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def probes(frame: pd.DataFrame) -> Figure:
    """Mean agentic score against the number of probes, by family; the ceilings u_reach and u* as lines.

    frame: one row an episode of probe-K policies, column k; unclipped scores in `unclipped`.
    """
    families = families_in(frame)
    figure, axes = canvas(1, len(families), 3.6 * len(families), 3.5, sharey=True)
    for axis, family in zip(axes[0], families, strict=True):
        rows = frame[frame["family"] == family]
        for budget, colour, marker in (("ample", BLUE, "o"), ("tight", ORANGE, "s")):
            cells = rows[rows["budget"] == budget]
            if cells.empty:
                continue
            table = summarise(cells, ["k"], "unclipped").sort_values("k")
            k, mean = table["k"].to_numpy(float), table["mean"].to_numpy(float)
            axis.plot(k, mean, color=colour, marker=marker, ms=4, label=f"{budget} budget")
            axis.fill_between(
                k, table["low"].to_numpy(float), table["high"].to_numpy(float), color=colour, alpha=0.2
            )
            reach = float(cells.drop_duplicates("environment")["reach"].mean())
            axis.axhline(reach, color=colour, lw=1, ls=":")
        axis.axhline(1, color=BLACK, lw=0.8)
        axis.axhline(0, color=RED, lw=0.8, ls="--")
        axis.set_title(f"{family.replace('_', ' ')} ({rows['environment'].nunique()} instances)")
        axis.set_xlabel("probes before planning, K")
    axes[0][0].set_ylabel("unclipped score, mean and 95% interval")
    axes[0][0].legend(fontsize=8)
    figure.suptitle(
        "What looking is worth (dotted: mean u_reach of the budget; solid: u*; dashed: u0)", fontsize=10
    )
    return figure


def regret(frame: pd.DataFrame) -> Figure:
    """The regret ledger of one episode by turn: decision regrets, probe credit, the end row, and their sum.

    frame: columns turn, call, kind ("probe", "decision", "query", "refused", "end"), regret, credit, in shares of the
    span; columns score and title are constant.
    """
    figure, axes = canvas(2, 1, 8.8, 5.6, sharex=True, height_ratios=(2, 1))
    axis, below = axes[0][0], axes[1][0]
    x = np.arange(len(frame))
    spent = frame["regret"].fillna(0).to_numpy(float)
    ending = (frame["kind"] == "end").to_numpy()
    axis.bar(x[~ending], spent[~ending], color=RED, label="regret of a decision")
    axis.bar(x[ending], spent[ending], color=BLACK, label="end row")
    axis.step(x, np.cumsum(spent), where="mid", color=GREY, lw=1.2, label="sum so far")
    score = float(frame["score"].iloc[0])
    axis.axhline(1 - score, color=GREY, lw=0.8, ls=":")
    axis.text(len(x) - 0.5, 1 - score, f"1 - score = {1 - score:.3f}", ha="right", va="bottom", fontsize=8)
    axis.set_ylabel("share of u* - u0")
    axis.legend(fontsize=8, loc="center left")
    credit = frame["credit"].fillna(0).to_numpy(float)
    below.bar(x, credit, color=BLUE, label="credit of a probe (outside the sum)")
    below.axhline(0, color=BLACK, lw=0.8)
    below.set_ylabel("share of u* - u0")
    below.legend(fontsize=8, loc="upper left")
    below.set_xticks(x, frame["call"], rotation=60, ha="right", fontsize=7)
    axis.set_title(str(frame["title"].iloc[0]))
    return figure


# --- where the loss comes from ----------------------------------------------------------------------------
def losses(frame: pd.DataFrame) -> Figure:
    """Where agentic episodes lose: score and three losses by policy, calls that came to nothing, how they ended.

    frame: one row an episode (study.compare); only form A is drawn. Score and losses are means of shares of u* - u0 and
    sum to 1; planning is negative where luck beat the planner. Raises ValueError without agentic episodes whose
    losses were computed.
    """
    rows = frame[(frame["form"] == "A") & frame["information"].notna()]
    if rows.empty:
        raise ValueError("the figure losses needs episodes of form A with their loss split (losses=True)")
    budgets, policies = list(dict.fromkeys(rows["budget"])), list(dict.fromkeys(rows["policy"]))
    height = (0.34 * len(policies) + 0.9) * len(budgets) + 1.1
    figure, axes = canvas(len(budgets), 3, 13, height, width_ratios=(3, 1.7, 1.7), sharey=True)
    for line, budget in zip(axes, budgets, strict=True):
        cells = rows[rows["budget"] == budget]
        groups = [cells[cells["policy"] == policy] for policy in policies]
        _shares(line[0], groups)
        _wasted(line[1], groups)
        _endings(line[2], groups)
        line[0].set_title(
            f"{budget} budget (n = {cells['environment'].nunique()} instances; score at the right)"
        )
        line[0].set_yticks(range(len(policies)), policies)
    axes[0][0].invert_yaxis()
    axes[-1][0].set_xlabel("share of u* - u0, mean (score with 95% interval)")
    axes[-1][1].set_xlabel("calls an episode that came to nothing, mean")
    axes[-1][2].set_xlabel("how episodes ended, share")
    for column, axis in enumerate(axes[-1]):
        entries: dict[str, object] = {}
        for line in axes:
            handles, labels = line[column].get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        if entries:
            axis.legend(
                entries.values(),
                entries.keys(),
                loc="upper center",
                bbox_to_anchor=(0.5, -0.32 / (0.2 * len(policies) + 0.4)),
                ncols=4 if column == 0 else 2,
                fontsize=7.5,
            )
    figure.suptitle(
        "Where agentic episodes lose: score + information + planning + execution = 1", fontsize=10
    )
    return figure


def _shares(axis: Axes, groups: list[pd.DataFrame]) -> None:
    """Stack the mean shares of each policy: what is positive to the right of 0, what is negative to the left."""
    reached = [0.0, 1.0]
    for y, group in enumerate(groups):
        if group.empty:
            continue
        right = left = 0.0
        for name, colour in LOSS_COLOURS.items():
            share = float(group["unclipped" if name == "score" else name].mean())
            axis.barh(y, share, 0.66, left=right if share >= 0 else left, color=colour)
            right, left = (right + share, left) if share >= 0 else (right, left + share)
        table = form_table(group, ["policy"], "unclipped").iloc[0]
        if pd.notna(table["low"]):
            axis.plot([table["low"], table["high"]], [y, y], color=GREY, lw=2.4, solid_capstyle="butt")
            reached += [float(table["low"]), float(table["high"])]
        reached += [left, right]
        cut = left < -WIDEST or right > 1 + WIDEST
        note = f"{table['mean']:.2f}" + (" (cut)" if cut else "")
        axis.text(1.01, y, note, va="center", fontsize=7.5, transform=axis.get_yaxis_transform())
    for name, colour in LOSS_COLOURS.items():
        axis.barh(0, 0, color=colour, label=name)
    low, high = max(-WIDEST, min(reached)), min(1 + WIDEST, max(reached))
    axis.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    for at in (0, 1):
        axis.axvline(at, color=BLACK, lw=0.7, ls="-" if at else "--")


def _wasted(axis: Axes, groups: list[pd.DataFrame]) -> None:
    """Stack the calls that were refused or told nothing new."""
    most = 0.0
    for y, group in enumerate(groups):
        counted = group.assign(unreadable=group["unreadable"].fillna(0))
        counted["refused_otherwise"] = (
            counted["refused"] - counted["unknown_tools"] - counted["unreadable"]
        ).clip(lower=0)
        left = 0.0
        for column, (_, colour) in WASTE.items():
            mean = float(counted[column].mean()) if len(counted) else 0.0
            axis.barh(y, mean, 0.66, left=left, color=colour)
            left += mean
        most = max(most, left)
    for name, colour in WASTE.values():
        axis.barh(0, 0, color=colour, label=name)
    if not most:
        axis.text(0.5, 0.5, "none", color=GREY, ha="center", va="center", transform=axis.transAxes)
    axis.set_xlim(0, max(1.0, axis.get_xlim()[1]))


def _endings(axis: Axes, groups: list[pd.DataFrame]) -> None:
    """Stack the shares of each way to end; a model's own way of stopping is told apart."""
    seen = []
    for y, group in enumerate(groups):
        by_itself = (group["stop"] == "stopped") & group["end"].notna() & (group["end"] != "episode_over")
        ways = group["stop"].where(~by_itself, group["end"])
        left = 0.0
        for way, share in ways.value_counts(normalize=True, sort=False).items():
            colour = STOPS.get(str(way), (str(way), GREY))[1]
            axis.barh(y, share, 0.66, left=left, color=colour)
            left += share
            seen.append(str(way))
    for way in [*(w for w in STOPS if w in seen), *(w for w in dict.fromkeys(seen) if w not in STOPS)]:
        name, colour = STOPS.get(way, (way, GREY))
        axis.barh(0, 0, color=colour, label=name)
    axis.set_xlim(0, 1)


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "forms": forms,
    "losses": losses,
    "probes": probes,
    "regret": regret,
}
