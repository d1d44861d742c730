"""Grids: many runs of one notebook from a YAML file, and parameters as YAML scalars.

A grid file::

    notebook: 03_comparisons        # a path, or a name under notebooks/
    workers: 2                      # optional, processes; 1 when absent
    fixed: {preset: cpu}            # optional, for every cell
    product:                        # optional: every combination of these lists
      family: [rationing, pricing]
      seed: [0, 1, 2]
    cells:                          # optional: further cells, one by one
      - {family: lot_sizing, seed: 7}

At least one of `product` and `cells` must name a cell; equal cells run once.

Scalars follow YAML 1.2's core schema, and a key that stands twice is an error (`core_yaml.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import core_yaml
from .runs import RunError


@dataclass(frozen=True, slots=True)
class Grid:
    """The runs that a grid file asks for: one notebook, its parameters in each cell, and how many at once."""

    notebook: str
    cells: tuple[dict[str, Any], ...]
    workers: int


def load_yaml(text: str, where: str) -> Any:
    """Return the value of a YAML text; raise RunError of one line that names place and problem."""
    try:
        return core_yaml.load_yaml(text, where)
    except core_yaml.YamlError as error:
        raise RunError(str(error)) from error


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Return `name=value` texts as parameters, each value a YAML scalar, list or mapping."""
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise RunError(f"-p {text}: write it as name=value")
        if name in given:
            raise RunError(f"-p {name} is given twice")
        given[name] = load_yaml(value, f"-p {name}")
    return given


def read_grid(path: Path) -> Grid:
    """Read a grid file; raise RunError that names file and key when it is missing or malformed."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"), path.name)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    keys = ("notebook", "workers", "fixed", "product", "cells")
    if not isinstance(document, dict):
        raise RunError(f"{path.name}: expected a mapping with the keys {', '.join(keys)}")
    unknown = [str(key) for key in document if key not in keys]
    if unknown:
        raise RunError(f"{path.name}: unknown key {', '.join(unknown)}; the keys are {', '.join(keys)}")
    notebook = document.get("notebook")
    if not isinstance(notebook, str) or not notebook:
        raise RunError(f"{path.name}: notebook = {notebook!r}: name one notebook")
    workers = document.get("workers", 1)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise RunError(f"{path.name}: workers = {workers!r}: expected an integer of at least 1")
    fixed = _parameters(document.get("fixed"), f"{path.name}: fixed")
    product = _parameters(document.get("product"), f"{path.name}: product")
    for name, values in product.items():
        if not isinstance(values, list) or not values:
            raise RunError(f"{path.name}: product.{name} = {values!r}: expected a list of values")
    listed = document.get("cells") or []
    if not isinstance(listed, list):
        raise RunError(f"{path.name}: cells = {listed!r}: expected a list of mappings")
    cells = [
        dict(zip(product, values, strict=True)) for values in itertools.product(*product.values()) if product
    ]
    cells += [_parameters(cell, f"{path.name}: cells[{index}]") for index, cell in enumerate(listed)]
    if not cells:
        raise RunError(f"{path.name} names no cell: give product or cells")
    for cell in cells:
        both = [name for name in cell if name in fixed]
        if both:
            raise RunError(f"{path.name}: {', '.join(both)} stands both under fixed and in a cell")
    return Grid(notebook, tuple(fixed | cell for cell in cells), workers)


def _parameters(value: Any, where: str) -> dict[str, Any]:
    """Return a mapping of parameter names, empty for None; raise RunError for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RunError(f"{where} = {value!r}: expected a mapping of parameters")
    for name in value:
        if not isinstance(name, str) or not name.isidentifier():
            raise RunError(f"{where}: {name!r} is not a parameter's name")
    return value
