"""`kbuild devshell`: a shell with the tools that a variant is built with, from the flake."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.context import Context
from kbuild.cli.shells import Shell, add_shell, open_shell

_SHELL = Shell(
    "default",
    "devShells",
    "without Nix, `kbuild build --dev` and `kbuild create-pyproject` work with the tools of this "
    "machine; see docs/how-to/local-development.md",
)


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_shell(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Become `nix develop` on one of the flake's `devShells`."""
    return open_shell(args, ctx, _SHELL)
