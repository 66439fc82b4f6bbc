"""Builds the variant that the running interpreter loads, and records its inputs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.build.state import read_state
from kbuild.loading.request import VariantRequest, torch_folder
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.result import BuildResult
from kbuild.pipeline.toolchains import find_toolchains, unsupported_plan_reason
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import Project, open_project
from kbuild.plan.selection import (
    Selection,
    VariantChoice,
    project_variants,
    variants_for_torch,
)
from kbuild.plan.variant import Identity
from kbuild.project.variant import host_system
from kbuild.system.cache_folder import validate_cache_owner
from kbuild.system.code_digest import package_digest
from kbuild.system.errors import KbuildError, ToolchainError, UsageError
from kbuild.system.file_state import stat_state
from kbuild.system.processes import LocalRunner, Runner, canonical_interpreter
from kbuild.system.progress import NoProgress, Progress, left_text
from kbuild.system.record import Record
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.ui import Ui
from kbuild.system.workspace import Workspace
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.facts import FactCache, Facts, interpreter_facts
from kbuild.toolchains.host import release_of


class NotebookUi(Ui):
    """Shows progress as one line below the cell, which goes when the work is done."""

    @contextmanager
    def progress(self, title: str, total: int, *, after: float = 0.0) -> Iterator[Progress]:
        """See `Ui.progress`."""
        if after:  # what is soon over
            yield NoProgress()
            return
        display = sys.modules["IPython.display"].display
        shown = f"{title}: 0/{total}" if total else title
        handle = display({"text/plain": shown}, raw=True, display_id=True)

        class CellLine:
            """Rewrites the line."""

            def update(
                self, done: int, total: int, label: str, left_s: float | None = None
            ) -> None:
                """See `Progress.update`."""
                text = f"{title}: {done}/{total or '?'} {label} {left_text(left_s)}".rstrip()
                handle.update({"text/plain": text}, raw=True)

        try:
            yield CellLine()
        finally:
            handle.update({"text/plain": ""}, raw=True)


def build_to_load(request: VariantRequest, cache: Path) -> Record:
    """Build the variant, and record its inputs.

    Raises:
        KbuildError: see `kbuild.load`.
    """
    validate_cache_owner(cache, os.environ)
    ui = _ui(verbose=request.verbose)
    services = Services(LocalRunner(), ui, cache, request.root)
    tree = SourceTree(request.root)
    project = open_project(request.root, tree)
    facts = interpreter_facts(_interpreter(), FactCache(cache), services.runner)
    backend = request.backend or default_backend(project, facts, services.runner)
    archs = request.archs or BACKENDS.get(backend).native_archs(services.runner)
    options = BuildOptions(
        identity=Identity(request.unique_id),
        output=request.folder / request.unique_id,
        archs=archs,
        dev=True,
        is_local_only=True,
        link_flags=request.link_flags,
    )
    plan, toolchain, options = _choose_variant(project, tree, facts, backend, options, services)
    results = build(project, replace(options, selection=Selection((plan.variant,))), services)
    return _record(request, _built_folder(results), plan, toolchain, tree)


def default_backend(project: Project, facts: Facts, runner: Runner) -> str:
    """The backend of the project whose devices this machine and the interpreter's Torch have.

    Raises:
        ToolchainError: there is none, and the project has no backend for the CPU.
    """
    names = project.file.general.backends
    hosts = [name for name in names if BACKENDS.get(name).runs_on_cpu]
    for name in names:
        if name not in hosts and _has_device(project, name, facts, runner):
            return name
    if hosts:
        return hosts[0]
    raise ToolchainError(
        f"{project.name} is for {', '.join(names)}, and this machine has no such device with a "
        "Torch for it",
        hint=f'`backend="{names[0]}"` builds the variant all the same',
    )


def _has_device(project: Project, name: str, facts: Facts, runner: Runner) -> bool:
    backend = BACKENDS.get(name)
    if not backend.torch_field:  # a part of every Torch of its system
        systems = (choice.variant.system for choice in _choices(project, name))
        return host_system() in systems
    flavours = facts["torch"]["built_for"] if facts["torch"] else {}
    is_built = bool(flavours.get(backend.torch_field))
    return is_built and (backend.arch_key is None or bool(backend.native_archs(runner)))


def _choices(project: Project, backend: str) -> tuple[VariantChoice, ...]:
    """The variants of a backend for this machine's system."""
    return tuple(
        choice
        for choice in project_variants(project)
        if choice.variant.backend == backend and choice.variant.system in (None, host_system())
    )


def _choose_variant(  # noqa: PLR0917 - what a build is made of
    project: Project,
    tree: SourceTree,
    facts: Facts,
    backend: str,
    options: BuildOptions,
    services: Services,
) -> tuple[VariantPlan, Toolchain, BuildOptions]:
    """The first variant that can be built for this Torch: with the host's compilers, or wheels.

    Raises:
        UsageError: the project does not have the backend.
        ToolchainError: there is none.
    """
    if backend not in project.file.general.backends:
        listed = ", ".join(project.file.general.backends)
        raise UsageError(f"{project.name} has no backend `{backend}`", hint=f"it has {listed}")
    planner = options.planner(project, tree, services.runner)
    torch = facts["torch"]["version"] if facts["torch"] else ""
    # Where none is for this Torch, the others are tried for the reasons of their refusals.
    choices = variants_for_torch(project, backend, torch) or _choices(project, backend)
    plans = planner.plans(choices)
    python = _interpreter()
    reasons: dict[str, str] = {}
    for source in (
        # The interpreter's own Torch first: the variant is loaded beside it.
        replace(options, toolchain="host", python=python),
        replace(options, toolchain="auto"),
    ):
        tools = find_toolchains(source, services)
        for plan in plans:
            reason = _refusal_of_torch(plan, facts) or unsupported_plan_reason(tools, plan)
            if reason is None:
                return plan, tools.provision(plan.requires), source
            reasons.setdefault(reason, plan.variant)
    listed = "".join(f"\n    {reason}" for reason in reasons)
    raise ToolchainError(
        f"no {backend} variant of {project.name} can be built for `{python}`:{listed}",
        hint="`kbuild doctor` shows what is there and what is missing",
    )


def _refusal_of_torch(plan: VariantPlan, facts: Facts) -> str | None:
    """The reason that the interpreter's Torch cannot load the variant, by its release."""
    wanted = plan.parsed_variant.framework_version
    if wanted is None or plan.parsed_variant.framework == "tvm-ffi":
        return None
    if facts["torch"] is None:
        return f"needs Torch {wanted}; {facts['python']['executable']} has none"
    release = release_of(facts["torch"]["version"])
    is_stable = plan.parsed_variant.framework == "torch-stable-abi"
    if release == wanted or (is_stable and release > wanted):
        return None
    return f"needs another Torch than the {release} of {facts['python']['executable']}"


def _built_folder(results: Sequence[BuildResult]) -> Path:
    """The variant's folder.

    Raises:
        KbuildError: it was not built.
    """
    for result in results:
        if result.error is not None:
            raise result.error
        if result.path is not None:
            return result.path
    raise KbuildError("; ".join(result.reason for result in results) or "nothing was built")


def _record(
    request: VariantRequest,
    folder: Path,
    plan: VariantPlan,
    toolchain: Toolchain,
    tree: SourceTree,
) -> Record:
    state = read_state(Workspace(request.root, plan.variant).root)
    if state is None:
        raise KbuildError(f"the record of {plan.variant} is gone", hint="load it again")
    observed = {**tree.observed, **state.observed}
    torch = torch_folder()
    programs = [value for name, value in toolchain.cache if name.endswith("_COMPILER")]
    # Another Torch that is installed in the same folder changes this file.
    for path in (*programs, *([str(torch / "version.py")] if torch else [])):
        observed[path] = stat_state(path)
    answer = {"variant": str(folder), "module": plan.ops_name.lstrip("_")}
    return Record(answer, observed, package_digest())


def _interpreter() -> Path:
    return canonical_interpreter(Path(sys.executable))


def _ui(*, verbose: bool) -> Ui:
    """Quiet but in a notebook, whose progress is shown, or when everything is to be printed."""
    if verbose:
        return Ui()
    silent = io.StringIO()
    return NotebookUi(err=silent) if _is_notebook() else Ui(verbosity=-1, err=silent)


def _is_notebook() -> bool:
    """True in a cell of Jupyter; IPython is imported there already."""
    get_shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return "IPython.display" in sys.modules and hasattr(get_shell(), "kernel")
