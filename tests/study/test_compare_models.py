"""Models in a comparison: whatever they write is scored, saved batch by batch, and resumed without a difference."""

from __future__ import annotations

import itertools
import json

import pandas as pd
import pytest

from truthfirst.episode import load_traces, trace_record
from truthfirst.policies import Rules, roll_out
from truthfirst.policies.calls import UNREADABLE, Call
from truthfirst.policies.dialogue import Dialogue, Message
from truthfirst.records import RecordError, canonical_json
from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.study.compare import compare, play_all, rescore, rescored

WORLDS = [build_candidate(Recipe("rationing", "nano", index=i)) for i in (1, 3)]
DEEP: list = []
for _ in range(400):
    DEEP = [DEEP]

# One message a turn of the conversation: everything that a model may do wrong.
MESSAGES = [
    Message("", tokens=1, prompt_tokens=10, logprob=float("nan")),
    Message(
        "\ud800 lone", [Call("nowhere\ud800", {"x": "\udfff"})], tokens=5, prompt_tokens=20, logprob=-1.0
    ),
    Message("{bad", [Call(UNREADABLE, '{"name": ', "not JSON")], tokens=5, prompt_tokens=30, logprob=-2.0),
    Message("deep", [Call("query", {"sql": DEEP})], tokens=5, prompt_tokens=40, logprob=-1.5),
    Message(
        "many", [Call("query", {}), Call("query", []), Call("query", None), Call("query", 10**400)], tokens=9
    ),
    Message("x" * 100_000, cut=True, tokens=99, notes=["something odd"]),
    Message("<script>alert(1)</script>", [Call("<img src=x>", {"a": float("inf")})]),
]


class Babbler:
    """A policy that writes MESSAGES in turn, by the rules of a dialogue."""

    def __init__(self, name: str = "babbler", rules: Rules | None = None) -> None:
        self.name, self.rules, self.calls = name, rules or Rules(reminders=3), []

    def play(self, episodes):
        self.calls.append(len(episodes))
        traces = []
        for episode in episodes:
            dialogue = Dialogue(episode, self.rules)
            for message in itertools.cycle(MESSAGES):
                dialogue.read(message)
                if dialogue.end is not None:
                    break
            traces.append(dialogue.trace("another name", {"kind": "test"}, {"sampled": dialogue.sampled}))
        return traces


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return compare([Babbler(), "plan"], WORLDS, n=2)


def test_nothing_that_a_model_does_raises_and_all_is_scored(frame):
    rows = frame[frame["policy"] == "babbler"]
    assert len(rows) == 2 * 3 * 2
    assert rows["reward"].between(0, 1).all()
    written = rows[rows["form"] == "F"]
    assert (written["stop"] == "malformed").all()
    assert written["unclipped"].isna().all()
    agentic = rows[rows["form"] == "A"]
    total = agentic[["unclipped", "information", "planning", "execution"]].sum(axis=1)
    assert total.to_numpy() == pytest.approx(1)


def test_failures_and_tokens_are_counted_for_models_and_null_for_scripts(frame):
    agentic = frame[(frame["policy"] == "babbler") & (frame["form"] == "A")].iloc[0]
    assert agentic["turns"] == agentic["refused"] == agentic["turn_budget"]
    assert agentic["unreadable"] >= 1
    # The first message has no call, the second an unknown tool, the third an unreadable call.
    assert agentic["unknown_tools"] >= 1
    assert agentic["unknown_tools"] + agentic["unreadable"] <= agentic["refused"]
    assert agentic["reminders"] == 1 or agentic["messages"] > 6
    assert agentic["end"] == "episode_over"
    assert agentic["tokens_sampled"] > 0
    assert agentic["tokens_context"] == 45
    scripted = frame[frame["policy"] == "plan"]
    columns = [
        "unreadable",
        "not_executed",
        "reminders",
        "cut",
        "messages",
        "tokens_sampled",
        "logprob",
        "end",
    ]
    assert scripted[columns].isna().all().all()
    assert (scripted["unknown_tools"] == 0).all()


def test_batches_are_saved_at_once_and_a_comparison_resumes(tmp_path, frame):
    store = tmp_path / "traces.jsonl"

    class Dying(Babbler):
        def play(self, episodes):
            if self.calls:
                raise KeyboardInterrupt
            return super().play(episodes)

    with pytest.raises(KeyboardInterrupt):
        compare([Dying()], WORLDS, n=2, traces=store, batch=5)
    assert len(load_traces(store)) == 5
    policy = Babbler()
    whole = compare([policy], WORLDS, n=2, traces=store, batch=5)
    assert policy.calls == [5, 2]
    assert len(load_traces(store)) == 12
    fresh = frame[frame["policy"] == "babbler"].reset_index(drop=True)
    pd.testing.assert_frame_equal(whole, fresh, check_dtype=False)


def test_stored_traces_are_complete_and_score_again_without_a_model(tmp_path):
    store = tmp_path / "traces.jsonl"
    played = play_all([Babbler(), "probe-2"], WORLDS, ["F", "A"], traces=store)
    stored = load_traces(store)
    assert sorted(map(written, stored)) == sorted(map(written, played))
    for trace in stored:
        assert rescore(trace).reward == compare_reward(trace)
        assert {"truthfirst", "numpy", "pulp", "highspy", "python"} <= trace.header["versions"].keys()
    spoken = next(t for t in stored if t.header["policy"] == "babbler" and t.header["form"] == "A")
    first = spoken.header["rollout"]["messages"][0]
    assert (first["tokens"], first["logprob"]) == (1, None)  # NaN is no number
    assert spoken.header["rollout"]["messages"][1]["logprob"] == -1.0


def written(trace) -> str:
    """A trace as its line in a file."""
    return canonical_json(trace_record(trace))


def compare_reward(trace) -> float:
    """The reward of a trace by its gains, computed here."""
    header = trace.header
    if trace.stop == "malformed":
        return 0.0
    gains = sum(turn.detail.get("gain", 0) for turn in trace.turns)
    return min(1.0, max(0.0, (gains - header["u_zero"]) / (header["u_star"] - header["u_zero"])))


def test_stored_episodes_under_other_settings_are_not_taken_for_the_same(tmp_path):
    store = tmp_path / "traces.jsonl"
    compare([Babbler()], WORLDS[:1], ["A"], traces=store)
    with pytest.raises(RecordError, match=r"stored episodes with rules = .*another name"):
        compare([Babbler(rules=Rules(reminders=0))], WORLDS[:1], ["A"], traces=store)
    compare([Babbler("other", Rules(reminders=0))], WORLDS[:1], ["A"], traces=store)
    assert len(load_traces(store)) == 2


def test_a_policy_that_mixes_up_its_episodes_is_named():
    class Swapping(Babbler):
        def play(self, episodes):
            return super().play(episodes)[::-1]

    with pytest.raises(ValueError, match="returned a trace of another episode"):
        compare([Swapping()], WORLDS, ["A"])


class Confused:
    """A policy that answers where it should act and acts where it should answer."""

    name = "confused"

    def play(self, episodes):
        for episode in episodes:
            if episode.view.tools:
                episode.answer("[]")
            for tool in ("spend", None):
                episode.call(tool, {"amount": 1})
            episode.answer(None)
        return [episode.trace() for episode in episodes]


def test_a_policy_that_mixes_up_the_forms_scores_and_raises_nothing(tmp_path):
    frame = compare([Confused()], WORLDS, traces=tmp_path / "t.jsonl").set_index(["environment", "form"])
    for world in WORLDS:
        assert frame.loc[(world.id, "F"), "stop"] == "malformed"
        assert frame.loc[(world.id, "F"), "reward"] == 0
        for form in "IA":
            assert frame.loc[(world.id, form), "stop"] == "stopped"
            assert frame.loc[(world.id, form), "turns"] == 0
            assert frame.loc[(world.id, form), "u"] == world.family.abandon(
                world.theta, world.family.start(world.theta)
            )
    assert set(rescored(tmp_path / "t.jsonl")["checked"]) == {"all"}


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_transformers_model_plays_and_a_larger_n_later_adds_other_samples(tmp_path):
    pytest.importorskip("torch")
    from truthfirst.policies.clockwork import clockwork
    from truthfirst.policies.language import LanguagePolicy

    script = ["CALL ", ("alpha", "beta", "gamma", "delta"), " {}"]
    policy = LanguagePolicy(*clockwork(script, CHATML, context=16_384), "clock", seed=3)
    store = tmp_path / "traces.jsonl"
    compare([policy], WORLDS[:1], ["A"], traces=store)
    grown = compare([policy], WORLDS[:1], ["A"], n=2, traces=store)
    whole = play_all([policy], WORLDS[:1], ["A"], n=2)
    called = [[turn.tool for turn in trace.turns] for trace in whole]
    assert called == [[turn.tool for turn in trace.turns] for trace in load_traces(store)]
    assert called[0] != called[1]
    assert set(itertools.chain(*called)) <= {"alpha", "beta", "gamma", "delta"}
    assert (grown["unknown_tools"] == grown["turns"]).all()
    assert (grown["logprob"] < 0).all()
    assert (grown["tokens_sampled"] == 4 * grown["turns"]).all()
    rollout = json.loads(store.read_text().splitlines()[0])["header"]["rollout"]
    assert rollout["versions"].keys() == {"torch", "transformers"}
    assert rollout["tokens"]["logprob"] == pytest.approx(sum(m["logprob"] for m in rollout["messages"]))


def test_stored_episodes_of_other_weights_are_not_taken_for_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    from truthfirst.policies.clockwork import clockwork
    from truthfirst.policies.language import LanguagePolicy

    policy = LanguagePolicy(*clockwork(["CALL ", "alpha", " {}"], CHATML, context=16_384), "clock", seed=3)
    store = tmp_path / "traces.jsonl"
    compare([policy], WORLDS[:1], ["A"], traces=store)
    compare([policy], WORLDS[:1], ["A"], traces=store)  # the same weights: nothing is played again
    assert len(load_traces(store)) == 1
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(0.01)
    with pytest.raises(RecordError, match=r"line 1: policy 'clock' has stored episodes with model_hash = "):
        compare([policy], WORLDS[:1], ["A"], traces=store)


def test_roll_out_numbers_episodes_by_their_seed_where_one_is_set():
    from truthfirst.policies.base import addresses

    episodes = [WORLDS[0].episode("A") for _ in range(2)]
    assert [number for _, number in addresses(episodes)] == [0, 1]
    for episode, seed in zip(episodes, (4, 7), strict=True):
        episode.header["seed"] = seed
    assert [number for _, number in addresses(episodes)] == [4, 7]
    assert len(roll_out(Babbler(), episodes)) == 2
