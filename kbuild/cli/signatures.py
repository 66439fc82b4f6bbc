"""`kbuild sign` and `verify`: the digests and sigstore signatures of built variants.

A signature covers `metadata.json`, which holds the digest of every other file; the bundle is
written beside it.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import METADATA, add_variant, find_variants
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.publish.signing.sign import SigstoreInstance


def _record_digests(args: Namespace, ctx: Services) -> int:
    """Write the digests, or tell which differ from what is recorded; name what none counts."""
    from kbuild.plan.digest import unaccounted

    folders = find_variants(ctx.folder(args.kernel_dir), args.variant)
    strays = {folder: unaccounted(folder) for folder in folders}
    states = {folder: _update_digest(folder, dry=args.check) for folder in folders}
    if args.json:
        ctx.ui.data_json(
            [
                {
                    "path": str(folder),
                    "changed": changed,
                    "unaccounted": [stray._asdict() for stray in strays[folder]],
                }
                for folder, changed in states.items()
            ]
        )
    else:
        labels = ("unchanged", "differs" if args.check else "written")
        ctx.ui.table(("variant", "digest"), [(f.name, labels[c]) for f, c in states.items()])
    stale = [folder.name for folder, changed in states.items() if changed]
    if not args.check:
        _warn_of_signatures([folder for folder, changed in states.items() if changed], ctx)
    for name, stray in ((folder.name, stray) for folder in folders for stray in strays[folder]):
        error = CheckError(f"{name}: {stray}, which no digest covers", (), hint=stray.hint)
        ctx.ui.error(error) if args.check else ctx.ui.warn(error.message)
    if args.check and stale:
        ctx.ui.error(CheckError(f"files changed since the digest of {', '.join(stale)}", ()))
    return CheckError.code if args.check and (stale or any(strays.values())) else 0


def _warn_of_signatures(changed: Sequence[Path], ctx: Services) -> None:
    """Warn of signatures that belong to older metadata."""
    for folder in changed:
        if (folder / f"{METADATA}.sigstore").is_file():
            ctx.ui.warn(f"{folder.name}: the signature belongs to older metadata; sign it again")


def _update_digest(folder: Path, *, dry: bool) -> bool:
    """True when the recorded digest was not the one of the files."""
    from kbuild.plan.digest import digest_variant
    from kbuild.system.files import replace_atomically

    # The metadata with all its keys, also those that this kbuild does not know.
    from kbuild.system.untrusted import read_json

    metadata = read_json(folder / METADATA, "metadata of a variant")
    digest = digest_variant(folder)
    if metadata.get("digest") == digest:
        return False
    if not dry:
        metadata["digest"] = digest
        text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
        replace_atomically(folder / METADATA, text.encode(), durable=True)
    return True


def add_sigstore_options(parser: ArgumentParser) -> None:
    """Declare `--staging` and `--trust-config`."""
    group = parser.add_argument_group("which sigstore (default: the public one)")
    group.add_argument(
        "--staging", action="store_true", help="use sigstore's public staging instance"
    )
    group.add_argument(
        "--trust-config",
        type=Path,
        metavar="FILE",
        help="use another instance: a sigstore ClientTrustConfig (JSON)",
    )


def sigstore_of(args: Namespace, ctx: Services, *, offline: bool = False) -> SigstoreInstance:
    """The instance of Sigstore that the options name."""
    from kbuild.publish.signing.sign import SigstoreInstance

    file = ctx.path(args.trust_config) if args.trust_config else None
    return SigstoreInstance(file, args.staging, offline)


def configure_sign(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    parser.add_argument(
        "--hash",
        action="store_true",
        help="record the digest of each variant's files, and sign nothing",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="with --hash: compare with the recorded digest, and write nothing",
    )
    parser.add_argument(
        "--identity-token",
        metavar="TOKEN",
        help="OIDC token of the signer (default: the CI's own, else a login in the browser)",
    )
    add_sigstore_options(parser)
    add_json(parser)


def execute_sign(args: Namespace, ctx: Services) -> int:
    """Sign, or record the digests that signatures cover.

    Raises:
        UsageError: `--check` without `--hash`.
    """
    if args.check and not args.hash:
        raise UsageError("--check needs --hash", hint="`kbuild verify` verifies signatures")
    return _record_digests(args, ctx) if args.hash else _sign(args, ctx)


def _sign(args: Namespace, ctx: Services) -> int:
    """Sign; nothing is signed when one of the variants is not what its metadata says."""
    from kbuild.publish.signing import sign
    from kbuild.publish.signing.sign import NEEDS_NETWORK, open_signer, sign_variant

    folders = find_variants(ctx.folder(args.kernel_dir), args.variant)
    from kbuild.publish.signing.sign import check_before_signing

    for folder in folders:
        for name, dirty in check_before_signing(folder).items():
            if dirty:
                ctx.ui.warn(f"{folder.name}: the source of {name} was dirty when it was built")
    token = sign.identity_token(args.identity_token)
    if token is None:
        sign.require_user(interactive=sys.stdin.isatty())
    config = sigstore_of(args, ctx).open(hint=NEEDS_NETWORK)
    token = token or sign.ask_for_token(config)
    with open_signer(config, token) as signer:
        signed = {folder: sign_variant(folder, signer) for folder in folders}
    ctx.ui.say(f"signed by {token.identity} ({token.federated_issuer})")
    if args.json:
        ctx.ui.data_json(
            [{"variant": f.name, "bundle": str(bundle)} for f, bundle in signed.items()]
        )
    else:
        for bundle in signed.values():
            ctx.ui.data(str(bundle))
    return 0


_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def configure_verify(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    group = parser.add_argument_group("by whom it must be signed")
    group.add_argument(
        "--identity",
        metavar="ID",
        help="who must have signed: an e-mail address or a CI workflow's URL",
    )
    group.add_argument("--issuer", metavar="URL", help="OIDC issuer of --identity")
    group.add_argument(
        "--repository",
        metavar="OWNER/NAME",
        help="GitHub repository whose workflows must have signed",
    )
    add_sigstore_options(parser)
    parser.add_argument(
        "--offline",
        action="store_true",
        help="fetch no keys: use those fetched last, else those of the library",
    )
    add_json(parser)
    parser.epilog = "Nothing in a variant is loaded or run."


def execute_verify(args: Namespace, ctx: Services) -> int:
    """Verify; exit code 6 when a variant is not what the expected signer signed."""
    from kbuild.publish.signing.verify import ExpectedSigner

    if bool(args.identity) != bool(args.issuer):
        raise UsageError(
            "--identity and --issuer must be given together, because anyone can be an issuer"
        )
    if not (args.identity or args.repository):
        raise UsageError(
            "name the expected signer: a signature by an unknown signer proves nothing",
            hint="--identity ID --issuer URL, or --repository OWNER/NAME",
        )
    if args.repository and not _REPOSITORY.fullmatch(args.repository):
        raise UsageError(f"`{args.repository}` is not a repository", hint="write OWNER/NAME")
    expected = ExpectedSigner(args.identity, args.issuer, args.repository)
    folders = find_variants(ctx.folder(args.kernel_dir), args.variant)
    config = sigstore_of(args, ctx, offline=args.offline).open()
    from sigstore.verify import Verifier

    from kbuild.publish.signing.verify import Verification

    verification = Verification(Verifier(trusted_root=config.trusted_root), expected)
    verdicts = [verification.variant(folder) for folder in folders]
    if args.json:
        ctx.ui.data_json([verdict.to_json() for verdict in verdicts])
    else:
        rows = [
            (v.variant, ("refused" if v.problems else "ok"), str(v.signer or "-")) for v in verdicts
        ]
        ctx.ui.table(("variant", "state", "signed by"), rows)
    for verdict in verdicts:
        for problem in verdict.problems:
            ctx.ui.error(CheckError(f"{verdict.variant}: {problem}", ()))
    return CheckError.code if any(verdict.problems for verdict in verdicts) else 0
