"""`kbuild build`: from `build.toml` to `build/<variant>/`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context

if TYPE_CHECKING:
    from kbuild.pipeline import Built

EXIT_OK = 0
_MANY_SKIPPED = 4


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.identity import add_identity
    from kbuild.cli.selection import add_selection
    from kbuild.cli.sources import add_sources

    parser.add_argument(
        "kernel_dir", nargs="?", type=Path, help="the project's folder (default: here)"
    )
    add_selection(parser)
    add_identity(parser)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder that gets the variant directories"
    )
    parser.add_argument(
        "--python", type=Path, metavar="PROGRAM", help="build against this interpreter's Torch"
    )
    add_sources(parser)
    parser.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="compiler processes to run at once"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def execute(args: Namespace, ctx: Context) -> int:
    """Build, report, and answer with the first failure's exit code."""
    return run(args, ctx, output=(ctx.cwd / args.output).resolve() if args.output else None)


def run(args: Namespace, ctx: Context, *, output: Path | None) -> int:
    """What `build` and `build-and-copy` share."""
    from kbuild.cli.identity import identity_of
    from kbuild.cli.selection import selection_of
    from kbuild.cli.sources import sources_of
    from kbuild.pipeline import BuildOptions, Doors, build
    from kbuild.project import open_project

    if args.jobs is not None and args.jobs < 1:
        from kbuild.errors import UsageError

        raise UsageError("--jobs takes a number of processes, 1 or more")
    project = open_project(ctx.folder(args.kernel_dir))
    for warning in project.warnings:
        ctx.ui.warn(warning)
    options = BuildOptions(
        selection=selection_of(args),
        output=output,
        python=args.python,
        jobs=args.jobs,
        identity=identity_of(args),
        sources=sources_of(args, ctx, project),
    )
    results = build(project, options, Doors(ctx.runner, ctx.ui, ctx.cache))
    if args.json:
        ctx.ui.data_json({"project": project.name, "variants": [r.to_json() for r in results]})
    else:
        report(results, ctx)
    return next((result.error.code for result in results if result.error), EXIT_OK)


def report(results: Sequence[Built], ctx: Context) -> None:
    """Directories on stdout, everything else as talk."""
    for result in results:
        for finding in result.findings:
            if finding.severity == "warning":
                ctx.ui.warn(str(finding))
    for result in results:
        if result.status in {"built", "up-to-date"}:
            steps = f", {result.units} steps" if result.units else ""
            ctx.ui.say(f"{result.variant}: {result.status} in {result.seconds:.1f} s{steps}")
            ctx.ui.data(str(result.path))
    skipped = [result for result in results if result.status == "skipped"]
    if len(skipped) <= _MANY_SKIPPED:
        for result in skipped:
            ctx.ui.say(f"{result.variant}: skipped, {result.reason}")
    else:
        backends = Counter(_backend(result.variant) for result in skipped)
        listed = ", ".join(f"{count} {name}" for name, count in sorted(backends.items()))
        ctx.ui.say(
            f"{len(skipped)} variants skipped on this machine ({listed}); "
            "`kbuild list-variants --reasons` says why"
        )


def _backend(variant: str) -> str:
    from kbuild.variant import Variant

    return Variant.parse(variant).backend
