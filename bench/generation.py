"""Cost of multi-turn generation against the number of turns: this package's engine and TRL's own tool loop.

    python bench/generation.py                               # 8, 20 and 60 turns, 32 episodes; a few minutes
    python bench/generation.py --turns 8 --repeats 1 --out /tmp/generation.csv

Both play the same environment with the same half-million-parameter Qwen3-architecture model, whose words are known
(`policies/clockwork.py`), so that both sample the same number of tokens in conversations of equal length; the script
stops if they do not. Both run in one process, alternating, on the same threads. TRL's time is its `_generate`, which is
generation and tool calls without rewards and losses; ours is `LanguagePolicy.converse`, the same span.

Also measured: the same policy made to re-read every conversation at each turn (`reuse=False`), which tells how much of
the gain is the cache and how much is leaner code.

Writes a tidy table, one row a run: engine, turns, repeat, seconds, sampled and given tokens, episodes, parameters,
threads, versions. Times depend on the machine and its load; the result is the ratio within one run, taken of processor
time, which a busy machine blurs less than the clock on the wall.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pandas as pd
import torch
import transformers
import trl
from datasets import Dataset
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from truthfirst.episode import BudgetedEpisode, Outcome
from truthfirst.figures import publish
from truthfirst.policies import Rules
from truthfirst.policies.clockwork import byte_tokenizer, clockwork
from truthfirst.policies.language import LanguagePolicy
from truthfirst.types import PublicView, Score, ToolSchema

PROMPT = (
    {"role": "system", "content": "You run a depot network. Depots A B C D."},
    {"role": "user", "content": "Begin."},
)
PROBE = ToolSchema(
    "probe",
    "Read the profit of one depot.",
    {
        "type": "object",
        "properties": {"depot": {"type": "string", "description": "name of the depot"}},
        "required": ["depot"],
    },
    "probe",
)
# The script a message, every piece one token; the depot is drawn.
CALL: list[str | tuple[str, ...]] = [
    "<tool_call>\n",
    '{"',
    "name",
    '": ',
    '"probe',
    '", "',
    "arguments",
    '": {',
    '"depot',
    '": "',
    ("A", "B", "C", "D"),
    '"}}',
    "\n</tool_call>",
]
MARKUP = ["assistant\n", "user\n", "\n<tool_response>\n", "\n</tool_response>", " profit "]
CONTEXT = 16_384


class Depots(BudgetedEpisode):
    """Answers every probe with a line of equal length until the budget is spent."""

    def __init__(self, turns: int) -> None:
        super().__init__(PublicView(PROMPT, (PROBE,), turns), {"environment": "depots", "form": "A"})

    def call(self, name: str, arguments: Any) -> str:
        super().call(name, arguments)
        return f"{arguments['depot']} profit {len(self.turns) % 10}"

    def _execute(self, name: str, arguments: Any) -> Outcome:
        return Outcome("ok", "probe")

    def _completed(self) -> bool:
        return False

    def answer(self, text: str) -> None:
        raise NotImplementedError("depots have no written form")

    def score(self) -> Score:
        return Score(0.0, {})

    def rewards(self, kind: str) -> list[float]:
        return [0.0] * len(self.turns)


def environment(turns: int) -> type:
    """Return the same episode as an environment class for TRL."""

    class Environment:
        def reset(self, **_: Any) -> None:
            self._episode = Depots(turns)

        def probe(self, depot: str) -> str:
            """Read the profit of one depot.

            Args:
                depot: name of the depot
            """
            return self._episode.call("probe", {"depot": depot})

        def get_reward(self) -> float:
            return 0.0

    return Environment


@dataclass(frozen=True)
class Seconds:
    """How long something took: by the clock on the wall, and of this process's processor time."""

    wall: float
    cpu: float


class Clock:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Seconds:
        return Seconds(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def trl_seconds(
    model: Any, tokenizer: Any, turns: int, episodes: int, folder: str
) -> tuple[Seconds, int, int]:
    """Return (seconds, sampled tokens, given tokens) of TRL's own loop."""
    options = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=episodes,
        num_generations=episodes,
        max_completion_length=CONTEXT // 2,
        # TRL asks the model once more after the last call is answered; one iteration fewer gives as many messages.
        max_tool_calling_iterations=turns - 1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    rows = Dataset.from_list([{"prompt": [dict(message) for message in PROMPT]}] * episodes)
    trainer = GRPOTrainer(
        model=model,
        args=options,
        train_dataset=rows,
        processing_class=tokenizer,
        environment_factory=environment(turns),
    )
    measured: dict[str, Any] = {}
    inner = trainer._generate

    class Measured(Exception):
        """Leaves the trainer after generation: scoring is not what is measured."""

    def timed(prompts: Any) -> None:
        clock = Clock()
        output = inner(prompts)
        measured.update(seconds=clock.read(), masks=output[2])
        raise Measured

    trainer._generate = timed
    with contextlib.suppress(Measured):
        trainer._generate_and_score_completions([dict(row) for row in rows])
    sampled = sum(map(sum, measured["masks"]))
    return measured["seconds"], sampled, sum(map(len, measured["masks"])) - sampled


def own_seconds(
    model: Any, tokenizer: Any, turns: int, episodes: int, reuse: bool
) -> tuple[Seconds, int, int]:
    """Return the same of this package's policy."""
    rules = Rules(reminders=0, max_episode_tokens=CONTEXT)
    policy = LanguagePolicy(model, tokenizer, rules=rules, reuse=reuse, slots=episodes)
    clock = Clock()
    conversations = policy.converse([Depots(turns) for _ in range(episodes)])
    seconds = clock.read()
    sampled = sum(sum(conversation.tool_mask) for conversation in conversations)
    return seconds, sampled, sum(len(conversation.tool_mask) for conversation in conversations) - sampled


def words(template: str) -> list[str]:
    """Return the words of the instructions, one token each, as a trained tokenizer would have most of them."""
    plain = byte_tokenizer(template)
    text = str(plain.apply_chat_template(list(PROMPT), tools=[PROBE.openai()], tokenize=False))
    return [
        word for word in re.findall(r" ?[A-Za-z_]{3,}", text) if word.strip() not in ("assistant", "user")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, nargs="+", default=[8, 20, 60])
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reread", action="store_true", help="also measure our own code without the cache")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "data/results/generation.csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    template = (Path(spec.origin).parent / "chat_templates/qwen2_5.jinja").read_text(encoding="utf-8")
    model, tokenizer = clockwork(CALL, template, context=CONTEXT, more_pieces=[*MARKUP, *words(template)])
    prompt = len(LanguagePolicy(model, tokenizer).chat.opening(Depots(1).view))
    parameters = sum(weight.numel() for weight in model.parameters())
    work = f"{parameters:,} parameters, {options.episodes} episodes, prompt of {prompt} tokens"
    print(f"{work}, {options.threads} thread(s); seconds")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for turns in options.turns:
        for repeat in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                runs = {
                    "engine": own_seconds(model, tokenizer, turns, options.episodes, True),
                    "trl": trl_seconds(model, tokenizer, turns, options.episodes, folder),
                }
                if options.reread:
                    runs["engine, re-reading"] = own_seconds(model, tokenizer, turns, options.episodes, False)
            if len({(sampled, given) for _, sampled, given in runs.values()}) != 1:
                raise SystemExit(f"the engines did not do the same work: {runs}")
            for engine, (seconds, sampled, given) in runs.items():
                rows.append(
                    {
                        "engine": engine,
                        "turns": turns,
                        "repeat": repeat,
                        "seconds": round(seconds.wall, 4),
                        "cpu_seconds": round(seconds.cpu, 4),
                        "sampled_tokens": sampled,
                        "given_tokens": given,
                        "prompt_tokens": prompt,
                        "episodes": options.episodes,
                        "parameters": parameters,
                        "threads": options.threads,
                        "torch": torch.__version__,
                        "transformers": transformers.__version__,
                        "trl": trl.__version__,
                    }
                )
            pd.DataFrame(rows).to_csv(options.out, index=False)  # each finished row is kept
            line = "  ".join(
                f"{engine} {took.wall:.2f} ({took.cpu:.2f} cpu)" for engine, (took, *_) in runs.items()
            )
            ratio = runs["trl"][0].cpu / runs["engine"][0].cpu
            print(f"{turns:3d} turns: {line}; trl/engine {ratio:.1f} in cpu time", flush=True)
    frame = pd.DataFrame(rows)
    publish("generation", frame, {"episodes": options.episodes, "threads": options.threads})
    best = frame.groupby(["turns", "engine"])["cpu_seconds"].min().unstack()
    print(best.assign(ratio=best["trl"] / best["engine"]).round(2).to_string())


if __name__ == "__main__":
    main()
