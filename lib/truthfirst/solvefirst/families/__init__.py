"""The table of mechanism families and the part that each plays in a study."""

from __future__ import annotations

from . import (
    advertising,
    assignment,
    bidding,
    facility,
    harvest,
    knapsack,
    lot_sizing,
    orienteering,
    pricing,
    project_selection,
    rationing,
    replacement,
    scheduling,
    search,
    storage,
    timed_selection,
    transport,
)
from .base import SIZES, Family, UnknownName

_MODULES = (
    rationing,
    lot_sizing,
    pricing,
    storage,
    scheduling,
    orienteering,
    timed_selection,
    replacement,
    search,
    knapsack,
    assignment,
    transport,
    harvest,
    project_selection,
    bidding,
    facility,
    advertising,
)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in _MODULES}

# trained: policies learn on these; near and far: out of distribution by degree; unseen: never looked at
ROLES: dict[str, str] = {
    "rationing": "trained",
    "lot_sizing": "trained",
    "pricing": "trained",
    "storage": "near",
    "scheduling": "far",
    "orienteering": "far",
}


def family(name: str) -> Family:
    """Return the family called `name`, or raise UnknownName that lists the families."""
    try:
        return FAMILIES[name]
    except (KeyError, TypeError):
        raise UnknownName("family", name, tuple(FAMILIES)) from None


def role(name: str) -> str:
    """Return the part a family plays: trained, near, far or unseen."""
    return ROLES.get(family(name).name, "unseen")


__all__ = ["FAMILIES", "ROLES", "SIZES", "Family", "UnknownName", "family", "role"]
