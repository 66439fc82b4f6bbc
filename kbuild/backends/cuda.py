"""CUDA: compute capabilities, nvcc flags, toolkit bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import StrictBool, StrictStr

from kbuild.backends.base import (
    BACKENDS,
    Archs,
    Backend,
    DeviceCompilerSearch,
    EditorHints,
    UnitFlags,
)
from kbuild.backends.capability import Capability, shared_code
from kbuild.project.config.model import BackendGeneral, KernelSection, VersionText
from kbuild.project.matrix import compatible_arch_chains
from kbuild.system.processes import Runner
from kbuild.system.version import Version


class CudaGeneral(BackendGeneral):
    """The `[general.cuda]` table."""

    minver: VersionText | None = None
    """Oldest CUDA release to build for, inclusive."""
    maxver: VersionText | None = None
    """Newest CUDA release to build for, inclusive."""


class CudaSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "cuda"`."""

    backend: Literal["cuda"]
    language: Literal["c++"] = "c++"
    """Language of the sources; kernels in Python DSLs have keys of their own."""
    cuda_capabilities: tuple[StrictStr, ...] | None = None
    """Compute capabilities, e.g. `["8.0", "9.0a", "12.0+PTX"]`; the toolkit's when absent. One that
    no known GPU has, or that the toolkit lacks, is left out with a warning while others remain."""
    cuda_flags: tuple[StrictStr, ...] = ()
    """nvcc flags for `.cu` sources. What `-Xcompiler` hands on reaches the link like `cxx-flags`;
    code of `-rdc=true` or `-dc` is linked for the devices, with `cudadevrt`."""
    cuda_group_archs: StrictBool = False
    """Compile once for GPUs that run the same machine code: that of 8.0 on 8.6 and 8.9, of 10.0 on
    10.3, of 12.0 on 12.1. `__CUDA_ARCH__` is then the older one's."""
    cuda_minver: VersionText | None = None
    """Leave this kernel out below this CUDA release."""


NVCC = DeviceCompilerSearch(
    program="nvcc",
    release=r"release (\d+\.\d+)",
    cmake=(("CMAKE_CUDA_COMPILER", "{program}"), ("CUDAToolkit_ROOT", "{root}")),
    env=(("CUDA_HOME", "{root}"),),
    home_variables=("CUDA_HOME", "CUDA_PATH"),
    usual_root="/usr/local/cuda",
    has_host_compiler=True,
)
_TORCH_FLAGS = ("--expt-relaxed-constexpr", "--expt-extended-lambda")
# Torch's headers find the FP8 types from this release on.
_FIRST_FP8 = Version((11, 8))
_FIRST_SIZE_COMPRESSION = Version((12, 8))
# nvcc knows `-static-global-template-stub` from this release on.
_FIRST_TEMPLATE_STUB = Version((12, 8))
_TEMPLATE_STUB = re.compile(r"--?static-global-template-stub=.*")
_RELOCATABLE = re.compile(r"(?<!\S)--?(?:rdc|relocatable-device-code)[= ](true|false)\b")
_DEVICE_C = ("-dc", "--device-c")
"""Compile relocatable device code, whatever `-rdc` says."""
_DEVICE_LINK = re.compile(r"--?(?:gencode|generate-code)=.+|--?dlto|-lineinfo|-G")


@BACKENDS.add
class Cuda(Backend):
    """NVIDIA GPUs through nvcc.

    What a request gives differs from Hugging Face's kernel-builder where that one breaks a build or
    drops code in silence:

    | request        | kernel-builder                | here                                     |
    |----------------|-------------------------------|------------------------------------------|
    | `9.0` + `9.0a` | `9.0` is dropped              | both are compiled                        |
    | `7.0`, CUDA 13 | kept, nvcc then fails         | left out with a note, an error if alone  |
    | `10.3a`        | always left out               | compiled from CUDA 12.9 on               |
    | `12.1a`, 12.9  | left out                      | compiled                                 |
    | `10.0f`, 12.8  | kept, nvcc then fails         | left out: `f` came with CUDA 12.9        |
    """

    name = "cuda"
    other_names = ("nvidia", "nvcc")
    title = "CUDA"
    section = CudaSection
    general = CudaGeneral
    in_client = True
    default_on = ("linux",)
    has_readable_archs = True
    torch_field = "cuda"
    visible_devices = "CUDA_VISIBLE_DEVICES"
    torch_device = "cuda"
    device_compiler = NVCC
    define = "CUDA_KERNEL"
    dispatch_key = "CUDA"
    definitions = ("USE_CUDA=1",)
    languages = ("CXX", "CUDA")
    device_suffixes = (".cu",)
    arch_key = "cuda-capabilities"
    toolkit_headers = ("cuda", "cub/", "thrust/")

    def check_arch(self, arch: str) -> None:
        """`9.0`, `9.0a`, `12.0f`, each with or without `+PTX`."""
        Capability.parse(arch)

    def arch_target(self, arch: str) -> str:
        """`12.1` of `12.1+PTX`."""
        return str(Capability.parse(arch).target)

    def arch_serves(self, arch: str, wanted: str) -> bool:
        """`9.0` means `9.0`, `9.0a` and `9.0+PTX`; `9.0a` means itself, with PTX or without."""
        have, want = Capability.parse(arch).target, Capability.parse(wanted).target
        return have == want or (not want.feature and have.base == want.base)

    def arch_runs_on(self, arch: str, device: str) -> bool:
        """Machine code runs on later GPUs of its major, `a` on its own alone; PTX on all later."""
        have, gpu = Capability.parse(arch), Capability.parse(device)
        if have.feature == "a":
            return have.base == gpu.base
        if have.ptx and not have.feature and have.base <= gpu.base:
            return True
        return have.major == gpu.major and have.minor <= gpu.minor

    def native_archs(self, runner: Runner) -> tuple[str, ...]:
        """The capabilities that the driver reports for the GPUs, each once."""
        done = runner.run(("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"))
        return tuple(sorted(set(done.output.split()))) if done.ok else ()

    def archs(self, requested: Sequence[str] | None, toolkit: Version | None) -> Archs:
        """Every requested capability that nvcc can target, in version order."""
        table = self.arch_table(toolkit)
        wanted = _merge_ptx(Capability.parse(arch) for arch in requested or table.default)
        targets = {Capability.parse(arch) for arch in table.targets}
        kept = [arch for arch in wanted if arch.target in targets]
        dropped = [arch for arch in wanted if arch.target not in targets]
        if not kept:
            named, targets_text = (
                ", ".join(f"`{arch}`" for arch in dropped),
                ", ".join(table.targets),
            )
            raise ValueError(
                f"none of {named} is a target of CUDA {toolkit}, which has {targets_text}"
            )
        why = f"it is not a target of CUDA {toolkit}" if toolkit else "no CUDA release targets it"
        return Archs(
            tuple(str(arch) for arch in kept),
            tuple(f"`{arch}` is left out: {why}" for arch in dropped),
        )

    def without_shared(self, section: KernelSection, archs: Archs, every: Archs) -> Archs:
        """The oldest of each group, with PTX when any of the group asked for it."""
        assert isinstance(section, CudaSection)  # noqa: S101 - the registry pairs them
        if not section.cuda_group_archs:
            return archs
        wanted = [Capability.parse(arch) for arch in archs.names]
        everything = [Capability.parse(arch) for arch in (*every.names, *archs.names)]
        known = [tuple(map(Capability.parse, chain)) for chain in compatible_arch_chains(self.name)]
        runs = shared_code(everything, known)
        compiled = _merge_ptx(replace(runs[arch.target], ptx=arch.ptx) for arch in wanted)
        return replace(
            archs, names=tuple(map(str, compiled)), shared=tuple(_shared_code_notes(wanted, runs))
        )

    def flags(self, section: KernelSection, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """Code generation, then `cuda-flags` as written, for `.cu`; `cxx-flags` for C++."""
        assert isinstance(section, CudaSection)  # noqa: S101 - the registry pairs them
        own = tuple(flag for flag in section.cuda_flags if _is_known(flag, toolkit))
        ((language, codes),) = self.arch_flags(archs, toolkit).by_language
        cxx = super().flags(section, archs, toolkit).by_language
        return UnitFlags((*cxx, (language, (*codes, *own))))

    def arch_flags(self, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """Machine code for every capability, PTX if requested."""
        codes = (flag for arch in archs.names for flag in Capability.parse(arch).gencode)
        fits = toolkit is None or toolkit >= _FIRST_SIZE_COMPRESSION
        compression = ("--compress-mode=size",) if fits else ()
        return UnitFlags((("CUDA", (*codes, *compression)),))

    def binding_flags(self, toolkit: Version | None) -> UnitFlags:
        """The flags of Torch's CMake package for nvcc, its `__CUDA_NO_HALF_*__` bans left out."""
        fp8 = ("-DENABLE_FP8",) if toolkit is None or toolkit >= _FIRST_FP8 else ()
        return UnitFlags((("CUDA", (*_TORCH_FLAGS, *fp8)),))

    def applies(self, section: KernelSection, toolkit: Version | None) -> bool:
        """False below `cuda-minver`."""
        assert isinstance(section, CudaSection)  # noqa: S101 - the registry pairs them
        if section.cuda_minver is None or toolkit is None:
            return True
        return toolkit >= Version.parse(section.cuda_minver)

    def libraries(self, framework: str) -> tuple[str, ...]:
        """The shared CUDA runtime, and Torch's CUDA libraries for its full ABI."""
        torch = ("torch_cuda", "c10_cuda") if framework == "torch" else ()
        return (*torch, "CUDA::cudart")

    def device_link_flags(self, flags: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """The flags with which nvcc links relocatable device code."""
        kept = (
            f for own in flags if _is_relocatable(own) for f in own if _DEVICE_LINK.fullmatch(f)
        )
        return tuple(dict.fromkeys(kept))

    def editor(self, archs: Sequence[str]) -> EditorHints | None:
        """The settings for clang, which parses CUDA itself: no nvcc flags, and one architecture."""
        known = [Capability.parse(arch).target for arch in archs]
        clang = [arch for arch in known if not arch.feature and arch <= _CLANG_KNOWS]
        add = (f"--cuda-gpu-arch=sm_{max(clang).number}",) if clang else ()
        return EditorHints(r".*\.cuh?", _NVCC_ONLY, (*add, _CUDA_PATH))


# Where toolkits and distributions put the toolkit that is in use.
_CUDA_PATH = "--cuda-path=/usr/local/cuda"
_CLANG_KNOWS = Capability(9, 0)
_NVCC_ONLY = (
    "-gencode*", "--generate-code*", "-arch=*", "-code=*", "-ccbin*",
    "-forward-unknown-to-host-compiler", "-forward-unknown-opts", "--expt-*", "--extended-lambda",
    "--compress-mode*", "--threads*", "--frandom-seed*", "--use_fast_math",
    "-static-global-template-stub*", "-diag-suppress*", "-rdc=*", "-Xcompiler=*", "-Xptxas*",
    "-Xcudafe*", "-Xfatbin*", "--ptxas-options=*",
)  # fmt: skip


def _merge_ptx(archs: Iterable[Capability]) -> list[Capability]:
    """The targets in version order, each once; PTX stays when any spelling asked for it."""
    united: dict[Capability, Capability] = {}
    for arch in archs:
        # `ptx` is the last field in the order, so of equal targets the one with PTX is the largest.
        united[arch.target] = max(united.get(arch.target, arch), arch)
    return sorted(united.values())


def _shared_code_notes(
    wanted: Iterable[Capability], runs: Mapping[Capability, Capability]
) -> Iterator[str]:
    groups: dict[Capability, list[str]] = {}
    for arch in wanted:
        if runs[arch.target] != arch.target:
            groups.setdefault(runs[arch.target], []).append(f"`{arch.target}`")
    for base, others in groups.items():
        verb = "runs" if len(others) == 1 else "run"
        yield f"{' and '.join(others)} {verb} the code of `{base}` (`cuda-group-archs`)"


def _is_known(flag: str, toolkit: Version | None) -> bool:
    old = toolkit is not None and toolkit < _FIRST_TEMPLATE_STUB
    return not (old and _TEMPLATE_STUB.fullmatch(flag))


def _is_relocatable(flags: Sequence[str]) -> bool:
    """The last word counts; nvcc takes a value after `=` or as the next argument."""
    values = _RELOCATABLE.findall(" ".join(flags))
    if any(flag in _DEVICE_C for flag in flags):
        return True
    return bool(values) and values[-1] == "true"
