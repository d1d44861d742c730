from __future__ import annotations

import json
import threading
import time

import pytest
from loopback import Script, completion, drip, drop, ok, running, send, serving, stall, status, tool_call
from toys import Drawers

from truthfirst.policies import Policy, Rules, Sampling, roll_out
from truthfirst.policies.calls import UNREADABLE
from truthfirst.policies.clockwork import END
from truthfirst.policies.endpoint import EndpointError, EndpointPolicy, Network
from truthfirst.types import StopReason

QUICK = Network(timeout=0.3, retries=3, first_pause=0.01, longest_pause=0.05)
PROBE_A = {"content": None, "tool_calls": [tool_call('{"item": "A"}')]}
FAIR = {"prompt_tokens": 50, "completion_tokens": 20}


def play(script: Script, episodes=None, **options):
    """Play one episode of two turns (or those given) against a scripted server."""
    options = {"network": QUICK, "concurrency": 1} | options
    with serving(script) as url:
        policy = EndpointPolicy(url, "some-model", **options)
        traces = roll_out(policy, episodes or [Drawers(2)])
    return traces[0] if episodes is None else traces


def test_a_model_behind_a_real_server_plays_many_episodes(qwen_clock) -> None:
    model, tokenizer = qwen_clock
    with serving(running(model, tokenizer, END)) as url:
        policy = EndpointPolicy(
            url, "clock", concurrency=3, tokenizer=lambda text: len(tokenizer(text)["input_ids"])
        )
        assert isinstance(policy, Policy)
        traces = roll_out(policy, [Drawers(2, name=str(n)) for n in range(4)] + [Drawers(written=True)])
    for trace in traces[:4]:
        assert [turn.status for turn in trace.turns] == ["ok", "ok"]
        record = trace.header["rollout"]
        assert (record["end"], trace.stop) == ("episode_over", StopReason.BUDGET)
        assert record["counts"] == {}
        assert (record["tokens"]["sampled"], record["tokens"]["recounted_messages"]) == (20, 0)
        assert (record["tokens"]["requests"], record["tokens"]["retries"]) == (2, 0)
    assert traces[4].answer.startswith("<tool_call>")
    assert len({turn.arguments["item"] for trace in traces for turn in trace.turns}) > 1


def test_the_conversation_that_is_sent_is_well_formed() -> None:
    two = {
        "content": "",
        "tool_calls": [tool_call('{"item": "A"}', identifier="x"), tool_call('{"item": "B"}')],
    }
    script = Script(ok(two, FAIR), ok(PROBE_A, FAIR))
    trace = play(script, [Drawers(3)], sampling=Sampling(0.5, top_k=20, top_p=0.9), extra={"chat": 1})[0]
    first, second = script.asked
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["tools"][0]["function"]["name"] == "probe"
    assert (first["temperature"], first["top_k"], first["top_p"], first["chat"]) == (0.5, 20, 0.9, 1)
    assert isinstance(first["seed"], int)
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "tool", "tool"]
    said, one, other = second["messages"][2:]
    assert (
        [call["id"] for call in said["tool_calls"]]
        == [one["tool_call_id"], other["tool_call_id"]]
        == ["x", "call_1"]
    )
    assert one["content"] == trace.turns[0].reply
    assert trace.header["rollout"]["counts"] == {"several_calls": 1}


def test_a_window_drops_the_older_exchanges_whole() -> None:
    script = Script(
        *[ok(PROBE_A, {"prompt_tokens": 100 + 60 * n, "completion_tokens": 9}) for n in range(4)] * 5
    )
    trace = play(script, [Drawers(20)], rules=Rules(window=350, max_message_tokens=50))[0]
    assert len(trace.turns) == 20
    for asked in script.asked:
        roles = [message["role"] for message in asked["messages"]]
        assert roles == ["system", "user"] + ["assistant", "tool"] * ((len(roles) - 2) // 2)
    assert max(len(asked["messages"]) for asked in script.asked) < 20
    assert trace.header["rollout"]["counts"]["forgotten"] > 8
    assert len({asked["seed"] for asked in script.asked}) == 20


# --- what a model may do ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (tool_call('{"item": '), "probe"),
        (tool_call("A"), "probe"),
        (tool_call('{"item": "\\ud800"'), "probe"),
        (tool_call("{}", name=None), UNREADABLE),
        ({"id": 3}, UNREADABLE),
        ("nonsense", UNREADABLE),
    ],
)
def test_unreadable_calls_cost_their_turn_and_the_echo_stays_readable(call, name: str) -> None:
    script = Script(ok({"content": "", "tool_calls": [call]}, FAIR))
    trace = play(script)
    assert [(turn.tool, turn.status) for turn in trace.turns] == [(name, "refused")] * 2
    assert trace.header["rollout"]["counts"]["unreadable_calls"] == 2
    for message in script.asked[1]["messages"]:
        for entry in message.get("tool_calls", []):
            assert isinstance(json.loads(entry["function"]["arguments"]), dict)


def test_calls_that_the_server_left_in_the_text_are_read_and_noted() -> None:
    text = '<tool_call>\n{"name": "probe", "arguments": {"item": "A"}}\n</tool_call>'
    trace = play(Script(ok({"content": text}, FAIR)))
    assert [turn.status for turn in trace.turns] == ["ok", "ok"]
    assert trace.header["rollout"]["counts"] == {"calls left in the text by the server": 2}


@pytest.mark.parametrize(
    ("content", "end"), [("I give up.", "no_call"), ("", "empty"), (None, "empty"), ([1], "empty")]
)
def test_messages_without_calls_are_reminded_then_stopped(content, end: str) -> None:
    script = Script(ok({"content": content}, {"completion_tokens": 4, "prompt_tokens": 9}))
    trace = play(script)
    assert (trace.turns, trace.header["rollout"]["end"]) == ((), end)
    assert script.asked[1]["messages"][-1]["role"] == "user"


def test_endless_text_is_cut_and_bounded() -> None:
    script = Script(ok({"content": "word " * 100}, {"completion_tokens": 30, "prompt_tokens": 9}, "length"))
    trace = play(script, rules=Rules(max_message_tokens=30, max_episode_tokens=45, reminders=9))
    record = trace.header["rollout"]
    assert [body["max_tokens"] for body in script.asked] == [30, 15]
    assert (record["end"], record["counts"]["cut"]) == ("token_limit", 2)


def test_the_text_protocol() -> None:
    script = Script(ok({"content": 'CALL probe {"item": "A"}'}, FAIR), ok({"content": "DONE"}, FAIR))
    trace = play(script, [Drawers(9)], protocol="text")[0]
    assert "CALL probe" in script.asked[0]["messages"][0]["content"]
    assert "tools" not in script.asked[0]
    assert script.asked[1]["messages"][-1] == {"role": "user", "content": trace.turns[0].reply}
    assert (len(trace.turns), trace.header["rollout"]["end"]) == (1, "done")


# --- what a server may do -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fault",
    [
        drop,
        stall,
        drip,
        status(500),
        status(503, retry_after="0"),
        status(429, retry_after="999999"),
        status(200, b"<html>"),
        status(200, {"choices": []}),
        status(200, {"choices": [{"message": None}]}),
        status(200, b"[" * 100_000),
    ],
    ids=["drop", "stall", "drip", "500", "503", "429", "html", "no choice", "no message", "nested"],
)
def test_a_passing_fault_is_tried_again(fault) -> None:
    trace = play(Script(fault, ok(PROBE_A, FAIR)))
    record = trace.header["rollout"]
    assert (record["end"], record["tokens"]["retries"], len(trace.turns)) == ("episode_over", 1, 2)


@pytest.mark.parametrize("fault", [drop, stall, status(502)], ids=["drop", "stall", "502"])
def test_a_lasting_fault_stops_the_episode_after_bounded_tries(fault) -> None:
    script = Script(ok(PROBE_A, FAIR), fault)
    trace = play(script)
    record = trace.header["rollout"]
    assert (record["end"], trace.stop, len(trace.turns)) == ("server", StopReason.STOPPED, 1)
    assert "gave up after 4 tries" in record["error"]
    assert len(script.asked) == 1 + 1 + QUICK.retries


def test_a_refusal_for_good_is_not_tried_again_and_others_go_on() -> None:
    def answer(handler, body) -> None:
        refused = body["messages"][0]["content"] == "bad"
        send(handler, *((400, {"error": "no such model"}) if refused else (200, completion(PROBE_A, FAIR))))

    bad = Drawers(2)
    object.__setattr__(bad.view, "prompt", ({"role": "system", "content": "bad"},))
    script = Script(answer)
    first, second = play(script, [bad, Drawers(2)])
    assert (first.header["rollout"]["end"], first.header["rollout"]["tokens"]["requests"]) == ("server", 1)
    assert "no such model" in first.header["rollout"]["error"]
    assert second.header["rollout"]["end"] == "episode_over"


def test_no_server_at_all() -> None:
    with serving(status(200)) as url:
        pass  # the port is free again
    (trace,) = EndpointPolicy(url, "m", network=QUICK).play([Drawers(2)])
    assert trace.header["rollout"]["end"] == "server"
    assert "Connect" in trace.header["rollout"]["error"]


@pytest.mark.parametrize(
    ("usage", "flag"),
    [
        (None, "usage missing"),
        ("lots", "usage missing"),
        ({"prompt_tokens": 9}, "usage missing"),
        ({"completion_tokens": 0}, "usage implausible"),
        ({"completion_tokens": -5}, "usage implausible"),
        ({"completion_tokens": 10**9}, "usage implausible"),
        ({"completion_tokens": "7"}, "usage implausible"),
        ({"completion_tokens": True}, "usage implausible"),
        ({"completion_tokens": float("nan")}, "usage implausible"),
    ],
)
def test_usage_that_is_missing_or_cannot_be_true_is_recounted_and_flagged(usage, flag: str) -> None:
    trace = play(Script(ok(PROBE_A, usage)))
    record = trace.header["rollout"]
    assert record["counts"] == {flag: 2}
    assert record["tokens"]["recounted_messages"] == 2
    assert 2 * 10 < record["tokens"]["sampled"] < 2 * 100  # a quarter of the bytes of one call
    json.dumps(trace.header, allow_nan=False)


def test_usage_that_differs_from_our_own_count_is_not_believed() -> None:
    words = "one two three " * 100
    message = {"content": words, "tool_calls": PROBE_A["tool_calls"]}
    script = Script(ok(message, {"completion_tokens": 512, "prompt_tokens": 5}))
    fair = play(script, tokenizer=lambda text: 400).header["rollout"]
    lie = play(script, tokenizer=lambda text: 300).header["rollout"]
    assert (fair["counts"], fair["tokens"]["sampled"]) == ({}, 1024)
    assert (lie["counts"], lie["tokens"]["sampled"]) == ({"usage implausible": 2}, 600)


def test_requests_fly_at_once_up_to_the_limit_and_episodes_stay_in_one_thread() -> None:
    flying, most, threads = [0], [0], set()
    lock = threading.Lock()

    def slow(handler, _) -> None:
        with lock:
            flying[0] += 1
            most[0] = max(most[0], flying[0])
        time.sleep(0.05)
        with lock:
            flying[0] -= 1
        send(handler, 200, completion(PROBE_A, FAIR))

    class Watched(Drawers):
        def call(self, name, arguments):
            threads.add(threading.get_ident())
            return super().call(name, arguments)

    traces = play(Script(slow), [Watched(2) for _ in range(12)], concurrency=4, network=Network(timeout=5))
    assert all(len(trace.turns) == 2 for trace in traces)
    assert 2 <= most[0] <= 4
    assert threads == {threading.get_ident()}


def test_keys_are_sent_and_never_recorded(monkeypatch) -> None:
    seen = []

    def answer(handler, _) -> None:
        seen.append(handler.headers.get("Authorization"))
        send(handler, 200, completion(PROBE_A, FAIR))

    trace = play(Script(answer), key="sesame")
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    play(Script(answer))
    assert set(seen) == {"Bearer sesame", "Bearer from-the-environment"}
    assert "sesame" not in json.dumps(trace.header)


@pytest.mark.parametrize("options", [{"url": "localhost:8000"}, {"protocol": "morse"}, {"concurrency": 0}])
def test_settings_that_cannot_work_are_refused(options) -> None:
    settings = {"url": "http://localhost/v1", "model": "m"} | options
    with pytest.raises(EndpointError):
        EndpointPolicy(settings.pop("url"), settings.pop("model"), **settings)


def test_a_server_that_calls_its_model_by_a_folder_leaves_no_path_in_a_trace() -> None:
    """vLLM serves a local folder under its path unless told otherwise; the request must use that name."""
    script = Script(ok(PROBE_A, FAIR))
    with serving(script) as url:
        (trace,) = roll_out(EndpointPolicy(url, "/data/models/qwen-7b", network=QUICK), [Drawers(1)])
    assert script.asked[0]["model"] == "/data/models/qwen-7b"
    assert (trace.header["policy"], trace.header["rollout"]["model"]) == ("qwen-7b", "qwen-7b")
    assert "/data/models" not in json.dumps(trace.header)
