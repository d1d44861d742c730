"""Figures of comparisons: forms, what a look is worth, regret by turn, and where the loss comes from.

One function a figure, a tidy frame in and a matplotlib Figure out, like `figures.py`, which publishes them. FIGURES
names them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

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
    headline,
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
# The ample line is wide and the tight one lies on it, so that both are seen where they coincide.
BUDGET_STYLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ample", BLUE, {"lw": 4, "alpha": 0.55, "marker": "o", "ms": 7, "mew": 0}),
    ("tight", ORANGE, {"lw": 1.6, "marker": "s", "ms": 3.5}),
)
MOST_RUNS = 6  # of calls of one tool, that find room for their names under an axis
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
        axis.set_title(f"{budget} budget ({_instances(rows)})")
        axis.set_xticks(range(len(policies)), policies, rotation=35, ha="right")
        axis.set_ylim(0, 1.08)
    axes[0][0].set_ylabel("reward, mean and 95% interval")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _instances(rows: pd.DataFrame) -> str:
    n = rows["environment"].nunique()
    return f"n = {n} instance{'' if n == 1 else 's'}"


def probes(frame: pd.DataFrame) -> Figure:
    """Mean agentic score against the number of probes, by family; the ceilings u_reach and u* as lines.

    frame: one row an episode of probe-K policies, column k; unclipped scores in `unclipped`.
    """
    families = families_in(frame)
    figure, axes = canvas(1, len(families), 3.6 * len(families), 3.5, sharey=True)
    for axis, family in zip(axes[0], families, strict=True):
        rows = frame[frame["family"] == family]
        counted = []
        for budget, colour, style in BUDGET_STYLES:
            cells = rows[rows["budget"] == budget]
            if cells.empty:
                continue
            table = summarise(cells, ["k"], "unclipped").sort_values("k")
            k, mean = table["k"].to_numpy(float), table["mean"].to_numpy(float)
            axis.plot(k, mean, color=colour, label=f"{budget} budget", **style)
            counted.append(f"{cells['environment'].nunique()} {budget}")
            axis.fill_between(
                k, table["low"].to_numpy(float), table["high"].to_numpy(float), color=colour, alpha=0.2
            )
            reach = float(cells.drop_duplicates("environment")["reach"].mean())
            axis.axhline(reach, color=colour, lw=1, ls=":")
        axis.axhline(1, color=BLACK, lw=0.8)
        axis.axhline(0, color=RED, lw=0.8, ls="--")
        axis.set_title(f"{family.replace('_', ' ')} (n = {', '.join(counted)})")
        axis.set_xlabel("probes before planning, K")
    axes[0][0].set_ylabel("unclipped score, mean and 95% interval")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    headline(figure, "What looking is worth (dotted: mean u_reach of the budget; solid: u*; dashed: u0)")
    return figure


def regret(frame: pd.DataFrame) -> Figure:
    """The regret ledger of one episode by turn: decision regrets, probe credit, the end row, and their sum.

    frame: columns turn, call, kind ("probe", "decision", "query", "refused", "end"), regret, credit, in shares of the
    span; columns score and title are constant.
    """
    calls = [str(call) for call in frame["call"]]
    runs = _runs([call.partition(" ")[2] for call in calls])
    figure, axes = canvas(2, 1, 9.4, 5.4, sharex=True, height_ratios=(2, 1))
    axis, below = axes[0][0], axes[1][0]
    x = np.arange(len(frame))
    spent = frame["regret"].fillna(0).to_numpy(float)
    ending = (frame["kind"] == "end").to_numpy()
    axis.bar(x[~ending], spent[~ending], color=RED, label="regret of a decision")
    axis.bar(x[ending], spent[ending], color=BLACK, label="end row")
    axis.step(x, np.cumsum(spent), where="mid", color=GREY, lw=1.2, label="sum so far")
    score = float(frame["score"].iloc[0])
    lost = 1 - score
    axis.axhline(lost, color=GREY, lw=0.8, ls=":")
    axis.annotate(
        f"1 - score = {lost:.3f}",
        (0.005, lost),
        (0, 4),
        xycoords=axis.get_yaxis_transform(),
        textcoords="offset points",
        va="bottom",
        fontsize=8,
    )
    axis.margins(y=0.14)
    axis.set_ylabel("share of u* - u0")
    credit = frame["credit"].fillna(0).to_numpy(float)
    below.bar(x, credit, color=BLUE, label="credit of a probe (outside the sum)")
    below.axhline(0, color=BLACK, lw=0.8)
    below.set_ylabel("share of u* - u0")
    if len(runs) <= MOST_RUNS:  # turns as numbers, and one name under each run of calls of one tool
        below.set_xticks(x, [call.partition(" ")[0] for call in calls], fontsize=7)
        under = below.get_xaxis_transform()
        for name, first, last in runs:
            if name:
                ends = [first - 0.35, last + 0.35]
                below.plot(ends, [-0.2, -0.2], color=GREY, lw=0.8, clip_on=False, transform=under)
            below.text((first + last) / 2, -0.24, name, ha="center", va="top", fontsize=8, transform=under)
    else:
        below.set_xticks(x, calls, rotation=60, ha="right", fontsize=7)
    entries = [pair for part in (axis, below) for pair in zip(*part.get_legend_handles_labels(), strict=True)]
    figure.legend(*zip(*entries, strict=True), loc="outside lower center", ncols=4, fontsize=8)
    axis.set_title(str(frame["title"].iloc[0]))
    return figure


def _runs(names: list[str]) -> list[tuple[str, int, int]]:
    """Return (name, first, last) of each run of equal neighbours."""
    runs: list[tuple[str, int, int]] = []
    for place, name in enumerate(names):
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1], place)
        else:
            runs.append((name, place, place))
    return runs


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
    parts: list[tuple[str, _Part]] = [("share of u* - u0, mean (score with 95% interval)", _shares)]
    quiet = []  # what there is nothing to draw of is said, and takes no room
    if _waste(rows)[list(WASTE)].to_numpy().any():
        parts.append(("calls an episode that came to nothing, mean", _wasted))
    else:
        quiet.append("no call was refused or wasted")
    if (_ways(rows) != "completed").any():
        parts.append(("how episodes ended, share", _endings))
    else:
        quiet.append("every episode ended with all decisions made")
    side_by_side = len(parts) == 1
    shape = (1, len(budgets)) if side_by_side else (len(budgets), len(parts))
    widths = (1,) * len(budgets) if side_by_side else (3, 1.7, 1.7)[: len(parts)]
    height = (0.34 * len(policies) + 0.9) * shape[0] + 1.2
    width = 6.0 * len(budgets) if side_by_side else 2.05 * sum(widths)
    figure, axes = canvas(*shape, width, height, width_ratios=widths, sharey=True)
    for number, budget in enumerate(budgets):
        cells = rows[rows["budget"] == budget]
        groups = [cells[cells["policy"] == policy] for policy in policies]
        line = [axes[0][number]] if side_by_side else axes[number]
        for axis, (_, part) in zip(line, parts, strict=True):
            part(axis, groups)
        line[0].set_title(f"{budget} budget ({_instances(cells)})")
        line[0].set_yticks(range(len(policies)), policies)
    axes[0][0].invert_yaxis()
    columns = [list(axes[0])] if side_by_side else [list(column) for column in axes.T]
    for column in columns:  # budgets are compared on one scale
        ends = [axis.get_xlim() for axis in column]
        for axis in column:
            axis.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
    for column, (label, _) in zip(columns, parts, strict=True):
        for axis in column if side_by_side else column[-1:]:
            axis.set_xlabel(label)
        entries: dict[str, Any] = {}
        for axis in column:
            handles, labels = axis.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        if side_by_side:
            figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=4, fontsize=8)
            continue
        column[-1].legend(
            entries.values(),
            entries.keys(),
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            bbox_transform=column[-1].transAxes + ScaledTranslation(0, -0.5, figure.dpi_scale_trans),
            ncols=4 if column is columns[0] else 2,
            fontsize=7.5,
        )
    said = f"\n{', '.join(quiet)[0].upper()}{', '.join(quiet)[1:]}." if quiet else ""
    headline(
        figure,
        f"Where agentic episodes lose: score + information + planning + execution = 1 (score at the right){said}",
    )
    return figure


_Part = Callable[[Axes, list[pd.DataFrame]], None]


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


def _waste(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a column for each way in which a call came to nothing."""
    counted = rows.assign(unreadable=rows["unreadable"].fillna(0))
    others = counted["refused"] - counted["unknown_tools"] - counted["unreadable"]
    return counted.assign(refused_otherwise=others.clip(lower=0))


def _wasted(axis: Axes, groups: list[pd.DataFrame]) -> None:
    """Stack the calls that were refused or told nothing new."""
    most = 0.0
    for y, group in enumerate(groups):
        counted, left = _waste(group), 0.0
        for column, (_, colour) in WASTE.items():
            mean = float(counted[column].mean()) if len(counted) else 0.0
            axis.barh(y, mean, 0.66, left=left, color=colour)
            left += mean
        most = max(most, left)
    for name, colour in WASTE.values():
        axis.barh(0, 0, color=colour, label=name)
    if not most:
        axis.text(0.5, 0.5, "none", color=GREY, ha="center", va="center", transform=axis.transAxes)
    axis.set_xlim(0, max(1.0, 1.05 * most))


def _ways(group: pd.DataFrame) -> pd.Series:
    """Return how each episode ended; a model's own way of stopping is told apart."""
    by_itself = (group["stop"] == "stopped") & group["end"].notna() & (group["end"] != "episode_over")
    return group["stop"].where(~by_itself, group["end"])


def _endings(axis: Axes, groups: list[pd.DataFrame]) -> None:
    """Stack the shares of each way to end."""
    seen = []
    for y, group in enumerate(groups):
        left = 0.0
        for way, share in _ways(group).value_counts(normalize=True, sort=False).items():
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
    "models": losses,  # the same of language models, with how they waste calls
    "probes": probes,
    "regret": regret,
}
