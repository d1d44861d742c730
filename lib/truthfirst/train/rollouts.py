"""Rollouts: TRL's tool loop with our environments, our reading of calls, and generation that keeps its cache.

`RolloutTrainer` is TRL's `GRPOTrainer` up to the loss. Every override calls TRL's method and changes what goes in or
what comes out:

    _tokenize_prompts      prompts know which rollout they belong to
    _generate              every name is a tool (`reading.py`); draws come from streams of their own
    _generate_single_turn  `policies/generate.py`, where neither vLLM nor paged generation is asked for; a rollout ends
                           with its episode, where TRL would ask the model once more
    _get_per_token_logps_and_entropies
                           rows of like length are read together; log-probabilities of the weights that have just
                           sampled are not computed a second time

A message that is cut at its limit is read as it stands, as in a comparison, but TRL's loop does not close it with an
end-of-turn token before it lays the reply behind it.

Draws are addressed by (seed, step, generation, process, rollout): a resumed run samples what an unbroken one would
have, and no draw is used twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # environment_factory is what this module is built on

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from ..policies.base import Sampling
from ..policies.cache import fits
from ..policies.chat import ChatFormat
from ..policies.generate import Engine, Stream
from ..streams import stream
from ..types import Form
from .checks import check_setup
from .environments import Rollout, TaskSet
from .plan import Plan
from .reading import CallReader, EveryTool
from .serving import adopt

READ_ROWS = 16  # sequences that the loss reads at once, of like length
KEPT_SUFFIXES = 50_000  # tool replies whose tokens are kept


class RowIds(list[int]):
    """Token ids of one rollout's conversation; what is added to them stays with that rollout.

    row      position of the rollout in the batch
    opening  length of the prompt
    """

    def __init__(self, ids: Sequence[int], row: int, opening: int) -> None:
        super().__init__(ids)
        self.row, self.opening = row, opening

    def __add__(self, other: list[int]) -> RowIds:  # type: ignore[override]
        return RowIds(super().__add__(other), self.row, self.opening)


def reward_function(kind: str) -> Callable[..., list[float]]:
    """Return TRL's reward function: what each finished episode earns; in form F the last message is the answer.

    kind   `Plan.reward`
    """

    def score(environments: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
        rollouts = [environment._rollout for environment in environments]
        for rollout, messages in zip(rollouts, completions, strict=True):
            rollout.finish(last_message(messages))
        return [rollout.earned(kind) for rollout in rollouts]

    return score


def last_message(messages: Sequence[dict[str, Any]]) -> str:
    """Return the text of the last message that the policy wrote."""
    return next((m["content"] for m in reversed(messages) if m["role"] == "assistant"), "")


def row_order(rows: int, wanted: int, seed: int) -> list[int]:
    """Return `wanted` row numbers: one pass over all rows after the other, each in a random order of its own."""
    order: list[int] = []
    while len(order) < wanted:
        order += stream(seed, "rows", len(order) // rows).permutation(rows).tolist()
    return order[:wanted]


class RolloutTrainer(GRPOTrainer):
    """See the module docstring; `options` go to TRL's trainer (callbacks, peft_config, ...)."""

    def __init__(
        self, model: Any, tokenizer: Any, tasks: TaskSet, plan: Plan, output: Path, **options: Any
    ) -> None:
        chat = check_setup(model, tokenizer, tasks, plan)
        self.plan, self.tasks = plan, tasks
        # Rows for the whole run in one pass: a resumed run then skips to its place, and no epoch ends on the way.
        order = row_order(len(tasks.rows), plan.generations * plan.groups, plan.seed)
        super().__init__(
            model=model,
            reward_funcs=[reward_function(plan.reward)],
            args=GRPOConfig(**plan.arguments(output, tasks.turn_budget)),
            train_dataset=Dataset.from_list([tasks.rows[i] for i in order]),
            processing_class=tokenizer,
            environment_factory=dict(tasks.factories),
            **options,
        )
        # TRL makes schemas of the methods' signatures; the episodes' own say more (enums, bounds), and are what a
        # policy sees in a comparison.
        self._env_tools = {
            name: [tool.openai() for tool in made._tools] for name, made in tasks.factories.items()
        }
        self._tokenizer = CallReader(tokenizer, chat)
        self._engine = self._make_engine(chat)
        if self.use_vllm:
            adopt(self.vllm_generation, self.model.config.model_type)
        self._suffixes: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._streams: list[Stream] = []
        self._begun: tuple[str, int, int] = (
            "",
            0,
            0,
        )  # mode, step, and how many generations it has had before
        self._sampled: list[list[float]] | None = None  # log-probabilities, while TRL may ask for them again

    def _make_engine(self, chat: ChatFormat) -> Engine | None:
        """Return the engine that keeps its cache across turns, or None where TRL's own generation has to do it."""
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        unlike = self.min_p or self.repetition_penalty != 1.0 or self.args.generation_kwargs
        if (
            self.use_vllm
            or self.use_transformers_continuous_batching
            or sharded
            or unlike
            or fits(self.model)
        ):
            return None
        sampling = Sampling(self.temperature, self.top_k or 0, self.top_p)
        return Engine(self.model, sorted({*chat.stop_ids, *self.eos_token_ids}), sampling)

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    @property
    def _rollouts(self) -> list[Rollout]:
        return [environment._rollout for environment in self.environments]

    # --- generation -----------------------------------------------------------------------------------
    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[Any, Any, Any]:
        found, images, fields = super()._tokenize_prompts(prompts)
        return [RowIds(ids, row, len(ids)) for row, ids in enumerate(found)], images, fields

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> list[int]:
        # The same replies come again and again, and rendering a template twice for each is slow.
        key = tuple((message["name"], message["content"]) for message in tool_messages)
        if key not in self._suffixes:
            if len(self._suffixes) >= KEPT_SUFFIXES:
                self._suffixes.clear()
            self._suffixes[key] = super()._get_tool_suffix_ids(tool_messages)
        return list(self._suffixes[key])

    def _generate(self, prompts: list[Any]) -> Any:
        place = (self._mode, int(self.state.global_step))
        number = self._begun[2] + 1 if self._begun[:2] == place else 0
        self._begun = (*place, number)
        address = (*place, number, int(self.accelerator.process_index))
        self._streams = [Stream(self.plan.seed, *address, row) for row in range(len(prompts))]
        if self.tools:
            self._sync_tool_dicts = [EveryTool(rollout) for rollout in self._rollouts]
        if self._engine is None:
            return super()._generate(prompts)
        self._engine.reset()  # the weights have changed since the last time
        try:
            output = super()._generate(prompts)
        finally:
            self._engine.reset()  # a cache may fill the memory that the backward pass needs
        self._sampled = output[4]
        return output

    def _generate_single_turn(
        self,
        prompt_ids: list[RowIds],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], list[list[float]] | None]:
        limits = [self._limit(ids) for ids in prompt_ids]
        live = [number for number, limit in enumerate(limits) if limit > 0]
        given = [prompt_ids[number] for number in live]
        for ids in given:
            self._rollouts[ids.row].message()
        written: list[list[int]] = [[] for _ in prompt_ids]
        logps: list[list[float]] = [[] for _ in prompt_ids]
        found: Sequence[list[int]] = ()
        chances: Sequence[list[float]] | None = ()
        if self._engine is not None:
            streams = [self._streams[ids.row] for ids in given]
            samples = self._engine.generate(given, [limits[number] for number in live], streams)
            found, chances = [s.ids for s in samples], [s.logprobs for s in samples]
        elif given:
            found, chances = super()._generate_single_turn(
                given, images, multimodal_fields, num_generations, has_tool_images
            )
        for place, number in enumerate(live):
            written[number] = found[place]
        if chances is None:
            return written, None
        for place, number in enumerate(live):
            logps[number] = chances[place]
        return written, logps

    def _limit(self, ids: RowIds) -> int:
        """Return how many tokens the next message may have; 0 when the rollout is over."""
        rollout, used = self._rollouts[ids.row], len(ids) - ids.opening
        if used and rollout.over:
            return 0
        most = self.plan.answer_tokens if rollout.form is Form.WRITTEN else self.plan.message_tokens
        context = self.model.config.get_text_config().max_position_embeddings - len(ids)
        return max(0, min(most, self.max_completion_length - used, context))

    # --- log-probabilities ----------------------------------------------------------------------------
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            return super()._generate_and_score_completions(inputs)
        finally:
            self._sampled = None

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **options: Any
    ) -> Any:
        if (
            self._sampled is not None
        ):  # TRL asks what the weights that have just sampled give: the engine knows
            known = torch.zeros(len(self._sampled), logits_to_keep)
            for row, logps in enumerate(self._sampled):
                known[row, : len(logps)] = torch.tensor(logps)
            return known.to(input_ids.device), None, None
        if len(input_ids) <= READ_ROWS or options.get("pixel_values") is not None:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **options
            )
        return self._read_by_length(model, input_ids, attention_mask, logits_to_keep, options)

    def _read_by_length(self, model: Any, ids: Any, mask: Any, keep: int, options: dict[str, Any]) -> Any:
        """Read rows of like length together, without the padding that the longest row of all would give them."""
        order = mask.sum(dim=1).argsort(stable=True)
        pieces: list[tuple[Any, ...]] = []
        # No more at once than a backward pass reads: the memory of a card is reckoned for that.
        for rows in order.split(min(READ_ROWS, options.get("batch_size") or READ_ROWS)):
            used = mask[rows].any(dim=0).nonzero()
            first, last = int(used[0]), int(used[-1]) + 1
            cut = mask.shape[1] - last
            logps, entropies, aux = super()._get_per_token_logps_and_entropies(
                model,
                ids[rows, first:last],
                mask[rows, first:last],
                keep - cut,
                **(options | {"batch_size": None}),
            )
            wide = [None if x is None else torch.nn.functional.pad(x, (0, cut)) for x in (logps, entropies)]
            pieces.append((*wide, aux))
        back = order.argsort()
        columns = [list(column) for column in zip(*pieces, strict=True)]
        logps, entropies = (None if part[0] is None else torch.cat(part)[back] for part in columns[:2])
        return logps, entropies, None if columns[2][0] is None else torch.stack(columns[2]).mean()
