"""The options of an upload, and their command lines."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.plan.command_options import option
from kbuild.system.errors import UsageError
from kbuild.system.services import Services


def _result_file_of(args: Namespace, ctx: Services, _project: None) -> Path | None:
    if args.output_json and not ctx.path(args.output_json).parent.is_dir():
        raise UsageError(f"--output-json: `{args.output_json.parent}` is not a folder")
    return ctx.path(args.output_json) if args.output_json else None


def _parse_licences(names: Sequence[str]) -> frozenset[str]:
    from kbuild.project.licences import accepted_licences

    return accepted_licences(names, os.environ)


_WHERE, _WHAT = "where to", "what is uploaded"


@dataclass(frozen=True)
class UploadOptions:
    """The options of `kbuild upload`; each field declares its flags."""

    repo_id: str | None = option(
        "--repo-id",
        group=_WHERE,
        metavar="OWNER/NAME",
        help="repository (default: general.hub.repo-id)",
    )
    branch: str | None = option(
        "--branch",
        group=_WHERE,
        metavar="NAME",
        help="branch (default: general.hub.branch, else v<version>)",
    )
    private: bool = option(
        "--private", group=_WHERE, action="store_true", help="make a new repository private"
    )
    create_pr: bool = option(
        "--create-pr",
        group=_WHERE,
        action="store_true",
        help="open pull requests instead of changing branches",
    )
    missing: bool = option(
        "--missing",
        group=_WHAT,
        action="store_true",
        help="upload only variants that the branch does not have",
    )
    allow_dirty: bool = option(
        "--allow-dirty",
        group=_WHAT,
        action="store_true",
        help="also upload variants built from uncommitted sources; the card lists them",
    )
    allow_noncompliant: bool = option(
        "--allow-noncompliant",
        group=_WHAT,
        action="store_true",
        help="also upload variants that fail a check; the card lists them",
    )
    accepted: frozenset[str] = option(
        "--accept-license",
        group=_WHAT,
        default=frozenset,
        action="append",
        metavar="NAME",
        help="accept the licence of code that is linked into a kernel (repeatable; or "
        "KBUILD_ACCEPT_LICENSE)",
        parse=_parse_licences,
    )
    dry_run: bool = option(
        "--dry-run",
        group=_WHAT,
        action="store_true",
        help="show what would change, without changing it",
    )
    output_json: Path | None = option(
        "--output-json",
        type=Path,
        metavar="FILE",
        help="also write the result to FILE",
        read=_result_file_of,
    )
