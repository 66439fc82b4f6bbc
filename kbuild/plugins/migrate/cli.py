"""`kbuild migrate`: a project that takes over a package with kernels."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from kbuild.cli.init import add_project_options, chosen_licence, write_project
from kbuild.system.services import Services


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "package",
        type=Path,
        metavar="DIR",
        help="the package: with a setup.py, which is run, or Triton kernels",
    )
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        help="folder of the new project (default: one with the package's name)",
    )
    add_project_options(parser, licence="the package's own")


def execute(args: Namespace, ctx: Services) -> int:
    """Write the project, and say what is left to do."""
    from kbuild.cli.scaffold import PLACEHOLDER_OWNER, kernel_name, split_name
    from kbuild.plugins.migrate.project import migrate_package
    from kbuild.plugins.migrate.sources import read_package

    package = read_package(ctx.folder(args.package), ctx.runner)
    owner, repository = split_name(args.name) if args.name else (PLACEHOLDER_OWNER, package.name)
    name = kernel_name(repository)
    folder = repository if args.name else name
    target = ctx.path(args.path) if args.path else ctx.cwd / folder
    migrated = migrate_package(package, name, f"{owner}/{folder}", chosen_licence(args))
    return write_project(
        args,
        ctx,
        migrated.scaffold,
        target,
        migrated.files,
        is_new=False,
        remaining_steps=migrated.left,
    )
