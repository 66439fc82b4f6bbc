"""Where in a section something stands, and what is wrong there."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbuild.config.issue import Issue, KeyPath


@dataclass(frozen=True)
class Place:
    """A key path that collects issues; places below it collect into the same list."""

    path: KeyPath
    issues: list[Issue] = field(default_factory=list)

    def at(self, *keys: str | int) -> Place:
        """The place of a key or element below this one."""
        return Place((*self.path, *keys), self.issues)

    def error(self, message: str, hint: str = "") -> None:
        """Something that has to be mended here."""
        self.issues.append(Issue(self.path, message, hint))

    def warning(self, message: str, hint: str = "") -> None:
        """Something doubtful here."""
        self.issues.append(Issue(self.path, message, hint, "warning"))

    @property
    def errors(self) -> int:
        """How many errors there are so far, here and elsewhere."""
        return sum(issue.severity == "error" for issue in self.issues)
