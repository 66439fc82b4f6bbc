"""Checks of a kernel's sources before anything is compiled: ops, imports, flags, pointers."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import BUILD_FILE, Project
from kbuild.plan.selection import project_variants
from kbuild.project.config.issue import KeyPath
from kbuild.project.config.locate import LineIndex
from kbuild.project.config.model import KernelSection, TorchSection
from kbuild.sources.includes import IncludeGraph
from kbuild.system.errors import ConfigError
from kbuild.system.file_state import FileState, all_unchanged
from kbuild.system.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.checks import Finding


def _cxx_texts(project: Project, backends: Iterable[str], tree: SourceTree) -> dict[str, str]:
    """The listed sources of a Torch extension and what they include, by path; else nothing."""
    torch = project.file.torch
    if torch is None:
        return {}
    framework = FRAMEWORKS.get("torch")
    kernels = (
        kernel for backend in backends for kernel in project.cxx_kernels_for(backend).values()
    )
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
        for name, section in project.cxx_kernels_for(backend).items()
    ]
    findings: list[tuple[KeyPath, Finding]] = []
    for path, section in sections:
        for key in ("cxx_flags", "cuda_flags", "hip_flags", "sycl_flags"):
            flags = getattr(section, key, None) or ()
            findings += [
                ((*path, key.replace("_", "-"), at), finding)
                for at, finding in machine_flags(flags)
            ]
    if not findings:
        return tuple(environment_findings(environ))
    lines = LineIndex(SourceTree(project.root).read_text(BUILD_FILE))
    on_file = (replace(f, where=f"{BUILD_FILE}:{lines.span(path).line}") for path, f in findings)
    return (*on_file, *environment_findings(environ))


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
        return check_imports_source(path, name, _generated_modules(project, path))

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


def _generated_modules(project: Project, package: Path) -> Iterator[str]:
    """The files of a package that plug-ins write."""
    folder = package.relative_to(project.root).as_posix()
    tables = [f.table for f in FRAMEWORKS if folder.startswith(f"{f.package_root}/")]
    for reading in project.plugin_readings.values():
        try:
            yield from reading.package_files([*project.dsl_kernels], tables[0], folder).texts
        except ConfigError:
            continue  # planning reports it


CachedFindings = tuple[Mapping[str, FileState], "tuple[Finding, ...]"]
"""States of the files that were read, and the findings."""


@dataclass
class SourceChecker:
    """Finds problems in sources by variant; repeats the findings while the files are unchanged.

    Safe to use from several threads.
    """

    project: Project
    _known: dict[tuple[str, str], CachedFindings] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def findings(self, plan: VariantPlan) -> tuple[Finding, ...]:
        """Everything that the sources of one variant show; `where` is relative to the project."""
        key = (plan.framework, plan.backend)
        with self._lock:
            known = self._known.get(key)
            if known is None or not all_unchanged(self.project.root, known[0]):
                tree = SourceTree(self.project.root)
                findings = self._ask(plan, tree)
                known = self._known[key] = (tree.observed, findings)
        return known[1]

    def _ask(self, plan: VariantPlan, tree: SourceTree) -> tuple[Finding, ...]:
        package = f"{FRAMEWORKS.get(plan.framework).package_root}/{self.project.python_name}"
        # Some of the checks read the package without the tree, which has to know what they saw.
        for path in tree.walk(package):
            tree.is_file(path)  # remembers how it looks
        from kbuild.checks.client import check_backend

        on_backend = check_backend(plan.backend, BUILD_FILE)
        on_python = python_findings(self.project, (plan.framework,))
        return (
            *on_backend,
            *flag_findings(self.project, (plan.backend,), os.environ),
            *on_python,
            *pointer_findings(self.project, (plan.backend,), tree),
        )
