"""Pairs chosen by a rule, what was decided when, and where the divergence lies."""

from __future__ import annotations

import pandas as pd
import pytest

from truthfirst.solvefirst.candidates import Recipe, build_candidate
from truthfirst.solvefirst.references import play, policy
from truthfirst.solvefirst.score import score_trace
from truthfirst.study import trajectories as tr
from truthfirst.study.episodes import decisions

FAMILIES = ("rationing", "pricing")


@pytest.fixture(scope="module")
def worlds():
    drawn = [
        build_candidate(Recipe(family, "nano", index=index, split="test", setter="terse"))
        for family in FAMILIES
        for index in range(6)
    ]
    return [world for world in drawn if world.solution.span >= world.solution.required_margin]


@pytest.fixture(scope="module")
def played(worlds):
    """Scripted policies in the places of base and trained: scores and decisions in the stored columns."""
    scores, traces = [], []
    for world in worlds:
        for name, script in (("base", "myopic"), ("trained", "probe-2")):
            trace = play(policy(script), world, "A", 0)
            trace.header["policy"] = name
            score = score_trace(trace)
            traces.append(trace)
            scores.append(
                {"run": "r", "policy": name, "family": world.family_name, "size": "nano", "form": "A"}
                | {"environment": world.id, "reward": score.reward, "stop": str(trace.stop)}
                | {"probes_first": score.detail["probes_new"]}
            )
    return pd.DataFrame(scores), decisions(traces).assign(run="r")


def rows(gains: dict[str, float], stop: str = "completed", run: str = "r") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"run": run, "policy": name, "family": "f", "form": "A", "environment": environment, "stop": stop}
            | {"reward": 0.25 + (gain if name == "trained" else 0)}
            for environment, gain in gains.items()
            for name in ("base", "trained")
        ]
    )


def test_the_pair_has_the_lower_median_gain_and_the_first_id_of_equals() -> None:
    pair = tr.choose_pair(rows({"e": 0.5, "d": 0.1, "b": 0.5, "c": 0.5, "a": 0.6}), "f")
    assert (pair.environment, pair.among) == ("b", 5)
    assert pair.gain == pytest.approx(0.5)
    assert tr.choose_pair(rows({"a": 0.4, "b": 0.1, "c": 0.2, "d": 0.3}), "f").environment == "c"


def test_the_order_of_the_rows_does_not_matter() -> None:
    frame = rows({"e": 0.5, "d": 0.1, "b": 0.5, "c": 0.2, "a": 0.6})
    assert tr.choose_pair(frame, "f") == tr.choose_pair(frame.sample(frac=1, random_state=3), "f")


def test_only_instances_that_both_finished_once_are_chosen_from() -> None:
    frame = pd.concat([rows({"a": 0.3}), rows({"b": 0.1}, stop="budget"), rows({"c": 0.9}), rows({"c": 0.9})])
    frame = pd.concat([frame, rows({"d": 0.0})[lambda table: table["policy"] == "base"]])
    assert tr.choose_pair(frame, "f") == tr.Pair("f", "a", "r", 0.25, 0.55, 1)
    with pytest.raises(ValueError, match="no f instance of form A was finished by both"):
        tr.choose_pair(rows({"b": 0.1}, stop="stopped"), "f")


def test_runs_are_told_apart() -> None:
    frame = pd.concat([rows({"a": 0.3}, run="s"), rows({"a": 0.3}, run="r")])
    assert (tr.choose_pair(frame, "f").run, tr.choose_pair(frame, "f").among) == ("r", 2)


def test_the_optimum_earns_u_star(worlds) -> None:
    for world in worlds:
        table = tr.optimal_decisions(world)
        assert table["gain"].sum() == world.solution.u_star
        if world.family_name == "rationing":
            assert table["amount"].to_list() == [action.args[0] for action in world.solution.plan]


def test_a_trajectory_is_what_was_decided(worlds, played) -> None:
    scores, decided = played
    pair = tr.choose_pair(scores, "rationing")
    world = next(world for world in worlds if world.id == pair.environment)
    table = tr.trajectory(pair, scores, decided, world)
    assert set(table["policy"]) == set(tr.POLICIES)
    assert set(table["quantity"]) == {"amount"}
    wide = table.pivot(index="policy", columns="period", values="value")
    assert list(wide.columns) == [1, 2, 3, 4]
    assert (wide.sum(axis=1) <= world.theta.budget).all()
    for name in ("base", "trained"):
        mine = decided[(decided["environment"] == pair.environment) & (decided["policy"] == name)]
        assert wide.loc[name].to_list() == mine.sort_values("period")["amount"].to_list()
    by_policy = table.groupby("policy")[["reward", "probes_first"]].first()
    assert by_policy.loc[["base", "trained"], "probes_first"].to_list() == [0, 2]
    assert by_policy["reward"].to_list() == pytest.approx([pair.base, 1.0, pair.trained])


def test_rows_without_probes_first_leave_it_missing(worlds, played) -> None:
    scores, decided = played
    table = tr.trajectories(scores.drop(columns="probes_first"), decided, worlds)
    assert table["probes_first"].isna().all()


def test_another_environment_than_the_pairs_is_an_error(worlds, played) -> None:
    scores, decided = played
    pair = tr.choose_pair(scores, "rationing")
    with pytest.raises(ValueError, match=f"about {pair.environment}"):
        tr.trajectory(pair, scores, decided, worlds[-1])


def test_means_are_over_all_instances(worlds, played) -> None:
    scores, decided = played
    table = tr.trajectories(scores, decided, worlds)
    mean = table[(table["view"] == "mean") & (table["family"] == "rationing")]
    ours = [world for world in worlds if world.family_name == "rationing"]
    best = mean[mean["policy"] == "optimum"].set_index("period")["value"]
    assert best[1] == pytest.approx(sum(w.solution.plan[0].args[0] for w in ours) / len(ours))
    acted = decided[(decided["family"] == "rationing") & (decided["policy"] == "base")]
    base = mean[mean["policy"] == "base"].set_index("period")["value"]
    assert base.to_dict() == pytest.approx((acted.groupby("period")["amount"].sum() / len(ours)).to_dict())
    assert set(mean["among"]) == {len(ours)}
    assert set(table[table["family"] == "pricing"]["quantity"]) == {"earned"}  # a tariff is no amount


def test_runs_without_decisions_do_not_count(worlds, played) -> None:
    scores, decided = played
    more = pd.concat([scores.assign(run="a"), scores], ignore_index=True)
    pd.testing.assert_frame_equal(
        tr.trajectories(more, decided, worlds), tr.trajectories(scores, decided, worlds)
    )
    pair = tr.choose_pair(more, "rationing")
    world = next(world for world in worlds if world.id == pair.environment)
    with pytest.raises(ValueError, match=r"no decisions of base, trained on .* in run a"):
        tr.trajectory(pair, more, decided, world)


def test_a_period_that_was_never_reached_counts_as_nothing() -> None:
    told = pd.DataFrame(
        {
            "policy": ["base", "trained", "trained"],
            "period": [1, 1, 2],
            "value": [3.0, 1.0, 2.0],
            "reward": [0, 1, 1],
        }
    )
    wide = tr._every_period(told).pivot(index="policy", columns="period", values="value")
    assert wide.loc["base"].to_list() == [3.0, 0.0]


def test_early_is_the_share_of_the_first_half() -> None:
    """By hand: 27 of 29 units in the first three of seven periods, as the source's base; and an even plan."""
    table = pd.DataFrame(
        [
            {"family": "f", "view": "pair", "quantity": "amount", "policy": name, "period": t, "value": value}
            for name, values in (
                ("base", (9, 9, 9, 1, 1, 0, 0)),
                ("trained", (2,) * 7),
                ("optimum", (0,) * 7),
            )
            for t, value in enumerate(values, start=1)
        ]
    )
    found = tr.early(table).iloc[0]
    assert found["base"] == pytest.approx(27 / 29)
    assert found["trained"] == pytest.approx(3 / 7)
    assert pd.isna(found["optimum"])
    assert tr.early(table.assign(quantity="earned")).empty


def test_held_out_instances_are_built_again(worlds, played) -> None:
    scores, _ = played
    found = tr.held_out(scores[scores["family"] == "rationing"], most=2)
    assert [world.id for world in found] == [w.id for w in worlds if w.family_name == "rationing"][:2]
    with pytest.raises(ValueError, match="lack instance rationing-nano"):
        tr.held_out(scores[scores["family"] == "rationing"].assign(environment="rationing-nano-other"))


TOKENS = pd.DataFrame(
    [("a", "x", "A", turn, place, kl) for turn, place, kl in ((0, 0, 0.4), (0, 1, 0.1), (0, 2, 0.1), (1, 0, 0.2))],
    columns=["family", "environment", "form", "turn", "place", "kl"],
)  # fmt: skip


def test_divergence_by_message_weighs_tokens() -> None:
    """By hand: 0.6 of 0.8 nats in three of four tokens."""
    table = tr.by_message(TOKENS)
    assert table["tokens"].to_list() == [3, 1]
    assert table["share_nats"].to_list() == pytest.approx([0.75, 0.25])
    assert table["share_tokens"].to_list() == [0.75, 0.25]
    stored = TOKENS.groupby(["family", "turn"], as_index=False).agg(kl=("kl", "mean"), tokens=("kl", "size"))
    pd.testing.assert_frame_equal(tr.by_message(stored), table)


def test_concentration_counts_the_fewest_messages() -> None:
    found = tr.concentration(TOKENS).iloc[0]
    assert (found["messages"], found["of"], found["turns"]) == (1, 2, "1")
    assert tr.concentration(TOKENS, 0.75).iloc[0]["messages"] == 1
    assert tr.concentration(TOKENS, 0.9).iloc[0]["turns"] == "1, 2"
    with pytest.raises(ValueError, match="share must lie"):
        tr.concentration(TOKENS, 0)


def test_parts_of_messages() -> None:
    marked = tr.with_parts(TOKENS)
    assert marked["part"].to_list() == ["first", "inner", "last", "first"]
    table = tr.by_part(marked).set_index("part")
    assert table["kl"].to_dict() == pytest.approx({"first": 0.3, "inner": 0.1, "last": 0.1})
    assert tr.by_part(TOKENS).empty
