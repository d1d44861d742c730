"""Execution: a plan through papermill into its run folder, alone or many at once.

The kernel is `python3`, taken from the environment that runs this code before any of the user's own. It works in the
notebook's folder, as in JupyterLab, and finds its run in TRUTHFIRST_RUN. What cells print goes to the run's log.txt.
With several workers every run gets one thread (OMP_NUM_THREADS=1 and its kin), in processes of joblib's; with one
worker the threads are left alone. A killed process leaves a run without a final status, which is done again at the
next start; its kernel notices within a second that its parent is gone.
"""

from __future__ import annotations

import logging
import os
import textwrap
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import joblib
import nbformat
import papermill
from joblib.externals.loky.process_executor import TerminatedWorkerError
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillException, PapermillExecutionError

from . import paths
from .records import write_atomic
from .runs import ATTEMPT_VARIABLE, RUN_VARIABLE, Claim, RunError, claim, now, read_run
from .runs_plan import Plan, code_hash
from .runs_publish import plan_publication, publish_run, read_sidecar

KERNEL = "python3"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
REASON = 600  # characters of what broke a run; room for the fields that a misspelt one could have been
# What a notebook, its kernel or the disk can do to a run. Anything else is a defect of ours and is raised.
FAILURES = (PapermillException, DeadKernelError, NoSuchKernel, RunError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan.

    state   finished now; skipped: finished before; running: another process has it; broken: see reason
    """

    plan: Plan
    state: Literal["finished", "skipped", "running", "broken"]
    reason: str = ""


def execute(
    plan: Plan, *, redo: bool = False, single_thread: bool = False, progress: bool = False
) -> Outcome:
    """Do one run, unless it is finished or another process has it.

    redo           do a finished run again
    single_thread  give the kernel one thread
    progress       show papermill's bar of cells

    A run that fails is marked as broken and returned as such. KeyboardInterrupt marks it too and is raised again.
    Raises OSError when not even the folder can be made.
    """
    claimed = claim(plan.folder, plan.documents, redo)
    if not isinstance(claimed, Claim):
        return Outcome(plan, "skipped" if claimed.state == "finished" else "running", claimed.reason)
    started, clock = now(), time.monotonic()
    try:
        with claimed.beating():
            node = _papermill(plan, claimed, single_thread, progress)
            claimed.check()
            write_atomic(plan.folder / "executed.ipynb", nbformat.writes(node) + "\n")
            (plan.folder / "partial.ipynb").unlink(missing_ok=True)
            timing = {
                "started": started,
                "ended": now(),
                "seconds": round(time.monotonic() - clock, 3),
                "cells": [c.metadata.papermill.get("duration") for c in node.cells if c.cell_type == "code"],
            }
            changed = code_hash() != plan.code_hash
            publication = plan_publication(plan.folder, plan.varied, plan.parameters.get("preset"))
            named = tuple(dict.fromkeys([*publication.names, *drawn_by(plan.run_id)]))
            claimed.finish(timing, named, library_changed=changed, kept=publication.kept)
            publish_run(plan.folder, publication)  # last of all: a broken run publishes nothing
    except FAILURES as error:
        reason = describe(error)
        claimed.fail(reason)
        return Outcome(plan, "broken", reason)
    except BaseException as error:
        claimed.fail("interrupted" if isinstance(error, KeyboardInterrupt) else describe(error))
        raise
    return Outcome(plan, "finished")


def execute_all(
    plans: Sequence[Plan], *, workers: int = 1, redo: bool = False
) -> Generator[Outcome, None, None]:
    """Do many runs and yield each outcome as it comes: in order with one worker, else as they end.

    Close the generator to stop early (`contextlib.closing`): the workers end at once. When a worker is killed (by the
    system for memory, say), its pool is lost. The runs that were then under way are broken; those that had not begun
    go on in a new pool.
    """
    if workers == 1:
        yield from (execute(plan, redo=redo) for plan in plans)
        return
    waiting = {plan.run_id: plan for plan in plans}
    while waiting:
        job = joblib.delayed(_execute_in_worker)
        pool = joblib.Parallel(
            n_jobs=workers,
            backend="loky",
            batch_size=1,
            pre_dispatch=workers,
            return_as="generator_unordered",
        )
        before = time.time()
        jobs = pool([job(plan, redo) for plan in waiting.values()])
        try:
            for outcome in jobs:
                waiting.pop(outcome.plan.run_id)
                yield outcome
        except TerminatedWorkerError:
            lost = [plan for plan in waiting.values() if _begun_since(plan, before)]
            for plan in lost or list(waiting.values()):
                waiting.pop(plan.run_id)
                yield Outcome(plan, "broken", "its worker was killed (out of memory?)")
        finally:
            with warnings.catch_warnings():  # joblib warns that tasks are cancelled: they are meant to be
                warnings.filterwarnings("ignore", message=r"\d+ tasks ", category=UserWarning)
                jobs.close()


def _execute_in_worker(plan: Plan, redo: bool) -> Outcome:
    _end_with_parent()
    return execute(plan, redo=redo, single_thread=True)


@cache
def _end_with_parent() -> None:
    """Watch for the death of the process that made this worker, once a worker: joblib's would wait for minutes."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _begun_since(plan: Plan, when: float) -> bool:
    """Say whether a run was begun at or after `when` and has no final result."""
    if read_run(plan.folder).state in ("absent", "finished"):
        return False
    try:
        return (plan.folder / "run.json").stat().st_mtime >= when - 1
    except OSError:
        return True


def describe(error: BaseException) -> str:
    """Return one line that says what broke a run."""
    if isinstance(error, PapermillExecutionError):
        text = f"cell [{error.exec_count}]: {error.ename}: {error.evalue}"
    elif isinstance(error, DeadKernelError):
        text = "the kernel died (out of memory?)"
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    else:
        text = f"{type(error).__name__}: {error}"
    return textwrap.shorten(text, REASON, placeholder=" ... (whole in partial.ipynb)")


def drawn_by(run_id: str) -> list[str]:
    """Return the names of the figures whose JSON sidecar names this run (as `run`, or among `run_ids`)."""
    names = []
    for sidecar in sorted(paths.FIGURES.glob("*.json")):
        content = read_sidecar(sidecar) or {}  # a damaged one names no run
        if content.get("run") == run_id or run_id in (content.get("run_ids") or ()):
            names.append(sidecar.stem)
    return names


# --- papermill --------------------------------------------------------------------------------------------
def _papermill(plan: Plan, claimed: Claim, single_thread: bool, progress: bool) -> nbformat.NotebookNode:
    """Execute the planned notebook in the run's folder and return it; raise what FAILURES lists."""
    partial = plan.folder / "partial.ipynb"
    write_atomic(partial, plan.source)
    with _environment(claimed, single_thread), _log_to(claimed):
        # papermill formats paths with the parameters, so braces in a path are doubled
        path = str(partial).replace("{", "{{").replace("}", "}}")
        node = papermill.execute_notebook(
            path,
            path,
            parameters=plan.given,
            kernel_name=KERNEL,
            language="python",
            progress_bar=progress,
            log_output=True,
            cwd=str(plan.notebook.parent),
            extra_arguments=["--log-level=CRITICAL"],  # of the kernel, whose log would go to the terminal
        )
    for number, cell in enumerate(node.cells, start=1):
        # papermill takes sys.exit(0) for a good end, but the cells after it have not run
        if cell.cell_type == "code" and cell.metadata.papermill.get("status") != "completed":
            raise RunError(f"the notebook stopped early: cell {number} of {len(node.cells)} did not complete")
    node.metadata.papermill.update(input_path=plan.notebook.name, output_path="executed.ipynb")
    return node


@contextmanager
def _environment(claimed: Claim, single_thread: bool) -> Iterator[None]:
    """Set what the kernel inherits, and put the environment back afterwards."""
    wanted = {
        RUN_VARIABLE: str(claimed.folder),
        ATTEMPT_VARIABLE: claimed.attempt,
        "TRUTHFIRST_HOME": str(
            paths.HOME.absolute()
        ),  # the kernel works elsewhere: a relative path would go astray
        "TRUTHFIRST_OUTPUT": str(paths.OUTPUT.absolute()),
        "JUPYTER_PREFER_ENV_PATH": "1",  # this environment's python3 kernel before the user's own
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else every kernel warns about frozen modules
    }
    if single_thread:
        wanted |= dict.fromkeys(THREAD_VARIABLES, "1")
    # Threads that wait for each other sleep instead of spinning: on a busy machine a model in the kernel would
    # else spend most of its time on waiting. A user's own setting stands.
    wanted["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _RunLog(logging.FileHandler):
    """A log that does not swallow its own failure: a run whose log cannot be written is broken."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - called while it is handled
        raise


@contextmanager
def _log_to(claimed: Claim) -> Iterator[None]:
    """Send papermill's log, which holds what the cells print, to the run's log.txt and nowhere else."""
    logger = logging.getLogger("papermill")
    handler = _RunLog(claimed.folder / "log.txt", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before: tuple[Any, ...] = (logger.level, logger.propagate, list(logger.handlers))
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.level, logger.propagate, logger.handlers = before
        handler.close()
