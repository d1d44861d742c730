"""Published instances: data/published/*.yaml read as theta, through `Family.build`.

An entry names a family, its source, and what was published, beside `theta` in the family's own fields and the `u_star`
that the published value comes to. Three formats of the literature are translated here instead:

tour         cities of a travelling salesman's tour (coordinates in degrees and minutes, or a lower triangle of
             distances): the first city is the base, the others hold one prize of 1, the limit is the published length
costs        an assignment problem at least cost: value = highest cost - cost
warehouses   OR-Library's warehouse location files, uncapacitated, costs in hundred-thousandths

The published value is data, never computed here. Entries of format `boxes` (distributions, not an instance) are left
to whoever tests Weitzman's rule.

Source: G. Reinelt, "TSPLIB 95", 1995, section 2.4 (geographical distances); J. E. Beasley, "OR-Library: distributing
test problems by electronic mail", Journal of the Operational Research Society 41, 1990.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from ..paths import HOME
from .families import family as find_family
from .families.base import Theta, ThetaError, require

PUBLISHED = HOME / "data" / "published"
EARTH_RADIUS = 6378.388  # km, as TSPLIB has it
TSPLIB_PI = 3.141592
DECIMALS = 10**5  # OR-Library prints five


@dataclass(frozen=True, slots=True)
class Published:
    """One instance of the literature.

    published   the optimum as its source states it, in the source's unit
    u_star      the same in the family's unit and sign
    """

    name: str
    family: str
    source: str
    published: float
    u_star: int
    theta: Theta


def published_instances(folder: Path = PUBLISHED) -> list[Published]:
    """Return every instance of the folder, checked; raise ThetaError that names a field which is wrong."""
    entries = [entry for file in sorted(folder.glob("*.yaml")) for entry in read_entries(file)]
    return [read_instance(entry, folder) for entry in entries if entry.get("format") != "boxes"]


def read_entries(file: Path) -> list[dict[str, Any]]:
    """Return the entries of one file; a key that stands twice in one mapping raises ThetaError."""
    return yaml.load(file.read_text(encoding="utf-8"), _UniqueKeys)


def read_instance(entry: Mapping[str, Any], folder: Path = PUBLISHED) -> Published:
    """Build one instance from its entry. Raises ThetaError, also for an entry without a source or a value."""
    for field in ("name", "family", "source", "published"):
        require(field in entry, field, None, "is missing from this published instance")
    if "format" in entry:
        require(
            entry["format"] in FORMATS, "format", entry["format"], f"expected one of {', '.join(FORMATS)}"
        )
        data, u_star = FORMATS[entry["format"]](entry, folder)
    else:
        for field in ("theta", "u_star"):
            require(field in entry, field, None, "is missing from this published instance")
        data, u_star = entry["theta"], entry["u_star"]
    theta = find_family(entry["family"]).build(data)
    return Published(entry["name"], entry["family"], entry["source"], entry["published"], u_star, theta)


class _UniqueKeys(yaml.SafeLoader):
    """YAML keeps the last of two equal keys; here the second one is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ThetaError(
                    str(key), key, f"stands twice, the second time in line {key_node.start_mark.line + 1}"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


# --- formats of the literature ----------------------------------------------------------------------------
def geographical(first: tuple[float, float], second: tuple[float, float]) -> int:
    """Return TSPLIB's distance in km between two places given as (latitude, longitude) in DDD.MM."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(_radians, place)) for place in (first, second))
    q1, q2, q3 = math.cos(lon1 - lon2), math.cos(lat1 - lat2), math.cos(lat1 + lat2)
    return int(EARTH_RADIUS * math.acos(0.5 * ((1 + q1) * q2 - (1 - q1) * q3)) + 1)


def _radians(value: float) -> float:
    degrees = int(value)  # the two decimals are minutes
    return TSPLIB_PI * (degrees + 5 * (value - degrees) / 3) / 180


def tour(entry: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], int]:
    """A tour as orienteering: all prizes can be had at the published length."""
    if "coordinates" in entry:
        places = [tuple(place) for place in entry["coordinates"]]
        distances = [
            [0 if i == j else geographical(p, q) for j, q in enumerate(places)] for i, p in enumerate(places)
        ]
    else:
        rows = entry["lower_triangle"]
        distances = [[0] * len(rows) for _ in rows]
        for i, row in enumerate(rows):
            require(len(row) == i, "lower_triangle", row, f"expected {i} distances in row {i + 1}")
            for j, distance in enumerate(row):
                distances[i][j] = distances[j][i] = distance
    data = {
        "limit": entry["published"],
        "base_time": distances[0][1:],
        "travel_time": [row[1:] for row in distances[1:]],
        "prize": [[1]] * (len(distances) - 1),
    }
    return data, len(distances) - 1


def costs(entry: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], int]:
    """A least-cost assignment as one of greatest value; every task is done, so u_star is a sum over all of them."""
    table = (
        entry["costs"] if "costs" in entry else _square((folder / entry["file"]).read_text(encoding="utf-8"))
    )
    require(len(table) >= len(table[0]), "costs", table, "needs as many workers as tasks")
    highest = max(map(max, table))
    value = [[highest - cost for cost in row] for row in table]
    return {"value": value}, highest * len(table[0]) - entry["published"]


def _square(text: str) -> list[list[int]]:
    """Read OR-Library's assignment file: n, then n rows of n costs, broken into lines anywhere."""
    n, *numbers = map(int, text.split())
    require(len(numbers) == n * n, "costs", len(numbers), f"expected {n} x {n} numbers")
    return [numbers[i * n : (i + 1) * n] for i in range(n)]


def warehouses(entry: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], int]:
    """OR-Library's warehouse location without capacities: m, n, m (capacity, charge), n (demand, m costs)."""
    sites, customers, *numbers = (folder / entry["file"]).read_text(encoding="utf-8").split()
    m, n = int(sites), int(customers)
    require(
        len(numbers) == 2 * m + n * (m + 1), "file", len(numbers), f"expected {2 * m + n * (m + 1)} numbers"
    )
    rows = [numbers[2 * m + k * (m + 1) + 1 : 2 * m + (k + 1) * (m + 1)] for k in range(n)]
    data = {
        "opening": [_whole(charge) for charge in numbers[1 : 2 * m : 2]],
        "service": [[_whole(row[i]) for row in rows] for i in range(m)],
    }
    return data, -_whole(repr(entry["published"]))


def _whole(text: str) -> int:
    """Return a decimal in hundred-thousandths, exactly."""
    scaled = Fraction(text) * DECIMALS
    require(scaled.denominator == 1, "costs", text, "expected at most five decimals")
    return int(scaled)


FORMATS = {"tour": tour, "costs": costs, "warehouses": warehouses}
