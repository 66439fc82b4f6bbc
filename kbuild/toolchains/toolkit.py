"""What a CUDA toolkit is to a build, and the questions that its source answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

Versions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Toolkit:
    """A toolkit that is on this machine."""

    source: str
    """Name of the `ToolkitSource`."""
    root: Path
    """`CUDA_HOME`."""
    nvcc: Path
    versions: Versions
    """For the record: `cuda`, `nvcc`, and whatever else a user should find there."""
    flags: str = ""
    """nvcc's for every unit and for CMake's own tests, as a shell reads them."""
    notes: tuple[str, ...] = ()
    """What the user should know before relying on what it compiles."""


class ToolkitSource:
    """Base of all ways to obtain a CUDA toolkit; a release is `12.6`."""

    name: ClassVar[str]

    def refuses(self, release: str) -> str | None:
        """Why it has no toolkit for that release, in one sentence; asks no network."""
        raise NotImplementedError

    def preview(self, release: str) -> Versions:
        """The versions that `provide` would give; fetches nothing."""
        raise NotImplementedError

    def compiler(self, release: str) -> str | None:
        """nvcc's own release where it is another one; its targets and flags then count."""
        del release
        return None

    def provide(self, release: str) -> Toolkit:
        """The toolkit, fetched when it is not there.

        Raises:
            ToolchainError: it cannot be had.
        """
        raise NotImplementedError


def first_that_has(sources: Sequence[ToolkitSource], release: str) -> ToolkitSource | None:
    """The first source that does not refuse."""
    return next((source for source in sources if source.refuses(release) is None), None)


def why_none(sources: Sequence[ToolkitSource], release: str) -> str:
    """Every source's reason, each once."""
    reasons = (source.refuses(release) for source in sources)
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
