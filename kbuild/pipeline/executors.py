"""Other machines that units run on: executors of the entry point group `kbuild.executors`.

An executor is named on a command line or in `KBUILD_EXECUTOR` by its address, `NAME:ADDRESS` where
several are installed. It makes objects and images, loads and tests variants, and offers GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
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
    from kbuild.checks.base import Check, Output
    from kbuild.checks.probe_cache import ProbeCache
    from kbuild.dsl.tune.workers import ProbeSource
    from kbuild.pipeline.testing import ProjectTests, TestReport
    from kbuild.system.budget import Run

EXECUTORS = "kbuild.executors"


@dataclass(frozen=True)
class BuildRequest:
    """The project, options and variants of a run."""

    root: Path
    """The project's folder."""
    plans: Mapping[str, VariantPlan]
    """Plans by variant."""
    toolchain: str
    """See `BuildOptions.toolchain`."""


class UnitFiller(ObjectFiller, ImageFiller, Protocol):
    """Fills this machine's cache with objects and images that others have made."""


class RemoteExecutor(Protocol):
    """The work that a plug-in does on the machines behind an address.

    Every method raises a `KbuildError` where the address cannot be used.
    """

    def fill_cache(
        self, address: str, request: BuildRequest, run: Run, services: Services
    ) -> AbstractContextManager[UnitFiller | None]:
        """The filler for a build; None, with a warning, where this machine makes all units."""

    def load_outputs(
        self,
        address: str,
        outputs: Iterable[Output],
        checks: Sequence[Check],
        memory: ProbeCache,
        services: Services,
    ) -> ProbeCache:
        """Load variants for checks; returns `memory` with the answers of those machines."""

    def run_tests(
        self,
        address: str,
        root: Path,
        variants: Sequence[Path],
        tests: ProjectTests,
        services: Services,
    ) -> tuple[list[TestReport], dict[str, list[str]]]:
        """Run the tests of the project in `root` against each variant, where it fits.

        Returns:
            The reports in the order of the variants, and why a variant was not tested, by name.
        """

    def probe_devices(
        self, address: str, root: Path, services: Services
    ) -> AbstractContextManager[ProbeSource]:
        """The GPUs, for the variants of the project in `root`."""


def find_executor(address: str) -> tuple[RemoteExecutor, str]:
    """The executor that an address names, and the address for it.

    Raises:
        UsageError: none is installed, or the address does not say which.
    """
    points = {point.name: point for point in plugin_points(EXECUTORS)}
    name, _, rest = address.partition(":")
    if name not in points and len(points) == 1:
        (name,), rest = points, address
    if name not in points:
        hint = f"write NAME:ADDRESS; installed: {', '.join(sorted(points)) or 'none'}"
        raise UsageError(f"`{address}` names no executor", hint=hint)
    return cast("RemoteExecutor", points[name].load()()), rest


def executor_address(given: str | None) -> str:
    """The address of an option, else of the environment; empty for this machine alone."""
    return os.environ.get(EXECUTOR_VARIABLE, "") if given is None else given
