"""`kbuild devshell`: replaces this process by a shell to build or to test in."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_kernel_dir
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.pipeline.shell import ShellEnvironment
    from kbuild.plan.project import Project


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--variant",
        metavar="GLOB",
        help="a variant, by name or pattern (default: the best one for this machine)",
    )
    parser.add_argument(
        "--test",
        action="store_true",
        help="open a shell for a built variant, not one to build in",
    )
    parser.set_defaults(rest=())
    parser.epilog = "The command after `--` runs in the shell instead of a prompt"


def execute(args: Namespace, ctx: Services) -> int:
    """Become a shell with the tools that build a variant, or one in which it can be imported.

    Raises:
        UsageError: the pattern does not name one variant.
        ToolchainError: no variant can be built here.
    """
    from kbuild.plan.project import open_project

    project = open_project(ctx.folder(args.kernel_dir))
    local = _testing if args.test else _development
    environment = local(project, args.variant, ctx)
    program = args.rest or (os.environ.get("SHELL") or "/bin/sh",)
    ctx.ui.say(f"{environment.variant}, in {project.root}; `exit` leaves the shell")
    os.chdir(project.root)
    sys.stdout.flush()
    sys.stderr.flush()
    command = environment.command(program)
    os.execvp(command[0], command)  # noqa: S606 - it talks to the user, on this terminal


def _development(project: Project, pattern: str | None, ctx: Services) -> ShellEnvironment:
    """A shell with the toolchain of a variant, which is built for development first."""
    from kbuild.pipeline.shell import development_environment
    from kbuild.system.workspace import WORKSPACE_FOLDER

    variant = _single_variant(pattern, project) if pattern else None
    environment = development_environment(project, variant, ctx)
    if (project.root / WORKSPACE_FOLDER / "compile_commands.json").is_file():
        ctx.ui.say(f"clangd finds the commands with --compile-commands-dir={WORKSPACE_FOLDER}")
    return environment


def _testing(project: Project, pattern: str | None, ctx: Services) -> ShellEnvironment:
    """A shell where a built variant can be imported; one is built where there is none."""
    from kbuild.cli.variants import chosen_python, find_variants
    from kbuild.pipeline.compatibility import check_compatibility
    from kbuild.pipeline.shell import ShellEnvironment, loading_variables

    try:
        folders = find_variants(project.root, (pattern,) if pattern else ())
    except UsageError:
        return _development(project, pattern, ctx)
    python = chosen_python(None, ctx)
    variant = folders[0]
    if len(folders) > 1:
        names = [folder.name for folder in folders]
        fit = check_compatibility(names, python, ctx.runner)
        if fit.chosen is None:
            raise UsageError(
                f"several variants are built, and none is known to fit `{python}`",
                hint=f"name one with --variant: {', '.join(names)}",
            )
        variant = folders[names.index(fit.chosen)]
    return ShellEnvironment(variant.name, loading_variables(project, variant, python))


def _single_variant(pattern: str, project: Project) -> str:
    """The one variant that is meant."""
    from kbuild.plan.selection import Selection, select_variants
    from kbuild.project.variant import host_system

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
