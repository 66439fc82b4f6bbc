from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.plan import Requirements
from kbuild.project.variant import host_system
from kbuild.system.version import Version
from kbuild.toolchains.device_compilers import DeviceCompiler, nvcc_host_compiler
from kbuild.toolchains.facts import FactCache
from tests.support.fake_machine import FakeRunner, fake_torch, machine

CONFIG = """\
#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 17))
#if defined(__GNUC__)
#if __GNUC__ > 13
#if (__clang_major__ >= 19) || (__clang_major__ < 3)
#if (__clang_major__ >= 18) || (__clang_major__ < 3)
"""
OLD, NEW = "double cospi(double x);\n", "cospi(double) __NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER;\n"


def toolkit(folder: Path, functions: str = OLD) -> Path:
    crt = folder / "cuda" / "include" / "crt"
    crt.mkdir(parents=True)
    (crt / "host_config.h").write_text(CONFIG)
    (crt / "math_functions.h").write_text(functions)
    return folder / "cuda"


def runner(macros: str, glibc: str = "2 36") -> FakeRunner:
    major, minor = glibc.split()
    libc = f"#define __GLIBC__ {major}\n#define __GLIBC_MINOR__ {minor}\n"
    return FakeRunner({"features.h": libc, "-dM": macros})


@pytest.fixture
def choose(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def choose(root: Path, macros: str, *on_path: str, glibc: str = "2 36") -> str:
        for name in on_path:
            (tmp_path / "bin" / name).write_text("")
            (tmp_path / "bin" / name).chmod(0o755)
        asked = runner(macros, glibc)
        return nvcc_host_compiler(root, tmp_path / "c++", FactCache(tmp_path / "cache"), asked).name

    return choose


GCC = "#define __GNUC__ {}\n"
CLANG = "#define __GNUC__ 4\n#define __clang_major__ {}\n"


@pytest.mark.parametrize("macros", [GCC.format(13), GCC.format(12), CLANG.format(17)])
def test_a_compiler_within_the_bound_is_kept(tmp_path, choose, macros):
    assert choose(toolkit(tmp_path), macros, "g++-12") == "c++"


@pytest.mark.parametrize("macros", [GCC.format(14), CLANG.format(18)])
def test_the_newest_within_the_bound_takes_its_place(tmp_path, choose, macros):
    assert choose(toolkit(tmp_path), macros, "g++-14", "g++-12", "g++-11") == "g++-12"


def test_an_installed_nvcc_gets_a_compiler_that_it_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    for name in ("c++", "g++-13", "cmake", "ninja"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(0o755)
    root = toolkit(tmp_path, NEW)
    nvcc = DeviceCompiler(
        root / "bin" / "nvcc", Version((12, 6)), (("A", "b"),), has_host_compiler=True
    )
    host, asked = machine(tmp_path, fake_torch(tmp_path))
    asked.answers = {"-x c++ /dev/null": GCC.format(14), **asked.answers}
    host = replace(host, finder=lambda *_: nvcc)
    made = host.provision(Requirements("cuda", toolkit="12.6", system=str(host_system())))
    facts = dict(made.cache)
    assert facts["A"] == "b"
    assert facts["CMAKE_CUDA_HOST_COMPILER"] == str(tmp_path / "bin" / "g++-13")
    assert facts["CMAKE_CXX_COMPILER"] == str(tmp_path / "bin" / "c++")
