"""The options that say which state of the source is built, for builds that git cannot see."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.identity import Identity

_ID = re.compile(r"[A-Za-z0-9_]{1,64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def add_identity(parser: ArgumentParser) -> None:
    """Declare `--unique-id`, `--kernel-sha` and `--kernel-dirty`."""
    group = parser.add_argument_group("which source (default: asked of git, or its content)")
    group.add_argument("--unique-id", metavar="ID", help="tail of the op namespace")
    group.add_argument("--kernel-sha", metavar="OID", help="commit that the source is")
    group.add_argument(
        "--kernel-dirty", action="store_true", help="the source differs from --kernel-sha"
    )


def identity_of(args: Namespace) -> Identity | None:
    """What the options say; None when they say nothing.

    Raises:
        UsageError: an id that is no part of an identifier, or a commit that is no full object id.
    """
    from kbuild.identity import Identity

    commit = args.kernel_sha.lower() if args.kernel_sha else None
    if args.kernel_dirty and commit is None:
        raise UsageError("--kernel-dirty goes with --kernel-sha")
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise UsageError(f"`{args.kernel_sha}` is no commit", hint="40 or 64 hexadecimal digits")
    if args.unique_id is None and commit is None:
        return None
    tail = "_dirty" if args.kernel_dirty else ""
    unique_id = f"{str(commit)[:7]}{tail}" if args.unique_id is None else args.unique_id
    if not _ID.fullmatch(unique_id):
        raise UsageError(
            f"`{unique_id}` cannot end an identifier", hint="letters, digits and `_`, 64 at most"
        )
    return Identity(unique_id, commit, args.kernel_dirty)
