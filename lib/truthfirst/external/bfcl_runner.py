"""The part of the BFCL harness that runs beside `bfcl-eval`, in an environment of its own: `python bfcl_runner.py JOB`.

Nothing of this package is imported here, since `bfcl-eval` pins numpy 1.26. JOB is a JSON file:

    task        "plan": choose cases, and write cases.json and the oracle's script.json beside JOB
                "play": generate with the endpoint what is not there yet, and score it natively
    categories  names as BFCL has them
    limit       cases a category, evenly spaced over it; null for all
    model       a label of letters, digits, - and . that starts with a letter: BFCL makes names of variables of it
    asked       the model's name at the endpoint (OPENAI_BASE_URL, OPENAI_API_KEY)
    scripted    whether requests name their case
    threads     cases at once

BFCL executes a call by evaluating "NAME(KEY=VALUE)" as Python. The values are written by repr and can do nothing, but
name and keys are a model's words: `open(file=..., mode="w")` would be obeyed. A name that no tool of BFCL has, or a
key that is no identifier, is therefore replaced by the name of a function that does not exist. BFCL answers both with
an error and goes on, so scores stay what they are, except that a call of one of Python's own functions fails too.
For the same reason only function calling is evaluated, never BFCL's prompting mode, which evaluates whole texts.
"""

from __future__ import annotations

# mypy: disable-error-code="import-not-found"
import ast
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

UNKNOWN = "unknown_function()"
FAILED = "Error during inference"
TEMPERATURE = 0.001  # BFCL's default


# --- plan ----------------------------------------------------------------------------------------------
def spread(items: list[Any], limit: int | None) -> list[Any]:
    """Return `limit` items, evenly spaced from the first on; all where there are no more."""
    if limit is None or limit >= len(items):
        return items
    return [items[number * len(items) // limit] for number in range(limit)]


def plan(job: dict[str, Any], folder: Path) -> None:
    """Write cases.json (ids to generate, ids to score, number of all) and script.json (the oracle's answers)."""
    from bfcl_eval import utils

    cases: dict[str, Any] = {}
    script: dict[str, Any] = {}
    for category in job["categories"]:
        entries = utils.load_dataset_entry(category, include_prereq=False)
        truths = [None] * len(entries)
        if not utils.is_relevance_or_irrelevance(category):
            truths = utils.load_ground_truth_entry(category)
        chosen = spread(list(zip(entries, truths, strict=True)), job["limit"])
        scored = [entry["id"] for entry, _ in chosen]
        before = []
        if utils.is_memory(category):  # conversations that fill the memory which the questions are about
            scenarios = {entry["scenario"] for entry, _ in chosen}
            every = utils.load_dataset_entry(category, include_prereq=True)
            before = [
                entry["id"]
                for entry in every
                if utils.is_memory_prereq(entry["id"]) and entry["scenario"] in scenarios
            ]
        cases[category] = {"generate": [*before, *scored], "score": scored, "of": len(entries)}
        script |= {entry["id"]: answers(category, entry, truth) for entry, truth in chosen}
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")


def answers(category: str, entry: dict[str, Any], truth: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the oracle does in one case: BFCL's ground truth as calls or words."""
    if "irrelevance" in category:
        return {}
    if truth is None:  # live_relevance has no ground truth: any call counts
        return {"turns": [[{"name": entry["function"][0]["name"].replace(".", "_"), "arguments": {}}]]}
    if category.startswith("multi_turn"):
        missed = [doc for docs in entry.get("missed_function", {}).values() for doc in docs]
        docs = {doc["name"]: doc for doc in [*entry["function"], *missed]}
        return {"turns": [[as_call(text, docs) for text in turn] for turn in truth["ground_truth"]]}
    return {"say": truth["ground_truth"][0]}


def as_call(text: str, docs: dict[str, Any]) -> dict[str, Any]:
    """Return a call that is written as Python as name and arguments; places become names by the tool's schema."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"ground truth {text!r} is no call")
    names = list(docs[call.func.id]["parameters"]["properties"]) if call.args else []
    arguments = {name: ast.literal_eval(value) for name, value in zip(names, call.args, strict=False)}
    arguments |= {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return {"name": call.func.id, "arguments": arguments}


# --- play ----------------------------------------------------------------------------------------------
def harmless(name: str, arguments: Any, tools: frozenset[str]) -> bool:
    """Say whether a call may be evaluated: see the module docstring."""
    return name in tools and isinstance(arguments, dict) and all(key.isidentifier() for key in arguments)


def make_handler(job: dict[str, Any], tools: frozenset[str]) -> type:
    """Return BFCL's handler of the chat-completions protocol, with the endpoint's name and the guard."""
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler

    class Handler(OpenAICompletionsHandler):  # type: ignore[misc, unused-ignore]
        def _pre_query_processing_FC(self, inference_data: dict, test_entry: dict) -> dict:  # noqa: N802
            return super()._pre_query_processing_FC(inference_data, test_entry) | {"case": test_entry["id"]}

        def _query_FC(self, inference_data: dict) -> Any:  # noqa: N802
            request: dict[str, Any] = {
                "messages": inference_data["message"],
                "model": job["asked"],
                "temperature": self.temperature,
            }
            if inference_data["tools"]:
                request["tools"] = inference_data["tools"]
            if job["scripted"]:
                request["extra_headers"] = {"X-Benchmark-Case": inference_data["case"]}
            return self.generate_with_backoff(**request)

        def decode_execute(self, result: Any, has_tool_call_tag: bool) -> list[str]:
            texts = super().decode_execute(result, has_tool_call_tag)
            calls = [pair for call in result for pair in call.items()] if texts else []
            return [
                text if harmless(name, _object(given), tools) else UNKNOWN
                for text, (name, given) in zip(texts, calls, strict=True)
            ]

    return Handler


def _object(given: Any) -> Any:
    return json.loads(given) if isinstance(given, str) else given


def known_tools() -> frozenset[str]:
    """Return the names of all tools of the categories that execute calls."""
    from bfcl_eval.constants.eval_config import MULTI_TURN_FUNC_DOC_PATH

    lines = [
        line
        for path in MULTI_TURN_FUNC_DOC_PATH.glob("*.json")
        for line in path.read_text("utf-8").splitlines()
    ]
    return frozenset(json.loads(line)["name"] for line in lines if line.strip())


def forget_failures(results: Path) -> None:
    """Remove results that are errors, so that they are tried again; the rest of an interrupted run is kept."""
    for path in results.rglob("*_result.json"):
        kept, lines = [], path.read_text("utf-8").splitlines(keepends=True)
        for line in lines:
            try:
                if str(json.loads(line)["result"]).startswith(FAILED):
                    continue
            except (ValueError, KeyError, TypeError):  # half a line, of a run that was ended
                continue
            kept.append(line)
        if len(kept) < len(lines):
            path.write_text("".join(kept), "utf-8")


def play(job: dict[str, Any], folder: Path) -> None:
    """Generate and score; BFCL writes result/ and score/ in the folder BFCL_PROJECT_ROOT."""
    from bfcl_eval import _llm_response_generation as generation
    from bfcl_eval.constants import eval_config
    from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING, ModelConfig
    from bfcl_eval.eval_checker import eval_runner

    label, categories = job["model"], job["categories"]
    MODEL_CONFIG_MAPPING[label] = ModelConfig(
        model_name=label,
        display_name=label,
        url="",
        org="",
        license="",
        model_handler=make_handler(job, known_tools()),
        underscore_to_dot=True,
    )
    cases = json.loads((folder / "cases.json").read_text("utf-8"))
    wanted = {category: cases[category]["generate"] for category in categories}
    eval_config.TEST_IDS_TO_GENERATE_PATH.write_text(json.dumps(wanted), "utf-8")
    forget_failures(eval_config.RESULT_PATH)
    generation.main(
        SimpleNamespace(
            model=[label],
            test_category=categories,
            temperature=TEMPERATURE,
            include_input_log=False,
            exclude_state_log=True,
            num_threads=job["threads"],
            result_dir=None,
            allow_overwrite=False,
            run_ids=True,
        )
    )
    # A part of the cases is no row of the leaderboard, and its statistics fail on one case.
    eval_runner.generate_leaderboard_csv = lambda *_: None
    eval_runner.main([label], categories, None, None, partial_eval=True)


def main(path: Path) -> None:
    job = json.loads(path.read_text("utf-8"))
    os.environ["BFCL_PROJECT_ROOT"] = str(path.parent)  # read when bfcl_eval is first imported
    {"plan": plan, "play": play}[job["task"]](job, path.parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
