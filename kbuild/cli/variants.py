"""Finds what a command line names: built variants, and the TARGETs of the checking commands.

A TARGET is a project, a folder of variants, one variant, one library, or a kernel on the Hub.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kbuild.plan.command_options import option
from kbuild.project.variant import variant_named
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.toolchains.facts import Facts

METADATA = "metadata.json"


def add_variant(parser: ArgumentParser) -> None:
    """Declare `--variant`."""
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="GLOB",
        help="select variants by name, e.g. 'torch213-*-cpu-*' (repeatable)",
    )


def add_python(parser: ArgumentParser, what: str) -> None:
    """Declare `--python`."""
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PROGRAM",
        help=f"interpreter that {what} (default: the one that builds use)",
    )


@dataclass(frozen=True)
class LoadOptions:
    """The interpreters that a variant is loaded with."""

    python: Path | None = None
    others: tuple[Path, ...] = option(
        "--also-python",
        default=(),
        type=Path,
        action="append",
        metavar="PROGRAM",
        help=("another interpreter that must load them, e.g. with another Torch (repeatable)"),
        read=lambda args, ctx, _: tuple(chosen_python(python, ctx) for python in args.also_python),
    )


def find_variants(folder: Path, globs: Sequence[str] = ()) -> tuple[Path, ...]:
    """The variant directories of a project, in name order.

    Looked for in this order, the first place that has any wins: the folder itself as one variant,
    `build/` below it, the folder, and a `result` link that Nix left. `result` comes last because
    it may be older than `build/`.

    Raises:
        UsageError: there is none, or none whose name matches.
    """
    places = (folder / "build", folder, folder / "result")
    variants = [folder] if is_variant(folder) else next(filter(None, map(_variants_in, places)), [])
    if not variants:
        looked = ", ".join(f"`{place}`" for place in places)
        raise UsageError(f"no built variants in {looked}", hint="`kbuild build` builds them")
    chosen = tuple(path for path in variants if _matches(path.name, globs))
    if not chosen:
        names = ", ".join(path.name for path in variants)
        raise UsageError(f"no built variant matches {' or '.join(globs)}", hint=f"built: {names}")
    return chosen


def is_variant(folder: Path) -> bool:
    """True when the folder has metadata, or a variant's name."""
    return folder.is_dir() and (
        (folder / METADATA).is_file() or variant_named(folder.name) is not None
    )


def chosen_python(path: Path | None, ctx: Services) -> Path:
    """The interpreter for loading a kernel: the requested one, else the one that builds use.

    Raises:
        ToolchainError: the requested one is not a Python interpreter.
    """
    return Path(chosen_facts(path, ctx)["python"]["executable"])


def chosen_facts(path: Path | None, ctx: Services) -> Facts:
    """The facts of `chosen_python`.

    Raises:
        ToolchainError: the requested one is not a Python interpreter.
    """
    from kbuild.toolchains.facts import FactCache
    from kbuild.toolchains.host import choose_python

    # A name without a folder is looked for on PATH, as a shell does.
    asked = path if path is None or len(path.parts) == 1 else ctx.path(path)
    return choose_python(asked, FactCache(ctx.cache), ctx.runner)


def _variants_in(place: Path) -> list[Path]:
    paths = sorted(place.iterdir()) if place.is_dir() else ()
    return [path for path in paths if not path.name.startswith(".") and is_variant(path)]


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


TargetKind = Literal["project", "build", "variant", "library", "hub"]
HUB_PREFIX = "hub:"
_BUILD_FILE = "build.toml"
_HUB_REVISION = re.compile(r"[\w.-]+/[\w.-]+@[\w./-]+")


@dataclass(frozen=True)
class CheckTarget:
    """One thing to look at, found on this machine."""

    given: str
    kind: TargetKind
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
        help="a project (default: the one here), a folder of variants, a variant, a "
        "library, or hub:OWNER/KERNEL@REVISION",
    )


@contextmanager
def open_targets(
    args: Namespace, ctx: Services, *, unbuilt: bool = False
) -> Iterator[list[CheckTarget]]:
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
        texts: Sequence[str] = args.targets or ["."]
        yield [_resolve_target(text, args.variant, ctx, stack, unbuilt=unbuilt) for text in texts]


def _resolve_target(
    text: str, globs: Sequence[str], ctx: Services, stack: ExitStack, *, unbuilt: bool
) -> CheckTarget:
    if text.startswith(HUB_PREFIX):
        from kbuild.publish.hub.fetch import fetch_revision

        ctx.ui.detail(f"fetching {text}")
        from kbuild.system.temporary import temporary_folder

        into = stack.enter_context(temporary_folder("hub"))
        return CheckTarget(
            text, "hub", into, find_variants(fetch_revision(text, into, globs), globs)
        )
    path = ctx.path(Path(text))
    if path.is_file():
        from kbuild.checks.base import is_library

        if not is_library(path):
            hint = "a library is named *.so or *.dylib; a project is named by its folder"
            raise UsageError(f"`{text}` is a file, but no shared library", hint=hint)
        return CheckTarget(text, "library", path)
    if not path.is_dir():
        raise UsageError(f"`{text}` does not exist", hint=target_hint(text))
    if (path / _BUILD_FILE).is_file():
        return CheckTarget(text, "project", path, _built_variants(path, globs, unbuilt=unbuilt))
    kind: TargetKind = "variant" if is_variant(path) else "build"
    return CheckTarget(text, kind, path, find_variants(path, globs))


def _built_variants(path: Path, globs: Sequence[str], *, unbuilt: bool) -> tuple[Path, ...]:
    try:
        return find_variants(path, globs)
    except UsageError:
        if unbuilt:
            return ()
        raise


def target_hint(text: str) -> str:
    """The hint where a text names no folder."""
    if _HUB_REVISION.fullmatch(text):
        return f"a kernel on the Hub is written {HUB_PREFIX}{text}"
    return "name a folder, a library file, or hub:OWNER/KERNEL@REVISION"
