"""Instances: pure functions of generator, seed and tier; a generator that breaks its contract is refused."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from truthfirst.streams import SeedError
from truthfirst.worldfirst import instances
from truthfirst.worldfirst.contract import generator
from truthfirst.worldfirst.corrupt import restore
from truthfirst.worldfirst.generators import GENERATORS
from truthfirst.worldfirst.instances import instance
from truthfirst.worldfirst.world import TIERS, Node, WorldError


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("tier", TIERS[:2])
def test_the_same_arguments_give_the_same_instance(made, name, tier):
    one, again = made(name, 5, tier), instance(name, 5, tier)
    assert (one.id, one.world_hash, one.tree_hash) == (again.id, again.world_hash, again.tree_hash)
    assert one.files == again.files
    assert one.prompt == again.prompt
    assert one.sealed == again.sealed


@pytest.mark.parametrize("name", GENERATORS)
def test_the_contract_in_numbers(made, name):
    for tier in TIERS[:2]:
        one = made(name, 0, tier)
        assert len(one.generator.nodes) >= 8
        assert len(one.workflow.critical) >= 5
        assert len(one.generator.deliverables) >= 6
    assert generator(name).tiers == TIERS
    assert made(name, 0, "nano").workflow.critical == made(name, 0, "unit").workflow.critical
    assert sum(map(len, made(name, 0, "nano").files.values())) < 10_000


@pytest.mark.parametrize("name", GENERATORS)
def test_the_clean_tree_gives_the_world_back(made, name):
    one = made(name, 3, "unit")
    clean = restore(one.files, one.sealed.plan, one.generator.operators)
    assert clean != one.files
    assert one.generator.recover(clean) == one.sealed.world


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"recover": lambda files: None}, "do not give the world back"),
        ({"plan": lambda world, files, rng: ()}, "damages nothing"),
        ({"nodes": tuple(Node(f"n{n}", 1, "profile-sources") for n in range(9))}, "every stage needs a node"),
        ({"stages": lambda world: ()}, "critical path"),
    ],
)
def test_a_generator_that_breaks_its_contract_is_refused(monkeypatch, roles, message):
    faulty = dataclasses.replace(generator("warehouse"), **roles)
    monkeypatch.setattr(instances, "generator", lambda name: faulty)
    with pytest.raises(WorldError, match=message):
        instance("warehouse", 0, "nano")


def test_files_outside_of_input_are_refused(monkeypatch):
    good = generator("warehouse")
    faulty = dataclasses.replace(good, render=lambda world: good.render(world) | {"notes.txt": b""})
    monkeypatch.setattr(instances, "generator", functools.lru_cache(lambda name: faulty))
    with pytest.raises(WorldError, match=r"notes\.txt is not under input"):
        instance("warehouse", 0, "nano")


def test_bad_arguments():
    with pytest.raises(WorldError, match="no tier 'huge'"):
        instance("warehouse", 0, "huge")
    with pytest.raises(SeedError):
        instance("warehouse", -1, "nano")
    with pytest.raises(ValueError, match="no generator"):
        instance("house", 0, "nano")
