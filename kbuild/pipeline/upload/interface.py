"""How a kernel's package differs from what is published: this version, else the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbuild.hub.preflight import Standing, api_changes, of_changes
from kbuild.hub.reasons import Reason
from kbuild.hub.target import Target
from kbuild.pipeline.upload.options import Desk
from kbuild.surface import Change, SurfaceError, read_surface


@dataclass(frozen=True)
class Interface:
    """The outcome of a comparison."""

    changes: tuple[Change, ...] = ()
    replaces: bool = False
    """Whether it is the same version that is published."""
    problem: Reason | None = None
    """Why nothing could be compared."""

    def reasons(self, version: int) -> Iterator[Reason]:
        """What is in the way."""
        if self.problem:
            yield self.problem
        if self.replaces:
            yield from of_changes(self.changes, version)


def interface_of(
    package: Path | None, target: Target, standing: Standing, desk: Desk, *, own: str, version: int
) -> Interface:
    """Compare a package with what is published.

    Args:
        package: the folder of its `__init__.py`; nothing is compared without.
        target: where it is to be published.
        standing: what is there.
        desk: whom to ask for it.
        own: the package's name.
        version: of the kernel.

    Raises:
        HubError: the Hub cannot be asked.
    """
    replaces = standing.has(target.branch)
    heads = standing.refs.branches if standing.refs else {}
    commit = heads.get(target.branch) or standing.latest_before(version)
    if commit is None or package is None:
        return Interface()
    try:
        surface = read_surface(package, own)
    except SurfaceError as error:
        return Interface(problem=Reason("interface", error.message, error.hint))
    changes = desk.patience.persist(
        lambda: api_changes(desk.hub, target, commit, package, surface, own=own)
    )
    return Interface(changes, replaces)
