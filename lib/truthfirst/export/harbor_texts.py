"""The texts of a Harbor task: instruction, configuration, images and scripts, for one instance.

Paths in the container are those of the format (/tests, /solution, /logs/verifier) and /workspace for the agent. The
verifier has an image of its own, which holds /tests; of the agent's container it gets /workspace/output and nothing
else. Both images carry the grader's packages under /opt/verifier, so that a harness which runs tests/test.sh in the
agent's container (TRL's does) works too; there an agent that is root could tamper with what grades it.

Source: the models of the harbor package, version 0.26 (task configuration 1.4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..worldfirst.instances import Instance

SCHEMA_VERSION = "1.4"
IMAGE = "python:3.11-slim-bookworm"
PACKAGES = "/opt/verifier"
LOGS_VARIABLE = "TRUTHFIRST_LOGS"

INSTRUCTION = """\
You work in /workspace on a machine without a network. Everything below is relative to /workspace: the inputs are in \
/workspace/input, your results go to /workspace/output. To submit, end your work: the workspace is graded once, as you \
leave it.

{prompt}"""

SOLVE = """\
#!/bin/bash
# The reference solution: a program of its own that needs the standard library only.
set -eu
cd /workspace
exec python3 /solution/solve.py
"""

TEST = f"""\
#!/bin/bash
# Grades /workspace and writes one reward file: reward (1 or 0) and phi, the progress potential.
exec python3 -I -B /tests/grade.py /workspace /tests/sealed.json "${{{LOGS_VARIABLE}:-/logs/verifier}}"
"""

GRADE = f"""\
import sys

sys.path[:0] = ["/tests/lib", "{PACKAGES}"]

from truthfirst.export.grader import main

main(*sys.argv[1:])
"""


def instruction(instance: Instance) -> str:
    """Return what the agent reads."""
    return INSTRUCTION.format(prompt=instance.prompt)


def agent_image(packages: Mapping[str, str]) -> str:
    """Return the Dockerfile of the agent's image."""
    return f"{_base(packages)}COPY input /workspace/input\n"


def verifier_image(packages: Mapping[str, str]) -> str:
    """Return the Dockerfile of the verifier's image, whose build context is the folder tests."""
    return f"{_base(packages)}COPY . /tests\nRUN chmod 755 /tests/test.sh\n"


def _base(packages: Mapping[str, str]) -> str:
    pins = " ".join(f"{name}=={version}" for name, version in packages.items())
    install = f"RUN pip install --no-cache-dir --no-deps --target {PACKAGES} {pins}\n" if pins else ""
    return f"FROM {IMAGE}\n{install}WORKDIR /workspace\n"


def configuration(instance: Instance) -> str:
    """Return task.toml."""
    generator, flow = instance.generator, instance.workflow
    machine = {"network_mode": "no-network", "cpus": 1, "memory_mb": 2_048, "storage_mb": 4_096}
    tables: dict[str, dict[str, Any]] = {
        "task": {
            "name": f"truthfirst/{instance.id}",
            "version": __version__,
            "description": f"{generator.name}, {instance.tier}: {len(generator.deliverables)} files from "
            f"{len(instance.files)} damaged ones",
            "keywords": [generator.name, generator.domain, instance.tier],
        },
        "metadata": {
            **instance.recipe,
            "domain": generator.domain,
            "truthfirst": __version__,
            "world": instance.world_hash,
            "tree": instance.tree_hash,
            "difficulty_level": instance.tier,
            "stages": len(flow.stages),
            "critical_stages": len(flow.critical),
            "work": flow.work,
        },
        "agent": {"timeout_sec": 3_600.0},
        "verifier": {"timeout_sec": 300.0, "environment_mode": "separate"},
        "verifier.environment": {"build_timeout_sec": 600.0, **machine},
        "environment": {"build_timeout_sec": 600.0, **machine, "workdir": "/workspace"},
    }
    head = _lines({"schema_version": SCHEMA_VERSION, "artifacts": ["/workspace/output"]})
    return head + "".join(f"\n[{name}]\n{_lines(table)}" for name, table in tables.items())


def _lines(table: Mapping[str, Any]) -> str:
    """Return the lines of a TOML table of text, numbers and lists of them, for which TOML writes as JSON does."""
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=True)}\n" for key, value in table.items())
