"""Transports: how a language model is asked for one answer. They know messages and tokens, no environments.

`EndpointTransport` posts to any OpenAI-compatible chat completions endpoint (a hosted model, vLLM, SGLang,
`transformers serve`); `LocalTransport` wraps a function that writes text, such as a transformers model. Both answer
with what was said and what the far side says it used; nobody here believes either.

A request that fails in passing (connection, timeout, status 408, 409, 425, 429 or 5xx, a body that is no completion)
is tried again a bounded number of times after growing pauses. The whole answer must arrive within `timeout` seconds,
however slowly it drips. No key is stored, logged or shown in an error.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

PASSING = frozenset({408, 409, 425, 429})  # statuses worth another try, beside every 5xx
PROMPT_FAULTS = frozenset({400, 413, 422, 451})  # the server is there and declines this request
MAX_BODY_BYTES = 8 * 2**20

Messages = Sequence[dict[str, str]]


class TransportError(RuntimeError):
    """No answer was to be had; `declined` says that the server is there and refuses this very request."""

    def __init__(self, reason: str, *, tries: int = 1, declined: bool = False) -> None:
        super().__init__(reason)
        self.tries, self.declined = tries, declined


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: messages in chat order, the JSON schema of the answer, and how to sample.

    max_tokens    of the answer
    seed          sent along; a server may ignore it
    """

    messages: Messages
    schema: dict[str, Any]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; token counts are what the far side reports (any JSON value, None where it says nothing)."""

    text: str
    finish: str | None = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    tries: int = 1


class Transport(Protocol):
    """Whoever can be asked; `model` names it in every manifest."""

    model: str

    def ask(self, request: Ask) -> Reply:
        """Return one answer, or raise TransportError."""
        ...


class LocalTransport:
    """A model in this process: `generate(messages, max_tokens, temperature, seed)` returns the text it writes."""

    def __init__(self, model: str, generate: Callable[[Messages, int, float, int], str]) -> None:
        self.model, self._generate = model, generate

    @classmethod
    def load(cls, path: str, model: str, **loading: Any) -> LocalTransport:
        """Load a causal language model with transformers; `loading` goes to its tokenizer and its model."""
        import torch  # an extra
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(path, **loading)
        network = AutoModelForCausalLM.from_pretrained(path, **loading).eval()

        def generate(messages: Messages, max_tokens: int, temperature: float, seed: int) -> str:
            text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
            inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
            how = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
            with torch.no_grad():
                torch.manual_seed(seed)
                written = network.generate(**inputs, max_new_tokens=max_tokens, **how)
            return str(tokenizer.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))

        return cls(model, generate)

    def ask(self, request: Ask) -> Reply:
        text = self._generate(request.messages, request.max_tokens, request.temperature, request.seed)
        return Reply(text)


class EndpointTransport:
    """Chat completions over HTTP.

    url         up to and with /v1
    key         sent as a bearer token; default: the environment variable OPENAI_API_KEY, if set
    structured  send response_format json_schema; False for servers that refuse it. Servers that ignore it do no harm,
                since the answer is checked on this side in any case
    timeout     seconds for one whole answer; retries: further tries after a failure in passing
    first_pause   seconds before the first of them; doubled each time, at most 30
    extra       further fields of every request, over ours: {"model": PATH} where a server calls the model otherwise
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        structured: bool = True,
        timeout: float = 120.0,
        retries: int = 3,
        first_pause: float = 0.5,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url must start with http:// or https:// and end in /v1, got {url!r}")
        if timeout <= 0 or retries < 0:
            raise ValueError(
                f"timeout must be above 0 and retries at least 0, got {timeout!r} and {retries!r}"
            )
        self.url, self.model, self.structured = url.rstrip("/"), model, structured
        self.timeout, self.retries, self.first_pause = timeout, retries, first_pause
        self.extra = dict(extra or {})
        key = key if key is not None else os.environ.get("OPENAI_API_KEY")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def body(self, request: Ask) -> dict[str, Any]:
        """Return the JSON body of a request."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(request.messages),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
        }
        if self.structured:
            form = {"name": "world_spec", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body | self.extra

    def ask(self, request: Ask) -> Reply:
        body, reason = json.dumps(self.body(request)), "never sent"
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(min(30.0, self.first_pause * 2 ** (attempt - 1)))
            try:
                status, data = self._post(body)
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if status == 200:
                reply = read_completion(data, attempt + 1)
                if reply is not None:
                    return reply
                reason = f"no chat completion in the answer: {data[:120]!a}"
                continue
            reason = f"status {status}: {data[:200]!a}"
            if status not in PASSING and status < 500:
                raise TransportError(reason, tries=attempt + 1, declined=status in PROMPT_FAULTS)
        raise TransportError(f"gave up after {self.retries + 1} tries: {reason}", tries=self.retries + 1)

    def _post(self, body: str) -> tuple[int, bytes]:
        """Post once; the whole answer must be there within the timeout and within the size that is read."""
        deadline = time.monotonic() + self.timeout
        parts: list[bytes] = []
        size = 0
        with httpx.stream(
            "POST",
            f"{self.url}/chat/completions",
            content=body,
            headers=self._headers,
            timeout=self.timeout,
        ) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the answer was not complete after {self.timeout:g} s")
                if size > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"the answer has more than {MAX_BODY_BYTES} bytes")
            return response.status_code, b"".join(parts)


def read_completion(data: bytes, tries: int) -> Reply | None:
    """Return the first choice of a chat completion, or None where the body is none."""
    try:
        body = json.loads(data)
        choice = body["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, RecursionError, KeyError, IndexError, TypeError):
        return None
    if text is None:  # some servers say this where a model wrote nothing
        text = ""
    if not isinstance(text, str):
        return None
    usage = body["usage"] if isinstance(body.get("usage"), dict) else {}
    finish = choice.get("finish_reason")
    return Reply(
        text,
        finish if isinstance(finish, str) else None,
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        tries,
    )
