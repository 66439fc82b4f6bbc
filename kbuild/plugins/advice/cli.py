"""`kbuild abi-advice`: the way to Torch's stable ABI."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.plugins.advice.survey import BackendAdvice
    from kbuild.plugins.advice.uses import ApiUse


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="select a backend (repeatable)",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Print every use and its replacement; always 0, since advice is no verdict."""
    from kbuild.plan.project import open_project
    from kbuild.plugins.advice.survey import advise_project
    from kbuild.system.sourcetree import SourceTree

    root = ctx.folder(args.kernel_dir)
    tree = SourceTree(root)
    project = open_project(root, tree)
    backends = project.file.general.backends
    for name in args.backend:
        if name not in backends:
            hint = f"it has {', '.join(backends)}"
            raise UsageError(f"the project has no backend `{name}`", hint=hint)
    # Of the wanted backends, those that compile against Torch.
    wanted = [name for name in backends if name in (args.backend or backends)]
    compiled = [name for name in wanted if project.is_compiled(name) and project.file.torch]
    advice_list = advise_project(project, tree, compiled)
    if args.json:
        from kbuild.plugins.advice.stable_abi import stable_abi_table

        advice_json = {
            "torch-headers": str(stable_abi_table().torch),
            "backends": [advice.to_json() for advice in advice_list],
        }
        ctx.ui.data_json(advice_json)
    elif not advice_list:
        ctx.ui.data(f"{project.name} compiles nothing against Torch")
    elif not any(advice.uses for advice in advice_list):
        ctx.ui.data(_stable_summary(project.name, advice_list))
    else:
        _print_uses(advice_list, ctx)
    return 0


def _print_uses(advice_list: Sequence[BackendAdvice], ctx: Services) -> None:
    uses: dict[str, dict[ApiUse, None]] = {}
    for use in (use for advice in advice_list for use in advice.uses):
        uses.setdefault(use.file, {})[use] = None
    backends: dict[str, list[str]] = {}
    for advice in advice_list:
        for file in advice.files:
            backends.setdefault(file, []).append(advice.backend)
    for file, own in uses.items():
        readers = backends[file]
        only = [f"  only for {', '.join(readers)}"] if len(readers) < len(advice_list) else []
        ctx.ui.table((file, "instead", "since", "line:column"), _rows(own))
        ctx.ui.data("\n".join([*only, *_notes(own)]))
        ctx.ui.data("\n")
    ctx.ui.data("\n".join(_backend_summary(advice) for advice in advice_list))


def _rows(uses: Iterable[ApiUse]) -> list[tuple[str, str, str, str]]:
    """One row for each thing that a file uses, with every place of it."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for use in uses:
        since = str(use.entry.since) if use.entry.since else "-"
        row = (use.text, use.entry.stable or "no replacement known", since)
        places.setdefault(row, []).append(f"{use.line}:{use.column}")
    return [(*row, " ".join(where)) for row, where in places.items()]


def _notes(uses: Iterable[ApiUse]) -> Iterator[str]:
    texts: dict[str, dict[str, None]] = {}
    for use in uses:
        if use.entry.note:
            texts.setdefault(use.entry.note, {})[use.text] = None
    return (f"  {', '.join(own)}: {note}" for note, own in texts.items())


def _backend_summary(advice: BackendAdvice) -> str:
    """The sentence on what the stable ABI lacks, and from which Torch on it has everything."""
    if not advice.uses:
        return f"{advice.backend}: only the stable ABI is used, from Torch {advice.floor} on"
    files = len({use.file for use in advice.uses})
    count = f"{_counted(len(advice.uses), 'use')} in {_counted(files, 'file')}"
    due = f" ({', '.join(advice.raised_by)})" if advice.raised_by else ""
    has = f"a stable replacement from Torch {advice.floor} on{due}"
    if not advice.without:
        return f"{advice.backend}: {count}; every one has {has}"
    kinds = ", ".join(dict.fromkeys(use.text for use in advice.without))
    replaced = len(advice.uses) - len(advice.without)
    return f"{advice.backend}: {count}; {replaced} have {has}; none is known for {kinds}"


def _stable_summary(name: str, advice_list: Sequence[BackendAdvice]) -> str:
    """One line for a project that uses the stable ABI only."""
    floor = max(advice.floor for advice in advice_list)
    text = f"{name}: only the stable ABI is used; it runs on Torch {floor} and later"
    asked = [advice.declared for advice in advice_list if advice.declared]
    if len(asked) < len(advice_list):
        return f'{text}: declare it with `stable-abi = "{floor}"` in [torch]'
    if min(asked) < floor:
        return f"{text}, but build.toml declares {min(asked)}"
    return f"{text}, and build.toml declares {min(asked)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"
