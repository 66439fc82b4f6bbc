"""XPU: SYCL through Intel's DPC++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import StrictStr

from kbuild.backends.base import BACKENDS, Archs, Backend, DeviceCompilerSearch, UnitFlags
from kbuild.project.config.model import BackendGeneral, KernelSection
from kbuild.project.matrix import arch_entry
from kbuild.system.version import Version


class XpuGeneral(BackendGeneral):
    """The `[general.xpu]` table."""


class XpuSection(KernelSection):
    """A `[kernel.<name>]` table with `backend = "xpu"`."""

    backend: Literal["xpu"]
    sycl_flags: tuple[StrictStr, ...] = ()
    """DPC++ flags for `.cpp`, `.cc` and `.cxx` sources."""


_COMPILE = (
    "-fPIC", "-fsycl", "-fhonor-nans", "-fhonor-infinities", "-fno-associative-math",
    "-fno-approx-func", "-foffload-fp32-prec-div", "-foffload-fp32-prec-sqrt",
    "-fno-sycl-instrument-device-code", "--offload-compress",
)  # fmt: skip
_LINK = ("-Wl,-z,noexecstack", "-fsycl", "--offload-compress")
_DEVICE_OPTIONS = (
    "-cl-intel-enable-auto-large-GRF-mode"
    " -cl-poison-unsupported-fp64-kernels"
    " -cl-intel-greater-than-4GB-buffer-required"
)
_SYCL_TLA = "sycl_tla"
_SYCL_TLA_MACROS = ("-DCUTLASS_ENABLE_SYCL=1", "-DSYCL_INTEL_TARGET=1")
_CRI_MACRO = "__SYCL_TARGET_INTEL_GPU_CRI__"


@BACKENDS.add
class Xpu(Backend):
    """Intel GPUs through SYCL."""

    name = "xpu"
    other_names = ("sycl", "intel", "oneapi", "dpcpp")
    title = "XPU"
    section = XpuSection
    general = XpuGeneral
    in_client = True
    torch_field = "xpu"
    torch_device = "xpu"
    device_code = "SYCL"
    device_compiler = DeviceCompilerSearch(
        program="icpx",  # oneAPI's `setvars.sh` puts it on PATH
        release=r"(\d{4}\.\d+(?:\.\d+)?)",
        cmake=(("CMAKE_CXX_COMPILER", "{program}"),),  # it compiles the host's C++ as well
    )
    define = "XPU_KERNEL"
    dispatch_key = "XPU"
    definitions = ("USE_XPU",)
    languages = ("CXX", "SYCL")

    def flags(self, section: KernelSection, archs: Archs, toolkit: Version | None) -> UnitFlags:
        """DPC++'s SYCL mode, the offload targets, then `sycl-flags` and `cxx-flags`."""
        assert isinstance(section, XpuSection)  # noqa: S101 - the registry pairs them
        targets = ",".join(_offload([section], toolkit)["targets"])
        library = _SYCL_TLA_MACROS if _SYCL_TLA in section.depends else ()
        own = (*section.sycl_flags, *section.cxx_flags)
        return UnitFlags((("CXX", (*_COMPILE, f"-fsycl-targets={targets}", *library, *own)),))

    def link_flags(
        self, sections: Sequence[KernelSection], toolkit: Version | None
    ) -> tuple[str, ...]:
        """Device images are made when the extension is linked, for the same targets."""
        offload = _offload(sections, toolkit)
        return (
            *_LINK,
            f"-fsycl-targets={','.join(offload['targets'])}",
            *_ahead_of_time(offload["devices"]),
            *_extensions(offload),
        )

    def libraries(self, framework: str) -> tuple[str, ...]:
        """Torch's XPU libraries for its full ABI; `-fsycl` brings the runtime."""
        return ("torch_xpu", "c10_xpu") if framework == "torch" else ()


def _offload(sections: Sequence[KernelSection], toolkit: Version | None) -> Mapping[str, Any]:
    """The targets, devices and extensions that these kernels need together."""
    with_library = [section for section in sections if _SYCL_TLA in section.depends]
    flags = [f for s in with_library if isinstance(s, XpuSection) for f in s.sycl_flags]
    kind = "plain"
    if with_library:
        kind = "sycl-tla-cri" if any(_CRI_MACRO in flag for flag in flags) else "sycl-tla"
    offload: Mapping[str, Any] = arch_entry("xpu", toolkit)[kind]
    return offload


def _ahead_of_time(devices: Sequence[str]) -> tuple[str, ...]:
    if not devices:
        return ()
    options = f"-device {','.join(devices)} -options '{_DEVICE_OPTIONS}'"
    return ("-Xsycl-target-backend=spir64_gen", options)


def _extensions(offload: Mapping[str, Any]) -> tuple[str, ...]:
    """The list replaces the compiler's own, which CMake puts in front (`languages/SYCL.cmake`)."""
    names = ",".join(f"+{name}" for name in offload["extensions"])
    if not names:
        return ()
    each = ((f"-Xspirv-translator={t}", f"-spirv-ext={names}") for t in offload["targets"])
    return tuple(flag for pair in each for flag in pair)
