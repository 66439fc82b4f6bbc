"""`kbuild list-variants`: the points of the matrix that a project is built for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from kbuild.cli.context import Context


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.selection import add_selection
    from kbuild.cli.sources import add_sources
    from kbuild.cli.tools import add_tools

    parser.add_argument(
        "kernel_dir", nargs="?", type=Path, help="the project's folder (default: here)"
    )
    add_selection(parser)
    parser.add_argument(
        "--arch",
        action="store_true",
        help="list the environments that the kernel can be tested in, Python-only kernels included",
    )
    parser.add_argument("--all", action="store_true", help="also those outside a plain build")
    parser.add_argument(
        "--reasons", action="store_true", help="say for each whether this machine can build it"
    )
    add_tools(parser)
    add_sources(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(args: Namespace, ctx: Context) -> int:
    """Print one name per line, or one object per variant."""
    from kbuild.cli.selection import selection_of
    from kbuild.matrix.selection import environment_variants, select
    from kbuild.project import open_project

    project = open_project(ctx.folder(args.kernel_dir))
    selection = selection_of(args)
    if args.all and not selection.globs:
        from dataclasses import replace

        selection = replace(selection, globs=("*",))
    choices = (environment_variants if args.arch else select)(project, selection)
    reasons: dict[str, str | None] = {}
    if args.json or args.reasons:
        from kbuild.cli.sources import sources_of
        from kbuild.cli.tools import torch_wheels_of
        from kbuild.pipeline import refusals
        from kbuild.pipeline.tools import tools_of
        from kbuild.pipeline.torch_wheels import given_wheels

        sources = sources_of(args, ctx, project)
        wheels = given_wheels(torch_wheels_of(args, ctx), ctx.cache, ctx.runner)
        tools = tools_of(
            args.toolchain, ctx.runner, ctx.cache, args.python, sources, torch_wheels=wheels
        )
        reasons = refusals(project, choices, ctx.runner, tools)
    if args.json:
        ctx.ui.data_json([_object(choice, reasons) for choice in choices])
    elif args.reasons:
        rows = [(str(c.variant), reasons[str(c.variant)] or "can be built here") for c in choices]
        ctx.ui.table(("variant", "on this machine"), rows)
    else:
        ctx.ui.data("\n".join(str(choice.variant) for choice in choices))
    return 0


def _object(choice: object, reasons: dict[str, str | None]) -> dict[str, object]:
    from kbuild.matrix.selection import Choice

    assert isinstance(choice, Choice)  # noqa: S101 - narrows a lazily imported type
    variant = choice.variant
    return {
        "variant": str(variant),
        "framework": variant.framework,
        "backend": variant.backend,
        "torch": str(choice.torch) if choice.torch else None,
        "backend_version": str(variant.backend_version) if variant.backend_version else None,
        "system": str(variant.system) if variant.system else None,
        "default": choice.default,
        "buildable": reasons[str(variant)] is None,
        "reason": reasons[str(variant)],
    }
