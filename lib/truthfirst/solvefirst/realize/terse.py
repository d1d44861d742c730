"""The terse setter: a mechanism in its own symbols, with as few words as the gates permit.

Everything the interface names keeps its name: the verb `spend` is the tool `spend`, the hidden field `value` is the
column and the probe `value`, named entities are A, B, C. Rules, numbers, tools, budget and gates are those of every
other realization; only the scenario is missing. One family has one casting, whatever the passage, so a policy of a
million parameters can learn to read it (`train/tiny.py`), and what it plays is still an admitted environment.

It does not promise variety: for language that differs between environments use the other setters.
"""

from __future__ import annotations

import string

import numpy as np

from ..families.base import Family
from .setter import SetterTask, slug, topic
from .spec import RESERVED, EntityWords, FieldWords, ToolWords, WorldSpec, check_spec, table_roles


class TerseSetter:
    """Names everything as the family's interface does; no randomness, no passage text."""

    name = "terse"

    def write(self, task: SetterTask, rng: np.random.Generator) -> WorldSpec:
        family, face = task.family, task.family.interface
        names = _letters(family, task.counts)
        entities = {
            entity.kind: EntityWords(
                singular=_plain(entity.kind),
                plural=f"{_plain(entity.kind)}s",
                names=names.get(entity.kind, ()),
            )
            for entity in face.entities
        }
        tools = {
            verb.name: ToolWords(
                name=_free(verb.name, "do"),
                description=f"Decide {_plain(verb.name)}.",
                arguments={slot.name: _free(slot.name, "to") for slot in verb.slots},
            )
            for verb in face.verbs
        }
        tools |= {
            field.name: ToolWords(
                name=f"ask_{field.name}",
                description=f"Ask one {_plain(field.name)}.",
                arguments={kind: _free(kind, "of") for kind in field.index},
            )
            for field in face.probes
        }
        tools["query"] = ToolWords(name="read_tables", description="Read the tables.", arguments={})
        named = [field.name for field in face.fields] + [scalar.name for scalar in face.scalars]
        spec = WorldSpec(
            domain=topic(task.passage),
            title=f"{family.title.partition(':')[0]}.",
            scenario="This is a plain statement of the mechanism.",
            brief="The rules follow.",
            closing="Choose well.",
            money="points",
            goods="units",
            time="hours",
            entities=entities,
            tools=tools,
            fields={name: FieldWords(column=_free(name, "the"), label=_plain(name)) for name in named},
            tables={role: f"{role}_table" for role in sorted(table_roles(family))},
            phrasing=0,
            passage=task.passage.id[-300:],
            setter=self.name,
        )
        check_spec(spec, family, task.counts)
        return spec


def _letters(family: Family, counts: dict[str, int]) -> dict[str, tuple[str, ...]]:
    """Name the members of every named kind A, B, ..., Z, AA, AB, ...; no name is used by two kinds."""
    letters = string.ascii_uppercase
    pool = iter([*letters, *(first + second for first in letters for second in letters)])
    return {
        entity.kind: tuple(next(pool) for _ in range(counts[entity.kind]))
        for entity in family.interface.entities
        if not entity.ordinal
    }


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _free(name: str, before: str) -> str:
    """Return an identifier that is no SQL keyword."""
    name = slug(name)
    return f"{before}_{name}" if name in RESERVED else name
