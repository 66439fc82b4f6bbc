"""`kbuild build` (or `build-and-copy`): from `build.toml` to `build/<variant>/`."""

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
    from kbuild.pipeline.options import BuildResult
    from kbuild.project import Project
    from kbuild.selection import Selection

EXIT_OK = 0
_MAX_SKIPPED_LINES = 4


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.build_options import (
        add_allow,
        add_archs,
        add_dev,
        add_driver,
        add_identity,
        add_selection,
        add_sources,
        add_tools,
    )

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
    return build_project(
        args, ctx, output=(ctx.cwd / args.output).resolve() if args.output else None
    )


def build_project(args: Namespace, ctx: Context, *, output: Path | None) -> int:
    """What `build` and `build-and-copy` share."""
    from kbuild.cli.build_options import selection_of
    from kbuild.project import open_project

    validate_options(args)
    project = open_project(ctx.folder(args.kernel_dir))
    results, card = build_and_report(args, ctx, project, output, selection_of(args))
    if args.json:
        ctx.ui.data_json(outcome_json(project, results, card))
    return exit_code(results)


def validate_options(args: Namespace) -> None:
    """What is wrong with some options is better said before anything else.

    Raises:
        UsageError: an option has no sense.
    """
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs takes a number of processes, 1 or more")
    if args.provenance:
        from kbuild.provenance.attestation import source_date_epoch

        source_date_epoch(os.environ)


def build_and_report(
    args: Namespace, ctx: Context, project: Project, output: Path | None, selection: Selection
) -> tuple[tuple[BuildResult, ...], Path | None]:
    """Build, fill the card, and say what became of each variant; on stdout not with `--json`."""
    from kbuild.pipeline.card import refresh_card
    from kbuild.runtime.workspace import Workspace

    ctx.ui.warn_all(project.warnings)
    results = _build_with_driver(args, ctx, project, output, selection)
    card = refresh_card(project, output or project.root / "build", ctx.ui)
    if not args.json:
        print_outcome(results, ctx)
    if args.report:
        _print_report_path(Workspace.report_of(project.root) / "build.html", ctx)
    return results, card


def outcome_json(
    project: Project, results: Sequence[BuildResult], card: Path | None
) -> dict[str, Any]:
    """The outcome as a JSON object."""
    built = [result.to_json() for result in results]
    return {"project": project.name, "variants": built, "card": str(card) if card else None}


def _build_with_driver(
    args: Namespace, ctx: Context, project: Project, output: Path | None, selection: Selection
) -> tuple[BuildResult, ...]:
    """Build with the driver that fits."""
    from kbuild.cli.build_options import driver_request_of, nix_options_of
    from kbuild.pipeline.driver import AUTO
    from kbuild.pipeline.options import Services

    nix = nix_options_of(args)
    wish, doors = driver_request_of(args, nix), Services(ctx.runner, ctx.ui, ctx.cache)
    driver = wish.driver(project.root, doors)
    if driver.reason:
        ctx.ui.say(str(driver))
    if driver.nix is None:
        return _build_locally(args, ctx, project, output, selection)
    from kbuild.errors import KbuildError
    from kbuild.nix.flake import Flake
    from kbuild.pipeline.nix_build import NixBuild, can_fall_back_to_local

    may_turn_back = wish.asked == AUTO and not wish.nix
    flake = Flake(project.root, driver.nix, nix, ctx.runner, is_hasty=may_turn_back)
    try:
        return NixBuild(project, flake, selection, output, doors).perform()
    except KbuildError as error:
        if not (may_turn_back and can_fall_back_to_local(error)):
            raise
        ctx.ui.say(f"driver: local after all ({error.message.splitlines()[0].removesuffix(':')})")
        return _build_locally(args, ctx, project, output, selection)


def _build_locally(
    args: Namespace, ctx: Context, project: Project, output: Path | None, selection: Selection
) -> tuple[BuildResult, ...]:
    """Build on this machine."""
    from kbuild.cli.build_options import (
        allow_of,
        archs_of,
        identity_of,
        sources_of,
        toolchain_of,
        torch_wheels_of,
    )
    from kbuild.pipeline.build import build
    from kbuild.pipeline.options import BuildOptions, Services

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
        seconds=_time_budget(args),
    )
    return build(project, options, Services(ctx.runner, ctx.ui, ctx.cache))


def exit_code(results: Sequence[BuildResult]) -> int:
    """The first failure's; that of an incomplete build only when nothing failed."""
    errors = [result.error for result in results if result.error]
    errors.sort(key=lambda error: error.kind == "incomplete")
    return errors[0].code if errors else EXIT_OK


def _max_file_size(args: Namespace) -> int:
    from kbuild.pipeline.options import BuildOptions
    from kbuild.runtime.quantities import parse_size

    if args.max_file_size is None:
        return BuildOptions.max_file_size
    return parse_size(args.max_file_size, "--max-file-size")


def _memory(args: Namespace) -> int | None:
    if args.memory is None:
        return None
    from kbuild.runtime.quantities import parse_memory

    return parse_memory(args.memory)


def _time_budget(args: Namespace) -> int | None:
    if args.time_budget is None:
        return None
    from kbuild.runtime.quantities import parse_duration

    return parse_duration(args.time_budget)


def _print_report_path(page: Path, ctx: Context) -> None:
    if page.is_file():
        ctx.ui.say(f"report: {page}")
    else:
        ctx.ui.say("report: nothing was compiled yet")


def print_outcome(results: Sequence[BuildResult], ctx: Context) -> None:
    """Directories on stdout, everything else as messages."""
    _print_warnings(results, ctx)
    _print_overruled(results, ctx)
    for result in results:
        if result.status in {"built", "up-to-date"}:
            steps = f", {result.units} steps" if result.units else ""
            steps += f", {result.from_cache} of {result.objects} objects from cache" * bool(
                result.objects
            )
            ctx.ui.say(f"{result.variant}: {result.status} in {result.seconds:.1f} s{steps}")
            _print_images(result, ctx)
            ctx.ui.data(str(result.path))
            _print_provenance(result, ctx)
    for result in results:
        if result.status == "incomplete":
            ctx.ui.say(f"{result.variant}: incomplete, {result.reason}; run again to continue")
    _print_skipped([result for result in results if result.status == "skipped"], ctx)


def _print_warnings(results: Sequence[BuildResult], ctx: Context) -> None:
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


def _print_overruled(results: Sequence[BuildResult], ctx: Context) -> None:
    """One line for each check and reason: what is wrong stays so however old the variant is."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for told in result.overruled.items():
            found.setdefault(told, []).append(result.variant)
    for (check, reason), variants in found.items():
        where = variants[0] if len(variants) == 1 else f"{len(variants)} variants"
        ctx.ui.warn(f"{where}: the errors of `{check}` are overruled: {reason}")


def _print_images(result: BuildResult, ctx: Context) -> None:
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


def _print_skipped(skipped: Sequence[BuildResult], ctx: Context) -> None:
    reasons = Counter(result.reason for result in skipped)
    if len(skipped) <= _MAX_SKIPPED_LINES:
        for result in skipped:
            ctx.ui.say(f"{result.variant}: skipped, {result.reason}")
    elif len(reasons) <= _MAX_SKIPPED_LINES:
        for reason, count in reasons.items():
            ctx.ui.say(f"{count} variants skipped, {reason}")
    else:
        backends = Counter(_backend_name(result.variant) for result in skipped)
        listed = ", ".join(f"{count} {name}" for name, count in sorted(backends.items()))
        ctx.ui.say(
            f"{len(skipped)} variants skipped on this machine ({listed}); "
            "`kbuild list-variants --reasons` says why"
        )


def _print_provenance(result: BuildResult, ctx: Context) -> None:
    for path in result.provenance:
        ctx.ui.say(f"{result.variant}: wrote {path.name}")


def _backend_name(variant: str) -> str:
    from kbuild.variant import Variant

    return Variant.parse(variant).backend
