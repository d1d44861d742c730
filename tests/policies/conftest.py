"""Fixtures for the tests of policies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parent))
logging.disable_progress_bar()
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def qwen_clock():
    """(model, tokenizer) that write `toys.SCRIPT` as every message, with Qwen2.5's template."""
    from toys import SCRIPT, template

    from truthfirst.policies.clockwork import clockwork

    return clockwork(SCRIPT, template("qwen2_5"))
