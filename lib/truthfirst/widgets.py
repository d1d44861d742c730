"""Playing an environment by hand in a notebook, with ipywidgets: one button a tool, one message a call."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from .types import Episode, ToolSchema


def play_by_hand(episode: Episode) -> widgets.Widget:
    """Return a panel to play an episode: choose a tool, set its arguments, press the button, read the answer.

    The score is shown when the episode ends. Display the returned widget as the last value of a cell.
    """
    log = widgets.Textarea(layout=widgets.Layout(width="100%", height="18em"), disabled=True)
    left = widgets.Label(value=f"Turns: {episode.view.turn_budget}")
    tabs = widgets.Tab([_form(episode, tool, log, left) for tool in episode.view.tools])
    tabs.titles = tuple(tool.name for tool in episode.view.tools)
    stop = widgets.Button(description="Stop here", button_style="warning")

    def on_stop(_: object) -> None:
        episode.stop()
        _report(episode, log, left, "")

    stop.on_click(on_stop)
    return widgets.VBox([tabs, widgets.HBox([stop, left]), log])


def _form(episode: Episode, tool: ToolSchema, log: widgets.Textarea, left: widgets.Label) -> widgets.Widget:
    inputs = {name: _input(schema) for name, schema in tool.parameters["properties"].items()}
    button = widgets.Button(description="Call", button_style="primary", tooltip=tool.description)

    def on_click(_: object) -> None:
        arguments = {name: box.value for name, box in inputs.items()}
        reply = episode.call(tool.name, arguments)
        _report(episode, log, left, f"> {tool.name}({arguments})\n{reply}\n")

    button.on_click(on_click)
    rows = [widgets.HBox([widgets.Label(name), box]) for name, box in inputs.items()]
    return widgets.VBox([widgets.Label(tool.description), *rows, button])


def _input(schema: dict[str, Any]) -> widgets.Widget:
    if "enum" in schema:
        return widgets.Dropdown(options=schema["enum"])
    if schema["type"] == "integer":
        low = schema.get("minimum", 0)
        return widgets.BoundedIntText(value=low, min=low, max=schema.get("maximum", 10**6))
    return widgets.Text(placeholder=schema.get("description", ""))


def _report(episode: Episode, log: widgets.Textarea, left: widgets.Label, message: str) -> None:
    log.value += message
    trace = episode.trace()
    left.value = f"Turns: {episode.view.turn_budget - len(trace.turns)} of {episode.view.turn_budget} left"
    if episode.done:
        log.value += f"Over ({trace.stop}). Score: {episode.score().reward:.3f}\n"
