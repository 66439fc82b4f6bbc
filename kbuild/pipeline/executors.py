"""Other machines that units run on: executors of the entry point group `kbuild.executors`.

`--executor` or `KBUILD_EXECUTOR` gives an address, such as a scheduler's, and before it `NAME:`
where several executors are installed. Each command uses the machines behind it for its own units.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from kbuild.build.compile import ObjectFiller
from kbuild.dsl.aot_compiler import ImageFiller
from kbuild.pipeline.options import EXECUTOR_VARIABLE
from kbuild.plan.plan import VariantPlan
from kbuild.system.errors import UsageError
from kbuild.system.plugins import plugin_points
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.dsl.tune.workers import ProbeSource
    from kbuild.pipeline.testing import ProjectTests, TestReport
    from kbuild.system.budget import Run

EXECUTORS = "kbuild.executors"


@dataclass(frozen=True)
class BuildRequest:
    """The variants of a build whose units other machines may compile."""

    root: Path
    plans: Mapping[str, VariantPlan]
    toolchain: str
    """`BuildOptions.toolchain`: each worker opens the same source of compilers on its machine."""


class UnitFiller(ObjectFiller, ImageFiller, Protocol):
    """Fills this machine's cache with objects and images that others have made."""


class RemoteExecutor(Protocol):
    """Runs units on the machines behind an address.

    Every method raises a `KbuildError` for an address or credentials that cannot be used. Where no
    machine answers, `fill_cache` prints a warning, and this machine does the work; `run_tests` and
    `probe_devices` raise a `KbuildError`.
    """

    def fill_cache(
        self, address: str, request: BuildRequest, run: Run, services: Services
    ) -> AbstractContextManager[UnitFiller | None]:
        """The filler for the build whose budget is `run`; None where no machine answers."""

    def run_tests(
        self,
        address: str,
        root: Path,
        variants: Sequence[Path],
        tests: ProjectTests,
        services: Services,
    ) -> tuple[list[TestReport], dict[str, list[str]]]:
        """Run a project's tests once per variant, on any machine that can load the variant.

        Returns:
            The reports in the order of the variants; and for each variant without a report, by
            name, the reasons that the machines gave.
        """

    def probe_devices(
        self, address: str, root: Path, services: Services
    ) -> AbstractContextManager[ProbeSource]:
        """The GPUs of those machines, to measure on; workers get Python files from `root`."""


def find_executor(address: str) -> tuple[RemoteExecutor, str]:
    """The executor that `NAME:ADDRESS` names, and the address without the name.

    Raises:
        UsageError: none is installed, or the address does not say which.
    """
    points = {point.name: point for point in plugin_points(EXECUTORS)}
    name, _, rest = address.partition(":")
    if name not in points and len(points) == 1:
        # The only executor needs no name: what precedes the colon may be `tls` of `tls://...`.
        (name,), rest = points, address
    if name not in points:
        hint = f"write NAME:ADDRESS; installed: {', '.join(sorted(points)) or 'none'}"
        raise UsageError(f"`{address}` names no executor", hint=hint)
    executor_class = points[name].load()
    return cast("RemoteExecutor", executor_class()), rest


def executor_address(option: str | None) -> str:
    """The address in `--executor`, which may be empty, else in the environment.

    Units run on this machine alone when the address is empty.
    """
    return os.environ.get(EXECUTOR_VARIABLE, "") if option is None else option
