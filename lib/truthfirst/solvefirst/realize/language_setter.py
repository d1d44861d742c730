"""LanguageSetter: a language model writes the words of an environment, and nothing that it says is trusted.

    transport = EndpointTransport("http://localhost:8000/v1", "Qwen/Qwen3-8B")
    setter = LanguageSetter(transport, prices=Prices(0.0, 0.0), log=Path("answers.jsonl"))
    environment = build_candidate(Recipe("rationing", "small"), setter)

The model is asked (`asking.py`) through a transport (`transports.py`), its answer is read and vetted (`vetting.py`),
and where it cannot be used the reasons go back to the model, a bounded number of times. Every answer is appended to
the log with its reasons, tokens and dollars before anything else happens to it.

Two ways to fail. `SetterError` (a SpecError) says that this model found no usable words for this task: the candidate
is rejected. `SetterUnavailable` says that there is nobody to ask (no server, wrong key, no tokens left for the
setter): that is no verdict on a candidate, and a build should stop and resume later.

Tokens are billed as reported where the report can be true (`believable`), else as counted here; both are kept. A
token budget is kept by asking for no longer an answer than it can pay for, with the prompt as counted here, so a
server that counts otherwise can pass it by one answer's prompt.

Nothing makes a model write the same words twice. An environment built here holds the accepted words in its recipe,
and is built again from them without a model.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...core_yaml import YamlError, load_yaml
from ...episode import printable
from ...records import append_jsonl, content_hash
from .asking import AnswerError, answer_schema, messages, read_answer
from .setter import SetterTask
from .spec import SpecError, WorldSpec
from .transports import Ask, EndpointTransport, Messages, Reply, Transport, TransportError

SETTINGS = "TRUTHFIRST_SETTERS"  # environment variable: path of a YAML file, see `from_settings`
PREFIX = "language:"
MIN_ANSWER_TOKENS = 64  # with fewer left to pay for, the model is not asked
ECHO = 8_000  # characters of a refused answer that the model is shown again
MARKUP_TOKENS = 64  # of a chat template and special tokens, beside those of the text
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,199}")


class SetterError(SpecError):
    """A model wrote no usable spec; `reasons` holds one line an answer."""

    def __init__(self, message: str, reasons: list[str]) -> None:
        super().__init__(message)
        self.reasons = reasons


class SetterUnavailable(RuntimeError):
    """There is nobody to ask; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens; both 0.0 for a model of one's own."""

    prompt: float
    completion: float

    def of(self, prompt: int, completion: int) -> float:
        """Return the dollars of so many tokens."""
        return (self.prompt * prompt + self.completion * completion) / 1e6


@dataclass(frozen=True, slots=True)
class Limits:
    """What one environment may cost, and the setter in all.

    answers          asked for at most, the first one included
    answer_tokens    longest answer
    tokens           of all prompts and answers of one environment
    lifetime_tokens  of all environments of this setter, None: no limit
    seconds          of one environment: no further answer is asked for after them
    """

    answers: int = 3
    answer_tokens: int = 6_000
    tokens: int = 60_000
    lifetime_tokens: int | None = None
    seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.answers < 1 or self.answer_tokens < MIN_ANSWER_TOKENS:
            raise ValueError(
                f"answers must be at least 1 and answer_tokens at least {MIN_ANSWER_TOKENS}, "
                f"got {self.answers} and {self.answer_tokens}"
            )


@dataclass
class Account:
    """What a setter has used: tokens as reported, as counted here and as billed, and requests sent."""

    requests: int = 0
    answers: int = 0
    reported: int = 0
    counted: int = 0
    prompt: int = 0
    completion: int = 0


class LanguageSetter:
    """Writes specs with a language model; see the module docstring.

    log         JSONL file that every answer is appended to; None keeps nothing (for tests)
    tokenizer   text -> number of tokens; by default a token is taken to be four bytes
    """

    def __init__(
        self,
        transport: Transport,
        *,
        prices: Prices,
        log: Path | None,
        limits: Limits | None = None,
        temperature: float = 0.7,
        tokenizer: Callable[[str], int] | None = None,
        passage_characters: int = 6_000,
    ) -> None:
        if not _MODEL.fullmatch(transport.model):
            raise ValueError(
                f"model name {transport.model!r}: use letters, digits and . _ / : @ + -, at most 200 of them"
            )
        self.name = f"{PREFIX}{transport.model}"
        self.transport, self.prices, self.log = transport, prices, log
        self.limits, self.temperature = limits or Limits(), temperature
        self.passage_characters, self.account = passage_characters, Account()
        self._count = tokenizer or (lambda text: -(-len(text.encode(errors="replace")) // 4))

    @property
    def tokens(self) -> int:
        """Billed tokens so far, prompts and answers."""
        return self.account.prompt + self.account.completion

    @property
    def dollars(self) -> float:
        return self.prices.of(self.account.prompt, self.account.completion)

    def write(self, task: SetterTask, rng: np.random.Generator) -> WorldSpec:
        """Return the first usable spec; raise SetterError or SetterUnavailable."""
        phrasing, seed = int(rng.integers(0, 1_000_000)), int(rng.integers(2**31))
        opening, schema = messages(task, self.passage_characters), answer_schema(task)
        talk, reasons, unreachable = list(opening), list[str](), list[str]()
        started, before = time.monotonic(), self.tokens
        for attempt in range(self.limits.answers):
            room = self._room(talk, before)
            late = time.monotonic() - started > self.limits.seconds
            if late or room < MIN_ANSWER_TOKENS:
                what = f"{self.limits.seconds:g} s" if late else f"{self.limits.tokens} tokens"
                reasons.append(f"budget: the {what} of one environment are spent")
                self._keep(task, attempt, opening, None, "budget", [reasons[-1]])
                break
            asked = time.monotonic()
            request = Ask(talk, schema, room, self.temperature, (seed + attempt) % 2**31)
            try:
                reply = self.transport.ask(request)
            except TransportError as error:
                self.account.requests += error.tries
                reasons.append(f"transport: {error}")
                self._keep(
                    task,
                    attempt,
                    opening,
                    None,
                    "transport",
                    [str(error)],
                    seconds=round(time.monotonic() - asked, 3),
                )
                if error.declined:
                    break
                unreachable.append(str(error))
                continue
            used = self._bill(talk, reply, room)
            kept: dict[str, Any] = {
                "tokens": used,
                "seconds": round(time.monotonic() - asked, 3),
                "finish": reply.finish,
            }
            try:
                spec = read_answer(reply.text, task, phrasing, self.name)
            except AnswerError as error:
                reasons.append(str(error))
                self._keep(
                    task, attempt, opening, reply.text, error.stage, error.reasons, check=error.check, **kept
                )
                talk = [*opening, *_feedback(reply, error)]
                continue
            stored = spec.model_dump(mode="json")
            self._keep(task, attempt, opening, reply.text, "accepted", [], spec=stored, **kept)
            return spec
        if unreachable and len(unreachable) == len(reasons):
            raise SetterUnavailable(
                f"{self.name} cannot be asked ({unreachable[-1]}): see that its server runs, then go on"
            )
        raise SetterError(
            f"{self.name} wrote no usable spec in {len(reasons)} tries: {'; '.join(reasons)[:1_500]}", reasons
        )

    # --- tokens -------------------------------------------------------------------------------------
    def _room(self, talk: Messages, before: int) -> int:
        """Return how long an answer may be; raise SetterUnavailable when the setter's lifetime is spent."""
        prompt = self._prompt_tokens(talk)
        left = self.limits.tokens - (self.tokens - before) - prompt
        if self.limits.lifetime_tokens is not None:
            rest = self.limits.lifetime_tokens - self.tokens - prompt
            if rest < MIN_ANSWER_TOKENS:
                raise SetterUnavailable(
                    f"{self.name} has used {self.tokens} of {self.limits.lifetime_tokens} tokens: raise lifetime_tokens"
                )
            left = min(left, rest)
        return min(left, self.limits.answer_tokens)

    def _prompt_tokens(self, talk: Messages) -> int:
        return sum(self._count(message["content"]) for message in talk)

    def _bill(self, talk: Messages, reply: Reply, room: int) -> dict[str, Any]:
        """Add an answer to the account; return its tokens as reported, counted and billed, and its dollars."""
        counted = (self._prompt_tokens(talk), self._count(reply.text))
        reported = (reply.prompt_tokens, reply.completion_tokens)
        sizes = (
            sum(len(m["content"].encode(errors="replace")) for m in talk),
            len(reply.text.encode(errors="replace")),
        )
        billed = [
            said if believable(said, size, most) else own
            for said, own, size, most in zip(reported, counted, sizes, (None, room), strict=True)
        ]
        account = self.account
        account.requests += reply.tries
        account.answers += 1
        account.reported += sum(n for n in map(_plain, reported) if isinstance(n, int))
        account.counted += sum(counted)
        account.prompt += billed[0]
        account.completion += billed[1]
        return {
            "prompt": {"reported": _plain(reported[0]), "counted": counted[0], "billed": billed[0]},
            "completion": {"reported": _plain(reported[1]), "counted": counted[1], "billed": billed[1]},
            "dollars": self.prices.of(*billed),
        }

    # --- the log ------------------------------------------------------------------------------------
    def _keep(
        self,
        task: SetterTask,
        attempt: int,
        opening: Messages,
        raw: str | None,
        outcome: str,
        reasons: list[str],
        **more: Any,
    ) -> None:
        """Append what came of one attempt; the opening request is kept once a task, with the first attempt."""
        if self.log is None:
            return
        record = {
            "setter": self.name,
            "family": task.family.name,
            "counts": task.counts,
            "domain": task.passage.domain,
            "passage": task.passage.id,
            "request": content_hash(list(opening)),
            "attempt": attempt,
            "outcome": outcome,
            "reasons": [printable(reason) for reason in reasons],
            "raw": None if raw is None else printable(raw),
        } | more
        if attempt == 0:
            record["messages"] = list(opening)
        append_jsonl(self.log, record)


def believable(reported: Any, size: int, most: int | None) -> bool:
    """Say whether a token count can be true of a text of `size` bytes, of which at most `most` tokens were allowed."""
    if not isinstance(reported, int) or isinstance(reported, bool):
        return False
    within = most is None or reported <= most + MARKUP_TOKENS
    return within and size // 64 <= reported <= size + MARKUP_TOKENS and (reported > 0 or size == 0)


def _plain(value: Any) -> int | str | None:
    """Return what a server reported in a form that can be stored: a count, or what it said instead."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if value is None or whole else str(value)[:80]


def _feedback(reply: Reply, error: AnswerError) -> list[dict[str, str]]:
    """Return the messages that show a model its answer and what is wrong with it."""
    told = "\n".join(f"- {reason}" for reason in error.reasons)
    cut = " Your answer was cut off at its end: be shorter." if reply.finish == "length" else ""
    again = f"That answer cannot be used.{cut}\n{told}\nSend the whole JSON object again, corrected, and nothing else."
    return [
        {"role": "assistant", "content": printable(reply.text[:ECHO]) or "(nothing)"},
        {"role": "user", "content": printable(again)},
    ]


# --- configuration ----------------------------------------------------------------------------------------
class Settings(BaseModel):
    """How one model is reached: an entry of the settings file. The key stays in OPENAI_API_KEY.

    log     folder; every process appends to a file of its own in it
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    url: str
    log: Path
    prompt_price: Annotated[float, Field(ge=0)]  # US dollars for a million tokens
    completion_price: Annotated[float, Field(ge=0)]
    structured: bool = True
    timeout: Annotated[float, Field(gt=0)] = 120.0
    retries: Annotated[int, Field(ge=0)] = 3
    temperature: Annotated[float, Field(ge=0)] = 0.7
    answers: Annotated[int, Field(ge=1)] = 3
    answer_tokens: Annotated[int, Field(ge=MIN_ANSWER_TOKENS)] = 6_000
    tokens: Annotated[int, Field(ge=1)] = 60_000
    extra: dict[str, Any] = Field(default_factory=dict)


def from_settings(name: str) -> LanguageSetter:
    """Return the setter `language:MODEL` as the settings file says, which TRUTHFIRST_SETTERS names.

    The file is YAML, one entry a model: ``MODEL: {url: ..., log: ..., prompt_price: ..., completion_price: ...}``.
    Raises SetterUnavailable that names what is missing.
    """
    model, file = name.removeprefix(PREFIX), os.environ.get(SETTINGS)
    if not file:
        raise SetterUnavailable(
            f"{name}: set {SETTINGS} to a YAML file with an entry {model!r} (url, log, prompt_price, completion_price)"
        )
    try:
        entries = load_yaml(Path(file).read_text(encoding="utf-8"), file)
        found = Settings.model_validate(entries[model])
    except (OSError, UnicodeDecodeError, YamlError, KeyError, TypeError, ValidationError) as error:
        raise SetterUnavailable(f"{name}: {file} has no usable entry {model!r} ({error})") from error
    transport = EndpointTransport(
        found.url,
        model,
        structured=found.structured,
        timeout=found.timeout,
        retries=found.retries,
        extra=found.extra,
    )
    return LanguageSetter(
        transport,
        prices=Prices(found.prompt_price, found.completion_price),
        log=found.log / f"{socket.gethostname()}-{os.getpid()}.jsonl",
        limits=Limits(found.answers, found.answer_tokens, found.tokens),
        temperature=found.temperature,
    )
