"""What the planning of one variant reads.

And which of the project's files are shipped or identify the source.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import PurePosixPath

from kbuild.backends import Backend
from kbuild.backends.frameworks import FRAMEWORKS, Framework
from kbuild.plan.plan import PackagedFile
from kbuild.plan.project import BUILD_FILE, Project
from kbuild.plan.selection import VariantChoice
from kbuild.project.config.document import CAPTURED_FOLDER
from kbuild.sources.includes import IncludeGraph
from kbuild.system.sourcetree import SourceTree
from kbuild.system.version import Version


@dataclass(frozen=True)
class PlanningContext:
    """What the planning of one variant looks at."""

    project: Project
    choice: VariantChoice
    tree: SourceTree
    backend: Backend
    framework: Framework
    includes: IncludeGraph
    """Of that tree; all variants of a project share it."""
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


GENERATED_OPS = "_ops.py"
TABLES = "tuned"
"""Folder of the tuned tables of kernels in Python DSLs."""
_PYTHON_SUFFIXES = ("py", "pyi")


def source_files(project: Project, tree: SourceTree) -> tuple[str, ...]:
    """The project's own sources: what names the build when git does not."""
    file = project.file
    sections = [
        *project.kernels.values(),
        *(t for t in (file.torch, file.tvm_ffi) if t is not None),
    ]
    foreign = project.dsl_kernels.values()
    listed = [path for section in (*sections, *foreign) for path in section.src]
    folders = [folder for section in sections for folder in section.include]
    # What the kernels import lies beside them.
    folders += [posixpath.dirname(path) for section in foreign for path in section.src[:1]]
    folders += [TABLES, CAPTURED_FOLDER] if foreign else []
    roots = {framework.package_root for framework in FRAMEWORKS}
    walked = [
        path
        for folder in {*folders, *roots}
        if folder and tree.is_dir(folder)
        for path in tree.walk(folder, skip=("build",))
    ]
    paths = {posixpath.normpath(path) for path in (BUILD_FILE, *listed, *walked)}
    return tuple(sorted(path for path in paths if PurePosixPath(path).name != GENERATED_OPS))


def packaged_files(desk: PlanningContext) -> tuple[PackagedFile, ...]:
    """The Python package's files by extension, all but `_ops.py`, which is generated."""
    root = f"{desk.framework.package_root}/{desk.project.python_name}"
    table = desk.project.file.framework_table(desk.project.file.framework_key)
    suffixes = {*_PYTHON_SUFFIXES, *(ext.lstrip(".") for ext in (table.pyext if table else ()))}
    captured = {
        posixpath.normpath(source)
        for section in desk.project.dsl_kernels_for(desk.backend.name).values()
        if any(capture.launches for capture in section.capture)
        for source in section.src
    }  # they are shipped with what launches their kernels
    files = []
    for path in desk.tree.walk(root) if desk.tree.is_dir(root) else ():
        target = posixpath.relpath(path, root)
        is_packaged = target != GENERATED_OPS and path not in captured
        if PurePosixPath(path).suffix.lstrip(".") in suffixes and is_packaged:
            files.append(PackagedFile(path, target))
    return tuple(files)
