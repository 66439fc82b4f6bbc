"""`kbuild create-pyproject`: write the CMake project, for work without kbuild's own build."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.plan import VariantPlan


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.identity import add_identity
    from kbuild.cli.selection import add_selection

    parser.add_argument(
        "kernel_dir", nargs="?", type=Path, help="the project's folder (default: here)"
    )
    parser.add_argument(
        "target_dir", nargs="?", type=Path, help="where to write (default: the project's folder)"
    )
    add_selection(parser)
    add_identity(parser)
    parser.add_argument("-f", "--force", action="store_true", help="replace existing files")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def execute(args: Namespace, ctx: Context) -> int:
    """Generate all selected variants into one project."""
    from kbuild.cli.identity import identity_of
    from kbuild.cli.selection import selection_of
    from kbuild.generate import generate_project
    from kbuild.pipeline import plan
    from kbuild.pipeline.plans import refuse_names
    from kbuild.project import open_project
    from kbuild.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    tree = SourceTree(root)
    project = open_project(root, tree)
    target = ctx.folder(args.target_dir) if args.target_dir else project.root
    plans = plan(project, selection_of(args), ctx.runner, identity=identity_of(args), tree=tree)
    _refuse_foreign(plans)
    for folder in (project.root, target):
        refuse_names(folder, plans)
    files = generate_project(plans, project.root, target)
    written = files.write(target, force=args.force)
    if args.json:
        ctx.ui.data_json({"target": str(target), **vars(written)})
    else:
        ctx.ui.say(f"{len(written.written)} files written, {len(written.unchanged)} unchanged")
        for path in written.written:
            ctx.ui.data(path)
    return 0


def _refuse_foreign(plans: Sequence[VariantPlan]) -> None:
    """CMake cannot compile a Python DSL, and images written now would go stale in silence."""
    named = sorted({f"kernel.{kernel.name}" for made in plans for kernel in made.aot})
    if named:
        raise UsageError(
            f"no CMake project can be written: {', '.join(named)} is written in a Python DSL, "
            "which kbuild compiles, not CMake",
            hint="`kbuild build` builds it; name variants without such kernels with --variant",
        )
