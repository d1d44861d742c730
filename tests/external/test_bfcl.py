"""The harness of external benchmarks, without the environment that the suites themselves need."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pandas as pd
import pytest

from truthfirst.external import bfcl, bfcl_runner
from truthfirst.external.benchmark import (
    COLUMNS,
    ECOMMERCE,
    NOT_RUN,
    RUN,
    TRAVELBENCH,
    UNPACKAGED,
    BenchmarkError,
    Endpoint,
    accuracy,
    frame,
    store,
)
from truthfirst.external.scripted import NOTHING, Oracle, noop
from truthfirst.external.server import CASE, BadRequestError, completion, serving
from truthfirst.paths import HOME

ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "m", "tiny")
BASE = bfcl.CATEGORIES[0]
USER = {"role": "user", "content": "Sort the file."}
TOOL = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "Read one item.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}


def ask(url: str, body: Any, **headers: str) -> httpx.Response:
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, timeout=30, trust_env=False)


# --- files of bfcl-eval ----------------------------------------------------------------------------------
def written(folder: Path, results: dict[str, Any], correct: int, category: str = "multi_turn_base") -> Path:
    """Write a score and a result file where bfcl-eval puts them, in its format."""
    for kind, lines in (
        (
            "score",
            [{"accuracy": correct / len(results), "correct_count": correct, "total_count": len(results)}],
        ),
        ("result", [{"id": name, "result": result} for name, result in results.items()]),
    ):
        path = folder / kind / "m" / "multi_turn" / f"BFCL_v4_{category}_{kind}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def test_a_row_holds_the_native_counts_and_their_interval(tmp_path: Path) -> None:
    written(tmp_path, {"a": [[]], "b": [[]], "c": "Error during inference: refused", "d": [[]]}, 1)
    row = bfcl.read_scores(tmp_path, BASE, {"score": ["a", "b", "c", "d"], "of": 200})
    assert (row["correct"], row["cases"], row["of"], row["errors"], row["score"]) == (1, 4, 200, 1, 0.25)
    assert row["note"] == "Error during inference: refused"
    assert (row["status"], row["group"], row["category"]) == (RUN, "multi_turn", "multi_turn_base")
    # Wilson: (p + z²/2n ± z sqrt(p(1 - p)/n + z²/4n²)) / (1 + z²/n), with p = 1/4, n = 4, z = 1.95996
    assert row["low"] == pytest.approx(0.0456, abs=1e-4)
    assert row["high"] == pytest.approx(0.6994, abs=1e-4)


@pytest.mark.parametrize(
    ("asked", "words"), [(["a"], "1 were asked for"), (["a", "b", "x"], "3 were asked for")]
)
def test_scores_of_other_cases_than_asked_are_refused(tmp_path: Path, asked: list[str], words: str) -> None:
    written(tmp_path, {"a": [[]], "b": [[]]}, 2)
    with pytest.raises(BenchmarkError, match=words):
        bfcl.read_scores(tmp_path, BASE, {"score": asked, "of": 200})


def test_missing_and_damaged_score_files_name_the_remedy(tmp_path: Path) -> None:
    cases = {"score": ["a"], "of": 200}
    with pytest.raises(BenchmarkError, match="--redo"):
        bfcl.read_scores(tmp_path, BASE, cases)
    written(tmp_path, {"a": [[]]}, 1)
    next(tmp_path.rglob("*_score.json")).write_text('{"id": "a"}\n')
    with pytest.raises(BenchmarkError, match="remove it"):
        bfcl.read_scores(tmp_path, BASE, cases)


def test_counts_that_cannot_be_are_refused_and_no_cases_have_no_score() -> None:
    with pytest.raises(BenchmarkError, match="5 of 4"):
        accuracy(5, 4)
    assert accuracy(0, 0) == {"correct": 0, "cases": 0, "score": None, "low": None, "high": None}
    assert accuracy(5, 5)["high"] == pytest.approx(1)
    assert accuracy(5, 5)["low"] == pytest.approx(5 / (5 + 1.959964**2))  # Wilson at p = 1: n / (n + z²)


def test_where_nobody_answers_no_zero_is_reported(tmp_path: Path) -> None:
    rows = [{"errors": 2, "cases": 2, "note": "Error during inference: Connection error."}]
    with pytest.raises(BenchmarkError, match="Connection error"):
        bfcl.require_answers(rows, tmp_path)
    bfcl.require_answers([*rows, {"errors": 0, "cases": 2, "note": None}], tmp_path)


# --- bad input -------------------------------------------------------------------------------------------
def test_an_unknown_group_and_a_missing_environment_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bfcl.main(["--model", "noop", "--groups", "multi_turns"]) == 2
    assert "choose from multi_turn, agentic, hallucination" in capsys.readouterr().err
    for model in ("noop", "oracle", "some/model"):
        assert bfcl.main(["--model", model, "--python", str(tmp_path / "python")]) == 2
        assert "make bfcl" in capsys.readouterr().err
    assert bfcl.main(["--model", "noop", "--threads", "0"]) == 2
    suite = bfcl.Bfcl(Path(sys.executable))
    with pytest.raises(BenchmarkError, match="at least 1, got 0"):
        suite.plan(tmp_path, ["irrelevance"], 0)
    with pytest.raises(BenchmarkError, match="exit code"):  # an interpreter without bfcl-eval
        suite.plan(tmp_path, ["irrelevance"], 1)


def test_what_needs_a_network_is_listed_and_not_run() -> None:
    names = {part.name for part in bfcl.CATEGORIES if part.needs}
    played, left = bfcl.Bfcl().split([])
    assert (
        {part.name for part in left} == names == {"memory_vector", "web_search_base", "web_search_no_snippet"}
    )
    assert len(played) == 9
    assert bfcl.Bfcl(network=True).split([])[1] == []
    assert [part.name for part in bfcl.Bfcl().split([], scripted=True)[1]] == ["memory_vector"]
    assert {part.group for part in bfcl.Bfcl().split(["agentic"])[0]} == {"agentic"}


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Qwen/Qwen3-8B", "Qwen-Qwen3-8B"),
        ("4_bit", "model-4-bit"),
        ("SmolLM2 (floor)", "SmolLM2-floor"),
        ("§", "model"),
    ],
)
def test_labels_become_names_of_variables(label: str, expected: str) -> None:
    assert bfcl.slug(label) == expected
    assert bfcl.slug(label).replace("-", "_").replace(".", "_").isidentifier()


def test_the_makefile_pins_the_version_that_rows_name() -> None:
    text = (HOME / "Makefile").read_text()
    assert f"BFCL := {bfcl.VERSION}\n" in text
    assert "bfcl-eval==$(BFCL) " in text


# --- the runner's own parts ------------------------------------------------------------------------------
def test_cases_are_spread_evenly() -> None:
    assert bfcl_runner.spread(list(range(10)), 3) == [0, 3, 6]
    assert bfcl_runner.spread(list(range(3)), 5) == bfcl_runner.spread(list(range(3)), None) == [0, 1, 2]


def test_ground_truth_becomes_calls_by_name() -> None:
    docs = {"sort": {"parameters": {"properties": {"file_name": {}, "reverse": {}}}}}
    call = {"name": "sort", "arguments": {"file_name": "a.txt", "reverse": -1}}
    assert bfcl_runner.as_call("sort('a.txt', reverse=-1)", docs) == call
    with pytest.raises(ValueError, match="is no call"):
        bfcl_runner.as_call("sort", docs)
    entry = {"function": [{"name": "a.b"}]}
    assert bfcl_runner.answers("live_irrelevance", entry, None) == {}
    assert bfcl_runner.answers("live_relevance", entry, None)["turns"][0][0]["name"] == "a_b"
    assert bfcl_runner.answers("memory_kv", entry, {"ground_truth": ["Ann", "ann"]}) == {"say": "Ann"}


@pytest.mark.parametrize(
    ("name", "arguments", "allowed"),
    [
        ("sort", {"file_name": "open('x')"}, True),
        ("open", {"file": "x", "mode": "w"}, False),
        ("__import__('os').system", {}, False),
        ("sort", {"file_name=1) or open('x', 'w'": 1}, False),
        ("sort", ["a"], False),
    ],
)
def test_only_calls_of_known_tools_are_evaluated(name: str, arguments: Any, allowed: bool) -> None:
    assert bfcl_runner.harmless(name, arguments, frozenset({"sort"})) is allowed


def test_failed_and_halved_results_are_tried_again(tmp_path: Path) -> None:
    good = json.dumps({"id": "a", "result": [[]]}) + "\n"
    bad = json.dumps({"id": "b", "result": "Error during inference: refused"}) + "\n"
    path = tmp_path / "BFCL_v4_x_result.json"
    path.write_text(good + bad + '{"id": "c", "res')
    bfcl_runner.forget_failures(tmp_path)
    assert path.read_text() == good


# --- players and server ----------------------------------------------------------------------------------
def test_the_oracle_calls_once_a_turn_and_the_noop_never() -> None:
    script = {"case": {"turns": [[{"name": "sort", "arguments": {"file_name": "a"}}], []], "say": "Done."}}
    said = {"role": "assistant", "content": None}
    result = {"role": "tool", "content": "{}"}
    talk = [{"role": "system", "content": "s"}, USER]
    with serving(Oracle(script), "oracle") as url:
        (called,) = ask(url, {"messages": talk}, **{CASE.title(): "case"}).json()["choices"]
        assert called["finish_reason"] == "tool_calls"
        assert called["message"]["tool_calls"][0]["function"] == {
            "name": "sort",
            "arguments": '{"file_name": "a"}',
        }
        for more in ([said, result], [said, result, said, USER]):  # after the result; a turn without calls
            message = ask(url, {"messages": talk + more}, **{CASE: "case"}).json()["choices"][0]["message"]
            assert message == {"role": "assistant", "content": "Done."}
        refused = ask(url, {"messages": talk})
        assert refused.status_code == 400
        assert CASE in refused.json()["error"]["message"]
    assert noop({"messages": talk}, {})["choices"][0]["message"]["content"] == NOTHING


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "judge"}]}, "message 0 needs a role"),
        ({"messages": [{"role": "user", "content": [1]}]}, "content of message 0"),
        ({"messages": [USER], "stream": True}, "stream"),
    ],
)
def test_the_server_refuses_what_it_cannot_read(body: Any, words: str) -> None:
    with serving(noop, "m") as url:
        answer = ask(url, body)
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]
        assert ask(url, {"messages": [USER]}).status_code == 200
        assert httpx.get(f"{url}/models", trust_env=False).json()["data"][0]["id"] == "m"
        assert httpx.get(f"{url}/other", trust_env=False).status_code == 404


# --- a local checkpoint ----------------------------------------------------------------------------------
CLOCK_SCRIPT = [
    "<tool_call>\n{",
    '"name"',
    ': "probe',
    '", "arguments',
    '": {"item',
    '": "',
    "A",
    '"}',
    "}\n</tool_call>",
]


@pytest.fixture(scope="module")
def clock() -> Any:
    """A policy that answers every message with the call probe(item="A")."""
    import importlib.util

    from truthfirst.policies.clockwork import clockwork
    from truthfirst.policies.language import LanguagePolicy

    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    template = (Path(spec.origin).parent / "chat_templates" / "qwen2_5.jinja").read_text(encoding="utf-8")
    return LanguagePolicy(*clockwork(CLOCK_SCRIPT, template), name="clock")


def test_a_checkpoint_answers_over_the_protocol_and_reads_on_where_it_was(clock: Any) -> None:
    from truthfirst.external.checkpoint import Checkpoint

    with serving(Checkpoint(clock, 64), "clock") as url:
        body = {"messages": [USER], "tools": [TOOL], "temperature": 0.001}
        first = ask(url, body).json()
        message = first["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert call["function"] == {"name": "probe", "arguments": '{"item": "A"}'}
        assert first["usage"]["completion_tokens"] == len(CLOCK_SCRIPT) + 1
        again = {"role": "tool", "content": "A holds 0.", "tool_call_id": call["id"]}
        reused = clock.engine.account.reused
        second = ask(url, body | {"messages": [USER, message, again]}).json()
        assert second["choices"][0]["message"]["tool_calls"] == message["tool_calls"]
        assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"]
        assert clock.engine.account.reused > reused
        cut = ask(url, body | {"max_tokens": 2}).json()["choices"][0]
        assert cut["finish_reason"] == "length"
        assert "tool_calls" not in cut["message"]
        long = ask(url, body | {"messages": [{"role": "user", "content": "x" * 5_000}]})
        assert long.status_code == 400
        assert "context_length_exceeded" in long.json()["error"]["message"]
        assert ask(url, body | {"max_tokens": -1}).status_code == 400
        assert ask(url, body | {"tools": [{"type": "function"}]}).status_code == 400


def test_without_tools_in_the_template_calls_are_written_as_lines() -> None:
    from truthfirst.external import checkpoint

    tools = checkpoint.read_tools([TOOL])
    wrote = 'I look.\nCALL probe {"item": "A"}'
    message = checkpoint.as_message(wrote, "text", tools)
    assert message["content"] == wrote
    assert message["tool_calls"][0]["function"] == {"name": "probe", "arguments": '{"item": "A"}'}
    assert checkpoint.as_message("CALL probe {item", "text", tools) == {"content": "CALL probe {item"}
    assert checkpoint.as_message(wrote, "text", ()) == {"content": wrote}
    talk = [USER, message | {"role": "assistant"}, {"role": "tool", "content": "0"}, USER]
    plain = checkpoint._as_text([checkpoint._plain(one, "text") for one in talk], tools)
    assert [one["role"] for one in plain] == ["system", "user", "assistant", "user"]
    assert plain[2]["content"] == wrote
    assert plain[3]["content"] == "0\nSort the file."
    assert "Read one item." in plain[0]["content"]
    silent = checkpoint._plain({"role": "assistant", "tool_calls": message["tool_calls"]}, "text")
    assert silent["content"] == 'CALL probe {"item": "A"}'
    with pytest.raises(BadRequestError, match="tool_calls"):
        checkpoint._plain({"role": "assistant", "tool_calls": [{"function": {}}]}, "hermes")


# --- the table -------------------------------------------------------------------------------------------
def test_suites_without_a_package_say_that_they_were_not_run(tmp_path: Path) -> None:
    for suite in UNPACKAGED:
        assert not suite.availability().ready
        rows = suite.run(ENDPOINT, tmp_path)
        assert list(rows.columns) == list(COLUMNS)
        assert (rows["status"] == NOT_RUN).all()
        assert rows["score"].isna().all()
        assert rows["note"].str.contains("not packaged").all()
        with pytest.raises(BenchmarkError, match="has no group 'x'"):
            suite.run(ENDPOINT, tmp_path, groups=["x"])
    assert {suite.name for suite in UNPACKAGED} == {TRAVELBENCH.name, ECOMMERCE.name}


def test_the_table_replaces_a_models_rows_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "external.parquet"

    def rows(model: str, correct: int) -> pd.DataFrame:
        about = {"benchmark": "BFCL V4", "category": "irrelevance", "model": model, "status": RUN}
        return frame([about | accuracy(correct, 4)])

    store(rows("a", 1), path)
    store(rows("b", 2), path)
    store(rows("a", 3), path)
    whole = store(
        frame([{"benchmark": "BFCL V4", "category": "irrelevance", "model": "a", "status": NOT_RUN}]), path
    )
    assert len(whole) == 2 + len(UNPACKAGED)
    scored = whole[whole["status"] == RUN].set_index("model")["score"]
    assert scored.to_dict() == {"a": 0.75, "b": 0.5}
    pd.testing.assert_frame_equal(pd.read_parquet(path).astype(COLUMNS), whole)


def test_a_run_ends_in_rows_of_every_category_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole path with a stand-in for bfcl-eval that answers every case right."""

    def call(self: bfcl.Bfcl, out: Path, job: dict[str, Any], extra: dict[str, str]) -> None:
        if job["task"] == "plan":
            cases = {name: {"generate": ["a"], "score": ["a"], "of": 9} for name in job["categories"]}
            (out / "cases.json").write_text(json.dumps(cases))
            (out / "script.json").write_text("{}")
            return
        assert extra["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
        for name in job["categories"]:
            written(out, {"a": [[]]}, 1, name)

    monkeypatch.setattr(bfcl.Bfcl, "call", call)
    monkeypatch.setattr(bfcl, "WORK", tmp_path / "work-bfcl")
    kept: list[pd.DataFrame] = []
    monkeypatch.setattr(bfcl, "store", kept.append)
    options = ["--model", "oracle", "--limit", "1", "--python", sys.executable, "--groups", "agentic"]
    assert bfcl.main(options) == 0
    (rows,) = kept
    assert rows["status"].tolist() == [RUN] * 4 + [NOT_RUN]
    assert rows["score"].tolist()[:4] == [1.0] * 4
    assert set(rows["model"]) == {"oracle"}


def test_completions_have_what_clients_read() -> None:
    body = SimpleNamespace(**completion({"content": "x"}, prompt_tokens=3, tokens=2))
    assert body.choices[0]["finish_reason"] == "stop"
    assert body.usage["total_tokens"] == 5
