"""Backends: every job done once, lost workers survived, errors passed on, a real Ray cluster of two nodes."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from truthfirst.records import read_jsonl
from truthfirst.solvefirst import backends
from truthfirst.solvefirst.backends import BackendError, WorkersLost, run
from truthfirst.solvefirst.build import Built, build, main
from truthfirst.solvefirst.build_work import this_worker


@dataclass(frozen=True)
class Task:
    key: str
    folder: str = ""


def double(task: Task) -> dict[str, Any]:
    return {"key": task.key, "value": 2 * int(task.key)}


def die_once(task: Task) -> dict[str, Any]:
    """Kill this worker the first time that job 5 is tried."""
    flag = Path(task.folder) / "died"
    if task.key == "5" and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return double(task)


def always_die(task: Task) -> dict[str, Any]:
    if task.key == "5":
        os.kill(os.getpid(), signal.SIGKILL)
    return double(task)


def fail(task: Task) -> dict[str, Any]:
    raise KeyError(f"defect in {task.key}")


def values(results: Iterator[dict[str, Any]]) -> dict[str, int]:
    found = [(result["key"], result["value"]) for result in results]
    assert max(Counter(key for key, _ in found).values(), default=1) == 1
    return dict(found)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_job_is_done_once(workers):
    tasks = [Task(str(n)) for n in range(20)]
    assert values(run("joblib", double, tasks, workers)) == {str(n): 2 * n for n in range(20)}
    assert values(run("joblib", double, [], workers)) == {}


def test_a_worker_that_dies_loses_nothing(tmp_path):
    tasks = [Task(str(n), str(tmp_path)) for n in range(12)]
    assert values(run("joblib", die_once, tasks, 2)) == {str(n): 2 * n for n in range(12)}
    assert (tmp_path / "died").exists()


def test_a_job_that_always_kills_its_worker_is_named():
    done = []
    with pytest.raises(BackendError, match=r"1 jobs are left, the first is 5") as caught:
        done += list(run("joblib", always_die, [Task("5")], 2))
    assert isinstance(caught.value.__cause__, WorkersLost)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_defect_in_the_work_is_raised_as_it_is(workers):
    with pytest.raises(KeyError, match="defect in 3"):
        list(run("joblib", fail, [Task("3")], workers))


def test_progress_resets_the_patience(monkeypatch):
    """A backend that loses its workers after each result still finishes, however often that happens."""

    def shaky(work: Any, jobs: Any, workers: int, address: str | None) -> Iterator[dict[str, Any]]:
        yield work(jobs[0])
        raise WorkersLost("again")

    monkeypatch.setitem(backends.BACKENDS, "joblib", shaky)
    tasks = [Task(str(n)) for n in range(9)]
    assert values(run("joblib", double, tasks, 2)) == {str(n): 2 * n for n in range(9)}


def test_an_unknown_backend_and_a_missing_package_say_what_to_do(monkeypatch):
    with pytest.raises(BackendError, match="choose one of joblib, ray"):
        list(run("slurm", double, [Task("1")], 1))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BackendError, match=r"pip install 'truthfirst\[ray\]'"):
        list(run("ray", double, [Task("1")], 1))


# --- Ray --------------------------------------------------------------------------------------------------
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'truthfirst[ray]'"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A real cluster on this machine: a head node and a second node, each a raylet with one CPU of its own."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes
    nodes.shutdown()


@pytest.mark.ray
@needs_ray
class TestRay:
    def test_the_cluster_gives_the_manifest_of_joblib_and_both_nodes_work(
        self, cluster: Any, small_corpus: Built, small_plan, tmp_path
    ):
        """One worker is killed with SIGKILL in mid-build, and nothing is lost."""
        killed: list[int] = []
        raylets: set[int] = set()  # a worker's parent is the raylet of its node

        def watch(record: dict[str, Any]) -> None:
            process = int(record["worker"].rpartition(":")[2])
            if process in killed:
                return
            raylets.add(int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]))
            if not killed and "recipe" in record:
                killed.append(process)
                os.kill(process, signal.SIGKILL)

        built = build(
            small_plan, tmp_path, backend="ray", address=cluster.address, progress=False, watch=watch
        )
        assert built.hash == small_corpus.hash
        assert len(raylets) == 2
        workers = {record["worker"] for record in read_jsonl(tmp_path / "candidates.jsonl")}
        assert len(workers) >= 3  # one on each node, and at least one that took over
        assert this_worker() not in workers

    def test_a_node_that_is_lost_loses_nothing(self, cluster: Any, small_corpus: Built, small_plan, tmp_path):
        third = cluster.add_node(num_cpus=1)
        lost: list[bool] = []

        def watch(record: dict[str, Any]) -> None:
            if not lost and "recipe" in record:
                lost.append(True)
                cluster.remove_node(third, allow_graceful=False)

        built = build(
            small_plan, tmp_path, backend="ray", address=cluster.address, progress=False, watch=watch
        )
        assert lost
        assert built.hash == small_corpus.hash

    def test_a_defect_in_the_work_is_raised_as_it_is(self, cluster: Any):
        with pytest.raises(KeyError, match="defect in 3"):
            list(run("ray", fail, [Task("3")], 1, cluster.address))

    def test_a_job_that_always_kills_its_worker_is_named(self, cluster: Any):
        with pytest.raises(BackendError, match="workers died 3 times"):
            list(run("ray", always_die, [Task("5")], 1, cluster.address))


@pytest.mark.ray
@needs_ray
def test_an_address_where_nobody_answers_is_refused(capsys, tmp_path):
    (tmp_path / "plan.yaml").write_text("name: a\nenvironments: 1\nsizes: {nano: 1}\n")
    options = ["--backend", "ray", "--address", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert main([str(tmp_path / "plan.yaml"), *options]) == 1
    assert "no Ray cluster answers at '127.0.0.1:1'" in capsys.readouterr().err
