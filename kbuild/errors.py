"""What kbuild says when something is wrong: problems in files, and failures that end a command.

The library raises; only `kbuild.__main__` turns an error into words on stderr and an exit code.
Exit codes are part of the interface and listed in `docs/reference/exit-codes.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning"]


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

    def __str__(self) -> str:
        """`build.toml:12: kernel.relu.src: ... ` with the hint on an indented line below."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f"{self.key}: " if self.key else ""
        mark = "warning: " if self.severity == "warning" else ""
        text = f"{place}: {mark}{subject}{self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, Any]:
        """The problem as a JSON object."""
        return {
            "file": self.file,
            "line": self.line,
            "key": self.key,
            "message": self.message,
            "hint": self.hint,
            "severity": self.severity,
        }


class KbuildError(Exception):
    """A failure with words for the user: what happened, and what to do about it."""

    code: ClassVar[int] = 1
    """Process exit code."""
    kind: ClassVar[str] = "error"
    """Machine-readable name, used in `--json` output."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return {"kind": self.kind, "message": self.message, "hint": self.hint}


class UsageError(KbuildError):
    """The command line asks for something that does not exist or cannot be combined."""

    code = 2
    kind = "usage"


class ConfigError(KbuildError):
    """The project's `build.toml` (or a file it names) is wrong; carries every problem found."""

    code = 3
    kind = "config"

    def __init__(self, problems: Sequence[Problem]) -> None:
        errors = sum(1 for problem in problems if problem.severity == "error")
        super().__init__(f"{errors} problem{'s' if errors != 1 else ''} found")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {"problems": [p.to_json() for p in self.problems]}


class ToolchainError(KbuildError):
    """A compiler, library or Torch that the plan needs is missing or does not fit."""

    code = 4
    kind = "toolchain"


class BuildError(KbuildError):
    """A process of the build failed."""

    code = 5
    kind = "build"

    def __init__(
        self,
        message: str,
        *,
        command: str = "",
        excerpt: Sequence[str] = (),
        log: Path | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.command = command
        self.excerpt = tuple(excerpt)
        self.log = log

    def __str__(self) -> str:
        parts = [self.message, *(f"    {line}" for line in self.excerpt)]
        if self.command:
            parts.append(f"  command: {self.command}")
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


class CheckError(KbuildError):
    """The build's result breaks a promise; carries the findings' text."""

    code = 6
    kind = "check"

    def __init__(self, message: str, findings: Sequence[dict[str, Any]], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {"findings": list(self.findings)}


class FileConflictError(KbuildError):
    """Writing would replace or delete a file that kbuild did not write."""

    code = 7
    kind = "conflict"


class TestFailureError(KbuildError):
    """The project's own tests did not pass."""

    code = 8
    kind = "tests"
    __test__ = False  # its name must not make pytest collect it


class IncompleteError(KbuildError):
    """The time budget was over before everything was built; the next run continues."""

    code = 9
    kind = "incomplete"


class SigningError(KbuildError):
    """There is no identity to sign with, or sigstore cannot be asked."""

    code = 10
    kind = "signing"


class HubError(KbuildError):
    """The Hub cannot be asked, or refuses what was asked of it."""

    code = 11
    kind = "hub"
