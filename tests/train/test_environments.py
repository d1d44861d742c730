"""Environment classes: what TRL sees of them, and what reaches the episode."""

from __future__ import annotations

import inspect

import pytest
from lamps import ITEM, LETTERS, LOOK, PRESS, Lamps, lamp_tasks, open_lamps
from transformers.utils import get_json_schema

from truthfirst.solvefirst.candidates import Recipe
from truthfirst.train.environments import Rollout, TaskError, environment_class, task_set, tool_set_name
from truthfirst.train.recipes import open_recipe, recipe_keys
from truthfirst.types import ToolSchema


def begun(right: str = "A", form: str = "A"):
    environment = environment_class((PRESS, LOOK), open_lamps)()
    environment.reset(instance=right, form=form, prompt=[], stratum="lamps")
    return environment


def test_only_reset_and_the_tools_are_public() -> None:
    made = environment_class((PRESS, LOOK), open_lamps)
    functions = [name for name, _ in inspect.getmembers(made, predicate=inspect.isfunction)]
    assert [name for name in functions if not name.startswith("_")] == ["look", "press", "reset"]
    instance = begun()
    assert [name for name in vars(instance) if not name.startswith("_")] == []


def test_a_tool_may_have_the_name_of_anything_else_in_the_class() -> None:
    named = [
        ToolSchema(name, "d", ITEM, "probe") for name in ("rollout", "call", "record", "messages", "tools")
    ]
    made = environment_class(named, open_lamps)()
    made.reset(instance="A", form="A")
    assert all("Refused" in getattr(made, tool.name)(item="A") for tool in named[:3])


@pytest.mark.parametrize("name", ["reset", "get_reward", "_hidden"])
def test_a_name_that_trl_reads_otherwise_is_refused(name: str) -> None:
    with pytest.raises(TaskError, match=name):
        environment_class((ToolSchema(name, "d", ITEM, "probe"),), open_lamps)


@pytest.mark.parametrize("name", ["class", "two words", "self"])
def test_an_argument_may_have_a_name_that_python_has_not(name: str) -> None:
    schema = ToolSchema("press", "d", {"type": "object", "properties": {name: {"type": "string"}}}, "probe")
    made = environment_class((schema,), open_lamps)()
    made.reset(instance="A", form="A")
    made.press(**{name: "A"})
    assert made._rollout.episode.trace().turns[0].arguments == {name: "A"}


def test_a_schema_can_be_made_of_each_method() -> None:
    found = get_json_schema(begun().press)["function"]
    assert (found["name"], found["description"]) == ("press", "Press one button.")
    assert found["parameters"]["properties"]["item"] == {"type": "string", "description": "a button"}
    assert found["parameters"]["required"] == ["item"]


@pytest.mark.parametrize(
    "arguments", [{"thing": "A"}, {}, {"item": "A", "more": 1}, {"item": 7}, {"self": "A"}]
)
def test_wrong_arguments_reach_the_episode_and_cost_a_turn(arguments: dict) -> None:
    environment = begun()
    assert environment.press(**arguments).startswith("Refused")
    assert environment._rollout.episode.turns_left == 2


def test_a_group_shares_its_instance() -> None:
    opened = []

    def counting(key: str) -> Lamps:
        opened.append(key)
        return Lamps(key)

    tasks = task_set([("A", "x"), ("B", "x")], ["A"], counting)
    made = next(iter(tasks.factories.values()))
    for row in [*tasks.rows] * 3:
        made().reset(**row)
    assert opened == ["A", "B"]


def test_rows_name_class_instance_and_form() -> None:
    tasks = lamp_tasks("AB", ("A", "F"))
    assert [(row["instance"], row["form"], row["turn_budget"]) for row in tasks.rows] == [
        ("A", "A", 3),
        ("A", "F", 0),
        ("B", "A", 3),
        ("B", "F", 0),
    ]
    assert set(tasks.factories) == {row["environment"] for row in tasks.rows}
    assert tasks.factories["no_tools"]._tools == ()
    assert tasks.turn_budget == 3


def test_equal_tools_share_a_class_and_others_do_not() -> None:
    other = ToolSchema("press", "Press one button.", ITEM | {"required": []}, "decision")
    assert tool_set_name((PRESS, LOOK)) == tool_set_name((PRESS, LOOK))
    assert len({tool_set_name(tools) for tools in ((PRESS, LOOK), (LOOK, PRESS), (other, LOOK), ())}) == 4


def test_nothing_to_play_is_an_error() -> None:
    with pytest.raises(TaskError, match="nothing to play"):
        lamp_tasks("")


def rollout(*calls: str, form: str = "A", last: str = "") -> Rollout:
    """Return a finished rollout; each of `calls` is a message, of one call a letter."""
    played = Rollout({"instance": "A", "form": form}, open_lamps)
    for message in calls:
        played.message()
        for letter in message:
            played.call("press", {"item": letter})
    if form == "F" or not calls:
        played.message()
    played.finish(last)
    return played


def test_a_message_sums_the_rewards_of_its_calls() -> None:
    assert rollout("BA", "A").turn_rewards("progress") == [0.5, 0.5]
    assert rollout("BA", "A").turn_rewards("regret") == [-0.5, 0.0]
    assert rollout("BA", "", "C").turn_rewards("regret") == [-0.5, 0.0, -0.5]


def test_what_leaving_costs_is_owed_to_the_message_that_left() -> None:
    played = rollout("B", "")  # a call, then a message without any
    played.episode.rewards = lambda kind: [-0.5, -0.25]  # the last number is for leaving
    assert played.turn_rewards("regret") == [-0.5, -0.25]
    cut = rollout("B")  # the episode was cut off: nobody said that it was over
    cut.episode.rewards = lambda kind: [-0.5, -0.25]
    assert cut.turn_rewards("regret") == [-0.75]


def test_calls_after_the_end_cost_nothing() -> None:
    played = rollout("AAB")
    assert (played.messages, played.over, played.reward) == ([2], True, 1.0)


def test_who_never_calls_pays_what_was_to_be_had() -> None:
    played = rollout()
    assert played.turn_rewards("regret") == [-1.0]
    assert played.turn_rewards("progress") == [0.0]


def test_the_last_message_is_the_answer_of_form_f() -> None:
    assert rollout(form="F", last="<think>B</think>A").reward == 1.0
    assert rollout(form="F", last="B").reward == 0.0


def test_a_fault_of_the_grader_is_raised_when_scored() -> None:
    environment = begun()
    environment._rollout.episode._execute = lambda name, arguments: 1 / 0
    with pytest.raises(ZeroDivisionError):
        environment.press(item="A")
    with pytest.raises(ZeroDivisionError):
        environment._rollout.finish("")


@pytest.mark.parametrize("form", ["A", "I", "F"])
def test_a_recipe_key_opens_the_same_environment(form: str) -> None:
    recipe = Recipe("pricing", "nano", seed=3, index=1)
    ((key, stratum),) = recipe_keys([recipe])
    tasks = task_set([(key, stratum)], [form], open_recipe)
    assert stratum == "pricing"
    view = open_recipe(key).view(form)
    assert tasks.rows[0]["prompt"] == [dict(message) for message in view.prompt]
    assert tasks.factories[tasks.rows[0]["environment"]]._tools == view.tools


def test_every_letter_is_a_button() -> None:
    assert begun().look(item=LETTERS[0]).startswith("Yes")
