"""The Ray backend on a real cluster of two nodes on this machine: the manifest of joblib, whatever is lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from truthfirst.records import read_jsonl
from truthfirst.solvefirst.backends import run
from truthfirst.solvefirst.build import Built, build, main
from truthfirst.solvefirst.build_work import this_worker


@dataclass(frozen=True)
class Task:
    key: str


def echo(task: Task) -> dict[str, Any]:
    import ray

    return {"key": task.key, "cpus": int(ray.cluster_resources()["CPU"])}


def fail(task: Task) -> dict[str, Any]:
    raise KeyError(f"defect in {task.key}")


needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'truthfirst[ray]'"
)


@pytest.mark.ray
@needs_ray
def test_without_a_cluster_one_is_started_on_this_machine(monkeypatch):
    import ray
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert not ray.is_initialized()
    results = list(run("ray", echo, [Task(str(n)) for n in range(6)], 2))
    assert sorted(result["key"] for result in results) == list("012345")
    assert {result["cpus"] for result in results} == {2}
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A real cluster on this machine: a head node and a second node, each a raylet with one CPU of its own."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": 128 << 20}
    nodes = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    nodes.add_node(**node)
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


@pytest.mark.ray
@needs_ray
def test_an_address_where_nobody_answers_is_refused(capsys, tmp_path):
    (tmp_path / "plan.yaml").write_text("name: a\nenvironments: 1\nsizes: {nano: 1}\n")
    options = ["--backend", "ray", "--address", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert main([str(tmp_path / "plan.yaml"), *options]) == 1
    assert "no Ray cluster answers at '127.0.0.1:1'" in capsys.readouterr().err
