"""The options that name variants, the same for every verb that takes them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.errors import UsageError
from kbuild.matrix.selection import Selection, host_system
from kbuild.variant import System
from kbuild.version import Version


def add_selection(parser: ArgumentParser) -> None:
    """Declare `--variant`, `--backend`, `--torch` and `--system`."""
    group = parser.add_argument_group("which variants")
    group.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="GLOB",
        help="variants by name, e.g. 'torch213-*-cpu-*' (repeatable)",
    )
    group.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="one backend (repeatable)"
    )
    group.add_argument(
        "--torch", action="append", default=[], metavar="X.Y", help="a Torch release (repeatable)"
    )
    group.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="CPU-OS",
        help="a system such as x86_64-linux, or `host` (repeatable)",
    )


def selection_of(args: Namespace) -> Selection:
    """What the options ask for.

    Raises:
        UsageError: a release or a system is not written as one.
    """
    try:
        return Selection(
            globs=tuple(args.variant),
            backends=tuple(args.backend),
            torch=tuple(Version.parse(text) for text in args.torch),
            systems=tuple(_system(text) for text in args.system),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _system(text: str) -> System:
    return host_system() if text == "host" else System.parse(text)
