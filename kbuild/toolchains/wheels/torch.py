"""What is compiled and linked against of one Torch release, for every backend, from one wheel.

Torch's headers do not depend on the interpreter, nor on the CUDA release: the lock has one digest
for those of all wheels of a release. Only a wheel for the CPU has other ones, without some of those
for CUDA, so it serves where no device is compiled for and the index has no other. All libraries are
link stubs, so that the result is the same whichever wheel was there, and so that no symbol of
libstdc++ that Torch's libraries happen to export is taken from them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kbuild.toolchains.wheels.stubs import StubMaker
from kbuild.toolchains.wheels.tree import Tree

_WANTED = re.compile(
    r"torch/(include|share/cmake)/.+|torch/version\.py|torch/utils/hipify/[^/]+\.py"
    r"|torch/lib/lib(c10|c10_cuda|c10_hip|c10_xpu|torch)\.so|torch-[^/]+\.dist-info/METADATA"
)
LIBRARIES = ("torch", "torch_cpu", "c10", "torch_cuda", "c10_cuda", "torch_hip", "c10_hip")
LINK_FOLDER = "link"
"""Folder of the stubs; `torch/lib` holds the small real libraries, for looking symbols up."""


def include_folders(root: Path) -> tuple[Path, ...]:
    """As `torch.utils.cpp_extension.include_paths` has them."""
    include = root / "torch" / "include"
    return include, include / "torch" / "csrc" / "api" / "include"


def place(name: str) -> str | None:
    """Which members of a Torch wheel are kept; see `archive.Place`."""
    return name if _WANTED.fullmatch(name) else None


def _complete(root: Path, stubs: StubMaker) -> dict[str, Any]:
    stubs.make_libraries(root / LINK_FOLDER, {f"lib{name}.so": () for name in LIBRARIES})
    return {}


TORCH = Tree("torch", 1, place, _complete)
