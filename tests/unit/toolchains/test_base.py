from __future__ import annotations

from pathlib import Path

from kbuild.system.processes import ProcessResult
from kbuild.toolchains.device_compilers import find_device_compiler
from kbuild.toolchains.facts import FactCache


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


def test_icpx_is_found_on_the_path(tmp_path: Path, monkeypatch) -> None:
    icpx = program(tmp_path / "bin" / "icpx")
    monkeypatch.setenv("PATH", str(icpx.parent))
    text = "Intel(R) oneAPI DPC++/C++ Compiler 2026.0.0 (2026.0.0.20260331)\n"
    found = find_device_compiler("xpu", FactCache(tmp_path / "cache"), Compiler(text))
    assert found is not None
    assert found.fits("2026.0.0")
    assert dict(found.entries) == {"CMAKE_CXX_COMPILER": str(icpx)}
