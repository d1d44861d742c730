"""Small episodes and scripts for the tests of policies: they know the episode protocol and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from truthfirst.episode import BudgetedEpisode, Outcome
from truthfirst.types import PublicView, Score, StopReason, ToolSchema

PROBE = ToolSchema(
    "probe",
    "Read the number of one item.",
    {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
    "probe",
)
PROMPT = ({"role": "system", "content": "You read items."}, {"role": "user", "content": "Begin."})
# Every piece is unique, as `clockwork` asks; the letter is drawn.
SCRIPT: list[str | tuple[str, ...]] = [
    "<tool_call>\n{",
    '"name"',
    ': "probe',
    '", "arguments',
    '": {"item',
    '": "',
    ("A", "B", "C", "D"),
    '"}',
    "}\n</tool_call>",
]


class Drawers(BudgetedEpisode):
    """Items A to D hold numbers; `probe` reads one; two readings complete the episode if `completes`."""

    def __init__(
        self, turns: int = 4, *, written: bool = False, completes: int | None = None, name: str = "drawers"
    ):
        tools = () if written else (PROBE,)
        view = PublicView(PROMPT, tools, 0 if written else turns)
        super().__init__(view, {"environment": name, "form": "F" if written else "A"})
        self.completes, self.found = completes, 0

    def _execute(self, name: str, arguments: Any) -> Outcome:
        if name != "probe":
            return Outcome(f"Refused: there is no tool {name!r}.", None, "refused")
        if not isinstance(arguments, dict) or arguments.get("item") not in ("A", "B", "C", "D"):
            return Outcome("Refused: item must be A, B, C or D.", "probe", "refused")
        self.found += 1
        item = arguments["item"]
        # Replies differ in length, so that conversations become ragged.
        return Outcome(f"{item} holds {'ABCD'.index(item) * 11}." + " Dust." * "ABCD".index(item), "probe")

    def _completed(self) -> bool:
        return self.completes is not None and self.found >= self.completes

    def answer(self, text: str) -> None:
        self.answer_text = text
        self.stop_reason = StopReason.ANSWERED if text.strip() else StopReason.MALFORMED

    def score(self) -> Score:
        return Score(float(self.found > 0), {})

    def rewards(self, kind: str) -> list[float]:
        return [0.0] * len(self.turns)


def template(name: str) -> str:
    """Return a chat template that the installed trl ships, byte for byte."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
