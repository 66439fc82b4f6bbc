"""The sections of an edition 5 `build.toml` as frozen pydantic models.

Field docstrings are the reference documentation: `docs/reference/build-toml.md` and the JSON Schema
are generated from them (`kbuild.project.config.schema` reads them; pydantic does not, because
looking up sources costs every start). Keys are written in kebab-case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictInt, StrictStr

from kbuild.system.version import Version

EDITION = 5
CXX = "c++"
"""The language of a kernel whose section does not have the key `language`."""


def kebab(name: str) -> str:
    """The key of a field: `cuda-flags` of `cuda_flags`; pydantic itself needs the name `schema`."""
    return name.rstrip("_").replace("_", "-")


VersionText = Annotated[StrictStr, AfterValidator(lambda text: str(Version.parse(text)))]
"""A dotted version such as `12.8`, kept as text; `Version.parse` never fails on it."""


class Section(BaseModel):
    """Base of every table of `build.toml`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        # Only the model that validates a whole file is built, when it is first used.
        defer_build=True,
    )


class KernelDepend(Section):
    """Another kernel that this one loads at run time: a repository at a version or a revision."""

    repo_id: StrictStr
    """Hub repository, `owner/name`."""
    version: StrictInt | None = None
    """Major version; exactly one of `version` and `revision` is given."""
    revision: StrictStr | None = None
    """Branch, tag or commit."""


class Hub(Section):
    """The repository that the kernel is published in."""

    repo_id: StrictStr | None = None
    """Hub repository, `owner/name`."""
    branch: StrictStr | None = None
    """Branch that uploads go to; `v<version>` when absent."""


class BackendGeneral(Section):
    """Base of `[general.<backend>]` tables."""

    kernel_depends: tuple[KernelDepend, ...] = ()
    """Kernels needed by this backend only."""
    python_depends: tuple[StrictStr, ...] = ()
    """Python packages needed by this backend only, by their curated names."""


class General(Section):
    """The `[general]` table."""

    # `kbuild.project.config.file_model` adds a `[general.<backend>]` table for backends with one.

    name: StrictStr
    """Kernel name: lower-case letters, digits and dashes, starting with a letter."""
    version: StrictInt
    """Major version, published as branch `v<version>`; 0 marks an alpha."""
    edition: StrictInt = EDITION
    """Edition of this file's format."""
    license: StrictStr
    """SPDX identifier or expression."""
    backends: tuple[StrictStr, ...]
    """Backends that the kernel supports."""
    upstream: StrictStr | None = None
    """Git URL of the project that the kernel comes from."""
    source: StrictStr | None = None
    """Git URL of this kernel's source."""
    kernel_depends: tuple[KernelDepend, ...] = ()
    """Other kernels that this one loads at run time."""
    python_depends: tuple[StrictStr, ...] = ()
    """Python packages needed at run time, by their curated names."""
    kernels_minver: StrictStr | None = None
    """Oldest release of the `kernels` client that may load the kernel, such as `0.17.0`."""
    hub: Hub | None = None

    @property
    def python_name(self) -> str:
        """The Python package's name."""
        return self.name.replace("-", "_")

    def backend_general(self, backend: str) -> BackendGeneral | None:
        """The `[general.<backend>]` table, if it was given."""
        table = getattr(self, backend, None)
        return table if isinstance(table, BackendGeneral) else None


class TorchSection(Section):
    """The `[torch]` table: a compiled Torch extension."""

    src: tuple[StrictStr, ...] = ()
    """Binding sources and headers."""
    include: tuple[StrictStr, ...] = ()
    """Include folders of the bindings, relative to the project."""
    minver: VersionText | None = None
    """Oldest Torch release to build for, inclusive."""
    maxver: VersionText | None = None
    """Newest Torch release to build for, inclusive."""
    pyext: tuple[StrictStr, ...] = ()
    """Extra file extensions under `torch-ext/` to ship as data, beside `py` and `pyi`."""
    stable_abi: VersionText | dict[str, VersionText] | None = None
    """Oldest Torch release of the stable ABI to build for, for all backends or by backend."""
    cxx_flags: tuple[StrictStr, ...] = ()
    """C++ compiler flags for the binding sources; see those of kernels."""

    def stable_abi_for(self, backend: str) -> Version | None:
        """The stable-ABI floor for a backend, or None for the full ABI."""
        floor = self.stable_abi
        if isinstance(floor, Mapping):
            floor = floor.get(backend)
        return Version.parse(floor) if floor is not None else None


class NoarchSection(Section):
    """The `[torch-noarch]` table: Python files only (Triton and the like)."""

    pyext: tuple[StrictStr, ...] = ()
    """Extra file extensions under `torch-ext/` to ship as data, beside `py` and `pyi`."""

    # `kbuild.project.config.file_model` adds the arch lists of the backends.


class TvmFfiSection(Section):
    """The `[tvm-ffi]` table: a compiled extension for any framework through TVM-FFI."""

    src: tuple[StrictStr, ...] = ()
    """Binding sources and headers. Needed unless every kernel is written in a Python DSL."""
    include: tuple[StrictStr, ...] = ()
    """Include folders of the bindings, relative to the project."""
    pyext: tuple[StrictStr, ...] = ()
    """Extra file extensions under `tvm-ffi-ext/` to ship as data, beside `py` and `pyi`."""
    cxx_flags: tuple[StrictStr, ...] = ()
    """C++ compiler flags for the binding sources; see those of kernels."""


class KernelSection(Section):
    """Base of `[kernel.<name>]` tables; each backend's own keys are in `kbuild/backends/`."""

    backend: str
    """The backend that this kernel is compiled for."""
    depends: tuple[StrictStr, ...]
    """Libraries whose headers the sources need, e.g. `torch`, `cutlass_3_9`. All units of the
    backend see them, bindings included."""
    src: tuple[StrictStr, ...]
    """Sources and headers, relative to the project."""
    include: tuple[StrictStr, ...] = ()
    """Include folders, relative to the project."""
    cxx_flags: tuple[StrictStr, ...] = ()
    """C++ compiler flags; C sources get them without `-std`. Flags that add a library (`-fopenmp`,
    `-fsanitize=address`, `--coverage`, `-flto`) reach the link; linker flags have no effect."""


class BuildFile(Section):
    """A whole `build.toml`."""

    # `kbuild.project.config.file_model` adds what the catalog knows.

    general: General
    torch: TorchSection | None = None
    torch_noarch: NoarchSection | None = None
    tvm_ffi: TvmFfiSection | None = None
    kernel: Mapping[str, Section] = {}
    """The kernels by name: `KernelSection`s, and `LanguageSection`s of those in Python DSLs."""

    frameworks: ClassVar[tuple[str, ...]] = ("torch", "torch-noarch", "tvm-ffi")

    @property
    def framework_key(self) -> str:
        """The framework table that is present."""
        present = (key for key in self.frameworks if self.framework_table(key) is not None)
        return next(present, "torch-noarch")

    def framework_table(self, key: str) -> TorchSection | NoarchSection | TvmFfiSection | None:
        """The table `[torch]`, `[torch-noarch]` or `[tvm-ffi]`."""
        tables = {"torch": self.torch, "torch-noarch": self.torch_noarch, "tvm-ffi": self.tvm_ffi}
        return tables[key]


class UnknownArchError(ValueError):
    """An arch that is written as its backend writes them, but that no known GPU has."""


class ArchKey(NamedTuple):
    """The key of `[kernel.*]` in which a backend lists archs."""

    key: str
    check: Callable[[str], None]
    """Raises `ValueError` on a bad arch, and `UnknownArchError` on one that no GPU has."""


@dataclass(frozen=True, eq=False)
class BackendCatalog:
    """The names of the backends and their models; handed in by `kbuild.plan.project`."""

    kernel_sections: Mapping[str, type[KernelSection]]
    """Compiled backend -> the model of its `[kernel.*]` sections."""
    general_sections: Mapping[str, type[BackendGeneral]]
    """Backend -> the model of `[general.<backend>]`, if it has such a table."""
    backends: tuple[str, ...]
    """Every name that `general.backends` may hold."""
    arch_keys: Mapping[str, ArchKey] = field(default_factory=dict)
    """Backend -> the key of its arch list, if it has one."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Wrong name that people write for a backend, in lower case -> its name, for hints."""
    hosts: tuple[str, ...] = ()
    """Backends whose kernels run on the CPU."""

    @property
    def language_backends(self) -> tuple[str, ...]:
        """Backends that kernels in Python DSLs are compiled for."""
        return tuple(
            name
            for name, section in self.kernel_sections.items()
            if "language" in section.model_fields
        )
