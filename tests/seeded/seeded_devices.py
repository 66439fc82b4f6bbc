"""Device code that is not what `metadata.json` says, and libraries of other systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kbuild.checks.streams import MARK
from tests.seeded.seeded_recipe import (
    CUDA,
    GOOD,
    ID,
    MACOS,
    ROCM,
    WINDOWS,
    Case,
    Recipe,
    Stub,
    calling,
    on,
)
from tests.support.device_code import MACHINE, PTX, bundle, code_object, fatbin, loose, noted, older
from tests.support.macho_pe import macho, pe

INIT = (f"PyInit_{ID}",)
FALLBACK = b".version 8.0\n.target sm_80\n\0"
ARCHS = ("8.0+PTX", "9.0a", "10.0f")
CODE = ((MACHINE, "80"), (PTX, "80"), (MACHINE, "90a"), (MACHINE, "100f"))


def cuda(*entries: tuple[int, str]) -> Recipe:
    """A CUDA variant with these entries in its fat binary."""
    sections = {".nv_fatbin": fatbin(*entries)}
    return Recipe(variant=CUDA, sections=sections, metadata={"archs": ARCHS})


def rocm(*archs: str) -> Recipe:
    """A ROCm variant with code for these."""
    sections = {".hip_fatbin": bundle(*archs)}
    return Recipe(variant=ROCM, sections=sections, metadata={"archs": ("gfx90a", "gfx942")})


def launched(*images: bytes) -> Recipe:
    """A CUDA variant with images of a kernel in a Python DSL, and PTX as the fallback."""
    sections = {".kbuild_images": loose(*images)}
    return Recipe(variant=CUDA, sections=sections, metadata={"archs": ("8.0+PTX", "9.0a")})


def macos(**how: object) -> Recipe:
    """A variant for macOS, its library written field by field."""
    return Recipe(variant=MACOS, library=macho(exported=INIT, **how))  # type: ignore[arg-type]


def windows(*libraries: str) -> Recipe:
    """A variant for Windows that imports from these."""
    imports = {name: ["PyModule_Create2"] for name in libraries}
    return Recipe(variant=WINDOWS, library=pe(exported=INIT, imports=imports), file=f"{ID}.pyd")


def linked(*words: bytes) -> Recipe:
    """A CUDA variant with objects of CuTe DSL: it launches through the CUDA runtime."""
    return replace(
        cuda(*CODE),
        source=calling("cudaLaunchKernelExC"),
        stubs=(Stub("libcudart.so.13", ("cudaLaunchKernelExC",)),),
        sections={**cuda(*CODE).sections, ".kbuild_words": b"\0".join(words)},
    )


GOOD_DEVICES: Mapping[str, Recipe] = {
    "cuda": cuda(*CODE),
    "rocm": rocm("gfx90a", "gfx942"),
    "launched": launched(older("80"), noted("90a"), FALLBACK),
    "launched, PTX alone for 8.0": launched(noted("90a"), FALLBACK),
    "launched on ROCm": Recipe(
        variant=ROCM,
        sections={".kbuild_images": loose(code_object("gfx942"), code_object("gfx90a"))},
        metadata={"archs": ("gfx90a", "gfx942")},
    ),
    "linked": linked(b"nvidia-cutlass-dsl 4.8.1", MARK),
    "macos": macos(),
    "windows": windows("python3.dll"),
}
DEVICES = (
    Case("driver not needed", "a function of CUDA's driver, libcuda not linked", "needed",
        "does not need `libcuda.so.1`",
        replace(cuda(*CODE), source=calling("cuTensorMapEncodeTiled"))),
    Case("default stream", "objects of CuTe DSL in a launcher that leaves streams to them",
        "streams", "launches without a stream run on the default stream",
        linked(b"nvidia-cutlass-dsl 4.8.1")),
    Case("missing arch", "no code for one named arch", "archs", "no library has code for 10.0f",
        cuda(*CODE[:-1])),
    Case("missing PTX", "no PTX, though `8.0+PTX` is named", "archs",
        "no library has code for PTX of 8.0", cuda(CODE[0], *CODE[2:])),
    Case("extra arch", "code for an arch that nobody named", "archs", "has code for 12.0",
        cuda(*CODE, (MACHINE, "120"))),
    Case("missing gfx", "the same for ROCm", "archs", "no library has code for gfx942",
        rocm("gfx90a")),
    Case("missing image", "no image of a launched kernel for one named arch", "archs",
        "no library has code for 9.0a", launched(older("80"), FALLBACK)),
    Case("extra image", "an image for an arch that nobody named", "archs", "has code for 10.0a",
        launched(older("80"), noted("90a"), noted("100a"), FALLBACK)),
    Case("image with paths", "a line table of the author's machine in an image", "images",
        "its device code names `/home/me/kernels/add.py`",
        launched(older("80"), noted("90a", b"/home/me/kernels/add.py\0"), FALLBACK)),
    Case("device code in a CPU variant", "CUDA code, backend `cpu`", "archs",
        "but the variant is for cpu",
        on(GOOD["cpu"], sections={".nv_fatbin": fatbin((MACHINE, "80"))})),
)  # fmt: skip
FOREIGN = (
    Case(
        "newer macOS", "`minos` 26.0", "macos", "needs macOS 26.0, after 15.0", macos(minos="26.0")
    ),
    Case("run path, macOS", "LC_RPATH of the build", "macos", "LC_RPATH is `/opt/build/lib`",
        macos(rpaths=("/opt/build/lib",))),
    Case("one CPython, Windows", "imports from `python311.dll`", "windows",
        "only CPython 3.11 loads it", windows("python311.dll")),
)  # fmt: skip
