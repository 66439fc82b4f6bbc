"""What can be judged on a kernel's C++ sources, before anything is compiled."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbuild.config.model import KernelSection, TorchSection
from kbuild.frameworks import FRAMEWORKS
from kbuild.includes import reachable
from kbuild.project import Project
from kbuild.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.checks import Finding


def binding_findings(project: Project, backends: Iterable[str]) -> tuple[Finding, ...]:
    """Findings on the namespaces that ops are registered under.

    `where` is relative to the project.

    Args:
        project: of a Torch extension, every listed source is read, and what it includes.
        backends: whose sources are read, beside the bindings.
    """
    from kbuild.checks.ops_cxx import check_ops_cxx

    torch = project.file.torch
    if torch is None:
        return ()
    framework, tree = FRAMEWORKS.get("torch"), SourceTree(project.root)
    kernels = (kernel for backend in backends for kernel in project.kernels_for(backend).values())
    sections: list[TorchSection | KernelSection] = [torch, *kernels]
    paths = dict.fromkeys(
        path
        for section in sections
        for source in section.src
        for path in reachable(tree, posixpath.normpath(source), section.include)
        if posixpath.basename(path) not in framework.support_files
    )
    texts = {path: tree.read_text(path) for path in paths}
    return tuple(check_ops_cxx(texts, framework.name_macro))
