"""A small OpenAI-compatible server: chat completions of whatever answers them, on the loopback interface.

    with serving(answer, "my-model") as url:   # http://127.0.0.1:PORT/v1
        ...

`answer(body, headers)` gets a request's JSON and its headers (names in lower case) and returns a chat completion
(`completion` makes one). Requests come in threads; what cannot run in several at once brings its own lock. A
BadRequestError is answered with status 400 and its message. There is no key, no streaming, and nothing listens beyond
this machine; for more than one evaluation on one machine use vLLM, SGLang or `transformers serve` and name their URL
instead.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CASE = "x-benchmark-case"  # the case that a scripted player is asked for; never sent to a model
MAX_REQUEST_BYTES = 64 * 2**20
Answer = Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]]


class BadRequestError(ValueError):
    """A request cannot be answered; the message is for the client."""


def completion(
    message: dict[str, Any], *, finish: str | None = None, prompt_tokens: int = 0, tokens: int = 0
) -> dict[str, Any]:
    """Return a chat completion with one choice; `message` has content, and tool_calls if there are any."""
    reason = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    return {
        "id": "chatcmpl-local",
        "object": "chat.completion",
        "created": 0,
        "choices": [{"index": 0, "message": {"role": "assistant"} | message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }


@contextmanager
def serving(answer: Answer, model: str) -> Iterator[str]:
    """Serve POST /v1/chat/completions by `answer` and GET /v1/models; yield the base URL."""

    class Handler(_Handler):
        respond = staticmethod(answer)
        name = model

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    respond: Answer
    name: str

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": self.name, "object": "model"}]})
        else:
            self._refuse(404, f"no such address: {self.path}")

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            size = -1
        if not 0 <= size <= MAX_REQUEST_BYTES:
            self.close_connection = True  # the body is not read
            self._refuse(400, f"Content-Length must be given and at most {MAX_REQUEST_BYTES}")
            return
        data = self.rfile.read(size)
        if self.path != "/v1/chat/completions":
            self._refuse(404, f"no such address: {self.path}")
            return
        try:
            body = json.loads(data)
            check_request(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._send(200, type(self).respond(body, headers) | {"model": self.name})
        except (ValueError, RecursionError) as error:  # BadRequestError, or a body that is no JSON
            self._refuse(400, str(error))

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error", "code": status}})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Stay silent: the evaluating suite shows its own progress."""


def check_request(body: Any) -> None:
    """Raise BadRequestError unless `body` has what every answer reads: messages with roles and text."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with at least one message")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in (
            "system",
            "user",
            "assistant",
            "tool",
        ):
            raise BadRequestError(f"message {number} needs a role: system, user, assistant or tool")
        if not isinstance(message.get("content"), str | None):
            raise BadRequestError(f"the content of message {number} must be text or null")
    if body.get("stream"):
        raise BadRequestError("this server does not stream: leave out stream")
