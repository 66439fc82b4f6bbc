from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.plan.plan import Requirements
from kbuild.project.variant import host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import ProcessResult
from kbuild.toolchains.base import FallbackToolchains, Toolchain, ToolchainSource
from kbuild.toolchains.device_compilers import find_device_compiler
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import HostToolchains

NEEDS = Requirements("cuda", toolkit="13.0")


class Source(ToolchainSource):
    def __init__(self, name: str, reason: str | None, *backends: str) -> None:
        self.name, self.reason, self.backends = name, reason, backends

    def refuses(self, requires: Requirements) -> str | None:
        return self.reason

    def provision(self, requires: Requirements) -> Toolchain:
        return Toolchain(self.name, Path("cmake"), Path("ninja"), Path("python"))


def test_the_first_that_fits_provides() -> None:
    box = FallbackToolchains(
        [Source("host", "no nvcc"), Source("wheels", None), Source("third", None)]
    )
    assert box.refuses(NEEDS) is None
    assert box.provision(NEEDS).source == "wheels"


def test_every_reason_is_told_once() -> None:
    box = FallbackToolchains([Source("host", "no nvcc"), Source("wheels", "offline")])
    assert box.refuses(NEEDS) == "host: no nvcc; wheels: offline"
    same = FallbackToolchains([Source("host", "needs aarch64"), Source("wheels", "needs aarch64")])
    assert same.refuses(NEEDS) == "needs aarch64"
    with pytest.raises(ToolchainError, match="no toolchain fits: host: no nvcc"):
        box.provision(NEEDS)


def test_reasons_are_of_what_could_have_served() -> None:
    box = FallbackToolchains([Source("host", "no nvcc"), Source("rocm", "for ROCm only", "rocm")])
    assert box.refuses(NEEDS) == "no nvcc"


def test_another_system_is_the_only_reason() -> None:
    box = FallbackToolchains([Source("host", "no nvcc"), Source("wheels", "offline")])
    elsewhere = Requirements("cuda", toolkit="13.0", system="s390x-linux")
    assert box.refuses(elsewhere) == f"needs s390x-linux; this machine is {host_system()}"


class Compiler:
    """Answers `--version`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, argv, **_) -> ProcessResult:
        return ProcessResult(tuple(argv), 0, self.text, 0.0)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def test_nvcc_is_found_where_cuda_home_says(tmp_path: Path, monkeypatch) -> None:
    nvcc = program(tmp_path / "cuda" / "bin" / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    text = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"
    found = find_device_compiler("cuda", FactCache(tmp_path / "cache"), Compiler(text))
    assert found is not None
    assert (str(found.version), found.program) == ("13.0", nvcc)
    assert found.fits("13.0")
    assert not found.fits("12.6")
    assert dict(found.entries)["CUDAToolkit_ROOT"] == str(tmp_path / "cuda")


def test_a_cuda_home_without_nvcc_is_believed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nothing"))
    assert (
        find_device_compiler("cuda", FactCache(tmp_path / "cache"), Compiler("release 13.0"))
        is None
    )


def test_icpx_is_found_on_the_path(tmp_path: Path, monkeypatch) -> None:
    icpx = program(tmp_path / "bin" / "icpx")
    monkeypatch.setenv("PATH", str(icpx.parent))
    text = "Intel(R) oneAPI DPC++/C++ Compiler 2026.0.0 (2026.0.0.20260331)\n"
    found = find_device_compiler("xpu", FactCache(tmp_path / "cache"), Compiler(text))
    assert found is not None
    assert found.fits("2026.0.0")
    assert dict(found.entries) == {"CMAKE_CXX_COMPILER": str(icpx)}


def test_python_only_variants_need_no_device_compiler(tmp_path: Path) -> None:
    host = HostToolchains(Compiler(""), FactCache(tmp_path), finder=None)
    assert host.refuses(Requirements("cuda")) is None
    compiled = Requirements("cuda", toolkit="13.0", system=str(host_system()))
    assert "needs a compiler for cuda 13.0" in str(host.refuses(compiled))
