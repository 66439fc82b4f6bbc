"""What probes answered before: what has not changed is not loaded a second time.

An answer is kept when the probe names the files that decided it. It is given again while these look
as they did and the question is the same: kbuild itself with its probes, the arguments, the bytes of
what is asked about (not where it lies), the interpreter, the machine, and the variables that change
what a process loads. Everything else is asked anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.checks.readers.probing import Answer, ask
from kbuild.checks.readers.question import Question
from kbuild.errors import DamagedFileError
from kbuild.fileset import replace_atomically, sha256
from kbuild.filestate import look, looks, unchanged
from kbuild.run import Runner
from kbuild.untrusted import parse_json, read_bytes, reading

ANSWERS, SURROUNDINGS = "answers", "surroundings"
KEPT: Mapping[str, int] = {ANSWERS: 4000, SURROUNDINGS: 64, "built": 20_000}
"""How many files of each folder stay: the newest."""


@dataclass(frozen=True)
class Memory:
    """Asks probes, or says again what they answered."""

    folder: Path | None = None
    """Where answers are kept; None keeps none."""
    fresh: bool = False
    """True asks always; what is answered is kept for others."""
    recalled: dict[tuple[str, Path, Path], bool] = field(default_factory=dict, compare=False)
    """By probe, interpreter and subject: True when every answer was one of before."""

    def ask(
        self,
        runner: Runner,
        python: Path,
        probe: str,
        *arguments: str | Path,
        general: tuple[str, ...] = (),
    ) -> Answer:
        """See `probing.ask`; the process is started only when its answer is not known.

        `general` are the arguments that alone decide an answer that is `unread`.
        """
        if self.folder is None:
            return ask(runner, python, probe, *arguments)
        question = Question(python, probe, arguments, general, self.folder)
        known = None if self.fresh else _recall(self.folder, question)
        key = (probe, python, Path(arguments[0]))
        self.recalled[key] = self.recalled.get(key, True) and known is not None
        if known is not None:
            return known
        before, began = question.name, time.time_ns()
        answer = ask(runner, python, probe, *arguments)
        if answer.files and answer.returncode == 0 and not question.is_named_in(answer.facts):
            name = question.general_name if answer.unread else before
            with suppress(OSError):  # a cache that cannot be written to
                _remember(self.folder, name, answer, python=python, began=began)
        return answer

    def said_of(self, probe: str, subject: Path) -> dict[str, list[str]]:
        """The interpreters that were not started to ask about it, as facts; empty for none."""
        found = sorted(
            str(python)
            for (asked, python, about), is_known in self.recalled.items()
            if (asked, about, is_known) == (probe, subject, True)
        )
        return {"remembered": found} if found else {}


def _recall(folder: Path, question: Question) -> Answer | None:
    """The general question first: it takes no look at what may be a large library."""
    return _read(folder, question.general_name) or _read(folder, question.name)


def _read(folder: Path, name: str | None) -> Answer | None:
    """The answer of that name; None when there is none, it is damaged, or a file has changed."""
    if name is None:
        return None
    file = folder / ANSWERS / name
    try:
        with reading(file, "an answer"):
            seal, _, body = read_bytes(file, "an answer").partition(b"\n")
            if seal.decode() != sha256(body):
                return None
            said = parse_json(body, file, "an answer")
            if not _holds(folder, str(said["around"])):
                return None
            state, reason = str(said["state"]), str(said["reason"])
            return Answer(state, reason, {**said["facts"]}, unread=bool(said["unread"]))
    except (OSError, DamagedFileError):
        return None


def _holds(folder: Path, key: str) -> bool:
    file = folder / SURROUNDINGS / key
    around = read_bytes(file, "an answer's surroundings")
    told = parse_json(around, file, "an answer's surroundings")
    return sha256(around) == key and unchanged(Path("/"), looks(told))


def _remember(folder: Path, name: str | None, answer: Answer, *, python: Path, began: int) -> None:
    """Keep the answer, unless a file has changed meanwhile: which state was seen is not known."""
    observed = {path: look(path) for path in (str(python), *answer.files)}
    is_old = all(then is None or max(then[1:3]) < began for then in observed.values())
    if name is None or not is_old:
        return
    around = json.dumps(observed).encode()
    key = sha256(around)
    said = {"state": answer.state, "reason": answer.reason, "facts": answer.facts}
    body = json.dumps({**said, "unread": answer.unread, "around": key}).encode()
    keep(folder / SURROUNDINGS, key, around)
    keep(folder / ANSWERS, name, sha256(body).encode() + b"\n" + body)


def keep(folder: Path, name: str, data: bytes) -> None:
    """Write one file of a folder in `KEPT`; it makes the oldest go when there are too many."""
    replace_atomically(folder / name, data)
    dated = sorted((path.stat().st_mtime_ns, path) for path in folder.iterdir())
    for _, path in dated[: -KEPT[folder.name]]:
        path.unlink(missing_ok=True)
