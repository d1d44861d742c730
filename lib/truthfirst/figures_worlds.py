"""Figures of worlds: their workflows, what Phi pays four agents, gates and probes as tables, starvation.

One function a figure, frames of `study/worlds.py` and `study/starvation.py` in and a matplotlib Figure out. FIGURES
names them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from .figure_style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, canvas, headline
from .worldfirst.progress import LAMBDA

CREDIT = LinearSegmentedColormap.from_list("credit", ("white", GREEN))
AGENT_STYLES: dict[
    str, dict[str, Any]
] = {  # from wide to narrow, so that agents who begin alike are all seen
    "never-submits": {"color": SKY, "lw": 6.0, "alpha": 0.5},
    "saboteur": {"color": RED, "lw": 3.0},
    "reference": {"color": BLACK, "lw": 1.2},
    "half-done": {"color": ORANGE, "lw": 1.8, "ls": "--"},
}
GROUP_COLOURS = {4: ORANGE, 8: BLUE, 24: GREEN}
ARM_COLOURS = (BLUE, ORANGE, GREEN, RED, PINK, SKY, GREY)


def world_dag(frame: pd.DataFrame) -> Figure:
    """The workflow of each generator from top to bottom; stages and steps of the critical path are emphasised.

    frame: study.worlds.dag_table of one instance a generator.
    """
    names = list(dict.fromkeys(frame["generator"]))
    levels = int(frame["level"].max()) + 1
    figure, axes = canvas(1, len(names), 3.1 * len(names), 0.78 * levels + 0.6)
    for axis, name in zip(axes[0], names, strict=True):
        rows = frame[frame["generator"] == name]
        _dag(axis, rows, levels)
        chain = int(rows["critical"].sum())
        axis.set_title(f"{name}: {len(rows)} stages, {chain} critical")
    origin = frame.iloc[0]
    headline(
        figure,
        f"Workflows ({origin['tier']}, seed {origin['seed']}). Orange: the critical path. "
        "Number: semantic work, in decisions that somebody has to get right",
    )
    return figure


def _dag(axis: Axes, rows: pd.DataFrame, levels: int) -> None:
    stages = rows.to_dict("records")
    places: dict[str, tuple[float, float]] = {}
    for level in range(levels):
        beside = [stage["stage"] for stage in stages if stage["level"] == level]
        places |= {name: (number - (len(beside) - 1) / 2, -level) for number, name in enumerate(beside)}
    critical = [stage["stage"] for stage in stages if stage["critical"]]  # stages stand in order
    chain = set(itertools.pairwise(critical))
    for stage in stages:
        name = stage["stage"]
        for before in filter(None, stage["after"].split(", ")):
            heavy = (before, name) in chain
            arrow: dict[str, Any] = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0}
            arrow |= {"color": ORANGE, "lw": 2.4} if heavy else {"color": GREY, "lw": 1.0}
            tail = (places[before][0], places[before][1] - _half(before))
            head = (places[name][0], places[name][1] + _half(name))
            axis.annotate("", head, tail, arrowprops=arrow, zorder=1)
        box: dict[str, Any] = {"boxstyle": "round,pad=0.35", "facecolor": "white"}
        box |= {"edgecolor": ORANGE, "lw": 2.0} if stage["critical"] else {"edgecolor": GREY, "lw": 0.9}
        told = "-\n".join(name.split("-", 1)) + f"\n{stage['work']:,}"
        axis.text(*places[name], told, ha="center", va="center", fontsize=7, bbox=box, zorder=2)
    axis.set_xlim(-1.15, 1.15)
    axis.set_ylim(-levels + 0.5, 0.5)
    axis.axis("off")


def _half(stage: str) -> float:
    """Return half the height of a stage's box, of two or three lines, in levels."""
    return 0.27 if "-" in stage else 0.2


def world_potential(frame: pd.DataFrame) -> Figure:
    """Phi after every call of the scripted agents, and the credit of every node while one builds and destroys.

    frame: study.worlds.potential_table of one instance.
    """
    nodes = [str(name) for name in frame if str(name).startswith("credit/")]
    figure, axes = canvas(1, 2, 10.6, 0.2 * len(nodes) + 2.2, width_ratios=[1, 1.15])
    _agents(axes[0][0], frame)
    _credits(axes[0][1], frame[frame["agent"] == "saboteur"], nodes)
    origin = frame.iloc[0]
    headline(
        figure,
        f"What Φ pays: {origin['generator']}, {origin['tier']}, seed {origin['seed']}. "
        "Star: submitted and passes; cross: submitted and fails; circle: stopped",
    )
    return figure


def _agents(axis: Axes, frame: pd.DataFrame) -> None:
    for agent, style in AGENT_STYLES.items():
        rows = frame[frame["agent"] == agent]
        if rows.empty:
            continue
        last = rows.iloc[-1]
        submitted = last["action"] == "submit"
        earned = int(last["passed"]) + float(LAMBDA) * last["phi"]
        label = f"{agent}: R = {earned:.2f}{'' if submitted else ', no submission'}"
        axis.step(rows["call"], rows["phi"], where="post", label=label, **style)
        marker = {True: "*", False: "X"}[bool(last["passed"])] if submitted else "o"
        look: dict[str, Any] = {
            "ms": 11 if marker == "*" else 7,
            "mec": "white",
            "mew": 0.6,
            "zorder": 4,
            "clip_on": False,
        }
        axis.plot(last["call"], last["phi"], marker, color=style["color"], **look)
    axis.set_xlabel("call")
    axis.set_ylabel("potential Φ of the workspace")
    axis.set_title("Φ after every call, and the return R at the end")
    axis.set_ylim(-0.03, 1.05)
    axis.locator_params(axis="x", integer=True)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)


def _credits(axis: Axes, rows: pd.DataFrame, nodes: Sequence[str]) -> None:
    values = rows[list(nodes)].to_numpy(float).T
    axis.imshow(values, aspect="auto", cmap=CREDIT, vmin=0, vmax=1, interpolation="nearest")
    axis.set_yticks(range(len(nodes)), [name.removeprefix("credit/") for name in nodes], fontsize=8)
    axis.set_xticks(range(len(rows)), [_short(action) for action in rows["action"]], rotation=90, fontsize=7)
    for y, x in zip(*np.nonzero((values > 0) & (values < 1)), strict=True):
        axis.text(x, y, f"{values[y, x]:.1f}", ha="center", va="center", fontsize=6)
    axis.set_xticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(nodes) + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="#DDDDDD", lw=0.6)
    axis.tick_params(which="minor", length=0)
    axis.set_title("Credit of the nodes as the saboteur builds and destroys")


def _short(action: str) -> str:
    return action.replace("output/", "")[:22]


def world_gates(frame: pd.DataFrame) -> Figure:
    """The eight gates by subject: held or failed, with the CPU seconds that a gate took.

    frame: study.worlds.gate_table of one instance a generator, and of one with a planted fault.
    """
    gates, subjects = list(dict.fromkeys(frame["gate"])), list(dict.fromkeys(frame["subject"]))
    cells = frame.set_index(["gate", "subject"])
    asks = dict(zip(frame["gate"], frame["asks"], strict=True))
    figure, axes = canvas(1, 1, 3.8 + 1.15 * len(subjects), 0.42 * len(gates) + 1.1)
    axis = axes[0][0]
    for y, gate in enumerate(gates):
        for x, subject in enumerate(subjects):
            cell = cells.loc[(gate, subject)]
            held = bool(cell["passed"])
            _box(axis, x, y, "#DDF1EA" if held else "#F6D3BF")
            told = f"{'holds' if held else 'FAILS'}, {cell['seconds']:.2f} s"
            axis.text(x, y, told, ha="center", va="center", fontsize=8, weight="normal" if held else "bold")
    _table(axis, [s.replace(", ", ",\n") for s in subjects], [f"{gate}\n{asks[gate]}" for gate in gates])
    origin = frame.iloc[0]
    headline(
        figure, f"Eight gates ({origin['tier']}, seed {origin['seed']}), with what each took in CPU seconds"
    )
    return figure


def world_probes(frame: pd.DataFrame) -> Figure:
    """What gaming probes earn: Phi by generator, and in brackets what it would be without prerequisites.

    frame: study.worlds.probe_table of one instance a generator. The last column says why the first generator refuses.
    """
    probes, names = list(dict.fromkeys(frame["probe"])), list(dict.fromkeys(frame["generator"]))
    cells = frame.set_index(["probe", "generator"])
    figure, axes = canvas(1, 1, 4.9 + 0.95 * len(names), 0.27 * len(probes) + 0.9)
    axis = axes[0][0]
    for y, probe in enumerate(probes):
        for x, name in enumerate(names):
            cell = cells.loc[(probe, name)]
            earns = bool(cell["passed"]) or cell["phi"] > 0
            _box(axis, x, y, "#CFE3F2" if earns else "#F2F2F2")
            more = f" ({cell['ungated']:.2f})" if cell["ungated"] > cell["phi"] else ""
            told = f"{cell['phi']:.2g}, {'passes' if cell['passed'] else 'fails'}{more}"
            axis.text(x, y, told, ha="center", va="center", fontsize=7.5)
        reason = cells.loc[(probe, names[0])]["reason"]
        axis.text(len(names) - 0.4, y, reason[:62], va="center", fontsize=7.5, color="#444444")
    axis.text(len(names) - 0.4, -0.75, f"why not ({names[0]})", va="bottom", fontsize=8)
    _table(axis, names, probes)
    axis.set_xlim(-0.5, len(names) + 2.7)
    origin = frame.iloc[0]
    headline(
        figure,
        f"Gaming probes ({origin['tier']}, seed {origin['seed']}): Φ and the strict verdict; in brackets, Φ if it had "
        "no prerequisites",
    )
    return figure


def _box(axis: Axes, x: int, y: int, colour: str) -> None:
    axis.fill(
        [x - 0.48, x + 0.48, x + 0.48, x - 0.48], [y - 0.45, y - 0.45, y + 0.45, y + 0.45], color=colour, lw=0
    )


def _table(axis: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Turn axes into a table with its head on top."""
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=7.5)
    axis.xaxis.tick_top()
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)


# --- starvation -------------------------------------------------------------------------------------------
def starvation(frame: pd.DataFrame) -> Figure:
    """Share of wasted groups by pass probability, group size and reward: theory as lines, simulation as points.

    frame: study.starvation.study. Panels: one a spread of p over tasks, one for rollouts that leave nothing, and one of
    training runs where the frame has any.
    """
    drawn = frame[frame["kind"] != "measured"]
    measured = frame[frame["kind"] == "measured"]
    spreads = sorted(drawn["rho"].unique())
    panels = len(spreads) + 1 + (not measured.empty)
    figure, axes = canvas(1, panels, 3.7 * panels, 3.9, sharey=True)
    still = drawn[drawn["idle"] == 0]
    for axis, rho in zip(axes[0], spreads, strict=False):
        rows = still[still["rho"] == rho]
        _wasted(axis, rows.drop_duplicates(["kind", "reward", "group_size", "p"]), "p")
        axis.set_xscale("logit")
        ticks = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.set_xlim(0.0004, 0.997)
        axis.set_xlabel("pass probability p" if rho == 0 else "mean pass probability")
        axis.set_title("One p for all tasks" if rho == 0 else f"p differs by task (Beta, ρ = {rho:g})")
    _source(axes[0][0], drawn[drawn["kind"] == "source"])
    lazy = axes[0][len(spreads)]
    skill = drawn.loc[drawn["idle"] > 0, "p"].iloc[0]
    _wasted(lazy, drawn[(drawn["p"] == skill) & (drawn["rho"] == 0) & (drawn["kind"] != "source")], "idle")
    lazy.set_xlabel("share of rollouts that leave nothing")
    lazy.set_title(f"What Φ needs (p = {skill:g})")
    if not measured.empty:
        _measured(axes[0][-1], measured)
    axes[0][0].set_ylabel("share of groups without variance")
    axes[0][0].set_ylim(-0.02, 1.04)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    groups = int(drawn["n"].max())
    world = str(frame["world"].iloc[0])
    headline(
        figure,
        f"Starvation: solid, terminal reward 1[pass]; dashed, 1[pass] + λΦ on graded partial work of {world}. "
        f"Lines: theory; points: {groups:,} simulated groups, 95% interval",
    )
    return figure


def _wasted(axis: Axes, rows: pd.DataFrame, x: str) -> None:
    for size in sorted(rows["group_size"].unique()):
        colour = GROUP_COLOURS.get(int(size), GREY)
        for reward, line, marker in (("terminal", "-", "o"), ("with Phi", "--", "s")):
            cells = rows[(rows["group_size"] == size) & (rows["reward"] == reward)].sort_values(x)
            theory, points = cells[cells["kind"] == "theory"], cells[cells["kind"] == "simulated"]
            label = f"G = {size:.0f}, {'terminal' if reward == 'terminal' else 'with Φ'}"
            axis.plot(theory[x], theory["wasted"], line, color=colour, lw=1.5, label=label)
            error = np.clip([points["wasted"] - points["low"], points["high"] - points["wasted"]], 0, None)
            face = colour if reward == "terminal" else "white"
            look: dict[str, Any] = {
                "fmt": marker,
                "ms": 4,
                "mfc": face,
                "mec": colour,
                "ecolor": colour,
                "elinewidth": 0.8,
            }
            axis.errorbar(points[x], points["wasted"], yerr=error, **look)


def _source(axis: Axes, rows: pd.DataFrame) -> None:
    look: dict[str, Any] = {"mfc": "none", "mec": BLACK, "ms": 9, "ls": "none", "zorder": 4}
    axis.plot(rows["p"], rows["wasted"], "D", label="source (its formula, G = 8)", **look)
    for row in rows.itertuples():
        axis.annotate(
            f"{row.wasted:.0%}", (row.p, row.wasted), (8, 4), textcoords="offset points", fontsize=8
        )


def _measured(axis: Axes, rows: pd.DataFrame) -> None:
    for arm, colour in zip(dict.fromkeys(rows["arm"]), ARM_COLOURS, strict=False):
        table = rows[rows["arm"] == arm].pivot_table(index="step", columns="seed", values="wasted")
        smooth = table.rolling(5, min_periods=1).mean().dropna()
        label = f"{arm} ({table.shape[1]} seed{'s' * (table.shape[1] > 1)})"
        axis.plot(smooth.index, smooth.mean(axis=1), color=colour, lw=1.8, label=label)
        axis.fill_between(
            smooth.index, smooth.min(axis=1), smooth.max(axis=1), color=colour, alpha=0.15, lw=0
        )
    axis.set_xlabel("optimizer step")
    axis.set_title("Measured in training")
    axis.legend(fontsize=8)


FIGURES: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "world_dag": world_dag,
    "world_potential": world_potential,
    "world_gates": world_gates,
    "world_probes": world_probes,
    "starvation": starvation,
}
