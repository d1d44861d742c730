"""A toy game for the tests of training, of no wing: four buttons, of which one lights the lamp, and three turns.

`press` scores 1/2 when it finds the button; `look` tells whether a button is it. The instance key is the right letter.
Form F asks for the letter. Every number that a test needs can be worked out by hand.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from truthfirst.episode import BudgetedEpisode, Outcome
from truthfirst.policies.clockwork import clockwork
from truthfirst.train.environments import TaskSet, task_set
from truthfirst.types import Form, PublicView, Score, StopReason, ToolSchema

LETTERS = ("A", "B", "C", "D")
ITEM = {
    "type": "object",
    "properties": {"item": {"type": "string", "enum": list(LETTERS), "description": "a button"}},
    "required": ["item"],
    "additionalProperties": False,
}
PRESS = ToolSchema("press", "Press one button.", ITEM, "decision")
LOOK = ToolSchema("look", "See whether a button is the one.", ITEM, "probe")
TURNS = 3
# What a policy writes, every piece once; the letter is drawn.
PRESSING: list[str | tuple[str, ...]] = [
    "<tool_call>\n{",
    '"name"',
    ': "press',
    '", "arguments',
    '": {"item',
    '": "',
    LETTERS,
    '"}',
    "}\n</tool_call>",
]


class Lamps:
    """The environment of one right letter; `tools` and `turns` may be others."""

    def __init__(self, right: str, tools: tuple[ToolSchema, ...] = (PRESS, LOOK), turns: int = TURNS) -> None:
        self.right, self.tools, self.turns = right, tools, turns

    def view(self, form: Form) -> PublicView:
        written = form is Form.WRITTEN
        prompt = (
            {"role": "system", "content": "Find the button."},
            {"role": "user", "content": "Which letter?" if written else "Begin."},
        )
        return PublicView(prompt, () if written else self.tools, 0 if written else self.turns)

    def episode(self, form: Form, policy: str) -> LampEpisode:
        header = {"environment": f"lamps-{self.right}", "form": str(form), "policy": policy}
        return LampEpisode(self.view(form), header, self.right)


class LampEpisode(BudgetedEpisode):
    """Ends when the button has been found twice; a press that finds it is worth 1/2."""

    def __init__(self, view: PublicView, header: dict[str, Any], right: str) -> None:
        super().__init__(view, header)
        self.right, self.found = right, 0

    def _execute(self, name: str, arguments: Any) -> Outcome:
        if name not in ("press", "look"):
            return Outcome("Refused: no such tool.", None, "refused")
        kind = "probe" if name == "look" else "decision"
        if (
            not isinstance(arguments, dict)
            or arguments.keys() != {"item"}
            or arguments["item"] not in LETTERS
        ):
            return Outcome("Refused: give item.", kind, "refused")  # type: ignore[arg-type]
        good = arguments["item"] == self.right
        self.found += good and name == "press"
        return Outcome("Yes." if good else "No.", kind, "ok", {"good": good})  # type: ignore[arg-type]

    def _completed(self) -> bool:
        return self.found >= 2

    def answer(self, text: str) -> None:
        self.answer_text = text
        self.stop_reason = StopReason.ANSWERED
        self.found = 2 * (text.strip() == self.right)

    def score(self) -> Score:
        return Score(self.found / 2, {"unclipped": self.found / 2})

    def rewards(self, kind: str) -> list[float]:
        gains = [0.5 * (turn.kind == "decision" and bool(turn.detail.get("good"))) for turn in self.turns]
        if kind == "progress" or not gains:
            return gains
        losses = [0.5 * (turn.kind == "decision" and not turn.detail.get("good")) for turn in self.turns]
        return [-loss for loss in losses]


def open_lamps(key: str) -> Lamps:
    return Lamps(key[0])


def lamp_tasks(keys: str = "A", forms: tuple[str, ...] = ("A",)) -> TaskSet:
    """Rows of the game, one a letter of `keys`."""
    return task_set([(key, "lamps") for key in keys], forms, open_lamps)


def template(name: str = "qwen2_5") -> str:
    """Return a chat template that the installed trl ships, byte for byte."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def lamp_model(script: list[str | tuple[str, ...]] | None = None, seed: int = 0) -> tuple[Any, Any]:
    """Return (model, tokenizer) that write `script`; lines of the prompt are one token each."""
    from truthfirst.policies.clockwork import byte_tokenizer

    view = Lamps("A").view(Form.AGENTIC)
    plain = byte_tokenizer(template())
    text = plain.apply_chat_template(
        list(view.prompt),
        tools=[tool.openai() for tool in view.tools],
        tokenize=False,
        add_generation_prompt=True,
    )
    lines = [line for line in text.split("\n") if len(line) > 12 and "<" not in line[:1]]
    return clockwork(script or PRESSING, template(), seed=seed, more_pieces=lines)
