"""`kbuild verify`: the signatures of built variants, who signed, and that the files are those.

Checked in this order: the bundle against sigstore's certificates and log, who signed, the digest
of every file, and the provenance statement beside the variant where there is one.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbuild.cli.built import add_variant, discover
from kbuild.cli.context import Context
from kbuild.cli.instance import add_instance, instance_of
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import CheckError, UsageError

if TYPE_CHECKING:
    from kbuild.signing.expected import Expected
    from kbuild.signing.verify import Verdict

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    group = parser.add_argument_group("by whom it must be signed")
    group.add_argument(
        "--identity", metavar="ID", help="e-mail address, or address of a CI's workflow"
    )
    group.add_argument("--issuer", metavar="URL", help="who vouched for --identity")
    group.add_argument(
        "--repository", metavar="OWNER/NAME", help="GitHub repository whose workflows sign"
    )
    add_instance(parser)
    parser.add_argument(
        "--offline", action="store_true", help="use the keys of the last time, or of the library"
    )
    add_json(parser)
    parser.epilog = "Nothing of a variant is loaded or run."


def execute(args: Namespace, ctx: Context) -> int:
    """Verify; exit code 6 when a variant is not what the expected signer signed."""
    expected = _expected(args)
    folders = discover(ctx.folder(args.kernel_dir), args.variant)
    config = instance_of(args, ctx, offline=args.offline).open()
    from sigstore.verify import Verifier

    from kbuild.signing.verify import Verification

    verification = Verification(Verifier(trusted_root=config.trusted_root), expected)
    verdicts = [verification.variant(folder) for folder in folders]
    if args.json:
        ctx.ui.data_json([verdict.to_json() for verdict in verdicts])
    else:
        rows = [(v.variant, _state(v), str(v.signer or "-"), v.provenance) for v in verdicts]
        ctx.ui.table(("variant", "state", "signed by", "provenance"), rows)
    return _conclude(verdicts, ctx)


def _expected(args: Namespace) -> Expected:
    from kbuild.signing.expected import Expected

    if bool(args.identity) != bool(args.issuer):
        raise UsageError("--identity and --issuer go together: anybody can be an issuer")
    if not (args.identity or args.repository):
        raise UsageError(
            "say who should have signed: a signature by anybody proves nothing",
            hint="--identity ID --issuer URL, or --repository OWNER/NAME",
        )
    if args.repository and not _REPOSITORY.fullmatch(args.repository):
        raise UsageError(f"`{args.repository}` is no repository", hint="write OWNER/NAME")
    return Expected(args.identity, args.issuer, args.repository)


def _state(verdict: Verdict) -> str:
    return "refused" if verdict.problems else "ok"


def _conclude(verdicts: Sequence[Verdict], ctx: Context) -> int:
    for verdict in verdicts:
        for problem in verdict.problems:
            ctx.ui.error(CheckError(f"{verdict.variant}: {problem}", ()))
    return CheckError.code if any(verdict.problems for verdict in verdicts) else 0
