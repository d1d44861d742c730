"""Worlds on show: what a generator makes, how it is damaged, what Phi pays, which gates it passes, as tidy frames.

    W -> clean files -> defect plan -> public tree s0            latent_tables, defect_table, excerpt
    workflow DAG                                                  dag_table
    Phi after every call of the four scripted agents              potential_table (needs the sandbox)
    eight gates, fourteen gaming probes                           gate_table, probe_table
    sizes and CPU seconds, beside the medians of the source       measure, size_table, cost_table

Figures of the source (Tev, 2026) come from other generators on other machines: rows of their own, never mixed.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from fractions import Fraction
from itertools import zip_longest
from typing import Any

import networkx as nx
import pandas as pd

from .. import paths
from ..sources import published
from ..worldfirst import certify
from ..worldfirst.agents import AGENTS
from ..worldfirst.contract import generator
from ..worldfirst.corrupt import corrupt, restore
from ..worldfirst.environment import Environment, passed
from ..worldfirst.gates import GATES, Audit
from ..worldfirst.generators import GENERATORS
from ..worldfirst.grading import grade
from ..worldfirst.instances import Instance
from ..worldfirst.probes import PROBES, Target
from ..worldfirst.scan import Bounds, pack, scan_archive
from ..worldfirst.shell import Shell
from ..worldfirst.workflow import graph
from ..worldfirst.world import Defect, Files, Sealed, Verdict, Verify

WINDOW = 90  # characters of a line that an excerpt shows
CERTIFIED = "worlds.parquet"  # of worldfirst.certify
SIZES = "files kB stages critical_stages nodes components defect_kinds defects prompt_words".split()
UNTOUCHED, RIGHT = "untouched tree", "right answer"  # what stands beside the gaming probes
ASKS = {
    "reward causality": "a component is lost when its cause is spoilt",
    "exploit resistance": "fourteen gaming probes and the untouched tree earn 0",
    "role independence": "graders and solvers share nothing but types",
    "solver agreement": "two solvers write the same bytes, which pass",
    "progress validity": "Phi rises to 1 along the reference, falls on regression",
    "metamorphic invariance": "same meaning, same grade; plausible wrong answers fail",
    "six-seed diversity": "six seeds, six worlds, six trees, six names",
    "contract hygiene": "prompt and tree hold no answer and no grader's code",
}


def cast(preset: str, name: str) -> tuple[str, ...]:
    """Return the generators that a study at `preset` looks at: the one asked for, and beyond smoke all others after it.

    Raises UnknownGenerator.
    """
    chosen = generator(name).name
    return (chosen,) if preset == "smoke" else tuple(dict.fromkeys((chosen, *GENERATORS)))


# --- the truth --------------------------------------------------------------------------------------------
def latent_tables(made: Instance) -> dict[str, pd.DataFrame]:
    """Return the latent world as tables: one for each kind of record, and `constants` for what stands alone."""
    tables: dict[str, pd.DataFrame] = {}
    constants = []
    for item in dataclasses.fields(made.sealed.world):
        value = getattr(made.sealed.world, item.name)
        if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            names = [column.name for column in dataclasses.fields(value[0])]
            rows = [[_cell(getattr(record, name)) for name in names] for record in value]
            tables[item.name] = pd.DataFrame(rows, columns=names)
        else:
            constants.append({"name": item.name, "value": _cell(value)})
    return {"constants": pd.DataFrame(constants, columns=["name", "value"])} | tables


def _cell(value: Any) -> Any:
    """Return a value as a table shows it; of a long tuple its length."""
    if not isinstance(value, tuple):
        return value
    told = ", ".join(map(str, value))
    return told if len(told) <= 60 else f"{len(value)} values"


# --- the damage -------------------------------------------------------------------------------------------
def defect_table(made: Instance) -> pd.DataFrame:
    """Return one row a defect, in the order in which the damage was done: kind, operator, file, place."""
    rows = [
        {"kind": one.kind, "operator": one.operator, "file": one.path, "place": _place(one.parameters)}
        for one in made.sealed.plan
    ]
    return pd.DataFrame(rows)


def _place(parameters: Mapping[str, Any]) -> str:
    """Say where a defect acts and how far, from its parameters."""
    told = []
    for name, value in parameters.items():
        if isinstance(value, list) and value and all(isinstance(one, list) and one for one in value):
            starts = [str(one[0]) for one in value]
            told.append(f"{name} {', '.join(starts[:4])}{f' and {len(starts) - 4} more' * (len(starts) > 4)}")
        elif isinstance(value, list | dict) and len(json.dumps(value)) > 60:
            told.append(f"{name}: {len(value)} entries")
        elif isinstance(value, str) and len(value) > 60:
            told.append(f"{name}: {len(value)} characters")
        else:
            told.append(f"{name} {value if isinstance(value, str | int) else json.dumps(value)}")
    return "; ".join(told)


def clean_files(made: Instance) -> dict[str, bytes]:
    """Return the files before the damage: the plan undone on the public tree."""
    return restore(made.files, made.sealed.plan, made.generator.operators)


def excerpt(made: Instance, path: str | None = None, most: int = 2) -> pd.DataFrame:
    """Return what each defect did to one file, in order: kind, operator, line (of the file before it), before, after.

    path   None: the file with most kinds of damage
    most   lines a defect, at most; bytes that are no text are shown as points
    Raises ValueError for a file that no defect touches.
    """
    kinds: dict[str, set[str]] = {}
    for one in made.sealed.plan:
        kinds.setdefault(one.path, set()).add(one.kind)
    path = path or max(kinds, key=lambda name: len(kinds[name]))
    if path not in kinds:
        raise ValueError(f"no defect touches {path!r}: choose one of {', '.join(sorted(kinds))}")
    rows = [
        {"file": path, "kind": one.kind, "operator": one.operator, "line": line}
        | dict(zip(("before", "after"), _windows(before, after), strict=True))
        for one, files, damaged in _steps(made)
        if one.path == path
        for line, before, after in _changes(path, files, damaged)[:most]
    ]
    return pd.DataFrame(rows)


def _steps(made: Instance) -> Iterator[tuple[Defect, Files, Files]]:
    """Yield every defect with the files before and after it."""
    files = clean_files(made)
    for one in made.sealed.plan:
        damaged = corrupt(files, [one], made.generator.operators)
        yield one, files, damaged
        files = damaged


def _changes(path: str, files: Files, damaged: Files) -> list[tuple[int, str, str]]:
    """Return (line, before, after) wherever a file differs."""
    if path not in damaged:
        became = sorted(set(damaged) - set(files))
        return [(1, "the file", f"is now {became[0]}" if became else "is lost")]
    before, after = _lines(files.get(path, b"")), _lines(damaged[path])
    found = []
    for tag, left, right, low, high in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            pairs = zip_longest(before[left:right], after[low:high], fillvalue="")
            found += [(left + step + 1, old, new) for step, (old, new) in enumerate(pairs)]
    return found


def _lines(data: bytes) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
        return [text[start : start + WINDOW] for start in range(0, len(text), WINDOW)]


def _windows(before: str, after: str) -> tuple[str, str]:
    """Cut two lines to where they begin to differ."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((place for place, (old, new) in pairs if old != new), 0)
    start = max(0, same - 25) if max(len(before), len(after)) > WINDOW else 0
    cut = [f"{'...' * (start > 0)}{text[start : start + WINDOW]}" for text in (before, after)]
    return cut[0], cut[1]


# --- the work ---------------------------------------------------------------------------------------------
def dag_table(made: Instance) -> pd.DataFrame:
    """Return one row a stage: work, level (longest way from the start), critical, and what it comes after."""
    levels = {
        name: level
        for level, names in enumerate(nx.topological_generations(graph(made.workflow.stages)))
        for name in names
    }
    rows = [
        _origin(made)
        | {"stage": stage.name, "work": stage.work, "level": levels[stage.name]}
        | {"critical": stage.name in made.workflow.critical, "after": ", ".join(stage.after)}
        for stage in made.workflow.stages
    ]
    return pd.DataFrame(rows)


def _origin(made: Instance) -> dict[str, Any]:
    return {"generator": made.generator.name, "seed": made.seed, "tier": made.tier}


def potential_table(made: Instance, shell: Shell | None = None) -> pd.DataFrame:
    """Return one row a call of each scripted agent: agent, call (0: before any), action, phi, passed, credit/NODE.

    passed   at the end of the episode. Raises SandboxUnavailable where commands cannot be confined.
    """
    shell = shell or Shell(remember=4_096)  # agents who begin alike share their beginnings
    rows = []
    for agent, play in AGENTS.items():
        episode = Environment(made, shell=shell).episode(policy=agent)
        start = {"phi": episode.grading.potential, "nodes": episode.grading.nodes}
        play(episode)
        trace = episode.trace()
        details = [
            ("start", start),
            *((_action(turn.tool, turn.detail), turn.detail) for turn in trace.turns),
        ]
        rows += [
            _origin(made)
            | {"agent": agent, "call": call, "action": action, "phi": float(Fraction(detail["phi"]))}
            | {"passed": passed(trace)}
            | {f"credit/{name}": float(Fraction(credit)) for name, credit in detail["nodes"].items()}
            for call, (action, detail) in enumerate(details)
        ]
    return pd.DataFrame(rows)


def _action(tool: str, detail: Mapping[str, Any]) -> str:
    """Return a call in short: the stage that a solver ran, the file that was removed, or the tool."""
    words = str(detail.get("command", tool)).split()
    return {"python3": words[-1], "printf": "carry in", "rm": f"rm {words[-1]}"}.get(words[0], words[0])


# --- the audit --------------------------------------------------------------------------------------------
def lenient(made: Instance) -> Instance:
    """Return the instance with a planted fault: its verifier accepts everything. Gates must tell."""
    components = made.generator.components

    def verifier(sealed: Sealed) -> Verify:
        return lambda files: Verdict(dict.fromkeys(components, True))

    return dataclasses.replace(made, generator=dataclasses.replace(made.generator, verifier=verifier))


def gate_table(made: Instance, subject: str | None = None) -> pd.DataFrame:
    """Return one row a gate: what it asks, passed, evidence, CPU seconds.

    subject   a name for the instance, by default its generator's. What several gates need counts to the first of them.
    """
    audit, rows = Audit(made), []
    for name, gate in GATES.items():
        begin = time.process_time()
        problems = list(gate(audit))
        rows.append(
            _origin(made)
            | {"subject": subject or made.generator.name, "gate": name, "asks": ASKS[name]}
            | {"passed": not problems, "evidence": "; ".join(problems[:3]) or "nothing wrong"}
            | {"seconds": time.process_time() - begin}
        )
    return pd.DataFrame(rows)


def probe_table(made: Instance) -> pd.DataFrame:
    """Return one row a gaming probe, the untouched tree before and the right answer after them: what each earns.

    passed       the strict verifier accepts; components: how many of its components hold, of `of`
    phi          the potential; ungated: what the same nodes would pay without prerequisites
    reason       why it fails, the scan's first
    """
    known = Audit(made)
    target = Target(made.prompt, made.files, made.generator.deliverables, known.foreign)
    entries: dict[str, Mapping[str, Any]] = {UNTOUCHED: dict(made.files)}
    entries |= {name.replace("_", " "): probe(target) for name, probe in PROBES.items()}
    entries[RIGHT] = known.reference
    rows = []
    for name, workspace in entries.items():
        scanned = scan_archive(pack(workspace), Bounds.of(made.files))
        graded = grade(made, scanned)
        rows.append(
            _origin(made)
            | {"probe": name, "files": len(scanned.files), "passed": graded.passed}
            | {"components": sum(graded.components.values()), "of": len(made.generator.components)}
            | {"phi": float(graded.potential)}
            | {"ungated": float(_ungated(made, scanned.files)) if scanned.problem is None else 0.0}
            | {"reason": graded.reasons[0][:120] if graded.reasons else ""}
        )
    return pd.DataFrame(rows)


def _ungated(made: Instance, files: Files) -> Fraction:
    scores, nodes = made.scores(files), made.generator.nodes
    whole = sum((node.weight * Fraction(scores[node.name]) for node in nodes), Fraction(0))
    return whole / sum(node.weight for node in nodes)


# --- sizes and costs --------------------------------------------------------------------------------------
def measure(name: str, seed: int, tier: str) -> tuple[Instance, dict[str, Any]]:
    """Make an instance, solve it twice and grade it; return it with a row of sizes and CPU seconds.

    The row's columns are those of the certified table (`worldfirst/certify.py`), without the gates.
    """
    made, row = certify.measure(name, tier, seed)
    return made, _origin(made) | row


def certified() -> pd.DataFrame:
    """Return the proven instances that are stored (`make certify`), without rows whose making failed; may be empty."""
    file = paths.STORED / CERTIFIED
    if not file.exists():
        return pd.DataFrame()
    frame = pd.read_parquet(file)
    return frame.dropna(subset=["make_seconds"]) if "make_seconds" in frame else pd.DataFrame()


def size_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return median sizes by tier and generator, and the source's medians of a tier under them where there are any.

    frame   rows of `measure` or of `certified`; the source counts a prompt in a model's tokens, we count words
    """
    if frame.empty:
        return pd.DataFrame(columns=["tier", "whose", "instances", *SIZES])
    ours = frame.assign(kB=frame["bytes"] / 1000).rename(columns={"generator": "whose"})
    groups = ours.groupby(["tier", "whose"], sort=False)
    table = groups[list(SIZES)].median().assign(instances=groups.size()).reset_index()
    rows: list[pd.DataFrame] = []
    for tier in dict.fromkeys(table["tier"]):
        rows.append(table[table["tier"] == tier])
        if tier in published("tev_gym", "tiers"):
            rows.append(pd.DataFrame([{"tier": tier, "whose": "source, median"} | _source_sizes(tier)]))
    return pd.concat(rows, ignore_index=True)[["tier", "whose", "instances", *SIZES]]


def _source_sizes(tier: str) -> dict[str, float]:
    """Return the source's medians: of a tier's input tree, and the others of its whole corpus."""
    told = published("tev_gym")
    sizes = {name: told[f"{name}_median"] for name in ("stages", "nodes", "components", "defect_kinds")}
    return {**told["tiers"][tier], **sizes, "prompt_words": told["prompt_tokens_median"]}


def cost_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return median CPU seconds by tier and generator: to make, to solve twice, to grade; and the source's last.

    whole_s   an environment with both solvers, and with the gates where the frame has them; whole_s_p90 likewise.
    The source's figures are those of its machines and of the hidden suite in place of our gates.
    """
    if frame.empty:
        return pd.DataFrame(
            columns=["tier", "whose", "make_s", "solve_s", "grade_s", "whole_s", "whole_s_p90"]
        )
    solve = frame["reference_seconds"] + frame["alternative_seconds"]
    whole = frame["make_seconds"] + solve + frame.get("gates_seconds", 0.0)
    columns = {"make_s": frame["make_seconds"], "solve_s": solve, "grade_s": frame["grade_seconds"]}
    told = pd.DataFrame({"tier": frame["tier"], "whose": frame["generator"], **columns, "whole_s": whole})
    groups = told.groupby(["tier", "whose"], sort=False)
    table = groups.median().assign(whole_s_p90=groups["whole_s"].quantile(0.9)).reset_index()
    told = published("tev_gym")  # both solvers and the suite included
    source = {"tier": "all", "whose": "source, median", "whole_s": told["seconds_median"]}
    source |= {"whole_s_p90": told["seconds_p90"], "grade_s": told["grading_seconds_median"]}
    return pd.concat([table, pd.DataFrame([source])], ignore_index=True)


def audit(every: Sequence[Instance]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return gate table and probe table of instances; the first has its gates once more, last, with a planted fault."""
    gates = [gate_table(made) for made in every]
    gates.append(gate_table(lenient(every[0]), f"{every[0].generator.name}, planted fault"))
    probes = [probe_table(made) for made in every]
    return pd.concat(gates, ignore_index=True), pd.concat(probes, ignore_index=True)
