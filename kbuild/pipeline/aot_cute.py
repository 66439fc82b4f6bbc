"""Exporting kernels in CuTe DSL: compile what a command line asks for, and write it down."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kbuild.build.budget import budget_of, opened
from kbuild.config.suggest import one_of
from kbuild.errors import UsageError
from kbuild.fileset import FileSet
from kbuild.languages.cute.export import Order, Spelled, written
from kbuild.languages.environment import Environments
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.workshop import Workshop
from kbuild.pipeline.options import Doors
from kbuild.store import store_of
from kbuild.toolchains.wheels.installer import Installer


def export_cute(order: Order, root: Path, stem: str, doors: Doors) -> tuple[FileSet, Path]:
    """Header, object and facts of every target; and the static runtime that they are linked with.

    Args:
        order: what to compile.
        root: the folder of the sources.
        stem: path of the files without arch and suffix.
        doors: how the world is reached.

    Raises:
        UsageError: an argument or the function is not there.
        BuildError: it cannot be imported or compiled.
        ToolchainError: the toolchain cannot be had.
    """
    requests = order.requests()
    installer = Installer(doors.runner, store_of(doors.cache), say=doors.ui.say)
    with opened(budget_of(), doors.cache) as run, installer.store.in_use():
        language = Spelled(requests)
        workshop = Workshop(run, Environments(installer), lambda _: language)
        with closing(workshop):
            found = workshop.describe(order, root, order.targets)
            if order.function not in found:
                hint = one_of(order.function, found) or "it has none"
                message = f"`{order.sources[0]}` has no @cute.jit `{order.function}`"
                raise UsageError(message, hint=hint)
            bound = Bound(order.function, (), ())
            made = workshop.compile(order, root, [(unit, bound) for unit in requests])
            place = workshop.prepare(order)
    (archive,) = language.linked(place.root, order.toolchain, order.flavour).archives
    return written([(one, requests[one.unit]) for one in made], stem), archive
