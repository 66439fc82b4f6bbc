"""The options that say which sigstore is meant."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.context import Context

if TYPE_CHECKING:
    from kbuild.signing.instance import Instance


def add_instance(parser: ArgumentParser) -> None:
    """Declare `--staging` and `--trust-config`."""
    group = parser.add_argument_group("which sigstore (default: the public one)")
    group.add_argument(
        "--staging", action="store_true", help="the public one for trying things out"
    )
    group.add_argument(
        "--trust-config",
        type=Path,
        metavar="FILE",
        help="another one: its keys and addresses as sigstore's ClientTrustConfig (JSON)",
    )


def instance_of(args: Namespace, ctx: Context, *, offline: bool = False) -> Instance:
    """What the options say."""
    from kbuild.signing.instance import Instance

    file = ctx.path(args.trust_config) if args.trust_config else None
    return Instance(file, args.staging, offline)
