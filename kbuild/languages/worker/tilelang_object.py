"""An object made of source: by nvcc for a GPU, by the host's compiler for the CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tilelang  # type: ignore[import-not-found]

from kbuild.languages.worker.protocol import RefusalError
from kbuild.languages.worker.tilelang_emit import CPU, Emitted

_NVCC, _CXX = "KBUILD_NVCC", "KBUILD_CXX"
_LINES = 12
_SOURCE = "object"


def compiled(source: str, made: Emitted, request: Mapping[str, Any], output: Path) -> None:
    """Compile `source` to `output`.

    Raises:
        RefusalError: the compiler does not take it.
    """
    folder = output.parent / "tilelang"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    is_cpu = request["arch"] == CPU
    name = f"{_SOURCE}.{'cpp' if is_cpu else 'cu'}"
    (folder / name).write_text(source, "utf-8")
    argv = _cxx(name) if is_cpu else _nvcc(name, made, request["arch"])
    done = subprocess.run(  # noqa: TID251 - in a worker, which has no doors
        argv, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not (folder / f"{_SOURCE}.o").is_file():
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        what = (
            f"the {'C++ compiler' if is_cpu else 'CUDA compiler'} refuses what TileLang wrote for "
        )
        refusal = RefusalError(what + f"`{request['function']}` ({request['arch']})")
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


def _cxx(name: str) -> list[str]:
    return [
        os.environ[_CXX], "-std=c++17", "-O3", "-w", "-fPIC", "-fvisibility=hidden", "-c", name,
        "-o", f"{_SOURCE}.o", "-ffp-contract=off", *_includes(),
    ]  # fmt: skip


def _includes() -> list[str]:
    """The headers that the DSL brings."""
    root = Path(tilelang.__file__).parent
    return [f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]
