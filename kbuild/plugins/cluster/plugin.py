"""The command `cluster`, and the executor `dask`: units run on the workers of a Dask cluster.

An address is a scheduler's, such as `tcp://HOST:8786` or `tls://HOST:8786`, or a scheduler file.
"""

from __future__ import annotations

from kbuild.cli import CommandEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kbuild.dsl.tune.workers import ProbeSource
    from kbuild.pipeline.executors import BuildRequest, UnitFiller
    from kbuild.pipeline.testing import ProjectTests, TestReport
    from kbuild.system.budget import Run
    from kbuild.system.services import Services

COMMAND = CommandEntry(
    "Build and test",
    "cluster",
    "Start machines that compile for others, or join them",
    "kbuild.plugins.cluster.cli",
)


class DaskCluster:
    """See `kbuild.pipeline.executors.RemoteExecutor`."""

    def fill_cache(
        self, address: str, request: BuildRequest, run: Run, services: Services
    ) -> AbstractContextManager[UnitFiller | None]:
        """See `RemoteExecutor.fill_cache`."""
        from kbuild.plugins.cluster.connect import cluster_filler

        return cluster_filler(address, run, services.runner, request, services.ui.warn)

    def run_tests(
        self,
        address: str,
        root: Path,
        variants: Sequence[Path],
        tests: ProjectTests,
        services: Services,
    ) -> tuple[list[TestReport], dict[str, list[str]]]:
        """See `RemoteExecutor.run_tests`."""
        from kbuild.plugins.cluster.tests import run_on_cluster

        return run_on_cluster(address, root, variants, tests, services)

    def probe_devices(
        self, address: str, root: Path, services: Services
    ) -> AbstractContextManager[ProbeSource]:
        """See `RemoteExecutor.probe_devices`."""
        from kbuild.plugins.cluster.tuning import cluster_probes

        return cluster_probes(address, services, root)
