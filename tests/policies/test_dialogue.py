import pytest
from toys import Drawers

from truthfirst.policies.calls import UNREADABLE, Call
from truthfirst.policies.dialogue import REMINDER, REMINDER_CUT, Dialogue, Message, Rules
from truthfirst.types import StopReason


def probe(item: str) -> Call:
    return Call("probe", {"item": item})


def test_several_calls_each_cost_a_turn_and_stop_at_the_budget() -> None:
    episode = Drawers(3)
    dialogue = Dialogue(episode, Rules())
    assert len(dialogue.read(Message("x", [probe("A"), probe("B")]))) == 2
    assert dialogue.read(Message("x", [probe("A"), probe("B"), probe("C")])) == []
    trace = dialogue.trace("p", {}, {})
    assert (len(trace.turns), trace.stop, dialogue.end) == (3, StopReason.BUDGET, "episode_over")
    record = trace.header["rollout"]
    assert record["counts"] == {"calls_not_executed": 2, "several_calls": 2}
    assert [message["turns"] for message in record["messages"]] == [[0, 2], [2, 1]]
    assert record["messages"][1]["notes"] == ["2 calls not executed"]


def test_at_most_max_calls_of_one_message_are_executed() -> None:
    dialogue = Dialogue(Drawers(9), Rules(max_calls=2))
    assert len(dialogue.read(Message("x", [probe("A")] * 5))) == 2
    assert dialogue.counts["calls_not_executed"] == 3
    assert dialogue.end is None


def test_an_unreadable_call_is_refused_costs_a_turn_and_says_why() -> None:
    episode = Drawers(3)
    dialogue = Dialogue(episode, Rules())
    (reply,) = dialogue.read(Message("x", [Call(UNREADABLE, "{oops", "not JSON at character 1")]))
    assert "not JSON at character 1" in reply.text
    assert "Turns left: 2" in reply.text
    turn = dialogue.trace("p", {}, {}).turns[0]
    assert (turn.tool, turn.status, turn.kind) == (UNREADABLE, "refused", None)
    assert dialogue.counts["unreadable_calls"] == 1


def test_an_unknown_tool_costs_a_turn() -> None:
    dialogue = Dialogue(Drawers(3), Rules())
    dialogue.read(Message("x", [Call("fly", {})]))
    assert dialogue.episode.trace().turns[0].status == "refused"


@pytest.mark.parametrize(
    ("text", "cut", "end", "kind"),
    [
        ("hello", False, "no_call", "no_call"),
        (" \n", False, "empty", "empty"),
        ("so long", True, "cut", "no_call"),
    ],
)
def test_a_message_without_a_call_is_reminded_once_and_then_ends_the_episode(text, cut, end, kind) -> None:
    episode = Drawers(3)
    dialogue = Dialogue(episode, Rules(reminders=1))
    (reply,) = dialogue.read(Message(text, cut=cut))
    assert (reply.role, reply.text) == ("user", REMINDER_CUT if cut else REMINDER)
    assert not episode.done
    assert dialogue.read(Message(text, cut=cut)) == []
    assert (dialogue.end, episode.trace().stop) == (end, StopReason.STOPPED)
    assert dialogue.counts[kind] == 2
    assert episode.trace().turns == ()


def test_without_reminders_a_message_without_a_call_ends_the_episode() -> None:
    dialogue = Dialogue(Drawers(3), Rules(reminders=0))
    assert dialogue.read(Message("done")) == []
    assert dialogue.end == "no_call"


def test_the_token_limit_of_an_episode_ends_it_and_bounds_each_message() -> None:
    dialogue = Dialogue(Drawers(9), Rules(max_message_tokens=10, max_episode_tokens=15))
    assert dialogue.allowance == 10
    dialogue.read(Message("x", [probe("A")], tokens=10))
    assert dialogue.allowance == 5
    assert dialogue.read(Message("x", [probe("A")], tokens=5)) == []
    assert dialogue.end == "token_limit"
    assert dialogue.episode.trace().stop is StopReason.STOPPED


@pytest.mark.parametrize(("text", "stop"), [("[1]", StopReason.ANSWERED), ("", StopReason.MALFORMED)])
def test_form_f_takes_the_message_as_the_answer(text: str, stop: StopReason) -> None:
    dialogue = Dialogue(Drawers(written=True), Rules(max_answer_tokens=77))
    assert dialogue.allowance == 77
    assert dialogue.read(Message(f"<think>[2]</think>{text}")) == []
    trace = dialogue.trace("p", {}, {})
    assert (dialogue.end, trace.stop, trace.answer) == ("answered", stop, text)


def test_a_failure_from_outside_is_recorded() -> None:
    episode = Drawers(3)
    dialogue = Dialogue(episode, Rules())
    dialogue.fail("server", "status 500")
    record = dialogue.trace("p", {"kind": "endpoint"}, {"sampled": 0}).header["rollout"]
    assert (record["end"], record["error"], record["kind"]) == ("server", "status 500", "endpoint")
    assert episode.done
    with pytest.raises(RuntimeError, match="has ended"):
        dialogue.read(Message("late"))


@pytest.mark.parametrize("field", ["reminders", "max_message_tokens", "max_calls"])
def test_rules_refuse_nonsense(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Rules(**{field: -1})
