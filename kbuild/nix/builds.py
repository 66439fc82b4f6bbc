"""The builds of one run of Nix as its log tells of them: lines, logs, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from kbuild.build.ninja import Errors
from kbuild.errors import BuildError
from kbuild.nix.events import name_of, plain

_OWN = re.compile(r"error: (?P<message>.+)")
_HINT = "  hint: "
_SHOWN = 14
"""Lines that are shown of what kbuild says in the sandbox."""


@dataclass
class Report:
    """Looks for what a kbuild in the sandbox says about its failure; keeps little else."""

    message: str = ""
    hint: str = ""
    excerpt: list[str] = field(default_factory=list)
    others: Errors = field(default_factory=Errors)
    """For builders that are no kbuild."""
    _is_open: bool = False

    def take(self, line: str) -> None:
        """One more line."""
        line = plain(line)
        self.others.take(line)
        match = _OWN.match(line)
        if match is not None and not self.message:
            self.message, self._is_open = match["message"], True
        elif self._is_open and line.startswith(_HINT):
            self.hint = line.removeprefix(_HINT)
        elif self._is_open and line.startswith("    ") and len(self.excerpt) < _SHOWN:
            self.excerpt.append(line.strip())
        elif not line.startswith("  "):
            self._is_open = False


@dataclass
class Build:
    """One derivation that is being built, or was."""

    derivation: str
    machine: str = ""
    """Where, when not here."""
    began: float = 0.0
    ended: float | None = None
    log: Path | None = None
    report: Report = field(default_factory=Report)
    _file: TextIO | None = None

    @property
    def name(self) -> str:
        """Of the derivation."""
        return name_of(self.derivation)

    def open(self, folder: Path) -> None:
        """Keep its lines in a file of a folder."""
        self.log = folder / f"{self.name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.log.open("w", encoding="utf-8", errors="replace", buffering=1)

    def take(self, line: str) -> None:
        """One more line of its builder."""
        self.ended = None
        self.report.take(line)
        if self._file is not None:
            self._file.write(f"{line}\n")

    def end(self, now: float) -> None:
        """It is over, as far as can be seen; the first time counts."""
        if self.ended is None:
            self.ended = now

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def failure(self, subject: str, reason: str) -> BuildError:
        """The error of a build that failed.

        Args:
            subject: the variant, or what else it makes.
            reason: what Nix says, e.g. `its builder failed with exit code 5`.
        """
        said = self.report
        command = f"`nix log {self.derivation}` shows all of it"
        hint = f"{said.hint}; {command}" if said.hint else command
        message = f"{subject}: {said.message or reason}"
        excerpt = said.excerpt if said.message else _without_empty(said.others.excerpt)
        return BuildError(message, excerpt=tuple(excerpt), log=self.log, hint=hint)


def _without_empty(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.strip()]
