"""`kbuild check`: what can be proved of sources for which this machine has no compiler.

C++ for XPU is type-checked by the host's C++ compiler with the SYCL headers and Torch's, which are
fetched when they are not there (1.3 and 13 MB). The includes of Metal's sources are resolved. Both
are less than a build; the answer says what was left open.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import CheckError, ToolchainError, UsageError

if TYPE_CHECKING:
    from kbuild.checks.base import Finding
    from kbuild.project import Project
    from kbuild.static.verdict import Verdict


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.selection import add_selection
    from kbuild.cli.sources import add_sources

    add_kernel_dir(parser)
    add_selection(parser)
    add_sources(parser)
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PROGRAM",
        help="interpreter whose headers are used (default: the one that builds use)",
    )
    parser.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="compiler processes to run at once"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Exit code 6 with an error in the sources, 4 when something could not be checked."""
    from kbuild.cli.selection import selection_of
    from kbuild.cli.sources import sources_of
    from kbuild.pipeline import Doors
    from kbuild.pipeline.check import check
    from kbuild.pipeline.typecheck import CheckOptions
    from kbuild.project import open_project

    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs takes a number of processes, 1 or more")
    project = open_project(ctx.folder(args.kernel_dir))
    for warning in project.warnings:
        ctx.ui.warn(warning)
    options = CheckOptions(
        selection_of(args), sources_of(args, ctx, project), args.python, args.jobs
    )
    verdicts = check(project, options, Doors(ctx.runner, ctx.ui, ctx.cache))
    if args.json:
        ctx.ui.data_json({"project": project.name, "variants": [v.to_json() for v in verdicts]})
    else:
        _say(project, verdicts, ctx)
    return _conclude(verdicts, ctx)


def _say(project: Project, verdicts: Sequence[Verdict], ctx: Context) -> None:
    from kbuild.pipeline.check import compiled_only

    if verdicts:
        rows = [(v.variant, v.state, _proved(v), v.unproved) for v in verdicts]
        ctx.ui.table(("variant", "state", "proved", "not proved"), rows)
    for finding in dict.fromkeys(found for verdict in verdicts for found in verdict.findings):
        _tell(finding, ctx)
    others = compiled_only(project)
    if others:
        ctx.ui.say(f"not looked at: {', '.join(others)}; `kbuild build` compiles what it can")
    elif not verdicts:
        ctx.ui.say(f"{project.name}: nothing to check without a compiler")


def _proved(verdict: Verdict) -> str:
    """What was proved; a broken variant's types were looked at, not proved."""
    if verdict.state == "broken":
        errors = sum(1 for finding in verdict.findings if finding.severity == "error")
        return f"{errors} error{'s' if errors != 1 else ''}"
    known = f" ({verdict.remembered} remembered)" if verdict.remembered else ""
    return f"{verdict.proved or 'nothing'}{known}"


def _tell(finding: Finding, ctx: Context) -> None:
    if finding.severity == "error":
        ctx.ui.error(CheckError(str(finding), ()))
    else:
        ctx.ui.warn(str(finding))


def _conclude(verdicts: Sequence[Verdict], ctx: Context) -> int:
    broken = [verdict for verdict in verdicts if verdict.state == "broken"]
    if broken:
        ctx.ui.error(CheckError(f"{len(broken)} of {len(verdicts)} variants have errors", ()))
        return CheckError.code
    for verdict in verdicts:
        if verdict.error:
            ctx.ui.error(verdict.error)
    return ToolchainError.code if any(verdict.error for verdict in verdicts) else 0
