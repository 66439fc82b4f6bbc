"""Errors of kbuild: problems in files, and failures that end a command.

The library raises; only `kbuild.__main__` turns an error into words on stderr and an exit code.
Exit codes are part of the interface and listed in `docs/reference/exit-codes.md`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

Severity = Literal["error", "warning"]
_SOURCE_COLUMNS = 72
"""Width of a line that is quoted from a file; with the margin it fits into 80 columns."""
SHOWN_PLACES = 3
"""Number of places of the same problem that are named."""
_VARYING = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\d+(?:\.\d+)*")
T = TypeVar("T")


def install_command(*requirements: str) -> str:
    """Write the command that installs packages for the Python that runs kbuild.

    kbuild often has an environment of its own, where a plain `pip` would belong to another Python.
    """
    from importlib.machinery import PathFinder
    from shlex import join

    # uv makes environments without pip. Setuptools watches whoever asks for pip as an import does.
    has_pip = PathFinder.find_spec("pip") is not None
    start = (sys.executable, "-m", "pip", "install")
    return join(
        (
            *(start if has_pip else ("uv", "pip", "install", "--python", sys.executable)),
            *requirements,
        )
    )


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong (or doubtful) at one place of a file."""

    file: str
    """Path as the user would type it, relative to where the command was started when possible."""
    line: int
    """1-based line, 0 when the problem belongs to the file as a whole."""
    key: str
    """Dotted key path such as `kernel.relu.cuda-capabilities`, or an empty string."""
    message: str
    hint: str = ""
    severity: Severity = "error"
    column: int = 0
    """1-based column in the line, 0 when the problem belongs to the line as a whole."""
    length: int = 0
    """Characters that are wrong, from the column on."""
    source: str = ""
    """Text of the line, empty when there is none or it is unknown."""

    @property
    def place(self) -> str:
        """The file, with the line where it has one."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def with_note(self, note: str) -> Problem:
        """The problem with more words behind its message."""
        return replace(self, message=f"{self.message}{note}")

    def __str__(self) -> str:
        """`build.toml:12: kernel.relu.src: ... ` with the hint on an indented line below."""
        subject = f"{self.key}: " if self.key else ""
        mark = "warning: " if self.severity == "warning" else ""
        excerpt = marked_source(self.source, self.column, self.length)
        text = "\n".join((f"{self.place}: {mark}{subject}{self.message}", *_indented(excerpt)))
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, Any]:
        """The problem as a JSON object."""
        return asdict(self)


def marked_source(source: str, column: int, length: int) -> tuple[str, ...]:
    """A line of a file, and below it carets at a place in it; nothing for an empty line.

    Args:
        source: the line; shortened around the place where it is long.
        column: 1-based, 0 for the whole line.
        length: characters from the column on.
    """
    if not source.strip():
        return ()
    if not column:
        column, length = len(source) - len(source.lstrip()) + 1, 0
    # The file may hold tabs and escape sequences; neither may move the carets.
    before, marked, after = (
        _printable(part)
        for part in (
            source[: column - 1],
            source[column - 1 : column - 1 + length],
            source[column - 1 + length :],
        )
    )
    indent = len(before) - len(before.lstrip())
    before, marked = before[indent:], marked[:_SOURCE_COLUMNS]
    if len(before) + len(marked) > _SOURCE_COLUMNS:
        keep = max(_SOURCE_COLUMNS - len(marked), _SOURCE_COLUMNS // 4)
        before = f"...{before[-keep:]}"
    after = after[: max(_SOURCE_COLUMNS - len(before) - len(marked), 0)]
    line = f"{before}{marked}{after}".rstrip()
    return (line, " " * len(before) + "^" * len(marked)) if marked else (line,)


def _printable(text: str) -> str:
    return "".join(
        char if char.isprintable() else " " if char == "\t" else ascii(char)[1:-1] for char in text
    )


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def counted(count: int, noun: str) -> str:
    """`1 variant`, `2 variants`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True)
class Repetition(Generic[T]):
    """Problems or findings with the same message at several places, shown as one."""

    first: T
    places: tuple[str, ...]
    is_literal: bool = True
    """False where the sentences differ in names and numbers."""

    @property
    def note(self) -> str:
        """Suffix of the first message: how many there are, and where the next are."""
        if len(self.places) == 1:
            return ""
        unit = "times" if self.is_literal else "of this kind"
        shown, hidden = self.places[1:SHOWN_PLACES], len(self.places) - SHOWN_PLACES
        also = ", ".join(shown) + (f" and {hidden} more" if hidden > 0 else "")
        whole = "; `-v` shows all" if hidden > 0 or not self.is_literal else ""
        return f" ({len(self.places)} {unit}: also {also}{whole})"


def grouped(
    things: Iterable[T], describe: Callable[[T], tuple[Hashable, str, str]]
) -> list[Repetition[T]]:
    """Problems or findings of one kind with the same message, in the order of the first of each.

    Messages that differ only in quoted names and in numbers are one repetition where there are
    more of them than are easily read.
    """
    kinds: dict[tuple[Hashable, str], list[tuple[T, str, str]]] = {}
    for thing in things:
        kind, sentence, place = describe(thing)
        alike = kinds.setdefault((kind, _VARYING.sub("", sentence)), [])
        alike.append((thing, sentence, place))
    return [each for alike in kinds.values() for each in _repetitions(alike)]


def _repetitions(alike: Sequence[tuple[T, str, str]]) -> Iterator[Repetition[T]]:
    sentences = dict.fromkeys(sentence for _, sentence, _ in alike)
    if len(sentences) > 1 and len(alike) > SHOWN_PLACES:
        yield Repetition(alike[0][0], tuple(place for *_, place in alike), is_literal=False)
        return
    for sentence in sentences:
        same = [(thing, place) for thing, message, place in alike if message == sentence]
        yield Repetition(same[0][0], tuple(place for _, place in same))


def in_groups(problems: Iterable[Problem]) -> list[str]:
    """The problems as text, repeated warnings as one."""
    repetitions = grouped(problems, _description)
    return [str(r.first.with_note(r.note)) for r in repetitions]


def _description(problem: Problem) -> tuple[Hashable, str, str]:
    place = problem.place
    if problem.severity == "error":  # each has to be corrected
        return problem, problem.message, place
    return re.sub(r"[^.]+", "", problem.key), problem.message, place


class KbuildError(Exception):
    """A failure with words for the user: what happened, and what to do about it."""

    code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"
    """Machine-readable name, used in `--json` output."""

    def __init_subclass__(cls, *, code: int = 0, kind: str = "") -> None:
        cls.code, cls.kind = code or cls.code, kind or cls.kind

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return {"kind": self.kind, "message": self.message, "hint": self.hint}


class UsageError(KbuildError, code=2, kind="usage"):
    """The command line asks for something that does not exist or cannot be combined."""


class ConfigError(KbuildError, code=3, kind="config"):
    """The project's `build.toml` (or a file it names) is wrong; carries every problem found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        errors = sum(1 for problem in problems if problem.severity == "error")
        super().__init__(f"{counted(errors, 'problem')} found")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {"problems": [p.to_json() for p in self.problems]}


class ToolchainError(KbuildError, code=4, kind="toolchain"):
    """A compiler, library or Torch that the plan needs is missing or does not fit."""


class BuildError(KbuildError, code=5, kind="build"):
    """A process of the build failed."""

    def __init__(
        self,
        message: str,
        *,
        command: str = "",
        command_file: Path | None = None,
        excerpt: Sequence[str] = (),
        log: Path | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.command = command
        self.command_file = command_file
        """A script with the command, where that is too long for a line."""
        self.excerpt = tuple(excerpt)
        self.log = log

    def __str__(self) -> str:
        parts = [self.message, *_indented(self.excerpt)]
        if self.command:
            parts.append(f"  command: {self.command_file or self.command}")
        if self.log:
            parts.append(f"  log: {self.log}")
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {
            "command": self.command,
            "excerpt": list(self.excerpt),
            "log": str(self.log) if self.log else None,
        }


class CheckError(KbuildError, code=6, kind="check"):
    """The build's result fails a check; carries the findings' text."""

    def __init__(self, message: str, findings: Sequence[dict[str, Any]], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {"findings": list(self.findings)}


class FileConflictError(KbuildError, code=7, kind="conflict"):
    """Writing would replace or delete a file that kbuild did not write."""


class TestFailureError(KbuildError, code=8, kind="tests"):
    """The project's own tests did not pass."""

    __test__ = False  # its name must not make pytest collect it


class IncompleteError(KbuildError, code=9, kind="incomplete"):
    """The time budget was over before everything was built; the next run continues."""


class SigningError(KbuildError, code=10, kind="signing"):
    """Signing failed: there is no identity to sign with, or sigstore cannot be reached."""


class HubError(KbuildError, code=11, kind="hub"):
    """The Hub cannot be asked, or refuses what was asked of it."""


class StorageError(KbuildError, code=12, kind="storage"):
    """The operating system refuses to read or write: no space, read-only, no permission."""


class DamagedFileError(KbuildError, code=13, kind="damaged"):
    """A file that kbuild did not just write cannot be understood: damaged, or of another kind."""


class RegressionError(KbuildError, code=14, kind="regression"):
    """A benchmark takes longer than it may."""


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, at most once each."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
