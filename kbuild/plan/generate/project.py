"""Plans to the files of a CMake project, and to the value of `metadata.json`.

Per-variant CMake files and `_ops.py`, packaging files, editor files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

from kbuild import __version__
from kbuild.backends import BACKENDS
from kbuild.backends.frameworks import FRAMEWORKS, Framework
from kbuild.plan.metadata import (
    Builder,
    GitState,
    KernelDependency,
    Metadata,
    Provenance,
    UsedToolchain,
)
from kbuild.plan.plan import BINDING, AotKernel, Component, VariantPlan
from kbuild.project.config.dependencies import distribution_of
from kbuild.project.config.rules.files import unsupported_characters
from kbuild.system import rendering
from kbuild.system.errors import UsageError
from kbuild.system.files import FileSet
from kbuild.system.os_errors import printable_path

_PLACE = re.compile(r"\(/.*, sha256")


def metadata_of(plan: VariantPlan, builder: Builder | None = None) -> Metadata:
    """Everything that `metadata.json` says but the digest, which needs the built files."""
    kernel = plan.kernel
    return Metadata(
        name=kernel.name,
        id=plan.ops_name,
        version=kernel.version,
        kernels_minver=kernel.kernels_minver,
        license=kernel.license,
        backend=plan.backend,
        python_depends=kernel.python_depends,
        kernel_depends=tuple(_dependency(entry) for entry in kernel.kernel_depends),
        archs=plan.archs or None,
        upstream=kernel.upstream,
        source=kernel.source,
        provenance=Provenance(
            replace(builder or Builder(__version__), toolchain=_toolchain(plan)),
            GitState(plan.commit, plan.dirty) if plan.commit else None,
        ),
    )


def metadata_text(plan: VariantPlan) -> str:
    """The file's text as it is known before the build."""
    return metadata_of(plan).to_json_text()


def _toolchain(plan: VariantPlan) -> UsedToolchain | None:
    """The toolchain that compiled the plan; paths of header folders are left out."""
    used = plan.toolchain
    if used is None or not plan.is_compiled:
        return None
    versions = {name: _PLACE.sub("(sha256", version) for name, version in used.versions}
    return UsedToolchain(used.source, dict(sorted(versions.items())))


def _dependency(entry: object) -> KernelDependency:
    fields = cast("dict[str, str | int]", entry)
    version, revision = fields.get("version"), fields.get("revision")
    return KernelDependency(
        repo_id=str(fields["repo-id"]),
        version=int(version) if version is not None else None,
        revision=str(revision) if revision is not None else None,
    )


LANGUAGES = "project/cmake/languages"


def variant_text(plan: VariantPlan) -> str:
    """`cmake/variants/<variant>.cmake`, the one file that only this variant needs."""
    device = _extended_languages(plan)
    framework = FRAMEWORKS.get(plan.framework)
    compiled = [part for part in plan.components if part.compiled]
    # CMake has no library without sources: headers of sections that have nothing else.
    loose = [s.path for part in plan.components if not part.compiled for s in part.sources]
    template_values = {
        "plan": plan,
        "ops_template": ops_template(plan)[0],
        "metadata": metadata_text(plan).rstrip("\n"),  # CMake ends the file with a line break
        "extension_file": extension_file(plan),
        "exports": framework.exports,
        "device_names": {f"KBUILD_{k.upper()}": v for k, v in _device_names(plan).items()},
        "languages": [language for language in plan.languages if language not in device],
        "device_languages": device,
        "components": [_component(part, framework, loose) for part in compiled],
        "device_link_flags": _device_link_flags(plan),
        "aot": [_launcher(kernel, plan, framework) for kernel in plan.aot],
    }
    return rendering.render("project/variant.cmake.j2", **template_values)


def ops_text(plan: VariantPlan) -> str:
    """The `_ops.py` of the variant."""
    names = {"ops_name": plan.ops_name, "extension_file": extension_file(plan)}
    return _ops(plan, {**names, **_device_names(plan)})


def ops_template(plan: VariantPlan) -> tuple[str, str]:
    """File name and text of what CMake makes the `_ops.py` of all variants of a framework from."""
    stem = FRAMEWORKS.get(plan.framework).ops_template.removesuffix(".py.j2")
    name = f"{stem}{'_aot' if plan.aot else ''}.py.in"
    names = ("ops_name", "extension_file", *_device_names(plan))
    return name, _ops(plan, {name: f"@KBUILD_{name.upper()}@" for name in names})


def _ops(plan: VariantPlan, names: Mapping[str, str]) -> str:
    template = f"project/{FRAMEWORKS.get(plan.framework).ops_template}"
    return rendering.render(template, aot=bool(plan.aot), **names)


def _device_names(plan: VariantPlan) -> Mapping[str, str]:
    """Names of the backend's device in other frameworks, if the package's `_ops.py` needs them."""
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


def _extended_languages(plan: VariantPlan) -> tuple[str, ...]:
    """The plan's languages that CMake needs kbuild's help with, in the plan's order."""
    return tuple(
        language
        for language in plan.languages
        if any(path.suffix == ".cmake" for path in _language_files(plan, language))
    )


def _language_files(plan: VariantPlan, language: str) -> tuple[Path, ...]:
    """CMake files of a language in generated projects; a plug-in has its own in `data/cmake/`."""
    data = BACKENDS.get(plan.backend).data
    folders = [rendering.template_root() / LANGUAGES, *([data / "cmake"] if data else [])]
    return tuple(path for folder in folders for path in sorted(folder.glob(f"{language}.*")))


def _device_link_flags(plan: VariantPlan) -> tuple[str, ...]:
    backend = BACKENDS.get(plan.backend)
    flags = (
        dict(part.flags).get(language, ())
        for part in plan.components
        for language in sorted(part.languages & backend.device_languages)
    )
    return backend.device_link_flags(tuple(flags))


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
        "headers": [*(s.path for s in part.sources if s.language is None), *loose],
        "sources": list(sources.items()),
        "flags": [(language, flags) for language, flags in part.flags if flags],
    }


def pyproject_text(plans: Sequence[VariantPlan], away: str = "") -> str:
    """`pyproject.toml` for all variants together."""
    common, extras = _requirements(plans)
    framework = FRAMEWORKS.get(plans[0].framework)
    requires = {name for plan in plans for name in FRAMEWORKS.get(plan.framework).build_requires}
    data = {PurePosixPath(file.target).suffix for plan in plans for file in plan.files} - {".py"}
    return rendering.render(
        "project/pyproject.toml.j2",
        compiled=_is_compiled(plans),
        build_requires=sorted(requires),
        kernel=plans[0].kernel,
        dependencies=common,
        extras=extras,
        package_root=f"{away}/{framework.package_root}" if away else framework.package_root,
        package_data=sorted(f"**/*{suffix}" for suffix in data),
    )


def _is_compiled(plans: Sequence[VariantPlan]) -> bool:
    return any(plan.is_compiled for plan in plans)


def _requirements(plans: Sequence[VariantPlan]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Python requirements of all backends, and the additional ones of each."""
    by_backend = {
        plan.backend: set(map(distribution_of, plan.kernel.python_depends)) for plan in plans
    }
    common = set.intersection(*by_backend.values())
    extras = [(name, sorted(needs - common)) for name, needs in sorted(by_backend.items())]
    return sorted(common), [(name, needs) for name, needs in extras if needs]


_PRESETS_VERSION = 6
_CMAKE = {"major": 3, "minor": 26, "patch": 0}
_FOLDER = ".kbuild"
_HOST_NAMES = {"linux": "Linux", "darwin": "Darwin", "windows": "Windows"}


def presets_text(plans: Sequence[VariantPlan]) -> str:
    """One configure and one build preset per variant, shown on the systems they are for."""
    presets = {
        "version": _PRESETS_VERSION,
        "cmakeMinimumRequired": _CMAKE,
        "configurePresets": [_configure_preset(plan) for plan in plans],
        "buildPresets": [{"name": plan.variant, "configurePreset": plan.variant} for plan in plans],
    }
    return json.dumps(presets, indent=2) + "\n"


def clangd_text(plans: Sequence[VariantPlan], away: str = "") -> str:
    """The compile commands of the variant configured last, made palatable to clang."""
    # Reversed, so that of each backend the first plan is kept.
    hints = {
        plan.backend: BACKENDS.get(plan.backend).editor(plan.archs) for plan in reversed(plans)
    }
    return rendering.render(
        "project/clangd.j2",
        database=f"{away}/{_FOLDER}" if away else _FOLDER,
        editors=[hint for _, hint in sorted(hints.items()) if hint is not None],
    )


def _configure_preset(plan: VariantPlan) -> dict[str, Any]:
    system = plan.parsed_variant.system
    host = _HOST_NAMES[system.os] if system else ""
    return {
        "name": plan.variant,
        "generator": "Ninja",
        "binaryDir": f"${{sourceDir}}/{_build_folder(plan)}",
        "cacheVariables": {"CMAKE_BUILD_TYPE": "Release", "KBUILD_VARIANT": plan.variant},
        "condition": {"type": "equals", "lhs": "${hostSystemName}", "rhs": host},
    }


def _build_folder(plan: VariantPlan) -> str:
    return f"{_FOLDER}/{plan.variant}/cmake"


_PROBE = Path(__file__).parents[2] / "toolchains" / "probe.py"
_AOT = "project/cmake/aot.cmake"
_HERE = "${CMAKE_CURRENT_SOURCE_DIR}"


def generate(plan: VariantPlan) -> FileSet:
    """The project of one variant; `_ops.py` alone for a Python-only one."""
    if not plan.is_compiled:
        return FileSet({"_ops.py": ops_text(plan)})
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
        {
            "pyproject.toml": pyproject_text(plans, away),
            "setup.py": rendering.render("project/setup.py.j2", compiled=_is_compiled(plans)),
        }
    )
    if not compiled:
        # `_ops.py` of the source tree, for use without a build: any backend's namespace will do.
        folder = FRAMEWORKS.get(plans[0].framework).package_root
        path = f"{folder}/{plans[0].kernel.python_name}/_ops.py"
        return packaging.merge(FileSet({path: ops_text(plans[0])}))
    editor = FileSet(
        {"CMakePresets.json": presets_text(compiled), ".clangd": clangd_text(compiled, away)}
    )
    source = f"{_HERE}/{away}" if away else _HERE
    return _cmake_project(compiled, source).merge(packaging).merge(editor)


def _relative(root: Path | None, target: Path | None) -> str:
    """The relative path from the target folder to the source tree; empty if they are one."""
    if root is None or target is None or root == target:
        return ""
    return PurePosixPath(os.path.relpath(root, target)).as_posix()


def _cmake_project(plans: Sequence[VariantPlan], source_dir: str) -> FileSet:
    lists = rendering.render(
        "project/CMakeLists.txt.j2",
        name=plans[0].kernel.python_name,
        source_dir=source_dir,
        variants=[_cmake_condition(plan) for plan in plans],
        aot=any(plan.aot for plan in plans),
    )
    files = FileSet({"CMakeLists.txt": lists, "cmake/probe.py": _PROBE.read_bytes()})
    for plan in plans:
        files.add(f"cmake/variants/{plan.variant}.cmake", variant_text(plan))
    for name, text in sorted({ops_template(plan) for plan in plans}):
        files.add(f"cmake/{name}", text)
    for name in rendering.names("project/cmake", "*.cmake"):  # kbuild's own CMake
        if name != _AOT or any(plan.aot for plan in plans):
            files.add(name.removeprefix("project/"), rendering.read(name))
    used = {(plan.backend, name): plan for plan in plans for name in _extended_languages(plan)}
    copied = {path for (_, name), plan in used.items() for path in _language_files(plan, name)}
    for path in sorted(copied):
        files.add(f"cmake/languages/{path.name}", path.read_text("utf-8"))
    frameworks = [FRAMEWORKS.get(plan.framework) for plan in plans]
    included = {(f.package_root, name) for f in frameworks for name in f.support_files}
    for folder, name in sorted(included):  # bindings include these
        files.add(f"{folder}/{name}", rendering.read(f"project/{name}"))
    return files


def _cmake_condition(plan: VariantPlan) -> Mapping[str, Any]:
    """Values of the CMake condition under which the variant fits a machine."""
    variant, requires = plan.parsed_variant, plan.requires
    option = "TORCH" if requires.torch_exact else "TORCH_FLOOR"
    return {
        "name": plan.variant,
        "system": str(variant.system),
        "compute": variant.compute,
        "torch": f" {option} {requires.torch}" if requires.torch else "",
    }


def validate_path_names(folder: Path, plans: Iterable[VariantPlan]) -> None:
    """Refuse what CMake or ninja could not take, before they say so in other words or lose a file.

    Args:
        folder: where it is built.
        plans: what is built; Python-only variants are copied without CMake.

    Raises:
        UsageError: the path of the folder, or of a file of the package, cannot be quoted.
    """
    compiled = [plan for plan in plans if plan.is_compiled]
    if compiled and (characters := unsupported_characters(str(folder), "project")):
        raise UsageError(
            f"nothing can be compiled in `{printable_path(folder)}`: the path has {characters}, "
            "which CMake or ninja cannot take",
            hint="rename the folder, or build a copy elsewhere",
        )
    for path in sorted({file.source for plan in compiled for file in plan.files}):
        if characters := unsupported_characters(path, "package"):
            raise UsageError(
                f"`{printable_path(path)}` cannot be packaged: its name has {characters}, "
                "which CMake cannot take",
                hint="rename it",
            )
