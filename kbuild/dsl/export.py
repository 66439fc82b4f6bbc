"""Shared by the exporters of `kbuild aot`: targets and compilation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kbuild.dsl.aot_compiler import AotCompiler
from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.language import KernelFunction, Language
from kbuild.ops.unit import KernelUnit
from kbuild.project.config.issue import one_of
from kbuild.system.budget import make_budget, open_run
from kbuild.system.errors import UsageError
from kbuild.system.processes import Runner
from kbuild.system.services import Services
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller


class RequestedUnits(Language):
    """A language whose units come from a command line instead of a section."""

    def __init__(self, requests: Mapping[KernelUnit, Mapping[str, Any]]) -> None:
        """Take the worker's request for each unit; `requests` may be filled later."""
        self._requests = requests

    def request(self, unit: KernelUnit, bound: BoundLaunch) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the unit's request; `bound` is not used, since the request has the arguments."""
        return self._requests[unit]


@contextmanager
def export_compiler(language: Language, services: Services) -> Iterator[AotCompiler]:
    """Return a compiler for an export, with a run and a budget of its own."""
    installer = WheelInstaller(
        services.runner, open_store(services.cache), downloads=services.ui.downloads
    )
    with open_run(make_budget(), services.cache) as run, installer.store.in_use():
        compiler = AotCompiler(run, DslEnvironments(installer), lambda _: language)
        with closing(compiler):
            yield compiler


def find_function(
    name: str, functions: Mapping[str, KernelFunction], source: str, decorator: str
) -> KernelFunction:
    """Return the kernel function of that name.

    Raises:
        UsageError: the source has none.
    """
    if name not in functions:
        hint = one_of(name, functions)
        hint = hint or f"no function there has `{decorator}`: write it above the kernel"
        raise UsageError(f"`{source}` has no kernel function `{name}`", hint=hint)
    return functions[name]


def targets_of_gpus(runner: Runner, action: str, backends: Sequence[str]) -> list[str]:
    """Return the targets of this machine's GPUs, such as `cuda:90`, for the first backend with any.

    Raises:
        UsageError: no GPU answers.
    """
    from kbuild.backends import BACKENDS

    for name in backends:
        archs = BACKENDS.get(name).native_archs(runner)
        if archs:
            kind = "hip" if name == "rocm" else name
            return [f"{kind}:{arch.replace('.', '')}" for arch in archs]
    message = f"`kbuild aot {action}` needs --target, because this machine has no usable GPU"
    raise UsageError(message, hint="e.g. `--target sm_90a`; no GPU is needed to compile for one")


def paths_beside_first(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the paths relative to the folder of the first one.

    Raises:
        UsageError: a path is not a file, or lies outside of that folder.
    """
    first = paths[0]
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no file `{path}`")
        if not path.is_relative_to(first.parent):
            hint = "put the sources into the folder of the first one, or below it"
            raise UsageError(f"`{path}` is outside the folder of `{first.name}`", hint=hint)
    return tuple(path.relative_to(first.parent).as_posix() for path in paths)
