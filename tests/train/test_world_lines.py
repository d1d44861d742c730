"""Lines of a tiny policy for worlds: they pass when played rightly, and a guess does not."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace

import pytest

from truthfirst.sandbox import Program, available, run
from truthfirst.streams import stream
from truthfirst.train import tiny
from truthfirst.train.kept_shell import KeptShell
from truthfirst.train.world_lines import (
    GENERATOR,
    GUESSES,
    LINES,
    STEPS,
    TIER,
    Habits,
    careless,
    layouts,
    line_environment,
    play,
    solution,
)
from truthfirst.worldfirst.environment import SUBMIT, TOOLS
from truthfirst.worldfirst.instances import instance
from truthfirst.worldfirst.scan import pack
from truthfirst.worldfirst.shell import LIMITS, Shell

sandboxed = pytest.mark.skipif(not available(), reason="no sandbox here")


@pytest.fixture
def shell(tmp_path):
    return KeptShell(tmp_path / "steps.sqlite")


@sandboxed
@pytest.mark.parametrize("seed", [0, 2])
def test_the_right_lines_in_the_right_order_pass(seed, shell):
    episode = play(line_environment(seed, shell), solution(instance(GENERATOR, seed, TIER)))
    assert episode.score().detail["passed"]
    assert episode.score().detail["phi"] == 1.0


@sandboxed
def test_a_scripted_clerk_passes_on_thirty_seeds():
    """All thirty workspaces side by side in one sandbox: starting it is what costs time."""
    made = [instance(GENERATOR, seed, TIER) for seed in range(100, 130)]
    files = {f"{number}/{path}": data for number, one in enumerate(made) for path, data in one.files.items()}
    work = [
        f"cd /workspace/{number}\n" + "\n".join(LINES[name] for name in solution(one)[2:])
        for number, one in enumerate(made)
    ]
    limits = replace(LIMITS, wall_seconds=300.0, files=2_000)
    script = {"work.sh": "\n".join(work).encode()}
    result = run(Program(("/bin/bash", "work.sh"), script, pack(files), shell=True, limits=limits))
    assert result.reason == "exited", result
    with tarfile.open(fileobj=io.BytesIO(result.tree)) as archive:
        left = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}
    for number, one in enumerate(made):
        own = {path.partition("/")[2]: data for path, data in left.items() if path.startswith(f"{number}/")}
        assert one.verify(own).passed, one.seed
        assert one.potential(own) == 1


@sandboxed
def test_a_wrong_guess_of_the_layouts_earns_nothing_and_can_be_taken_back(shell):
    environment = line_environment(0, shell)
    right = layouts(environment.instance)
    wrong = next(guess for guess in GUESSES if guess != right)
    guessed = play(environment, [f"profile {wrong}", "dimensions"])
    assert guessed.score().detail["phi"] == 0.0
    again = play(environment, [f"profile {wrong}", "dimensions", f"profile {right}", *STEPS[1:]])
    assert again.score().detail["passed"]


@sandboxed
def test_a_line_before_its_time_says_so_and_destroys_nothing(shell):
    episode = play(line_environment(0, shell), ["manifest", "clear"])
    assert episode.trace().turns[0].reply.startswith("failed")
    assert episode.score().detail["phi"] == 0.0


@sandboxed
@pytest.mark.parametrize("seed", [0, 2])
def test_a_look_tells_what_the_right_guess_depends_on(seed, shell):
    environment = line_environment(seed, shell)
    dates, money = (
        shell.run(environment.start, LINES[name]).reply.split("\n") for name in ("dates", "money")
    )
    told = [
        "base" if date == "--" else "branch" if count == "0" else "legacy"
        for date, count in zip(dates, money, strict=False)
    ]
    assert " ".join(told) == layouts(environment.instance)


def test_every_guess_occurs_and_the_plan_tells_it():
    found = {layouts(instance(GENERATOR, seed, TIER)) for seed in range(24)}
    assert found == set(GUESSES)


def test_the_prompt_shows_every_line_and_the_budget_is_its_own():
    environment = line_environment(0, Shell(), calls=7)
    view = environment.view()
    assert view.turn_budget == 7
    assert all(line in view.prompt[1]["content"] for line in LINES.values())
    assert environment.instance.prompt in view.prompt[1]["content"]


def test_a_line_is_few_tokens():
    tools = [tool.openai() for tool in TOOLS]
    plain = tiny.build_tokenizer([])

    def talk(line: str) -> list[dict[str, object]]:
        call = {"type": "function", "function": {"name": "bash", "arguments": {"command": line}}}
        return [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]

    texts = [plain.apply_chat_template(talk(line), tools=tools, tokenize=False) for line in LINES.values()]
    tokenizer = tiny.build_tokenizer([*texts, *texts])
    written = [sum(tiny.encode(tokenizer, talk(line), tools)[1]) for line in LINES.values()]
    assert max(written) <= 16


def test_careless_clerks_are_drawn_by_their_habits():
    always = Habits(look=1, skip=0, wrong=1, stray=0, leave=0, submits=1)
    played = list(careless(always, stream(0, "test")))
    assert played[:2] == ["dates", "money"]
    assert played[-1] == SUBMIT
    assert {"dimensions by contacts", "facts with voids", "cached report"} < set(played)
    assert list(careless(Habits(look=0, leave=1, submits=0), stream(0, "test"))) == []


@sandboxed
def test_what_was_executed_once_is_read_back_by_another_shell(tmp_path):
    path = tmp_path / "steps.sqlite"
    environment = line_environment(0, Shell())
    first, second = KeptShell(path), KeptShell(path)
    step = first.run(environment.start, LINES["dates"])
    assert second.run(environment.start, LINES["dates"]) == step
    assert (first.executed, second.executed, second.asked) == (1, 0, 1)
    assert Shell().run(environment.start, LINES["dates"]) == step
