"""`kbuild hash`: the digest of a variant's files, in its `metadata.json`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbuild.cli.built import METADATA, add_variant, discover
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import CheckError


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    parser.add_argument(
        "--check", action="store_true", help="compare with the recorded digest and write nothing"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Write the digests, or tell which differ from what is recorded; name what none counts."""
    from kbuild.digest import unaccounted

    folders = discover(ctx.folder(args.kernel_dir), args.variant)
    strays = {folder: unaccounted(folder) for folder in folders}
    states = {folder: _update(folder, dry=args.check) for folder in folders}
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
        words = ("unchanged", "differs" if args.check else "written")
        ctx.ui.table(("variant", "digest"), [(f.name, words[c]) for f, c in states.items()])
    stale = [folder.name for folder, changed in states.items() if changed]
    if not args.check:
        _warn_of_signatures([folder for folder, changed in states.items() if changed], ctx)
    for name, stray in ((folder.name, stray) for folder in folders for stray in strays[folder]):
        error = CheckError(f"{name}: {stray}, and no digest counts it", (), hint=stray.hint)
        ctx.ui.error(error) if args.check else ctx.ui.warn(error.message)
    if args.check and stale:
        ctx.ui.error(CheckError(f"files changed since the digest of {', '.join(stale)}", ()))
    return CheckError.code if args.check and (stale or any(strays.values())) else 0


def _warn_of_signatures(changed: Sequence[Path], ctx: Context) -> None:
    """What was signed is the metadata, which is another now."""
    for folder in changed:
        if (folder / f"{METADATA}.sigstore").is_file():
            ctx.ui.warn(f"{folder.name}: the signature is of the metadata before; sign it again")


def _update(folder: Path, *, dry: bool) -> bool:
    """True when the recorded digest was not the one of the files."""
    from kbuild.digest import digest_variant
    from kbuild.fileset import replace_atomically

    metadata = _read(folder)
    digest = digest_variant(folder)
    if metadata.get("digest") == digest:
        return False
    if not dry:
        metadata["digest"] = digest
        text = json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"
        replace_atomically(folder / METADATA, text.encode(), durable=True)
    return True


def _read(folder: Path) -> dict[str, Any]:
    """The metadata with all its keys, also those that this kbuild does not know."""
    from kbuild.untrusted import read_json

    return read_json(folder / METADATA, "metadata of a variant")
