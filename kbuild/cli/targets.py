"""What `check`, `check-builds` and `check-abi` look at: TARGETs of the command line.

A project, a folder of variants, one variant, one library, or a kernel on the Hub; one grammar for
the three.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kbuild.cli.built import discover, is_variant
from kbuild.cli.context import Context
from kbuild.errors import UsageError
from kbuild.scratch import scratch_folder

Kind = Literal["project", "build", "variant", "library", "hub"]
HUB = "hub:"
_BUILD_FILE = "build.toml"
_LIKE_HUB = re.compile(r"[\w.-]+/[\w.-]+@[\w./-]+")


@dataclass(frozen=True)
class Target:
    """One thing to look at, found on this machine."""

    given: str
    """As the command line wrote it."""
    kind: Kind
    path: Path
    """The project's folder, the folder that holds variants, the variant, or the library."""
    variants: tuple[Path, ...] = ()
    """Variant folders; none for a library, and for a project that has not been built."""


def add_targets(parser: ArgumentParser) -> None:
    """Declare the positional arguments."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a project (default: the one here), a folder of variants, a variant, a library file, "
        "or a kernel on the Hub: hub:OWNER/KERNEL@REVISION",
    )


@contextmanager
def targets_of(args: Namespace, ctx: Context, *, unbuilt: bool = False) -> Iterator[list[Target]]:
    """The targets; what was fetched for them is gone afterwards.

    Args:
        args: with `targets`, and `variant` as globs.
        ctx: where relative paths start.
        unbuilt: whether a project may be without built variants.

    Raises:
        UsageError: there is no such thing, or it has no built variants.
        KbuildError: the Hub cannot be reached.
    """
    with ExitStack() as stack:
        given: Sequence[str] = args.targets or ["."]
        yield [_resolved(text, args.variant, ctx, stack, unbuilt=unbuilt) for text in given]


def _resolved(
    text: str, globs: Sequence[str], ctx: Context, stack: ExitStack, *, unbuilt: bool
) -> Target:
    if text.startswith(HUB):
        return _from_hub(text, globs, ctx, stack)
    path = ctx.path(Path(text))
    if path.is_file():
        return _library(text, path)
    if not path.is_dir():
        raise UsageError(f"`{text}` does not exist", hint=_meant(text))
    if (path / _BUILD_FILE).is_file():
        return Target(text, "project", path, _built(path, globs, unbuilt=unbuilt))
    kind: Kind = "variant" if is_variant(path) else "build"
    return Target(text, kind, path, discover(path, globs))


def _from_hub(text: str, globs: Sequence[str], ctx: Context, stack: ExitStack) -> Target:
    from kbuild.hub.fetch import fetch_revision

    ctx.ui.detail(f"fetching {text}")
    into = stack.enter_context(scratch_folder("hub"))
    return Target(text, "hub", into, discover(fetch_revision(text, into, globs), globs))


def _library(text: str, path: Path) -> Target:
    from kbuild.checks.base import is_library

    if not is_library(path):
        hint = "a library is named *.so, *.pyd, *.dylib or *.dll; a project is named by its folder"
        raise UsageError(f"`{text}` is a file, but no shared library", hint=hint)
    return Target(text, "library", path)


def _built(path: Path, globs: Sequence[str], *, unbuilt: bool) -> tuple[Path, ...]:
    try:
        return discover(path, globs)
    except UsageError:
        if unbuilt:
            return ()
        raise


def _meant(text: str) -> str:
    if _LIKE_HUB.fullmatch(text):
        return f"a kernel on the Hub is written {HUB}{text}"
    return "name a folder, a library file, or hub:OWNER/KERNEL@REVISION"
