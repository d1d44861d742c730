"""The harness: an instance as an agent environment with one bash tool, and one episode of it.

The agent gets the prompt and the public tree under /workspace, runs bash commands there in the sandbox and submits. All
calls, `submit` too, come out of one budget. After every call the workspace is graded and Phi goes into the trace; the
agent never sees it.

    pass     1 when the agent submitted and the strict verifier accepts the workspace, else 0
    R        1[pass] + lambda Phi(s_T), lambda = 1/4; without a submission lambda Phi(s_T) alone

`rewards(kind)` gives one number a call: `outcome` 1[pass] on the last call; `progress` lambda (Phi(s_t) - Phi(s_(t-1)))
and 1[pass] on the last, which sums to R; and two for comparison: `return`, all of R on the last call, and `additive`,
lambda Phi(s_t) on every call and 1[pass] on the last, which pays for a state again and again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from .. import __version__
from ..episode import BudgetedEpisode, Outcome, as_text, printable
from ..records import RecordError
from ..sandbox import require_sandbox
from ..types import Form, PublicView, Score, Trace, Turn
from ..types import ToolSchema as Tool
from .grading import Grading, grade
from .instances import Instance, instance
from .progress import LAMBDA, increments, rollout_return
from .scan import Bounds, pack, scan_archive
from .shell import Shell

CALLS = 64
MAX_COMMAND_CHARACTERS = 16_000
BASH, SUBMIT = "bash", "submit"
REWARD_KINDS = ("outcome", "progress", "return", "additive")
Scoring = Literal["pass", "return"]

TOOLS = (
    Tool(
        BASH,
        "Run a command with bash in the workspace and get what it prints. Files stay from one call to the next; "
        "processes, variables and the current directory do not.",
        {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "the command, as for bash -c"}},
            "required": ["command"],
            "additionalProperties": False,
        },
        "code",
    ),
    Tool(
        SUBMIT,
        "Hand in the workspace as it is. It is graded once, and the episode ends.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        "decision",
    ),
)
_HARNESS = """\
You work in /workspace on a machine without a network. You have {calls} calls; every call costs one, a refused one too.
- bash(command): {bash} About ten seconds of processor time and one gigabyte a command; a command that is stopped at a \
bound changes nothing. At most {output} bytes of its output are shown.
- submit(): {submit} Without a submission the task counts as not done."""


@dataclass(frozen=True)
class Environment:
    """One task that can be played.

    calls    T, calls of either tool together
    scoring  what `Score.reward` is: pass (0 or 1), or return (R, in [0, 1 + lambda])
    shell    may be shared among environments; give one that remembers where the same commands come again and again
    """

    instance: Instance
    calls: int = CALLS
    scoring: Scoring = "pass"
    shell: Shell = field(default_factory=Shell, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.calls < 1:
            raise ValueError(f"calls must be at least 1, got {self.calls}")

    @property
    def id(self) -> str:
        return self.instance.id

    @functools.cached_property
    def start(self) -> bytes:
        """The untouched workspace."""
        return pack(dict(self.instance.files))

    @functools.cached_property
    def bounds(self) -> Bounds:
        return Bounds.of(self.instance.files)

    def view(self, form: Form | str = Form.AGENTIC) -> PublicView:
        """Return what a player gets. Raises ValueError for a form other than A: a world has no written-out form."""
        if Form.parse(form) is not Form.AGENTIC:
            raise ValueError(f"a world is played in form {Form.AGENTIC} only, got {form!r}")
        return self._view

    @functools.cached_property
    def _view(self) -> PublicView:
        bash, submit = TOOLS
        told = _HARNESS.format(
            calls=self.calls,
            bash=bash.description,
            submit=submit.description,
            output=self.shell.limits.output_bytes,
        )
        prompt = (
            {"role": "system", "content": told},
            {"role": "user", "content": self.instance.prompt},
        )
        return PublicView(prompt, TOOLS, self.calls, dict(self.instance.files))

    def episode(self, form: Form | str = Form.AGENTIC, policy: str = "unnamed") -> WorkspaceEpisode:
        """Start an episode. Raises SandboxUnavailable where there is no sandbox."""
        require_sandbox("an episode in a workspace")
        return WorkspaceEpisode(self, self.view(form), policy)

    def graded(self, tree: bytes) -> Grading:
        """Grade a workspace, an archive."""
        return grade(self.instance, scan_archive(tree, self.bounds))


def build_environment(recipe: dict[str, Any], calls: int = CALLS, **options: Any) -> Environment:
    """Return the environment of a recipe: generator, seed, tier, and the revision it was made with.

    Raises RecordError when an entry is missing, and when the generator has another revision by now: the seed would
    give another world.
    """
    if missing := [name for name in ("generator", "seed", "tier") if name not in recipe]:
        raise RecordError(
            f"recipe {as_text(recipe)[:80]} has no {missing[0]!r}: it needs generator, seed and tier"
        )
    made = instance(recipe["generator"], recipe["seed"], recipe["tier"])
    if recipe.get("revision", made.generator.revision) != made.generator.revision:
        raise RecordError(
            f"{recipe['generator']} is at revision {made.generator.revision}, the recipe is of {recipe['revision']}: "
            f"check out the version that made it"
        )
    return Environment(made, calls, **options)


class WorkspaceEpisode(BudgetedEpisode):
    """An episode of one environment; see `types.Episode`.

    tree     the workspace as it is, an archive
    grading  of that workspace
    """

    def __init__(self, environment: Environment, view: PublicView, policy: str) -> None:
        header = {
            "environment": environment.id,
            "generator": environment.instance.generator.name,
            "tier": environment.instance.tier,
            "form": str(Form.AGENTIC),
            "policy": policy,
            "turn_budget": environment.calls,
            "recipe": environment.instance.recipe,
            "scoring": environment.scoring,
            "version": __version__,
        }
        super().__init__(view, header)
        self.environment = environment
        self.tree = environment.start
        self.grading = environment.graded(self.tree)
        self.submitted = False

    def _execute(self, name: str, arguments: Any) -> Outcome:
        if name == BASH:
            return self._bash(arguments)
        if name == SUBMIT:
            return self._submit(arguments)
        return self._refused(
            f"there is no tool {printable(str(name))[:60]!r}, only {BASH} and {SUBMIT}", None
        )

    def _bash(self, arguments: Any) -> Outcome:
        if not isinstance(arguments, dict) or set(arguments) != {"command"}:
            return self._refused("bash takes a JSON object with command and nothing else", "code")
        command = arguments["command"]
        if not isinstance(command, str) or "\0" in command:
            return self._refused("command must be text without null characters", "code")
        if len(command) > MAX_COMMAND_CHARACTERS:
            return self._refused(
                f"command has {len(command)} characters; at most {MAX_COMMAND_CHARACTERS} are run", "code"
            )
        command = printable(command)
        step = self.environment.shell.run(self.tree, command)
        if step.tree != self.tree:
            self.tree = step.tree
            self.grading = self.environment.graded(step.tree)
        detail = {
            "command": command,
            "reason": step.reason,
            "exit_status": step.exit_status,
            "cut": step.cut,
            "kept": step.kept,
            "workspace": step.tree_hash,
        }
        return Outcome(step.reply, "code", "ok", detail | self._progress())

    def _submit(self, arguments: Any) -> Outcome:
        if arguments not in ({}, None, ""):
            return self._refused(f"{SUBMIT} takes no arguments", "decision")
        self.submitted = True
        detail = {
            "submitted": True,
            "passed": self.grading.passed,
            "components": self.grading.components,
            "reasons": [reason[:300] for reason in self.grading.reasons[:8]],
        }
        return Outcome("Submitted.", "decision", "ok", detail | self._progress())

    def _refused(self, why: str, kind: Literal["code", "decision"] | None) -> Outcome:
        return Outcome(f"Refused: {why}.", kind, "refused", self._progress())

    def _progress(self) -> dict[str, Any]:
        """Return Phi and the gated credit of every node, as exact fractions in text."""
        return {
            "phi": str(self.grading.potential),
            "nodes": {name: str(credit) for name, credit in self.grading.nodes.items()},
        }

    def _completed(self) -> bool:
        return self.submitted

    def score(self) -> Score:
        return score_trace(self.trace())

    def rewards(self, kind: str) -> list[float]:
        return call_rewards(self.trace(), kind)


# --- from a trace alone -----------------------------------------------------------------------------------
def potentials(trace: Trace) -> list[Fraction]:
    """Return Phi after each call. Raises RecordError where a turn does not record it."""
    return [_phi(turn, trace) for turn in trace.turns]


def _phi(turn: Turn, trace: Trace) -> Fraction:
    try:
        value = Fraction(turn.detail["phi"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RecordError(f"{trace.where}: turn {turn.index} records no potential ({error!r})") from error
    if not 0 <= value <= 1:
        raise RecordError(f"{trace.where}: turn {turn.index} records Phi = {value}, which is not in [0, 1]")
    return value


def _submission(trace: Trace) -> Turn | None:
    return next((turn for turn in trace.turns if turn.detail.get("submitted") is True), None)


def passed(trace: Trace) -> bool:
    """Say whether the agent submitted and the verifier accepted."""
    turn = _submission(trace)
    return turn is not None and turn.detail.get("passed") is True


def score_trace(trace: Trace) -> Score:
    """Score a trace without a model and without the sandbox, from what its turns record."""
    found = potentials(trace)
    last = found[-1] if found else Fraction(0)
    whole = rollout_return(passed(trace), last)
    detail = {
        "passed": passed(trace),
        "submitted": _submission(trace) is not None,
        "phi": float(last),
        "phi_exact": str(last),
        "return": float(whole),
        "stop": str(trace.stop),
        "turns": len(trace.turns),
        "commands": sum(turn.kind == "code" and turn.status == "ok" for turn in trace.turns),
        "refused": sum(turn.status == "refused" for turn in trace.turns),
        "regressions": sum(step < 0 for step in increments(found)),
    }
    reward = float(whole) if trace.header.get("scoring") == "return" else float(passed(trace))
    return Score(reward, detail)


def call_rewards(trace: Trace, kind: str) -> list[float]:
    """Return one number a call; the kinds are those of the module docstring. Raises ValueError for another kind."""
    if kind not in REWARD_KINDS:
        raise ValueError(f"unknown reward kind {kind!r}: choose one of {', '.join(REWARD_KINDS)}")
    found = potentials(trace)
    if not found:
        return []
    shares = {
        "outcome": [Fraction(0)] * len(found),
        "progress": [LAMBDA * step for step in increments(found)],
        "return": [Fraction(0)] * (len(found) - 1) + [LAMBDA * found[-1]],
        "additive": [LAMBDA * phi for phi in found],
    }[kind]
    shares[-1] += int(passed(trace))
    return [float(share) for share in shares]


def replay(trace: Trace, shell: Shell | None = None) -> Trace:
    """Play a trace's calls again in the sandbox and return what came of them.

    Raises RecordError when the environment is not the one that the trace names.
    """
    options = {"shell": shell} if shell else {}
    environment = build_environment(trace.header["recipe"], trace.header["turn_budget"], **options)
    if environment.id != trace.header["environment"]:
        raise RecordError(
            f"{trace.where}: the recipe gives {environment.id}, not {trace.header['environment']}"
        )
    episode = environment.episode(policy=str(trace.header.get("policy")))
    for turn in trace.turns:
        again = {"command": turn.detail["command"]} if "command" in turn.detail else turn.arguments
        episode.call(turn.tool, again)
    episode.stop()
    return episode.trace()
