"""`kbuild generate-docs`: the reference of the commands, made from their parsers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from kbuild.cli import VERBS
from kbuild.cli.context import Context
from kbuild.cli.describe import Argument, Description, describe, of_every_verb
from kbuild.errors import CheckError

PAGE = Path("docs", "reference", "cli.md")
_INTRODUCTION = """\
# Commands

<!-- Written by `kbuild generate-docs`; do not edit. -->

`kbuild VERB [arguments]`. Data goes to stdout, everything else to stderr. Every verb that answers
something takes `--json`; a failure is then `{"error": {...}}` on stdout as well. The exit codes are
in [exit-codes.md](exit-codes.md).

`KERNEL_DIR` is the folder that holds `build.toml`; without it, the current folder. Relative paths
start at the current folder.
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "output", nargs="?", type=Path, help="file to write (default: print the page)"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when the file is stale"
    )


def execute(args: Namespace, ctx: Context) -> int:
    """Write or compare the page."""
    from kbuild.fileset import replace_atomically

    text = page()
    if args.output is None:
        ctx.ui.data(text)
        return 0
    output = ctx.path(args.output)
    if output.is_file() and output.read_text("utf-8") == text:
        return 0
    if args.check:
        hint = f"kbuild generate-docs {args.output}"
        raise CheckError(f"`{args.output}` is stale", (), hint=hint)
    replace_atomically(output, text.encode())
    ctx.ui.say(f"wrote {args.output}")
    return 0


def page() -> str:
    """The whole page."""
    descriptions = [describe(verb) for verb in VERBS]
    parts = [_INTRODUCTION, "## Options of every verb\n", _table(of_every_verb(descriptions[0]))]
    group = ""
    for description in descriptions:
        if description.verb.group != group:
            group = description.verb.group
            parts.append(f"\n## {group}\n")
        parts.append("\n".join(_section(description)))
    return "\n".join(parts)


def _section(description: Description) -> Iterator[str]:
    verb = description.verb
    yield f"### {verb.name}\n"
    yield f"{verb.summary}.\n"
    yield f"```\n{description.usage}\n```\n"
    if description.epilog:
        yield f"{description.epilog}\n"
    common = {argument.name for argument in of_every_verb(description)}
    own = [argument for argument in description.arguments if argument.name not in common]
    if own:
        yield _table(own)


def _table(arguments: Iterable[Argument]) -> str:
    rows = [f"| `{argument.written}` | {_escaped(argument)} |" for argument in arguments]
    return "\n".join(("| argument | meaning |", "|---|---|", *rows, ""))


def _escaped(argument: Argument) -> str:
    return argument.help.replace("%%", "%").replace("|", "\\|")
