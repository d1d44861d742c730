"""How numbers read in the report: shares, counts, intervals, and verbs that the data choose.

A comparative word is a function of an interval: a difference whose interval holds 0 neither rises nor falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..study.stats import LEVEL, Estimate

INTERVAL = f"{LEVEL:.0%} bootstrap interval over instances"
ELSEWHERE = "another experiment"


def share(value: float) -> str:
    """Return a share as per cent, to one decimal where there is one: 0.9835 is 98.3%, 0.5 is 50%."""
    text = f"{value:.1%}"
    return text.replace(".0%", "%")


def count(value: float) -> str:
    """Return a whole number with separators of thousands."""
    return f"{round(value):,}"


def number(value: float | None) -> str:
    """Return a score to two decimals, a dash where there is none; minus zero is zero."""
    return "-" if value is None or math.isnan(value) else f"{value:.2f}".replace("-0.00", "0.00")


def small(value: float) -> str:
    """Return a number of any size to three significant digits, without an exponent from 0.0001 to 999,999."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def interval(found: Estimate) -> str:
    """Return a mean and its interval: 0.77 [0.74, 0.80]."""
    if found.low is None or found.high is None:
        return number(found.mean)
    return f"{number(found.mean)} [{number(found.low)}, {number(found.high)}]"


def signed(found: Estimate) -> str:
    """Return a difference and its interval, with signs: +0.47 [+0.44, +0.50]."""
    if found.mean is None:
        return "-"
    if found.low is None or found.high is None:
        return f"{found.mean:+.2f}"
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def moves(
    found: Estimate, up: str = "rises", down: str = "falls", flat: str = "does not move measurably"
) -> str:
    """Return the verb of a difference: `flat` where the interval holds 0 or there is none."""
    if found.mean is None or found.low is None or found.high is None or found.low <= 0 <= found.high:
        return flat
    return up if found.mean > 0 else down


def compared(ours: float, theirs: float) -> str:
    """Say how a number of ours lies beside a published one, at the two decimals that are printed."""
    if number(ours) == number(theirs):
        return "as much as"
    return "more than" if ours > theirs else "less than"


def span(values: Iterable[float], decimals: int = 2) -> str:
    """Return the range of some values: 0.71 to 0.78; one value where they print alike."""
    ends = list(values)
    low, high = f"{min(ends):.{decimals}f}", f"{max(ends):.{decimals}f}"
    return low if low == high else f"{low} to {high}"


def listed(items: Sequence[str]) -> str:
    """Return items as English lists them: a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def plural(value: float, noun: str, more: str | None = None) -> str:
    """Return a count with its noun: 1 seed, 3 seeds, 17 families."""
    return f"{count(value)} {noun if round(value) == 1 else more or noun + 's'}"


def unbroken(text: str) -> str:
    """Return a text in which no line ends within `n = 12`."""
    return text.replace("n = ", "n\u00a0=\u00a0")
