"""Fixtures for the tests of training."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parent))
logging.disable_progress_bar()
torch.set_num_threads(1)


@pytest.fixture
def trainer(tmp_path):
    """Make a trainer on the lamp game: `trainer(tasks, script=..., **plan)`."""
    from lamps import lamp_model, lamp_tasks

    from truthfirst.train.grpo import Trainer
    from truthfirst.train.plan import Plan

    def make(tasks=None, *, script=None, model=None, folder="run", callbacks=None, **fields):
        fields = {"group_size": 4, "groups": 1, "updates": 1, "steps": 2, "report_to": "none"} | fields
        pair = model or lamp_model(script)
        plan = Plan(**{"learning_rate": 1e-3, "warmup": 0, "options": {"disable_tqdm": True}} | fields)
        return Trainer(*pair, tasks or lamp_tasks(), plan, tmp_path / folder, callbacks=callbacks)

    return make
