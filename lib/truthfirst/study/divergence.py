"""How far training moved a policy: D_KL(trained ‖ base) per token that the policy wrote.

The states are those of the trained policy's own held-out episodes, and at each of its tokens the divergence is exact,
a sum over the whole vocabulary and not an estimate from the sampled token:

    D(state) = sum_a pi(a | state) (log pi(a | state) - log beta(a | state)),   in nats

with pi the trained policy and beta the base, both at the temperature that is played with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from ..policies.language import Conversation, LanguagePolicy
from ..solvefirst.environment import Environment


def divergence_frame(
    trained: LanguagePolicy,
    base: Any,
    environments: Sequence[Environment],
    forms: Sequence[str] = ("A",),
    *,
    batch: int = 32,
) -> pd.DataFrame:
    """Let `trained` play, and return one row a token that it wrote.

    base    the model it started from, with the same tokenizer
    batch   conversations read at once

    Columns: family, environment, form, turn (0-based message), place (of the token in its message), token, kl (nats),
    logprob (under the trained policy), base_logprob.
    """
    if base.config.vocab_size != trained.model.config.vocab_size:
        raise ValueError(
            f"the two models do not share a vocabulary ({base.config.vocab_size} and "
            f"{trained.model.config.vocab_size} tokens): compare a checkpoint with the base it was trained from"
        )
    rows: list[dict[str, Any]] = []
    for form in forms:
        episodes = [environment.episode(form) for environment in environments]
        talks = trained.converse(episodes)
        order = sorted(range(len(talks)), key=lambda i: len(talks[i].ids))
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            rows += _rows(
                trained, base, [talks[i] for i in chosen], [environments[i] for i in chosen], str(form)
            )
    return pd.DataFrame(rows)


@torch.no_grad()
def _rows(
    trained: LanguagePolicy,
    base: Any,
    talks: Sequence[Conversation],
    worlds: Sequence[Environment],
    form: str,
) -> list[dict[str, Any]]:
    longest = max(len(talk.ids) for talk in talks)
    device = trained.model.device
    ids = torch.zeros((len(talks), longest), dtype=torch.long, device=device)
    attention = torch.zeros_like(ids)
    for row, talk in enumerate(talks):
        ids[row, : len(talk.ids)] = torch.tensor(talk.ids, device=device)
        attention[row, : len(talk.ids)] = 1
    temperature = trained.engine.sampling.temperature or 1.0
    ours, theirs = (
        torch.log_softmax(model(input_ids=ids, attention_mask=attention).logits.float() / temperature, dim=-1)
        for model in (trained.model, base.to(device))
    )
    kl = (ours.exp() * (ours - theirs)).sum(dim=-1)
    found = []
    for row, (talk, world) in enumerate(zip(talks, worlds, strict=True)):
        start = len(talk.prompt_ids)
        turn, place, before = -1, 0, 0
        for offset, own in enumerate(talk.tool_mask):
            if own:
                turn, place = (turn, place + 1) if before else (turn + 1, 0)
                at = start + offset - 1  # the logits that gave this token
                token = talk.ids[start + offset]
                found.append(
                    {
                        "family": world.family_name,
                        "environment": world.id,
                        "form": form,
                        "turn": turn,
                        "place": place,
                        "token": trained.tokenizer.decode([token]),
                        "kl": float(kl[row, at]),
                        "logprob": float(ours[row, at, token]),
                        "base_logprob": float(theirs[row, at, token]),
                    }
                )
            before = own
    return found
