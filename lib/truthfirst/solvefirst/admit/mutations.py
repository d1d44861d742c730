"""Admission proven by mutation: plant a fault in the builder, and see which gate catches what it builds.

A `Fault` replaces code of the builder (`Patch`: an attribute of a module or class, or an entry of the family table),
so that the very path that builds, words or plays an environment goes wrong; `faults.py` lists them. While it is
planted, every build is faulty, rebuilding from a recipe included: a gate cannot win by building again and comparing.

    killed           a gate rejects the mutant: its name and evidence are kept
    equivalent       all gates pass, and nothing that is seen or earned differs: `behaviour` of both is the same
    survived         all gates pass, but something differs: a hole in the gates
    not applicable   the family or instance has nothing that the fault could hit; the reason is kept

Source of the method: DeMillo, Lipton and Sayward, "Hints on test data selection", Computer 11, 1978. Patches replace
attributes of modules for the whole process: use one process per worker, never threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ...records import canonical_json, content_hash
from ...streams import stream
from ...types import Form
from .. import references, score
from ..candidates import rebuild
from ..environment import Environment
from ..families.base import Action
from ..realize.tools import Probe
from .gates import admit

COLUMNS = ("fault", "family", "environment", "verdict", "gate", "evidence")
POLICIES = ("optimal", "default", "myopic", "probe-all", "random", "random", "random")
REDRAWS = 3

Call = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """A replacement: attribute `name` of `owner`, or its item `name` when `owner` is a dict."""

    owner: Any
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why a fault cannot be planted in an environment."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a builder goes wrong.

    story     what happened to the builder, in one sentence
    patches   what to replace for this environment, or why there is nothing to replace
    """

    name: str
    story: str
    patches: Callable[[Environment], Sequence[Patch] | NotApplicable]

    @contextlib.contextmanager
    def planted(self, environment: Environment) -> Iterator[Environment | NotApplicable]:
        """Build the environment again with the fault in place, and keep it in place meanwhile."""
        patches = self.patches(environment)
        if isinstance(patches, NotApplicable):
            yield patches
            return
        with contextlib.ExitStack() as stack:
            stack.callback(_forget)
            for patch in patches:
                stack.callback(_put, patch.owner, patch.name, _put(patch.owner, patch.name, patch.value))
            _forget()
            yield rebuild(environment.recipe)


def _put(owner: Any, name: str, value: Any) -> Any:
    """Replace an attribute or item and return what was there."""
    if isinstance(owner, dict):
        before, owner[name] = owner[name], value
    else:
        before = getattr(owner, name)
        setattr(owner, name, value)
    return before


def _forget() -> None:
    """Drop solver results that were remembered under another table of families."""
    score._first_action.cache_clear()
    score._value_to_go.cache_clear()


def kill_table(environments: Sequence[Environment], faults: Sequence[Fault]) -> pd.DataFrame:
    """Plant every fault in every (healthy) environment.

    Returns one row a pair with the columns fault, family, environment, verdict, gate, evidence; `gate` is the first
    one that fails, null unless killed.
    """
    rows = [
        (fault.name, environment.family_name, environment.id, *verdict(environment, fault))
        for environment in environments
        for fault in faults
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def verdict(environment: Environment, fault: Fault) -> tuple[str, str | None, str]:
    """Return (verdict, gate, evidence) of one fault in one healthy environment."""
    with fault.planted(environment) as mutant:
        if isinstance(mutant, NotApplicable):
            return "not applicable", None, mutant.reason
        admission = admit(mutant)
    if admission.gate is not None:
        return "killed", admission.gate, str(admission.evidence)
    cases = instances(environment)
    scripts = [script(case) for case in cases]
    healthy = [behaviour(case, calls) for case, calls in zip(cases, scripts, strict=True)]
    with fault.planted(environment) as mutant:
        assert isinstance(mutant, Environment)
        for case, calls, before in zip(cases, scripts, healthy, strict=True):
            twin = dataclasses.replace(mutant, theta=case.theta, solution=mutant.family.solve(case.theta))
            after = behaviour(twin, calls)
            for (what, one), (_, two) in zip(before, after, strict=True):
                if one != two:
                    return "survived", None, f"{what}: {one[:300]!r} became {two[:300]!r}"
    count = sum(map(len, healthy))
    return "equivalent", None, f"all {count} views, replies and scores of {len(cases)} instances stay the same"


# --- what is seen and earned --------------------------------------------------------------------------------
def instances(environment: Environment) -> list[Environment]:
    """Return the environment and the same one around redrawn hidden entries, where the reward has a scale."""
    family, rng = environment.family, stream(0, "equivalence", environment.id)
    found = [environment]
    for _ in range(10 * REDRAWS):
        theta = family.redraw(environment.theta, rng)
        solution = family.solve(theta)
        if solution.span > 0 and len(found) <= REDRAWS:
            found.append(dataclasses.replace(environment, theta=theta, solution=solution))
    return found


def script(environment: Environment) -> list[tuple[Form, list[Call] | str]]:
    """Return whole episodes as raw calls (form F: as written answers), played on the healthy environment."""
    episodes: list[tuple[Form, list[Call] | str]] = []
    for seed, name in enumerate(POLICIES):
        for form in Form:
            trace = references.play(references.POLICIES[name], environment, form, seed)
            calls = [(turn.tool, turn.arguments) for turn in trace.turns]
            episodes.append((form, calls if trace.answer is None else trace.answer))
    spec, toolbox = environment.spec, environment.toolbox
    queries: list[Call] = [
        (spec.tools["query"].name, {"sql": f'SELECT * FROM "{table}" LIMIT 40'}) for table in spec.tables.values()
    ]
    keys = environment.family.probe_keys(environment.theta)
    plan = environment.solution.plan
    opening: list[Probe | Action] = [*map(Probe, keys[:1]), *plan[:1]]
    for part in (queries[: len(queries) // 2], queries[len(queries) // 2 :]):
        for before in (opening[:0], opening[:1], opening[1:]):
            episodes.append((Form.AGENTIC, [*map(toolbox.write, before), *part]))
    for tool in environment.view(Form.AGENTIC).tools:
        wrong = [(tool.name, dict.fromkeys(tool.parameters["properties"], v)) for v in (-1, 10**9, "Nobody", None)]
        episodes.append((Form.AGENTIC, [*wrong, (tool.name, {}), ("no_such_tool", {})]))
    writes = [f'DELETE FROM "{spec.tables["terms"]}"', f'SELECT * FROM "{spec.tables["terms"]}"']
    episodes.append((Form.AGENTIC, [(spec.tools["query"].name, {"sql": sql}) for sql in writes]))
    return episodes


def behaviour(environment: Environment, episodes: Sequence[tuple[Form, list[Call] | str]]) -> list[tuple[str, str]]:
    """Return (what, text) of all that is seen and earned: views, sealed numbers, replies, gains, scores."""
    seen = [("sealed", f"{environment.solution.u_star}, {environment.solution.u_zero}")]
    for form in Form:
        view = environment.view(form)
        tools = [tool.openai() for tool in view.tools]
        files = {name: content_hash(data) for name, data in view.files.items()}
        seen.append((f"view of form {form}", canonical_json([view.prompt, tools, view.turn_budget, files])))
    for number, (form, calls) in enumerate(episodes):
        episode = environment.episode(form)
        where = f"episode {number}, form {form}"
        if isinstance(calls, str):
            episode.answer(calls)
            seen.append((where, canonical_json([turn.detail for turn in episode.turns])))
        else:
            for name, arguments in calls:
                seen.append((f"{where}, {name}({arguments})", episode.call(name, arguments)))
            gains = [[turn.status, turn.detail.get("gain")] for turn in episode.turns]
            seen.append((where, canonical_json([gains, episode.done])))
        result = episode.score()
        seen.append((f"{where}, score", canonical_json([result.reward, result.detail])))
    return seen
