"""Asks another interpreter a question through one of the programs in `kbuild/checks/probes`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from kbuild.run import Done, Runner

_SHOWN_LINES = 6
_WATCHDOG = "Timeout ("
"""How faulthandler begins what it says of a process that it ends."""
_OWN = ("state", "reason", "files", "unread")
PROGRAMS = "kbuild.checks.probes"


@dataclass(frozen=True)
class Answer:
    """A probe's last line of output."""

    state: str
    """The probe's word; without an answer `hung` or `died`, as the process was ended or ended."""
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the probe says."""
    doing: str = ""
    """What it had begun when the process ended."""
    returncode: int = 0
    """How the process ended; a negative number is a signal, by which it was ended."""
    files: tuple[str, ...] = ()
    """Whatever decided it beside the arguments; empty when another answer may come any time."""
    unread: bool = False
    """True when nothing was looked at of what was asked about: the general arguments decided."""


def ask(runner: Runner, python: Path, probe: str, *arguments: str | Path) -> Answer:
    """Run `probes/<probe>.py` in a fresh process, in an empty folder, without writing bytecode.

    Paths among the arguments are what is asked about; they are made absolute.
    """
    with as_file(files(PROGRAMS)) as programs, tempfile.TemporaryDirectory() as empty:
        own = [str(path.resolve()) for path in arguments if isinstance(path, Path)]
        given = (str(a.resolve()) if isinstance(a, Path) else a for a in arguments)
        argv = (str(python), str(programs / f"{probe}.py"), *given)
        answer = _answer_of(runner.run(argv, cwd=Path(empty), env=environment()))
        own += [str(programs), str(Path(empty).resolve())]
        return replace(answer, files=tuple(_beyond(answer.files, own)))


def _beyond(paths: Iterable[str], own: Iterable[str]) -> Iterable[str]:
    """The paths that are neither one of these nor below one."""
    within = tuple(f"{path}{os.sep}" for path in own)
    return (path for path in paths if not f"{path}{os.sep}".startswith(within))


def environment() -> dict[str, str]:
    """What probes are started with."""
    quiet = {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return os.environ | quiet | {"PYTHONSAFEPATH": "1"}


def _answer_of(done: Done) -> Answer:
    lines = done.output.strip().splitlines()
    said = [document for line in lines if (document := _parsed(line))]
    doing = [str(document["doing"]) for document in said if "doing" in document]
    answers = [document for document in said if "state" in document]
    if answers:
        facts = {name: value for name, value in answers[-1].items() if name not in _OWN}
        answer = Answer(str(answers[-1]["state"]), str(answers[-1].get("reason", "")), facts)
        decided = tuple(str(path) for path in answers[-1].get("files", ()))
        answer = replace(answer, files=decided, unread=bool(answers[-1].get("unread")))
    else:
        lines = [line for line in lines if not _parsed(line)]
        shown = "\n".join(lines[-_SHOWN_LINES:])
        state = "hung" if any(line.startswith(_WATCHDOG) for line in lines) else "died"
        answer = Answer(state, f"the process ended with {done.returncode}\n{shown}".rstrip())
    return replace(answer, doing=doing[-1] if doing else "", returncode=done.returncode)


def _parsed(line: str) -> dict[str, Any]:
    """The object that a line is; empty for any other line."""
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
