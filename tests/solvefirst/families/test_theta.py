"""Theta is checked strictly: a broken, ragged, missing, unknown or impossible field is named, in every family."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from truthfirst.solvefirst.families import FAMILIES
from truthfirst.solvefirst.families.base import Theta, ThetaError
from truthfirst.streams import stream

every_family = pytest.mark.parametrize("name", FAMILIES)


@functools.lru_cache(maxsize=64)
def sampled(name: str, size: str) -> Theta:
    return FAMILIES[name].sample(stream(0, "test-theta", name, size), size)


def broken(data: dict[str, Any], name: str) -> Iterator[Any]:
    """Yield values that are wrong for the field `name`: not integers, of another depth, or of another shape."""
    value = data[name]
    yield from (None, "text", 1.5, True, {"a": 1}, [1.5], [[None]], ["x"])
    yield [value]
    if isinstance(value, (list, tuple)) and value:
        yield 7
        yield value[0]
    elif not isinstance(value, (list, tuple)):
        yield from ([], [[1]])


@every_family
def test_a_broken_field_is_named(name: str) -> None:
    member = FAMILIES[name]
    data = json.loads(json.dumps(member.to_json(sampled(name, "small"))))
    for field in data:
        for value in broken(data, field):
            if field.endswith("_prior") and value == data[field][0]:
                continue  # one triple for all is a valid prior, if the entries lie in it
            with pytest.raises(ThetaError) as caught:
                member.build(data | {field: value})
            assert caught.value.field == field, (field, value)
            assert str(caught.value).startswith(f"{field} = ")


@every_family
def test_a_ragged_or_negative_table_is_refused(name: str) -> None:
    member = FAMILIES[name]
    data = json.loads(json.dumps(member.to_json(sampled(name, "small"))))
    names = set(data)
    for field in (f for f in member.interface.fields if len(f.index) == 2):
        for table in ([*data[field.name][:-1], data[field.name][-1][:-1]], [*data[field.name][:-1], []]):
            for others in ({}, {f"{field.name}_prior": None}):
                wrong = {
                    key: value for key, value in (data | {field.name: table}).items() if key not in others
                }
                with pytest.raises(ThetaError) as caught:
                    member.build(wrong)
                assert caught.value.field in names
    for field in member.interface.hidden_fields:
        key = member.keys(member.build(data), [field])[0]
        for value in (-1, 10**30):
            wrong = json.loads(json.dumps(data))
            row = functools.reduce(lambda part, index: part[index], key[1:-1], wrong[field.name])
            row[key[-1]] = value
            with pytest.raises(ThetaError) as caught:
                member.build(wrong)
            assert caught.value.field == field.name


@every_family
def test_missing_and_unknown_fields_are_named(name: str) -> None:
    member, theta = FAMILIES[name], sampled(name, "nano")
    data = member.to_json(theta)
    with pytest.raises(ThetaError, match=f"is no parameter of {name}") as caught:
        member.build(data | {"no_such_field": 1})
    assert caught.value.field == "no_such_field"
    optional = {f.name for f in dataclasses.fields(theta) if f.default is not dataclasses.MISSING}
    priors = {f"{field.name}_prior" for field in member.interface.hidden_fields}
    for field in data:
        rest = {key: value for key, value in data.items() if key != field}
        if field in optional:
            member.build(rest)
        elif field in priors:  # taken from the table itself
            low, high, _ = next(iter(flat_triples(getattr(member.build(rest), field))))
            assert low <= high
        else:
            with pytest.raises(ThetaError, match="is missing") as caught:
                member.build(rest)
            assert caught.value.field == field


def flat_triples(prior: Any) -> Iterator[tuple[int, int, int]]:
    if isinstance(prior[0], tuple):
        for part in prior:
            yield from flat_triples(part)
    else:
        yield prior


@every_family
def test_an_entry_outside_its_published_range_is_refused(name: str) -> None:
    member, theta = FAMILIES[name], sampled(name, "nano")
    key, (_, high, _) = next(iter(member.prior(theta).items()))
    with pytest.raises(ThetaError, match="must lie in its published range") as caught:
        member.validate(member.substitute(theta, {key: high + 1}))
    assert caught.value.field == key[0]
