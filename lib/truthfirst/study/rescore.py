"""A stored trace scored again without a model, believing nothing that it says of itself.

The recipe in a trace's header says which instance was played. It is built again: parameters are sampled from their
stream, solved, and told in the same words. A header whose theta, u_star, u_zero, turn budget or environment differ is
refused, and so is a trace whose turns disagree with the mechanism (`solvefirst/score.py`).

How far the check could go stands beside the score, in `checked`:

    all          the whole environment was built again
    parameters   theta was sampled and solved again, but the words cannot be told again (a corpus folder that is not
                 here, no sandbox), so the environment's id and with it the prompt are taken at their word
    nothing      there is no recipe that can be built: theta is taken at its word, and only solved again

It does not promise that the calls were made by the policy that is named, nor that an answer of form F was its own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed
from pydantic import ValidationError

from .. import __version__
from ..episode import load_traces
from ..records import RecordError, canonical_json
from ..sandbox import SandboxUnavailable
from ..solvefirst.candidates import SETTERS, Recipe, build_candidate
from ..solvefirst.environment import read_plan, turn_budget
from ..solvefirst.families import family as find_family
from ..solvefirst.families.base import UnknownName
from ..solvefirst.realize.corpus import CorpusError
from ..solvefirst.realize.spec import SpecError
from ..solvefirst.score import Replay, header_number, score_trace
from ..streams import SeedError, stream
from ..types import Form, Score, StopReason, Trace
from .episodes import IDENTITY, identity


@dataclass(frozen=True, slots=True)
class _Truth:
    """What a recipe gives. `stated` holds header entries by name; `reason` says why words or everything are missing."""

    stated: dict[str, Any]
    checked: str
    reason: str | None = None


def rescore(trace: Trace) -> Score:
    """Score a trace without a model and without its header's word; see the module docstring.

    The score's detail says how far the header was checked (`checked`), and why no further (`unchecked`, else None).
    Raises RecordError that names file, line and field where header and recipe, or turns and mechanism, disagree.
    """
    replay = Replay.of(trace)
    truth = _recipe_truth(trace)
    if truth.checked == "nothing":
        solution = replay.family.solve(replay.theta)
        stated = {"u_star": solution.u_star, "u_zero": solution.u_zero}
        try:
            stated["turn_budget"] = turn_budget(replay.family, replay.theta, trace.header.get("budget", ""))
        except UnknownName as error:
            raise RecordError(f"{trace.where}: header.budget cannot be used ({error})") from error
        truth = _Truth(stated, "nothing", truth.reason)
    _compare(trace, replay, truth)
    allowed = truth.stated["turn_budget"]
    if trace.header["form"] != Form.WRITTEN and len(trace.turns) > allowed:
        raise RecordError(
            f"{trace.where}: {len(trace.turns)} turns under a budget of {allowed}: the trace is falsified"
        )
    _check_end(trace)
    score = score_trace(trace)
    return Score(score.reward, score.detail | {"checked": truth.checked, "unchecked": truth.reason})


def _compare(trace: Trace, replay: Replay, truth: _Truth) -> None:
    """Raise RecordError that names every entry of the header that is not what the truth gives."""
    header, wrong = trace.header, []
    for name, true in truth.stated.items():
        stated = header.get(name)
        if name in ("u_star", "u_zero"):
            same = abs(header_number(trace, name) - true) <= replay.family.epsilon
        elif name == "theta":  # as the header writes it, so that tuples and lists are the same
            same = canonical_json(replay.family.to_json(replay.theta)) == true
        else:
            same = stated == true
        if not same:
            shown = "another theta" if name == "theta" else f"{name} = {stated!r}, not {true!r}"
            wrong.append(shown)
    if wrong:
        source = "its recipe" if truth.checked != "nothing" else "its own theta"
        version = header.get("version")
        since = "" if version == __version__ else f" (written by truthfirst {version}, this is {__version__})"
        raise RecordError(
            f"{trace.where}: the header states {'; '.join(wrong)} as {source} gives{since}: it is falsified"
        )


def _check_end(trace: Trace) -> None:
    """Raise RecordError where the reason to stop is not one that this form and this answer can have."""
    if trace.header["form"] != Form.WRITTEN:
        possible = {StopReason.COMPLETED, StopReason.BUDGET, StopReason.STOPPED}
    elif trace.answer is None:
        possible = {StopReason.STOPPED}
    else:
        possible = {StopReason.MALFORMED if read_plan(trace.answer) is None else StopReason.ANSWERED}
    if trace.stop not in possible:
        raise RecordError(
            f"{trace.where}: stop = {str(trace.stop)!r}: this form and answer end by {' or '.join(sorted(possible))}"
        )


# --- the truth of a recipe --------------------------------------------------------------------------------
def _recipe_truth(trace: Trace) -> _Truth:
    recipe = trace.header.get("recipe")
    if not isinstance(recipe, dict) or not recipe:
        return _Truth({}, "nothing", "the header has no recipe")
    try:
        return _built(canonical_json(recipe))
    except (TypeError, ValueError) as error:  # NaN, say: no JSON
        return _Truth({}, "nothing", f"the recipe cannot be read ({error})")


@functools.lru_cache(maxsize=4_096)
def _built(text: str) -> _Truth:
    """Build what a recipe names: one build for all episodes of an environment. No setter asks a model."""
    try:
        recipe = Recipe(**json.loads(text))
    except (TypeError, UnknownName, SeedError) as error:
        return _Truth({}, "nothing", f"the recipe cannot be used ({error})")
    family = find_family(recipe.family)
    theta = family.sample(stream(recipe.seed, *recipe.labels, "theta"), recipe.size)
    solution = family.solve(theta)
    stated = {
        "family": recipe.family,
        "size": recipe.size,
        "budget": recipe.budget,
        "theta": canonical_json(family.to_json(theta)),
        "u_star": solution.u_star,
        "u_zero": solution.u_zero,
        "turn_budget": turn_budget(family, theta, recipe.budget),
    }
    if recipe.spec is None and recipe.setter not in SETTERS:
        return _Truth(
            stated, "parameters", f"its recipe does not hold the words that {recipe.setter!r} wrote"
        )
    try:
        environment = build_candidate(recipe, truth=(theta, solution))
    except (CorpusError, SandboxUnavailable, SpecError, UnknownName, ValidationError) as error:
        return _Truth(
            stated, "parameters", f"its words cannot be told again ({' '.join(str(error).split())[:200]})"
        )
    return _Truth({"environment": environment.id, **stated}, "all")


# --- many traces ------------------------------------------------------------------------------------------
def rescored(traces: str | Path | Iterable[Trace], *, workers: int = 1) -> pd.DataFrame:
    """Return one row a trace, scored again: who played what, reward, `checked` and `unchecked` of `rescore`.

    traces    or a JSONL file of them
    workers   joblib processes; the traces of one environment stay together, since they share its build
    """
    episodes = load_traces(traces) if isinstance(traces, str | Path) else list(traces)
    groups: dict[str, list[int]] = {}
    for number, trace in enumerate(episodes):
        groups.setdefault(str(trace.header.get("environment")), []).append(number)
    parts = Parallel(n_jobs=workers)(
        delayed(_rows)([episodes[number] for number in group]) for group in groups.values()
    )
    rows: list[dict[str, object]] = [{}] * len(episodes)
    for group, part in zip(groups.values(), parts, strict=True):
        for number, row in zip(group, part, strict=True):
            rows[number] = row
    return pd.DataFrame(rows, columns=[*IDENTITY, "reward", "u", "checked", "unchecked"])


def _rows(traces: Sequence[Trace]) -> list[dict[str, object]]:
    rows = []
    for trace in traces:
        score = rescore(trace)
        told = {name: score.detail[name] for name in ("u", "checked", "unchecked")}
        rows.append(identity(trace) | {"reward": score.reward} | told)
    return rows
