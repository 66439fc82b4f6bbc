"""Exporting kernels in CuTe DSL: compile what a command line asks for, and write it down."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kbuild.config.issue import one_of
from kbuild.errors import UsageError
from kbuild.languages.aot_compiler import AotCompiler
from kbuild.languages.cute.export import CuteExport, CuteExportLanguage, export_files
from kbuild.languages.environment import DslEnvironments
from kbuild.ops.binding import BoundLaunch
from kbuild.runtime.budget import make_budget, open_run
from kbuild.runtime.files import FileSet
from kbuild.services import Services
from kbuild.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller


def export_cute(
    order: CuteExport, root: Path, stem: str, services: Services
) -> tuple[FileSet, Path]:
    """Header, object and facts of every target; and the static runtime that they are linked with.

    Args:
        order: what to compile.
        root: the folder of the sources.
        stem: path of the files without arch and suffix.
        services: how the world is reached.

    Raises:
        UsageError: an argument or the function is not there.
        BuildError: it cannot be imported or compiled.
        ToolchainError: the toolchain cannot be had.
    """
    requests = order.requests()
    installer = WheelInstaller(services.runner, open_store(services.cache), say=services.ui.say)
    with open_run(make_budget(), services.cache) as run, installer.store.in_use():
        language = CuteExportLanguage(requests)
        workshop = AotCompiler(run, DslEnvironments(installer), lambda _: language)
        with closing(workshop):
            found = workshop.describe(order, root, order.targets)
            if order.function not in found:
                hint = one_of(order.function, found) or "it has none"
                message = f"`{order.sources[0]}` has no @cute.jit `{order.function}`"
                raise UsageError(message, hint=hint)
            bound = BoundLaunch(order.function, (), ())
            made = workshop.compile(order, root, [(unit, bound) for unit in requests])
            place = workshop.prepare(order)
    (archive,) = language.linked(place.root, order.toolchain, order.flavour).archives
    return export_files([(one, requests[one.unit]) for one in made], stem), archive
