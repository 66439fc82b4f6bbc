"""`kbuild wheel`: wheels from built variants, which pip installs and Python imports."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import add_variant, find_variants
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.publish.wheel import DistributionFacts, KernelWheel

_README = "README.md"
_LICENCES = ("LICEN[CS]E*", "COPYING*", "NOTICE*")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    parser.add_argument(
        "--combined",
        action="store_true",
        help="write one wheel with all variants of a system (default: one for each variant)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder of the wheels (default: dist/)"
    )
    parser.add_argument(
        "--name",
        default="",
        metavar="NAME",
        help="name on the package index (default: the kernel's)",
    )
    parser.add_argument(
        "--version",
        default="",
        metavar="VERSION",
        help="public version, e.g. 1.2.0 (default: the kernel's)",
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Write the wheels; their paths are the data."""
    from kbuild.publish.wheel import PackagedVariant, plan_wheels

    folder = ctx.folder(args.kernel_dir)
    facts = _facts_of(args, folder)
    variants = [PackagedVariant.read(path) for path in find_variants(folder, args.variant)]
    output = ctx.path(args.output) if args.output else folder / "dist"
    wheels = plan_wheels(variants, facts, combined=args.combined)
    for wheel in wheels:
        _warn(wheel, ctx)
        path = wheel.write(output)
        if not args.json:
            ctx.ui.data(str(path))
    if args.json:
        rows = [wheel.to_json() | {"path": str(output / wheel.file_name)} for wheel in wheels]
        ctx.ui.data_json({"wheels": rows})
    return 0


def _warn(wheel: KernelWheel, ctx: Services) -> None:
    """Say why indexes refuse the wheel."""
    for packaged in wheel.variants:
        for finding in packaged.foreign_libraries():
            ctx.ui.warn(f"{packaged.folder.name}/{finding.where} {finding.what}")
    if "-linux_" in wheel.tag:
        ctx.ui.warn(
            f"`{wheel.file_name}` fits no manylinux policy: it installs on systems like the one "
            "that built it, and package indexes refuse it"
        )


def _facts_of(args: Namespace, folder: Path) -> DistributionFacts:
    """The facts that the options and the project's files give.

    Raises:
        UsageError: a name or a version that no index accepts.
    """
    from packaging.utils import InvalidName, canonicalize_name
    from packaging.version import InvalidVersion, Version

    from kbuild.publish.wheel import DistributionFacts

    try:
        if args.name:
            canonicalize_name(args.name, validate=True)
    except InvalidName:
        hint = "write letters and digits, joined by `-`, `_` or `.`"
        raise UsageError(f"--name: `{args.name}` is not a package name", hint=hint) from None
    try:
        version = Version(args.version) if args.version else None
    except InvalidVersion:
        hint = "write it like 1.2.0"
        raise UsageError(f"--version: `{args.version}` is not a version", hint=hint) from None
    if version and version.local:
        hint = f"write {version.public}: the wheel of a variant adds its own local version"
        raise UsageError(f"--version: `{args.version}` has a local part", hint=hint)
    readme = folder / _README
    licences = {
        path.name: path.read_bytes()
        for pattern in _LICENCES
        for path in folder.glob(pattern)
        if path.is_file()
    }
    text = readme.read_text("utf-8") if readme.is_file() else ""
    return DistributionFacts(args.name, str(version or ""), text, licences)
