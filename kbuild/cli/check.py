"""`kbuild check`: everything that can be proved of a kernel, its sources and what was built.

Of a project, the sources are looked at as well. C++ for XPU is type-checked by the host's C++
compiler with the SYCL headers and Torch's, which are fetched when they are not there (1.3 and
13 MB). The includes of Metal's sources are resolved. Both are less than a build; the answer says
what was left open.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from kbuild.cli.answer import Answer, Sources, respond
from kbuild.cli.built import variant_of
from kbuild.cli.checking import (
    add_checks,
    add_limits,
    add_no_load,
    list_checks,
    shown_progress,
    wanted_of,
    wants_sizes,
)
from kbuild.cli.context import Context
from kbuild.cli.outputs import Terms, examinations, terms_of
from kbuild.cli.parser import add_json
from kbuild.cli.targets import Target, add_targets, targets_of
from kbuild.errors import UsageError
from kbuild.static import SOURCE_CHECKS

if TYPE_CHECKING:
    from pathlib import Path

    from kbuild.checks.examination import Wanted
    from kbuild.matrix.selection import Selection
    from kbuild.project import Project
    from kbuild.static.verdict import Verdict


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.built import add_load, add_python
    from kbuild.cli.selection import add_selection
    from kbuild.cli.sources import add_sources

    add_targets(parser)
    add_selection(parser)
    add_sources(parser)
    add_python(parser, "loads the kernels, and whose headers types are checked with")
    add_load(parser)
    add_no_load(parser)
    parser.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="compiler processes to run at once"
    )
    add_limits(parser)
    add_checks(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Exit code 6 when a promise is broken, 4 when something could not be checked."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs takes a number of processes, 1 or more")
    wanted = wanted_of(args, slow=not args.no_load, sources=True)
    if args.list:
        return list_checks(wanted, ctx, as_json=args.json, sources=True)
    terms = terms_of(args, wanted, ctx)
    with targets_of(args, ctx, unbuilt=True) as targets, shown_progress(ctx):
        answers = [_answer(target, terms.on(target, args), args, ctx) for target in targets]
        return respond(answers, ctx, as_json=args.json, sizes=wants_sizes(args))


def _answer(target: Target, terms: Terms, args: Namespace, ctx: Context) -> Answer:
    from kbuild.cli.selection import selection_of

    selection = selection_of(args)
    sources = _sources(target, terms.wanted, args, ctx) if target.kind == "project" else None
    built = tuple(path for path in target.variants if _is_selected(path, selection))
    if target.variants and not built and sources is None:
        raise UsageError(f"`{target.given}` has no built variant that the options select")
    return Answer(target, examinations(replace(target, variants=built), terms), sources)


def _sources(target: Target, wanted: Wanted, args: Namespace, ctx: Context) -> Sources:
    from kbuild.pipeline.bindings import binding_findings
    from kbuild.pipeline.check import compiled_only
    from kbuild.pipeline.sources import python_findings
    from kbuild.project import open_project

    project = open_project(target.path)
    ctx.ui.warn_all(project.warnings)
    verdicts = [
        replace(verdict, findings=wanted.judged(verdict.findings))
        for verdict in _verdicts(project, wanted, args, ctx)
    ]
    backends = project.file.general.backends if wanted.wants("ops") else ()
    on_bindings = binding_findings(project, backends) if backends else ()
    findings = wanted.judged((*python_findings(project, wants=wanted.wants), *on_bindings))
    return Sources(project.name, findings, tuple(verdicts), compiled_only(project))


def _verdicts(
    project: Project, wanted: Wanted, args: Namespace, ctx: Context
) -> tuple[Verdict, ...]:
    if not any(wanted.wants(name) for name in SOURCE_CHECKS):
        return ()
    from kbuild.cli.selection import selection_of
    from kbuild.cli.sources import sources_of
    from kbuild.pipeline import Doors
    from kbuild.pipeline.check import check
    from kbuild.pipeline.typecheck import CheckOptions

    folders = sources_of(args, ctx, project)
    options = CheckOptions(selection_of(args), folders, args.python, args.jobs)
    return check(project, options, Doors(ctx.runner, ctx.ui, ctx.cache))


def _is_selected(folder: Path, selection: Selection) -> bool:
    """Whether a built variant is what `--backend`, `--torch` and `--system` ask for."""
    variant = variant_of(folder)
    if variant is None:
        return not (selection.backends or selection.torch or selection.systems)
    return (
        (not selection.backends or variant.backend in selection.backends)
        and (not selection.torch or variant.framework_version in (None, *selection.torch))
        and (not selection.systems or variant.system in (None, *selection.systems))
    )
