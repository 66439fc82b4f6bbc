"""`kbuild devshell`: replaces this process by a shell to build or to test in."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.checks.allow import allowed_checks
from kbuild.cli.parser import add_kernel_dir
from kbuild.cli.variants import chosen_python, find_variants
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.testing import check_compatibility, local_kernels
from kbuild.pipeline.toolchains import Toolchains, find_toolchains, unsupported_plan_reason
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import Project, open_project
from kbuild.plan.selection import Selection, reason_lines, select_variants
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.workspace import WORKSPACE_FOLDER, Workspace
from kbuild.toolchains.base import Toolchain


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--variant",
        metavar="GLOB",
        help="a variant, by name or pattern (default: the best one for this machine)",
    )
    parser.add_argument(
        "--test",
        action="store_true",
        help="open a shell for a built variant, not one to build in",
    )
    parser.set_defaults(rest=())
    parser.epilog = "The command after `--` runs in the shell instead of a prompt"


def execute(args: Namespace, ctx: Services) -> int:
    """Become a shell with the tools that build a variant, or one in which it can be imported.

    Raises:
        UsageError: the pattern does not name one variant.
        ToolchainError: no variant can be built here.
    """
    project = open_project(ctx.folder(args.kernel_dir))
    local = _testing if args.test else _development
    environment = local(project, args.variant, ctx)
    program = args.rest or (os.environ.get("SHELL") or "/bin/sh",)
    ctx.ui.say(f"{environment.variant}, in {project.root}; `exit` leaves the shell")
    os.chdir(project.root)
    # What Python has not written yet is lost when another program takes the process over.
    sys.stdout.flush()
    sys.stderr.flush()
    command = environment.command(program)
    os.execvp(command[0], command)  # noqa: S606 - it talks to the user, on this terminal


def _development(project: Project, pattern: str | None, ctx: Services) -> ShellEnvironment:
    """A shell with the toolchain of a variant, which is built for development first."""
    variant = _single_variant(pattern, project) if pattern else None
    environment = development_environment(project, variant, ctx)
    if (project.root / WORKSPACE_FOLDER / "compile_commands.json").is_file():
        ctx.ui.say(f"clangd finds the commands with --compile-commands-dir={WORKSPACE_FOLDER}")
    return environment


def _testing(project: Project, pattern: str | None, ctx: Services) -> ShellEnvironment:
    """A shell where a built variant can be imported; one is built where there is none."""
    try:
        folders = find_variants(project.root, (pattern,) if pattern else ())
    except UsageError:
        return _development(project, pattern, ctx)
    python = chosen_python(None, ctx)
    variant = folders[0]
    if len(folders) > 1:
        names = [folder.name for folder in folders]
        fit = check_compatibility(names, python, ctx.runner)
        if fit.chosen is None:
            raise UsageError(
                f"several variants are built, and none is known to fit `{python}`",
                hint=f"name one with --variant: {', '.join(names)}",
            )
        variant = folders[names.index(fit.chosen)]
    return ShellEnvironment(variant.name, loading_variables(project, variant, python))


def _single_variant(pattern: str, project: Project) -> str:
    """The one variant that is meant."""
    here = host_system()
    variants = [
        str(choice.variant)
        for choice in select_variants(project, Selection(globs=(pattern,)))
        if choice.variant.system in {None, here}
    ]
    if len(variants) == 1:
        return variants[0]
    listed = f"it matches {', '.join(variants)}" if variants else f"it matches none for {here}"
    raise UsageError(f"`{pattern}` does not name one variant", hint=listed)


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
    planner = options.planner(project, SourceTree(project.root), services.runner)
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
