"""Training in worlds as an experiment: arms and rewards fit, starved groups by hand, a cell from end to end."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst import paths
from truthfirst.figures_worlds_training import FIGURES
from truthfirst.runs_grid import read_grid
from truthfirst.sandbox import available
from truthfirst.study import world_learning
from truthfirst.study.world_learning import ARMS, before_and_after, world_cell
from truthfirst.train.credit import reward_kind
from truthfirst.worldfirst.environment import REWARD_KINDS
from truthfirst.worldfirst.shell import Shell

SHORT = {
    "steps": 1, "group_size": 2, "groups": 1, "updates": 1, "report_to": "none", "message_tokens": 16,
    "episode_tokens": 600, "options": {"disable_tqdm": True},
}  # fmt: skip
PIECES = ["<tool_call>\n{", '"name"', ': "bash', '", "arguments', '": {"command', '": "', "ls output", '"}', "}\n</tool_call>"]  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_asks_a_world_for_rewards_that_it_has(arm) -> None:
    cell = world_cell(arm, plan=SHORT)
    assert reward_kind(cell.plan.credit) in REWARD_KINDS


def test_the_grid_names_cells_of_their_own_and_all_arms() -> None:
    path = paths.HOME / "data" / "grids" / "worlds.yaml"
    cells = [world_cell(**stated) for stated in read_grid(path).cells]
    assert len({cell.id for cell in cells}) == len(cells) == 9
    assert {cell.arm for cell in cells} == set(ARMS)
    assert len({cell.plan.rollouts * cell.plan.generations for cell in cells}) == 1  # equal samples


@pytest.mark.parametrize(
    ("arm", "options", "named"),
    [
        ("magic", {}, "unknown arm 'magic'"),
        ("progress", {"helden": 1}, "no 'helden' in WorldCell"),
        ("progress", {"plan": {"step": 1}}, "no 'step' in Plan"),
    ],
)
def test_a_wrong_cell_names_what_is_wrong(arm, options, named) -> None:
    with pytest.raises(ValueError, match=named):
        world_cell(arm, **options)


def test_groups_without_variance_by_hand() -> None:
    """Four groups of two: both fail alike; fail with different Phi; both pass; one passes."""
    from truthfirst.train.world_trainer import spread

    table = [(0, 0.5), (0, 0.5), (0, 0.0), (0, 0.25), (1, 1.0), (1, 1.0), (0, 0.75), (1, 1.0)]
    details = [{"phi": phi, "passed": bool(p), "return": p + phi / 4} for p, phi in table]
    found = spread(details, 2)
    assert found == {"phi": 0.625, "passed": 0.375, "same/pass": 0.75, "same/return": 0.5}


def listing_policy():
    """Return (model, tokenizer) that list output/ again and again; lines of the prompt are one token each."""
    from truthfirst.policies.clockwork import byte_tokenizer, clockwork
    from truthfirst.train import tiny
    from truthfirst.train.world_lines import line_environment

    view = line_environment(0, Shell()).view()
    text = byte_tokenizer(tiny.TEMPLATE).apply_chat_template(
        list(view.prompt), tools=[tool.openai() for tool in view.tools], tokenize=False
    )
    lines = [line for line in text.split("\n") if len(line) > 12 and "<" not in line[:1]]
    return clockwork(PIECES, tiny.TEMPLATE, seed=0, more_pieces=lines)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A cell whose policy lists its files until the budget is spent."""
    if not available():
        pytest.skip("no sandbox here")
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    for part in listing_policy():
        part.save_pretrained(checkpoints / "tiny-worlds")
    cell = world_cell(plan=SHORT, study="test", instances=1, held_out=1, episodes=2, calls=2)
    folder = tmp_path_factory.mktemp("cell")
    steps = folder / "steps.sqlite"
    return world_learning.run_cell(cell, folder, checkpoints=checkpoints, steps_file=steps)


def test_a_cell_is_measured_before_and_after(result) -> None:
    found = before_and_after(result.scores.assign(**world_learning.labels(result.cell)))
    assert list(found["policy"]) == ["base", "trained"]
    assert list(found["episodes"]) == [2, 2]
    assert (found["phi"] == 0).all()
    assert (result.scores["known"] == 1).all()
    assert (result.scores["turns"] == 2).all()


def test_a_step_tells_phi_groups_without_variance_and_what_was_executed(result) -> None:
    (row,) = result.history.to_dict("records")
    assert (row["phi"], row["passed"], row["same/pass"], row["same/return"]) == (0, 0, 1, 1)
    assert row["frac_reward_zero_std"] == 1
    assert row["sandbox/asked"] == 4  # two rollouts of two calls
    assert row["sandbox/executed"] == 2  # on the start, and on the same files as the sandbox packs them


def test_a_result_is_stored_once_and_drawn(result, tmp_path) -> None:
    for _ in range(2):
        world_learning.store(result, tmp_path)
    history, scores = (
        pd.read_parquet(tmp_path / f"{name}.parquet")
        for name in (world_learning.TRAINING, world_learning.SCORES)
    )
    assert list(history["samples"]) == [2]
    assert len(scores) == 4
    assert [
        len(FIGURES[name](frame).axes) for name, frame in zip(FIGURES, (history, scores), strict=True)
    ] == [2, 2]
