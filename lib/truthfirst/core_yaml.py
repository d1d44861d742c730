"""YAML as its 1.2 core schema reads it, and no key twice: the one loader of grids, parameters and corpus plans.

PyYAML follows YAML 1.1, where `no` is false, `010` is eight and `1e-3` is text. Here `1e-3` is a number, `no` and `on`
are text, `010` is ten and a date is text. A key that stands twice in one mapping is an error, since one of the two
values would be lost in silence. Only plain values are made: a tag that names a Python object is an error.

Source: YAML 1.2.2, 2021, section 10.3.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml


class YamlError(ValueError):
    """A text is not YAML, or a key stands twice; one line that names place, line and problem."""


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's scalars and without duplicate keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML fills it by class

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                mark = node.value[index][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", mark)
        return super().construct_mapping(node, deep)


def _integer(loader: _CoreLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_CoreLoader.add_constructor("tag:yaml.org,2002:int", _integer)
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def load_yaml(text: str, where: str) -> Any:
    """Return the value of a YAML text; raise YamlError that names `where`, the line and the problem."""
    try:
        return yaml.load(text, Loader=_CoreLoader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise YamlError(f"{where}{line}: not YAML ({error.problem})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(f"{where}: not YAML ({' '.join(str(error).split())})") from error
