"""A gallery: one environment a domain, as a frame and as text that reads well in a notebook.

It shows what a player reads first (title, epigraph, brief), which tools it has, and how the figures of one mechanism
look in another trade's words. Nothing sealed is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ..solvefirst.admit.gates import admit
from ..solvefirst.candidates import Recipe, build_candidate, read_corpus
from ..solvefirst.environment import Environment
from ..solvefirst.families import FAMILIES
from ..solvefirst.manifest import load_public, rebuild
from ..solvefirst.realize.prompt import values
from ..solvefirst.realize.spec import fill
from ..types import Form

ATTEMPTS = 50


def from_corpus(folder: str | Path, size: str = "small") -> list[Environment]:
    """Return one environment of every domain of a built corpus, families as even as can be (ties: manifest order).

    size   preferred; a domain that has no environment of this size shows one of another
    """
    public = load_public(folder, ["id", "family", "size", "domain"])
    shown: Counter[str] = Counter()
    chosen = []
    for _, rows in public.groupby("domain", sort=True):
        preferred = rows[rows["size"] == size]
        rows = rows if preferred.empty else preferred
        pick = min(range(len(rows)), key=lambda i: (shown[rows["family"].iloc[i]], i))
        shown[rows["family"].iloc[pick]] += 1
        chosen.append(rebuild(folder, rows["id"].iloc[pick]))
    return chosen


def fresh(size: str = "small", *, seed: int = 0, corpus: str | None = None) -> list[Environment]:
    """Return one newly built and admitted environment of every domain, families in turn; needs no built corpus.

    Raises ValueError when a domain gets none in 50 candidates.
    """
    families = list(FAMILIES)
    made = []
    for number, domain in enumerate(sorted(read_corpus(corpus).by_domain())):
        family = families[number % len(families)]
        for index in range(ATTEMPTS):
            recipe = Recipe(
                family, size, seed=seed, index=index * 1_000 + number, domain=domain, corpus=corpus
            )
            environment = build_candidate(recipe)
            if admit(environment).admitted:
                made.append(environment)
                break
        else:
            raise ValueError(
                f"{domain}: no {family} environment of size {size} was admitted in {ATTEMPTS} candidates"
            )
    return made


def gallery(environments: Sequence[Environment]) -> pd.DataFrame:
    """Return one row an environment.

    Columns: domain, title, family, size, epigraph (of the passage), opening, brief, tools (names with arguments),
    unknown (what is hidden), turns (T), id.
    """
    return pd.DataFrame([_entry(environment) for environment in environments])


def _entry(environment: Environment) -> dict[str, object]:
    family, spec, theta = environment.family, environment.spec, environment.theta
    epigraph, _, opening = spec.scenario.rpartition("\n\n")
    view = environment.view(Form.AGENTIC)
    hidden = [
        f"{len(family.keys(theta, [field]))} × {spec.fields[field.name].label}"
        for field in family.interface.hidden_fields
    ]
    return {
        "domain": spec.domain,
        "title": spec.title,
        "family": environment.family_name,
        "size": environment.size,
        "epigraph": epigraph,
        "opening": opening,
        "brief": fill(spec.brief, values(family, theta, spec)),
        "tools": [f"{tool.name}({', '.join(tool.parameters['properties'])})" for tool in view.tools],
        "unknown": "; ".join(hidden),
        "turns": view.turn_budget,
        "id": environment.id,
    }


def as_markdown(frame: pd.DataFrame) -> str:
    """Return a gallery as Markdown: a heading, the epigraph, the story and one line of facts for each environment."""
    parts = []
    for row in frame.to_dict("records"):
        quoted = "\n".join(f"> {_plain(line)}" for line in str(row["epigraph"]).splitlines())
        tools = ", ".join(f"`{tool}`" for tool in row["tools"])
        facts = (
            f"*{row['family'].replace('_', ' ')}, {row['size']}; {row['turns']} turns; "
            f"not known at first: {_plain(row['unknown'])}.* Tools: {tools}"
        )
        heading = f"#### {_plain(row['domain'])}: {_plain(row['title'])}"
        story = f"{_plain(row['opening'])} {_plain(row['brief'])}"
        parts.append("\n\n".join(part for part in (heading, quoted, story, facts) if part))
    return "\n\n".join(parts)


def _plain(text: object) -> str:
    """Return text whose characters mean nothing to Markdown or to mathematics in a notebook."""
    plain = str(text)
    for mark in "\\*_#$[]<>|`":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
