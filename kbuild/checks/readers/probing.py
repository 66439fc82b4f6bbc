"""Asks another interpreter a question through one of the programs in `kbuild/checks/probes`."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from kbuild.run import Done, Runner

_SHOWN_LINES = 6


@dataclass(frozen=True)
class Answer:
    """A probe's last line of output."""

    state: str
    """The probe's word; `died` when the process ended without an answer."""
    reason: str


def ask(runner: Runner, python: Path, probe: str, *arguments: str) -> Answer:
    """Run `probes/<probe>.py` in a fresh process, in an empty folder, without writing bytecode."""
    with (
        as_file(files("kbuild.checks.probes") / f"{probe}.py") as program,
        tempfile.TemporaryDirectory() as empty,
    ):
        argv = (str(python), str(program), *arguments)
        return _answer_of(runner.run(argv, cwd=Path(empty), env=_environment()))


def _environment() -> dict[str, str]:
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return os.environ | quiet | {"PYTHONSAFEPATH": "1"}


def _answer_of(done: Done) -> Answer:
    lines = done.output.strip().splitlines()
    answers = [answer for line in lines if (answer := _parsed(line))]
    if answers:
        return answers[-1]
    shown = "\n".join(lines[-_SHOWN_LINES:])
    return Answer("died", f"the process ended with {done.returncode}\n{shown}".rstrip())


def _parsed(line: str) -> Answer | None:
    try:
        document = json.loads(line)
        return Answer(str(document["state"]), str(document["reason"]))
    except (ValueError, KeyError, TypeError):
        return None
