"""Where the work of a build is done: local processes through joblib, or a Ray cluster.

A backend is a function (work, jobs, workers) that yields the result of each job as it is done, in any order. When
workers die (killed, out of memory, a node lost) it may raise `WorkersLost`; `run` then does what has no result yet
again. A job that kills its worker every time cannot hide: after three rounds without a single result the build ends
and names what is left.

`ray` is an extra. With no address given it joins the cluster that RAY_ADDRESS or a running `ray start` names, and
starts one on this machine where there is none. Every node needs the same version of this package and of its
passages: the driver compares the library hash of each record with its own.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol, TypeVar

from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from ..interrupts import ignore_interrupts

ROUNDS_WITHOUT_RESULT = 3
OBJECT_STORE = 128 << 20  # bytes; records are small
QUEUED = 8  # jobs submitted to Ray ahead of each CPU
PER_CPU = 4  # workers for each CPU, at most: more of them cost memory and do nothing faster


class Keyed(Protocol):
    """A job: anything with a key that tells it from the others."""

    @property
    def key(self) -> str: ...


J = TypeVar("J", bound=Keyed)
Result = dict[str, Any]
Work = Callable[[J], Result]
Backend = Callable[[Callable[[Any], Result], Sequence[Any], int], Iterator[Result]]


class BackendError(RuntimeError):
    """A backend cannot be used, or jobs cannot be finished on it; says what to do."""


class WorkersLost(Exception):
    """Workers died; jobs without a result have to be done again."""


def check_workers(workers: int) -> int:
    """Return a number of workers; raise BackendError unless it is from 1 to PER_CPU for each CPU of this machine."""
    cpus = os.cpu_count() or 1
    if not 1 <= workers <= PER_CPU * cpus:
        raise BackendError(
            f"workers must be from 1 to {PER_CPU * cpus} (this machine has {cpus} CPUs), got {workers}"
        )
    return workers


def run(
    backend: str, work: Work[J], jobs: Sequence[J], workers: int, address: str | None = None
) -> Iterator[Result]:
    """Yield one result a job, in any order; a result holds its job's key under "key".

    backend   "joblib" or "ray"; workers: processes of joblib, or CPUs of a Ray cluster that has to be started
    address   of a Ray cluster

    Raises BackendError when jobs keep killing their workers, and whatever `work` raises.
    """
    if backend not in BACKENDS:
        raise BackendError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    left = {job.key: job for job in jobs}
    idle = 0
    while left:
        before = len(left)
        results = BACKENDS[backend](work, list(left.values()), workers, address)
        with closing(results):  # type: ignore[type-var]
            try:
                for result in results:
                    if left.pop(result["key"], None) is not None:
                        yield result
            except WorkersLost as loss:
                idle = idle + 1 if len(left) == before else 0
                if idle >= ROUNDS_WITHOUT_RESULT:
                    raise BackendError(
                        f"workers died {idle} times without one result ({loss}); {len(left)} jobs are left, the first "
                        f"is {next(iter(left))}: look at memory, or try it alone with --workers 1"
                    ) from loss


def on_joblib(work: Work[J], jobs: Sequence[J], workers: int, address: str | None = None) -> Iterator[Result]:
    """Do the jobs in `workers` local processes of one thread each; with one worker in this process."""
    if workers == 1:
        yield from map(work, jobs)
        return
    with _unsaid(), parallel_config("loky", inner_max_num_threads=1, initializer=ignore_interrupts):
        results = Parallel(n_jobs=workers, return_as="generator_unordered")(
            delayed(work)(job) for job in jobs
        )
    finished = False
    try:
        for result in results:  # noqa: UP028 - `yield from` would close them before the block below does
            yield result
        finished = True
    except TerminatedWorkerError as error:
        raise WorkersLost(str(error).splitlines()[0]) from error
    finally:
        with warnings.catch_warnings():  # that tasks are given up here is no news
            warnings.filterwarnings("ignore", "[0-9]+ tasks ", UserWarning)
            results.close()
        if not finished:  # an interrupted build leaves no process behind
            get_reusable_executor().shutdown(wait=True, kill_workers=True)


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keep loky's helper process, started in the block, from warning of what killed workers leave; it cleans up."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def on_ray(work: Work[J], jobs: Sequence[J], workers: int, address: str | None = None) -> Iterator[Result]:
    """Do the jobs as Ray tasks of one CPU each, a bounded number in flight."""
    ray = _ray()
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, workers, address)
    try:
        task = ray.remote(num_cpus=1, max_retries=3)(work)  # with one CPU, Ray gives a task one thread
        cpus = int(ray.cluster_resources().get("CPU", 1))
        waiting, running = iter(jobs), {}
        for job in waiting:
            running[task.remote(job)] = job
            if len(running) >= QUEUED * cpus:
                break
        while running:
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                del running[reference]
                yield _result(ray, reference)
                for job in waiting:
                    running[task.remote(job)] = job
                    break
    finally:
        if not connected:
            ray.shutdown()


def _result(ray: Any, reference: Any) -> Result:
    errors = ray.exceptions
    try:
        return ray.get(reference)
    except (
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.ObjectLostError,
        errors.OutOfMemoryError,
    ) as error:
        raise WorkersLost(type(error).__name__) from error
    except errors.RayTaskError as error:
        cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
        raise cause from None


def _connect(ray: Any, workers: int, address: str | None) -> None:
    """Join the named or the running cluster, else start one on this machine with `workers` CPUs."""
    named = address or os.environ.get("RAY_ADDRESS")
    if named and (found := re.fullmatch(r"(?:ray://)?([^/:]+):(\d{1,5})", named)):
        try:  # Ray itself waits for minutes where nobody answers
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise BackendError(f"no Ray cluster answers at {named!r} ({error})") from error
    quiet = {"logging_level": "warning", "log_to_driver": False}
    try:
        ray.init(address=named or "auto", **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if named:
            raise BackendError(
                f"no Ray cluster answers at {named!r}: {str(error).splitlines()[0]}"
            ) from error
        os.environ.setdefault(
            "RAY_USAGE_STATS_ENABLED", "0"
        )  # nothing is reported to anybody unless asked for
        ray.init(
            address="local",
            num_cpus=workers,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            **quiet,
        )


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise BackendError(
            "the backend 'ray' needs the package ray: pip install 'truthfirst[ray]', or use --backend joblib"
        ) from error


BACKENDS: dict[str, Callable[..., Iterator[Result]]] = {"joblib": on_joblib, "ray": on_ray}
