"""`kbuild check-abi`: what the binaries of built variants ask of the machine that loads them.

The part of `check-builds` that looks at bytes: no Python is started and nothing is loaded.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.built import add_variant, discover, variant_of
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Report the findings that are about a library."""
    from kbuild.checks.base import Output, run_checks
    from kbuild.cli.check_builds import report

    findings = {}
    for folder in discover(ctx.folder(args.kernel_dir), args.variant):
        output = Output(folder, variant_of(folder))
        libraries = {output.name_of(path) for path in output.libraries()}
        findings[folder] = [
            finding for finding in run_checks(output, slow=False) if finding.where in libraries
        ]
    return report(findings, ctx, as_json=args.json)
