"""`kbuild tune`, `bench` and `dev` without `--variant`: what is measured is built first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.checks.allow import allowed_checks
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.result import BuildResult
from kbuild.plan.project import Project, open_project
from kbuild.plan.selection import Selection, variants_for_torch
from kbuild.plan.variant import Identity
from kbuild.project import DEVELOPMENT_ID
from kbuild.system.errors import ToolchainError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version
from kbuild.system.workspace import WORKSPACE_FOLDER
from kbuild.toolchains.facts import FactCache, interpreter_facts

if TYPE_CHECKING:
    from kbuild.dsl.tune.host import Device


def build_for_devices(
    ctx: Services,
    root: Path,
    python: Path,
    devices: Sequence[Device],
    executor: str = "",
    *,
    purpose: str = "tune",
) -> Path:
    """A variant for the Torch of those devices and for them alone.

    See `options_for_devices`.

    Raises:
        KbuildError: it cannot be built here.
    """
    project = open_project(root)
    options = options_for_devices(ctx, project, python, devices, executor, purpose=purpose)
    return single_variant(build(project, options, ctx), devices[0])


def options_for_devices(
    ctx: Services,
    project: Project,
    python: Path,
    devices: Sequence[Device],
    executor: str = "",
    *,
    purpose: str,
) -> BuildOptions:
    """The options that build a variant for the Torch of those devices and for them alone.

    With the purpose `tune` it has every candidate, with `bench` what users get, with `dev` the same
    without checks. The devices of another machine may have a Torch that this machine lacks: then
    wheels of it are used.
    """
    root, torch = project.root, devices[0].torch
    selection = selection_for_torch(project, devices[0].backend, torch)
    own = interpreter_facts(python, FactCache(ctx.cache), ctx.runner)["torch"] if executor else None
    is_elsewhere = bool(executor) and (own is None or own["version"] != torch)
    if is_elsewhere:
        release = Version.parse(".".join(torch.split(".")[:2]))
        selection = replace(selection, torch=(release,))
    return BuildOptions(
        selection=selection,
        identity=Identity(DEVELOPMENT_ID) if purpose == "dev" else None,
        output=root / WORKSPACE_FOLDER / purpose / "variants",
        python=None if executor else python,  # with one, no other machine makes images
        toolchain="wheels" if is_elsewhere else "host",
        executor=executor,
        archs=tuple(dict.fromkeys(device.capability for device in devices)),
        dev=purpose == "dev",
        is_local_only=purpose == "dev",
        keep_all=purpose == "tune",
        allowed=allowed_checks(SourceTree(root)),
    )


def single_variant(results: Sequence[BuildResult], device: Device) -> Path:
    """The folder of what was built.

    Raises:
        KbuildError: nothing was.
    """
    for result in results:
        if result.error is not None:
            raise result.error
    paths = [result.path for result in results if result.path is not None]
    if not paths:
        reasons = "; ".join(f"{result.variant}: {result.reason}" for result in results)
        raise ToolchainError(f"no variant fits Torch {device.torch}: {reasons}")
    return paths[0]


def selection_for_torch(project: Project, backend: str, torch: str) -> Selection:
    """The variants for a Torch such as `2.11.0+cu130`; all of the backend's where none is."""
    fitting = variants_for_torch(project, backend, torch)
    return Selection(tuple(str(choice.variant) for choice in fitting), (backend,))
