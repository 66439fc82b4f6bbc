"""Exporting kernels as C: compile what a command line asks for, and write it down."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.budget import budget_of, opened
from kbuild.config.suggest import one_of
from kbuild.errors import UsageError
from kbuild.fileset import FileSet
from kbuild.languages.environment import Environments
from kbuild.languages.export.grid import read_grid
from kbuild.languages.export.order import Order, Spelled, units_of
from kbuild.languages.export.signature import read_signature
from kbuild.languages.export.source import write_source
from kbuild.languages.export.variant import variant_of
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.workshop import Workshop
from kbuild.pipeline.options import Doors
from kbuild.store import store_of
from kbuild.toolchains.wheels.installer import Installer

if TYPE_CHECKING:
    from kbuild.languages.base import Function
    from kbuild.languages.unit import Unit


def export(order: Order, root: Path, name: str, stem: str, doors: Doors) -> FileSet:
    """The C files of every target.

    Args:
        order: what to compile.
        root: the folder of the sources.
        name: what the functions are called.
        stem: path of the files without arch, digest and suffix.
        doors: how the world is reached.

    Raises:
        UsageError: signature or grid do not fit the kernel.
        BuildError: it cannot be imported or compiled.
        ToolchainError: the toolchain cannot be had.
    """
    installer = Installer(doors.runner, store_of(doors.cache), say=doors.ui.say)
    requests: dict[Unit, dict[str, object]] = {}
    with opened(budget_of(), doors.cache) as run, installer.store.in_use():
        language = Spelled(requests)
        workshop = Workshop(run, Environments(installer), lambda _: language)
        with closing(workshop):
            function = _function(order, workshop.describe(order, root, order.targets))
            signature = read_signature(order.signature, function.name, function.parameters)
            grid = read_grid(order.grid, signature)
            requests |= units_of(order, signature)
            bound = Bound(function.name, (), ())
            made = workshop.compile(order, root, [(unit, bound) for unit in requests])
    files = FileSet()
    axes = [str(axis) for axis in grid]
    for one in made:
        variant = variant_of(name, one.unit.target, signature, order.options, axes)
        files = files.merge(write_source(variant, grid, one.image, one.code, stem))
    return files


def _function(order: Order, found: Mapping[str, Function]) -> Function:
    if order.function not in found:
        hint = one_of(order.function, found) if found else "it has none"
        message = f"`{order.sources[0]}` has no kernel function `{order.function}`"
        raise UsageError(message, hint=hint)
    return found[order.function]
