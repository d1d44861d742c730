"""Stopping long work: SIGTERM does what Ctrl-C does, so that clusters and shells end a run as a reader would.

A command wraps its work in `terminable()` and catches KeyboardInterrupt once, at its door: it prints STOPPED and
returns INTERRUPTED. What is below it only has to leave finished work stored and its processes ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

STOPPED = "stopped; the same command goes on where this one ended"
INTERRUPTED = 130  # exit code of a shell for a command that Ctrl-C ended


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt inside the block; outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
