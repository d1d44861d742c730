"""The plan of the small corpus that the tests of builds share."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "name": "small-corpus",
    "environments": 30,
    "families": [
        "rationing",
        "pricing",
        "scheduling",
    ],  # nano scheduling often lacks the margin: some rejections
    "sizes": {"nano": 1},
    "splits": {"train": 1, "validation": 1, "test": 1},
}
