"""`kbuild fill-card`: the kernel's card, with its blanks filled from the project's facts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import ConfigError, Problem, UsageError

if TYPE_CHECKING:
    from kbuild.project import Project

CARD = "CARD.md"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "output", nargs="?", type=Path, help="file to write (default: print the card)"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Fill the card; the project's own file is only a template and stays as it is."""
    from kbuild.fileset import replace_atomically
    from kbuild.project import open_project

    project = open_project(ctx.folder(args.kernel_dir))
    text = _filled(project)
    output = ctx.path(args.output) if args.output else None
    if output is not None:
        _refuse_template(output, project.root / CARD)
        replace_atomically(output, text.encode())
    if args.json:
        ctx.ui.data_json({"output": str(output) if output else None, "text": text})
    else:
        ctx.ui.data(str(output) if output else text)
    return 0


def _filled(project: Project) -> str:
    from kbuild.card import facts_of, fill_card

    general = project.file.general
    template = project.root / CARD
    if not template.is_file():
        raise UsageError(f"`{template}` does not exist", hint="`kbuild init` writes one")
    facts = facts_of(
        project.root,
        repo_id=_repo_id(project),
        name=general.name,
        version=general.version,
        license=general.license,
        upstream=general.upstream,
        source=general.source,
        variants=_variants(project),
    )
    return fill_card(template.read_text("utf-8"), facts)


def _variants(project: Project) -> list[str]:
    """The variants that were built; those of a plain build when there are none yet."""
    from kbuild.cli.built import discover
    from kbuild.matrix.selection import Selection, select

    try:
        return [path.name for path in discover(project.root)]
    except UsageError:
        return [str(choice.variant) for choice in select(project, Selection())]


def _repo_id(project: Project) -> str:
    hub = project.file.general.hub
    if hub is not None and hub.repo_id:
        return hub.repo_id
    message = "is missing: the card says where the kernel is published"
    hint = f'write `repo-id = "owner/{project.name}"` in `[general.hub]`'
    raise ConfigError([Problem("build.toml", 0, "general.hub.repo-id", message, hint)])


def _refuse_template(output: Path, template: Path) -> None:
    if output.exists() and template.exists() and output.samefile(template):
        raise UsageError(
            f"`{output}` is the template", hint="give another file, or none to print the card"
        )
