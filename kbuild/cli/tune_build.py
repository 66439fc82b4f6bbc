"""`kbuild tune` without `--variant`: what is measured is built first."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.checks.allow import allowed_checks
from kbuild.errors import ToolchainError
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.project import Project, open_project
from kbuild.runtime.workspace import WORKSPACE_FOLDER
from kbuild.selection import Selection, project_variants
from kbuild.services import Services
from kbuild.sourcetree import SourceTree
from kbuild.variant import host_system

if TYPE_CHECKING:
    from kbuild.tune.devices import Device


def build_for_devices(ctx: Services, root: Path, python: Path, devices: Sequence[Device]) -> Path:
    """A variant with every candidate, for the Torch of those devices and for them alone.

    Raises:
        KbuildError: it cannot be built here.
    """
    project = open_project(root)
    options = BuildOptions(
        selection=selection_for_torch(project, devices[0].backend, devices[0].torch),
        output=root / WORKSPACE_FOLDER / "tune" / "variants",
        python=python,
        toolchain="host",
        archs=tuple(dict.fromkeys(device.capability for device in devices)),
        keep_all=True,
        allowed=allowed_checks(SourceTree(root)),
    )
    results = build(project, options, ctx)
    for result in results:
        if result.error is not None:
            raise result.error
    paths = [result.path for result in results if result.path is not None]
    if not paths:
        reasons = "; ".join(f"{result.variant}: {result.reason}" for result in results)
        raise ToolchainError(f"no variant fits `{python}`: {reasons}")
    return paths[0]


def selection_for_torch(project: Project, backend: str, torch: str) -> Selection:
    """The variants for a Torch such as `2.11.0+cu130`; all of the backend's where none is."""
    compute = torch.partition("+")[2].replace(".", "")
    glob = f"*-{compute}-{host_system()}"
    there = any(fnmatchcase(str(choice.variant), glob) for choice in project_variants(project))
    return Selection(globs=(glob,) if compute and there else (), backends=(backend,))
