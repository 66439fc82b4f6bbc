"""What is compiled and linked against of one Torch release, for every backend, from one wheel.

Torch's headers do not depend on the interpreter, nor on the CUDA release. A CPU wheel lacks two
headers that the build generates for CUDA; they are written here. All libraries are link stubs, so
that the result is the same whichever wheel was there, and so that no symbol of libstdc++ that
Torch's libraries happen to export is taken from them.
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

# caffe2's and c10's CMake files write these: aten/src/ATen/cuda/CUDAConfig.h.in and
# c10/cuda/impl/cuda_cmake_macros.h.in of the Torch repository.
_GENERATED = {
    "torch/include/c10/cuda/impl/cuda_cmake_macros.h": """\
#pragma once
// Written by kbuild: the wheel that these headers are from was built without CUDA.
#define C10_CUDA_BUILD_SHARED_LIBS
""",
    "torch/include/ATen/cuda/CUDAConfig.h": """\
#pragma once
// Written by kbuild: the wheel that these headers are from was built without CUDA.
#define AT_CUDNN_ENABLED() 1
#define AT_CUSPARSELT_ENABLED() 1
#define AT_HIPSPARSELT_ENABLED() 0
#define AT_ROCM_ENABLED() 0
#define AT_MAGMA_ENABLED() 1
#define NVCC_FLAGS_EXTRA ""
""",
}


def include_folders(root: Path) -> tuple[Path, ...]:
    """As `torch.utils.cpp_extension.include_paths` has them."""
    include = root / "torch" / "include"
    return include, include / "torch" / "csrc" / "api" / "include"


def place(name: str) -> str | None:
    """Which members of a Torch wheel are kept; see `archive.Place`."""
    return name if _WANTED.fullmatch(name) else None


def _complete(root: Path, stubs: StubMaker) -> dict[str, Any]:
    stubs.make_libraries(root / LINK_FOLDER, {f"lib{name}.so": () for name in LIBRARIES})
    return {"generated": _complete_headers(root)}


def _complete_headers(root: Path) -> list[str]:
    """Write the generated headers that the wheel does not have."""
    missing = {name: text for name, text in _GENERATED.items() if not (root / name).is_file()}
    for name, text in missing.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return sorted(missing)


TORCH = Tree("torch", 1, place, _complete)
