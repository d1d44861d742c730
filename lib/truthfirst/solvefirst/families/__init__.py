"""The table of mechanism families and the part that each plays in a study."""

from __future__ import annotations

from . import rationing
from .base import SIZES, Family, UnknownName

FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in (rationing,)}

ROLES: dict[str, str] = {
    "rationing": "trained",
}


def family(name: str) -> Family:
    """Return the family called `name`, or raise UnknownName that lists the families."""
    try:
        return FAMILIES[name]
    except (KeyError, TypeError):
        raise UnknownName("family", name, tuple(FAMILIES)) from None


__all__ = ["FAMILIES", "ROLES", "SIZES", "Family", "UnknownName", "family"]
