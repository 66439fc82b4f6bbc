"""Asks another interpreter a question through one of the programs in `kbuild/checks/probes`.

What it says comes through a pipe of its own, each line with a secret that only this question has:
what a kernel prints is shown and never believed. `docs/explanation/what-kbuild-runs.md` says what
that proves.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from kbuild.checks.readers import sandbox
from kbuild.errors import DamagedFileError
from kbuild.run import Done, Runner
from kbuild.scratch import scratch_folder
from kbuild.untrusted import parse_json

_SHOWN_LINES = 6
_WATCHDOG = "Timeout ("
"""How faulthandler begins what it says of a process that it ends."""
_OWN = ("state", "reason", "files", "unread")
_STARTER = "start.py"
_PATIENCE_S = 400
"""For how long a probe may say nothing: it gives up by itself before that."""
_GRACE_S = 1.0
"""For what a process said before it ended."""
_MOST = 64 << 20
"""Bytes that an answer may have; a probe's are thousands."""
PROGRAMS = "kbuild.checks.probes"


@dataclass(frozen=True)
class Answer:
    """What a probe said last, and how its process ended."""

    state: str
    """The probe's word; without one `hung` or `died`, as the process was ended or ended; `forged`
    when something else than the probe spoke in its place."""
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
    sandboxed: bool = False
    """True when it was started in a sandbox just now."""


def ask(
    runner: Runner,
    python: Path,
    probe: str,
    *arguments: str | Path,
    patience_s: float = _PATIENCE_S,
) -> Answer:
    """Run `probes/<probe>.py` in a fresh process, in an empty folder, without writing bytecode.

    Its temporary files are in that folder too: importing Torch leaves some. Paths among the
    arguments are what is asked about; they are made absolute.
    """
    with as_file(files(PROGRAMS)) as programs, scratch_folder("probe") as empty:
        private = empty.resolve()
        own = [path.resolve() for path in arguments if isinstance(path, Path)]
        given = (str(a.resolve()) if isinstance(a, Path) else a for a in arguments)
        call = _Call(runner, programs / _STARTER, private, (str(patience_s), probe, *given))
        bwrap = sandbox.program()
        heard = None
        if bwrap is not None and not _is_broken(bwrap):
            needed = (programs.resolve(), *own)
            heard = call.perform(python, sandbox.command(bwrap, python, private, needed))
            if not heard.started:  # nothing of what is asked about has run
                said = heard.done.output
                if said.startswith(f"{sandbox.PROGRAM}: ") and "execvp" not in said:
                    _BROKEN.add(bwrap)
                heard = None
        sandboxed = heard is not None
        heard = heard or call.perform(python)
        answer = replace(_answer_of(heard), sandboxed=sandboxed)
        outside = (str(path) for path in (*own, programs.resolve(), programs, private))
        return replace(answer, files=tuple(_beyond(answer.files, outside)))


def is_sandboxed() -> bool:
    """True when probes run in a sandbox, as far as that is known."""
    bwrap = sandbox.program()
    return bwrap is not None and not _is_broken(bwrap)


_BROKEN: set[Path] = set()
"""Programs that could not make a sandbox: not every system allows it."""


def _is_broken(bwrap: Path) -> bool:
    return bwrap in _BROKEN


@dataclass(frozen=True)
class _Heard:
    """What came of one process."""

    done: Done
    secret: str
    lines: Sequence[bytes]
    """What came through the pipe, see `probes/start.py`."""

    @property
    def own(self) -> dict[str, Any]:
        """What the starter said."""
        said: dict[str, Any] = {}
        for line in self.lines:
            if line.startswith(b"="):
                said |= _parsed(line[1:])
        return said

    @property
    def started(self) -> bool:
        """False when the starter did not even begin."""
        return "started" in self.own

    def said(self) -> list[dict[str, Any]] | None:
        """What the probe said; None when another has spoken in its place."""
        key = self.secret.encode() + b" "
        lines = [line[1:] for line in self.lines if line.startswith(b">")]
        if not all(line.startswith(key) for line in lines):
            return None
        return [_parsed(line.removeprefix(key)) for line in lines]


@dataclass(frozen=True)
class _Call:
    """One question."""

    runner: Runner
    starter: Path
    private: Path
    arguments: tuple[str, ...]

    def perform(self, python: Path, before: tuple[str, ...] = ()) -> _Heard:
        """Start the process, and listen until it ends."""
        secret, data = secrets.token_hex(32), bytearray()
        source, sink = os.pipe()
        listener = threading.Thread(target=_listen, args=(source, data), daemon=True)
        listener.start()
        try:
            argv = (*before, str(python), str(self.starter), str(sink), *self.arguments)
            done = self.runner.run(
                argv,
                cwd=self.private,
                env=sandbox.environment(self.private),
                stdin=f"{secret}\n",
                inherit=(sink,),
            )
        finally:
            os.close(sink)
        listener.join(_GRACE_S)  # what outlives it may hold the other end
        whole, _, _ = bytes(data).rpartition(b"\n")
        return _Heard(done, secret, whole.split(b"\n"))


def _listen(source: int, data: bytearray) -> None:
    """Read to the end, or to what the starter says last."""
    with os.fdopen(source, "rb", buffering=0) as file:
        while len(data) < _MOST and (block := file.read(1 << 16)):
            data += block


def _beyond(paths: Iterable[str], own: Iterable[str]) -> Iterable[str]:
    """The paths that are neither one of these nor below one."""
    within = tuple(f"{path}{os.sep}" for path in own)
    return (path for path in paths if not f"{path}{os.sep}".startswith(within))


def _answer_of(heard: _Heard) -> Answer:
    done, own = heard.done, heard.own
    returncode = int(own.get("ended", done.returncode))
    said = heard.said()
    if said is None:
        reason = "something other than kbuild's probe wrote to the pipe for its answer"
        return Answer("forged", f"{reason}\n{_shown(done)}".rstrip(), returncode=returncode)
    doing = [str(document["doing"]) for document in said if "doing" in document]
    answers = [document for document in said if "state" in document]
    if answers:
        facts = {name: value for name, value in answers[-1].items() if name not in _OWN}
        answer = Answer(str(answers[-1]["state"]), str(answers[-1].get("reason", "")), facts)
        decided = tuple(str(path) for path in answers[-1].get("files", ()))
        # Once it has begun to import the kernel, it cannot say that it has not looked at it.
        unread = bool(answers[-1].get("unread")) and not doing
        answer = replace(answer, files=decided, unread=unread)
    else:
        is_late = any(line.startswith(_WATCHDOG) for line in done.output.splitlines())
        reason = f"the process ended with {returncode}\n{_shown(done)}".rstrip()
        answer = Answer("hung" if "hung" in own or is_late else "died", reason)
    return replace(answer, doing=doing[-1] if doing else "", returncode=returncode)


def _shown(done: Done) -> str:
    """The end of what it printed."""
    return "\n".join(done.output.strip().splitlines()[-_SHOWN_LINES:])


def _parsed(line: bytes) -> dict[str, Any]:
    """The object that a line is; empty for any other line."""
    try:
        return parse_json(line, "the answer", "an answer", strict=False)
    except DamagedFileError:
        return {}
