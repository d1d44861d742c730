"""OpenAI-compatible servers on the loopback interface: one that runs a model, one that misbehaves as told."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve POST /v1/chat/completions by `answer`; yield the base url."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions"
            answer(self, body)

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def completion(message: dict[str, Any], usage: Any = None, finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    body = {"object": "chat.completion", "choices": [choice]}
    return body if usage is None else body | {"usage": usage}


def tool_call(arguments: str, name: Any = "probe", identifier: str = "call_1") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


# --- a server that runs a model -------------------------------------------------------------------------------
def running(model: Any, tokenizer: Any, stop_token: str) -> Answer:
    """Answer with greedy or sampled text of a transformers model through its own `generate`."""
    lock = threading.Lock()
    stop = tokenizer.convert_tokens_to_ids(stop_token)

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        text = tokenizer.apply_chat_template(
            body["messages"], tools=body.get("tools"), tokenize=False, add_generation_prompt=True
        )
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with lock, torch.no_grad():
            torch.manual_seed(body.get("seed", 0))
            warm = body["temperature"] > 0
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=body["max_tokens"],
                do_sample=warm,
                **({"temperature": body["temperature"]} if warm else {}),
                eos_token_id=stop,
                pad_token_id=stop,
            )[0, ids.shape[1] :].tolist()
        finish = "stop" if out[-1] == stop else "length"
        said: dict[str, Any] = {"content": tokenizer.decode(out[:-1] if finish == "stop" else out)}
        calls = re.findall(r"<tool_call>\n(.*?)\n</tool_call>", said["content"], re.DOTALL)
        if calls and body.get("tools"):
            parsed = [json.loads(call) for call in calls]
            listed = [
                tool_call(json.dumps(call["arguments"]), call["name"], f"c{n}")
                for n, call in enumerate(parsed)
            ]
            said = {"content": None, "tool_calls": listed}
        usage = {"prompt_tokens": ids.shape[1], "completion_tokens": len(out)}
        send(handler, 200, completion(said, usage, finish))

    return answer


# --- a server that misbehaves ---------------------------------------------------------------------------------
class Script:
    """Answers each request by the next of `steps` (the last one for ever after); keeps what was asked."""

    def __init__(self, *steps: Answer) -> None:
        self.steps, self.asked = list(steps), []
        self._lock = threading.Lock()

    def __call__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self._lock:
            step = self.steps[min(len(self.asked), len(self.steps) - 1)]
            self.asked.append(body)
        step(handler, body)


def status(code: int, body: Any = b"trouble", **headers: str) -> Answer:
    return lambda handler, _: send(handler, code, body, **headers)


def ok(message: dict[str, Any], usage: Any = None, finish: str = "stop") -> Answer:
    return status(200, completion(message, usage, finish))


def drop(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    """Close the connection in the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices":')
    handler.wfile.flush()
    handler.close_connection = True


def stall(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    """Say nothing for longer than the client waits."""
    time.sleep(0.6)
    handler.close_connection = True


def drip(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    """Send one byte at a time, each well within a read timeout, and never finish."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    try:
        for _ in range(40):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        pass
    handler.close_connection = True
