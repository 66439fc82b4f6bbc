"""A shelf with tiny wheels of every project that toolchains are made from."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from kbuild.toolchains.wheels.cuda import HEADER_LIBRARIES, HEADER_PROGRAMS, LIBRARIES, PROGRAMS
from kbuild.toolchains.wheels.lock import (
    LockedRelease,
    LockedToolkit,
    ToolchainLock,
    headers_digest,
)
from kbuild.toolchains.wheels.wheel_file import record_digest
from tests.support.wheel_index import make_wheel, pinned

PREFIX = "nvidia/cu13"
CUDA_MEMBERS = {
    "nvidia-cuda-nvcc": {
        f"{PREFIX}/bin/nvcc": b"#!/bin/sh\n",
        f"{PREFIX}/bin/nvcc.profile": b'LIBRARIES =+ "-L$(TOP)/lib"\n',
    },
    "nvidia-nvvm": {f"{PREFIX}/nvvm/bin/cicc": b"cicc", f"{PREFIX}/lib/libnvvm.so.4": b"nvvm"},
    "nvidia-cuda-runtime": {
        f"{PREFIX}/include/cuda_runtime.h": b"int cudaMalloc(void **);\n",
        f"{PREFIX}/include/cuda.h": b"int cuInit(unsigned);\n#define cuGet(x) cuGet_v2(x)\n",
        f"{PREFIX}/lib/libcudart.so.13": b"cudart",
        "nvidia/__init__.py": b"",
        f"{PREFIX}/lib/__init__.py": b"",
    },
    "nvidia-cublas": {
        f"{PREFIX}/include/cublas_v2.h": b"int cublasCreate_v2(int); int cublasLtMatmul(int);\n",
        f"{PREFIX}/lib/libcublas.so.13": b"blas" * 1000,
        f"{PREFIX}/lib/libcublasLt.so.13": b"lt" * 1000,
    },
}
OLD_MEMBERS = {
    "nvidia-cuda-runtime-cu12": {
        "nvidia/cuda_runtime/include/cuda_runtime.h": b"int cudaMalloc(void **);\n",
        "nvidia/cuda_runtime/lib/libcudart.so.12": b"cudart",
    },
    "nvidia-cuda-nvcc-cu12": {
        "nvidia/cuda_nvcc/bin/ptxas": b"of no use",
        "nvidia/cuda_nvcc/include/crt/host_config.h": b"#if __GNUC__ > 99\n",
    },
}
TORCH_MEMBERS = {
    "torch/__init__.py": b"raise ImportError\n",
    "torch/version.py": b"__version__ = '2.14.1'\n",
    "torch/include/torch/library.h": b"#pragma once\n",
    "torch/include/torch/csrc/api/include/torch/torch.h": b"#pragma once\n",
    "torch/include/THC/THCAtomics.cuh": b"#include <ATen/cuda/Atomic.cuh>\n",
    "torch/share/cmake/Torch/TorchConfig.cmake": b"",
    "torch/lib/libc10.so": b"c10",
    "torch/lib/libtorch_cpu.so": b"torch_cpu" * 1000,
    "torch/utils/hipify/hipify_python.py": b"",
}
TVM_FFI_MEMBERS = {
    "tvm_ffi/__init__.py": b"raise ImportError\n",
    "tvm_ffi/include/tvm/ffi/tvm_ffi.h": b"void TVMFFIOfAnotherHeader();\n",
    "tvm_ffi/include/tvm/ffi/c_api.h": b"int TVMFFIObjectIncRef(void *);  // API\n"
    b"void TVMFFIErrorSetRaised(void *);\n#define TVM_FFI_DLL f()\n",
    "tvm_ffi/lib/libtvm_ffi.so": b"tvm_ffi" * 1000,
    "apache_tvm_ffi-0.1.15.post2.dist-info/licenses/LICENSE": b"a licence\n",
}
FOR_DEVICES = "torch/include/THC/THCAtomics.cuh"
"""What a wheel for the CPU does not have."""


def fill(shelf: Path) -> ToolchainLock:
    """Make the wheels; the lock that pins them."""
    made = {
        project: make_wheel(shelf, project, "13.0.88", CUDA_MEMBERS.get(project, _filler(project)))
        for project in (*PROGRAMS, *LIBRARIES)
    }
    programs, libraries = (
        tuple(pinned(made[project]) for project in projects) for projects in (PROGRAMS, LIBRARIES)
    )
    toolkit = LockedToolkit("13.0.3.0", programs, libraries)
    torch = LockedRelease("2.14.1", (_torch(shelf),), headers_of(TORCH_MEMBERS))
    ffi = LockedRelease("0.1.15.post2", (_tvm_ffi(shelf),), headers_of(TVM_FFI_MEMBERS))
    runtimes = {"12.4": headers(shelf)}
    return ToolchainLock(
        {"13.0": toolkit}, {"2.14": torch}, runtimes=runtimes, tvm_ffi={"0.1": ffi}
    )


def headers(shelf: Path) -> LockedToolkit:
    """CUDA 12.4 without a compiler."""
    programs, libraries = (
        tuple(pinned(_old_wheel(shelf, project)) for project in projects)
        for projects in (HEADER_PROGRAMS, HEADER_LIBRARIES)
    )
    return LockedToolkit("12.4.1", programs, libraries)


def _old_wheel(shelf: Path, project: str) -> Path:
    return make_wheel(shelf, project, "12.4.127", OLD_MEMBERS.get(project, _filler(project)))


def headers_of(members: Mapping[str, bytes]) -> str:
    return headers_digest({name: record_digest(sha256(data)) for name, data in members.items()})


def _filler(project: str) -> dict[str, bytes]:
    return {f"{PREFIX}/include/{project}.h": b"#pragma once\n"}


def _torch(shelf: Path):
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    return pinned(make_wheel(shelf, "torch", "2.14.1", TORCH_MEMBERS, tag=tag))


def _tvm_ffi(shelf: Path):
    tag = "cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64"
    version = "0.1.15.post2"
    return pinned(make_wheel(shelf, "apache-tvm-ffi", version, TVM_FFI_MEMBERS, tag=tag))
