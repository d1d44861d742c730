"""Stopping long work: SIGTERM does what Ctrl-C does, so that clusters and shells end a run as a reader would.

A command wraps its work in `terminable()` and catches KeyboardInterrupt once, at its door: it prints STOPPED and
returns INTERRUPTED. What is below it only has to leave finished work stored and its processes ended. Worker processes
leave interrupts, which Ctrl-C sends to the whole group, to the process that started them.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from joblib import parallel_config

STOPPED = "stopped; the same command goes on where this one ended"
AGAIN = 0.05  # seconds until a lost interrupt is raised again
INTERRUPTED = 130  # exit code of a shell for a command that Ctrl-C ended


def ignore_interrupts() -> None:
    """Initialise a worker process: whoever started it is interrupted too, and ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt inside the block, and workers of joblib's processes ignore SIGINT.

    Outside the main thread this does nothing. An interrupt that falls into a destructor or a weak reference's callback
    is printed by Python and lost; here it is raised again a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    main, again = threading.get_ident(), list[threading.Timer]()

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            again.append(threading.Timer(AGAIN, signal.pthread_kill, (main, signal.SIGTERM)))
            again[-1].start()
        else:
            report(lost)

    before, report = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        with parallel_config("loky", initializer=ignore_interrupts):
            yield
    finally:
        for timer in again:
            timer.cancel()
        sys.unraisablehook = report
        signal.signal(signal.SIGTERM, before)
