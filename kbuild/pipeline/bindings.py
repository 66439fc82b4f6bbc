"""What can be judged on a kernel's C++ sources, before anything is compiled."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbuild.backends import BACKENDS
from kbuild.config.model import KernelSection, TorchSection
from kbuild.frameworks import FRAMEWORKS
from kbuild.includes import Includes
from kbuild.plan import VariantPlan
from kbuild.project import Project
from kbuild.sourcetree import SourceTree

if TYPE_CHECKING:
    from kbuild.checks import Finding
    from kbuild.checks.left_out import Macros


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
    from kbuild.checks.ops_cxx import check_ops_cxx

    torch = project.file.torch
    if torch is None:
        return ()
    framework, tree = FRAMEWORKS.get("torch"), tree or SourceTree(project.root)
    kernels = (kernel for backend in backends for kernel in project.kernels_for(backend).values())
    sections: list[TorchSection | KernelSection] = [torch, *kernels]
    includes = Includes(tree)
    paths = dict.fromkeys(
        path
        for section in sections
        for path in includes.reachable(map(posixpath.normpath, section.src), section.include)
        if posixpath.basename(path) not in framework.support_files
    )
    texts = {path: tree.read_text(path) for path in paths}
    return tuple(check_ops_cxx(texts, framework.name_macro))


def left_out_findings(project: Project, made: VariantPlan, tree: SourceTree) -> tuple[Finding, ...]:
    """Findings on functions that only sections define which the variant leaves out.

    `where` is relative to the project.
    """
    parts = {part.name for part in made.components}
    gone = {
        name: section
        for name, section in project.kernels_for(made.backend).items()
        if made.components and name not in parts
    }
    if not gone:
        return ()
    from kbuild.checks.left_out import LeftOut, check_left_out

    language_of, includes = BACKENDS.get(made.backend).language_of, Includes(tree)
    units = {s.path: tree.read_text(s.path) for part in made.components for s in part.compiled}
    reached = dict.fromkeys(
        path
        for part in made.components
        for path in includes.reachable([s.path for s in part.compiled], part.include)
    )
    headers = {path: tree.read_text(path) for path in reached if path not in units}
    left = [
        LeftOut(
            f"kernel.{name}",
            _reason(made.notes, name),
            {p: tree.read_text(p) for p in map(posixpath.normpath, section.src) if language_of(p)},
        )
        for name, section in gone.items()
    ]
    return tuple(check_left_out(units, headers, left, _macros(made)))


def _reason(notes: Iterable[str], name: str) -> str:
    """Why a section is left out, as the plan says it."""
    start = f"kernel.{name} is left out: "
    return next((note.removeprefix(start) for note in notes if note.startswith(start)), "")


def _macros(made: VariantPlan) -> Macros:
    """Those that tell backends apart, as far as no flag says something else of them."""
    from kbuild.checks.left_out import Macros

    flags = [flag for part in made.components for _, flags in part.flags for flag in flags]
    own = {_name_of(macro) for macro in made.definitions}
    others = {
        _name_of(macro)
        for backend in BACKENDS.load()
        for macro in (backend.define, *backend.definitions)
        if macro
    }
    free = {
        name
        for name in own | others
        if any(re.search(rf"-[DU]\s*{name}\b", flag) for flag in flags)
    }
    return Macros(tuple(sorted(own - free)), tuple(sorted(others - own - free)))


def _name_of(macro: str) -> str:
    return macro.partition("=")[0]
