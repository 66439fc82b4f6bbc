"""`kbuild fill-card`: the kernel's card, with its blanks filled from the project's facts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.plan.project import Project


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "output", nargs="?", type=Path, help="file to write (default: print the card)"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite a file that was edited or written by another program",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Fill the card; the project's own file is only a template and stays as it is."""
    from kbuild.plan.project import open_project

    project = open_project(ctx.folder(args.kernel_dir))
    output = ctx.path(args.output) if args.output else None
    if output is None:
        from kbuild.publish.card.refresh import make_project_card

        card = make_project_card(project, _build_folder(project))
        if args.json:
            ctx.ui.data_json({"output": None, "text": card})
        else:
            ctx.ui.data(card)
        return 0
    from kbuild.publish.card.fill import read_card
    from kbuild.publish.card.refresh import fill_card, template_of

    template = template_of(project)
    if output.exists() and output.samefile(template):
        raise UsageError(
            f"`{output}` is the template", hint="name another file, or omit it to print the card"
        )
    written = fill_card(project, _build_folder(project), output, force=args.force)
    if written.edited:
        ctx.ui.warn(f"`{output}` was edited by hand: its own text was kept; --force replaces it")
    if args.json:
        ctx.ui.data_json({"output": str(output), "text": read_card(output)})
    else:
        ctx.ui.data(str(output))
    return 0


def _build_folder(project: Project) -> Path:
    return project.root / "build"
