"""Device code that is not what `metadata.json` says, and libraries of other systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.seeded.seeded_recipe import (
    CUDA,
    GOOD,
    ID,
    MACOS,
    ROCM,
    Case,
    Recipe,
    calling,
    on,
)
from tests.support.device_code import MACHINE, PTX, bundle, code_object, fatbin, loose, noted, older
from tests.support.macho import macho

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
    "macos": macos(),
}
DEVICES = (
    Case("driver not needed", "a function of CUDA's driver, libcuda not linked", "needed",
        "does not need `libcuda.so.1`",
        replace(cuda(*CODE), source=calling("cuTensorMapEncodeTiled"))),
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
)  # fmt: skip
