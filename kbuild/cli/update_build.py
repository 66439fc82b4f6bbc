"""`kbuild update-build`: `build.toml` in the current edition, comments and order kept."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from difflib import unified_diff
from pathlib import Path

from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "-d", "--dry-run", action="store_true", help="show the difference and write nothing"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Rewrite the file, or show what would change."""
    from kbuild.config.place import display
    from kbuild.config.text import read
    from kbuild.config.update import update_text
    from kbuild.project import BUILD_FILE
    from kbuild.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    name = display(root, BUILD_FILE)
    before = read(SourceTree(root), BUILD_FILE)
    after = update_text(before, name)
    difference = _difference(before, after, name)
    if difference and not args.dry_run:
        _replace(root / BUILD_FILE, after)
    if args.json:
        ctx.ui.data_json({"file": name, "changed": bool(difference), "diff": difference})
    elif args.dry_run:
        ctx.ui.data(difference)
    ctx.ui.say(_outcome(name, changed=bool(difference), dry=args.dry_run))
    return 0


def _difference(before: str, after: str, name: str) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(unified_diff(old, new, name, name))


def _replace(target: Path, text: str) -> None:
    """Write through links, with the file's own line ends and mode."""
    from kbuild.fileset import replace_atomically

    target = target.resolve()
    if b"\r\n" in target.read_bytes():
        text = text.replace("\n", "\r\n")
    mode = target.stat().st_mode & 0o777
    replace_atomically(target, text.encode(), mode=mode, durable=True)


def _outcome(name: str, *, changed: bool, dry: bool) -> str:
    if not changed:
        return f"{name} is in the current edition already"
    return f"{name} would be rewritten" if dry else f"{name} is in the current edition now"
