"""The store: what is kept, what is cut off, and damage that is named with the line."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from small import SMALL

from truthfirst.records import append_jsonl, read_jsonl
from truthfirst.solvefirst.build import Built, main
from truthfirst.solvefirst.build_store import Store, damage
from truthfirst.solvefirst.build_work import BuildError, Job, work
from truthfirst.solvefirst.candidates import Recipe

CELL = ("scheduling", "nano", "ample")


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, Any]]:
    """One whole record of each kind, as `work` makes them."""
    found = {"reference": work(Job(CELL))}
    for index in range(100):
        record = work(Job(CELL, Recipe("scheduling", "nano", index=index, domain="dairy"), "probe-all"))
        found.setdefault("admitted" if record["gate"] is None else "rejected", record)
        if len(found) == 3:
            return found
    raise AssertionError("no candidate of 100 was rejected, or none admitted")


def numbered(record: dict[str, Any], key: str, code: str = "new") -> dict[str, Any]:
    return record | {"key": key, "code": code}


def test_the_store_keeps_what_carries_its_hash_and_cuts_a_torn_line(tmp_path, records):
    path = tmp_path / "store.jsonl"
    for key, code in (("a", "old"), ("b", "new")):
        append_jsonl(path, numbered(records["admitted"], key, code))
    with open(path, "ab") as file:
        file.write(b'{"key": "c", "co')
    store = Store(path, "new")
    assert (list(store.records), store.stale, store.torn) == (["b"], 1, True)
    store.add(numbered(records["rejected"], "d"))
    assert [record["key"] for record in read_jsonl(path)] == ["a", "b", "d"]
    assert list(Store(path, "new").records) == ["b", "d"]
    assert not Store(path, "new").torn


def test_what_work_returns_is_whole_and_what_lacks_anything_is_not(records):
    for record in records.values():
        assert damage(json.loads(json.dumps(record))) is None
        for name in record:
            assert damage({key: value for key, value in record.items() if key != name}), name


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("admitted", {"u_star": None}, "u_star: Input should be a valid integer"),
        ("admitted", {"gate": 7}, "gate: "),
        ("admitted", {"recipe": {"family": "alchemy", "size": "nano"}}, "recipe: unknown family 'alchemy'"),
        ("admitted", {"recipe": {"famly": "scheduling"}}, "recipe: .*unexpected keyword argument 'famly'"),
        ("rejected", {"passed": "margin"}, "passed: "),
        ("reference", {"seconds": "long"}, "seconds: "),
    ],
)
def test_a_damaged_line_is_named_with_its_remedy(tmp_path, records, kind, change, message):
    path = tmp_path / "store.jsonl"
    append_jsonl(path, numbered(records["admitted"], "a"))
    append_jsonl(path, numbered(records[kind], "b") | change)
    with pytest.raises(BuildError, match=rf"store\.jsonl, record 2: {message}.*: take that line out"):
        Store(path, "new")


def test_a_line_that_is_no_record_is_named(tmp_path, records):
    for number, line in enumerate((b"[1, 2]\n", b"7\n", b"{broken\n")):
        path = tmp_path / f"{number}.jsonl"
        append_jsonl(path, numbered(records["admitted"], "a"))
        with open(path, "ab") as file:
            file.write(line)
        with pytest.raises(BuildError, match=r"(record|line) 2: .*: take that line out"):
            Store(path, "new")


def test_the_command_names_a_damaged_line_without_a_traceback(small_corpus: Built, tmp_path, capsys):
    """A field is cut out of one stored record; the build that goes on with the file says which."""
    store = tmp_path / "candidates.jsonl"
    lines = (small_corpus.folder / "candidates.jsonl").read_text().splitlines()
    place = next(n for n, line in enumerate(lines) if '"gate":null' in line)
    broken = json.loads(lines[place])
    del broken["theta_hash"]
    store.write_text("\n".join([*lines[:place], json.dumps(broken), *lines[place + 1 :]]) + "\n")
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(SMALL))
    assert main([str(plan), "--out", str(tmp_path), "--workers", "1"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"build: {store}, record {place + 1}: theta_hash: Field required")


def test_a_record_of_a_node_with_other_code_is_refused(tmp_path):
    store = Store(tmp_path / "store.jsonl", "ours")
    with pytest.raises(BuildError, match="worker far:1 runs another library"):
        store.add({"key": "a", "code": "theirs", "worker": "far:1"})
    assert not (tmp_path / "store.jsonl").exists()
