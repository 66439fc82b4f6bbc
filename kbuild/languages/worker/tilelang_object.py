"""An object made of source: by nvcc for a GPU, by the host's compiler for the CPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tilelang  # type: ignore[import-not-found]

from kbuild.languages.worker.protocol import RefusalError
from kbuild.languages.worker.tilelang_emit import Emitted, runtime_of

_NVCC, _HIPCC, _CXX = "KBUILD_NVCC", "KBUILD_HIPCC", "KBUILD_CXX"
_LINES = 12
_SOURCE = "object"


def compiled(source: str, made: Emitted, request: Mapping[str, Any], output: Path) -> None:
    """Compile `source` to `output`.

    Raises:
        RefusalError: the compiler does not take it.
    """
    folder = output.parent / "tilelang"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    arch = request["arch"]
    which, suffix, command = {"": _HOST, "hip": _AMD, "cuda": _NVIDIA}[runtime_of(arch)]
    name = f"{_SOURCE}.{suffix}"
    (folder / name).write_text(source, "utf-8")
    argv = command(name, made, arch)
    if command is _hip:
        _without_rocwmma(folder)
        argv.append(f"-cuid={hashlib.sha256(source.encode()).hexdigest()[:16]}")
    done = subprocess.run(  # noqa: TID251 - in a worker, which has no doors
        argv, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not (folder / f"{_SOURCE}.o").is_file():
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        what = f"the {which} compiler refuses what TileLang wrote for `{request['function']}`"
        refusal = RefusalError(f"{what} ({arch})")
        refusal.excerpt = tuple(said[:_LINES])
        raise refusal
    (folder / f"{_SOURCE}.o").replace(output)


def _nvcc(name: str, made: Emitted, arch: str) -> list[str]:
    """The command; files that it leaves behind give symbols names without a process number."""
    number = arch.removeprefix("sm_")
    return [
        os.environ[_NVCC], "-std=c++20", "-O3", "-w", "-c", name, "-o", f"{_SOURCE}.o",
        "-gencode", f"arch=compute_{number},code=sm_{number}",
        "-ccbin", os.environ[_CXX], "-Xcompiler", "-fPIC,-fvisibility=hidden",
        "-keep", "-keep-dir", ".", *_includes(), *made.flags,
    ]  # fmt: skip


def _hip(name: str, made: Emitted, arch: str) -> list[str]:
    """The command, but for the unit's name, which would tell its folder."""
    compiler = Path(os.environ[_HIPCC])
    return [
        str(compiler), "-x", "hip", "-std=c++17", "-O3", "-w", "-c", name, "-o", f"{_SOURCE}.o",
        f"--offload-arch={arch}", f"--rocm-path={_rocm(compiler)}",
        "-fPIC", "-fvisibility=hidden", "-I.", *_includes(), *made.flags,
    ]  # fmt: skip


def _rocm(compiler: Path) -> Path:
    """The installation that a `[lib/]llvm/bin/clang++` belongs to."""
    folder = compiler.parents[2]
    return folder.parent if folder.name == "lib" else folder


def _without_rocwmma(folder: Path) -> None:
    """TileLang's headers include a library that they use nothing of."""
    (folder / "rocwmma").mkdir()
    text = "#pragma once\n#include <hip/hip_bfloat16.h>\n"
    (folder / "rocwmma" / "rocwmma.hpp").write_text(text, "utf-8")


def _cxx(name: str, made: Emitted, arch: str) -> list[str]:
    del made, arch
    return [
        os.environ[_CXX], "-std=c++17", "-O3", "-w", "-fPIC", "-fvisibility=hidden", "-c", name,
        "-o", f"{_SOURCE}.o", "-ffp-contract=off", *_includes(),
    ]  # fmt: skip


def _includes() -> list[str]:
    """The headers that the DSL brings."""
    root = Path(tilelang.__file__).parent
    return [f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]


_HOST, _AMD, _NVIDIA = ("C++", "cpp", _cxx), ("HIP", "hip", _hip), ("CUDA", "cu", _nvcc)
"""What a compiler compiles, the suffix of that, and the command."""
