"""`kbuild reproduce`: does the source give the same bytes again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.cli.variants import add_variant, find_variants
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options, read_options
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.services import Services
from kbuild.system.temporary import temporary_folder

if TYPE_CHECKING:
    from kbuild.publish.reproduce import Reproduction

_HUB = "hub:"
_FIELDS = ("python", "sources", "jobs")
"""Options of `BuildOptions` that the command has."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "kernel_dir",
        nargs="?",
        metavar="DIR|hub:ORG/KERNEL@REV",
        help="project folder (default: the current folder), or a kernel on the Hub to "
        "compare with a build of this project",
    )
    add_variant(parser)
    parser.add_argument(
        "--against",
        metavar="DIR|hub:ORG/KERNEL@REV",
        help="compare with these variants (default: the project's own)",
    )
    parser.add_argument(
        "--toolchain",
        metavar="NAME",
        help="build with this toolchain (default: as recorded in the variant)",
    )
    add_options(parser, BuildOptions, *_FIELDS)
    parser.add_argument("--output", type=Path, metavar="DIR", help="keep the build in DIR")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Build again, compare, and answer with a table."""
    from kbuild.plan.project import open_project
    from kbuild.publish.reproduce import reproduce

    folder, against = _project_and_reference(args)
    project = open_project(ctx.folder(folder))
    with ExitStack() as stack:
        if against.startswith(_HUB):
            fresh = stack.enter_context(temporary_folder("hub"))
            from kbuild.publish.hub.fetch import fetch_revision

            place = fetch_revision(against, fresh, args.variant)
        else:
            place = ctx.folder(Path(against)) if against else project.root
        folders = find_variants(place, args.variant)
        from kbuild.publish.reproduce import RebuildOptions

        options = read_options(args, ctx, project, BuildOptions, *_FIELDS)
        keep = ctx.path(args.output) if args.output else None
        if keep is not None and any((keep / folder.name).resolve() == folder for folder in folders):
            raise UsageError(
                f"--output {args.output} holds the variants to compare with",
                hint="name another folder",
            )
        again = RebuildOptions(options, args.toolchain, keep)
        results = reproduce(project, folders, again, ctx)
    return _report(results, ctx, as_json=args.json)


def _project_and_reference(args: Namespace) -> tuple[Path | None, str]:
    """The project's folder, and what its variants are compared with; empty for its own."""
    subject, against = args.kernel_dir, args.against or ""
    if subject is None or not subject.startswith(_HUB):
        return (Path(subject) if subject else None), against
    if against:
        raise UsageError(f"`{subject}` is compared with already", hint="leave --against out")
    return None, subject


def _report(results: Sequence[Reproduction], ctx: Services, *, as_json: bool) -> int:
    """0 when everything that could be built again is the same, and something could."""
    if as_json:
        ctx.ui.data_json([result.to_json() for result in results])
    else:
        rows = [(result.variant, result.status, _summary(result)) for result in results]
        ctx.ui.table(("variant", "state", "built again"), rows)
        for result in results:
            for difference in result.differences:
                ctx.ui.data(f"\n{result.variant}/{difference.sentence}")
                for line in difference.lines:
                    ctx.ui.data(f"    {line}")
    differing = [result for result in results if result.status == "differs"]
    failed = [result.error for result in results if result.error]
    same = sum(1 for result in results if result.status == "same")
    if differing:
        message = f"{len(differing)} of {len(results)} variants differ when they are built again"
        ctx.ui.error(CheckError(message, ()))
        return CheckError.code
    if failed:
        return failed[0].code
    if not same:
        ctx.ui.error(CheckError("no variant could be built again", ()))
        return CheckError.code
    return 0


def _summary(result: Reproduction) -> str:
    if result.status == "differs":
        return f"{len(result.differences)} of {result.files} files differ"
    if result.status == "same":
        return f"{result.files} files in {result.seconds:.0f} s, sha256 {result.metadata[:16]}"
    return result.reason
