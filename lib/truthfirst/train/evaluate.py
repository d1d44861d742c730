"""Held-out score of a policy in the forms F, I and A: the numbers that training is judged by.

Instances are those of the test stream that pass the margin gate, so nothing here was seen in training; every policy
plays the same ones, and a comparison of two frames is paired on (environment, form, seed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ..policies import Rules, Sampling, roll_out
from ..policies.language import LanguagePolicy
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.environment import Environment
from ..types import Form

RULES = Rules(reminders=0, max_message_tokens=96, max_answer_tokens=192)  # a tiny policy has no more to say


def instances(
    families: Sequence[str],
    size: str,
    number: int,
    *,
    split: str = "test",
    seed: int = 0,
    first: int = 0,
    setter: str = "terse",
) -> list[Environment]:
    """Return the first `number` instances of every family's stream, from index `first`, that have a reward scale."""
    found = []
    for family in families:
        index, kept = first, 0
        while kept < number:
            recipe = Recipe(family, size, seed=seed, index=index, split=split, setter=setter)
            environment = build_candidate(recipe)
            index += 1
            if environment.solution.span >= environment.solution.required_margin:
                found.append(environment)
                kept += 1
    return found


def policy(
    model: Any, tokenizer: Any, name: str, *, seed: int = 0, temperature: float = 1.0
) -> LanguagePolicy:
    """Return a model as the policy that is measured: sampling as in training, no reminders."""
    sampling = Sampling(temperature=temperature)
    return LanguagePolicy(model, tokenizer, name, sampling=sampling, rules=RULES, seed=seed, slots=256)


def evaluate(
    player: LanguagePolicy,
    environments: Sequence[Environment],
    forms: Sequence[str] = tuple(Form),
    n: int = 1,
) -> pd.DataFrame:
    """Play every environment in every form `n` times; one row an episode.

    Columns: policy, family, environment, form, seed, reward, probes (new figures asked for), probes_possible, turns,
    refused, stop.
    """
    rows = []
    for form in forms:
        episodes = [world.episode(form) for world in environments for _ in range(n)]
        for number, trace in enumerate(roll_out(player, episodes)):
            score = episodes[number].score()
            rows.append(
                {
                    "policy": player.name,
                    "family": trace.header["family"],
                    "environment": trace.header["environment"],
                    "form": str(form),
                    "seed": number % n,
                    "reward": score.reward,
                    "probes": score.detail["probes_new"],
                    "probes_possible": score.detail["probes_possible"],
                    "turns": score.detail["turns"],
                    "refused": score.detail["refused"],
                    "stop": str(trace.stop),
                }
            )
    return pd.DataFrame(rows)
