"""The files of one variant: its decisions for CMake, its `_ops.py`, its `metadata.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbuild.fileset import FileSet
from kbuild.frameworks import FRAMEWORKS, Framework
from kbuild.generate import templates
from kbuild.generate.metadata import metadata_text
from kbuild.plan import BINDING, Component, VariantPlan

LANGUAGES = "project/cmake/languages"


def variant_files(plan: VariantPlan) -> FileSet:
    """What only this variant needs, at its place in the CMake project."""
    folder = f"cmake/variants/{plan.variant}"
    return FileSet(
        {
            f"{folder}.cmake": templates.render("project/variant.cmake.j2", **_values(plan)),
            f"{folder}/_ops.py": ops_text(plan),
            f"{folder}/metadata.json": metadata_text(plan),
        }
    )


def ops_text(plan: VariantPlan) -> str:
    """The `_ops.py` of the variant."""
    framework = FRAMEWORKS.get(plan.framework)
    return templates.render(
        f"project/{framework.ops_template}",
        ops_name=plan.ops_name,
        extension_file=extension_file(plan),
    )


def extension_file(plan: VariantPlan) -> str:
    """File name of the compiled extension; empty for Python-only variants."""
    system = plan.parsed_variant.system
    if system is None:
        return ""
    return FRAMEWORKS.get(plan.framework).extension_file(plan.ops_name, system.os)


def device_languages(plan: VariantPlan) -> tuple[str, ...]:
    """The plan's languages that CMake needs kbuild's help with, in the plan's order."""
    return tuple(
        language for language in plan.languages if templates.exists(f"{LANGUAGES}/{language}.cmake")
    )


def _values(plan: VariantPlan) -> dict[str, Any]:
    device = device_languages(plan)
    framework = FRAMEWORKS.get(plan.framework)
    return {
        "plan": plan,
        "extension_file": extension_file(plan),
        "languages": [language for language in plan.languages if language not in device],
        "device_languages": device,
        "components": [_component(part, framework) for part in plan.components],
    }


def _component(part: Component, framework: Framework) -> Mapping[str, Any]:
    """A component as the template lists it: sources by language, headers apart."""
    sources: dict[str, list[str]] = {}
    for source in part.sources:
        if source.language is not None:
            sources.setdefault(source.language, []).append(source.path)
    root = (framework.package_root,) if part.name == BINDING else ()
    return {
        "name": part.name,
        "include": tuple(dict.fromkeys((*root, *part.include))),
        "definitions": part.definitions,
        "depends": part.depends,
        "headers": [source.path for source in part.sources if source.language is None],
        "sources": list(sources.items()),
        "flags": [(language, flags) for language, flags in part.flags if flags],
    }
