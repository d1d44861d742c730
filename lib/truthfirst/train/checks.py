"""What has to fit together before training begins: model, tokenizer, tasks and plan. A misfit says what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..policies.chat import ChatFormat
from ..types import PublicView, ToolSchema
from .environments import TaskSet
from .plan import Plan

MEASURED_ROWS = 16  # of the rows with the most turns and the longest prompts; rendering all would take long


class SetupError(ValueError):
    """Model, tokenizer, tasks and plan do not fit together; the message says what to change."""


def load_policy(path: str, precision: str = "float32") -> tuple[Any, Any]:
    """Return (model, tokenizer) of a checkpoint folder or hub name; raise SetupError where there is none."""
    looks_local = path.startswith((".", "/", "~")) or path.count("/") != 1
    folder = Path(path).expanduser()
    if looks_local and not (folder / "config.json").is_file():
        raise SetupError(
            f"base checkpoint {path!r} is missing: there is no config.json in that folder; build or download the "
            "checkpoint first, or name another one"
        )
    where = str(folder) if folder.exists() else path
    try:
        model = AutoModelForCausalLM.from_pretrained(where, dtype=getattr(torch, precision))
        return model, AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError, ImportError) as error:
        raise SetupError(f"base checkpoint {path!r} cannot be loaded: {error}") from error


def check_setup(model: Any, tokenizer: Any, tasks: TaskSet, plan: Plan) -> ChatFormat:
    """Return how the tokenizer writes conversations, or raise SetupError."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise SetupError(
            f"the tokenizer has {len(tokenizer)} tokens, the model {rows}: they do not belong together"
        )
    if tokenizer.pad_token_id is None:
        raise SetupError(
            "the tokenizer has no padding token: set tokenizer.pad_token, for instance to its eos_token"
        )
    chat = ChatFormat(tokenizer, template_options=plan.options.get("chat_template_kwargs"))
    if chat.family == "text":
        raise SetupError(
            f"this model has no tool template ({chat.reason}): give its tokenizer a chat template that shows tools, "
            "calls and results, such as trl's chat_templates/qwen2_5.jinja, and train the model on it"
        )
    _check_context(model, tasks, plan, chat)
    return chat


def _check_context(model: Any, tasks: TaskSet, plan: Plan, chat: ChatFormat) -> None:
    """Raise SetupError where even the shortest calls and replies of a full turn budget do not fit."""
    context = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 2**31)
    longest: dict[
        tuple[str, str], dict[str, Any]
    ] = {}  # the row with the longest prompt for each tool set and form
    for row in tasks.rows:
        key = (row["environment"], row["form"])
        if key not in longest or _characters(row) > _characters(longest[key]):
            longest[key] = row
    rows = sorted(longest.values(), key=lambda row: (row["turn_budget"], _characters(row)), reverse=True)
    for row in rows[:MEASURED_ROWS]:
        tools, turns = tasks.factories[row["environment"]]._tools, row["turn_budget"]
        opening = len(chat.opening(PublicView(tuple(row["prompt"]), tools, turns)))
        turn = 0
        if tools:
            turn = min(_least_turn(chat, tool) for tool in tools)
        what = f"{row['stratum']} in form {row['form']}: {turns} turns of at least {turn} tokens"
        if turns * turn > plan.episode_tokens:
            raise SetupError(
                f"{what} are {turns * turn} tokens, and episode_tokens is {plan.episode_tokens}: raise it, or play "
                "smaller instances"
            )
        if opening + max(turns * turn, 1) > context:
            raise SetupError(
                f"{what} after a prompt of {opening} do not fit the model's context of {context} tokens: use a model "
                "with a longer context, or play smaller instances"
            )


_LEAST: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": True, "array": [], "object": {}}


def _least_turn(chat: ChatFormat, tool: ToolSchema) -> int:
    """Return the tokens of a call with the shortest arguments that its schema asks for, and one for its reply.

    What a template puts around a reply may be a single token: a tokenizer of phrases has whole replies as one.
    """
    properties = tool.parameters.get("properties", {})
    arguments = {
        name: properties[name].get("enum", [_LEAST.get(properties[name].get("type", ""), "")])[0]
        for name in tool.parameters.get("required", [])
        if name in properties
    }
    return len(chat.calling(tool.name, arguments)) + 1


def _characters(row: dict[str, Any]) -> int:
    return sum(len(message["content"]) for message in row["prompt"])
