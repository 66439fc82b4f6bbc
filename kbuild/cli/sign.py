"""`kbuild sign`: built variants with sigstore, as the `kernels` client verifies them.

What is signed is `metadata.json`, which holds the digest of every other file; the bundle goes
beside it. A provenance statement beside the variant is signed as well.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from kbuild.cli.built import add_variant, discover
from kbuild.cli.context import Context
from kbuild.cli.instance import add_instance, instance_of
from kbuild.cli.parser import add_json, add_kernel_dir


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    parser.add_argument(
        "--identity-token",
        metavar="TOKEN",
        help="OIDC token that says who signs (default: the CI's own, else a browser asks you)",
    )
    add_instance(parser)
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Sign; nothing is signed when one of the variants is not what its metadata says."""
    from kbuild.signing import sign
    from kbuild.signing.instance import NEEDS_NETWORK
    from kbuild.signing.sign import sign_variant, signer_of

    folders = discover(ctx.folder(args.kernel_dir), args.variant)
    _look_at(folders, ctx)
    token = sign.identity_token(args.identity_token)
    if token is None:
        sign.refuse_without_user(interactive=sys.stdin.isatty())
    config = instance_of(args, ctx).open(hint=NEEDS_NETWORK)
    token = token or sign.ask_for_token(config)
    with signer_of(config, token) as signer:
        signed = {folder: sign_variant(folder, signer) for folder in folders}
    ctx.ui.say(f"signed by {token.identity} ({token.federated_issuer})")
    if args.json:
        ctx.ui.data_json(
            [{"variant": f.name, "bundles": [str(b) for b in made]} for f, made in signed.items()]
        )
    else:
        for bundles in signed.values():
            ctx.ui.data("\n".join(map(str, bundles)))
    return 0


def _look_at(folders: Sequence[Path], ctx: Context) -> None:
    from kbuild.signing.sign import refuse_untrue

    for folder in folders:
        for name, dirty in refuse_untrue(folder).items():
            if dirty:
                ctx.ui.warn(f"{folder.name}: the source of {name} was dirty when it was built")
