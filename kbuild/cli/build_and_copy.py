"""`kbuild build-and-copy`: `kbuild build` into the project's own `build/`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli import build
from kbuild.cli.context import Context


def configure(parser: ArgumentParser) -> None:
    """The arguments of `build`."""
    build.configure(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Build into `DIR/build`, or `--output` when that is given."""
    return build.execute(args, ctx)
