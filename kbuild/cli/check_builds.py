"""`kbuild check-builds`: do the built variants keep their promises."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.built import add_python, add_variant, chosen_python, discover, variant_of
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import CheckError

if TYPE_CHECKING:
    from kbuild.checks.base import Finding

Findings = Mapping[Path, Sequence["Finding"]]


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    add_python(parser, "loads the kernels")
    parser.add_argument("--no-load", action="store_true", help="leave out checks that run Python")
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Run every check on every variant."""
    from kbuild.checks.base import Output, run_checks

    folders = discover(ctx.folder(args.kernel_dir), args.variant)
    python = None if args.no_load else chosen_python(args.python, ctx)
    findings = {}
    for folder in folders:
        output = Output(folder, variant_of(folder), python)
        findings[folder] = run_checks(output, slow=not args.no_load)
    return report(findings, ctx, as_json=args.json)


def report(findings: Findings, ctx: Context, *, as_json: bool) -> int:
    """A table with one row per variant, every finding as talk; the exit code of the worst."""
    errors = {folder: _count(found, "error") for folder, found in findings.items()}
    if as_json:
        ctx.ui.data_json([_object(folder, found) for folder, found in findings.items()])
    else:
        _say(findings, ctx)
    if not any(errors.values()):
        return 0
    broken = sum(1 for count in errors.values() if count)
    ctx.ui.error(CheckError(f"{broken} of {len(errors)} variants break a promise", ()))
    return CheckError.code


def _object(folder: Path, found: Sequence[Finding]) -> dict[str, object]:
    from kbuild.checks.base import Output
    from kbuild.checks.readers.libraries import code_table

    return {
        "variant": folder.name,
        "path": str(folder),
        "ok": not _count(found, "error"),
        "findings": [finding.to_json() for finding in found],
        "device-code": code_table(Output(folder, variant_of(folder))),
    }


def _say(findings: Findings, ctx: Context) -> None:
    rows = [
        (folder.name, "broken" if _count(found, "error") else "ok", _summary(found))
        for folder, found in findings.items()
    ]
    ctx.ui.table(("variant", "state", "findings"), rows)
    for folder, found in findings.items():
        for finding in found:
            text = f"{folder.name}/{finding}"
            if finding.severity == "info":
                ctx.ui.detail(text)
            elif finding.severity == "warning":
                ctx.ui.warn(text)
            else:
                ctx.ui.error(CheckError(text, ()))


def _summary(found: Sequence[Finding]) -> str:
    words = {"error": "error", "warning": "warning", "info": "note"}
    counts = {word: _count(found, severity) for severity, word in words.items()}
    return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items() if n) or "-"


def _count(found: Sequence[Finding], severity: str) -> int:
    return sum(1 for finding in found if finding.severity == severity)
