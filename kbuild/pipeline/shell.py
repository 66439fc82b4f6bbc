"""The environment of the shells of `kbuild devshell` on this machine, without Nix."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.checks.allow import allowed_checks
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.plans import planner_for
from kbuild.pipeline.testing import local_kernels
from kbuild.pipeline.toolchains import Toolchains, find_toolchains, unsupported_plan_reason
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import Project
from kbuild.plan.selection import Selection, reason_lines
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.workspace import Workspace
from kbuild.toolchains.base import Toolchain

_VARIABLES = {
    "CMAKE_C_COMPILER": "CC",
    "CMAKE_CXX_COMPILER": "CXX",
    "CMAKE_CUDA_COMPILER": "CUDACXX",
    "CMAKE_HIP_COMPILER": "HIPCXX",
    "CUDAToolkit_ROOT": "CUDA_HOME",
}
"""Entry of CMake's cache -> the variable that programs read."""


@dataclass(frozen=True)
class ShellEnvironment:
    """The variables of a shell beyond the user's own environment."""

    variant: str
    variables: Mapping[str, str]

    def command(self, program: Sequence[str]) -> tuple[str, ...]:
        """Starts a program in this environment."""
        return ("env", *(f"{name}={value}" for name, value in self.variables.items()), *program)


def development_environment(
    project: Project, variant: str | None, services: Services
) -> ShellEnvironment:
    """Build a variant for development, and give its toolchain; a failing build is only reported.

    Args:
        project: whose kernel is developed.
        variant: its name; None for the one that fits this machine best.
        services: how the world is reached.

    Raises:
        ToolchainError: this machine cannot build it.
    """
    allowed = allowed_checks(SourceTree(project.root))
    chosen = Selection(globs=(variant,)) if variant else Selection()
    options = BuildOptions(selection=chosen, dev=True, allowed=allowed)
    tools = find_toolchains(options, services)
    planner = planner_for(project, SourceTree(project.root), options, services.runner)
    plan = _preferred(planner.select(options.selection), tools, services)
    (result,) = build(
        project, replace(options, selection=Selection(globs=(plan.variant,))), services
    )
    path = result.path or project.root / "build" / plan.variant
    toolchain = tools.provision(plan.requires)
    return ShellEnvironment(
        plan.variant,
        _toolchain_variables(toolchain)
        | loading_variables(project, path, toolchain.python, _bins(toolchain)),
    )


def loading_variables(
    project: Project, variant: Path, python: Path, first: Sequence[Path] = ()
) -> dict[str, str]:
    """Variables with which Python imports a variant by the kernel's name, and its client loads it.

    Args:
        project: the kernel's.
        variant: folder of a built variant.
        python: the interpreter that `python` is.
        first: folders of other programs.
    """
    folder = Workspace(project.root, variant.name).root / "import"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / project.python_name
    link.unlink(missing_ok=True)
    link.symlink_to(variant, target_is_directory=True)
    hub = project.file.general.hub
    repo_id = (hub.repo_id if hub else None) or project.name
    places = dict.fromkeys(map(str, (python.parent, *first)))
    return {
        "KBUILD_VARIANT": variant.name,
        "LOCAL_KERNELS": local_kernels(repo_id, variant, os.environ),
        "PATH": os.pathsep.join((*places, os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))),
    }


def _preferred(plans: Sequence[VariantPlan], tools: Toolchains, services: Services) -> VariantPlan:
    """The plan that fits a device of this machine and its own Torch, as far as there is one."""
    refusals = {plan.variant: unsupported_plan_reason(tools, plan) for plan in plans}
    fitting = [plan for plan in plans if refusals[plan.variant] is None]
    if not fitting:
        lines = "".join(f"\n    {line}" for line in reason_lines(refusals))
        hint = "`kbuild doctor` shows what is there and what is missing"
        raise ToolchainError(f"no variant can be built on {host_system()}:{lines}", hint=hint)
    gpus = {
        backend.name: bool(backend.native_archs(services.runner))
        for backend in {BACKENDS.get(plan.requires.backend) for plan in fitting}
    }

    def fit(plan: VariantPlan) -> tuple[bool, bool, bool]:
        backend = BACKENDS.get(plan.requires.backend)
        own_torch = tools.preview(plan.requires).source == "host"
        return gpus[backend.name] or backend.runs_on_cpu, own_torch, gpus[backend.name]

    return max(fitting, key=fit)


def _toolchain_variables(toolchain: Toolchain) -> dict[str, str]:
    """Compilers by their usual names, and what the build's processes see beside that."""
    own = {name: value for name, value in toolchain.env.items() if os.environ.get(name) != value}
    compilers = {
        _VARIABLES[name]: value for name, value in toolchain.cache if name in _VARIABLES and value
    }
    return own | compilers


def _bins(toolchain: Toolchain) -> list[Path]:
    compilers = (Path(value) for name, value in toolchain.cache if name in _VARIABLES)
    folders = (path.parent for path in compilers if path.is_file())
    return [toolchain.cmake.parent, toolchain.ninja.parent, *folders]
