"""GPU presets: known sizes, memory by hand, arguments and launch lines that the real parsers take."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
import yaml

from truthfirst.paths import HOME
from truthfirst.train import check_gpu, preset_checks, run
from truthfirst.train.memory import GIB, adapter_parameters, cache_bytes, counts, estimate
from truthfirst.train.plan import PlanError
from truthfirst.train.preset_checks import CHECKS, CheckError, examine
from truthfirst.train.presets import (
    CARD_GIB,
    PRESETS,
    QWEN3_6_35B,
    QWEN3_8B,
    Lora,
    UnknownPreset,
    Vllm,
    resolve,
)

ALL = list(PRESETS.values())
LIGHT = [name for name in CHECKS if name != "step"]  # the step is taken once for each architecture, below


# Billions of parameters, all of them and without embeddings, as the model cards state them.
@pytest.mark.parametrize(
    ("preset", "whole", "inner"),
    [
        ("qwen3-0.6b", 0.6, 0.44),
        ("qwen3-1.7b", 1.7, 1.4),
        ("qwen3-4b", 4.0, 3.6),
        ("qwen3-8b", 8.2, 6.95),
        ("qwen3-14b", 14.8, 13.2),
        ("qwen3.6-35b-a3b", 35, None),
    ],
)
def test_models_have_the_size_that_their_cards_state(preset: str, whole: float, inner: float | None) -> None:
    found = counts(PRESETS[preset].model)
    assert found.total / 1e9 == pytest.approx(whole, rel=0.02)
    if inner is not None:
        assert (found.total - found.tables) / 1e9 == pytest.approx(inner, rel=0.02)


def test_memory_of_a_full_preset_by_hand() -> None:
    preset = replace(PRESETS["qwen3-8b"], cards=4, batch=1, prompt_tokens=1_000, episode_tokens=9_000)
    found, parameters = estimate(preset), 8_190_735_360
    assert found.weights == pytest.approx(4 * parameters / 4 / GIB)
    assert found.optimizer == pytest.approx(2 * found.weights)
    assert found.gradients == pytest.approx(found.weights)
    # 10,000 tokens: 36 inputs of 4,096, and one layer: 8 × 4,096 + 2 × (32 + 8) × 128 + 4 × 12,288
    floats = 10_000 * (36 * 4_096 + 8 * 4_096 + 2 * 40 * 128 + 4 * 12_288)
    assert found.activations == pytest.approx((2 * floats + 6 * 4_096 * 32_768) / GIB)
    # keys and values of 36 layers, 8 heads of 128, two bytes each
    assert cache_bytes(QWEN3_8B) == 2 * 2 * 36 * 8 * 128
    assert found.peak == max(found.generating, found.updating)


def test_adapters_by_hand() -> None:
    """Rank 1 on q_proj and down_proj of Qwen3-0.6B: in + out features, 28 layers."""
    preset = replace(PRESETS["qwen3-0.6b"], lora=Lora(("q_proj", "down_proj"), rank=1))
    assert adapter_parameters(preset) == 28 * ((1_024 + 2_048) + (3_072 + 1_024))
    assert adapter_parameters(PRESETS["qwen3-0.6b"]) == 0


def test_only_layers_with_attention_have_a_cache() -> None:
    assert cache_bytes(QWEN3_6_35B) == 2 * 2 * 10 * 2 * 256  # 10 of 40 layers
    assert cache_bytes(QWEN3_6_35B, 8) == 2 * 2 * 10 * 1 * 256  # two heads on eight cards: one on each


@pytest.mark.parametrize("preset", ALL, ids=lambda p: p.name)
def test_every_check_of_every_preset_passes(preset, monkeypatch) -> None:
    monkeypatch.setattr(preset_checks, "CHECKS", {name: CHECKS[name] for name in LIGHT})
    found = examine(preset)
    assert found.keys() == set(LIGHT)
    assert {name: text for name, (passed, text) in found.items() if not passed} == {}


@pytest.mark.parametrize("name", ["qwen3-0.6b", "qwen3.6-35b-a3b"])
def test_a_step_is_taken_on_each_architecture(name: str) -> None:
    assert "one step of Qwen3" in CHECKS["step"](PRESETS[name])


@pytest.mark.parametrize(
    ("check", "changes", "says"),
    [
        ("batch", {"groups": 6, "group_size": 16, "batch": 1}, "multiple of 4"),
        ("memory", {"cards": 1}, "use more cards"),
        ("memory", {"vllm": Vllm("colocate", 0.25)}, "raise share"),
        ("rows", {"episode_tokens": 1_024}, "episode_tokens is 1024"),
        ("rows", {"prompt_tokens": 256}, "prompt_tokens is 256"),
        ("layers", {"lora": Lora(("q_proj", "gate"))}, "'gate'"),
        ("template", {"model": replace(QWEN3_8B, template="qwen3_6")}, "written as xml"),
    ],
)
def test_a_preset_that_does_not_fit_is_told_why(check: str, changes: dict, says: str) -> None:
    with pytest.raises(CheckError, match=says):
        CHECKS[check](replace(PRESETS["qwen3-8b"], **changes))


def test_rollouts_that_do_not_divide_are_named() -> None:
    with pytest.raises(PlanError, match=r"preset qwen3-8b: .*= 96 rollouts"):
        replace(PRESETS["qwen3-8b"], groups=6, batch=5).plan()
    with pytest.raises(UnknownPreset, match=r"qwen3\.6-35b-a3b"):
        resolve("qwen4")


def test_the_command_takes_a_preset_and_what_is_given_beside_it() -> None:
    given = run._arguments(["--preset", "qwen3-8b", "--out", "x", "-p", "steps=7", "--size", "nano"])
    assert (given.model, given.size, given.setter) == ("Qwen/Qwen3-8B", "nano", "template")
    plan = run.read_plan(["steps=7", "options={vllm_gpu_memory_utilization: 0.3}"], given.plan)
    assert (plan.steps, plan.group_size, plan.cpu) == (7, 16, False)
    assert plan.options["vllm_gpu_memory_utilization"] == 0.3
    assert plan.options["bf16"] is True


def test_a_server_is_found_where_the_command_says() -> None:
    preset = PRESETS["qwen3.6-35b-a3b"]
    given = run._arguments(
        ["--preset", preset.name, "--out", "x", "--server", "http://node3:8000", "--resume"]
    )
    assert given.plan.options["vllm_server_base_url"] == "http://node3:8000"
    assert given.resume is True
    assert "--tensor-parallel-size 8" in (preset.serve() or "")
    assert shlex.split(preset.launch()).count("http://SERVER:8000") == 1
    assert PRESETS["qwen3-8b"].serve() is None


def test_an_unknown_preset_stops_the_command(tmp_path, capsys) -> None:
    assert run.main(["--preset", "qwen4", "--out", str(tmp_path)]) == 2
    assert "choose one of" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((HOME / "data" / "presets").glob("*.yaml")), ids=lambda p: p.stem)
def test_accelerate_files_train_in_bfloat16_on_gpus(path) -> None:
    stated = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert stated["mixed_precision"] == "bf16"
    assert stated["use_cpu"] is False


def test_every_preset_names_a_card_and_every_lora_preset_a_learning_rate_of_its_own() -> None:
    for preset in ALL:
        assert preset.card in CARD_GIB
        assert (preset.learning_rate > 1e-6) == (preset.lora is not None)


def test_the_table_says_what_was_not_checked(monkeypatch, capsys) -> None:
    monkeypatch.setattr(preset_checks, "CHECKS", {"batch": CHECKS["batch"]})
    monkeypatch.setattr(check_gpu, "fitting", lambda presets: None)
    assert check_gpu.main(["qwen3-8b"]) == 0
    out = capsys.readouterr().out
    assert "256 = 4 × 2 × 32 × 1" in out
    assert "not checked:" in out
    assert "no steps were taken" in out
    assert check_gpu.main(["qwen4"]) == 2


def test_a_failed_check_fails_the_command(monkeypatch, capsys) -> None:
    def fails(preset) -> str:
        raise CheckError("too large")

    monkeypatch.setattr(preset_checks, "CHECKS", {"memory": fails})
    monkeypatch.setattr(check_gpu, "fitting", lambda presets: None)
    assert check_gpu.main(["qwen3-8b"]) == 1
    assert "FAILED  memory     too large" in capsys.readouterr().out
