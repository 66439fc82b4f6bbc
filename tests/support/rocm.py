"""The ROCm that tests compile with: an installed one, or a folder made of Debian's `hipcc`.

Debian's packages are older than every ROCm of the matrix and lie elsewhere. So the folder says that
it is ROCm 7.2, and has a runtime without code whose soname is that of ROCm 7: what is compiled is
looked at and never run. Debian 12 has no rocThrust, of which Torch's headers need little.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbuild.toolchains.rocm import RocmInstallation, find_rocm
from tests.support.command_project import run

RELEASE = "7.2.0"
SONAME = "libamdhip64.so.7"
ARCHS = ("gfx90a", "gfx1030")
"""Architectures that the oldest of these compilers knows."""
COMPILER = """\
#!/bin/bash
# Clang finds GCC itself; before release 16 it refuses to be told.
arguments=()
for argument in "$@"; do
  [[ $argument == --gcc-install-dir=* ]] || arguments+=("$argument")
done
exec {clang} "${{arguments[@]}}"
"""
HIP_CONFIG = """\
get_filename_component(rocm "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
if(NOT TARGET hip::host)
  add_library(hip::amdhip64 SHARED IMPORTED)
  set_target_properties(hip::amdhip64 PROPERTIES
    IMPORTED_LOCATION "${{rocm}}/lib/{soname}" IMPORTED_SONAME "{soname}"
    INTERFACE_INCLUDE_DIRECTORIES "${{rocm}}/include")
  add_library(hip::host INTERFACE IMPORTED)
  set_target_properties(hip::host PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "__HIP_PLATFORM_AMD__=1" INTERFACE_LINK_LIBRARIES hip::amdhip64)
endif()
"""
HIP_LANG_CONFIG = """\
get_filename_component(rocm "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hip-lang::device)
  add_library(hip-lang::device INTERFACE IMPORTED)
  set_target_properties(hip-lang::device PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "$<$<COMPILE_LANGUAGE:HIP>:${rocm}/include>")
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
"""
COMPLEX = """\
#pragma once
namespace thrust {
template <typename T> struct complex {
  T re, im;
  __host__ __device__ complex(T re = T(), T im = T()) : re(re), im(im) {}
  __host__ __device__ T real() const { return re; }
  __host__ __device__ T imag() const { return im; }
};
template <typename T> __host__ __device__ complex<T> polar(const T &r, const T &theta);
}
"""


def rocm_for_tests(folder: Path) -> RocmInstallation:
    """An installed ROCm 7.2, or `folder`, which is made here; skips where neither is possible."""
    installed = find_rocm(os.environ)
    if installed is not None and (installed.version or "").startswith("7.2"):
        return installed
    hipcc = shutil.which("hipcc")
    if hipcc is None:
        pytest.skip("needs ROCm 7.2, or `apt install --no-install-recommends hipcc`")
    _make(folder, Path(hipcc).resolve().parent.parent)
    return RocmInstallation(folder)


def _make(root: Path, usr: Path) -> None:
    clangs = [path for path in usr.glob("lib/llvm-*/bin/clang++") if (path.parent / "lld").exists()]
    libraries = usr / "lib" / str(sysconfig.get_config_var("MULTIARCH"))
    if not clangs or not (libraries / "amdgcn").is_dir():
        pytest.skip(f"{usr} has hipcc, but not in the places of Debian's packages")
    clang = max(clangs, key=lambda path: int(path.parts[-3].rpartition("-")[2]))
    for name, text in {
        ".info/version": RELEASE,
        "llvm/bin/clang++": COMPILER.format(clang=clang),
        "include/thrust/complex.h": COMPLEX,
        "lib/cmake/hip/hip-config.cmake": HIP_CONFIG.format(soname=SONAME),
        "lib/cmake/hip-lang/hip-lang-config.cmake": HIP_LANG_CONFIG,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "llvm/bin/clang++").chmod(0o755)
    (root / "llvm/bin/clang-offload-bundler").symlink_to(clang.with_name("clang-offload-bundler"))
    # FlyDSL needs one of LLVM 19 or later: Debian's `lld-19`.
    linkers = [*usr.glob("lib/llvm-*/bin/ld.lld")]
    newest = max(linkers, key=lambda path: int(path.parts[-3].rpartition("-")[2]))
    (root / "llvm/bin/ld.lld").symlink_to(newest)
    (root / "include/hip").symlink_to(usr / "include" / "hip")
    (root / "amdgcn").symlink_to(libraries / "amdgcn")
    _make_runtime(root / "lib" / SONAME, _exported(libraries / "libamdhip64.so"))


def _exported(library: Path) -> list[str]:
    """`hipMalloc@@hip_4.2` and the like."""
    done = run(("nm", "-D", "--defined-only", str(library)), cwd=library.parent)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    return [name for name in names if "@@hip" in name]


def _make_runtime(library: Path, names: Sequence[str]) -> None:
    """A library with these symbols, their versions, and no code."""
    versions: dict[str, list[str]] = {}
    for name, _, version in (name.partition("@@") for name in names):
        versions.setdefault(version, []).append(name)
    source, script = library.with_suffix(".s"), library.with_suffix(".map")
    symbols = [name for group in versions.values() for name in group]
    lines = (f".globl {name}\n.type {name}, @function\n{name}:\n" for name in symbols)
    source.write_text("".join(lines))
    script.write_text("".join(f"{v} {{ global: {'; '.join(n)}; }};\n" for v, n in versions.items()))
    options = (f"-Wl,-soname,{library.name}", f"-Wl,--version-script={script}", "-nostdlib")
    done = run(("c++", "-shared", *options, "-o", str(library), str(source)), cwd=library.parent)
    assert done.returncode == 0, done.stderr
