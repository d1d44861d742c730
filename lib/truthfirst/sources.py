"""Figures that the followed systems published: data/sources.yaml, the one place where they stand.

They come from other experiments and stand beside numbers of this repository, marked so. The file is read when a
figure is first asked for, so that the package imports without a checkout.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .core_yaml import load_yaml
from .paths import HOME

SOURCES = HOME / "data" / "sources.yaml"


class SourceError(KeyError):
    """A published figure is not there; the message says which ones are, or where the file has to lie."""

    def __str__(self) -> str:
        return str(self.args[0])


def published(*names: str) -> Any:
    """Return what stands under `names`, one a level: a number, a text, a tuple or a read-only mapping.

    published("vhd_play", "scores", "F") is the pair (base, trained). Raises SourceError, and YamlError for a file that
    is not YAML.
    """
    found: Any = _read(SOURCES)
    for depth, name in enumerate(names):
        if not isinstance(found, Mapping) or name not in found:
            place = ".".join((SOURCES.name, *names[:depth]))
            known = f"choose among {', '.join(found)}" if isinstance(found, Mapping) else "it is one figure"
            raise SourceError(f"no published figure {name!r} in {place}: {known}")
        found = found[name]
    return found


class Group(Mapping[str, Any]):
    """The published figures under some names, as a mapping that reads the file when it is looked into."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return published(*self._names, name)

    def __iter__(self) -> Iterator[str]:
        return iter(published(*self._names))

    def __len__(self) -> int:
        return len(published(*self._names))


@functools.cache
def _read(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(
            f"{file} cannot be read ({error.strerror}): set TRUTHFIRST_HOME to the repository"
        ) from error
    return _frozen(load_yaml(text, str(file)))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({str(name): _frozen(part) for name, part in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
