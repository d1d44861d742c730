"""Held-out score of a policy in the forms F, I and A: the numbers that training is judged by.

Instances are those of the test stream that pass the margin gate, so nothing here was seen in training; every policy
plays the same ones, and a comparison of two frames is paired on (environment, form, seed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..policies import Rules, Sampling, roll_out
from ..policies.dialogue import rollout_of
from ..policies.language import LanguagePolicy
from ..solvefirst.candidates import Recipe, build_candidate
from ..solvefirst.environment import Environment
from ..types import Form, Score, Trace
from .checks import load_policy
from .plan import Plan

CALL_MARK = "<tool_call>"  # what a call begins with in the tiny policy's chat template
TINY = Plan()  # whose limits a tiny policy is measured with: it has no more to say
SLOTS, GPU_SLOTS = 256, 16  # episodes side by side; those of a GPU's models are thousands of tokens long


def instances(
    families: Sequence[str],
    size: str,
    number: int,
    *,
    split: str = "test",
    seed: int = 0,
    first: int = 0,
    setter: str = "terse",
    domain: str | None = None,
) -> list[Environment]:
    """Return the first `number` instances of every family's stream, from index `first`, that have a reward scale.

    domain   of the corpus passage; None: each instance draws its own
    """
    found = []
    for family in families:
        index, kept = first, 0
        while kept < number:
            recipe = Recipe(family, size, seed=seed, index=index, split=split, setter=setter, domain=domain)
            environment = build_candidate(recipe)
            index += 1
            if environment.solution.span >= environment.solution.required_margin:
                found.append(environment)
                kept += 1
    return found


def load_player(path: str, plan: Plan) -> tuple[Any, Any]:
    """Return model and tokenizer in the precision of a plan, where it trains: on the processor, or on a GPU."""
    model, tokenizer = load_policy(path, plan.precision)
    return model.to("cpu" if plan.cpu else "cuda"), tokenizer


def policy(
    model: Any, tokenizer: Any, name: str, *, seed: int = 0, temperature: float = 1.0, plan: Plan = TINY
) -> LanguagePolicy:
    """Return a model as the policy that is measured: sampling and limits as in training by `plan`, no reminders."""
    return LanguagePolicy(
        model,
        tokenizer,
        name,
        sampling=Sampling(temperature=temperature),
        rules=Rules(
            reminders=0, max_message_tokens=plan.message_tokens, max_answer_tokens=plan.answer_tokens
        ),
        seed=seed,
        slots=SLOTS if plan.cpu else GPU_SLOTS,
        template_options=plan.options.get("chat_template_kwargs"),
    )


@dataclass(frozen=True, slots=True)
class Played:
    """One finished episode: its trace, its score, and which repetition of its instance it was."""

    trace: Trace
    score: Score
    repetition: int


def play(
    player: LanguagePolicy,
    environments: Sequence[Environment],
    forms: Sequence[str] = tuple(Form),
    n: int = 1,
) -> list[Played]:
    """Play every environment in every form `n` times."""
    found = []
    for form in forms:
        episodes = [world.episode(form) for world in environments for _ in range(n)]
        for number, trace in enumerate(roll_out(player, episodes)):
            found.append(Played(trace, episodes[number].score(), number % n))
    return found


def evaluate(
    player: LanguagePolicy,
    environments: Sequence[Environment],
    forms: Sequence[str] = tuple(Form),
    n: int = 1,
) -> pd.DataFrame:
    """Play every environment in every form `n` times; one row an episode, see `episode_table`."""
    return episode_table(play(player, environments, forms, n))


def compare(
    base: str | Path,
    trained: str | Path,
    environments: Sequence[Environment],
    forms: Sequence[str] = tuple(Form),
    *,
    seed: int = 0,
    plan: Plan = TINY,
) -> pd.DataFrame:
    """Let two checkpoints play the same episodes with the same draws; policies are called base and trained."""
    parts = []
    for name, path in (("base", base), ("trained", trained)):
        model, tokenizer = load_player(str(Path(path).expanduser()), plan)
        player = policy(model.eval(), tokenizer, name, seed=seed, plan=plan)
        parts.append(evaluate(player, environments, forms))
    return pd.concat(parts, ignore_index=True)


def episode_table(episodes: Sequence[Played]) -> pd.DataFrame:
    """Return one row an episode.

    Columns: policy, family, environment, form, seed, reward, probes (new figures asked for), probes_possible,
    probes_first (of them, before the first decision), planned (something was written before the first decision),
    turns, refused, stop.
    """
    rows = []
    for played in episodes:
        header, detail = played.trace.header, played.score.detail
        rows.append(
            {
                "policy": header["policy"],
                "family": header["family"],
                "environment": header["environment"],
                "form": str(header["form"]),
                "seed": played.repetition,
                "reward": played.score.reward,
                "probes": detail["probes_new"],
                "probes_possible": detail["probes_possible"],
                "probes_first": probes_before_deciding(played.trace),
                "planned": planned(played.trace),
                "turns": detail["turns"],
                "refused": detail["refused"],
                "stop": str(played.trace.stop),
            }
        )
    return pd.DataFrame(rows)


def _first_decision(trace: Trace) -> int:
    """Return the index of the first decision, or the number of turns where there is none."""
    return next((turn.index for turn in trace.turns if turn.kind == "decision"), len(trace.turns))


def probes_before_deciding(trace: Trace) -> int:
    """Return how many new figures were asked for before the first decision."""
    before = trace.turns[: _first_decision(trace)]
    return sum(
        turn.kind == "probe" and turn.status == "ok" and turn.detail.get("new", False) for turn in before
    )


def planned(trace: Trace) -> bool:
    """Say whether the policy wrote anything beside its calls up to the message of its first decision."""
    decision = _first_decision(trace)
    messages = (rollout_of(trace) or {}).get("messages") or ()
    return any(
        message["turns"][0] <= decision and message["text"].partition(CALL_MARK)[0].strip()
        for message in messages
        if message["turns"][1]
    )
