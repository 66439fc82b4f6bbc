"""The questions that a backend answers."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kbuild.project.config.model import BackendGeneral, KernelSection, UnknownArchError
from kbuild.project.matrix import (
    ArchTable,
    MatrixEntry,
    arch_of_gpu,
    arch_table,
    deployment_target,
    known_archs,
    matrix_entries,
)
from kbuild.system.processes import Runner
from kbuild.system.registry import Registry
from kbuild.system.version import Version

CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C")
HOST_LANGUAGES = {".c": "C", ".s": "ASM", ".S": "ASM"}
"""Suffixes of other sources that the host's compiler takes, with their CMake languages."""
OTHER_SOURCES = (
    *HOST_LANGUAGES, ".cu", ".hip", ".m", ".mm", ".metal", ".asm", ".f", ".f90", ".cl",
)  # fmt: skip
"""Suffixes of sources that some compiler takes; all others are of headers and data."""


@dataclass(frozen=True)
class Archs:
    """The archs of one kernel, and those that were left out with a reason."""

    names: tuple[str, ...] = ()
    """`9.0a`, `12.1+PTX`, `gfx942`; empty for backends without archs."""
    dropped: tuple[str, ...] = ()
    """One sentence per requested arch that this toolkit cannot target."""
    shared: tuple[str, ...] = ()
    """One sentence per arch whose code also serves others, which are not compiled for."""


@dataclass(frozen=True)
class UnitFlags:
    """The compiler flags of one kernel section."""

    by_language: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """CMake language (`CXX`, `C`, `CUDA`, `HIP`, `OBJCXX`) -> compiler flags, in order."""


@dataclass(frozen=True)
class EditorHints:
    """Settings with which a language server parses a backend's device sources."""

    path_match: str
    """Regular expression of the files."""
    remove: tuple[str, ...] = ()
    """Flags of the device compiler that clang does not know, as globs."""
    add: tuple[str, ...] = ()
    """Flags that clang needs."""


@dataclass(frozen=True)
class DeviceCompilerSearch:
    """Places of a backend's device compiler on this machine."""

    program: str
    """Name of the program, e.g. `nvcc`; looked for on PATH."""
    release: str
    """Regular expression for what `--version` prints; its first group is the toolkit's release."""
    cmake: tuple[tuple[str, str], ...]
    """CMake cache entries for a generated project; `{program}` is its path, `{root}` the folder of
    its installation."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables for the build, likewise."""
    home_variables: tuple[str, ...] = ()
    """Environment variables that name the installation. One that is set is believed: a compiler
    elsewhere is then not looked for."""
    usual_root: str = ""
    """Folder of the installation when none of these names it, and PATH has no such program."""
    has_host_compiler: bool = False
    """True for nvcc, which hands the host's part of its units to another compiler."""


class Backend:
    """Base of all backends; the defaults fit a backend that compiles plain C++."""

    name: ClassVar[str]
    title: ClassVar[str]
    """Spelling of the backend in text: `CUDA`, `ROCm`."""
    other_names: ClassVar[tuple[str, ...]] = ()
    """Wrong names that people write for it, in lower case."""
    section: ClassVar[type[KernelSection] | None] = None
    """The model of `[kernel.*]`; None for Python-only backends."""
    general: ClassVar[type[BackendGeneral] | None] = None
    """The model of `[general.<name>]`; None when there is no such table."""
    in_client: ClassVar[bool] = False
    """The `kernels` client loads variants of this backend."""
    data: ClassVar[Path | None] = None
    """Folder of a plug-in's `versions.toml`, `archs.toml`, `init/` and `cmake/`, which are written
    like `kbuild/project/matrix/`, `templates/init/` and `templates/project/cmake/languages/`.
    kbuild's own backends have none."""
    template: ClassVar[str | None] = None
    """Folder of `templates/init/` with the sources of a new kernel; the name when None."""
    default_on: ClassVar[tuple[str, ...]] = ()
    """Platforms, as `sys.platform` has them, on which new projects are for this backend."""
    runs_on_cpu: ClassVar[bool] = False
    """True when kernels run on the CPU, where any machine can call them."""
    visible_devices: ClassVar[str] = ""
    """Variable that says which devices a process sees; empty where there is none."""
    torch_field: ClassVar[str] = ""
    """Name in `torch/version.py` of the device that a Torch wheel is built for; empty when every
    wheel does."""
    torch_device: ClassVar[str] = ""
    """The module of Torch that knows whether there is such a device, e.g. `cuda`."""
    has_readable_archs: ClassVar[bool] = False
    """`kbuild/checks/readers/` reads from a library which archs its device code is for."""
    device_code: ClassVar[str] = ""
    """Name of its device code in messages; the title when empty."""
    device_compiler: ClassVar[DeviceCompilerSearch | None] = None
    """None where the host's C++ compiler does, and where kbuild cannot look for one."""
    define: ClassVar[str] = ""
    """Macro that tells the bindings which backend they are compiled for."""
    dispatch_key: ClassVar[str] = ""
    """Torch's name for its devices where operators are registered in Python."""
    jax_platform: ClassVar[str] = "gpu"
    """JAX's name for them where targets of its foreign functions are registered."""
    definitions: ClassVar[tuple[str, ...]] = ()
    """Further macros for every unit of a Torch extension."""
    languages: ClassVar[tuple[str, ...]] = ("CXX",)
    """CMake languages, the device language last. One that CMake lacks is added by a file such as
    `templates/project/cmake/languages/SYCL.cmake`."""
    device_suffixes: ClassVar[tuple[str, ...]] = ()
    """Suffixes of sources that the device compiler takes."""
    arch_key: ClassVar[str | None] = None
    """The `[kernel.*]` key that lists archs, in kebab-case."""
    toolkit_headers: ClassVar[tuple[str, ...]] = ()
    """Parts of lower-case names of headers that only the toolkit has: C++ that includes one needs
    it, also where device code comes from Python DSLs."""

    @property
    def device_languages(self) -> frozenset[str]:
        """Languages whose objects hold device code: C++ itself where there is no other."""
        return frozenset(self.languages) - {"CXX"} or frozenset(self.languages)

    @property
    def is_plain_cxx(self) -> bool:
        """True when the host's C++ compiler is all that a build needs."""
        return self.languages == ("CXX",) and self.device_compiler is None

    def builds(self) -> tuple[MatrixEntry, ...]:
        """The builds that a plug-in adds to the matrix; none for Python-only backends."""
        if self.data is None or self.section is None:
            return ()
        return matrix_entries(self.data / "versions.toml")

    def probe_facts(self) -> dict[str, Any]:
        """The facts about the backend for `load_probe.py`, which runs without kbuild; JSON."""
        keys = ("name", "in_client", "runs_on_cpu", "dispatch_key", "torch_field", "torch_device")
        return {key: getattr(self, key) for key in keys}

    def check_arch(self, arch: str) -> None:
        """Raise `ValueError` when `arch` is not written as this backend writes archs.

        The message is "<problem>; <hint>".
        """

    def check_gpu_arch(self, arch: str) -> None:
        """Raise as `check_arch` does, and `UnknownArchError` when no GPU has the arch."""
        try:
            self.check_arch(arch)
        except ValueError as error:
            what = str(error).partition("; ")[0]
            if meant := arch_of_gpu(arch, self.name):
                raise ValueError(f"{what}; `{arch}` has `{meant}`") from None
            raise
        known = known_archs(self.name, self.data / "archs.toml" if self.data else None)
        target = self.arch_target(arch)
        if target not in known:
            number = self.arch_number(target)
            # Of equally near archs the shortest: `9.0` instead of `9.0a`.
            nearest = min(known, key=lambda name: (abs(self.arch_number(name) - number), len(name)))
            what = f"no GPU that kbuild knows has `{arch}`"
            raise UnknownArchError(f"{what}; the nearest is `{nearest}`")

    def arch_target(self, arch: str) -> str:
        """The arch without additions such as `+PTX`."""
        return arch

    def arch_number(self, arch: str) -> int:
        """A number by which the nearest known arch is suggested."""
        return int("".join(filter(str.isdigit, arch)) or 0)

    def arch_serves(self, arch: str, wanted: str) -> bool:
        """True when `--arch WANTED` selects `arch`, an entry of a kernel's list."""
        return arch == wanted

    def arch_runs_on(self, arch: str, device: str) -> bool:
        """True when code for `arch`, as metadata names it, runs on a device of that arch."""
        return arch == device

    def native_archs(self, runner: Runner) -> tuple[str, ...]:
        """The archs of this machine's devices, none when there are none."""
        return ()

    def archs(self, requested: Sequence[str] | None, toolkit: Version | None) -> Archs:
        """The archs to compile one kernel for: those requested that the toolkit can target.

        Args:
            requested: the section's list, None when it has none.
            toolkit: the backend version of the variant.

        Raises:
            ValueError: nothing that was requested can be targeted.
        """
        if self.arch_key is None:
            return Archs()
        table = self.arch_table(toolkit)
        wanted = sorted(set(requested or table.default), key=self.arch_order)
        kept = tuple(arch for arch in wanted if arch in table.targets)
        release = f"{self.title} {toolkit}" if toolkit else self.title
        if not kept:
            named = ", ".join(f"`{arch}`" for arch in wanted)
            known = ", ".join(table.targets)
            raise ValueError(f"none of {named} is a target of {release}, which has {known}")
        dropped = (arch for arch in wanted if arch not in kept)
        return Archs(
            kept, tuple(f"`{arch}` is left out: not a target of {release}" for arch in dropped)
        )

    def arch_table(self, toolkit: Version | None) -> ArchTable:
        """The archs of a toolkit release; raises `ValueError` for one that is too old."""
        return arch_table(self.name, toolkit, self.data / "archs.toml" if self.data else None)

    def arch_order(self, arch: str) -> Any:
        """The sort key of archs."""
        return arch

    def without_shared(self, section: KernelSection, archs: Archs, every: Archs) -> Archs:
        """`archs` without those whose GPUs run the code for another one, if the section allows it.

        Args:
            section: the kernel.
            archs: the archs that are compiled.
            every: all archs of the kernel, also those that `--arch` leaves out: a GPU runs the
                same code, whether all are compiled or a few.
        """
        return archs

    def flags(self, section: KernelSection, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """Compiler flags of one kernel section's units."""
        return UnitFlags((("CXX", section.cxx_flags),) if section.cxx_flags else ())

    def arch_flags(self, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """The part of `flags` that follows from the archs; for bindings with device code, too."""
        return UnitFlags()

    def binding_flags(self, toolkit: Version | None) -> UnitFlags:
        """Flags of the framework's binding sources, and of every unit that sees Torch.

        A unit of a kernel that sees Torch gets these first, then those of `flags`.
        """
        return UnitFlags()

    def applies(self, section: KernelSection, toolkit: Version | None) -> bool:
        """False when the section leaves out this release of the toolkit."""
        return True

    def libraries(self, framework: str) -> tuple[str, ...]:
        """CMake targets or library base names to link, beside the framework's own.

        Args:
            framework: a `FrameworkName`; the Torch libraries of this backend go to `torch` only.
        """
        return ()

    def link_flags(
        self, sections: Sequence[KernelSection], toolkit: Version | None
    ) -> tuple[str, ...]:
        """Linker flags of an extension made of these kernel sections."""
        return ()

    def device_link_flags(self, flags: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """Flags of the device linker, if any of these compiler flags leaves device code to it."""
        return ()

    def deployment_target(self) -> str:
        """The oldest macOS release that a build must load on."""
        return deployment_target(self.name)

    def editor(self, archs: Sequence[str]) -> EditorHints | None:
        """Hints for clangd; None when the compile commands speak for themselves."""
        return None

    def language_of(self, source: str) -> str | None:
        """The language that compiles `source`; None for headers."""
        suffix = posixpath.splitext(source)[1]
        if suffix in self.device_suffixes:
            return self.languages[-1]
        return "CXX" if suffix in CXX_SUFFIXES else HOST_LANGUAGES.get(suffix)


def compiled_suffixes(backend: Backend) -> tuple[str, ...]:
    """Suffixes of the sources that the backend's compilers take."""
    return tuple(
        suffix for suffix in (*CXX_SUFFIXES, *OTHER_SOURCES) if backend.language_of(f"x{suffix}")
    )


BACKENDS: Registry[Backend] = Registry("kbuild.backends")


def other_backend_names(backends: Iterable[Backend]) -> dict[str, str]:
    """The wrong names of backends, in lower case -> the backend's name."""
    return {other: backend.name for backend in backends for other in backend.other_names}
