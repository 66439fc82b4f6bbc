"""Plans to a CMake project: for one variant, which kbuild builds, or for all, to work in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kbuild.fileset import FileSet
from kbuild.frameworks import FRAMEWORKS
from kbuild.generate import templates
from kbuild.generate.editor import clangd_text, presets_text
from kbuild.generate.metadata import metadata_text
from kbuild.generate.packaging import pyproject_text, setup_text
from kbuild.generate.variant import (
    LANGUAGES,
    device_languages,
    ops_template,
    ops_text,
    variant_text,
)
from kbuild.plan import VariantPlan

_PROBE = Path(__file__).parent.parent / "toolchains" / "probe.py"
_AOT = "project/cmake/aot.cmake"
_HERE = "${CMAKE_CURRENT_SOURCE_DIR}"


def generate(plan: VariantPlan) -> FileSet:
    """The project of one variant; `_ops.py` and `metadata.json` alone for a Python-only one."""
    if not plan.is_compiled:
        return FileSet({"_ops.py": ops_text(plan), "metadata.json": metadata_text(plan)})
    return _cmake_project([plan], _HERE)


def generate_project(
    plans: Sequence[VariantPlan], root: Path | None = None, target: Path | None = None
) -> FileSet:
    """One project for all variants, with what `pip`, CMake presets and editors look for.

    Args:
        plans: of one kernel; at least one.
        root: the kernel's source tree.
        target: where the files will be written; the source tree when None.
    """
    plans = sorted(plans, key=lambda plan: plan.variant)
    compiled = [plan for plan in plans if plan.is_compiled]
    away = _relative(root, target)
    packaging = FileSet(
        {"pyproject.toml": pyproject_text(plans, away), "setup.py": setup_text(plans)}
    )
    if not compiled:
        return packaging.merge(_python_ops(plans[0]))
    editor = FileSet(
        {"CMakePresets.json": presets_text(compiled), ".clangd": clangd_text(compiled, away)}
    )
    source = f"{_HERE}/{away}" if away else _HERE
    return _cmake_project(compiled, source).merge(packaging).merge(editor)


def _relative(root: Path | None, target: Path | None) -> str:
    """The way from the target folder to the source tree; empty when they are one."""
    if root is None or target is None or root == target:
        return ""
    return PurePosixPath(os.path.relpath(root, target)).as_posix()


def _python_ops(plan: VariantPlan) -> FileSet:
    """For use of the source tree as it is: any backend's namespace will do."""
    package = f"{FRAMEWORKS.get(plan.framework).package_root}/{plan.kernel.python_name}"
    return FileSet({f"{package}/_ops.py": ops_text(plan)})


def _cmake_project(plans: Sequence[VariantPlan], source_dir: str) -> FileSet:
    lists = templates.render(
        "project/CMakeLists.txt.j2",
        name=plans[0].kernel.python_name,
        source_dir=source_dir,
        variants=[_offer(plan) for plan in plans],
        aot=any(plan.aot for plan in plans),
    )
    files = FileSet({"CMakeLists.txt": lists, "cmake/probe.py": _PROBE.read_bytes()})
    for plan in plans:
        files.add(f"cmake/variants/{plan.variant}.cmake", variant_text(plan))
    for name, text in sorted({ops_template(plan) for plan in plans}):
        files.add(f"cmake/{name}", text)
    for name in sorted({name for plan in plans for name in _static(plan)}):
        files.add(name.removeprefix("project/"), templates.read(name))
    for target, name in sorted({pair for plan in plans for pair in _support(plan)}):
        files.add(target, templates.read(name))
    return files


def _static(plan: VariantPlan) -> tuple[str, ...]:
    """Templates that are copied: kbuild's own CMake, and that of the plan's languages."""
    languages = (
        name for lang in device_languages(plan) for name in templates.names(LANGUAGES, f"{lang}.*")
    )
    own = [name for name in templates.names("project/cmake", "*.cmake") if plan.aot or name != _AOT]
    return (*own, *languages)


def _support(plan: VariantPlan) -> tuple[tuple[str, str], ...]:
    """(path, template) of the files that bindings include."""
    framework = FRAMEWORKS.get(plan.framework)
    return tuple(
        (f"{framework.package_root}/{name}", f"project/{name}") for name in framework.support_files
    )


def _offer(plan: VariantPlan) -> Mapping[str, Any]:
    """How CMake sees whether the variant fits a machine."""
    variant, requires = plan.parsed_variant, plan.requires
    option = "TORCH" if requires.torch_exact else "TORCH_FLOOR"
    return {
        "name": plan.variant,
        "system": str(variant.system),
        "compute": variant.compute,
        "torch": f" {option} {requires.torch}" if requires.torch else "",
    }
