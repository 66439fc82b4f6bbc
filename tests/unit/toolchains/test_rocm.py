from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.rocm import RocmInstallation, RocmToolchains, find_rocm
from tests.support.fake_machine import MACROS, fake_rocm, fake_torch, full, machine, stable


@pytest.fixture(autouse=True)
def on_x86(monkeypatch) -> None:
    monkeypatch.setattr("kbuild.toolchains.host.host_system", lambda: "x86_64-linux")


@pytest.fixture
def host(tmp_path) -> HostToolchains:
    return machine(tmp_path, fake_torch(tmp_path))[0]


def rocm_host(host: HostToolchains, folder: Path) -> RocmToolchains:
    return RocmToolchains(host, {"ROCM_PATH": str(folder)}, Path("/nonexistent"))


class TestFinding:
    def test_the_users_word_comes_first(self, tmp_path):
        usual = fake_rocm(tmp_path / "usual")
        assert find_rocm({"ROCM_PATH": str(tmp_path)}, usual) == RocmInstallation(tmp_path)

    def test_then_where_hipcc_really_is(self, tmp_path):
        installed = fake_rocm(tmp_path / "rocm-7.2.1")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "hipcc").symlink_to(installed / "bin" / "hipcc")
        found = find_rocm({"PATH": str(tmp_path / "bin")}, tmp_path / "none")
        assert found == RocmInstallation(installed)


class TestRefusals:
    def test_another_release_names_both(self, host, tmp_path):
        rocm = fake_rocm(tmp_path / "rocm", "6.4.1")
        refused = rocm_host(host, rocm).unsupported_reason(stable())
        assert refused == f"needs ROCm 7.2; {rocm} has 6.4.1"

    def test_the_full_abi_needs_torch_for_that_rocm(self, host, tmp_path):
        refused = rocm_host(host, fake_rocm(tmp_path / "rocm")).unsupported_reason(full())
        assert refused is not None
        assert refused.startswith("needs Torch 2.13 built for ROCm 7.2; ")
        assert refused.endswith("has 2.13.0+cpu")


class TestToolchain:
    def test_cmake_is_told_where_everything_is(self, host, tmp_path):
        rocm = fake_rocm(tmp_path / "rocm")
        made = rocm_host(host, rocm).provision(stable())
        entries = dict(made.cache)
        assert entries["CMAKE_HIP_COMPILER"] == str(rocm / "llvm/bin/clang++")
        assert entries["CMAKE_HIP_COMPILER_ROCM_ROOT"] == entries["hip_ROOT"] == str(rocm)
        assert "--gcc-install-dir=/usr/lib/gcc/13" in entries["CMAKE_HIP_FLAGS"]
        assert made.env["ROCM_PATH"] == str(rocm)
        assert ("rocm", "7.2.1") in made.summary.versions
        assert made.source == "rocm"

    def test_the_stable_abi_takes_any_torch_and_translates_its_headers(self, host, tmp_path):
        made = rocm_host(host, fake_rocm(tmp_path / "rocm")).provision(stable())
        first, second = dict(made.cache)["KBUILD_TORCH_INCLUDE_DIRS"].split(";")
        assert second == str(tmp_path / "torch/include")
        assert Path(first, MACROS).read_text() == "hipError_t\n"
        assert [path.name for path in Path(first).rglob("*") if path.is_file()] == ["macros.h"]

    def test_a_torch_for_rocm_is_taken_as_it_is(self, tmp_path):
        host, _ = machine(tmp_path, fake_torch(tmp_path, "2.13.0+rocm7.2", "7.2.53211"))
        made = rocm_host(host, fake_rocm(tmp_path / "rocm")).provision(full())
        entries = dict(made.cache)
        assert entries["KBUILD_TORCH_INCLUDE_DIRS"] == str(tmp_path / "torch/include")
        assert entries["KBUILD_HIPIFY_DIR"] == str(tmp_path / "torch/utils/hipify")
