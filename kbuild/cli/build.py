"""`kbuild build`: from `build.toml` to `build/<variant>/`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.context import Context
from kbuild.errors import Repetition, UsageError, grouped

if TYPE_CHECKING:
    from kbuild.checks import Finding
    from kbuild.matrix.selection import Selection
    from kbuild.pipeline.outcome import Built
    from kbuild.project import Project

EXIT_OK = 0
_MANY_SKIPPED = 4


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.checking import add_allow
    from kbuild.cli.driver import add_driver
    from kbuild.cli.identity import add_identity
    from kbuild.cli.selection import add_selection
    from kbuild.cli.sources import add_sources
    from kbuild.cli.tools import add_archs, add_dev, add_tools

    parser.add_argument(
        "kernel_dir", nargs="?", type=Path, help="the project's folder (default: here)"
    )
    add_selection(parser)
    add_identity(parser)
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder that gets the variant directories"
    )
    add_tools(parser)
    add_sources(parser)
    add_archs(parser)
    add_dev(parser)
    parser.add_argument(
        "--keep-all",
        action="store_true",
        help="compile every candidate of kernels in Python DSLs, for `kbuild tune`; such a variant "
        "is not to be published",
    )
    add_allow(parser)
    add_driver(parser)
    parser.add_argument(
        "-j",
        "--jobs",
        type=int,
        metavar="N",
        help="compiler processes to run at once, all variants together",
    )
    parser.add_argument(
        "--max-file-size",
        metavar="SIZE",
        help="the largest file of the project that may go into a variant, e.g. 2G (default: 256M)",
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory for all compilers together, e.g. 12G"
    )
    parser.add_argument(
        "--time-budget", metavar="TIME", help="start nothing after this long, e.g. 5h45m"
    )
    parser.add_argument(
        "--report", action="store_true", help="say where the report of times and memory is"
    )
    parser.add_argument(
        "--provenance",
        action="store_true",
        help="write where each variant comes from beside it: an in-toto statement with SLSA "
        "provenance, and a CycloneDX list of what went in",
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def execute(args: Namespace, ctx: Context) -> int:
    """Build, report, and answer with the first failure's exit code."""
    return run(args, ctx, output=(ctx.cwd / args.output).resolve() if args.output else None)


def run(args: Namespace, ctx: Context, *, output: Path | None) -> int:
    """What `build` and `build-and-copy` share."""
    from kbuild.cli.selection import selection_of
    from kbuild.project import open_project

    refuse_senseless(args)
    project = open_project(ctx.folder(args.kernel_dir))
    results, card = perform(args, ctx, project, output, selection_of(args))
    if args.json:
        ctx.ui.data_json(answer(project, results, card))
    return exit_code(results)


def refuse_senseless(args: Namespace) -> None:
    """What is wrong with some options is better said before anything else.

    Raises:
        UsageError: an option has no sense.
    """
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs takes a number of processes, 1 or more")
    if args.provenance:
        from kbuild.provenance.evidence import source_date

        source_date(os.environ)


def perform(
    args: Namespace, ctx: Context, project: Project, output: Path | None, selection: Selection
) -> tuple[tuple[Built, ...], Path | None]:
    """Build, fill the card, and say what became of each variant; on stdout not with `--json`."""
    from kbuild.build.workspace import Workspace
    from kbuild.pipeline.card import refresh_card

    ctx.ui.warn_all(project.warnings)
    results = _results(args, ctx, project, output, selection)
    card = refresh_card(project, output or project.root / "build", ctx.ui)
    if not args.json:
        report(results, ctx)
    if args.report:
        _show_report(Workspace.report_of(project.root) / "build.html", ctx)
    return results, card


def answer(project: Project, results: Sequence[Built], card: Path | None) -> dict[str, Any]:
    """The outcome as a JSON object."""
    built = [result.to_json() for result in results]
    return {"project": project.name, "variants": built, "card": str(card) if card else None}


def _results(
    args: Namespace, ctx: Context, project: Project, output: Path | None, selection: Selection
) -> tuple[Built, ...]:
    """Build with the driver that fits."""
    from kbuild.cli.driver import nix_options_of, wish_of
    from kbuild.pipeline import Doors
    from kbuild.pipeline.driver import AUTO

    nix = nix_options_of(args)
    wish, doors = wish_of(args, nix), Doors(ctx.runner, ctx.ui, ctx.cache)
    driver = wish.driver(project.root, doors)
    if driver.reason:
        ctx.ui.say(str(driver))
    if driver.nix is None:
        return _built_here(args, ctx, project, output, selection)
    from kbuild.errors import KbuildError
    from kbuild.nix.flake import Flake
    from kbuild.pipeline.nix import NixBuild, is_for_another_driver

    may_turn_back = wish.asked == AUTO and not wish.nix
    flake = Flake(project.root, driver.nix, nix, ctx.runner, is_hasty=may_turn_back)
    try:
        return NixBuild(project, flake, selection, output, doors).perform()
    except KbuildError as error:
        if not (may_turn_back and is_for_another_driver(error)):
            raise
        ctx.ui.say(f"driver: local after all ({error.message.splitlines()[0].removesuffix(':')})")
        return _built_here(args, ctx, project, output, selection)


def _built_here(
    args: Namespace, ctx: Context, project: Project, output: Path | None, selection: Selection
) -> tuple[Built, ...]:
    """Build on this machine."""
    from kbuild.cli.checking import allow_of
    from kbuild.cli.identity import identity_of
    from kbuild.cli.sources import sources_of
    from kbuild.cli.tools import archs_of, toolchain_of, torch_wheels_of
    from kbuild.pipeline import BuildOptions, Doors
    from kbuild.pipeline.build import build

    options = BuildOptions(
        selection=selection,
        output=output,
        python=args.python,
        toolchain=toolchain_of(args),
        sources=sources_of(args, ctx, project),
        torch_wheels=torch_wheels_of(args, ctx),
        archs=archs_of(args, project, ctx.runner),
        keep_all=args.keep_all,
        identity=identity_of(args),
        dev=args.dev,
        provenance=args.provenance,
        jobs=args.jobs,
        max_file_size=_max_file_size(args),
        memory=_memory(args),
        allowed=allow_of(args, project.root),
        seconds=_seconds(args),
    )
    return build(project, options, Doors(ctx.runner, ctx.ui, ctx.cache))


def exit_code(results: Sequence[Built]) -> int:
    """The first failure's; that of an incomplete build only when nothing failed."""
    errors = [result.error for result in results if result.error]
    errors.sort(key=lambda error: error.kind == "incomplete")
    return errors[0].code if errors else EXIT_OK


def _max_file_size(args: Namespace) -> int:
    from kbuild.build.quantity import parse_size
    from kbuild.pipeline import BuildOptions

    if args.max_file_size is None:
        return BuildOptions.max_file_size
    return parse_size(args.max_file_size, "--max-file-size")


def _memory(args: Namespace) -> int | None:
    if args.memory is None:
        return None
    from kbuild.build.quantity import parse_memory

    return parse_memory(args.memory)


def _seconds(args: Namespace) -> int | None:
    if args.time_budget is None:
        return None
    from kbuild.build.quantity import parse_duration

    return parse_duration(args.time_budget)


def _show_report(page: Path, ctx: Context) -> None:
    if page.is_file():
        ctx.ui.say(f"report: {page}")
    else:
        ctx.ui.say("report: nothing was compiled yet")


def report(results: Sequence[Built], ctx: Context) -> None:
    """Directories on stdout, everything else as talk."""
    _say_findings(results, ctx)
    _say_overruled(results, ctx)
    for result in results:
        if result.status in {"built", "up-to-date"}:
            steps = f", {result.units} steps" if result.units else ""
            steps += f", {result.from_cache} of {result.objects} objects from cache" * bool(
                result.objects
            )
            ctx.ui.say(f"{result.variant}: {result.status} in {result.seconds:.1f} s{steps}")
            _say_images(result, ctx)
            ctx.ui.data(str(result.path))
            _say_provenance(result, ctx)
    for result in results:
        if result.status == "incomplete":
            ctx.ui.say(f"{result.variant}: incomplete, {result.reason}; run again to continue")
    _say_skipped([result for result in results if result.status == "skipped"], ctx)


def _say_findings(results: Sequence[Built], ctx: Context) -> None:
    """The warnings, each once for all variants that it is about."""
    found: dict[Finding, list[str]] = {}
    for result in results:
        for finding in result.findings:
            if finding.severity == "warning":
                found.setdefault(finding, []).append(result.variant)
    built = sum(1 for result in results if result.status == "built")
    about = {
        finding: f" in {variants[0]}" + f" and {len(variants) - 1} more" * (len(variants) > 1)
        for finding, variants in found.items()
        if len(variants) < built
    }
    if ctx.ui.verbosity > 0:
        repetitions = [Repetition(finding, (finding.where,)) for finding in found]
    else:
        repetitions = grouped(found, lambda f: ((about.get(f), f.check), f.what, f.where))
    for one in repetitions:
        ctx.ui.warn(str(one.first.with_note(about.get(one.first, "") + one.note)))


def _say_overruled(results: Sequence[Built], ctx: Context) -> None:
    """One line for each check and reason: what is wrong stays so however old the variant is."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for told in result.overruled.items():
            found.setdefault(told, []).append(result.variant)
    for (check, reason), variants in found.items():
        where = variants[0] if len(variants) == 1 else f"{len(variants)} variants"
        ctx.ui.warn(f"{where}: the errors of `{check}` are overruled: {reason}")


def _say_images(result: Built, ctx: Context) -> None:
    """One line for each op of a kernel in a DSL and each target."""
    for row in result.images:
        images = "1 image" if row.images == 1 else f"{row.images} images"
        facts = [images, f"{row.size / 1024:.1f} kB"]
        facts += [f"{row.registers} registers"] if row.registers is not None else []
        facts += [f"{row.spills} spilled"] if row.spills else []
        facts += [f"{row.local} B local"] if row.local and not row.spills else []
        facts += [f"{row.shared / 1024:.1f} kB shared"] if row.shared else []
        facts += [f"{row.cached} from cache"] if row.cached else []
        ctx.ui.say(f"  {row.op} {row.target}: {', '.join(facts)}")


def _say_skipped(skipped: Sequence[Built], ctx: Context) -> None:
    reasons = Counter(result.reason for result in skipped)
    if len(skipped) <= _MANY_SKIPPED:
        for result in skipped:
            ctx.ui.say(f"{result.variant}: skipped, {result.reason}")
    elif len(reasons) <= _MANY_SKIPPED:
        for reason, count in reasons.items():
            ctx.ui.say(f"{count} variants skipped, {reason}")
    else:
        backends = Counter(_backend(result.variant) for result in skipped)
        listed = ", ".join(f"{count} {name}" for name, count in sorted(backends.items()))
        ctx.ui.say(
            f"{len(skipped)} variants skipped on this machine ({listed}); "
            "`kbuild list-variants --reasons` says why"
        )


def _say_provenance(result: Built, ctx: Context) -> None:
    for path in result.provenance:
        ctx.ui.say(f"{result.variant}: wrote {path.name}")


def _backend(variant: str) -> str:
    from kbuild.variant import Variant

    return Variant.parse(variant).backend
