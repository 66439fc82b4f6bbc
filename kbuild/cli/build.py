"""`kbuild build`: from `build.toml` to `build/<variant>/`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.parser import add_kernel_dir
from kbuild.pipeline.option_values import selection_of
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import (
    add_options,
    flags_refused_by_nix,
    read_options,
    validate_options,
)
from kbuild.system.errors import Repetition, UsageError, counted, grouped
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.checks import Finding
    from kbuild.pipeline.result import BuildResult
    from kbuild.plan.project import Project
    from kbuild.plan.selection import Selection

EXIT_OK = 0
_MAX_SKIPPED_LINES = 4


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_options(parser, BuildOptions)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(rest=())
    parser.epilog = "Arguments after `--` are for Nix: kbuild build --driver nix -- --max-jobs 2"


def execute(args: Namespace, ctx: Services) -> int:
    """Build, report, and answer with the first failure's exit code."""
    from kbuild.plan.project import open_project

    validate_options(args, BuildOptions)
    project = open_project(ctx.folder(args.kernel_dir))
    results, card = build_and_report(args, ctx, project, selection_of(args, project.root))
    if args.json:
        ctx.ui.data_json(outcome_json(project, results, card))
    return exit_code(results)


def build_and_report(
    args: Namespace, ctx: Services, project: Project, selection: Selection
) -> tuple[tuple[BuildResult, ...], Path | None]:
    """Build, fill the card, and say what became of each variant; on stdout not with `--json`."""
    from kbuild.publish.card.refresh import refresh_card
    from kbuild.system.workspace import Workspace

    _warn_of_new(project, ctx)
    results = _build(args, ctx, project, selection)
    card = refresh_card(project, ctx.path(args.output or project.root / "build"), ctx.ui)
    if not args.json:
        print_outcome(results, ctx)
        # With --dev alone, nobody asked for what this machine cannot build.
        if selection.is_explicit or not getattr(args, "dev", False):
            _print_skipped([result for result in results if result.status == "skipped"], ctx)
    if args.report and not args.json:
        from kbuild.build.unit_log import print_units

        print_units(Workspace.report_of(project.root), ctx.ui)
    return results, card


def _warn_of_new(project: Project, ctx: Services) -> None:
    """Print the project's warnings that the build before did not print: `check` prints all."""
    from kbuild.system.cache import PRINTED_WARNINGS, Cache
    from kbuild.system.workspace import Workspace

    space = Workspace(project.root, "report")
    cache = Cache(space.root, PRINTED_WARNINGS)
    # Without lines, which move when the file is edited.
    warnings = {f"{one.file}: {one.key}: {one.message}": one for one in project.warnings}
    before = cache.get_json("", list) or []
    ctx.ui.warn_all(warning for text, warning in warnings.items() if text not in before)
    if [*warnings] != before:
        with suppress(OSError):  # the build itself says what is wrong with the folder
            space.prepare()
            cache.put_json("", [*warnings])


def outcome_json(
    project: Project, results: Sequence[BuildResult], card: Path | None
) -> dict[str, Any]:
    """The outcome as a JSON object."""
    built = [result.to_json() for result in results]
    return {"project": project.name, "variants": built, "card": str(card) if card else None}


def _build(
    args: Namespace, ctx: Services, project: Project, selection: Selection
) -> tuple[BuildResult, ...]:
    """Build with the driver that was asked for.

    Raises:
        UsageError: an option is one of the other driver.
    """
    if args.driver != "nix":
        if args.rest:
            hint = "arguments after `--` are for Nix: add --driver nix"
            raise UsageError(f"`{args.rest[0]}` comes after `--`", hint=hint)
        from kbuild.pipeline.build import build

        options = read_options(args, ctx, project, BuildOptions, selection=selection)
        return build(project, options, ctx)
    if refused := flags_refused_by_nix(args, BuildOptions):
        raise UsageError(
            f"{refused[0]} does not work with --driver nix",
            hint="a derivation sees only the project: write it into build.toml or the flake",
        )
    from kbuild.pipeline.nix_build import NixBuild, open_flake

    flake = open_flake(project.root, tuple(args.rest), ctx)
    output = ctx.path(args.output) if args.output else None
    return NixBuild(project, flake, selection, output, ctx).perform()


def exit_code(results: Sequence[BuildResult]) -> int:
    """The first failure's; that of an incomplete build only when nothing failed."""
    errors = [result.error for result in results if result.error]
    errors.sort(key=lambda error: error.kind == "incomplete")
    return errors[0].code if errors else EXIT_OK


def print_outcome(results: Sequence[BuildResult], ctx: Services) -> None:
    """Directories on stdout, everything else as messages."""
    _print_warnings(results, ctx)
    _print_overruled(results, ctx)
    for result in results:
        if result.status in {"built", "up-to-date"}:
            # What had nothing to do says the same each time.
            steps = f" in {result.seconds:.1f} s" if result.status == "built" else ""
            steps += f", {counted(result.steps, 'step')}" if result.steps else ""
            steps += f", {result.from_cache} of {result.objects} objects from cache" * bool(
                result.objects
            )
            steps += f"; not run: {', '.join(result.not_run)}" if result.not_run else ""
            ctx.ui.say(f"{result.variant}: {result.status}{steps}")
            # One line for each op of a kernel in a DSL and each target.
            for row in result.images:
                facts = [counted(row.images, "image"), f"{row.size / 1024:.1f} kB"]
                facts += [f"{row.registers} registers"] if row.registers is not None else []
                facts += [f"{row.spills} spilled"] if row.spills else []
                facts += [f"{row.local} B local"] if row.local and not row.spills else []
                facts += [f"{row.shared / 1024:.1f} kB shared"] if row.shared else []
                facts += [f"{row.cached} from cache"] if row.cached else []
                ctx.ui.say(f"  {row.op} {row.target}: {', '.join(facts)}")
            ctx.ui.data(str(result.path))
    for result in results:
        if result.status == "incomplete":
            ctx.ui.say(f"{result.variant}: incomplete, {result.reason}; run again to continue")


def _print_warnings(results: Sequence[BuildResult], ctx: Services) -> None:
    """The warnings, each once for all variants that it is about."""
    variants_by_finding: dict[Finding, list[str]] = {}
    for result in results:
        for finding in result.findings:
            if finding.severity == "warning":
                variants_by_finding.setdefault(finding, []).append(result.variant)
    built = sum(1 for result in results if result.status == "built")
    about = {
        finding: f" in {variants[0]}" + f" and {len(variants) - 1} more" * (len(variants) > 1)
        for finding, variants in variants_by_finding.items()
        if len(variants) < built
    }
    if ctx.ui.verbosity > 0:
        repetitions = [Repetition(finding, (finding.where,)) for finding in variants_by_finding]
    else:
        repetitions = grouped(
            variants_by_finding, lambda f: ((about.get(f), f.check), f.what, f.where)
        )
    for repetition in repetitions:
        ctx.ui.warn(
            str(repetition.first.with_note(about.get(repetition.first, "") + repetition.note))
        )


def _print_overruled(results: Sequence[BuildResult], ctx: Services) -> None:
    """One line for each check and reason: what is wrong stays so however old the variant is."""
    variants_by_reason: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for overruling in result.overruled.items():
            variants_by_reason.setdefault(overruling, []).append(result.variant)
    for (check, reason), variants in variants_by_reason.items():
        where = variants[0] if len(variants) == 1 else counted(len(variants), "variant")
        ctx.ui.warn(f"{where}: the errors of `{check}` are overruled: {reason}")


def _print_skipped(skipped: Sequence[BuildResult], ctx: Services) -> None:
    from kbuild.plan.selection import variants_by_reason

    groups = variants_by_reason({result.variant: result.reason for result in skipped})
    if len(groups) <= _MAX_SKIPPED_LINES:
        for reason, names in groups.items():
            if len(names) == 1:
                ctx.ui.say(f"{names[0]}: skipped, {reason}")
            else:
                ctx.ui.say(f"{counted(len(names), 'variant')} skipped, {reason}")
    else:
        from kbuild.project.variant import Variant

        backends = Counter(Variant.parse(result.variant).backend for result in skipped)
        listed = ", ".join(f"{count} {name}" for name, count in sorted(backends.items()))
        ctx.ui.say(
            f"{counted(len(skipped), 'variant')} skipped on this machine ({listed}); "
            "`kbuild list-variants --reasons` says why"
        )
