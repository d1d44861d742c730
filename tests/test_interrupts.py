"""SIGTERM ends work as Ctrl-C does, inside the block only."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest
from joblib import Parallel, delayed

from truthfirst.interrupts import terminable


def test_sigterm_interrupts_inside_the_block_and_is_given_back_after_it():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_nothing_is_changed():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with terminable():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_an_interrupt_that_a_destructor_swallows_comes_again(capsys):
    class Unlucky:
        def __del__(self):
            raise KeyboardInterrupt

    def work() -> None:
        with terminable():
            Unlucky()
            time.sleep(5)

    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        work()
    assert sys.unraisablehook is before
    assert capsys.readouterr().err == ""


def test_workers_leave_interrupts_to_the_process_that_started_them():
    before = signal.getsignal(signal.SIGINT)
    with terminable():
        seen = Parallel(n_jobs=2)(delayed(signal.getsignal)(signal.SIGINT) for _ in range(4))
    assert set(seen) == {signal.SIG_IGN}
    assert signal.getsignal(signal.SIGINT) is before
