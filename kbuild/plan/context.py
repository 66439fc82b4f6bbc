"""Inputs of the planning of one variant; files that are shipped, or that identify the source."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from kbuild.backends import Backend
from kbuild.backends.frameworks import FRAMEWORKS, Framework
from kbuild.plan.plan import AotKernel, GeneratedFile, PackagedFile
from kbuild.plan.project import BUILD_FILE, Project
from kbuild.plan.selection import VariantChoice
from kbuild.project.config.document import TABLES_FOLDER
from kbuild.sources.includes import IncludeGraph
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version


@dataclass(frozen=True)
class PlanningContext:
    """Inputs of the planning of one variant."""

    project: Project
    choice: VariantChoice
    tree: SourceTree
    backend: Backend
    framework: Framework
    includes: IncludeGraph
    """Include graph of the tree; all variants of a project share it."""
    ops_name: str
    archs: tuple[str, ...] = ()
    """Archs that the user asks for; all of each kernel's when empty."""
    compiler: Version | None = None
    """The device compiler's release, where it is another than the variant's."""

    @property
    def toolkit(self) -> Version | None:
        """The CUDA, ROCm or oneAPI release that compiles: the variant's, as a rule."""
        return self.compiler or self.choice.variant.backend_version

    @property
    def floor(self) -> Version | None:
        """The stable-ABI floor; None for the full ABI."""
        torch = self.project.file.torch
        return torch.stable_abi_for(self.backend.name) if torch else None


@dataclass(frozen=True)
class AotKernels:
    """The kernels in DSLs of a variant."""

    kernels: tuple[AotKernel, ...] = ()
    notes: tuple[str, ...] = ()
    """One sentence per arch or kernel that is left out."""
    generated: tuple[GeneratedFile, ...] = ()
    op_modules: tuple[str, ...] = ()


GENERATED_OPS = "_ops.py"
_PYTHON_SUFFIXES = ("py", "pyi")


def source_files(project: Project, tree: SourceTree) -> tuple[str, ...]:
    """The project's own source files, from which the build's id is computed without git."""
    file = project.file
    sections = [
        *project.cxx_kernels.values(),
        *(t for t in (file.torch, file.tvm_ffi) if t is not None),
    ]
    dsl_kernels = project.dsl_kernels.values()
    listed = [path for section in (*sections, *dsl_kernels) for path in section.src]
    folders = [folder for section in sections for folder in section.include]
    # What the kernels import lies beside them.
    folders += [posixpath.dirname(path) for section in dsl_kernels for path in section.src[:1]]
    folders += [TABLES_FOLDER] if dsl_kernels else []
    listed += [path for reading in project.plugin_readings.values() for path in reading.inputs]
    roots = {framework.package_root for framework in FRAMEWORKS}
    walked = [
        path
        for folder in {*folders, *roots}
        if folder and tree.is_dir(folder)
        for path in tree.walk(folder, skip=("build",))
    ]
    paths = {posixpath.normpath(path) for path in (BUILD_FILE, *listed, *walked)}
    return tuple(sorted(path for path in paths if PurePosixPath(path).name != GENERATED_OPS))


def packaged_files(
    context: PlanningContext, generated: Collection[str]
) -> tuple[PackagedFile, ...]:
    """The Python package's files by extension, but for those that are generated."""
    root = f"{context.framework.package_root}/{context.project.python_name}"
    table = context.project.file.framework_table(context.project.file.framework_key)
    suffixes = {*_PYTHON_SUFFIXES, *(ext.lstrip(".") for ext in (table.pyext if table else ()))}
    files = []
    for path in context.tree.walk(root) if context.tree.is_dir(root) else ():
        target = posixpath.relpath(path, root)
        is_packaged = target != GENERATED_OPS and target not in generated
        if PurePosixPath(path).suffix.lstrip(".") in suffixes and is_packaged:
            files.append(PackagedFile(path, target))
    return tuple(files)
