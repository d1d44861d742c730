"""Setters: whoever writes the WorldSpec of an environment.

A setter gets a passage and the family's interface. It never sees theta, the optimum or a plan: `SetterTask` cannot
hold them. `TemplateSetter` needs no model: it casts the mechanism in the voice of the passage's domain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..families.base import Family
from .corpus import EntityCasting, Passage, Voice, load_voices, nearest_domain
from .spec import (
    RESERVED,
    EntityWords,
    FieldWords,
    ToolWords,
    WorldSpec,
    check_spec,
    fill,
    table_roles,
)


@dataclass(frozen=True, slots=True)
class SetterTask:
    """What a setter may know: the passage, the family's interface and how many members each kind has."""

    passage: Passage
    family: Family
    counts: dict[str, int]


class Setter(Protocol):
    """Writes a spec; `name` says in every manifest who wrote it."""

    name: str

    def write(self, task: SetterTask, rng: np.random.Generator) -> WorldSpec: ...


COMMON_ENTITIES = {
    "level": EntityCasting(singular="stock level", plural="stock levels")
}  # alike in every domain


class TemplateSetter:
    """The deterministic setter: the domain's casting of the family, names of its pools, words of the passage."""

    name = "template"

    def write(self, task: SetterTask, rng: np.random.Generator) -> WorldSpec:
        passage, family = task.passage, task.family
        voices = load_voices()
        voice = voices.get(passage.domain) or voices[nearest_domain(passage.text)]
        casting = voice.castings[family.name]
        taken: set[str] = set()
        entities = {}
        for entity in family.interface.entities:
            cast = casting.entities.get(entity.kind) or COMMON_ENTITIES[entity.kind]
            names: tuple[str, ...] = ()
            if not entity.ordinal:
                pool = list(cast.names) or list(voice.pools[cast.pool or "places"])
                names = _names(passage, cast.pool, pool, task.counts[entity.kind], taken, rng)
                taken |= {name.casefold() for name in names}
            entities[entity.kind] = EntityWords(singular=cast.singular, plural=cast.plural, names=names)
        arguments = _arguments(family, {kind: words.singular for kind, words in entities.items()})
        spec = WorldSpec(
            domain=topic(passage),
            title=casting.title,
            scenario=_scenario(passage, voice, rng, sorted(taken)),
            brief=casting.brief,
            closing=_pick(rng, voice.closings),
            money=casting.money,
            goods=casting.goods,
            time=casting.time,
            entities=entities,
            tools={
                key: ToolWords(name=tool.name, description=tool.does, arguments=arguments.get(key, {}))
                for key, tool in casting.tools.items()
            },
            fields={key: FieldWords(column=f.column, label=f.label) for key, f in casting.fields.items()},
            tables=_tables(family, voice, entities, {k: f.column for k, f in casting.fields.items()}),
            phrasing=int(rng.integers(0, 1_000_000)),
            passage=passage.id[-300:],
            setter=self.name,
        )
        check_spec(spec, family, task.counts)
        return spec


class ReplaySetter:
    """Writes the spec it was given: how an environment is built again whose words no recipe can write again."""

    def __init__(self, spec: WorldSpec) -> None:
        self.spec, self.name = spec, spec.setter

    def write(self, task: SetterTask, rng: np.random.Generator) -> WorldSpec:
        check_spec(self.spec, task.family, task.counts)
        return self.spec


def topic(passage: Passage) -> str:
    """Return the label of a passage's domain."""
    voice = load_voices().get(passage.domain)
    return voice.label if voice else _label(passage.domain)


def _pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(rng.integers(len(options)))]


def _scenario(passage: Passage, voice: Voice, rng: np.random.Generator, names: list[str]) -> str:
    """An excerpt of the passage as an epigraph, then an opening in the domain's voice."""
    sentences = [s for s in passage.sentences if not re.search(r"[<>`{}\x00-\x1f\x7f]", s) and len(s) < 400]
    excerpt = ""
    if sentences:
        first = int(rng.integers(len(sentences)))
        excerpt = " ".join(sentences[first : first + 2])
        excerpt = f'"{excerpt}"\n(from: {_clean(passage.title)})\n\n'
    unused = [place for place in voice.pools["places"] if place.casefold() not in names]
    opening = fill(
        _pick(rng, voice.openings),
        {
            "role": _pick(rng, voice.roles),
            "organisation": _pick(rng, voice.organisations),
            "place": _pick(rng, tuple(unused or voice.pools["places"])),
        },
    )
    return excerpt + opening


def _names(
    passage: Passage,
    pool_name: str | None,
    pool: list[str],
    count: int,
    taken: set[str],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Choose `count` names: first those the passage itself gives for this kind, then the domain's pool."""
    own = [_title(term) for term in passage.terms.get("goods", ())] if pool_name == "goods" else []
    if not passage.terms and pool_name in ("places", "people"):
        own = proper_names(passage.text)
    order = [pool[i] for i in rng.permutation(len(pool))]
    chosen: list[str] = []
    for name in own + order + [f"{name} {suffix}" for suffix in ("North", "South", "East") for name in order]:
        folded = name.casefold()
        if (
            len(chosen) < count
            and folded not in taken
            and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 .'&-]{0,39}", name)
        ):
            chosen.append(name)
            taken.add(folded)
    return tuple(chosen)


def proper_names(text: str) -> list[str]:
    """Return the capitalised names that stand inside the sentences of a text, in order of appearance."""
    found = re.findall(r"(?<=[a-z,;] )((?:[A-Z][a-z]+)(?: [A-Z][a-z]+){0,2})", text)
    return [name for name in dict.fromkeys(found) if len(name) <= 24]


def _arguments(family: Family, singular: dict[str, str]) -> dict[str, dict[str, str]]:
    """Name the arguments of every tool: entity slots after the entity, amounts `amount`."""
    named: dict[str, dict[str, str]] = {}
    for verb in family.interface.verbs:
        named[verb.name] = {s.name: slug(singular[s.entity]) if s.entity else "amount" for s in verb.slots}
    for field in family.interface.probes:
        named[field.name] = {kind: slug(singular[kind]) for kind in field.index}
    return named


def _tables(
    family: Family, voice: Voice, entities: dict[str, EntityWords], columns: dict[str, str]
) -> dict[str, str]:
    wanted = {
        "terms": voice.terms,
        "ledger": voice.ledger,
        "readings": voice.readings,
        **{kind: slug(entity.plural) for kind, entity in entities.items()},
    }
    for role in sorted(table_roles(family) - wanted.keys()):
        wanted[role] = f"{columns[role]}_table"
    used: set[str] = set()
    for role, name in wanted.items():
        while name in used or name in RESERVED:
            name += "_list"
        wanted[role] = name
        used.add(name)
    return wanted


def slug(text: str) -> str:
    """Return `text` as a snake_case identifier of at most 32 characters."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:32].strip("_")
    if not name or not name[0].isalpha():
        name = f"x_{name}".rstrip("_")
    return name if name not in RESERVED else f"{name}_name"


def _title(term: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in term.split())


def _label(domain: str) -> str:
    text = re.sub(r"[^A-Za-z0-9 ,.'()/-]+", " ", domain.replace("_", " ")).strip()[:80]
    return text if text and text[0].isalpha() else "Own corpus"


def _clean(text: str) -> str:
    return re.sub(r"[<>`\x00-\x1f\x7f]+", " ", text).strip()[:120] or "untitled"
