"""The option that names folders with the headers of dependencies."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.project import Project


def add_sources(parser: ArgumentParser) -> None:
    """Declare `--with-source`."""
    parser.add_argument(
        "--with-source",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="take the headers of a dependency from a source tree, e.g. cutlass_4_0=DIR "
        "(repeatable)",
    )


def sources_of(args: Namespace, ctx: Context, project: Project) -> dict[str, Path]:
    """Folder by dependency; warns of those that the project does not depend on.

    Raises:
        UsageError: an entry is not written as one, is named twice, or names nothing that there is.
    """
    if not args.with_source:
        return {}
    found = _parsed(args.with_source, ctx)
    used = {name for section in project.kernels.values() for name in section.depends}
    for name in sorted({*found} - used):
        ctx.ui.warn(f"--with-source {name}: no section of build.toml depends on `{name}`")
    return found


def _parsed(given: Sequence[str], ctx: Context) -> dict[str, Path]:
    from kbuild.config.suggest import one_of
    from kbuild.toolchains.sources.pins import header_names

    found: dict[str, Path] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise UsageError(
                f"--with-source takes NAME=DIR, not `{text}`", hint="e.g. cutlass_4_0=../cutlass"
            )
        if name not in header_names():
            hint = one_of(name, header_names())
            raise UsageError(f"--with-source: there is no dependency `{name}`", hint=hint)
        if name in found:
            raise UsageError(f"--with-source: `{name}` is given twice")
        found[name] = ctx.path(Path(folder))
    return found
