"""Checks of a kernel's sources before anything is compiled: ops, imports, C++ bindings."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from kbuild.backends import BACKENDS
from kbuild.config.issue import KeyPath
from kbuild.config.locate import LineIndex
from kbuild.config.model import KernelSection, TorchSection
from kbuild.frameworks import FRAMEWORKS
from kbuild.plan import VariantPlan
from kbuild.project import BUILD_FILE, Project
from kbuild.runtime.file_state import FileState, all_unchanged
from kbuild.selection import project_variants
from kbuild.sources.includes import IncludeGraph
from kbuild.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.checks import Finding
    from kbuild.checks.cxx_sources import MacroDefinitions


def binding_findings(
    project: Project, backends: Iterable[str], tree: SourceTree | None = None
) -> tuple[Finding, ...]:
    """Findings on the namespaces that ops are registered under.

    `where` is relative to the project.

    Args:
        project: of a Torch extension, every listed source is read, and what it includes.
        backends: whose sources are read, beside the bindings.
        tree: the project's files, where somebody wants to know what was looked at.
    """
    from kbuild.checks.cxx_sources import check_ops_cxx

    texts = _cxx_texts(project, backends, tree or SourceTree(project.root))
    return tuple(check_ops_cxx(texts, FRAMEWORKS.get("torch").name_macro))


def _cxx_texts(project: Project, backends: Iterable[str], tree: SourceTree) -> dict[str, str]:
    """The listed sources of a Torch extension and what they include, by path; else nothing."""
    torch = project.file.torch
    if torch is None:
        return {}
    framework = FRAMEWORKS.get("torch")
    kernels = (kernel for backend in backends for kernel in project.kernels_for(backend).values())
    sections: list[TorchSection | KernelSection] = [torch, *kernels]
    includes = IncludeGraph(tree)
    paths = dict.fromkeys(
        path
        for section in sections
        for path in includes.reachable(map(posixpath.normpath, section.src), section.include)
        if posixpath.basename(path) not in framework.support_files
    )
    return {path: tree.read_text(path) for path in paths}


def pointer_findings(
    project: Project, backends: Iterable[str], tree: SourceTree | None = None
) -> tuple[Finding, ...]:
    """Findings on pointers into temporaries, in bindings and in the kernels of some backends."""
    from kbuild.checks import pointers

    texts = _cxx_texts(project, backends, tree or SourceTree(project.root))
    return tuple(pointers.pointer_findings(texts))


def flag_findings(
    project: Project, backends: Iterable[str], environ: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Findings on compiler flags of `build.toml`, of the backends' sections, and of variables."""
    from kbuild.checks.flags import environment_findings, machine_flags

    framework = project.file.framework_key
    sections: list[tuple[KeyPath, object]] = [
        ((framework,), project.file.framework_table(framework))
    ]
    sections += [
        (("kernel", name), section)
        for backend in backends
        for name, section in project.kernels_for(backend).items()
    ]
    found: list[tuple[KeyPath, Finding]] = []
    for path, section in sections:
        for key in ("cxx_flags", "cuda_flags", "hip_flags", "sycl_flags"):
            flags = getattr(section, key, None) or ()
            found += [
                ((*path, key.replace("_", "-"), at), finding)
                for at, finding in machine_flags(flags)
            ]
    if not found:
        return tuple(environment_findings(environ))
    lines = LineIndex(SourceTree(project.root).read_text(BUILD_FILE))
    on_file = (replace(f, where=f"{BUILD_FILE}:{lines.span(path).line}") for path, f in found)
    return (*on_file, *environment_findings(environ))


def left_out_findings(project: Project, plan: VariantPlan, tree: SourceTree) -> tuple[Finding, ...]:
    """Findings on functions that only sections define which the variant leaves out.

    `where` is relative to the project.
    """
    parts = {part.name for part in plan.components}
    gone = {
        name: section
        for name, section in project.kernels_for(plan.backend).items()
        if plan.components and name not in parts
    }
    if not gone:
        return ()
    from kbuild.checks.cxx_sources import OmittedSection, check_omitted_functions

    language_of, includes = BACKENDS.get(plan.backend).language_of, IncludeGraph(tree)
    units = {s.path: tree.read_text(s.path) for part in plan.components for s in part.compiled}
    reached = dict.fromkeys(
        path
        for part in plan.components
        for path in includes.reachable([s.path for s in part.compiled], part.include)
    )
    headers = {path: tree.read_text(path) for path in reached if path not in units}
    left = [
        OmittedSection(
            f"kernel.{name}",
            _left_out_reason(plan.notes, name),
            {p: tree.read_text(p) for p in map(posixpath.normpath, section.src) if language_of(p)},
        )
        for name, section in gone.items()
    ]
    return tuple(check_omitted_functions(units, headers, left, _macros(plan)))


def _left_out_reason(notes: Iterable[str], name: str) -> str:
    """Why a section is left out, as the plan says it."""
    start = f"kernel.{name} is left out: "
    return next((note.removeprefix(start) for note in notes if note.startswith(start)), "")


def _macros(plan: VariantPlan) -> MacroDefinitions:
    """Those that tell backends apart, as far as no flag says something else of them."""
    from kbuild.checks.cxx_sources import MacroDefinitions

    flags = [flag for part in plan.components for _, flags in part.flags for flag in flags]
    own = {macro.partition("=")[0] for macro in plan.definitions}
    others = {
        macro.partition("=")[0]
        for backend in BACKENDS.load()
        for macro in (backend.define, *backend.definitions)
        if macro
    }
    free = {
        name
        for name in own | others
        if any(re.search(rf"-[DU]\s*{name}\b", flag) for flag in flags)
    }
    return MacroDefinitions(tuple(sorted(own - free)), tuple(sorted(others - own - free)))


def python_findings(
    project: Project, frameworks: Iterable[str] = (), wants: Callable[[str], bool] = lambda _: True
) -> tuple[Finding, ...]:
    """Findings on ops and imports; `where` is relative to the project.

    Args:
        project: whose packages are read.
        frameworks: by name; without any, all that the project is built for.
        wants: whether the check of a name is to be asked.
    """
    from kbuild.checks.imports import check_imports_source
    from kbuild.checks.ops import check_ops_source

    def check_imports(path: Path, name: str) -> list[Finding]:
        return check_imports_source(path, name, _captured_modules(project, path))

    checks = {"ops": check_ops_source, "imports": check_imports}
    names = tuple(frameworks) or tuple(
        choice.variant.framework for choice in project_variants(project)
    )
    roots = dict.fromkeys(FRAMEWORKS.get(name).package_root for name in names)
    return tuple(
        replace(finding, where=f"{folder}/{finding.where}")
        for folder in (f"{root}/{project.python_name}" for root in roots)
        for check in (checks[name] for name in checks if wants(name))
        for finding in check(project.root / folder, project.python_name)
    )


def _captured_modules(project: Project, package: Path) -> Iterator[str]:
    """The modules of a package that kbuild writes for captured functions and launches."""
    for section in project.dsl_kernels.values():
        if any(capture.function for capture in section.capture):
            yield "_captured.py"
        if any(capture.launches for capture in section.capture):
            from kbuild.ops.captured_launches import packaged_module

            folder = package.relative_to(project.root).as_posix()
            yield from (packaged_module(source, folder) for source in section.src)


CachedFindings = tuple[Mapping[str, FileState], "tuple[Finding, ...]"]
"""What was looked at, and what was found."""


@dataclass
class SourceChecker:
    """Findings on a project's sources by variant; asked for once while the files stay as they are.

    Safe to use from several threads.
    """

    project: Project
    _known: dict[tuple[object, ...], CachedFindings] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def findings(self, plan: VariantPlan) -> tuple[Finding, ...]:
        """Everything that the sources of one variant show; `where` is relative to the project."""
        kind = (plan.framework, plan.backend)
        parts = tuple(part.name for part in plan.components)
        on_files = self._remembered(kind, partial(self._on_files, plan))
        on_left_out = partial(left_out_findings, self.project, plan)
        return (*on_files, *self._remembered((*kind, parts, plan.notes), on_left_out))

    def _remembered(
        self, key: tuple[object, ...], ask: Callable[[SourceTree], tuple[Finding, ...]]
    ) -> tuple[Finding, ...]:
        with self._lock:
            known = self._known.get(key)
            if known is None or not all_unchanged(self.project.root, known[0]):
                tree = SourceTree(self.project.root)
                findings = ask(tree)
                known = self._known[key] = (tree.observed, findings)
        return known[1]

    def _on_files(self, plan: VariantPlan, tree: SourceTree) -> tuple[Finding, ...]:
        package = f"{FRAMEWORKS.get(plan.framework).package_root}/{self.project.python_name}"
        for path in tree.walk(package):
            tree.is_file(path)  # remembers how it looks
        from kbuild.checks.client import check_backend

        on_backend = check_backend(plan.backend, BUILD_FILE)
        on_python = python_findings(self.project, (plan.framework,))
        return (
            *on_backend,
            *flag_findings(self.project, (plan.backend,), os.environ),
            *on_python,
            *binding_findings(self.project, (plan.backend,), tree),
            *pointer_findings(self.project, (plan.backend,), tree),
        )
