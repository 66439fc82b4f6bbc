"""The plan of one variant: everything that was decided, and nothing that is still open.

Generation, build, checks and the Nix derivation read only the plan. It is JSON, hashable and
diffable; the same project gives the same plan on every machine, toolchain aside.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbuild.project.variant import FrameworkName, Variant

if TYPE_CHECKING:
    from kbuild.ops.section import DslSection

PLAN_FORMAT = 1
BINDING = "binding"
"""Name of the component that holds the framework's binding sources."""


@dataclass(frozen=True)
class KernelInfo:
    """The kernel's own description, for `metadata.json`."""

    name: str
    python_name: str
    version: int
    license: str
    upstream: str | None = None
    source: str | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[Mapping[str, str | int], ...] = ()
    kernels_minver: str | None = None
    """Oldest `kernels` client that may load the kernel."""


@dataclass(frozen=True)
class Source:
    """One file of a component."""

    path: str
    language: str | None
    """CMake language, or one that kbuild adds to CMake (`METAL`); None for headers."""


@dataclass(frozen=True)
class Component:
    """The bindings, or one `[kernel.*]` section: sources that share flags."""

    name: str
    sources: tuple[Source, ...]
    include: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    flags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """CMake language -> compiler flags."""
    archs: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    """Libraries whose headers are needed, `torch` included."""

    @property
    def compiled(self) -> tuple[Source, ...]:
        """The sources that a compiler takes."""
        return tuple(source for source in self.sources if source.language is not None)

    @property
    def languages(self) -> frozenset[str]:
        """The CMake languages of its sources."""
        return frozenset(source.language for source in self.sources if source.language is not None)


@dataclass(frozen=True)
class AotKernel:
    """A `[kernel.*]` section in a Python DSL, which is compiled ahead of time."""

    section: DslSection
    targets: tuple[str, ...]
    """Architectures to compile for: `sm_80`, `sm_90a`, `compute_80` (PTX), `gfx942`."""
    flavour: str
    """Kind of machine code: `cuda12`, `cuda13`, `rocm` or `cpu`; see `split_flavour`."""
    tables: tuple[str, ...] = ()
    """Tuned tables of the project, `tuned/*.json`."""
    keep_all: bool = False
    """True if every candidate is compiled and can be chosen at run time, for measurements."""

    @property
    def name(self) -> str:
        """The section's name."""
        return self.section.name

    @property
    def language(self) -> str:
        """Language of the kernels."""
        return self.section.language

    @property
    def toolchain(self) -> tuple[str, ...]:
        """Distributions at exact versions: `triton==3.9.0`."""
        return self.section.toolchain

    @property
    def sources(self) -> tuple[str, ...]:
        """POSIX paths relative to the project, the one with the kernel functions first."""
        return self.section.sources

    def to_json(self) -> dict[str, Any]:
        """The kernel as a JSON object; the section as `build.toml` has it."""
        about = ("name", "language", "toolchain", "sources", "origin")
        own = {key: getattr(self.section, key) for key in about}
        return {**own, **vars(self), "section": self.section.table}


@dataclass(frozen=True)
class PackagedFile:
    """A file that is shipped as it is."""

    source: str
    """POSIX path relative to the project."""
    target: str
    """POSIX path relative to the variant directory."""


@dataclass(frozen=True)
class GeneratedFile:
    """A file of the package that is generated, or copied from another file of the project."""

    target: str
    """POSIX path relative to the variant directory."""
    text: str = ""
    source: str = ""
    """POSIX path relative to the project, of the file that it is a copy of."""


@dataclass(frozen=True)
class Requirements:
    """Requirements that a toolchain must meet."""

    backend: str
    torch: str | None = None
    """Torch release `2.13`: exactly for the full ABI, at least for the stable ABI."""
    torch_exact: bool = True
    toolkit: str | None = None
    """CUDA, ROCm or oneAPI release."""
    tvm_ffi: str | None = None
    """Oldest release of TVM-FFI, for its framework."""
    system: str | None = None
    """`x86_64-linux`; None for a variant in which nothing is compiled."""
    libraries: tuple[str, ...] = ()
    """Header dependencies such as `cutlass_3_9`, without `torch`."""


@dataclass(frozen=True)
class ToolchainSummary:
    """The toolchain of a build, for the record."""

    source: str
    """`host`, `wheels` or `nix`."""
    versions: tuple[tuple[str, str], ...]
    """(name, release) of compilers and frameworks."""
    fingerprint: str
    """Digest of everything in the toolchain that can change what it makes."""


@dataclass(frozen=True)
class VariantPlan:
    """Everything decided for one variant."""

    variant: str
    framework: FrameworkName
    backend: str
    kernel: KernelInfo
    unique_id: str
    """See `Identity.unique_id`."""
    ops_name: str
    """Op namespace, extension base name, `metadata.json` id: `_<python name>_<backend>_<id>`."""
    requires: Requirements
    definitions: tuple[str, ...] = ()
    """Macros of every compiled unit."""
    languages: tuple[str, ...] = ()
    """CMake languages of the project."""
    cxx_standard: int = 20
    components: tuple[Component, ...] = ()
    libraries: tuple[str, ...] = ()
    """Library base names, CMake targets such as `CUDA::cudart`, or flags (`-framework Metal`)."""
    link_flags: tuple[str, ...] = ()
    """Linker flags, in order."""
    deployment_target: str | None = None
    """Oldest macOS release that the result loads on; None for other systems."""
    archs: tuple[str, ...] = ()
    """Union over the components with device code; what `metadata.json` announces."""
    files: tuple[PackagedFile, ...] = ()
    commit: str | None = None
    """See `Identity.commit`."""
    dirty: bool = False
    """See `Identity.dirty`."""
    notes: tuple[str, ...] = ()
    """Decisions that a user should hear of, e.g. an arch that the toolkit cannot target."""
    toolchain: ToolchainSummary | None = None
    format: int = PLAN_FORMAT
    aot: tuple[AotKernel, ...] = ()
    """Kernels in Python DSLs; not in the JSON of a plan that has none."""
    generated: tuple[GeneratedFile, ...] = ()
    """Files that plug-ins add to the package for these; not in the JSON of a plan without."""
    op_modules: tuple[str, ...] = ()
    """Modules among them that are imported with the ops."""

    @property
    def parsed_variant(self) -> Variant:
        """The variant as a value."""
        return Variant.parse(self.variant)

    @property
    def is_compiled(self) -> bool:
        """False for Python-only variants."""
        return bool(self.components or self.aot)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every project file that the plan names, sorted."""
        sources = {source.path for part in self.components for source in part.sources}
        sources |= {path for kernel in self.aot for path in (*kernel.sources, *kernel.tables)}
        sources |= {file.source for file in self.generated if file.source}
        return tuple(sorted(sources | {file.source for file in self.files}))

    def with_toolchain(self, toolchain: ToolchainSummary) -> VariantPlan:
        """The same plan, with the toolchain that it will be built by."""
        return replace(self, toolchain=toolchain)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object, keys in a fixed order."""
        # A large project has thousands of sources and files, and `asdict` copies each.
        whole = asdict(replace(self, components=(), files=(), aot=()))
        whole["components"] = tuple(
            vars(part) | {"sources": tuple(dict(vars(source)) for source in part.sources)}
            for part in self.components
        )
        whole["files"] = tuple(dict(vars(file)) for file in self.files)
        whole["aot"] = tuple(kernel.to_json() for kernel in self.aot)
        for key in ("aot", "generated", "op_modules"):
            if not whole[key]:
                del whole[key]
        return whole

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VariantPlan:
        """Read what `to_json` wrote.

        Raises:
            ValueError: the data is not a plan, or of another format.
        """
        if data.get("format") != PLAN_FORMAT:
            raise ValueError(f"plan format {data.get('format')}: this kbuild reads {PLAN_FORMAT}")
        from pydantic import TypeAdapter

        from kbuild.ops.section import DslSection

        kernels = ({**k, "section": DslSection.from_json(k)} for k in data.get("aot", ()))
        return TypeAdapter(cls).validate_python({**data, "aot": tuple(kernels)})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        # In a section the order of keys counts: a `matrix` makes the first candidate the default.
        text += "".join(json.dumps(kernel.section.table) for kernel in self.aot)
        return hashlib.sha256(text.encode()).hexdigest()
