"""Policies that are language models: they know episodes (`types.Episode`), never a wing.

`base.py` is the contract and `roll_out`; `dialogue.py` the stated rules by which a model's messages become calls;
`calls.py` reads calls from text; `chat.py` turns a dialogue into exact token ids; `cache.py` and `generate.py` are fast
multi-turn generation; `language.py` plays a transformers model, `endpoint.py` an OpenAI-compatible server.
"""

from .base import Policy, Sampling, Scripted, roll_out
from .dialogue import Rules

__all__ = ["Policy", "Rules", "Sampling", "Scripted", "roll_out"]
