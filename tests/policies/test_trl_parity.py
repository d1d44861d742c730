"""The tokens rolled out here are those that TRL's own tool loop makes, so that they can be trained on there."""

from __future__ import annotations

import pytest
from toys import SCRIPT, Drawers, template

from truthfirst.policies import Rules, Sampling
from truthfirst.policies.calls import Call
from truthfirst.policies.clockwork import clockwork
from truthfirst.policies.dialogue import Reply
from truthfirst.policies.generate import Engine, Stream
from truthfirst.policies.language import LanguagePolicy

TURNS = 4
FIXED = [
    piece if isinstance(piece, str) else piece[0] for piece in SCRIPT
]  # nothing drawn: both write the same


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """TRL's trainer over the same drawers, as an environment with one tool."""
    import os

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Environment:
        def reset(self, **_) -> None:
            self._episode = Drawers(TURNS)

        def probe(self, item: str) -> str:
            """Read the number of one item.

            Args:
                item: its letter
            """
            return self._episode.call("probe", {"item": item})

        def get_reward(self) -> float:
            return 0.0

    model, tokenizer = clockwork(FIXED, template("qwen2_5"))
    arguments = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=2_000,
        max_tool_calling_iterations=TURNS,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    rows = Dataset.from_list([{"prompt": [dict(message) for message in Drawers().view.prompt]}] * 2)
    return GRPOTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        processing_class=tokenizer,
        environment_factory=Environment,
    )


def roll(trainer) -> tuple[list[list[int]], list[list[int]]]:
    """Return (completion ids, tool masks) of TRL's own loop."""
    kept = {}
    inner = trainer._generate

    def spy(prompts):
        kept["output"] = inner(prompts)
        return kept["output"]

    trainer._generate = spy
    try:
        trainer._generate_and_score_completions([dict(row) for row in trainer.train_dataset])
    finally:
        del trainer._generate
    _, completion_ids, tool_mask, *_ = kept["output"]
    return completion_ids, tool_mask


def test_completion_ids_and_mask_equal_those_of_trls_loop(trainer) -> None:
    completion_ids, tool_mask = roll(trainer)
    policy = LanguagePolicy(trainer.model, trainer.processing_class, rules=Rules(reminders=0))
    (ours,) = policy.converse([Drawers(TURNS)])
    # TRL asks once more after the environment has ended; up to there the two are the same tokens.
    length = len(ours.completion_ids)
    assert sum(ours.tool_mask) == TURNS * (len(FIXED) + 1)
    for ids, mask in zip(completion_ids, tool_mask, strict=True):
        assert ids[:length] == ours.completion_ids
        assert mask[:length] == ours.tool_mask
        assert len(ids) > length


@pytest.mark.parametrize("texts", [["A holds 0."], ["one", "two\n"], ["<|im_end|>", ""]])
def test_the_piece_between_messages_equals_trls(trainer, texts: list[str]) -> None:
    chat = LanguagePolicy(trainer.model, trainer.processing_class).chat
    replies = [Reply("tool", text, Call("probe", {})) for text in texts]
    expected = trainer._get_tool_suffix_ids(
        [{"role": "tool", "name": "probe", "content": text} for text in texts]
    )
    assert chat.closing(replies) == expected


def test_the_engine_can_stand_in_for_trls_generation(trainer, monkeypatch) -> None:
    """Overriding one method gives TRL's loop the cache: same ids, same mask, and log-probabilities besides."""
    expected = roll(trainer)
    engine = Engine(trainer.model, trainer.eos_token_ids, Sampling(trainer.temperature))

    def single_turn(prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False):
        limits = [trainer.max_completion_length] * len(prompt_ids)
        samples = engine.generate(prompt_ids, limits, [Stream(0, n) for n in range(len(prompt_ids))])
        return [sample.ids for sample in samples], [sample.logprobs for sample in samples]

    monkeypatch.setattr(trainer, "_generate_single_turn", single_turn)
    assert roll(trainer) == expected
    assert engine.account.reused > 3 * engine.account.fed
