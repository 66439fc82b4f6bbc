"""`kbuild doctor`: one screen on what this machine has, and what mends the rest."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.cli.variants import add_python
from kbuild.system.errors import ToolchainError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.pipeline.diagnosis import DiagnosisItem


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_python(parser, "is built against")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Exit code 0 when a CPU kernel can be built, tested and loaded here."""
    from kbuild.pipeline.diagnosis import diagnose

    python = args.python
    if python is not None and len(python.parts) > 1:
        python = ctx.path(python)
    items = tuple(diagnose(python, ctx.cache, ctx.runner))
    missing = [item.name for item in items if item.state == "missing"]
    if args.json:
        ctx.ui.data_json({"ok": not missing, "items": [item.to_json() for item in items]})
    else:
        rows = [(item.name, item.state, _item_text(item)) for item in items]
        ctx.ui.table(("what", "state", "found, or what it is for and how to get it"), rows)
    if not missing:
        return 0
    ctx.ui.error(ToolchainError(f"missing: {', '.join(missing)}"))
    return ToolchainError.code


def _item_text(item: DiagnosisItem) -> str:
    if item.state == "ok":
        return item.details
    mend = f": {item.mend}" if item.mend else ""
    advice = f"for {item.needed_for}{mend}"
    return f"{item.details}; {advice}" if item.details else advice
