"""An OpenAI-compatible server as a policy: vLLM, SGLang, `transformers serve`, or a hosted model.

    policy = EndpointPolicy("http://localhost:8000/v1", "Qwen/Qwen3-8B", concurrency=32)
    traces = roll_out(policy, episodes)

Requests run in threads; episodes are only ever touched by the caller's thread (a wing's database may be bound to it).

A request that fails in passing (connection refused or dropped, no complete answer within `timeout` seconds however
slowly it drips, status 408, 409, 425, 429 or 5xx, a body that is no chat completion) is tried again, `retries` times
at most, after exponentially growing pauses (or what Retry-After asks, up to the longest pause). When tries run out, or
the server refuses for good (any other status), the episode is stopped with end `server` and the reason in the trace's
header; nothing is raised and the other episodes go on.

Tokens: the server's `usage` is believed only when it can be true: a positive whole number, no more than was allowed,
no more than the text has bytes and no fewer than a sixty-fourth of them, and within a quarter of our own count where
`tokenizer` is given. Otherwise the message is counted here (with the tokenizer, else as a quarter of its bytes) and
the message says `usage missing` or `usage implausible`. Limits of the episode apply to the number that is believed.

It does not promise determinism: `seed` is sent, and a server may ignore it. No key is stored or recorded.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeGuard

import httpx

from ..episode import printable
from ..streams import derive
from ..types import Episode, Trace
from .base import Sampling, addresses, model_name
from .calls import UNREADABLE, Call, count_lines, read_calls, says_done, text_instructions, visible
from .dialogue import Dialogue, Message, Reply, Rules

PASSING = frozenset({408, 409, 425, 429})  # statuses worth another try, beside every 5xx
MAX_BODY_BYTES = 8 * 2**20
HIDDEN_TOKENS = 64  # markup of calls and special tokens that a server counts and does not show


class EndpointError(ValueError):
    """The endpoint's settings cannot work; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Network:
    """timeout and pauses in seconds; the n-th pause is drawn from [1/2, 1] of min(longest_pause, first_pause 2^n)."""

    timeout: float = 120.0
    retries: int = 4
    first_pause: float = 0.5
    longest_pause: float = 30.0


@dataclass(frozen=True, slots=True)
class _Answer:
    """A server's answer, or why there is none."""

    body: dict[str, Any] | None
    tries: int
    seconds: float
    error: str | None = None


class EndpointPolicy:
    """Plays episodes with a chat-completions endpoint; see the module docstring.

    url          up to and with /v1
    key          sent as a bearer token; default: the environment variable OPENAI_API_KEY, if set
    protocol     "tools": the server's tool calling; "text": one CALL line a message, for models without
    concurrency  requests in flight at once
    tokenizer    text -> number of tokens, to check what the server says it used
    extra        further fields of every request, such as {"chat_template_kwargs": {"enable_thinking": False}}
    """

    def __init__(
        self,
        url: str,
        model: str,
        name: str | None = None,
        *,
        key: str | None = None,
        sampling: Sampling | None = None,
        rules: Rules | None = None,
        seed: int = 0,
        protocol: str = "tools",
        concurrency: int = 16,
        network: Network | None = None,
        tokenizer: Callable[[str], int] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise EndpointError(f"url must start with http:// or https:// and end in /v1, got {url!r}")
        if protocol not in ("tools", "text"):
            raise EndpointError(f"unknown protocol {protocol!r}: choose tools or text")
        if concurrency < 1:
            raise EndpointError(f"concurrency must be at least 1, got {concurrency}")
        self.url, self.model, self.name = url.rstrip("/"), model, name or model_name(model)
        self.sampling, self.rules, self.seed = sampling or Sampling(), rules or Rules(), seed
        self.protocol, self.concurrency, self.network = protocol, concurrency, network or Network()
        self.tokenizer, self.extra = tokenizer, dict(extra or {})
        key = key if key is not None else os.environ.get("OPENAI_API_KEY")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def play(self, episodes: Sequence[Episode]) -> list[Trace]:
        """Play fresh episodes to their ends; see `base.Policy`."""
        talks = [
            _Talk(self, episode, *address)
            for episode, address in zip(episodes, addresses(episodes), strict=True)
        ]
        waiting = deque(talks)
        flying: dict[Future[_Answer], _Talk] = {}
        limits = httpx.Limits(max_connections=self.concurrency)
        with (
            httpx.Client(headers=self._headers, limits=limits, timeout=self.network.timeout) as client,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
            while waiting or flying:
                while waiting and len(flying) < self.concurrency:
                    talk = waiting.popleft()
                    request = talk.request()
                    flying[pool.submit(self._ask, client, request, request["seed"])] = talk
                landed, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in landed:
                    talk = flying.pop(future)
                    talk.take(future.result())
                    if talk.dialogue.end is None:
                        waiting.append(talk)
        return [talk.trace() for talk in talks]

    # --- one request ----------------------------------------------------------------------------------
    def _ask(self, client: httpx.Client, request: dict[str, Any], seed: int) -> _Answer:
        """Send one request until it is answered or tries run out. Runs in a thread; touches no episode."""
        started = time.monotonic()
        jitter = random.Random(seed)
        error = "never sent"
        for attempt in range(self.network.retries + 1):
            asked_pause = 0.0
            try:
                status, headers, data = self._post(client, request)
                if status == 200:
                    body = _completion(data)
                    if body is not None:
                        return _Answer(body, attempt + 1, time.monotonic() - started)
                    error = f"no chat completion in the answer: {data[:120].decode(errors='replace')!r}"
                else:
                    error = f"status {status}: {data[:200].decode(errors='replace')}"
                    if status not in PASSING and status < 500:
                        return _Answer(None, attempt + 1, time.monotonic() - started, error)
                    asked_pause = _seconds(headers.get("retry-after"))
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as failure:
                error = f"{type(failure).__name__}: {failure}"
            if attempt < self.network.retries:
                grown = min(self.network.longest_pause, self.network.first_pause * 2**attempt)
                pause = max(grown * (0.5 + 0.5 * jitter.random()), asked_pause)
                time.sleep(min(self.network.longest_pause, pause))
        tries = self.network.retries + 1
        return _Answer(None, tries, time.monotonic() - started, f"gave up after {tries} tries: {error}")

    def _post(self, client: httpx.Client, request: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """Post once; the whole answer must be there within the timeout, and within the size that is read."""
        deadline = time.monotonic() + self.network.timeout
        with client.stream("POST", f"{self.url}/chat/completions", content=json.dumps(request)) as response:
            parts, size = [], 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"the answer was not complete after {self.network.timeout:g} s")
                if size > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"the answer has more than {MAX_BODY_BYTES} bytes")
            return response.status_code, response.headers, b"".join(parts)


class _Talk:
    """One episode's conversation with the server: messages so far, and what they cost."""

    def __init__(self, policy: EndpointPolicy, episode: Episode, address: str, number: int) -> None:
        self.policy, self.address = policy, (address, number)
        self.dialogue = Dialogue(episode, policy.rules)
        self.messages: list[dict[str, Any]] = [dict(message) for message in episode.view.prompt]
        self.exchanges: deque[int] = deque()  # messages of each exchange that the server is still sent
        self.tools = [tool.openai() for tool in episode.view.tools]
        if self.tools and policy.protocol == "text":
            note = text_instructions(episode.view.tools)
            if self.messages and self.messages[0]["role"] == "system":
                self.messages[0]["content"] += f"\n\n{note}"
            else:
                self.messages.insert(0, {"role": "system", "content": note})
        # Messages of the instructions, and of the whole conversation so far with those that were forgotten.
        self.opening = self.length = len(self.messages)
        self.account = {"prompt": 0, "sampled": 0, "recounted_messages": 0, "requests": 0, "retries": 0}
        self.seconds = 0.0

    def request(self) -> dict[str, Any]:
        """Return the next request's body."""
        policy, how = self.policy, self.policy.sampling
        body: dict[str, Any] = {
            "model": policy.model,
            "messages": self.messages,
            "max_tokens": self.dialogue.allowance,
            "temperature": how.temperature,
            "seed": derive(policy.seed, "request", *self.address, self.length) % 2**31,
        }
        if how.top_p < 1:
            body["top_p"] = how.top_p
        if how.top_k:
            body["top_k"] = how.top_k  # not OpenAI's, but vLLM's and SGLang's
        if self.tools and policy.protocol == "tools":
            body["tools"] = self.tools
        return body | policy.extra

    def take(self, answer: _Answer) -> None:
        """Act on an answer; on none, the episode is stopped."""
        self.account["requests"] += answer.tries
        self.account["retries"] += answer.tries - 1
        self.seconds += answer.seconds
        if answer.body is None:
            self.dialogue.fail("server", answer.error)
            return
        choice = answer.body["choices"][0]
        said = choice["message"]
        text = said.get("content") if isinstance(said.get("content"), str) else ""
        calls, notes = self._calls(said, text)
        tokens, prompt_tokens, doubt = self._usage(answer.body, said, text)
        if doubt:
            notes.append(doubt)
            self.account["recounted_messages"] += 1
        self.account["sampled"] += tokens
        self.account["prompt"] += prompt_tokens or 0
        finished = self.policy.protocol == "text" and not calls and says_done(visible(text))
        message = Message(
            text,
            calls,
            cut=choice.get("finish_reason") == "length",
            finished=finished,
            notes=notes,
            tokens=tokens,
            prompt_tokens=prompt_tokens,
        )
        replies = self.dialogue.read(message)
        if replies:
            before = len(self.messages)
            self._append(text, said, calls, replies)
            self.exchanges.append(len(self.messages) - before)
            self.length += self.exchanges[-1]
            self._forget((prompt_tokens or len(json.dumps(self.messages)) // 4) + tokens)

    def _forget(self, read: int) -> None:
        """Drop the older half of the exchanges where a request might exceed the window; `read`: tokens so far."""
        window = self.policy.rules.window
        if not window or read + 2 * self.dialogue.allowance <= window:
            return
        dropped = [self.exchanges.popleft() for _ in range(len(self.exchanges) // 2)]
        del self.messages[self.opening : self.opening + sum(dropped)]
        self.dialogue.forget(len(dropped))

    def _calls(self, said: dict[str, Any], text: str) -> tuple[list[Call], list[str]]:
        """Return the calls of a message, and what is irregular about it."""
        tools = self.dialogue.episode.view.tools
        if not tools:
            return [], []
        if self.policy.protocol == "text":
            several = count_lines(visible(text)) > 1
            calls = read_calls(visible(text), "text", tools)
            return calls, ["several CALL lines; the first is executed"] if several else []
        listed = said.get("tool_calls")
        if isinstance(listed, list) and listed:
            return [_read_call(entry) for entry in listed], []
        if "<tool_call>" in visible(text):  # a server started without a parser for its model's calls
            family = "xml" if "<function=" in text else "hermes"
            return read_calls(visible(text), family, tools), ["calls left in the text by the server"]
        return [], []

    def _append(
        self, text: str, said: dict[str, Any], calls: Sequence[Call], replies: Sequence[Reply]
    ) -> None:
        """Append the message and what the model is told next."""
        text = printable(text)  # a lone surrogate may come out of JSON and must not go back in
        native = isinstance(said.get("tool_calls"), list) and bool(said["tool_calls"])
        if not native or replies[0].role == "user" or self.policy.protocol == "text":
            self.messages.append({"role": "assistant", "content": text})
            told = printable("\n".join(reply.text for reply in replies))
            self.messages.append({"role": "user", "content": told})
            return
        entries, results = [], []
        for number, reply in enumerate(
            replies
        ):  # calls that were not executed are left out: each needs a result
            call = reply.call
            assert call is not None
            identifier = call.identifier or f"call{self.length:04d}{number}"
            name = printable(call.name)
            function = {"name": name, "arguments": _echo(call.arguments)}
            entries.append({"id": identifier, "type": "function", "function": function})
            results.append(
                {"role": "tool", "tool_call_id": identifier, "name": name, "content": printable(reply.text)}
            )
        self.messages.append({"role": "assistant", "content": text, "tool_calls": entries})
        self.messages += results

    def _usage(
        self, body: dict[str, Any], said: dict[str, Any], text: str
    ) -> tuple[int, int | None, str | None]:
        """Return (tokens of the message, of the prompt, what is wrong with the server's account)."""
        hidden = [said[key] for key in ("tool_calls", "reasoning_content") if said.get(key)]
        written = text + (json.dumps(hidden) if hidden else "")
        size = len(written.encode(errors="replace"))
        counted = self.policy.tokenizer(written) if self.policy.tokenizer else -(-size // 4)
        usage = body.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        said_tokens, said_prompt = usage.get("completion_tokens"), usage.get("prompt_tokens")
        prompt = said_prompt if _whole(said_prompt) and said_prompt > 0 else None
        if said_tokens is None:
            return counted, prompt, "usage missing"
        believable = (
            _whole(said_tokens)
            and size // 64 <= said_tokens <= self.dialogue.allowance + HIDDEN_TOKENS
            and (said_tokens <= size + HIDDEN_TOKENS)
            and (said_tokens > 0 or size == 0)
        )
        if believable and self.policy.tokenizer:
            believable = abs(said_tokens - counted) <= HIDDEN_TOKENS + counted // 4
        return (said_tokens, prompt, None) if believable else (counted, prompt, "usage implausible")

    def trace(self) -> Trace:
        policy = self.policy
        about = {
            "kind": "endpoint",
            "model": model_name(policy.model),
            "protocol": policy.protocol,
            "sampling": dataclasses.asdict(policy.sampling),
            "seed": policy.seed,
            "network": dataclasses.asdict(policy.network),
            "extra": policy.extra,
            "versions": {"httpx": httpx.__version__},
        }
        return self.dialogue.trace(policy.name, about, self.account | {"seconds": round(self.seconds, 3)})


# --- reading what a server sends --------------------------------------------------------------------------
def _completion(data: bytes) -> dict[str, Any] | None:
    """Return a chat completion that has a first choice with a message, else None."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    return body if isinstance(choices[0].get("message"), dict) else None


def _read_call(entry: Any) -> Call:
    """Return one entry of `tool_calls` as a call, whatever it holds."""
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        return Call(UNREADABLE, entry, "an entry of tool_calls without a function's name")
    identifier = entry.get("id") if isinstance(entry.get("id"), str) and entry.get("id") else None
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return Call(function["name"], {} if arguments is None else arguments, None, identifier)
    try:
        return Call(
            function["name"],
            json.loads(arguments, strict=False) if arguments.strip() else {},
            None,
            identifier,
        )
    except (ValueError, RecursionError) as error:
        reason = f"its arguments are not JSON ({type(error).__name__})"
        return Call(function["name"], arguments, reason, identifier)


def _echo(value: Any) -> str:
    """Return JSON text of what a model wrote; a server that renders it again must be able to read it."""
    return json.dumps(value if isinstance(value, dict) else {"unreadable": str(value)[:2_000]})


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _seconds(value: str | None) -> float:
    """Return a Retry-After in seconds; a date or nonsense counts as 0."""
    try:
        seconds = float(value or 0)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
