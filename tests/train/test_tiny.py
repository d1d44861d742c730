"""The tiny policy: constant text is cheap, and nothing merges across what is given and what is written."""

from __future__ import annotations

import pytest

from truthfirst.policies.chat import ChatFormat
from truthfirst.train import tiny
from truthfirst.train.base import BaseRecipe, dialogues

RECIPE = BaseRecipe(families=("rationing", "pricing"), instances=12)


@pytest.fixture(scope="module")
def talks():
    return [
        talk
        for family in RECIPE.families
        for talk in dialogues(RECIPE, family, "nano", range(RECIPE.instances))
    ]


@pytest.fixture(scope="module")
def tokenizer(talks):
    plain = tiny.build_tokenizer([])
    return tiny.build_tokenizer(
        [plain.apply_chat_template(messages, tools=tools, tokenize=False) for messages, tools, _ in talks]
    )


def test_ids_are_the_text_again(tokenizer, talks) -> None:
    for messages, tools, _ in talks:
        ids, mask = tiny.encode(tokenizer, messages, tools)
        assert tokenizer.decode(ids) == tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
        assert len(ids) == len(mask)


def test_constant_text_is_cheap(tokenizer, talks) -> None:
    plain = tiny.build_tokenizer([])
    for messages, tools, form in talks:
        ids, _ = tiny.encode(tokenizer, messages, tools)
        assert len(ids) < 300, form
        assert len(tiny.encode(plain, messages, tools)[0]) > 5 * len(ids)


def test_unknown_text_still_has_tokens(tokenizer) -> None:
    text = "Straße 北京 \U0001f600 <tool_call> 3.14"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_every_digit_and_name_is_a_token_of_its_own(tokenizer, talks) -> None:
    messages, tools, _ = next(talk for talk in talks if talk[2] == "A")
    tokens = tokenizer.convert_ids_to_tokens(tiny.encode(tokenizer, messages, tools)[0])
    assert all(len(token) == 1 for token in tokens if any(letter.isdigit() for letter in token))
    assert "A" in tokens


def test_a_prompt_is_a_prefix_of_the_conversation(tokenizer, talks) -> None:
    """What a model is given before each of its messages is what it was trained on, token for token."""
    for messages, tools, _ in talks:
        ids, mask = tiny.encode(tokenizer, messages, tools)
        for turn, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            given = tokenizer.apply_chat_template(
                messages[:turn], tools=tools, add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
            assert ids[: len(given)] == given
            assert mask[len(given) - 1 : len(given) + 1] == [0, 1]


def test_the_mask_holds_the_messages_and_their_ends(tokenizer, talks) -> None:
    messages, tools, _ = next(talk for talk in talks if talk[2] == "F")
    ids, mask = tiny.encode(tokenizer, messages, tools)
    written = tokenizer.decode([token for token, own in zip(ids, mask, strict=True) if own])
    assert written == messages[-1]["content"] + tiny.END


def test_tool_calls_are_read_through_the_template(tokenizer) -> None:
    assert ChatFormat(tokenizer).family == "hermes"


def test_the_model_is_of_the_stated_size_and_seeded(tokenizer) -> None:
    model, again = (tiny.build_model(tokenizer, tiny.Shape(), seed=3) for _ in range(2))
    other = tiny.build_model(tokenizer, tiny.Shape(), seed=4)
    assert 500_000 < model.num_parameters() < 2_000_000
    weights = [one.model.embed_tokens.weight for one in (model, again, other)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])
