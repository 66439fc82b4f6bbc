"""`kbuild devshell` and `testshell`: replace this process by `nix develop` on the flake."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.command_options import add_flags
from kbuild.errors import ToolchainError, UsageError
from kbuild.pipeline.options import FLAKE_FLAGS, nix_options_of
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.project import Project


@dataclass(frozen=True)
class FlakeShell:
    """One kind of shell of a kernel's flake."""

    default: str
    """Attribute of the shell for the variant that fits this machine best."""
    others: str
    """Attribute that has one for each variant."""
    instead: str
    """What serves without Nix."""


def configure_devshell(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "variant",
        nargs="?",
        metavar="VARIANT",
        help="a variant, by name or pattern (default: the best one for this machine)",
    )
    parser.add_argument(
        "--project", type=Path, metavar="DIR", help="project folder (default: the current folder)"
    )
    add_flags(parser, FLAKE_FLAGS)
    parser.set_defaults(rest=())
    parser.epilog = "The command after `--` runs in the shell instead of a prompt"


configure_testshell = configure_devshell


def open_shell(args: Namespace, ctx: Services, shell: FlakeShell) -> int:
    """Become the shell; returns only when that is not possible.

    Raises:
        UsageError: the project has no flake, or the pattern does not name one variant.
        ToolchainError: Nix cannot be used.
    """
    from kbuild.nix.flake import FLAKE_FILE, uses_kbuild
    from kbuild.nix.pip_settings import sandbox_pip_settings
    from kbuild.nix.program import find_nix
    from kbuild.project import open_project

    project = open_project(ctx.folder(args.project))
    if not uses_kbuild(project.root):
        raise UsageError(
            f"`{project.root}` has no {FLAKE_FILE} that uses kbuild", hint=shell.instead
        )
    attribute = f"{shell.others}.{_single_variant(args.variant, project)}" if args.variant else ""
    options = nix_options_of(args)
    try:
        nix = find_nix(ctx.cache, ctx.runner, options.configuration)
    except ToolchainError as error:
        raise ToolchainError(error.message, hint=shell.instead) from None
    run = ("--command", *args.rest) if args.rest else ()
    flake = f".#{attribute or shell.default}"
    command = nix.command("develop", flake, *options.evaluation)
    ctx.ui.say(f"nix develop {flake}, in {project.root}")
    # What the shell is made of is fetched before: nobody would take the lent settings away again.
    with sandbox_pip_settings(nix, ctx.runner) as lent:
        if lent.places:
            first = (*command, *lent.options, "--command", "true")
            ctx.runner.run(first, cwd=project.root, env=lent.environment, listen=ctx.ui.detail)
    ctx.become((*command, *run), project.root)
    return 0


def _single_variant(pattern: str, project: Project) -> str:
    """The one variant that is meant."""
    from kbuild.selection import Selection, select_variants
    from kbuild.variant import host_system

    here = host_system()
    variants = [
        str(choice.variant)
        for choice in select_variants(project, Selection(globs=(pattern,)))
        if choice.variant.system in {None, here}
    ]
    if len(variants) == 1:
        return variants[0]
    listed = f"it matches {', '.join(variants)}" if variants else f"it matches none for {here}"
    raise UsageError(f"`{pattern}` does not name one variant", hint=listed)


_DEVSHELL = FlakeShell(
    "default",
    "devShells",
    "without Nix, `kbuild build --dev` and `kbuild create-pyproject` work with the tools of this "
    "machine; see docs/how-to/local-development.md",
)


def execute_devshell(args: Namespace, ctx: Services) -> int:
    """Become `nix develop` on one of the flake's `devShells`."""
    return open_shell(args, ctx, _DEVSHELL)


_TESTSHELL = FlakeShell(
    "test", "testShells", "without Nix, `kbuild test` runs the tests against a variant of `build/`"
)


def execute_testshell(args: Namespace, ctx: Services) -> int:
    """Become `nix develop` on one of the flake's `testShells`."""
    return open_shell(args, ctx, _TESTSHELL)
