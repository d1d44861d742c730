"""A transformers causal language model as a policy.

    policy = LanguagePolicy.load("path/to/model", sampling=Sampling(temperature=0.7), seed=1)
    traces = roll_out(policy, [environment.episode("A") for environment in environments])

Calls are written as the model's own chat template has it; a model without tool calls gets the text protocol
(`chat.py`). `slots` conversations run at once; when one ends, the next episode takes its place. What a model may do
wrong, and what follows, is said in `dialogue.py`.

Each episode samples from its own stream, addressed by (seed, environment, form, how manyth such episode of the call),
so that a run that is resumed episode by episode repeats what an unbroken one would have sampled, to float accuracy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from ..types import Episode, PublicView, Trace
from .base import Sampling, addresses, model_name
from .calls import count_lines, read_calls, says_done, visible
from .chat import ChatFormat
from .dialogue import Dialogue, Message, Rules
from .generate import Engine, Sample, Stream


class ModelError(ValueError):
    """A model cannot be loaded or used as a policy; the message says what to change."""


@dataclass(slots=True)
class Conversation:
    """The exact tokens of one episode, in the form that TRL's trainer uses; with a window, not all are read any more.

    prompt_ids      the opening
    completion_ids  everything after it: sampled tokens and the template's pieces between them
    tool_mask       1 where a token was sampled, 0 where the template put it
    logprobs        of the sampled tokens at the sampling temperature; 0.0 elsewhere
    exchanges       where in completion_ids each message that the model still reads begins
    """

    dialogue: Dialogue
    stream: Stream
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    tool_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    exchanges: deque[int] = field(default_factory=lambda: deque([0]))

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    @property
    def context(self) -> list[int]:
        """What the model reads: the opening and every exchange that has not been forgotten."""
        return self.prompt_ids + self.completion_ids[self.exchanges[0] :]

    def forget(self, most: int, limit: int) -> None:
        """Drop the oldest exchanges until at most `most` tokens are read; the latest goes beyond `limit` only."""
        dropped, whole = 0, len(self.prompt_ids) + len(self.completion_ids)
        while len(self.exchanges) > 1:
            if whole - self.exchanges[0] <= (most if len(self.exchanges) > 2 else limit):
                break
            self.exchanges.popleft()
            dropped += 1
        self.dialogue.forget(dropped)

    def add_sampled(self, sample: Sample) -> None:
        self.completion_ids += sample.ids
        self.tool_mask += [1] * len(sample.ids)
        self.logprobs += sample.logprobs

    def add_given(self, ids: list[int]) -> None:
        self.completion_ids += ids
        self.tool_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)


class LanguagePolicy:
    """Plays episodes with a transformers model; see the module docstring.

    protocol  "auto": the template's own calls if it has them, else text; "tools" or "text" insist
    slots     conversations at once
    reuse     see `Engine`
    template_options  passed to the chat template, such as {"enable_thinking": False}
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str | None = None,
        *,
        sampling: Sampling | None = None,
        rules: Rules | None = None,
        seed: int = 0,
        protocol: str = "auto",
        slots: int = 32,
        reuse: bool | None = None,
        template_options: dict[str, Any] | None = None,
    ) -> None:
        if slots < 1:
            raise ModelError(f"slots must be at least 1, got {slots}")
        self.model, self.tokenizer = model, tokenizer
        self.name = name or model_name(str(model.config.name_or_path or type(model).__name__))
        self.rules, self.seed, self.slots = rules or Rules(), seed, slots
        configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        stops = configured if isinstance(configured, list) else [] if configured is None else [configured]
        self.chat = ChatFormat(tokenizer, protocol, stops, template_options)
        rows = model.get_input_embeddings().weight.shape[0]
        if len(tokenizer) > rows:
            raise ModelError(
                f"the tokenizer has {len(tokenizer)} tokens, the model {rows}: they do not belong together"
            )
        self.engine = Engine(model, self.chat.stop_ids, sampling, reuse=reuse)
        self._playing: str | None = None  # hash of the weights that played the last call's episodes
        self.context = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 2**31)

    @classmethod
    def load(
        cls,
        path: str,
        *,
        gguf_file: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        **options: Any,
    ) -> LanguagePolicy:
        """Load model and tokenizer from a folder or hub name, then as the constructor.

        gguf_file  name of a GGUF file in the folder; its weights are dequantised
        device     such as "cuda"; default: a GPU if there is one
        """
        extra: dict[str, Any] = {}
        if gguf_file is not None:
            extra = {"gguf_file": gguf_file, "quantization_config": transformers.GgufConfig(dequantize=True)}
            dtype = "float32" if dtype == "auto" else dtype
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, gguf_file=gguf_file)
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **extra)
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(
                f"no causal language model with a tokenizer can be loaded from {path!r}: {error}"
            ) from error
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        options.setdefault("name", model_name(path).rsplit("/", 1)[-1])
        torch.nn.Module.to(model, place)
        return cls(model, tokenizer, **options)

    @property
    def model_hash(self) -> str:
        """Hash of the model that plays, as it is now: see `model_hash`."""
        return model_hash(self.model)

    # --- playing --------------------------------------------------------------------------------------
    def play(self, episodes: Sequence[Episode]) -> list[Trace]:
        """Play fresh episodes to their ends; see `base.Policy`."""
        return [self.trace(conversation) for conversation in self.converse(episodes)]

    def converse(self, episodes: Sequence[Episode]) -> list[Conversation]:
        """Play fresh episodes to their ends and return their exact tokens."""
        self.engine.reset()  # the weights may have changed since the last call
        self._playing = self.model_hash
        conversations = self._open(episodes)
        waiting = deque(conversations)
        live: list[Conversation] = []
        while True:
            while waiting and len(live) < self.slots:
                live.append(waiting.popleft())
            live = [conversation for conversation in live if self._has_room(conversation)]
            if live:
                limits = [self._limit(conversation) for conversation in live]
                samples = self.engine.generate([c.context for c in live], limits, [c.stream for c in live])
                for conversation, sample in zip(live, samples, strict=True):
                    self._take(conversation, sample)
            elif not waiting:
                self.engine.reset()  # a cache may fill the memory that the caller needs next
                return conversations

    def _open(self, episodes: Sequence[Episode]) -> list[Conversation]:
        prompts: dict[int, tuple[PublicView, list[int]]] = {}  # holds the view, so that its id stays its own
        conversations = []
        for episode, address in zip(episodes, addresses(episodes), strict=True):
            stream = Stream(self.seed, *address)
            view = episode.view
            if id(view) not in prompts:  # a group's episodes share one view: render it once
                prompts[id(view)] = (view, self._checked(self.chat.opening(view)))
            conversations.append(
                Conversation(Dialogue(episode, self.rules), stream, list(prompts[id(view)][1]))
            )
        return conversations

    @property
    def _window(self) -> int:
        return min(self.rules.window or self.context, self.context)

    def _checked(self, opening: list[int]) -> list[int]:
        """Return an opening; ModelError where the window has no room for it and two messages."""
        needed = len(opening) + 2 * self.rules.max_message_tokens
        if self.rules.window and needed > self._window:
            raise ModelError(
                f"a window of {self._window} tokens cannot hold instructions of {len(opening)} tokens and two messages "
                f"of {self.rules.max_message_tokens}: allow {needed} at least, or shorter messages"
            )
        return opening

    def _limit(self, conversation: Conversation) -> int:
        return min(conversation.dialogue.allowance, self._window - len(conversation.context))

    def _has_room(self, conversation: Conversation) -> bool:
        """Say whether a conversation goes on; one that fills the model's context ends here."""
        if conversation.dialogue.end is None and len(conversation.context) >= self.context:
            held = len(conversation.context)
            conversation.dialogue.fail(
                "context_full", f"{held} tokens fill the model's context of {self.context}"
            )
        return conversation.dialogue.end is None

    def _take(self, conversation: Conversation, sample: Sample) -> None:
        """Record one sampled message, let the dialogue act on it, and append what the model is told."""
        read_before = len(conversation.context)
        conversation.add_sampled(sample)
        dialogue = conversation.dialogue
        spoken = sample.ids[:-1] if sample.stopped else sample.ids
        message = self.read(self.tokenizer.decode(spoken, skip_special_tokens=False), conversation)
        replies = dialogue.read(
            dataclasses.replace(
                message,
                cut=not sample.stopped,
                tokens=len(sample.ids),
                prompt_tokens=read_before,
                logprob=sum(sample.logprobs),
            )
        )
        if not replies:
            return
        between = self.chat.closing(replies)
        if sample.ids[-1] != self.chat.end_id:  # cut, or ended by another stop token: the template closes it
            between = [self.chat.end_id, *between]
        conversation.add_given(between)
        conversation.exchanges.append(len(conversation.completion_ids))
        opening, limit = len(conversation.prompt_ids), self._window - dialogue.allowance
        if self.rules.window and len(conversation.context) > limit:
            conversation.forget(opening + (self._window - opening) // 2, limit)

    def read(self, text: str, conversation: Conversation) -> Message:
        """Read one message of this model."""
        if not conversation.dialogue.episode.view.tools:
            return Message(text)
        return read_message(text, self.chat.family, conversation.dialogue)

    def trace(self, conversation: Conversation) -> Trace:
        """Return the trace of a conversation that has ended."""
        config = self.model.config
        about = {
            "kind": "language",
            "model": model_name(str(config.name_or_path)),
            "model_hash": self._playing or self.model_hash,
            "architecture": (config.architectures or [type(self.model).__name__])[0],
            "protocol": self.chat.family,
            "protocol_reason": self.chat.reason,
            "reread": self.engine.why_reread,
            "sampling": dataclasses.asdict(self.engine.sampling),
            "seed": self.seed,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }
        sampled = sum(conversation.tool_mask)
        tokens = {
            "prompt": len(conversation.prompt_ids),
            "sampled": sampled,
            "given": len(conversation.completion_ids) - sampled,
            "logprob": sum(conversation.logprobs),
        }
        return conversation.dialogue.trace(self.name, about, tokens)


HASHED_ENTRIES = 256  # of each parameter, evenly spaced


def model_hash(model: Any) -> str:
    """Return 16 hex digits that tell this model from another: its configuration and its weights, not where they lie.

    Of each parameter the name, shape, type and HASHED_ENTRIES evenly spaced entries are hashed, so that a model of
    billions of parameters costs milliseconds a gigabyte. Training changes every matrix, so a checkpoint has a hash of
    its own; a change of a single entry by hand may go unseen.
    """
    config = [type(model).__name__, _without_origin(model.config.to_dict())]
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.is_meta:  # its entries lie on disk
            continue
        flat = weight.detach().reshape(-1)
        places = torch.arange(min(len(flat), HASHED_ENTRIES), device=flat.device)
        kept = flat[places * max(1, len(flat) // HASHED_ENTRIES)]
        digest.update(kept.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _without_origin(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what saving and loading write into it; types stand with the weights."""
    return {
        name: _without_origin(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
    }


def read_message(text: str, family: str, dialogue: Dialogue) -> Message:
    """Read the calls of one message, and what is irregular about it."""
    shown = visible(text)
    calls = read_calls(shown, family, dialogue.episode.view.tools)
    if family != "text":
        return Message(text, calls)
    several = count_lines(shown) > 1
    notes = ["several CALL lines; the first is executed"] if several else []
    return Message(text, calls, finished=not calls and says_done(shown), notes=notes)
