"""`kbuild devshell`: replaces this process by a shell to build or to test in."""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.pipeline.driver import DriverRequest
from kbuild.pipeline.option_values import nix_options_of
from kbuild.pipeline.options import FLAKE_FLAGS, BuildOptions
from kbuild.plan.command_options import add_flags, add_options, read_options
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.pipeline.nix.program import Nix, NixOptions
    from kbuild.pipeline.shell import ShellEnvironment
    from kbuild.plan.project import Project


@dataclass(frozen=True)
class FlakeShell:
    """One kind of shell of a kernel's flake."""

    default: str
    """Attribute of the shell for the variant that fits this machine best."""
    others: str
    """Attribute of the flake that has a shell for each variant."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "kernel_dir",
        nargs="?",
        help="project folder (default: the current folder), or a variant of the current folder",
    )
    parser.add_argument("--project", type=Path, help=SUPPRESS)
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
    add_options(parser, BuildOptions, "driver")
    parser.add_argument(
        "--max-jobs", metavar="N", help="number of compilers, or of Nix's builds, to run at once"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="processors for each build of Nix")
    parser.add_argument(
        "-L", "--print-build-logs", action="store_true", help="show the output of Nix's builders"
    )
    add_flags(parser, FLAKE_FLAGS)
    parser.set_defaults(rest=(), builders=None, rebuild=False)
    parser.epilog = "The command after `--` runs in the shell instead of a prompt"


def execute(args: Namespace, ctx: Services) -> int:
    """Become a shell with the tools that build a variant, or one in which it can be imported."""
    if args.test:
        return _open_shell(args, ctx, FlakeShell("test", "testShells"), _testing)
    return _open_shell(args, ctx, FlakeShell("default", "devShells"), _development)


def _open_shell(
    args: Namespace,
    ctx: Services,
    shell: FlakeShell,
    local: Callable[[Project, str | None, Namespace, Services], ShellEnvironment],
) -> int:
    """Become the shell; returns only when that is not possible.

    Raises:
        UsageError: the pattern does not name one variant, or Nix is asked for without a flake.
        ToolchainError: Nix is asked for and cannot be used, or no variant can be built.
    """
    from kbuild.plan.project import open_project

    folder, pattern = _split_positional(args, ctx)
    project = open_project(folder)
    options = nix_options_of(args)
    given = [
        *(["--override-input"] if args.override_input else []),
        *(["--option"] if args.option else []),
    ]
    asked = read_options(args, ctx, project, BuildOptions, "driver").driver
    driver = DriverRequest(asked, nix=given).driver(project.root, ctx)
    if driver.reason:
        ctx.ui.say(str(driver))
    if driver.nix is not None:
        attribute = f"{shell.others}.{_single_variant(pattern, project)}" if pattern else ""
        return _become_nix_shell(
            driver.nix, attribute or shell.default, options, args, project, ctx
        )
    environment = local(project, pattern, args, ctx)
    program = args.rest or (os.environ.get("SHELL") or "/bin/sh",)
    ctx.ui.say(f"{environment.variant}, in {project.root}; `exit` leaves the shell")
    ctx.become(environment.command(program), project.root)
    return 0


def _split_positional(args: Namespace, ctx: Services) -> tuple[Path, str | None]:
    """The project's folder and the pattern; what is no folder is a pattern, as it used to be."""
    place = args.kernel_dir
    if place is None or ctx.path(Path(place)).exists() or os.sep in place:
        return ctx.folder(Path(place) if place else args.project), args.variant
    if args.variant:
        ctx.folder(Path(place))  # says that it does not exist
    return ctx.folder(args.project), place


def _development(
    project: Project, pattern: str | None, args: Namespace, ctx: Services
) -> ShellEnvironment:
    """A shell with the toolchain of a variant, which is built for development first."""
    from kbuild.pipeline.shell import development_environment
    from kbuild.system.workspace import WORKSPACE_FOLDER

    variant = _single_variant(pattern, project) if pattern else None
    jobs = int(args.max_jobs) if (args.max_jobs or "").isdecimal() else None
    environment = development_environment(project, variant, jobs or None, ctx)
    if (project.root / WORKSPACE_FOLDER / "compile_commands.json").is_file():
        ctx.ui.say(f"clangd finds the commands with --compile-commands-dir={WORKSPACE_FOLDER}")
    return environment


def _testing(
    project: Project, pattern: str | None, args: Namespace, ctx: Services
) -> ShellEnvironment:
    """A shell where a built variant can be imported; one is built where there is none."""
    from kbuild.cli.variants import chosen_python, find_variants
    from kbuild.pipeline.compatibility import check_compatibility
    from kbuild.pipeline.shell import ShellEnvironment, loading_variables

    try:
        folders = find_variants(project.root, (pattern,) if pattern else ())
    except UsageError:
        return _development(project, pattern, args, ctx)
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


def _become_nix_shell(  # noqa: PLR0917
    nix: Nix, attribute: str, options: NixOptions, args: Namespace, project: Project, ctx: Services
) -> int:
    from kbuild.pipeline.nix.pip_settings import sandbox_pip_settings

    run = ("--command", *args.rest) if args.rest else ()
    logs = ("-L",) if options.print_logs else ()
    flake = f".#{attribute}"
    command = nix.command("develop", flake, *options.evaluation, *options.parallelism, *logs)
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
