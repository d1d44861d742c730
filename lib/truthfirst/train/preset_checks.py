"""What can be checked of a GPU preset on a machine without a GPU.

Every check takes a preset and returns a few words on what it found, or raises CheckError (`examine` runs them all).
What only the real model, vLLM or a GPU can show stands in NOT_CHECKED.

Tokens are counted without the models' tokenizers: a token is taken to be two bytes. Qwen's tokenizer needs three to
four for English and JSON; digits are tokens of their own, but there are few of them.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import shlex
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import torch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from transformers import AutoConfig, AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    is_chat_template_prefix_preserving,
    supports_tool_calling,
)
from trl.scripts.vllm_serve import ScriptArguments, build_command

from ..paths import HOME
from ..policies.chat import ChatFormat
from ..policies.clockwork import byte_tokenizer
from ..solvefirst.candidates import Recipe
from ..solvefirst.references import play, policy
from ..types import PublicView, ToolSchema, Turn
from . import run
from .environments import TaskError, TaskSet, task_set
from .evaluate import instances
from .grpo import Trainer
from .memory import adapter_parameters, counts, estimate, skeleton
from .plan import PlanError
from .presets import CARD_GIB, FAMILIES, PRESETS, Preset
from .reading import CallReader
from .recipes import open_recipe, recipe_keys

PEFT = importlib.util.find_spec("peft") is not None
INSTANCES = 2  # of each family; a run takes a thousand, made by the same code
BYTES_A_TOKEN = 2
COLUMNS = {"prompt", "environment", "instance", "form", "stratum", "turn_budget"}
WAITING = 1.0  # full-length episodes that an engine's cache has to hold at least
# Options that need a GPU or vLLM, left away where the stand-in takes its step.
_ON_GPU = ("use_vllm", "vllm_", "bf16")


class CheckError(RuntimeError):
    """A preset does not fit together; the message says what, and what would."""


@functools.lru_cache(maxsize=4)
def tasks(families: tuple[str, ...], size: str) -> TaskSet:
    """Return the rows of a few instances, as a run makes them."""
    drawn = instances(families, size, INSTANCES, split="train", setter="template")
    return task_set(recipe_keys([Recipe(**world.recipe) for world in drawn]), ["A"], open_recipe)


def _tokenizer(preset: Preset) -> Any:
    """Return a tokenizer of bytes with the template that the model's own has."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "chat_templates" / f"{preset.model.template}.jinja"
    return byte_tokenizer(path.read_text(encoding="utf-8"))


# --- the checks ------------------------------------------------------------------------------------------
def check_arguments(preset: Preset) -> str:
    """TRL takes all arguments, with the rollouts of all cards as one process would have them."""
    plan = preset.plan()
    given = plan.arguments(Path(tempfile.gettempdir()), tasks(FAMILIES, preset.size).turn_budget)
    given |= {"use_cpu": True, "report_to": "none", "dataloader_pin_memory": False}
    given["per_device_train_batch_size"] = plan.batch(preset.cards) * preset.cards
    try:
        made = GRPOConfig(**given)
    except (TypeError, ValueError) as error:
        raise CheckError(f"GRPOConfig refuses the arguments: {error}") from error
    if made.generation_batch_size != plan.rollouts:
        raise CheckError(f"TRL makes {made.generation_batch_size} rollouts, the plan {plan.rollouts}")
    return f"{len(given)} arguments"


def check_batch(preset: Preset) -> str:
    """Rollouts divide among cards, updates and backward passes, and whole groups stay on one card."""
    plan = preset.plan()
    batch = plan.batch(preset.cards)
    if batch != preset.batch:
        raise CheckError(f"{batch} rollouts a backward pass, and the memory is reckoned for {preset.batch}")
    if plan.groups % preset.cards:
        raise CheckError(
            f"groups = {plan.groups} on {preset.cards} cards: credit per turn needs a multiple of {preset.cards}"
        )
    return f"{plan.rollouts} = {preset.cards} × {plan.updates} × {plan.accumulation} × {batch}"


def check_rows(preset: Preset) -> str:
    """Rows have every column; prompts, and episodes that ask for everything and then play, fit their tokens."""
    made, tokenizer = tasks(FAMILIES, preset.size), _tokenizer(preset)
    chat = ChatFormat(tokenizer, template_options=preset.plan().options["chat_template_kwargs"])
    longest = episode = 0
    for row in made.rows:
        if row.keys() != COLUMNS or row["environment"] not in made.factories:
            raise CheckError(
                f"row {row['instance'][:60]} has the columns {sorted(row)}, or no class for its tools"
            )
        view = PublicView(tuple(row["prompt"]), made.factories[row["environment"]]._tools, row["turn_budget"])
        longest = max(longest, len(chat.opening(view)) // BYTES_A_TOKEN)
        turns = play(policy("probe-all"), open_recipe(row["instance"]), row["form"], 0).turns
        sizes = [_turn(tokenizer, preset.model.calls, turn) for turn in turns]
        spare = max(0, row["turn_budget"] - len(turns)) * max(
            size for size, turn in zip(sizes, turns, strict=True) if turn.kind == "probe"
        )
        episode = max(episode, (sum(sizes) + spare) // BYTES_A_TOKEN)
    for what, found, room in (
        ("prompt", longest, preset.prompt_tokens),
        ("episode", episode, preset.episode_tokens),
    ):
        if found > room:
            raise CheckError(f"the longest {what} may have {found} tokens, and {what}_tokens is {room}")
    if preset.context > preset.model.config["max_position_embeddings"]:
        raise CheckError(f"{preset.context} tokens are more than the model's context")
    return f"{len(made.rows)} rows, prompt ≤ {longest}, episode ≤ {episode} tokens"


def check_tools(preset: Preset) -> str:
    """Every tool is a method that TRL can offer, and its schema is valid."""
    made = tasks(FAMILIES, preset.size)
    names = set()
    for factory in made.factories.values():
        public = {name for name in vars(factory) if not name.startswith("_")} - {"reset"}
        if public != {tool.name for tool in factory._tools}:
            raise CheckError(f"{factory.__name__} offers {sorted(public)} beside its own tools")
        for tool in factory._tools:
            jsonschema.Draft202012Validator.check_schema(tool.parameters)
            names.add(tool.name)
    return f"{len(names)} tools in {len(made.factories)} sets"


def check_template(preset: Preset) -> str:
    """TRL and our reader agree on the template: tools shown, calls read back as written, replies laid behind them."""
    tokenizer, options = _tokenizer(preset), preset.plan().options["chat_template_kwargs"]
    chat = ChatFormat(tokenizer, template_options=options)
    if chat.family != preset.model.calls:
        raise CheckError(f"calls are written as {chat.family}, the preset says {preset.model.calls}")
    if not supports_tool_calling(tokenizer):
        raise CheckError("TRL finds that the template does not carry tool calls")
    training = None
    if not is_chat_template_prefix_preserving(tokenizer):
        training = get_training_chat_template(tokenizer)
    add_response_schema(tokenizer)
    reader = CallReader(tokenizer, chat)
    trainer = SimpleNamespace(
        _is_vlm=False,
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        chat_template=training,
        chat_template_kwargs=options,
    )
    calls = 0
    for factory in tasks(FAMILIES, preset.size).factories.values():
        offered = [tool.openai() for tool in factory._tools]
        for tool in factory._tools:
            arguments = example(tool)
            ids = tokenizer(_written(preset.model.calls, tool.name, arguments))["input_ids"]
            message = reader.parse_response([*ids, chat.end_id], tools=offered)
            read = [call["function"] for call in message.get("tool_calls", [])]
            if read != [{"name": tool.name, "arguments": arguments}]:
                raise CheckError(f"a call of {tool.name} with {arguments} is read back as {read}")
            reply = {"role": "tool", "name": tool.name, "content": "It holds 12."}
            suffix = tokenizer.decode(GRPOTrainer._get_tool_suffix_ids(trainer, [reply]))
            if "It holds 12." not in suffix or ("<think>\n\n</think>" not in suffix):
                raise CheckError(f"TRL lays {suffix!r} behind a call, without the reply or with thinking on")
            calls += 1
    return f"{chat.family}, {calls} calls there and back"


def check_layers(preset: Preset) -> str:
    """The architecture has the layers that FSDP shards and the modules that LoRA adapts."""
    model = skeleton(preset.model.name)
    layers = sum(type(module).__name__ == preset.model.layer for module in model.modules())
    if layers != preset.model.config["num_hidden_layers"]:
        raise CheckError(f"{layers} layers are of class {preset.model.layer}; FSDP would not shard the rest")
    if preset.lora is None:
        return f"{counts(preset.model).total / 1e9:.2f} billion parameters"
    linear = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    if missing := set(preset.lora.targets) - linear:
        raise CheckError(f"LoRA targets {sorted(missing)} are no linear layers of the model")
    if "lm_head" in preset.lora.targets:
        raise CheckError(
            "TRL computes log-probabilities from lm_head.weight: an adapter on it is not trained"
        )
    adapters = adapter_parameters(preset)
    if not PEFT:
        return f"{adapters / 1e6:.0f} million in adapters (PEFT is not installed to put them there)"
    from peft import get_peft_model

    adapted = get_peft_model(copy.deepcopy(model), preset.lora.config())
    found = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    if found != adapters:
        raise CheckError(f"PEFT makes {found} parameters, and the memory is reckoned for {adapters}")
    return f"{adapters / 1e6:.0f} million in adapters"


def check_launch(preset: Preset) -> str:
    """Accelerate reads its configuration and the launch line, and our command the rest of it."""
    load_config_from_file(str(HOME / preset.accelerate_file))
    words = shlex.split(preset.launch().replace("RANK", "0"))
    try:
        given = launch_command_parser().parse_args([*words[2:3], str(HOME / words[3]), *words[4:]])
    except SystemExit as error:
        raise CheckError(f"accelerate does not take the launch line, see above: {preset.launch()}") from error
    if given.training_script != "truthfirst.train.run" or not given.module:
        raise CheckError(f"accelerate would start {given.training_script}, not truthfirst.train.run")
    if preset.cards > 1 and given.num_processes != preset.cards:
        raise CheckError(f"accelerate would start {given.num_processes} processes, not {preset.cards}")
    if preset.lora is None or PEFT:
        run._arguments(given.training_script_args)
    line = preset.serve()
    if line is not None:
        ours = shlex.split(line)
        theirs = build_command(ScriptArguments(model=preset.model.name))
        imposed = theirs[theirs.index("--weight-transfer-config") :]
        if [word for word in imposed if word not in ours] or "VLLM_SERVER_DEV_MODE=1" not in ours:
            raise CheckError(f"the server's line lacks some of what TRL needs: {shlex.join(imposed)}")
    return preset.accelerate_file.rpartition("/")[2] + (", and the server's line" if line else "")


def check_memory(preset: Preset) -> str:
    """The expected memory is below what the card has, and vLLM's cache holds an episode."""
    found, card = estimate(preset), CARD_GIB[preset.card]
    if found.peak >= card:
        raise CheckError(
            f"{found.generating:.0f} GiB while generating and {found.updating:.0f} while updating, of {card:.0f}: "
            "use more cards, a smaller batch or a smaller share for vLLM"
        )
    if found.episodes < WAITING:
        raise CheckError(
            f"vLLM's cache holds {found.episodes:.1f} episodes of {preset.context} tokens: raise share"
        )
    return f"{found.peak:.0f} of {card:.0f} GiB, cache for {found.episodes:.0f} episodes"


def check_step(preset: Preset) -> str:
    """One optimizer step of our trainer on a stand-in: the architecture with few and narrow layers, on the CPU."""
    return _step(preset.model.kind, preset.model.template)


@functools.lru_cache(maxsize=8)
def _step(kind: str, template: str) -> str:
    preset = next(p for p in PRESETS.values() if (p.model.kind, p.model.template) == (kind, template))
    plan, tokenizer = preset.plan(), _tokenizer(preset)
    kept = {name: value for name, value in plan.options.items() if not name.startswith(_ON_GPU)}
    plan = replace(
        plan,
        group_size=2,
        groups=1,
        updates=1,
        accumulation=1,
        steps=1,
        save_every=0,
        episode_tokens=10**5,  # the stand-in reads bytes
        precision="float32",
        cpu=True,
        report_to="none",
        options=kept | {"disable_tqdm": True, "generation_kwargs": {"max_new_tokens": 4}},
    )
    with tempfile.TemporaryDirectory() as folder:
        model = stand_in(preset, len(tokenizer))
        trainer = Trainer(model, tokenizer, tasks(FAMILIES, "nano"), plan, Path(folder))
        trainer.train()
    return f"one step of {type(model).__name__}"


CHECKS: dict[str, Callable[[Preset], str]] = {
    "arguments": check_arguments,
    "batch": check_batch,
    "rows": check_rows,
    "tools": check_tools,
    "template": check_template,
    "layers": check_layers,
    "launch": check_launch,
    "memory": check_memory,
    "step": check_step,
}
NOT_CHECKED = (
    "the model's own tokenizer: that its chat template is the one named, byte for byte (TRL refuses another)",
    "vLLM: that it starts within its share, loads the model, takes the weights and returns log-probabilities",
    "FSDP2 and NCCL between cards, and the merging of adapters on sharded weights",
    "the estimate of memory against a card, and the time of a step",
)


# --- parts ------------------------------------------------------------------------------------------------
def example(tool: ToolSchema) -> dict[str, Any]:
    """Return arguments that fit a tool's schema."""
    found: dict[str, Any] = {}
    for name, schema in tool.parameters.get("properties", {}).items():
        if "enum" in schema:
            found[name] = schema["enum"][-1]
        elif schema.get("type") in ("integer", "number"):
            found[name] = schema.get("maximum", schema.get("minimum", 1))
        else:
            found[name] = {"boolean": True, "array": [], "object": {}}.get(schema.get("type"), "SELECT 1")
    return found


def _written(family: str, name: str, arguments: dict[str, Any]) -> str:
    """Return a call as a model writes it."""
    if family == "hermes":
        body = json.dumps({"name": name, "arguments": arguments})
        return f"<tool_call>\n{body}\n</tool_call>"
    parameters = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _turn(tokenizer: Any, family: str, turn: Turn) -> int:
    """Return bytes of one call and its reply, with the template's markup around them."""
    markup = (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    text = _written(family, turn.tool, turn.arguments) + markup + turn.reply + "<think>\n\n</think>\n\n"
    return len(tokenizer(text)["input_ids"])


def stand_in(preset: Preset, vocabulary: int) -> Any:
    """Return a random model of a preset's architecture, small enough for any machine."""
    config = dict(preset.model.config)
    small = {
        "num_hidden_layers": 4,  # of Qwen3.6, one with attention and three without
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": vocabulary,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_num_value_heads": 2,
        "linear_value_head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "max_position_embeddings": 10**6,
    }
    config |= {name: value for name, value in small.items() if name in config}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(preset.model.kind, **config))


def examine(preset: Preset) -> dict[str, tuple[bool, str]]:
    """Return (passed, what was found) of every check."""
    found = {}
    for name, check in CHECKS.items():
        try:
            found[name] = (True, check(preset))
        except (CheckError, PlanError, TaskError, jsonschema.SchemaError, OSError, ValueError) as error:
            found[name] = (False, str(error))
    return found
