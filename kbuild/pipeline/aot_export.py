"""Exporting kernels as C: compile what a command line asks for, and write it down."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.config.issue import one_of
from kbuild.errors import UsageError
from kbuild.languages.aot_compiler import AotCompiler
from kbuild.languages.environment import DslEnvironments
from kbuild.languages.export.c_source import read_grid, write_source
from kbuild.languages.export.request import ExportRequest, TritonWithRequests, units_of
from kbuild.languages.export.signature import read_signature, variant_of
from kbuild.ops.binding import BoundLaunch
from kbuild.runtime.budget import make_budget, open_run
from kbuild.runtime.files import FileSet
from kbuild.services import Services
from kbuild.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller

if TYPE_CHECKING:
    from kbuild.languages.base import KernelFunction
    from kbuild.languages.unit import KernelUnit


def export(order: ExportRequest, root: Path, name: str, stem: str, services: Services) -> FileSet:
    """The C files of every target.

    Args:
        order: what to compile.
        root: the folder of the sources.
        name: what the functions are called.
        stem: path of the files without arch, digest and suffix.
        services: how the world is reached.

    Raises:
        UsageError: signature or grid do not fit the kernel.
        BuildError: it cannot be imported or compiled.
        ToolchainError: the toolchain cannot be had.
    """
    installer = WheelInstaller(services.runner, open_store(services.cache), say=services.ui.say)
    requests: dict[KernelUnit, dict[str, object]] = {}
    with open_run(make_budget(), services.cache) as run, installer.store.in_use():
        language = TritonWithRequests(requests)
        workshop = AotCompiler(run, DslEnvironments(installer), lambda _: language)
        with closing(workshop):
            function = _function(order, workshop.describe(order, root, order.targets))
            signature = read_signature(order.signature, function.name, function.parameters)
            grid = read_grid(order.grid, signature)
            requests |= units_of(order, signature)
            bound = BoundLaunch(function.name, (), ())
            made = workshop.compile(order, root, [(unit, bound) for unit in requests])
    files = FileSet()
    axes = [str(axis) for axis in grid]
    for one in made:
        variant = variant_of(name, one.unit.target, signature, order.options, axes)
        files = files.merge(write_source(variant, grid, one.image, one.code, stem))
    return files


def _function(order: ExportRequest, found: Mapping[str, KernelFunction]) -> KernelFunction:
    if order.function not in found:
        hint = one_of(order.function, found) if found else "it has none"
        message = f"`{order.sources[0]}` has no kernel function `{order.function}`"
        raise UsageError(message, hint=hint)
    return found[order.function]
