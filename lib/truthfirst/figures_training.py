"""Figures of training: curves, the gap between knowing and acting, credit, and how far the policy moved.

One function a figure, the stored rows of `study/learning.py` in and a matplotlib Figure out. Numbers of the source
stand beside ours as hollow marks: a large model on a GPU cluster, hence another experiment. FIGURES names them all.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, FORM_COLOURS, FORM_NAMES, GREEN, GREY, ORANGE, PINK, RED, SKY, canvas
from .sources import Group, published
from .study.stats import bootstrap_mean
from .study.transfer import ROLE_ORDER, source_gains

SOURCE = Group("vhd_play", "scores")  # form -> base, trained
RARE = 0.01  # share of tokens below which a message is too rare to draw
ARM_COLOURS = (BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY)
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
WINDOW = 5  # logged steps in a running mean


def learning_curve(frame: pd.DataFrame) -> Figure:
    """Score and probes of the training episodes by episodes drawn; a thin line a seed, a thick one their mean.

    frame: training.parquet, one arm.
    """
    figure, axes = canvas(1, 2, 8.6, 3.4)
    forms = [form for form in "AIF" if f"score/{form}" in frame and frame[f"score/{form}"].notna().any()]
    for form in forms:
        _curves(axes[0][0], frame, f"score/{form}", FORM_COLOURS[form], FORM_NAMES[form])
    axes[0][0].set_ylim(0, 1.02)
    axes[0][0].set_ylabel("mean score of a generation")
    _curves(axes[0][1], frame, "probes/A", FORM_COLOURS["A"], FORM_NAMES["A"])
    axes[0][1].set_ylabel("figures asked for, an episode")
    axes[0][1].set_ylim(0, None)
    for axis in axes[0]:
        axis.set_xlabel("episodes drawn")
        axis.locator_params(axis="x", nbins=6)
    axes[0][0].legend(fontsize=8, loc="lower right")
    seeds = frame["seed"].nunique()
    figure.suptitle(f"Training on {_families(frame)} ({seeds} seeds, running mean of {WINDOW} steps)")
    return figure


def _families(frame: pd.DataFrame) -> str:
    return f"{frame['size'].iloc[0]} instances, {frame['arm'].iloc[0]} credit"


def _curves(axis: Axes, frame: pd.DataFrame, column: str, colour: str, label: str) -> None:
    """Draw one line a seed and the mean over seeds where all of them have been."""
    smooth = {}
    for seed, rows in frame.groupby("seed"):
        by_samples = rows.groupby("samples")[column].mean()
        smooth[seed] = by_samples.rolling(WINDOW, min_periods=1).mean()
        axis.plot(smooth[seed].index, smooth[seed], color=colour, lw=0.6, alpha=0.6)
    mean = pd.DataFrame(smooth).dropna().mean(axis=1)
    axis.plot(mean.index, mean, color=colour, lw=2, label=label)


def gap(frame: pd.DataFrame) -> Figure:
    """Held-out score in the forms F, I and A before and after training, and the probes of form A.

    frame: training_scores.parquet, one arm. Intervals: bootstrap over episodes within seed and family.
    """
    figure, axes = canvas(1, 2, 8.6, 3.6, width_ratios=[3, 1])
    axis = axes[0][0]
    seeds, each = frame["seed"].nunique(), len(frame[(frame["policy"] == "base") & (frame["form"] == "A")])
    for number, form in enumerate("FIA"):
        for side, (policy, hatch) in enumerate((("base", "//"), ("trained", None))):
            rows = frame[(frame["form"] == form) & (frame["policy"] == policy)]
            x = number + (side - 0.5) * 0.36
            label = ("before" if side == 0 else "after") if number == 0 else None
            colour = FORM_COLOURS[form]
            estimate = bootstrap_mean(rows["reward"].to_numpy(float), _strata(rows))
            axis.bar(
                x,
                estimate.mean or 0,
                0.34,
                color=colour,
                alpha=0.45 if side == 0 else 1,
                hatch=hatch,
                label=label,
            )
            if estimate.low is not None and estimate.high is not None and estimate.mean is not None:
                error = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]]
                axis.errorbar(x, estimate.mean, yerr=error, fmt="none", ecolor=BLACK, capsize=3, lw=1)
                axis.text(x, 0.03, f"{estimate.mean:.2f}", ha="center", fontsize=8, bbox=LABEL)
            mark = {"mfc": "none", "mec": BLACK, "ms": 6, "ls": "none"}
            told = "source (another experiment)" if number == 0 and side == 0 else None
            axis.plot(x, SOURCE[form][side], "D", label=told, **mark)
    axis.set_xticks(range(3), [FORM_NAMES[form] for form in "FIA"])
    axis.set_ylim(0, 1.16)
    axis.set_ylabel("score, mean and 95% interval")
    axis.legend(ncols=3, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    acted = frame[frame["form"] == "A"]
    for side, policy in enumerate(("base", "trained")):
        rows = acted[acted["policy"] == policy]
        share = (rows["probes"] / rows["probes_possible"]).to_numpy(float)
        estimate = bootstrap_mean(share, _strata(rows))
        axes[0][1].bar(side, estimate.mean or 0, 0.6, color=FORM_COLOURS["A"], alpha=0.45 if side == 0 else 1)
        axes[0][1].text(side, 0.03, f"{estimate.mean:.2f}", ha="center", fontsize=8, bbox=LABEL)
    axes[0][1].set_xticks((0, 1), ("before", "after"))
    axes[0][1].set_ylim(0, 1.16)
    axes[0][1].set_ylabel("share of hidden figures asked for")
    figure.supxlabel(f"{seeds} seeds, {each} held-out episodes a bar", fontsize=8)
    return figure


def _strata(rows: pd.DataFrame) -> list[str]:
    return [f"{seed}/{family}" for seed, family in zip(rows["seed"], rows["family"], strict=True)]


def credit(frame: pd.DataFrame) -> Figure:
    """Score by episodes drawn for each way of giving credit, one panel a horizon; bands span the seeds.

    frame: training.parquet of the study "credit", with the column decisions.
    """
    horizons = sorted(frame["decisions"].unique())
    figure, axes = canvas(1, len(horizons), 4.4 * len(horizons), 3.4, sharey=True)
    form = str(frame["trained_forms"].iloc[0])[0]
    arms = list(dict.fromkeys(frame["arm"]))
    for axis, horizon in zip(axes[0], horizons, strict=True):
        part = frame[frame["decisions"] == horizon]
        for arm, colour in zip(arms, ARM_COLOURS, strict=False):
            rows = part[part["arm"] == arm]
            table = rows.pivot_table(index="samples", columns="seed", values=f"score/{form}")
            table = table.rolling(WINDOW, min_periods=1).mean().dropna()
            axis.plot(table.index, table.mean(axis=1), color=colour, lw=1.8, label=arm)
            axis.fill_between(
                table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, lw=0
            )
        seeds = part["seed"].nunique()
        axis.set_title(f"{horizon:g} decisions ({seeds} seed{'s' if seeds > 1 else ''})")
        axis.set_xlabel("episodes drawn")
        axis.locator_params(axis="x", nbins=6)
        axis.set_ylim(0, 1.02)
    axes[0][0].set_ylabel(f"mean score, form {form}")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(arms), fontsize=8)
    return figure


def divergence(frame: pd.DataFrame) -> Figure:
    """Divergence of trained from base policy by message of the episode, and its mean over all tokens.

    frame: training_divergence.parquet. Messages with less than RARE of a family's tokens are left out, and counted.
    """
    figure, axes = canvas(1, 1, 6.2, 3.4)
    axis, left_out = axes[0][0], 0
    for family, colour in zip(dict.fromkeys(frame["family"]), ARM_COLOURS, strict=False):
        rows = frame[frame["family"] == family].assign(nats=frame["kl"] * frame["tokens"])
        common = rows.groupby("turn")["tokens"].sum() >= RARE * rows["tokens"].sum()
        left_out += int(rows.loc[~rows["turn"].map(common), "tokens"].sum())
        sums = rows[rows["turn"].map(common)].groupby(["turn", "seed"])[["nats", "tokens"]].sum()
        table = (sums["nats"] / sums["tokens"]).unstack("seed")
        axis.plot(
            table.index + 1,
            table.mean(axis=1),
            color=colour,
            marker="o",
            ms=4,
            label=family.replace("_", " "),
        )
        axis.fill_between(
            table.index + 1, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, lw=0
        )
    mean = float((frame["kl"] * frame["tokens"]).sum() / frame["tokens"].sum())
    axis.axhline(mean, color=BLACK, lw=1)
    source = published("vhd_play", "divergence")
    axis.axhline(source, color=BLACK, lw=1, ls=":")
    edge = axis.get_xlim()[1]
    upper, lower = ("bottom", "top") if mean >= source else ("top", "bottom")
    axis.text(edge, mean, f" mean {mean:.3f}", va=upper, fontsize=8)
    axis.text(edge, source, f" source {source}\n (another experiment)", va=lower, fontsize=8)
    rare = f"; {left_out} tokens of rare messages left out" if left_out else ""
    axis.set_xlabel(f"message of the episode (form A{rare})")
    axis.set_ylabel("KL(trained, base), nats a token")
    axis.set_ylim(0, None)
    axis.legend(fontsize=8)
    tokens, seeds = int(frame["tokens"].sum()), frame["seed"].nunique()
    figure.suptitle(f"Where training changed the policy ({tokens:,} tokens, {seeds} seeds)")
    return figure


def transfer(frame: pd.DataFrame) -> Figure:
    """Agentic score of base and trained policy on every family, by its role; form F of the base as a mark.

    frame: training_scores.parquet and training_transfer.parquet, one arm.
    """
    table = frame[["role", "family"]].drop_duplicates()
    rows = table.sort_values("role", key=lambda column: column.map(ROLE_ORDER.index), kind="stable")
    figure, axes = canvas(1, 1, 7.4, 0.27 * len(rows) + 1.4)
    axis = axes[0][0]
    told = source_gains()
    for y, (part, family) in enumerate(zip(map(str, rows["role"]), rows["family"], strict=True)):
        mine = frame[frame["family"] == family]
        means = []
        for name, colour, marker in (("base", GREY, "o"), ("trained", GREEN, "D")):
            cells = mine[(mine["policy"] == name) & (mine["form"] == "A")]
            estimate = bootstrap_mean(cells["reward"].to_numpy(float), _strata(cells))
            means.append(estimate.mean or 0.0)
            if estimate.low is not None and estimate.high is not None:
                axis.hlines(y, estimate.low, estimate.high, color=colour, lw=1, alpha=0.6)
            axis.plot(
                means[-1],
                y,
                marker,
                color=colour,
                ms=5,
                label=f"{name}, form A" if y == 0 else None,
                zorder=3,
            )
        written = mine[(mine["policy"] == "base") & (mine["form"] == "F")]["reward"].mean()
        axis.plot(written, y, "|", color=BLUE, ms=9, label="base, form F" if y == 0 else None)
        axis.text(1.04, y, f"{means[1] - means[0]:+.2f}", va="center", fontsize=8)
        if part != (rows["role"].iloc[y - 1] if y else None):
            axis.text(1.16, y, f"{part} (source: {told[part]})", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), [name.replace("_", " ") for name in rows["family"]])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.02)
    axis.set_xlabel("score, mean and 95% interval over seeds and instances")
    axis.legend(ncols=3, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


ROLE_COLOURS = {"trained": GREEN, "near": ORANGE, "far": BLUE, "unseen": GREY}


def competence(frame: pd.DataFrame) -> Figure:
    """Agentic gain of every family by what the base can do written out; intervals paired on instances.

    frame: the table `competence` of study/transfer.py.
    """
    figure, axes = canvas(1, 1, 6.2, 3.8)
    axis = axes[0][0]
    axis.axhline(0, color=BLACK, lw=0.8)
    for role in ROLE_ORDER:
        rows, colour = frame[frame["role"] == role], ROLE_COLOURS[role]
        axis.vlines(rows["written"], rows["low"], rows["high"], color=colour, lw=1, alpha=0.7)
        axis.plot(
            rows["written"], rows["gain"], "o", color=colour, ms=6, label=f"{role} ({len(rows)} families)"
        )
    limits = [0, 1]
    axis.plot(limits, limits, color=GREY, lw=0.8, ls=":")
    axis.text(0.62, 0.66, "a gain as large as F", rotation=28, fontsize=7, color=GREY)
    axis.set_xlim(-0.02, 1.02)
    axis.set_xlabel("base, written out (form F), mean score")
    axis.set_ylabel("gain in form A by training on three families")
    axis.legend(fontsize=8, loc="upper left")
    return figure


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "learning_curve": learning_curve,
    "gap": gap,
    "credit": credit,
    "divergence": divergence,
    "transfer": transfer,
    "competence": competence,
}
