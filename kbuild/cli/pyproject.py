"""`kbuild create-pyproject`: writes the CMake project, and removes it again.

The manifest in the target folder lists what kbuild wrote; files that were edited since are kept.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.pipeline.option_values import identity_of, selection_of
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options
from kbuild.system.errors import UsageError
from kbuild.system.files import read_manifest, remove_known, sha256, write_manifest
from kbuild.system.services import Services


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "target_dir", nargs="?", type=Path, help="folder of the files (default: the project's)"
    )
    add_options(parser, BuildOptions, "selection", "identity")
    parser.add_argument(
        "-f",
        "--force",
        action="store_true",
        help="overwrite existing files; with --clean: also remove edited files",
    )
    parser.add_argument(
        "--clean", action="store_true", help="remove the files that were written, and write none"
    )
    parser.add_argument(
        "-d", "--dry-run", action="store_true", help="with --clean: list the files only"
    )
    parser.add_argument("--ops-id", metavar="ID", help=SUPPRESS)  # kernel-builder's clean takes it
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Write the project, or remove what was written.

    Raises:
        UsageError: `--dry-run` without `--clean`.
    """
    if args.dry_run and not args.clean:
        raise UsageError("--dry-run needs --clean")
    return _clean(args, ctx) if args.clean else _create(args, ctx)


def _create(args: Namespace, ctx: Services) -> int:
    """Generate all selected variants into one project."""
    from kbuild.plan.generate.project import generate_project, validate_path_names
    from kbuild.plan.project import open_project
    from kbuild.plan.variant import Planner
    from kbuild.system.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    tree = SourceTree(root)
    project = open_project(root, tree)
    target = ctx.folder(args.target_dir) if args.target_dir else project.root
    plans = Planner(project, tree, ctx.runner, identity_of(args)).select(selection_of(args))
    # CMake cannot compile a Python DSL, and images written now would go stale in silence.
    named = sorted({f"kernel.{kernel.name}" for plan in plans for kernel in plan.aot})
    if named:
        raise UsageError(
            f"no CMake project can be written: {', '.join(named)} is written in a Python DSL, "
            "which kbuild compiles, not CMake",
            hint="`kbuild build` builds it; name variants without such kernels with --variant",
        )
    for folder in (project.root, target):
        validate_path_names(folder, plans)
    files = generate_project(plans, project.root, target)
    written = files.write(target, force=args.force)
    if args.json:
        ctx.ui.data_json({"target": str(target), **vars(written)})
    else:
        ctx.ui.say(f"{len(written.written)} files written, {len(written.unchanged)} unchanged")
        for path in written.written:
            ctx.ui.data(path)
    return 0


def _clean(args: Namespace, ctx: Services) -> int:
    """Remove the files; a relative target is relative to the current folder."""
    root = ctx.folder(args.kernel_dir)
    target = ctx.folder(args.target_dir) if args.target_dir else root
    known = read_manifest(target)
    present = {path: digest for path, digest in known.items() if (target / path).is_file()}
    edited = [
        path
        for path, digest in sorted(present.items())
        if not args.force and sha256((target / path).read_bytes()) != digest
    ]
    removed = tuple(path for path in sorted(present) if path not in edited)
    if not args.dry_run:
        remove_known(target, {path: present[path] for path in removed}, force=args.force)
        write_manifest(target, {path: present[path] for path in edited})
    if args.json:
        answer = {"target": str(target), "removed": removed, "kept": edited}
        ctx.ui.data_json(answer | {"dry_run": args.dry_run})
    else:
        ctx.ui.data("\n".join(removed))
    for path in edited:
        ctx.ui.warn(f"{path} has been edited and was kept; --force removes it")
    done = "would be removed" if args.dry_run else "removed"
    ctx.ui.say(f"{len(removed)} files {done}" if removed else f"kbuild wrote nothing in {target}")
    return 0
