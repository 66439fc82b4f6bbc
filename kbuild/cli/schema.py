"""`kbuild schema`: the JSON Schema of `build.toml`, for editors."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kbuild.cli.context import Context


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="changes nothing: the schema is JSON")


def execute(args: Namespace, ctx: Context) -> int:  # noqa: ARG001 - every verb is called this way
    """Print the schema."""
    from kbuild.config.schema import json_schema
    from kbuild.project import catalog

    ctx.ui.data_json(json_schema(catalog()))
    return 0
