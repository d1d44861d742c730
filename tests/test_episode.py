"""Episodes: one turn a call, one message a call, bounded records of whatever a model wrote, traces on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfirst.episode import (
    MAX_ARGUMENT_CHARACTERS,
    MAX_NAME_CHARACTERS,
    BudgetedEpisode,
    Outcome,
    bounded,
    is_integer,
    load_traces,
    parsed,
    read_trace,
    save_trace,
    trace_record,
)
from truthfirst.policies.base import named
from truthfirst.records import RecordError, canonical_json
from truthfirst.types import Form, PublicView, Score, StopReason, Trace


class Countdown(BudgetedEpisode):
    """An episode that is completed by `goal` calls of "step"; any other call is refused."""

    def __init__(self, turn_budget: int, goal: int) -> None:
        super().__init__(PublicView((), (), turn_budget), {"form": "A"})
        self.goal = goal

    def _execute(self, name: str, arguments: Any) -> Outcome:
        if name != "step":
            return Outcome("Refused: no such tool.", None, "refused")
        self.goal -= 1
        return Outcome(f"{self.goal} to go.", "decision", "ok", {"arguments": bounded(arguments)})

    def _completed(self) -> bool:
        return self.goal <= 0

    def score(self) -> Score:
        return Score(float(self._completed()), {})

    def rewards(self, kind: str) -> list[float]:
        return [0.0] * len(self.turns)


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: Any = 0
for _ in range(5_000):
    DEEP = [DEEP]
STRANGE = [
    None,
    True,
    -1,
    10**400,
    10**5_000,
    1e308,
    math.nan,
    math.inf,
    "",
    "\ud800",
    "\x00",
    "а",  # Cyrillic
    "x" * 100_000,
    b"bytes",
    {1, 2},
    {(1, 2): 3},
    {"\ud800": "\udfff"},
    {"a": math.nan},
    [[]],
    LOOP,
    DEEP,
    object(),
    Unspeakable(),
    "[" * 1_900,
    "9" * 1_900,
    "{",
    '{"a": 1e999}',
]
ANYTHING = st.recursive(
    st.integers(0, len(STRANGE) - 1).map(lambda index: STRANGE[index])
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=8),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=3),
    max_leaves=6,
)


# --- the budget -------------------------------------------------------------------------------------------
def test_every_call_costs_one_turn_a_refused_one_too() -> None:
    episode = Countdown(turn_budget=5, goal=9)
    replies = [episode.call(name, {}) for name in ("step", "nothing", "step")]
    assert [r.split("Turns left: ")[1] for r in replies] == ["4.", "3.", "2."]
    assert [turn.status for turn in episode.turns] == ["ok", "refused", "ok"]
    assert (episode.turns_left, episode.done) == (2, False)


@pytest.mark.parametrize(
    ("turn_budget", "goal", "stop", "said"),
    [
        (3, 3, StopReason.COMPLETED, "All decisions are made"),
        (3, 5, StopReason.BUDGET, "The turn budget is spent"),
    ],
)
def test_an_episode_ends_once_and_says_why(turn_budget: int, goal: int, stop: StopReason, said: str) -> None:
    episode = Countdown(turn_budget, goal)
    replies = [episode.call("step", {}) for _ in range(3)]
    assert said in replies[-1]
    assert episode.stop_reason is stop
    before = episode.trace()
    assert "over" in episode.call("step", {})
    episode.stop()
    assert episode.trace() == before


def test_stopping_early_is_kept_in_the_trace() -> None:
    episode = Countdown(turn_budget=3, goal=3)
    episode.call("step", {})
    assert episode.trace().stop is StopReason.STOPPED  # as it stands now, and it may still go on
    assert not episode.done
    episode.stop()
    assert (episode.done, episode.stop_reason) == (True, StopReason.STOPPED)


# --- what a model wrote -----------------------------------------------------------------------------------
@given(ANYTHING)
def test_whatever_was_written_is_recorded_as_bounded_json(value: Any) -> None:
    kept = bounded(value)
    text = json.dumps(kept, allow_nan=False, ensure_ascii=False)
    text.encode()  # storable: no lone surrogate
    assert len(text) <= MAX_ARGUMENT_CHARACTERS


@given(st.recursive(st.integers() | st.text(max_size=20).filter(str.isprintable), st.lists, max_leaves=8))
def test_small_plain_values_are_recorded_as_they_are(value: Any) -> None:
    assert bounded(value) == value


def test_deeply_nested_arguments_are_bounded_so_that_a_trace_can_be_copied(tmp_path: Path) -> None:
    deep: Any = 0
    for _ in range(450):
        deep = [deep]
    episode = Countdown(turn_budget=9, goal=9)
    episode.call("step", {"a": deep})
    assert episode.turns[0].arguments.keys() == {"unreadable"}
    save_trace(tmp_path / "traces.jsonl", episode.trace())


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_any_name_and_arguments_are_one_recorded_turn(value: Any, tmp_path: Path) -> None:
    episode = Countdown(turn_budget=9, goal=9)
    episode.call("step", value)
    episode.call(value, {"a": 1})
    assert len(episode.turns) == 2
    assert all(len(turn.tool) <= MAX_NAME_CHARACTERS for turn in episode.turns)
    save_trace(tmp_path / "traces.jsonl", episode.trace())
    assert load_traces(tmp_path / "traces.jsonl") == [episode.trace()]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1", "[1"),
        ("", ""),
        ("[" * 1_900, "[" * 1_900),
        ("9" * 9_000, "9" * 9_000),
        (7, 7),
    ],
)
def test_arguments_may_come_as_json_text(text: Any, value: Any) -> None:
    assert parsed(text) == value


@pytest.mark.parametrize(
    ("value", "truth"),
    [(3, True), (3.0, True), (-0.0, True), (10**30, True), (1e300, True)]
    + [(v, False) for v in (True, False, "3", None, 2.5, math.nan, math.inf, -math.inf, [3], {})],
)
def test_is_integer(value: Any, truth: bool) -> None:
    assert is_integer(value) is truth


def test_unknown_form_is_named() -> None:
    assert [Form.parse(form) for form in "FIA"] == list(Form)
    for form in ("B", "f", "", "FIA"):
        with pytest.raises(ValueError, match=f"unknown form {form!r}: choose one of F, I, A"):
            Form.parse(form)


# --- traces on disk ---------------------------------------------------------------------------------------
def played() -> Trace:
    episode = Countdown(turn_budget=4, goal=2)
    for arguments in ({}, {"n": 1}):
        episode.call("step", arguments)
    return episode.trace()


def test_traces_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    for _ in range(2):
        save_trace(path, played())
    assert load_traces(path) == [played(), played()]


def test_a_trace_knows_where_it_was_read_and_keeps_that_out_of_its_record(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    save_trace(path, played())
    with path.open("a") as out:
        out.write("\n")  # an empty line counts as a line
    save_trace(path, played())
    first, second = load_traces(path)
    assert (first.where, second.where) == (f"{path}, line 1", f"{path}, line 3")
    assert named(second, "renamed").where == second.where
    assert first == second
    assert "where" not in trace_record(first)
    assert str(tmp_path) not in path.read_text()


def test_a_full_disk_leaves_the_traces_before_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "traces.jsonl"
    save_trace(path, played())
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="No space left"):
        save_trace(path, played())
    assert load_traces(path) == [played()]


def _damaged(**changes: Any) -> Any:
    return json.loads(canonical_json(trace_record(played()))) | changes


def _turn(**changes: Any) -> Any:
    record = _damaged()
    record["turns"][0] |= changes
    return record


def _without(name: str) -> Any:
    record = _damaged()
    del record[name]
    return record


@pytest.mark.parametrize(
    "record",
    [
        None,
        7,
        "text",
        [],
        {},
        _without("header"),
        _without("turns"),
        _without("stop"),
        _damaged(stop="finished"),
        _damaged(turns=7),
        _damaged(turns=[7]),
        _damaged(turns=[{}]),
        _damaged(header={}),
        _damaged(header={"form": "Q"}),
        _damaged(header=7),
        _turn(index=5),
        _turn(status="perhaps"),
        _turn(kind="wish"),
        _turn(detail=None),
        _turn(unknown=1),
    ],
)
def test_damaged_traces_are_named(record: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="here: "):
        read_trace(record, "here")
    path = tmp_path / "traces.jsonl"
    save_trace(path, played())
    with path.open("a") as out:
        out.write(json.dumps(record) + "\n")
    with pytest.raises(RecordError, match=r"traces\.jsonl, line 2"):
        load_traces(path)


@given(st.data())
def test_an_overwritten_byte_is_an_error_or_a_trace(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("traces") / "traces.jsonl"
    save_trace(path, played())
    line = bytearray(path.read_bytes())
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(line[: data.draw(st.integers(1, len(line)))])
    reason, traces = "", []
    try:
        traces = load_traces(path)
    except RecordError as error:  # anything else is a crash
        reason = str(error)
    assert ("traces.jsonl" in reason) == (traces == [])
    assert all(isinstance(trace, Trace) for trace in traces)
