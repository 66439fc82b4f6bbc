"""Measure what one `#include` costs and write `kbuild/advice/header_measurements.toml`.

Usage: `python scripts/refresh_header_costs.py [--torch 2.13] [--cuda 13.0]` on an idle Linux
machine with a C++ compiler; takes ten minutes. Compilers and headers are those of the toolchain
from wheels.

Each header is compiled alone: for the host by g++ -O2, and by nvcc -O2 once as a whole for one
architecture and once for the device only, which is what each further architecture costs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.build.unit import compiler, inputs
from kbuild.plan import Requirements
from kbuild.runtime.processes import LocalRunner
from kbuild.toolchains.base import Toolchain
from kbuild.toolchains.wheels.source import SYSTEM, WheelToolchains

TARGET = Path(__file__).parent.parent / "kbuild/advice/header_measurements.toml"
HEADERS = (
    "", "torch/headeronly/core/ScalarType.h", "c10/util/Exception.h", "c10/cuda/CUDAStream.h",
    "torch/csrc/stable/library.h", "ATen/core/Tensor.h", "ATen/cuda/CUDAContext.h",
    "ATen/ops/empty_like.h", "torch/library.h", "ATen/Functions.h", "ATen/ATen.h", "torch/all.h",
)  # fmt: skip
HOST_ONLY = ("ATen/Functions.h",)
ARCH = "90"
REPEATS, ENOUGH = 3, 4.0
"""The least of so many compilations counts, as long as they take no more CPU seconds than this."""
PREAMBLE = """\
# What one #include costs to compile, as scripts/refresh_header_costs.py found: edits are lost.
#
# header      what was included; empty for a file that includes nothing.
# files, kib  headers that g++ reads for it, and their size.
# host        CPU seconds and MiB (largest process) of g++ -O2.
# device      CPU seconds of nvcc -O2: `base` once, `arch` for each architecture; MiB as above.
#             Absent where it was not measured.
# Seconds are those of the machine of the measurement: ratios are what carries over to another one.
"""


@dataclass(frozen=True)
class Row:
    """One header's figures."""

    header: str
    files: int
    kib: int
    host: tuple[float, int]
    device: tuple[float, float, int] | None

    def to_toml(self) -> str:
        """One array entry."""
        seconds, mib = self.host
        lines = [
            "[[measured]]",
            f'header = "{self.header}"',
            f"files = {self.files}",
            f"kib = {self.kib}",
            f"host = {{ seconds = {seconds:.2f}, mib = {mib} }}",
        ]
        if self.device:
            base, arch, most = self.device
            lines.append(f"device = {{ base = {base:.2f}, arch = {arch:.2f}, mib = {most} }}")
        return "\n".join(lines)


class Bench:
    """A folder to compile in, with one toolchain."""

    def __init__(self, toolchain: Toolchain, folder: Path) -> None:
        facts = dict(toolchain.cache)
        folders = facts["KBUILD_TORCH_INCLUDE_DIRS"].split(";")
        python = facts["KBUILD_PYTHON_INCLUDE_DIR"]
        self._search = [f"-I{path}" for path in (*folders, python)]
        self._cxx, self._nvcc = facts["CMAKE_CXX_COMPILER"], facts["CMAKE_CUDA_COMPILER"]
        self._cuda = [f"-isystem={path}" for path in (f"{facts['CUDAToolkit_ROOT']}/include",)]
        self._folder = folder

    def row(self, header: str) -> Row:
        """Measure one header."""
        text = f"#include <{header}>\n" if header else ""
        sources = [self._folder / name for name in ("unit.cpp", "unit.cu")]
        for source in sources:
            source.write_text(text)
        host = self._host(sources[0])
        read = [
            Path(path) for path in inputs.parse_depfile((self._folder / "unit.d").read_text())[1:]
        ]
        kib = sum(path.stat().st_size for path in read) // 1024
        device = None if header in HOST_ONLY else self._device(sources[1])
        return Row(header, len(read), kib, host, device)

    def _host(self, source: Path) -> tuple[float, int]:
        cuda = [flag.replace("-isystem=", "-I") for flag in self._cuda]
        found = self._run([self._cxx, "-MD", "-MF", f"{self._folder}/unit.d", *cuda], source)
        if found is None:
            raise SystemExit(f"{self._cxx} does not compile {source.read_text()}")
        return found

    def _device(self, source: Path) -> tuple[float, float, int] | None:
        flags = ["--expt-relaxed-constexpr", "--expt-extended-lambda"]
        code = f"-gencode=arch=compute_{ARCH},code=sm_{ARCH}"
        whole = self._run([self._nvcc, *flags, code], source)
        arch = self._run([self._nvcc, *flags, code], source, "-cubin")
        if whole is None or arch is None:
            return None
        return max(0.0, whole[0] - arch[0]), arch[0], whole[1]

    def _run(
        self, command: Sequence[str], source: Path, what: str = "-c"
    ) -> tuple[float, int] | None:
        """(CPU seconds, MiB) of the quickest; None when it does not compile."""
        target = str(source.with_suffix(".o"))
        words = [
            "-std=c++20",
            "-O2",
            "-DUSE_CUDA=1",
            *self._search,
            what,
            str(source),
            "-o",
            target,
        ]
        took: list[tuple[float, int]] = []
        while len(took) < REPEATS and sum(seconds for seconds, _ in took) < ENOUGH:
            ended = compiler.run_compiler([*command, *words], str(self._folder / "said"))
            if ended.status:
                print(ended.said.decode()[-500:], file=sys.stderr)
                return None
            took.append((ended.user + ended.system, ended.peak))
        return min(took)


def main() -> int:
    """Measure, write; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch", default="2.13", help="Torch release")
    parser.add_argument("--cuda", default="13.0", help="CUDA release")
    asked = parser.parse_args()
    cache = Path(os.environ.get("KBUILD_CACHE_DIR", Path.home() / ".cache/kbuild"))
    needs = Requirements("cuda", torch=asked.torch, toolkit=asked.cuda, system=SYSTEM)
    toolchain = WheelToolchains(LocalRunner(), cache).provision(needs)
    os.environ.update(toolchain.env)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(toolchain, Path(folder))
        for header in HEADERS:
            rows.append(bench.row(header))
            print(rows[-1].to_toml(), flush=True)
    versions = ", ".join(f"{name} {version}" for name, version in toolchain.versions)
    text = [PREAMBLE, f'with = "{versions}"', *(f"\n{row.to_toml()}" for row in rows)]
    TARGET.write_text("\n".join(text) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
