"""`kbuild aot`: kernels in DSLs as C files."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json
from kbuild.system.services import Services

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from kbuild.ops.language import Exporter

CUDA_MAJORS = ("12", "13")


def _exporters() -> dict[str, Exporter]:
    """The exporters of DSLs that have one, by name."""
    from kbuild.ops.language import LANGUAGES

    exporters = {language.name: language.exporter() for language in LANGUAGES.load(plugins=True)}
    return {name: exporter for name, exporter in exporters.items() if exporter is not None}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    exporters = _exporters()
    actions = {action: about for e in exporters.values() for action, about in e.actions.items()}
    parser.add_argument(
        "action",
        choices=tuple(actions),
        help="; ".join(f"{action}: {about}" for action, about in actions.items()),
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        help="the Python source, then those that it imports; link: headers",
    )
    parser.add_argument(
        "-o",
        "--out-path",
        type=Path,
        metavar="PATH",
        help="path of the files to write, without suffix (default, except for link: the name)",
    )
    pins = " or ".join(exporter.pin for exporter in exporters.values())
    _add_common_options(parser.add_argument_group(" and ".join(exporters)), pins)
    for name, exporter in exporters.items():
        exporter.configure(parser.add_argument_group(name))
    add_json(parser)


def _add_common_options(group: _ArgumentGroup, pins: str) -> None:
    group.add_argument(
        "-n", "--kernel-name", "--function", metavar="NAME", help="the kernel function"
    )
    group.add_argument(
        "-t",
        "--target",
        action="append",
        metavar="TARGET",
        help="sm_90a, cuda:90:32, hip:gfx942:64, compute_80 for PTX (repeatable; "
        "default: the GPUs of this machine)",
    )
    group.add_argument(
        "-on", "--out-name", metavar="NAME", help="name of the functions (default: the kernel's)"
    )
    group.add_argument(
        "--toolchain",
        action="append",
        metavar="PIN",
        help=f"the exact version that compiles (default: {pins})",
    )
    group.add_argument(
        "--cuda",
        choices=CUDA_MAJORS,
        default=CUDA_MAJORS[-1],
        help="oldest CUDA whose drivers must load the code (default: 13)",
    )


def execute(args: Namespace, ctx: Services) -> int:
    """Write the files, and name them."""
    exporter = next(e for e in _exporters().values() if args.action in e.actions)
    exported = exporter.export(args, ctx)
    if exported.note:
        ctx.ui.say(exported.note)
    exported.files.write(exported.folder, manifest=False)
    paths = [str(exported.folder / path) for path, _ in exported.files.items()]
    if args.json:
        ctx.ui.data_json({"files": paths, **exported.facts})
    else:
        ctx.ui.data("\n".join(paths))
    return 0
