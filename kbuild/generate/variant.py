"""What is a variant's own: its decisions for CMake with its `metadata.json`, and its `_ops.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.frameworks import FRAMEWORKS, Framework
from kbuild.generate import templates
from kbuild.generate.metadata import metadata_text
from kbuild.plan import BINDING, AotKernel, Component, VariantPlan
from kbuild.planning.linking import device_link_flags

LANGUAGES = "project/cmake/languages"


def variant_text(plan: VariantPlan) -> str:
    """`cmake/variants/<variant>.cmake`, the one file that only this variant needs."""
    return templates.render("project/variant.cmake.j2", **_values(plan))


def ops_text(plan: VariantPlan) -> str:
    """The `_ops.py` of the variant."""
    names = {"ops_name": plan.ops_name, "extension_file": extension_file(plan)}
    return _ops(plan, {**names, **_device_names(plan)})


def ops_template(plan: VariantPlan) -> tuple[str, str]:
    """File name and text of what CMake makes the `_ops.py` of all variants of a framework from."""
    framework = FRAMEWORKS.get(plan.framework)
    stem = framework.ops_template.removesuffix(".py.j2")
    name = f"{stem}{'_aot' if plan.aot else ''}.py.in"
    names = ("ops_name", "extension_file", *_device_names(plan))
    return name, _ops(plan, {name: f"@KBUILD_{name.upper()}@" for name in names})


def _ops(plan: VariantPlan, names: Mapping[str, str]) -> str:
    template = f"project/{FRAMEWORKS.get(plan.framework).ops_template}"
    return templates.render(template, aot=bool(plan.aot), **names)


def _device_names(plan: VariantPlan) -> Mapping[str, str]:
    """What other frameworks call the backend's devices, where `_ops.py` binds to any of them."""
    if not FRAMEWORKS.get(plan.framework).names_devices:
        return {}
    backend = BACKENDS.get(plan.backend)
    return {"dispatch_key": backend.dispatch_key, "jax_platform": backend.jax_platform}


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
    compiled = [part for part in plan.components if part.compiled]
    # CMake has no library without sources: headers of sections that have nothing else.
    loose = [s.path for part in plan.components if not part.compiled for s in part.sources]
    return {
        "plan": plan,
        "ops_template": ops_template(plan)[0],
        "metadata": metadata_text(plan).rstrip("\n"),  # CMake ends the file with a line break
        "extension_file": extension_file(plan),
        "exports": framework.exports,
        "device_names": {f"KBUILD_{k.upper()}": v for k, v in _device_names(plan).items()},
        "languages": [language for language in plan.languages if language not in device],
        "device_languages": device,
        "components": [_component(part, framework, loose) for part in compiled],
        "device_link_flags": device_link_flags(plan.components),
        "aot": [_launcher(kernel, plan, framework) for kernel in plan.aot],
    }


def _launcher(kernel: AotKernel, plan: VariantPlan, framework: Framework) -> Mapping[str, Any]:
    """A component whose one source is generated: it sees Torch's stable headers, and its name."""
    variant = plan.parsed_variant
    floor = variant.framework_version if variant.framework == "torch-stable-abi" else None
    name = f"{framework.name_macro}={plan.ops_name}"
    return {
        "name": kernel.name,
        "definitions": (*framework.definitions(plan.ops_name, floor), name),
        "depends": (framework.table,),
    }


def _component(part: Component, framework: Framework, loose: Sequence[str]) -> Mapping[str, Any]:
    """A component as the template lists it: sources by language, headers apart.

    Args:
        part: a component with sources that are compiled.
        framework: of the variant.
        loose: headers that no such component lists, and each may include.
    """
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
        "headers": [*(s.path for s in part.sources if s.language is None), *loose],
        "sources": list(sources.items()),
        "flags": [(language, flags) for language, flags in part.flags if flags],
    }
