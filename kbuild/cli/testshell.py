"""`kbuild testshell`: a shell where a built variant can be imported and tested, from the flake."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.context import Context
from kbuild.cli.shells import Shell, add_shell, open_shell

_SHELL = Shell(
    "test",
    "testShells",
    "without Nix, `kbuild test` runs the tests against a variant of `build/`",
)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_shell(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Become `nix develop` on one of the flake's `testShells`."""
    return open_shell(args, ctx, _SHELL)
