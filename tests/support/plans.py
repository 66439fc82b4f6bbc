"""Plans written by hand: every backend with every framework that fits it, in small."""

from __future__ import annotations

from pathlib import PurePosixPath

from kbuild.backends import BACKENDS
from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.ops.section import read_section
from kbuild.plan.components import driver_flags
from kbuild.plan.plan import (
    BINDING,
    AotKernel,
    Component,
    KernelInfo,
    PackagedFile,
    Requirements,
    Source,
    VariantPlan,
)
from kbuild.project.config.model import KernelSection
from kbuild.project.variant import Variant
from kbuild.system.version import Version

FACTS = KernelInfo(
    name="fast-relu",
    python_name="fast_relu",
    version=2,
    license="Apache-2.0",
    source="https://example.org/fast-relu",
    kernel_depends=({"repo-id": "org/other", "version": 1},),
)

# Kernel sections as `build.toml` would give them, by variant.
SECTIONS: dict[str, tuple[dict[str, object], ...]] = {
    "torch213-cxx11-cpu-x86_64-linux": (
        {"src": ["cpu/relu.cpp", "cpu/relu.h"], "cxx-flags": ["-ffast-math", '-DNAME="a > b"']},
        {"src": ["cpu/sum.cpp"], "cxx-flags": ["-fopenmp", "-fsanitize=bounds,shift"]},
        {"src": ["cpu/tables.h", "cpu/tables.inc"]},
    ),
    "torch212-cpu-aarch64-darwin": ({"src": ["cpu/relu.cpp"]},),
    "torch213-cxx11-cu126-x86_64-linux": (
        {"src": ["cuda/relu.cu"], "cuda-flags": ["-static-global-template-stub=false", "-O3"]},
    ),
    "torch213-cxx11-cu130-x86_64-linux": (
        {
            "src": ["cuda/relu.cu", "cuda/host.cpp"],
            "include": ["cuda"],
            "cuda-capabilities": ["8.0", "9.0a", "12.0+PTX"],
            "cuda-flags": ["--use_fast_math", "-static-global-template-stub=false"],
            "cxx-flags": ["-O2"],
        },
        {
            "src": ["cuda/relu.cu"],
            "cuda-capabilities": ["7.0", "7.5"],
            "cuda-flags": ["-rdc=true", "-Xcompiler=-fopenmp,-Wall"],
            "depends": ["cutlass_3_8"],
        },
    ),
    "torch-stable-abi211-cu130-aarch64-linux": (
        {"src": ["cuda/relu.cu"], "cuda-capabilities": ["9.0"]},
    ),
    "tvm-ffi01-cu130-x86_64-linux": ({"src": ["cuda/relu.cu"], "cuda-capabilities": ["9.0"]},),
    "tvm-ffi01-cpu-x86_64-linux": ({"src": ["cpu/relu.cpp"]},),
    "torch213-cxx11-rocm72-x86_64-linux": (
        {
            "src": ["cuda/relu.cu", "cuda/relu.cuh", "cuda/extra.hip"],
            "include": ["cuda"],
            "rocm-archs": ["gfx1100", "gfx90a"],
            "hip-flags": ["-ffast-math"],
        },
    ),
    "torch213-cxx11-xpu20260-x86_64-linux": (
        {"src": ["xpu/relu.cpp"], "sycl-flags": ["-fsycl-unnamed-lambda"]},
        {"src": ["xpu/gemm.cpp"], "depends": ["torch", "sycl_tla"]},
    ),
    "torch213-metal-aarch64-darwin": (
        {"src": ["metal/relu.mm", "metal/relu.metal", "metal/types.h"], "include": ["metal"]},
    ),
    "torch-stable-abi211-cu126-x86_64-linux": (
        {"src": ["cuda/relu.cu"], "cuda-capabilities": ["9.0"]},
    ),
    "torch-cuda": (),
    "torch-tpu": (),
}
GEMM = {
    "language": "triton",
    "toolchain": "triton==3.9.0",
    "src": ["dsl/gemm.py"],
    "op": [
        {
            "schema": "gemm(Tensor a) -> Tensor",
            "shapes": {"a": ["M"], "out": "a"},
            "dtypes": ["float32"],
            "grid": ["M"],
        }
    ],
}
# Kernels in Python DSLs beside them, by variant.
FOREIGN = {
    "torch-stable-abi211-cu126-x86_64-linux": (
        AotKernel(read_section("gemm", GEMM), ("sm_80", "compute_80", "sm_90a"), flavour="cuda12"),
    )
}


def plan_of(name: str) -> VariantPlan:
    """The plan of one of the variants above."""
    variant = Variant.parse(name)
    framework = FRAMEWORKS.get(variant.framework)
    backend = BACKENDS.get(variant.backend)
    ops_name = f"_fast_relu_{variant.backend}_1a2b3c4"
    root = f"{framework.package_root}/fast_relu"
    files = (
        PackagedFile(f"{root}/__init__.py", "__init__.py"),
        PackagedFile(f"{root}/layers/__init__.py", "layers/__init__.py"),
        PackagedFile(f"{root}/tables/tuned.json", "tables/tuned.json"),
    )
    if not framework.compiled:
        requires = Requirements(variant.backend)
        return VariantPlan(
            name, variant.framework, variant.backend, FACTS, "1a2b3c4", ops_name, requires,
            archs=("9.0",) if variant.backend == "cuda" else (), files=files,
        )  # fmt: skip
    parts, sections = _components(name, variant, ops_name)
    stable = variant.framework == "torch-stable-abi"
    return VariantPlan(
        variant=name,
        framework=variant.framework,
        backend=variant.backend,
        kernel=FACTS,
        unique_id="1a2b3c4",
        ops_name=ops_name,
        requires=Requirements(
            backend=variant.backend,
            torch=str(variant.framework_version) if framework.table == "torch" else None,
            torch_exact=not stable,
            toolkit=str(variant.backend_version) if variant.backend_version else None,
            system=str(variant.system),
        ),
        definitions=(backend.define, *(backend.definitions if framework.backend_macros else ())),
        languages=backend.languages,
        cxx_standard=framework.cxx_standard(variant.framework_version),
        components=parts,
        libraries=(*framework.libraries(), *backend.libraries(variant.framework)),
        link_flags=(*backend.link_flags(sections, variant.backend_version), *driver_flags(parts)),
        deployment_target=backend.deployment_target()
        if variant.system and variant.system.os == "darwin"
        else None,
        archs=tuple(sorted({arch for part in parts for arch in part.archs})),
        files=files,
        aot=FOREIGN.get(name, ()),
    )


def _components(
    name: str, variant: Variant, ops_name: str
) -> tuple[tuple[Component, ...], list[KernelSection]]:
    framework = FRAMEWORKS.get(variant.framework)
    backend = BACKENDS.get(variant.backend)
    toolkit = variant.backend_version
    macros = framework.definitions(ops_name, Version((2, 11)))
    binding = Component(
        name=BINDING,
        sources=_sources(variant, ("binding/binding.cpp", "binding/binding.h")),
        include=("binding",),
        definitions=(*macros, f"{framework.name_macro}={ops_name}"),
        flags=backend.binding_flags(toolkit).by_language,
        depends=(framework.table, *_libraries(name)),
    )
    parts, sections = [binding], []
    assert backend.section is not None
    for number, table in enumerate(SECTIONS[name]):
        defaults = {"backend": variant.backend, "depends": ["torch"]}
        section = backend.section.model_validate({**defaults, **table})
        requested = None
        if backend.arch_key:
            requested = getattr(section, backend.arch_key.replace("-", "_"))
        archs = backend.archs(requested, toolkit)
        own = backend.flags(section, archs, toolkit).by_language
        depends = section.depends if framework.table == "torch" else (framework.table,)
        depends = tuple(dict.fromkeys((*depends, *_libraries(name))))
        part = Component(
            name=f"relu-{number}",
            sources=_sources(variant, section.src),
            include=section.include,
            definitions=macros,
            flags=own,
            archs=archs.names,
            depends=depends,
        )
        parts.append(part)
        sections.append(section)
    return tuple(parts), sections


def _libraries(name: str) -> tuple[str, ...]:
    """What any section depends on beside Torch: every unit sees it."""
    named = (one for table in SECTIONS[name] for one in table.get("depends", ()))
    return tuple(dict.fromkeys(one for one in named if one != "torch"))


def _sources(variant: Variant, paths: tuple[str, ...]) -> tuple[Source, ...]:
    backend = BACKENDS.get(variant.backend)
    return tuple(Source(str(PurePosixPath(path)), backend.language_of(path)) for path in paths)
