"""Figures of the store: net worth over the year, reward by manager, and how tight the bound is.

One function a figure, the stored rows of `study/store.py` in and a matplotlib Figure out. FIGURES names them.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, canvas
from .study.stats import bootstrap_mean

COLOURS = {
    "closer": GREY,
    "idle": BLACK,
    "over-expander": RED,
    "base-stock": ORANGE,
    "forecaster": SKY,
    "price-tester": PINK,
    "surveyor": BLUE,
    "planner": GREEN,
}
REFERENCE = "planner"  # sees hidden demand
ASKED = 0.8  # share of u_bar - u0 that a full-information plan has to reach
THOUSAND = 100_000  # cents in a thousand of the currency


def _colour(policy: str) -> str:
    return COLOURS.get(policy, BLACK)


def _name(policy: str) -> str:
    return f"{policy} (full information)" if policy == REFERENCE else policy


def store_worth(frame: pd.DataFrame) -> Figure:
    """Net worth by day and manager, one panel a seed; a cross where a store went bankrupt, a line at the bound.

    frame: store_days.parquet.
    """
    seeds = list(dict.fromkeys(frame["seed"]))
    figure, axes = canvas(1, len(seeds), 3.3 * len(seeds) + 0.9, 3.7, sharey=True)
    for axis, seed in zip(axes[0], seeds, strict=True):
        rows = frame[frame["seed"] == seed]
        for policy in dict.fromkeys(frame["policy"]):
            line = rows[rows["policy"] == policy]
            style = {"color": _colour(policy), "lw": 1.6, "ls": "--" if policy == REFERENCE else "-"}
            axis.plot(line["day"], line["worth"] / THOUSAND, label=_name(policy), **style)
            if line["bankrupt"].iloc[-1]:
                end = line.iloc[-1]
                axis.plot(end["day"], end["worth"] / THOUSAND, "X", color=_colour(policy), ms=8, mec="white")
            elif len(line) == 1:
                axis.plot(line["day"], line["worth"] / THOUSAND, "o", color=_colour(policy), ms=4)
        axis.axhline(rows["u_bar"].iloc[0] / THOUSAND, color=BLACK, lw=1, ls=":", label="bound on the end")
        axis.set_title(f"seed {seed}")
        axis.set_xlabel("day")
        axis.locator_params(axis="x", nbins=5)
    axes[0][0].set_ylabel("net worth, thousands")
    axes[0][-1].plot([], [], "X", color=GREY, mec="white", ms=8, label="bankrupt")
    handles, names = axes[0][-1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(5, 2 * len(seeds)), fontsize=8)
    return figure


def store_reward(frame: pd.DataFrame) -> Figure:
    """Reward by manager: a dot a seed, the mean with its 95% interval; bankruptcies and calls beside them.

    frame: store.parquet.
    """
    policies = list(dict.fromkeys(frame["policy"]))
    figure, axes = canvas(1, 1, 7.2, 0.36 * len(policies) + 1.2)
    axis = axes[0][0]
    for y, policy in enumerate(policies):
        rows = frame[frame["policy"] == policy]
        axis.plot(rows["reward"], [y] * len(rows), "o", color=_colour(policy), alpha=0.3, ms=4, mew=0)
        estimate = bootstrap_mean(rows["reward"].to_numpy(float))
        if estimate.low is not None and estimate.high is not None:
            axis.hlines(y, estimate.low, estimate.high, color=_colour(policy), lw=5, alpha=0.7)
        axis.plot(estimate.mean, y, "D", color=_colour(policy), mec="white", ms=7, zorder=3)
        lost = int(rows["bankrupt"].sum())
        note = f"{estimate.mean:.2f}   {lost} of {len(rows)} bankrupt, {rows['turns'].mean():,.0f} calls"
        axis.text(1.04, y, note, va="center", fontsize=8)
    axis.set_yticks(range(len(policies)), [_name(policy) for policy in policies])
    axis.invert_yaxis()
    axis.set_xlim(-0.02, 1.02)
    axis.axvline(1, color=BLACK, lw=1, ls=":")
    axis.set_xlabel("reward (u - u0) / (bound - u0), mean and 95% interval over seeds")
    return figure


def store_bound(frame: pd.DataFrame) -> Figure:
    """What the full-information plan and the best manager without it reach of the bound, seeds in rising order.

    frame: store.parquet.
    """
    wide = frame.pivot(index="seed", columns="policy", values="unclipped")
    plan = wide[REFERENCE].sort_values()
    best = wide.drop(columns=REFERENCE).max(axis=1)[plan.index]
    figure, axes = canvas(1, 1, 6.4, 3.2)
    axis = axes[0][0]
    x = range(len(plan))
    axis.vlines(x, best, plan, color=GREY, lw=1)
    axis.plot(x, plan, "o", color=GREEN, label="full-information plan, rounded from the relaxation")
    axis.plot(x, best, "s", color=BLUE, ms=5, label="best scripted manager, hidden demand")
    axis.axhline(ASKED, color=BLACK, lw=1, ls=":")
    axis.text(len(plan) - 0.4, ASKED, f" {ASKED}, asked\n of the plan", va="center", fontsize=8)
    axis.set_xticks(x, plan.index.astype(str), fontsize=7, rotation=90)
    axis.set_xlabel("seed")
    axis.set_ylabel("share of bound - u0")
    axis.set_xlim(-0.5, len(plan) - 0.4)
    axis.set_ylim(0, 1.02)
    axis.legend(fontsize=8, loc="lower right")
    figure.suptitle(
        f"The unknown optimum lies between the plan and 1 (mean {plan.mean():.3f}, {len(plan)} seeds)"
    )
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "store_worth": store_worth,
    "store_reward": store_reward,
    "store_bound": store_bound,
}
