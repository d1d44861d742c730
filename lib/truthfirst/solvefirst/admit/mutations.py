"""Admission proven by mutation: plant a fault in the builder, and see which gate catches what it builds.

A fault (`faults/` lists them) replaces code of the builder, so that the very path that builds, words or plays an
environment goes wrong. While it is planted every build is faulty, rebuilding from a recipe included: no gate can win
by building again and comparing.

    killed           a gate rejects the mutant: its name and evidence are kept
    equivalent       all gates pass, and nothing that is seen or earned differs: `behaviour` of both is the same; if
                     it differs around other hidden entries, a gate must kill the mutant there
    survived         all gates pass, but something differs: a hole in the gates
    not applicable   the family or instance has nothing that the fault could hit: the reason is kept

Source of the method: DeMillo, Lipton and Sayward, "Hints on test data selection", Computer 11, 1978. Patches replace
attributes of modules for the whole process: use one process per worker, never threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ...records import canonical_json, content_hash
from ...streams import stream
from ...types import Form
from .. import references
from ..environment import Environment
from ..realize.tools import Probe
from .faults.base import Fault, NotApplicable
from .gates import GATES, admit
from .trials import illegal_actions

COLUMNS = ("fault", "family", "environment", "verdict", "gate", "evidence")
POLICIES = ("optimal", "default", "myopic", "probe-all", "random", "random")
REDRAWS = 2

# Gates that judge an instance around other hidden entries, whose recipe would build the first one again.
ANYWHERE = {name: gate for name, gate in GATES.items() if name not in ("margin", "determinism")}

Call = tuple[str, Any]
Script = list[tuple[Form, list[Call] | str]]  # whole episodes: raw calls, or the written answer of form F
Behaviour = list[tuple[str, str]]  # (what, text)
Case = tuple[Environment, Script, Behaviour]


def kill_table(environments: Sequence[Environment], faults: Sequence[Fault]) -> pd.DataFrame:
    """Plant every fault in every (healthy) environment.

    Returns one row a pair with the columns fault, family, environment, verdict, gate, evidence; `gate` is the first
    one that fails, null unless killed.
    """
    rows = []
    for environment in environments:
        reference = functools.cache(functools.partial(_reference, environment))
        for fault in faults:
            rows.append(
                (fault.name, environment.family_name, environment.id, *verdict(environment, fault, reference))
            )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _reference(environment: Environment) -> list[Case]:
    """Return what is seen and earned in the healthy environment and around redrawn hidden entries."""
    cases = [(case, script(case)) for case in instances(environment)]
    return [(case, calls, behaviour(case, calls)) for case, calls in cases]


def verdict(
    environment: Environment, fault: Fault, reference: Callable[[], list[Case]]
) -> tuple[str, str | None, str]:
    """Return (verdict, gate, evidence) of one fault in one healthy environment; `reference` is asked if need be."""
    with fault.planted(environment) as mutant:
        if isinstance(mutant, NotApplicable):
            return "not applicable", None, mutant.reason
        admission = admit(mutant)
    if admission.gate is not None:
        return "killed", admission.gate, str(admission.evidence)
    cases, elsewhere = reference(), ""
    with fault.planted(environment) as mutant:
        assert isinstance(mutant, Environment)
        for number, (case, calls, before) in enumerate(cases):
            twin = replace(mutant, theta=case.theta, solution=case.solution) if number else mutant
            changed = difference(before, behaviour(twin, calls))
            if changed is None:
                continue
            admission = admit(twin, ANYWHERE)
            if number == 0 or admission.admitted:
                return "survived", None, changed
            elsewhere = f"; with other hidden entries {admission.gate} kills it"
    count = sum(len(before) for _, _, before in (cases[:1] if elsewhere else cases))
    scope = "this instance" if elsewhere else f"{len(cases)} instances"
    return "equivalent", None, f"all {count} views, replies and scores of {scope} stay the same{elsewhere}"


# --- what is seen and earned --------------------------------------------------------------------------------
def difference(before: Behaviour, after: Behaviour) -> str | None:
    """Say what first differs between two behaviours, or return None."""
    for (what, one), (_, two) in zip(before, after, strict=True):
        if one != two:
            start = max(
                0, next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0) - 80
            )
            return f"{what}: {one[start : start + 200]!r} became {two[start : start + 200]!r}"
    return None


def instances(environment: Environment) -> list[Environment]:
    """Return the environment and the same one around redrawn hidden entries, where the reward has a scale."""
    family, rng = environment.family, stream(0, "equivalence", environment.id)
    found = [environment]
    for _ in range(10 * REDRAWS):
        theta = family.redraw(environment.theta, rng)
        solution = family.solve(theta)
        if solution.span > 0 and len(found) <= REDRAWS:
            found.append(replace(environment, theta=theta, solution=solution))
    return found


def script(environment: Environment) -> Script:
    """Return whole episodes as raw calls (form F: as written answers), played on the healthy environment."""
    family, theta, spec, toolbox = (
        environment.family,
        environment.theta,
        environment.spec,
        environment.toolbox,
    )
    episodes: Script = []
    for seed, name in enumerate(POLICIES):
        for form in Form:
            trace = references.play(references.POLICIES[name], environment, form, seed)
            calls = [(turn.tool, turn.arguments) for turn in trace.turns]
            episodes.append((form, calls if trace.answer is None else trace.answer))
    query, plan, state = spec.tools["query"].name, environment.solution.plan, family.start(theta)
    tables: list[Call] = [
        (query, {"sql": f'SELECT * FROM "{table}" LIMIT 40'}) for table in spec.tables.values()
    ]
    grown = [(query, {"sql": f'SELECT * FROM "{spec.tables[role]}"'}) for role in ("ledger", "readings")]
    for done in range(len(plan)):  # all that can be asked before each decision, then stopping there
        played = [toolbox.write(action) for action in plan[:done]]
        wrong = [toolbox.write(action) for action in illegal_actions(environment, state)]
        episodes.append((Form.AGENTIC, [*played, *wrong[:4]]))
        episodes.append((Form.INFORMED, [*played, *grown]))
        state = family.step(theta, state, plan[done])[0]
    for key in family.probe_keys(theta):
        episodes.append((Form.AGENTIC, [toolbox.write(Probe(key)), *grown]))
    episodes += [(Form.AGENTIC, [table]) for table in tables]
    for tool in environment.view(Form.AGENTIC).tools:
        for value in (-1, 10**9, "Nobody", None):
            episodes.append(
                (Form.AGENTIC, [(tool.name, dict.fromkeys(tool.parameters["properties"], value))])
            )
        episodes.append((Form.AGENTIC, [(tool.name, {"no_such_argument": 1}), ("no_such_tool", {})]))
    names = spec.tables[family.interface.entities[0].kind]
    writes = [f'DELETE FROM "{names}"', f'SELECT * FROM "{names}"']
    episodes.append((Form.AGENTIC, [(query, {"sql": sql}) for sql in writes]))
    return episodes


def behaviour(environment: Environment, episodes: Script) -> Behaviour:
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
        if episode.turns and all("gain" not in turn.detail for turn in episode.turns):
            continue  # nothing was decided: it earns what the episode of no call earns
        try:
            result = episode.score()
            seen.append((f"{where}, score", canonical_json([result.reward, result.detail])))
        except ValueError as error:  # a trace that its own mechanism refuses
            seen.append((f"{where}, score", str(error)))
    return seen
